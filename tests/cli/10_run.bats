#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# sbx run: exit codes, streams, signals, terminals.
bats_require_minimum_version 1.5.0
load helper

setup_file() { cli_start; sbx new box >/dev/null; }
teardown_file() { cli_stop; }

@test "the exit code is the command's" {
	run sbx run box sh -c 'exit 7'
	[ "$status" -eq 7 ]
	run sbx run box true
	[ "$status" -eq 0 ]
}

@test "death by a signal is 128 and its number" {
	run sbx run box sh -c 'kill -TERM $$'
	[ "$status" -eq 143 ]
}

@test "a command that is not there is 127, one that cannot be executed 126, our failure 125" {
	run -127 sbx run box no-such-command-x9
	[[ $output == "sbx: "*"not found"* ]]
	run sbx run box /etc
	[ "$status" -eq 126 ]
	for name in cwdx 'is not executable' 'x/cwd: not executable'; do # whatever it is called
		run -127 sbx run box "$name"
	done
	run sbx run no-such-box true
	[ "$status" -eq 125 ]
	run sbx run -w /no-such-dir box true
	[ "$status" -eq 125 ]
	[[ $output == *cwd* ]]
	SBX_ENDPOINT=unix://$T/absent run sbx run box true
	[ "$status" -eq 125 ]
	[[ $output == "sbx: cannot reach sandboxd at unix://$T/absent: "* ]]
}

@test "--timeout ends the command with 124" {
	run sbx run --timeout 1 box sleep 30
	[ "$status" -eq 124 ]
}

@test "-d waits for nobody, so --timeout with it is refused and nothing is started" {
	n=$(sbx ps -q box | wc -l)
	run sbx run -d --timeout 1 box sleep 30
	[ "$status" -eq 125 ] || [ "$status" -eq 2 ]
	[[ $output == "sbx: --timeout "* ]]
	[ "$(sbx ps -q box | wc -l)" -eq "$n" ]
}

@test "output that was cut, or input that could not be read, is no success" {
	run -125 --separate-stderr sbx run box sh -c 'head -c 9000000 /dev/zero | tr "\0" x'
	[ "${#output}" -eq 8388608 ]
	[[ $stderr == "sbx: the output was cut at 8 MiB"* ]]
	run -3 --separate-stderr sbx run box sh -c 'head -c 9000000 /dev/zero | tr "\0" x; exit 3'
	run -125 sbx run box cat </
	[ "$output" = "sbx: standard input: Is a directory" ]
}

@test "standard output and standard error stay apart" {
	out=$(sbx run box sh -c 'echo out; echo err >&2' 2>"$T/err")
	[ "$out" = out ]
	[ "$(cat "$T/err")" = err ]
}

@test "bytes go through unchanged in both directions" {
	head -c 3000000 /dev/urandom >"$T/bytes"
	sbx run box cat <"$T/bytes" | cmp - "$T/bytes"
}

@test "a command that does not read its input does not hold up its output" {
	out=$(head -c 3000000 /dev/zero | sbx run box sh -c 'head -c 1000000 /dev/zero | wc -c; exec <&-; echo end' | tail -n 1)
	[ "$out" = end ]
}

@test "output comes while the command runs" {
	mkfifo "$T/live"
	"$O/bin/sbx" run box sh -c 'echo first; exec sleep 20' >"$T/live" 3>&- &
	read -r line <"$T/live"
	[ "$line" = first ]
	kill -TERM $!
	wait $! || true
	rm "$T/live"
}

@test "signals reach the remote command" {
	for s in INT TERM HUP; do
		env --default-signal "$O/bin/sbx" run box \
			sh -c "trap 'echo got; exit 9' $s; echo ready; while :; do sleep 0.05; done" >"$T/sig" 3>&- &
		pid=$!
		cli_wait grep -q ready "$T/sig"
		kill -$s $pid
		code=0
		wait $pid || code=$?
		[ "$code" -eq 9 ]
		grep -q got "$T/sig"
	done
}

@test "a signal that our parent ignores is not passed on" {
	nohup "$O/bin/sbx" run box sh -c "trap 'exit 9' HUP; echo ready; sleep 0.5; exit 0" >"$T/hup" 2>&1 </dev/null 3>&- &
	cli_wait grep -q ready "$T/hup"
	kill -HUP $!
	wait $!
}

@test "a command goes on while the server is killed and started again" {
	"$O/bin/sbx" run box sh -c 'echo one; echo two >&2; sleep 2; echo three; exit 5' >"$T/over" 2>"$T/over.err" </dev/null 3>&- &
	pid=$!
	"$O/bin/sbx" events -f >"$T/events" 2>&1 3>&- &
	events=$!
	cli_wait test -s "$T/events"
	job=$(sbx run -d box sh -c 'echo one; echo two >&2; sleep 2; echo three; exit 5')
	"$O/bin/sbx" logs -f box "$job" >"$T/logs" 2>"$T/logs.err" 3>&- &
	logs=$!
	"$O/bin/sbx" wait box "$job" >"$T/waited" 2>&1 3>&- &
	waiter=$!
	cli_wait grep -q two "$T/over.err"
	cli_wait grep -q two "$T/logs.err"
	cli_wait sh -c "ls -l /proc/$waiter/fd | grep -q socket:"
	kill -KILL "$(cat "$T/pid")"
	cli_wait cli_gone
	cli_server
	code=0
	wait $pid || code=$?
	[ "$code" -eq 5 ] || { cat "$T/over.err"; false; }
	[ "$(cat "$T/over")" = "$(printf 'one\nthree')" ]
	[ "$(cat "$T/over.err")" = two ]
	wait $logs
	[ "$(cat "$T/logs" "$T/logs.err")" = "$(printf 'one\nthree\ntwo')" ]
	code=0
	wait $waiter || code=$?
	[ "$code" -eq 5 ] || { cat "$T/waited"; false; }
	cli_wait grep -q "process.exited .* pid=$job exit_code=5" "$T/events"
	kill "$events"
	[ -z "$(sort "$T/events" | uniq -d)" ]
}

@test "a reader that leaves ends the command" {
	sbx run box yes | head -n 1
	[ "$(sbx ps -q box | wc -l)" -ge 1 ]
	cli_wait sh -c "! '$O/bin/sbx' ps box | grep running | grep -q yes"
}

@test "output that has no room is said, and is our failure" {
	run bash -c "'$O/bin/sbx' run box sh -c 'echo x; sleep 60' >/dev/full"
	[ "$status" -eq 125 ]
	[[ $output == *"standard output: No space left on device"* ]]
}

@test "output that has no room is no success of any command, and no other reason is given" {
	for words in "api GET /v1/node" "ls --json" "version" "help" "file ls box /"; do
		run bash -c "'$O/bin/sbx' $words >/dev/full"
		[ "$status" -eq 1 ] || { echo "$words: $status"; false; }
		[[ $output == "sbx: standard output: "@("No space left on device"|"cannot be written") ]] || { echo "$words: $output"; false; }
	done
}

@test "a sandbox that goes on holds nothing of who started the server" {
	mkdir "$T/o"
	export SBX_ENDPOINT=unix://$T/o/sock
	serve() { "$O/bin/sandboxd" --backend fake --listen "$SBX_ENDPOINT" --state-dir "$T/o/state" >"$T/o/log" 2>&1 3>&- & }
	serve 9>"$T/o/held"
	cli_wait sbx api GET /v1/health
	sbx new goes-on
	kill $!
	wait $!
	holders=$(find /proc/[0-9]*/fd -lname "$T/o/held" 2>/dev/null) || true
	serve
	cli_wait sbx api GET /v1/health
	sbx rm goes-on
	kill $!
	wait $!
	[ -z "$holders" ] || { echo "$holders"; false; }
}

@test "signals have their names in every language" {
	[ -e /usr/share/i18n/locales/tr_TR ] || skip "the sources of locales are not installed"
	localedef -i tr_TR -f ISO-8859-9 "$T/tr_TR"
	pid=$(sbx run -d box sleep 600)
	LOCPATH=$T LC_ALL=tr_TR run sbx kill box "$pid" sigint
	[ "$status" -eq 0 ] || { echo "$output"; false; }
	run sbx wait box "$pid"
	[ "$status" -eq 130 ]
}

@test "-e takes a value, or one's own variable" {
	MINE=own run sbx run -e GIVEN=g -e MINE -e NOT_SET_HERE box sh -c 'echo $GIVEN $MINE ${NOT_SET_HERE-unset}'
	[ "$output" = "g own unset" ]
}

@test "options behind the command are the command's" {
	run sbx run box echo -w --json -e
	[ "$output" = "-w --json -e" ]
	run sbx run box -- echo --
	[ "$output" = "--" ]
}

@test "-d prints the number; logs, wait and ps know it" {
	pid=$(sbx run -d box sh -c 'echo out; exit 4')
	run sbx wait box "$pid"
	[ "$status" -eq 4 ]
	run sbx logs box "$pid"
	[ "$output" = out ]
	sbx ps box | grep -q "^$pid .*exited"
}

@test "a detached command sees the end of its input" {
	pid=$(sbx run -d box cat)
	run timeout 10 "$O/bin/sbx" wait box "$pid"
	[ "$status" -eq 0 ]
}

@test "logs without -f shows a running command's output and returns" {
	pid=$(sbx process start box sh -c 'echo so far; exec sleep 30')
	cli_wait sh -c "'$O/bin/sbx' logs box $pid | grep -q 'so far'"
	run timeout 5 "$O/bin/sbx" logs box "$pid"
	[ "$output" = "so far" ]
	sbx kill box "$pid" KILL
	run sbx wait box "$pid"
	[ "$status" -eq 137 ]
}

@test "process start leaves the input open, run -d ends it" {
	pid=$(sbx process start box cat)
	echo one | sbx process stdin box "$pid"
	echo two | sbx process stdin --close box "$pid"
	sbx wait box "$pid"
	[ "$(sbx logs box "$pid")" = $'one\ntwo' ]
	pid=$(sbx run -d box cat)
	sbx wait box "$pid"
	run sbx process stdin box "$pid" <<<late
	[ "$status" -eq 1 ]
}

@test "whoever reads a listing may go away: 141 as with any program, and no message" {
	pid=$(sbx run -d box seq 300000)
	sbx wait box "$pid"
	seq 300000 | sbx cp - box:/sandbox/home/long
	for list in "ps box" ls "logs box $pid" help "cat box /sandbox/home/long" "cp box:/sandbox/home/long -"; do
		run --separate-stderr python3 -c 'import os, subprocess, sys
r, w = os.pipe(); os.close(r)
sys.exit(subprocess.run(sys.argv[1:], stdout=w).returncode)' "$O/bin/sbx" $list
		[ "$status" -eq 141 ] || { echo "$list: $status"; return 1; }
		[ -z "$stderr" ]
	done
}

@test "stdin and attach work on a process that was started without them" {
	pid=$(sbx --json process start -t box cat | tr ',' '\n' | sed -n 's/.*"pid"://p')
	echo hello | sbx process stdin box "$pid"
	sbx process stdin --close box "$pid" </dev/null
	run sbx wait box "$pid"
	[ "$status" -eq 0 ]
	run sbx attach box "$pid"
	[[ $output == *hello* ]]
}

@test "a missing standard stream does not confuse the others" {
	run timeout 10 sh -c "exec '$O/bin/sbx' run box sh -c 'cat; echo done' <&-"
	[ "$output" = done ]
	run timeout 10 sh -c "'$O/bin/sbx' run box sh -c 'exit 3' <&- >&- 2>&-"
	[ "$status" -eq 3 ]
}

@test "signals are named as kill(1) takes them" {
	pid=$(sbx run -d box sleep 30)
	sbx kill box "$pid" sigterm
	run sbx wait box "$pid"
	[ "$status" -eq 143 ]
	run sbx kill box "$pid" USR1
	[ "$status" -eq 1 ]
}

@test "-t gives a terminal of our size" {
	run script -qec "stty rows 33 cols 77; '$O/bin/sbx' run -t box stty size" /dev/null
	[[ $output == *"33 77"* ]]
}

@test "a terminal's exit code comes through, and our terminal is put back" {
	run script -qec "'$O/bin/sbx' run -t box sh -c 'exit 5'; echo code \$?; stty -a | grep -o -- '[-]*icanon'" /dev/null
	[[ $output == *"code 5"* ]]
	[[ $output != *-icanon* ]]
}

@test "a bin file runs its program in its sandbox with the caller's directory" {
	id=$(sbx --json sandbox show box | tr ',' '\n' | sed -n 's/.*"id":"\(.*\)".*/\1/p')
	mkdir -p "$T/m/box/bin" "$T/m/box/fs/tmp"
	printf '#!%s --bin\n# sbx %s %s\n' "$(realpath "$O/bin/sbx")" "$SBX_ENDPOINT" "$id" >"$T/m/box/bin/sh"
	chmod 755 "$T/m/box/bin/sh"
	run "$T/m/box/bin/sh" -c 'exit 6'
	[ "$status" -eq 6 ]
	[ "$(echo hi | "$T/m/box/bin/sh" -c 'tr a-z A-Z')" = HI ]
	here=$("$T/m/box/bin/sh" -c pwd)
	there=$(cd "$T/m/box/fs/tmp" && "$T/m/box/bin/sh" -c pwd)
	[[ $here == */sandbox/home ]]
	[[ $there == */tmp ]]
	[[ $there != */sandbox/home ]]
}

@test "a bin file goes through the mount for those who may not speak to the server" {
	mkdir -p "$T/n/box/bin"
	printf '#!%s --bin\n# sbx %s %s\n' "$(realpath "$O/bin/sbx")" "$SBX_ENDPOINT" sbx_0123456789abcdef >"$T/n/box/bin/tool"
	printf '#!/bin/sh\necho "detour: $*"\nexit 4\n' >"$T/n/box/exec"
	chmod 755 "$T/n/box/bin/tool" "$T/n/box/exec"
	chmod 0600 "$T/sock"
	chmod 755 "$T"
	[ "$(id -u)" = 0 ] || skip "needs a second user"
	cp "$(realpath "$O/bin/sbx")" "$T/n/sbx"
	sed -i "1s|.*|#!$T/n/sbx --bin|" "$T/n/box/bin/tool"
	run setpriv --reuid 65534 --regid 65534 --clear-groups "$T/n/box/bin/tool" a 'b c'
	[ "$status" -eq 4 ]
	[ "$output" = "detour: tool a b c" ]
}

@test "a file that only looks like a bin file is refused" {
	printf '#!/x --bin\n# sbx unix:///x box; rm\n' >"$T/fake"
	run sbx --bin "$T/fake"
	[ "$status" -eq 125 ]
}

@test "who asks for a password gives the terminal its echo back, also when a signal ends it" {
	run timeout 60 python3 - "$O/bin/sbx" new --login-registry r --login-user u <<-'PY'
		import fcntl, os, pty, signal, sys, termios, time
		fd, slave = pty.openpty()
		pid = os.fork()
		if not pid:
		    os.setsid()
		    for n in range(3): os.dup2(slave, n)
		    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
		    os.execv(sys.argv[1], sys.argv[1:])
		echo = lambda: bool(termios.tcgetattr(slave)[3] & termios.ECHO)
		while echo(): time.sleep(0.01)
		os.write(fd, b"\x03")
		status = os.waitpid(pid, 0)[1]
		print(os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT, echo())
	PY
	[ "$output" = "True True" ]
}

@test "a terminal is raw again after a stop" {
	run timeout 60 python3 - "$O/bin/sbx" run -t box cat <<-'PY'
		import os, pty, signal, sys, termios, time
		pid, fd = pty.fork()
		if not pid: os.execv(sys.argv[1], sys.argv[1:])
		cooked = termios.tcgetattr(fd)
		raw = lambda: not termios.tcgetattr(fd)[3] & termios.ICANON
		while not raw(): time.sleep(0.01)
		os.kill(pid, signal.SIGSTOP)
		os.waitpid(pid, os.WUNTRACED)
		termios.tcsetattr(fd, termios.TCSANOW, cooked) # as a shell does
		os.kill(pid, signal.SIGCONT)
		while not raw(): time.sleep(0.01)
		os.write(fd, b"x\x04")
		while os.waitpid(pid, os.WNOHANG)[0] == 0:
		    os.write(fd, b"\x04")
		    try: os.read(fd, 100)
		    except OSError: pass
		print("raw again")
	PY
	[[ $output == *"raw again" ]]
}

@test "what is no text is told, and not left out" {
	before=$(sbx --json ls | jq '.sandboxes | length')
	for line in "run -w" "run --name"; do
		run sbx $line $'bad\377' box pwd
		[ "$status" -eq 125 ]
		[[ $output == *'bad\xff is not UTF-8 text'* ]]
	done
	run sbx new $'bad\377'
	[ "$status" -eq 2 ]
	run sbx fork box $'bad\377'
	[ "$status" -eq 2 ]
	[ "$(sbx --json ls | jq '.sandboxes | length')" = "$before" ]
}
