#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Commands: run, last, processes, exec, bin, and the files of a process (RUN-1, RUN-3, TTY-3, MNT-7).

load helper
bats_require_minimum_version 1.5.0
setup_file() { fs_start; }
teardown_file() { fs_stop; }
teardown() { ! mountpoint -q "$T/it's "* 2>/dev/null || fusermount3 -uz "$T/it's "*; }
setup() { fs_setup; }

draft() { mkdir "$B/processes/$1"; P=$B/processes/$1; }

@test "a directory a command: cmd starts it, wait gives its code, stdout its output" {
	draft t
	same "$(cat "$P/state")" draft
	echo 'echo done; echo oops >&2; exit 3' > "$P/cmd"
	same "$(timeout 10 cat "$P/wait")" 3
	same "$(cat "$P/stdout")" "done"
	same "$(cat "$P/stderr")" oops
	same "$(cat "$P/exit")" 3
	same "$(cat "$P/state")" exited
	n=$(cat "$P/pid")
	same "$(readlink "$B/processes/$n")" t
	same "$(jq .exit_code "$P/info")" 3
	refused "Device or resource busy" sh -c "echo true | cat > $P/cmd"
	rmdir "$P"
	[ ! -e "$P" ]
	[ -d "$B/processes/$n" ]
}

@test "exit is empty while it runs, rmdir kills it" {
	draft k
	echo 'sleep 100' > "$P/cmd"
	same "$(cat "$P/state")" running
	same "$(cat "$P/exit")" ""
	n=$(cat "$P/pid")
	rmdir "$P"
	fs_wait sh -c "[ \"\$(cat $B/processes/$n/exit)\" = 137 ]"
}

@test "argv, cwd, env and stdin reach the command as they are" {
	draft a
	printf '%s\0' sh -c 'pwd; echo "$V"; printf "%s|" "$@"; cat' x 'two words' '' 'new
line' "quote\"'" > "$P/argv"
	echo /tmp > "$P/cwd"
	printf 'V=a b\n' > "$P/env"
	same "$(cat "$P/env")" V
	echo start > "$P/ctl"
	printf 'binary \377 in\n' > "$P/stdin"
	echo eof > "$P/ctl"
	same "$(timeout 10 cat "$P/wait")" 0
	[[ $(sed -n 1p "$P/stdout") == */tmp ]]
	same "$(sed -n 2p "$P/stdout")" "a b"
	same "$(sed 1,2d "$P/stdout" | sha256sum)" "$(printf 'two words||new\nline|quote"'"'"'|binary \377 in\n' | sha256sum)"
	rmdir "$P"
}

@test "signals are words of ctl" {
	draft s
	echo 'trap "exit 40" TERM; while :; do sleep 0.05; done' > "$P/cmd"
	sleep 0.2
	echo TERM > "$P/ctl"
	same "$(timeout 10 cat "$P/wait")" 40
	refused "Invalid argument" bash -c "echo QUIT > $P/ctl"
	rmdir "$P"
}

@test "a start that is refused is the write's error" {
	draft bad
	echo /no/such/folder > "$P/cwd"
	refused "write error" bash -c "echo true > $P/cmd"
	[[ $(cat "$B/error") == *cwd* ]]
	same "$(cat "$P/state")" draft
	rmdir "$P"
	refused "Invalid argument" mkdir "$B/processes/Bad Name"
}

@test "run returns when the command has ended, last shows it" {
	echo 'echo hi; echo err >&2; exit 4' > "$B/run"
	same "$(cat "$B/last/stdout")" hi
	same "$(cat "$B/last/stderr")" err
	same "$(cat "$B/last/exit")" 4
	same "$(cat "$B/last/output" | sort | tr '\n' ' ')" "err hi "
}

# The shell's echo writes 4096 bytes and then the rest; python, without a newline, 8192 and the rest.
@test "a command longer than a tool's buffer is one command" {
	local many
	many=$(seq -s ' ' 1 3000)
	echo "set -- $many; echo \$# \$3000" >"$B/run"
	same "$(cat "$B/last/stdout")" "3000 3000"
	python3 -c 'import sys; open(sys.argv[1], "w").write("set -- " + sys.argv[2] + "; echo $#")' "$B/run" "$many"
	same "$(cat "$B/last/stdout")" "3000"
	printf 'true %*s' 8187 x >"$B/run"
	same "$(cat "$B/last/exit") $(wc -c <"$B/last/argv")" "0 8204"
	mkdir "$B/processes/long"
	seq -f 'V%g=0123456789' 1 500 | tr '\n' '~' | dd bs=4096 iflag=fullblock status=none | tr '~' '\n' >"$B/processes/long/env"
	same "$(wc -l <"$B/processes/long/env")" 500
	echo "set -- $many; echo \$# \$V1 \$V500" >"$B/processes/long/cmd"
	same "$(cat "$B/processes/long/wait")" 0
	same "$(cat "$B/processes/long/stdout")" "3000 0123456789 0123456789"
	same "$(jq -r .argv[2] "$B/processes/long/info" | wc -c)" $((${#many} + 27))
}

@test "run ends when its writer is interrupted" {
	bash -c "echo 'sleep 100' > $B/run" &
	w=$!
	fs_wait sh -c "grep -q running $B/processes/*/state"
	kill -TERM $w
	wait $w || true
	fs_wait sh -c "! grep -q running $B/processes/*/state"
}

# The kernel lets nobody truncate, write or close an inode that is being written, and whoever waits for that cannot be
# killed. What a row waits for ends by itself, so that it fails and does not hang.
@test "a command that runs holds up no other, and a guest that does not read holds up no close" {
	local first writer before after
	before=$(stat -c '%i %Y %s' "$B/run" "$B/ctl")
	rm -f "$H/go"
	echo 'n=0; while [ ! -e go ] && [ $((n += 1)) -lt 1200 ]; do sleep 0.05; done' >"$B/run" &
	first=$!
	fs_wait jq -e '.parked > 0' "$M/stats"
	echo true >"$B/run"
	echo refresh >"$B/ctl"
	: >"$B/run"
	after=$(stat -c '%i %Y %s' "$B/run" "$B/ctl")
	kill -0 $first
	touch "$H/go"
	wait $first
	rm "$H/go"
	same "$after" "$before"
	draft deaf
	echo 'exec sleep 60' >"$P/cmd"
	head -c 4000000 /dev/zero >"$P/stdin" &
	writer=$!
	fs_wait jq -e '.parked > 0' "$M/stats"
	(
		exec 8>"$P/stdin"
		head -c 4000000 /dev/zero >&8 2>/dev/null &
		sleep 0.5
		ls / >/dev/null # has inherited it, and closes it
		printf more >"$P/stdin" &
	)
	kill -0 $writer
	same "$(cat "$P/state")" running
	rmdir "$P"
	wait $writer || true
}

@test "exec passes arguments, both streams, input and the exit code" {
	run bash -c "printf 'in put' | '$B/exec' sh -c 'cat; echo e >&2; exit 5' 2>$T/host/err"
	same "$status" 5
	same "$output" "in put"
	same "$(cat "$T/host/err")" e
	same "$("$B/exec" printf '%s|' 'a b' '' "c'd" '*')" "a b||c'd|*|"
	run -127 "$B/exec" no-such-command
	cd "$H"
	mkdir -p sub
	cd sub
	[[ $("$B/exec" pwd) == */sandbox/home/sub ]]
	same "$(ls "$B/processes" | grep -c '^exec-' || true)" 0
}

@test "exec passes signals on, whatever the mount's folder is called" {
	local at="$T/it's \$(touch x)\"" p
	mkdir "$at"
	"$O/bin/sbxfs" "$at"
	fs_wait mountpoint -q "$at"
	"$at/box/exec" sleep 60 3>&- &
	p=$!
	fs_wait pgrep -P $p -x cat # it hands on what comes, and before that it has its traps
	kill -TERM $p
	status=0
	wait $p || status=$?
	same $status 143
	fusermount3 -u "$at"
}

@test "in a folder whose name cannot be told nothing is run, and not in another one" {
	mkdir -p "$H/"$'bad\377'
	cd "$H/"$'bad\377'
	for way in exec\ touch bin/touch; do
		run $B/$way made
		same $status 125
		[[ $output == *UTF-8* ]]
	done
	cd "$T/host"
	[ ! -e "$H/made" ]
	same "$(ls "$B/processes" | grep -c '^exec-' || true)" 0
	rmdir "$H/"$'bad\377'
}

@test "a word that cannot be told is not left out of a command" {
	for way in exec\ touch bin/touch; do
		refused UTF-8 $B/$way one $'bad\377' two
	done
	[ ! -e "$H/one" ]
}

@test "exec carries binary data both ways" {
	head -c 3000000 /dev/urandom > "$T/host/blob"
	same "$("$B/exec" cat < "$T/host/blob" | sha256sum)" "$(sha256sum < "$T/host/blob")"
}

@test "bin/PROGRAM runs the program inside" {
	[ -x "$O/bin/sbx" ] || skip "there is no sbx"
	same "$(head -n 1 "$B/bin/whatever")" "#!$(dirname "$(readlink -f "$O/bin/sbxfs")")/sbx --bin"
	same "$(echo hi | timeout 20 "$B/bin/tr" a-z A-Z)" HI
	run timeout 20 "$B/bin/sh" -c 'exit 7'
	same "$status" 7
	refused "Operation not permitted" sh -c ": > $B/bin/ls"
}

@test "a child in the background does not hold the answer" {
	start=$SECONDS
	echo 'sleep 60 & echo started' > "$B/run"
	same "$(cat "$B/last/stdout")" started
	[ $((SECONDS - start)) -lt 10 ]
	echo 'kill %1 2>/dev/null; true' > "$B/run"
}

@test "the end of the output is never lost" {
	want=$(seq 200000 | sha256sum)
	for i in 1 2 3 4 5; do
		echo 'seq 200000' > "$B/run"
		same "$(sha256sum < "$B/last/stdout")" "$want"
	done
}

@test "output is bytes" {
	draft b
	echo 'printf "\360\220"; sleep 0.1; printf "\215\210\n\377\000\376"' > "$P/cmd"
	same "$(timeout 10 cat "$P/stdout.follow" | od -An -tx1 | tr -d ' \n')" f0908d880aff00fe
	same "$(od -An -tx1 "$P/stdout" | tr -d ' \n')" f0908d880aff00fe
	rmdir "$P"
}

@test "logs are read whole by every tool" {
	draft logs
	echo 'seq 1 3000' > "$P/cmd"
	same "$(timeout 10 cat "$P/wait")" 0
	f=$P/stdout
	want=$(seq 1 3000 | sha256sum)
	same "$(sha256sum < "$f")" "$want"
	cp "$f" c1
	same "$(sha256sum < c1)" "$want"
	same "$(dd if="$f" bs=7 status=none | sha256sum)" "$want"
	same "$(wc -c < "$f") $(tail -c 5 "$f") $(tail -n1 "$f") $(head -n1 "$f") $(grep -c '' "$f")" \
		"$(seq 1 3000 | wc -c) $(seq 1 3000 | tail -c 5) 3000 1 3000"
	same "$(tar cf - -C "$P" stdout | tar xOf - | sha256sum)" "$want"
	cp -r "$P" tree
	same "$(sha256sum < tree/stdout)" "$want"
	rsync -a "$P/" tree2/
	same "$(sha256sum < tree2/stdout)" "$want"
	same "$( (exec 5< "$f"; head -c 3 <&5 >/dev/null; cat <&5 | wc -c) )" "$(($(seq 1 3000 | wc -c) - 3))"
	rmdir "$P"
}

@test "tail -f follows output and events" {
	draft tf
	echo 'for i in 1 2 3; do echo line $i; sleep 0.3; done' > "$P/cmd"
	timeout 5 tail -n +1 -f "$P/stdout" > tailed &
	timeout 5 tail -n 0 -f "$B/events" > events &
	fs_wait grep -q 'line 3' tailed
	same "$(cat tailed)" "$(printf 'line 1\nline 2\nline 3')"
	echo true > "$B/run"
	fs_wait grep -q process.exited events
	rmdir "$P"
	kill %1 %2 2>/dev/null || true
	wait
}

@test "follow streams wait and end" {
	draft fo
	echo 'for i in 1 2 3; do echo $i; sleep 0.1; done; echo e >&2' > "$P/cmd"
	same "$(timeout 10 cat "$P/stdout.follow" | tr '\n' ' ')" "1 2 3 "
	same "$(timeout 10 cat "$P/stderr.follow")" e
	same "$(timeout 10 cat "$P/stdout.follow" | tr '\n' ' ')" "1 2 3 "
	timeout 10 sed -n '1p;1q' "$B/events.follow" > ev &
	sleep 0.3
	echo true > "$B/run"
	fs_wait grep -q process.started ev
	wait
	rmdir "$P"
}

@test "streams are not listed and do not hang a search" {
	draft hid
	echo 'sleep 30' > "$P/cmd"
	same "$(ls "$P" | grep -c -e follow -e wait || true)" 0
	timeout 20 grep -rs nothing-like-this "$P" || [ $? = 1 ]
	timeout 20 cp -r "$P" hidden-copy
	rmdir "$P"
}

@test "two hundred blocked readers leave the mount free, and all get the end" {
	draft many
	echo 'while [ ! -e go-on ]; do sleep 0.1; done; exit 9' > "$P/cmd"
	for i in $(seq 200); do cat "$P/wait" > "w$i" & done
	fs_wait sh -c "[ \$(jq .parked $M/stats) -ge 200 ]"
	timeout 5 ls "$M" >/dev/null
	touch "$H/go-on"
	wait
	rm "$H/go-on"
	same "$(cat w* | sort | uniq -c | tr -s ' ')" " 200 9"
	rm -f w*
	rmdir "$P"
}

@test "a blocked reader can be killed, and a non-blocking one is told so" {
	draft kill
	echo 'sleep 100' > "$P/cmd"
	cat "$P/wait" &
	c=$!
	sleep 0.3
	kill -9 $c
	wait $c || [ $? = 137 ]
	python3 - "$P/stdout.follow" <<'PY'
import os, sys, select
f = os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)
try:
    os.read(f, 10); raise SystemExit("read without data")
except BlockingIOError: pass
assert select.select([f], [], [], 0.1)[0] == []
PY
	rmdir "$P"
}

@test "poll wakes a reader when data comes" {
	draft poll
	echo 'sleep 0.5; echo data; sleep 5' > "$P/cmd"
	same "$(timeout 10 python3 -c '
import os, select, sys
f = os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)
assert select.select([f], [], [], 5)[0] == [f]
print(os.read(f, 100).decode(), end="")' "$P/stdout.follow")" data
	rmdir "$P"
}

@test "an ended child of the shell does not interrupt its run" {
	bash -c "sleep 0.3 & sleep 0.5 & echo 'sleep 1; echo whole' > $B/run"
	same "$(cat "$B/last/stdout")" whole
}

@test "a terminal: tty, size" {
	draft tt
	echo 1 > "$P/tty"
	echo 'trap "stty size; exit 0" USR1; while [ ! -e sized ]; do sleep 0.05; done; stty size' > "$P/cmd"
	echo 'resize 33 77' > "$P/ctl"
	sleep 0.3
	touch "$H/sized"
	same "$(timeout 10 cat "$P/wait")" 0
	same "$(tr -d '\r' < "$P/stdout")" "33 77"
	refused "Invalid argument" bash -c "echo 'resize 33' > $P/ctl"
	rm "$H/sized"
	rmdir "$P"
}
