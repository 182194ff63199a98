#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Every other command, as typed.
load helper

setup_file() { cli_start; sbx new box >/dev/null; }
teardown_file() { cli_stop; }

@test "new prints the name, or the id when there is none" {
	run sbx new other
	[ "$output" = other ]
	run sbx new
	[[ $output =~ ^sbx_[0-9a-f]{16}$ ]]
	sbx rm "$output" other
}

@test "new hands its options on" {
	sbx new full --cpus 0.5 --memory 256 --disk 512 -e SECRET=hidden --label a=b --label c=d --network none \
		--idle 600 --lifetime 3600
	run sbx --json sandbox show full
	for want in '"cpus":0.5' '"memory_mb":256' '"disk_mb":512' '"env_names":["SECRET"]' '"a":"b"' '"c":"d"' \
		'"mode":"none"' '"idle_timeout_secs":600' '"lifetime_secs":3600'; do
		[[ $output == *"$want"* ]] || { echo "$want is missing"; false; }
	done
	[[ $output != *hidden* ]]
	sbx rm full
}

@test "ls shows live sandboxes, -a the ended ones, --label filters" {
	sbx new marked --label mark=1 >/dev/null
	run sbx ls -q --label mark=1
	[ "$output" = marked ]
	run sbx ls
	[[ ${lines[0]} == "NAME "*"STATE"*"AGE" ]]
	sbx rm marked
	run sbx ls -q
	[[ $output != *marked* ]]
	run sbx ls -a
	[[ $output == *marked*terminated* ]]
}

@test "set renames and labels" {
	sbx new before >/dev/null
	sbx sandbox set before --name after --label k=v
	run sbx sandbox show after
	[[ $output == *"labels"*"k=v"* ]]
	sbx rm after
}

@test "rm of something unknown says so and goes on with the rest" {
	sbx new known >/dev/null
	run sbx rm unknown known
	[ "$status" -eq 1 ]
	[[ $output == "sbx: "* ]]
	run sbx ls -q
	[[ $output != *known* ]]
}

@test "of several, a refusal names which it was" {
	run sbx rm nobody-a nobody-b
	[ "$output" = $'sbx: nobody-a: no such sandbox\nsbx: nobody-b: no such sandbox' ]
	run sbx suspend nobody-a nobody-b
	[[ $output == *"nobody-a: "*"nobody-b: "* ]]
}

@test "an empty word where something is named is told before the server is asked" {
	while read -r word line; do
		eval "set -- $line"
		run sbx "$@"
		[ "$status" -ne 0 ]
		[ "$output" = "sbx: $word is empty" ] || { echo "$line: $output"; return 1; }
	done <<-'E'
		BOX rm ""
		BOX rm box-x ""
		BOX sandbox show ""
		BOX run "" true
		BOX sh ""
		BOX network "" none
		PID logs box ""
		PID kill box "" TERM
		SNAP snapshot rm ""
		SNAP|BOX fork "" copy
		VOLUME volume rm x ""
		IMAGE image rm ""
	E
}

@test "any number of letters in one word, and of words" {
	a=$(printf 'a%.0s' $(seq 40000))
	run sbx ls "-$a"
	[ "$status" -eq 0 ]
	run sbx ls -q"$a"$(printf ' -q%.0s' $(seq 500))
	[ "$status" -eq 0 ]
}

@test "--json is the API's answer byte for byte" {
	sbx --json ls >"$T/a"
	curl -s --unix-socket "$T/sock" http://localhost/v1/sandboxes >"$T/b"
	[ "$(cat "$T/a")" = "$(cat "$T/b")" ]
}

@test "files go in and out, bytes and execute bit kept" {
	head -c 100000 /dev/urandom >"$T/f"
	chmod 755 "$T/f"
	sbx cp "$T/f" box:/sandbox/home/f
	sbx cp box:/sandbox/home/f "$T/g"
	cmp "$T/f" "$T/g"
	run sbx file ls -l box /sandbox/home
	[[ $output == *0755*" f"* ]]
	sbx cat box /sandbox/home/f | cmp - "$T/f"
	echo text | sbx file put box /sandbox/home/t
	[ "$(sbx cp box:/sandbox/home/t -)" = text ]
	echo more | sbx cp - box:/sandbox/home/t
	[ "$(sbx cat box /sandbox/home/t)" = more ]
	sbx file rm box /sandbox/home/f /sandbox/home/t
	run sbx file ls box /sandbox/home
	[[ $output != *f* ]]
}

@test "an empty file is a file" {
	: >"$T/empty"
	sbx cp "$T/empty" box:/sandbox/home/empty
	[ "$(sbx cat box /sandbox/home/empty | wc -c)" -eq 0 ]
}

@test "a file over 64 MiB goes in pieces" {
	head -c 70000000 /dev/zero | tr '\0' x >"$T/big"
	sbx cp "$T/big" box:/sandbox/home/big
	sbx cp box:/sandbox/home/big "$T/big2"
	cmp "$T/big" "$T/big2"
	sbx file rm box /sandbox/home/big
	rm -f "$T/big" "$T/big2"
}

@test "cp -r carries folders, links, empty folders and modes, both ways" {
	mkdir -p "$T/tree/sub/empty"
	echo a >"$T/tree/a"
	printf '#!/bin/sh\n' >"$T/tree/sub/run"
	chmod 755 "$T/tree/sub/run"
	ln -s a "$T/tree/link"
	# Names are bytes.
	mkdir "$T/tree/"$'d\377'
	printf x >"$T/tree/"$'d\377/f\376'
	chmod 755 "$T/tree/"$'d\377/f\376'
	printf y >"$T/tree/"$'to\375'
	ln -s $'to\375' "$T/tree/l"
	run sbx cp "$T/tree" box:/sandbox/home/
	[ "$status" -eq 1 ]
	[[ $output == *"-r"* ]]
	sbx cp -r "$T/tree" box:/sandbox/home/
	sbx cp -r box:/sandbox/home/tree "$T/back"
	diff -r "$T/tree" "$T/back"
	[ "$(readlink "$T/back/link")" = a ]
	[ -d "$T/back/sub/empty" ]
	[ -x "$T/back/sub/run" ]
	[ -x "$T/back/"$'d\377/f\376' ]
	[ "$(readlink "$T/back/l")" = $'to\375' ]
	sbx file rm -r box /sandbox/home/tree
	run sbx cat box /sandbox/home/tree/a
	[ "$status" -eq 1 ]
}

@test "what comes out of a sandbox replaces a file when it is whole, and nothing else" {
	echo new | sbx cp - box:/sandbox/home/f
	echo old >"$T/kept"
	chmod 600 "$T/kept"
	ln -s kept "$T/link"
	for get in "cp box:/no/such" "file get box /no/such"; do
		run sbx $get "$T/kept"
		[ "$status" -eq 1 ]
		[ "$(cat "$T/kept")" = old ]
	done
	sbx cp box:/sandbox/home/f "$T/link"
	[ -L "$T/link" ]
	[ "$(cat "$T/kept")" = new ]
	[ "$(stat -c %a "$T/kept")" = 600 ]
	# As root a rename would put a file in the place of /dev/null.
	mkfifo "$T/pipe"
	for get in "cp box:/sandbox/home/f" "file get box /sandbox/home/f"; do
		sbx $get "$T/pipe" &
		[ "$(timeout 20 cat "$T/pipe")" = new ]
		wait $!
		[ -p "$T/pipe" ]
	done
	run sbx file get box /sandbox/home/f "$T"
	[[ $output == *"Is a directory" ]]
}

@test "a copy that a signal ends leaves nothing half behind" {
	mkdir "$T/to"
	# A pipe in place of the server: the copy waits for its answer.
	python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); c = s.accept()[0]; c.recv(9999)
c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 99\r\n\r\nhalf"); c.recv(9999)' "$T/half" 3>&- &
	py=$!
	cli_wait test -S "$T/half"
	SBX_ENDPOINT=unix://$T/half "$O/bin/sbx" cp box:/sandbox/home/f "$T/to/f" 3>&- &
	cp=$!
	cli_wait half_there
	kill -TERM "$cp"
	status=0
	wait "$cp" || status=$?
	[ "$status" -eq 143 ]
	[ -z "$(ls -A "$T/to")" ]
	wait "$py"
}
half_there() { [ -s "$T/to/.sbx-cp-$cp" ]; }

@test "cp -r of a file is a copy of it, and a slash behind a folder means the folder" {
	mkdir -p "$T/slash/sub"
	printf 'x' >"$T/slash/x"
	chmod 755 "$T/slash/x"
	sbx cp -r "$T/slash/" box:/sandbox/home
	sbx cp -r "$T/slash/x" box:/sandbox/home/single
	[ "$(sbx cat box /sandbox/home/slash/x)" = x ]
	mkdir "$T/into"
	sbx cp -r box:/sandbox/home/slash/ "$T/into"
	sbx cp -r box:/sandbox/home/single "$T/into"
	[ "$(cd "$T/into" && find . | sort | tr '\n' ' ')" = ". ./single ./slash ./slash/sub ./slash/x " ]
	[ -x "$T/into/single" ]
	[ -x "$T/into/slash/x" ]
	sbx file rm -r box /sandbox/home/slash /sandbox/home/single
}

@test "cp -r onto what is there replaces links and files, and says where a folder is in the way" {
	mkdir "$T/again"
	ln -s one "$T/again/link"
	echo file >"$T/again/file"
	sbx cp -r "$T/again" box:/sandbox/home
	ln -sfn two "$T/again/link"
	ln -sfn link "$T/again/file"
	sbx cp -r "$T/again" box:/sandbox/home
	sbx cp -r box:/sandbox/home/again "$T/seen"
	[ "$(readlink "$T/seen/link")" = two ]
	[ "$(readlink "$T/seen/file")" = link ]
	rm "$T/again/link"
	mkdir "$T/again/link"
	echo below >"$T/again/link/below"
	run sbx cp -r "$T/again" box:/sandbox/home
	[ "$status" -eq 1 ]
	sbx file rm -r box /sandbox/home/again
	sbx cp -r "$T/again" box:/sandbox/home
	rm -r "$T/again/link"
	ln -s two "$T/again/link"
	run sbx cp -r "$T/again" box:/sandbox/home
	[ "$status" -eq 1 ]
	[ "$(sbx cat box /sandbox/home/again/link/below)" = below ]
	sbx file rm -r box /sandbox/home/again
}

@test "file rm -r of a link to a folder removes the link alone" {
	mkdir -p "$T/kept2/sub"
	echo x >"$T/kept2/sub/x"
	ln -s y "$T/kept2/y"
	mkdir "$T/links"
	ln -s ../kept2 "$T/links/l"
	ln -s ../kept2 "$T/links/slash"
	sbx cp -r "$T/kept2" box:/sandbox/home
	sbx cp -r "$T/links" box:/sandbox/home
	sbx file rm -r box /sandbox/home/links/l /sandbox/home/links/slash/
	[ -z "$(sbx file ls box /sandbox/home/links)" ]
	[ "$(sbx cat box /sandbox/home/kept2/sub/x)" = x ]
	[[ $(sbx file ls box /sandbox/home/kept2) == *y* ]]
	sbx file rm -r box /sandbox/home/kept2 /sandbox/home/links
	run sbx file rm -r box /sandbox/home/kept2
	[ "$status" -eq 1 ]
}

@test "an input that breaks off leaves the old file" {
	echo precious | sbx cp - box:/sandbox/home/kept
	mkfifo "$T/in"
	"$O/bin/sbx" cp - box:/sandbox/home/kept <"$T/in" >/dev/null 2>&1 3>&- &
	w=$!
	exec 8>"$T/in"
	head -c 200000 /dev/zero >&8 # more than a pipe holds: it is being read
	kill -9 "$w"
	exec 8>&-
	[ "$(sbx cat box /sandbox/home/kept)" = precious ]
}

@test "a link in the guest cannot lead a copy out of its target" {
	mkdir -p "$T/outside"
	sbx run box sh -c "mkdir -p evil; ln -s '$T/outside' evil/way; mkdir evil/deep; echo x > evil/deep/f"
	mkdir -p "$T/into"
	ln -s "$T/outside" "$T/into/deep"
	run sbx cp -r box:/sandbox/home/evil "$T/into/."
	[ -z "$(ls -A "$T/outside")" ]
}

@test "events list and follow" {
	run sbx events box
	[[ ${lines[0]} == *sandbox.created* ]]
	"$O/bin/sbx" events -f box >"$T/follow" 3>&- &
	pid=$!
	sbx run box true
	cli_wait grep -q process.exited "$T/follow"
	kill $pid
}

@test "events after a number are those alone, with a sandbox and without -f as well" {
	sbx cat box /etc/hostname >/dev/null 2>&1 || true
	last=$(sbx --json events | tail -n 1 | jq .seq)
	[ -z "$(sbx events --after "$last" box)" ]
	echo x | sbx cp - box:/sandbox/home/after
	run sbx events --after "$last" box
	[[ $output == *file.written*after* ]]
	[[ $output != *sandbox.created* ]]
	run sbx events --after soon box
	[ "$status" -eq 2 ]
}

@test "node, cordon, uncordon" {
	run sbx node show
	[[ $output == *capacity* ]]
	sbx node cordon
	run sbx new
	[ "$status" -eq 1 ]
	sbx node uncordon
	run sbx new
	[ "$status" -eq 0 ]
	sbx rm "$output"
}

@test "a capability that is missing is said, with what to do" {
	sbx capability | grep -q '^no .*gpu'
	run sbx tunnel box 80
	if ! sbx capability | grep -q '^yes  tunnel'; then
		[ "$status" -eq 1 ]
		[[ $output == *"sbx capability"* ]]
	fi
}

@test "every verb that this server cannot serve says so, exit code 1" {
	for words in "suspend box" "resume box" "snapshot take box" "fork box" "fork snp_0123456789abcdef" \
		"schedule box --every 600" "volume ls" "volume create data" "volume rm data" "image pull busybox" \
		"image rm base" "metrics box" "metrics -f box" "network box open" "network box --allow a.b"; do
		run sbx $words
		[ "$status" -eq 1 ] || { echo "$words: $status $output"; false; }
		[[ $output == "sbx: "* && ${#lines[@]} -eq 1 ]] || { echo "$words: $output"; false; }
	done
	run sbx snapshot ls
	[ "$status" -eq 0 ]
}

@test "api sends any request" {
	run sbx api GET /v1/health
	[ "$output" = '{"status":"ok"}' ]
	run sbx api POST /v1/sandboxes/box/run '{"argv":["true"]}'
	[[ $output == *'"exit_code":0'* ]]
	run sbx api GET /v1/no-such
	[ "$status" -eq 1 ]
	[[ $output == *"404 not_found"* ]]
	echo raw | sbx api PUT '/v1/sandboxes/box/files?path=/sandbox/home/raw' -
	[ "$(sbx cat box /sandbox/home/raw)" = raw ]
}

@test "wrong use is told, exit code 2" {
	for bad in "--cpus nan" "--cpus inf" "--cpus x" "--memory 1G" "--idle -1"; do
		run sbx new $bad never
		[ "$status" -eq 2 ]
		[[ $output == "sbx: ${bad% *}: "*" is expected, not ${bad#* }" ]]
	done
	for words in "" "sandbox" "nonsense" "ls extra" "ls --memory 3" "new a b" "cp a b" "tunnel box x" "new --memory 1.5"; do
		run sbx $words
		[ "$status" -eq 2 ] || { echo "$words: $status"; false; }
		[ -n "$output" ]
	done
}

@test "help explains every command, options included" {
	run sbx help
	[ "$status" -eq 0 ]
	for words in "run" "sandbox ls" "cp" "file put" "event follow"; do
		run sbx help $words
		[ "$status" -eq 0 ]
		[[ $output == usage:* ]]
	done
	run sbx run --help
	[[ $output == *--timeout* ]]
}

@test "completion knows nouns, verbs, options and sandboxes" {
	sbx completion bash >"$T/completion"
	bash -n "$T/completion"
	words() { bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sbx; echo "${COMPREPLY[@]}"' _ "$T/completion" "$@"; }
	PATH=$O/bin:$PATH
	[[ " $(words sbx '') " == *" run "*" sandbox "* || " $(words sbx '') " == *" sandbox "*" run "* ]]
	[[ " $(words sbx sandbox '') " == *" ls "* ]]
	[[ " $(words sbx run --ti) " == *" --timeout "* ]]
	[[ " $(words sbx rm bo) " == *" box "* ]]
}

@test "completion works in zsh" {
	command -v zsh >/dev/null || skip "zsh is not installed"
	sbx completion zsh >"$T/_sbx"
	PATH=$O/bin:$PATH
	zwords() { zsh -fc 'compdef() { : }; compadd() { shift; print -- "$@" }; _files() { print files }
		. "$1"; shift; words=("$@"); CURRENT=$#; _sbx' _ "$T/_sbx" "$@"; }
	[[ " $(zwords sbx '') " == *" sandbox "* ]]
	[[ " $(zwords sbx sandbox '') " == *" ls "* ]]
	[[ " $(zwords sbx run --ti) " == *" --timeout "* ]]
	[[ " $(zwords sbx rm bo) " == *" box "* ]]
	[ "$(zwords sbx api GET '')" = files ]
}

@test "image build says what it can make, and where it cannot write" {
	run sbx image build no-such-recipe
	[ "$status" -eq 1 ]
	[[ $output == *debian* ]]
}

@test "version tells both, and says why when the server is away" {
	run sbx version
	[[ ${lines[0]} == "sbx "* ]]
	[[ ${lines[1]} == "sandboxd "[0-9]* ]]
	SBX_ENDPOINT=unix://$T/absent run sbx version
	[ "$status" -eq 0 ]
	[[ ${lines[1]} == *"cannot reach"* ]]
}

@test "doctor tells each thing and its mending, also as JSON" {
	run sbx doctor
	[[ $output == *openat2* ]]
	[[ $output == *"WITHOUT isolation"* ]]
	run sbx --json doctor
	[[ $output == '{"ok":'*'"checks":['* ]]
	SBX_ENDPOINT=unix://$T/absent run sbx doctor
	[ "$status" -eq 1 ]
	[[ $output == *mend:* ]]
}

@test "control bytes of a guest do not reach the terminal" {
	sbx run box sh -c "touch \"\$(printf 'a\\033[31mb')\""
	run sbx file ls box /sandbox/home
	[[ $output != *$'\033'* ]]
	[[ $output == *'\x1b'* ]]
}

@test "a token is asked for and taken from a private file" {
	printf 'a-token-of-length-24-abc\n' >"$T/token"
	chmod 600 "$T/token"
	"$O/bin/sandboxd" --backend fake --listen "unix://$T/sock2" --state-dir "$T/state2" --token-file "$T/token" \
		>"$T/log2" 2>&1 3>&- &
	pid=$!
	export SBX_ENDPOINT=unix://$T/sock2
	cli_wait sbx api GET /v1/health
	run sbx ls
	[ "$status" -eq 1 ]
	[[ $output == *--token-file* ]]
	SBX_TOKEN_FILE=$T/token run sbx ls
	[ "$status" -eq 0 ]
	chmod 644 "$T/token"
	run sbx --token-file "$T/token" ls
	[ "$status" -eq 1 ]
	[[ $output == *"chmod 600"* ]]
	kill $pid
	wait $pid || true
}
