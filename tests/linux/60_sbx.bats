#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The command line on real isolation: what the fake backend cannot show.
load ../cli/helper

setup_file() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	export CLI_BACKEND=linux
	cli_start
	sbx new box >/dev/null
}
teardown_file() { cli_stop; }

@test "a tunnel reaches a port of the guest, each connection its own" {
	sbx run -d box sh -c 'mkdir -p w; echo from the guest >w/index.html; exec busybox httpd -f -p 127.0.0.1:8080 -h w'
	"$O/bin/sbx" tunnel box 8080 >"$T/tunnel" 2>"$T/tunnel.err" 3>&- &
	pid=$!
	cli_wait grep -q 127.0.0.1: "$T/tunnel"
	at=http://$(cat "$T/tunnel")/index.html
	cli_wait curl -sf --max-time $((5 * ${SLOW:-1})) "$at"
	for i in 1 2 3; do [ "$(curl -s --max-time $((5 * ${SLOW:-1})) "$at")" = "from the guest" ]; done
	kill $pid
}

@test "a tunnel that is out of descriptors serves again when some are back" {
	sbx run -d box sh -c 'mkdir -p w; echo from the guest >w/index.html; exec busybox httpd -f -p 127.0.0.1:8081 -h w'
	(ulimit -n 24; exec "$O/bin/sbx" tunnel box 8081 >"$T/t5" 2>"$T/t5.err" 3>&-) &
	pid=$!
	cli_wait grep -q 127.0.0.1: "$T/t5"
	cli_wait curl -sf --max-time $((5 * ${SLOW:-1})) "http://$(cat "$T/t5")/"
	python3 -c 'import os, socket, sys, time
host, port = sys.argv[1].split(":")
s = [socket.create_connection((host, int(port))) for _ in range(60)]
end = time.monotonic() + 30
while os.path.exists(sys.argv[2]) and len(os.listdir(sys.argv[2])) < 24 and time.monotonic() < end:
    time.sleep(0.02)' "$(cat "$T/t5")" "/proc/$pid/fd"
	cli_wait curl -sf --max-time $((5 * ${SLOW:-1})) "http://$(cat "$T/t5")/"
	kill $pid
}

@test "a tunnel passes an end of input on and still brings the answer" {
	command -v socat >/dev/null || skip "socat is not installed"
	sbx run -d box sh -c 'while :; do busybox nc -l -p 9000 -e busybox tr a-z A-Z; done'
	"$O/bin/sbx" tunnel box 9000 >"$T/t3" 2>"$T/t3.err" 3>&- &
	pid=$!
	cli_wait grep -q 127.0.0.1: "$T/t3"
	half() { [ "$(echo half | timeout 5 socat -t 4 - "TCP:$(cat "$T/t3")")" = HALF ]; }
	cli_wait half
	kill $pid
}

@test "a tunnel to a port nobody listens on closes and says so" {
	"$O/bin/sbx" tunnel box 4444 >"$T/t2" 2>"$T/t2.err" 3>&- &
	pid=$!
	cli_wait grep -q 127.0.0.1: "$T/t2"
	run curl -s --max-time $((5 * ${SLOW:-1})) "http://$(cat "$T/t2")/"
	[ "$status" -ne 0 ]
	cli_wait grep -q "^sbx: " "$T/t2.err"
	kill $pid
}

@test "commands are the sandbox user's, in its home" {
	[ "$(sbx run box id -u)" = 1001 ]
	[ "$(sbx run box pwd)" = /sandbox/home ]
}

@test "a terminal of the guest has our size and a job's interrupt" {
	run script -qec "stty rows 31 cols 71; '$O/bin/sbx' sh box sh -c 'stty size; exit 8'; echo code \$?" /dev/null
	[[ $output == *"31 71"* ]]
	[[ $output == *"code 8"* ]]
}

@test "doctor finds the server and its backend" {
	run sbx doctor
	[[ $output == *"backend linux"* ]]
}

@test "doctor tells of a host to whose server for cores the crashes of guests go" {
	result() { "$O/bin/sbx" --json doctor | jq -r '.checks[] | select(.check == "cores") | .result'; }
	export -f result
	export O
	echo '|/usr/lib/handler %P' >"$T/pattern"
	[ "$(unshare -m bash -c 'mount --bind "$0" /proc/sys/kernel/core_pattern && result' "$T/pattern")" = ok ]
	echo '@/run/cores.sock' >"$T/pattern"
	[ "$(unshare -m bash -c 'mount --bind "$0" /proc/sys/kernel/core_pattern && result' "$T/pattern")" = limited ]
}

@test "a killed server takes the command back" {
	"$O/bin/sbx" run box sh -c 'echo one; sleep 3; echo two; exit 6' >"$T/over" 2>"$T/over.err" </dev/null 3>&- &
	pid=$!
	cli_wait grep -q one "$T/over"
	kill -KILL "$(cat "$T/pid")"
	cli_wait cli_gone
	cli_server
	code=0
	wait $pid || code=$?
	[ "$code" -eq 6 ] || { cat "$T/over.err" "$T/log"; false; }
	[ "$(cat "$T/over")" = "$(printf 'one\ntwo')" ]
}

@test "everything works over TLS with a token" {
	command -v openssl >/dev/null || skip "openssl is not installed"
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test \
		-addext subjectAltName=IP:127.0.0.1 -keyout "$T/key" -out "$T/cert" 2>/dev/null
	head -c 24 /dev/urandom | base64 >"$T/token"
	chmod 600 "$T/key" "$T/token"
	port=$((20000 + RANDOM % 20000))
	"$O/bin/sandboxd" --listen "127.0.0.1:$port" --state-dir "$T/tls" --tls-cert "$T/cert" --tls-key "$T/key" \
		--token-file "$T/token" >"$T/tls.log" 2>&1 3>&- &
	pid=$!
	export SBX_ENDPOINT=https://127.0.0.1:$port SBX_TOKEN_FILE=$T/token
	run sbx ls
	[ "$status" -eq 1 ]
	export SBX_CA=$T/cert
	cli_wait sbx ls || { cat "$T/tls.log"; false; }
	sbx new far >/dev/null
	run sbx run far sh -c 'id -u; exit 7'
	[ "$status" -eq 7 ]
	[ "$output" = 1001 ]
	head -c 300000 /dev/urandom >"$T/bytes"
	sbx run far cat <"$T/bytes" | cmp - "$T/bytes"
	sbx cp "$T/bytes" far:/sandbox/home/bytes
	sbx cat far /sandbox/home/bytes | cmp - "$T/bytes"
	if command -v socat >/dev/null; then
		sbx run -d far sh -c 'while :; do busybox nc -l -p 9000 -e busybox tr a-z A-Z; done'
		"$O/bin/sbx" tunnel far 9000 >"$T/t4" 2>"$T/t4.err" 3>&- &
		tunnel=$!
		cli_wait grep -q 127.0.0.1: "$T/t4"
		half() { [ "$(echo half | timeout 5 socat -t 4 - "TCP:$(cat "$T/t4")")" = HALF ]; }
		cli_wait half
		kill $tunnel
	fi
	sbx rm far
	kill $pid
	wait $pid || true
}
