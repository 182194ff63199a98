#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Sleep, snapshots, forks, volumes, network, images, usage and tunnels by sbx, on real isolation.
load ../cli/helper

setup_file() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	export CLI_BACKEND=linux TMPDIR=/var/tmp
	cli_start
	sbx new box >/dev/null
}
teardown_file() {
	for s in $("$O/bin/sbx" snapshot ls -q 2>/dev/null); do "$O/bin/sbx" snapshot rm "$s" || true; done
	cli_stop
}
can() {
	for c; do sbx capability | grep -q "^yes  $c\$" || skip "the server lacks $c"; done
}
state() { sbx --json sandbox show "$1" | jq -r .state; }

@test "suspend, resume; work on what was suspended is refused until then" {
	can suspend
	sbx run box sh -c 'echo kept > f'
	sbx suspend box
	[ "$(state box)" = suspended ]
	run sbx run box cat f
	[ "$status" -eq 125 ]
	[[ $output == *suspended* ]]
	run sbx suspend box
	[ "$status" -eq 1 ]
	sbx resume box
	[ "$(sbx run box cat f)" = kept ]
}

@test "what idles with --idle-action suspend is woken by a command" {
	can suspend
	sbx new nap --idle 1 --idle-action suspend >/dev/null
	asleep() { [ "$(state nap)" = suspended ]; }
	cli_wait asleep
	sbx sandbox show nap >/dev/null
	sbx ls >/dev/null
	asleep
	[ "$(sbx run nap echo awake)" = awake ]
	sbx rm nap
}

@test "snapshot, fork of it, fork of now; each goes its own way" {
	can disk_snapshot
	sbx run box sh -c 'echo one > g'
	snap=$(sbx snapshot take box)
	sbx run box sh -c 'echo two > g'
	[ "$(sbx fork "$snap" old)" = old ]
	[ "$(sbx fork box new)" = new ]
	[ "$(sbx run old cat g)" = one ]
	[ "$(sbx run new cat g)" = two ]
	[ "$(sbx snapshot ls -q box)" = "$snap" ]
	sbx run new sh -c 'echo three > g'
	[ "$(sbx run box cat g)" = two ]
	sbx snapshot rm "$snap"
	[ "$(sbx run old cat g)" = one ]
	sbx rm old new
	run sbx fork "$snap"
	[ "$status" -eq 1 ]
}

@test "a schedule is set, shown, refused when it is too short, stopped" {
	can disk_snapshot
	[ "$(sbx schedule box)" = "no schedule" ]
	[ "$(sbx schedule box --every 3600 --keep 2)" = "every 3600 seconds, the newest 2 stay" ]
	run sbx schedule box --every 1
	[ "$status" -eq 1 ]
	[ "$(sbx schedule box --every 0)" = "no schedule" ]
}

@test "a volume is written by one and read by another" {
	can volumes
	sbx volume create data --size 64
	run sbx volume create data
	[ "$status" -eq 1 ]
	sbx new writer --volume data:/data >/dev/null
	sbx run writer sh -c 'echo shared > /data/f'
	run sbx volume rm data
	[ "$status" -eq 1 ]
	sbx rm writer
	sbx new reader --volume data:/data:ro >/dev/null
	[ "$(sbx run reader cat /data/f)" = shared ]
	run sbx run reader sh -c 'echo x > /data/f'
	[ "$status" -ne 0 ]
	sbx rm reader
	sbx volume rm data
}

@test "the network is changed while it runs" {
	can network_policy_update egress_allowlist
	sbx network box --allow github.com,pypi.org --deny gist.github.com
	run sbx network box
	[[ $output == *allowlist*"github.com pypi.org"*gist.github.com* ]]
	run sbx network box --allow 'https://x'
	[ "$status" -eq 1 ]
	sbx network box none
	run sbx network box
	[[ $output == *none* && $output != *github* ]]
}

@test "usage is shown and followed to the end of the sandbox" {
	can metrics
	sbx new used >/dev/null
	sampled() { [ "$(sbx --json metrics used | jq '.samples | length')" -gt 0 ]; }
	cli_wait sampled
	run sbx metrics used
	[ "${#lines[@]}" -eq 2 ]
	"$O/bin/sbx" metrics -f used >"$T/used" 2>&1 3>&- &
	pid=$!
	cli_wait test -s "$T/used"
	sbx rm used
	wait $pid
	[[ $(head -n 1 "$T/used") == TIME* ]]
}

@test "a tunnel listens on the local port that is asked for" {
	can tunnel
	sbx run -d box sh -c 'mkdir -p w; echo here >w/index.html; exec httpd -f -p 127.0.0.1:8088 -h w'
	port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	"$O/bin/sbx" tunnel box "8088:$port" >"$T/tunnel" 2>"$T/tunnel.err" 3>&- &
	pid=$!
	cli_wait grep -qx "127.0.0.1:$port" "$T/tunnel"
	cli_wait curl -sf --max-time $((15 * ${SLOW:-1})) "http://127.0.0.1:$port/"
	[ "$(curl -s --max-time $((15 * ${SLOW:-1})) "http://127.0.0.1:$port/")" = here ]
	run sbx tunnel box "8088:$port"
	[ "$status" -eq 1 ]
	kill $pid
}

@test "images: the default is in use, one that nobody has is said to be missing" {
	can images
	name=$(sbx --json sandbox show box | jq -r .image)
	run sbx image ls
	[[ $output == *"$name"*installed* ]]
	run sbx image rm "$name"
	[ "$status" -eq 1 ]
	run sbx image rm no-such-image
	[ "$status" -eq 1 ]
	run sbx image pull no-such-word-here
	[ "$status" -eq 1 ]
	[ -n "$output" ]
}

@test "an image that was imported is one to start from" {
	can images
	mkdir "$T/images"
	cp "$O/images/"*.tar "$T/images/"
	"$O/bin/sandboxd" --backend linux --listen "unix://$T/sock2" --state-dir "$T/state2" --image-dir "$T/images" \
		>"$T/log2" 2>&1 3>&- &
	pid=$!
	chmod 755 "$T"
	export SBX_ENDPOINT=unix://$T/sock2
	cli_wait sbx api GET /v1/health
	sbx image import "$O/images/base.tar" mine --image-dir "$T/images"
	sbx new from-mine --image mine >/dev/null
	[ "$(sbx run from-mine id -un)" = sandbox ]
	sbx rm from-mine
	kill $pid
	wait $pid || true
	SBX_ENDPOINT=unix://$T/sock
}
