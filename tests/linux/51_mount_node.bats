#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Ports, sleep, snapshots, volumes, images, network and usage as files, on real isolation. What a server
# lacks is absent from the tree; those scenarios are skipped with the capability's name.
load ../fs/helper

setup_file() {
	[ "$(id -u)" = 0 ] || return 0
	export SBX_BACKEND=linux TMPDIR=/var/tmp
	fs_start
}
teardown_file() { fs_stop; }
setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	fs_setup
}
can() {
	local c
	for c; do [ "$(jq -r ".capabilities.$c" "$M/capabilities")" = true ] || skip "the server lacks $c"; done
}
state() { api GET "/sandboxes/$1" | jq -r .state; }
is_state() { [ "$(state "$1")" = "$2" ]; }
events() { api GET "/sandboxes/$1/events" | jq -r '.events[].type'; }

@test "what the server has is there, what it lacks is absent" {
	for row in images:images volumes:volumes disk_snapshot:snapshots; do
		if [ "$(jq ".capabilities.${row%:*}" "$M/capabilities")" = true ]; then [ -d "$M/${row#*:}" ]; else
			[ ! -e "$M/${row#*:}" ]; fi
	done
	for row in tunnel:ports metrics:metrics disk_snapshot:snapshots metrics_export:metrics_export; do
		if [ "$(jq ".capabilities.${row%:*}" "$M/capabilities")" = true ]; then [ -e "$B/${row#*:}" ]; else
			[ ! -e "$B/${row#*:}" ]; fi
	done
}

@test "a port is a socket of this host, both ways and with half-closes" {
	can tunnel
	start 'while :; do nc -l -p 9000 -e tr a-z A-Z; done' >/dev/null
	mkdir "$B/ports/9000"
	same "$(stat -L -c '%F %a' "$B/ports/9000/socket")" "socket 600"
	same "$(ls "$B/ports")" 9000
	half() { [ "$(echo half | timeout 5 socat -t 4 - "UNIX-CONNECT:$(readlink "$B/ports/9000/socket")")" = HALF ]; }
	fs_wait half
	same "$(cat "$B/ports/9000/address")" ""
	echo tcp > "$B/ports/9000/ctl"
	[[ $(cat "$B/ports/9000/address") == 127.0.0.1:* ]]
	tcp() { [ "$(echo tcp | timeout 5 socat -t 4 - "TCP:$(cat "$B/ports/9000/address")")" = TCP ]; }
	fs_wait tcp
	[ "$(jq .connections "$B/ports/9000/info")" -ge 2 ]
	refused "Invalid argument" bash -c "echo udp > $B/ports/9000/ctl"
	at=$(readlink "$B/ports/9000/socket")
	rmdir "$B/ports/9000"
	[ ! -e "$at" ]
	[ ! -e "$B/ports/9000" ]
}

@test "a port nobody listens on closes at once, and error says so" {
	can tunnel
	mkdir "$B/ports/4444"
	timeout 5 socat - "UNIX-CONNECT:$(readlink "$B/ports/4444/socket")" </dev/null
	[[ $(jq -r .error "$B/ports/4444/info") == *4444* ]]
	[[ $(cat "$B/error") == *ports/4444* ]]
	refused "Invalid argument" mkdir "$B/ports/0"
	refused "Invalid argument" mkdir "$B/ports/http"
	refused "File exists" mkdir "$B/ports/4444"
	rmdir "$B/ports/4444"
}

@test "ports end with their sandbox, wherever it is ended" {
	can tunnel
	mkdir "$M/gone" "$M/gone/ports/80"
	at=$(readlink "$M/gone/ports/80/socket")
	[ -S "$at" ]
	api DELETE /sandboxes/gone
	fs_wait test ! -e "$at"
	mkdir "$M/gone" "$M/gone/ports/80"
	at=$(readlink "$M/gone/ports/80/socket")
	rmdir "$M/gone"
	[ ! -e "$at" ]
}

@test "a change by somebody else is seen at once" {
	mkdir "$M/told"
	ls "$M" >/dev/null
	for i in 1 2 3 4 5; do
		js PATCH /sandboxes/told "{\"labels\":{\"n\":\"$i\"}}" >/dev/null
		fs_wait grep -qx "$i" "$M/told/labels/n"
	done
	js PATCH /sandboxes/told '{"name":"renamed"}' >/dev/null
	fs_wait test -d "$M/renamed"
	[ ! -e "$M/told" ]
	# What did not change is not asked for again and again.
	before=$(jq .requests "$M/stats")
	began=$(date +%s%3N)
	for i in $(seq 40); do cat "$M/renamed/state" >/dev/null; done
	took=$(($(date +%s%3N) - began))
	after=$(jq .requests "$M/stats")
	[ $((after - before)) -le $((4 + took / 250)) ] || { echo "$((after - before)) requests in $took ms"; false; }
	rmdir "$M/renamed"
}

@test "suspend and resume by ctl; looking at a sleeping sandbox fails softly and does not wake it" {
	can suspend
	mkdir "$M/nap"
	echo text > "$M/nap/home/f"
	echo suspend > "$M/nap/ctl"
	same "$(cat "$M/nap/state")" suspended
	ls -l "$M" "$M/nap" >/dev/null
	find "$M/nap" -maxdepth 2 -not -path '*/fs/*' -not -path '*/bin/*' >/dev/null 2>&1 || true
	for f in info labels name idle_timeout events ctl; do cat "$M/nap/$f" >/dev/null 2>&1 || [ -d "$M/nap/$f" ]; done
	refused "Device or resource busy" ls "$M/nap/fs"
	refused "Device or resource busy" cat "$M/nap/home/f"
	[[ $(cat "$M/nap/error") == *suspended* ]]
	same "$(state nap)" suspended
	echo resume > "$M/nap/ctl"
	same "$(cat "$M/nap/state")" running
	same "$(cat "$M/nap/home/f")" text
	refused "Device or resource busy" bash -c "echo resume > $M/nap/ctl"
	rmdir "$M/nap"
}

@test "a sandbox that idles is put to sleep; looking leaves it asleep, a command wakes it" {
	can suspend
	mkdir "$M/new/idle"
	echo suspend > "$M/new/idle/idle_action"
	echo 1 > "$M/new/idle/idle_timeout"
	mv "$M/new/idle" "$M/"
	same "$(cat "$M/idle/idle_action")" suspend
	fs_wait is_state idle suspended
	ls -lR "$M" >/dev/null 2>&1 || true
	cat "$M/idle/info" "$M/idle/state" "$M/idle/events" >/dev/null
	ls -l "$M/idle/metrics" >/dev/null 2>&1 || true
	same "$(state idle)" suspended
	refused "Device or resource busy" cat "$M/idle/home/f"
	same "$(state idle)" suspended
	echo 'echo woken > f' > "$M/idle/run"
	events idle | grep -qx sandbox.resumed
	fs_wait is_state idle suspended
	echo 60 > "$M/idle/idle_timeout" # a record: does not wake it
	same "$(state idle)" suspended
	echo resume > "$M/idle/ctl"
	same "$(cat "$M/idle/home/f")" woken
	rmdir "$M/idle"
}

@test "mkdir takes a snapshot, fork makes a sandbox of it, rmdir deletes it" {
	can disk_snapshot
	echo first > "$H/f"
	mkdir "$B/snapshots/one"
	echo second > "$H/f"
	id=$(cat "$B/snapshots/one/id")
	same "$(readlink "$B/snapshots/$id")" one
	same "$(jq -r .sandbox "$M/snapshots/$id/info")" "$(cat "$B/id")"
	same "$(cat "$B/snapshots/one/kind" "$B/snapshots/one/scheduled" | tr '\n' ' ')" "disk 0 "
	refused "File exists" mkdir "$B/snapshots/one"
	refused "Invalid argument" mkdir "$B/snapshots/Not_A_Name"
	refused "Operation not permitted" mkdir "$M/snapshots/here"
	echo fork1 > "$B/snapshots/one/fork"
	same "$(cat "$M/fork1/home/f")" first
	same "$(cat "$M/created")" "$(cat "$M/fork1/id")"
	refused "File exists" bash -c "echo fork1 > $B/snapshots/one/fork"
	rmdir "$B/snapshots/one"
	[ ! -e "$M/snapshots/$id" ]
	same "$(cat "$M/fork1/home/f")" first
	rmdir "$M/fork1"
}

@test "fork and snapshot are verbs, too, and a fork of now leaves nothing behind" {
	can disk_snapshot
	echo now > "$H/g"
	before=$(ls "$M/snapshots" | wc -l)
	echo 'fork fork2' > "$B/ctl"
	same "$(cat "$M/fork2/home/g")" now
	same "$(ls "$M/snapshots" | wc -l)" "$before"
	rmdir "$M/fork2"
	echo 'snapshot two' > "$B/ctl"
	[ -d "$B/snapshots/two" ]
	mkdir "$M/new/f3"
	cat "$B/snapshots/two/id" > "$M/new/f3/snapshot"
	mv "$M/new/f3" "$M/"
	same "$(cat "$M/f3/home/g")" now
	rmdir "$M/f3" "$B/snapshots/two"
}

@test "the files of a snapshot are there when they are asked for, and cannot be written" {
	can disk_snapshot
	echo kept > "$H/v"
	mkdir "$B/snapshots/view"
	rm "$H/v"
	id=$(cat "$B/snapshots/view/id")
	V=$M/snapshots/$id
	[ ! -e "$V/fs" ]
	ls -lR "$M/snapshots" >/dev/null
	[ ! -e "$V/fs" ] # looking made nothing
	mkdir "$V/fs"
	same "$(cat "$V/fs/sandbox/home/v")" kept
	same "$(diff <(cd "$V/fs/etc" && find . | sort) <(cd "$B/fs/etc" && find . | sort) | wc -l)" 0
	for c in "touch $V/fs/sandbox/home/v" "rm $V/fs/sandbox/home/v" "mkdir $V/fs/sandbox/home/d" \
		"mv $V/fs/sandbox/home/v $V/fs/sandbox/home/w" "chmod 600 $V/fs/sandbox/home/v" \
		"ln -s x $V/fs/sandbox/home/l" "truncate -s 0 $V/fs/sandbox/home/v" \
		"cp /dev/null $V/fs/sandbox/home/n"; do
		refused "Read-only file system" $c
	done
	same "$(cat "$V/fs/sandbox/home/v")" kept
	refused "Device or resource busy" rmdir "$V"
	view=$(ls "$M/by-label/sbxfs.view/$id")
	same "$(cat "$M/$view/network/mode")" none
	rmdir "$V/fs"
	[ ! -e "$M/$view" ]
	rmdir "$V"
}

@test "a schedule is written and read as one line" {
	can disk_snapshot
	echo '3600 2' > "$B/snapshots/schedule"
	same "$(cat "$B/snapshots/schedule")" "3600 2"
	same "$(api GET /sandboxes/box | jq .snapshot_keep)" 2
	refused "Invalid argument" bash -c "echo 1 > $B/snapshots/schedule" # shorter than the server allows
	same "$(cat "$B/snapshots/schedule")" "3600 2"
	echo 0 > "$B/snapshots/schedule"
	same "$(cat "$B/snapshots/schedule")" ""
	same "$(cat "$B/snapshots/progress")" ""
}

@test "a volume outlives its sandbox, and says who holds it" {
	can volumes
	mkdir "$M/new/v"
	echo 64 > "$M/new/v/size_mb"
	mv "$M/new/v" "$M/volumes/data"
	same "$(cat "$M/volumes/data/size_mb")" 64
	refused "File exists" mkdir "$M/volumes/data"
	for who in one two; do
		mkdir "$M/new/$who"
		echo "data /data" > "$M/new/$who/volumes"
		mv "$M/new/$who" "$M/"
		same "$(cat "$M/$who/volumes")" "data /data rw"
		same "$(cat "$M/volumes/data/attached_to")" "$(cat "$M/$who/id")"
		[ "$who" = one ] && echo shared > "$M/one/fs/data/f"
		same "$(cat "$M/$who/fs/data/f")" shared
		refused "Device or resource busy" rmdir "$M/volumes/data"
		rmdir "$M/$who"
	done
	rmdir "$M/volumes/data"
	[ ! -e "$M/volumes/data" ]
}

@test "images are directories; an install that fails says why" {
	can images
	name=$(cat "$B/image")
	same "$(cat "$M/images/$name/state")" installed
	[ "$(cat "$M/images/$name/in_use")" -ge 1 ]
	refused "Device or resource busy" rmdir "$M/images/$name"
	same "$(timeout 20 cat "$M/images/$name/wait")" installed
	bad=127.0.0.1:1%2Fnothing:1
	mkdir "$M/images/$bad"
	same "$(timeout 60 cat "$M/images/$bad/wait")" failed
	[ -n "$(cat "$M/images/$bad/error")" ]
	rmdir "$M/images/$bad"
	[ ! -e "$M/images/$bad" ]
	refused "Invalid argument" mkdir "$M/images/-x"
}

@test "the network is read and written by its files, each write one change" {
	can network_policy_update egress_allowlist
	echo allowlist > "$B/network/mode"
	same "$(cat "$B/network/mode")" allowlist
	printf 'github.com\n*.example.com\n' | cat > "$B/network/allow"
	same "$(cat "$B/network/allow")" "$(printf '*.example.com\ngithub.com')"
	echo pypi.org >> "$B/network/allow"
	same "$(wc -l < "$B/network/allow")" 3
	echo gist.github.com > "$B/network/deny"
	same "$(api GET /sandboxes/box | jq -c .network)" \
		'{"mode":"allowlist","allow":["*.example.com","github.com","pypi.org"],"deny":["gist.github.com"]}'
	refused "Invalid argument" bash -c "echo https://x/ > $B/network/allow"
	[[ $(cat "$B/error") == *network/allow* ]]
	same "$(wc -l < "$B/network/allow")" 3
	echo '{"mode":"none"}' > "$B/network/policy"
	same "$(cat "$B/network/mode" "$B/network/allow" "$B/network/deny")" none
}

@test "figures of use are files, the samples a log, each new one a line of follow" {
	can metrics
	fs_wait test -s "$B/metrics/latest"
	[ "$(cat "$B/metrics/memory_limit_bytes")" -gt 1000000 ]
	same "$(jq .memory_limit_bytes "$B/metrics/latest")" "$(cat "$B/metrics/memory_limit_bytes")"
	[ "$(wc -l < "$B/metrics/history")" -ge 1 ]
	jq -e .time "$B/metrics/history" >/dev/null
	[[ " $(ls "$B/metrics" | tr '\n' ' ')" != *follow* ]]
	timeout 20 head -n 1 "$B/metrics/follow" > "$T/host/sample" || [ $? = 124 ]
	jq -e .cpu_percent "$T/host/sample" >/dev/null
}

@test "where usage goes is set by JSON, and header values are not shown" {
	can metrics_export
	echo '{"endpoint":"https://127.0.0.1:9/","headers":{"X-Key":"hidden-value"}}' > "$B/metrics_export" || skip \
		"this server refuses the target"
	jq -e .endpoint "$B/metrics_export" >/dev/null
	! grep -r hidden-value "$B/metrics_export" "$B/info" "$M/error" "$M/errors" || false
	echo '{"endpoint":""}' > "$B/metrics_export"
	same "$(cat "$B/metrics_export")" ""
}

@test "the end of the mount leaves no socket and no view" {
	can tunnel disk_snapshot
	mkdir "$B/ports/7777" "$B/snapshots/last"
	id=$(cat "$B/snapshots/last/id")
	mkdir "$M/snapshots/$id/fs"
	view=$(api GET "/sandboxes?label=sbxfs.view=$id" | jq -r '.sandboxes[0].id')
	at=$(readlink "$B/ports/7777/socket")
	cd /
	kill "$(cat "$T/fspid")"
	fs_wait fs_gone "$(cat "$T/fspid")"
	[ ! -e "$at" ] && [ ! -e "$(dirname "$at")" ]
	same "$(state "$view")" terminated
	fs_mount
	rmdir "$M/snapshots/$id"
}

@test "sockets of a mount that was killed are taken away by the next" {
	can tunnel
	mkdir "$B/ports/7777"
	at=$(readlink "$B/ports/7777/socket")
	cd /
	kill -9 "$(cat "$T/fspid")"
	fs_wait fs_gone "$(cat "$T/fspid")"
	[ -e "$at" ]
	fs_mount
	mkdir "$B/ports/7778"
	[ ! -e "$(dirname "$at")" ]
	rmdir "$B/ports/7778"
}
