#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# kill -9 at each named point of a snapshot, a fork, a volume's beginning and end, and a start: the next
# start finds records and disk in agreement, nothing acknowledged is lost, and everything works.

load ../linux/records

setup() { records_setup; }
teardown() { records_teardown; }

died() { ! kill -0 "$SRV" 2>/dev/null || [ "$(ps -o stat= -p "$SRV" | cut -c1)" = Z ]; }
stopped() { [ "$(ps -o stat= -p "$1" | cut -c1)" = T ]; }
wait_dead() { await 300 died; wait "$SRV" 2>/dev/null || true; SRV=; }
is_listed() { get /v1/snapshots | jq -e --arg s "$1" 'any(.snapshots[]; .id == $s)' >/dev/null; }

# A request that comes to a point where somebody is killed: the server, or a helper of its broker, which is
# an error of that request, or, where a disk provider does not pass by that point, nobody.
hit() {
	local out
	out=$(code "$@" 2>/dev/null) || true
	case $out in
	'' | 000*) wait_dead ;;
	201 | 204 | "500 internal") ;;
	*) echo "$* answered $out" >&2; return 1 ;;
	esac
}

# A volume with content, a snapshot with content, and a sandbox: none of these may be lost or changed.
prepare() {
	start
	[ "$(code POST /v1/volumes '{"name":"old","size_mb":32}')" = 201 ]
	v=$(new '{"volumes":[{"name":"old","path":"/data"}]}')
	guest "$v" 'echo kept > /data/f; sync' >/dev/null
	[ "$(code DELETE "/v1/sandboxes/$v")" = 204 ]
	a=$(new)
	guest "$a" 'echo kept > f' >/dev/null
	[ "$(echo "$MACHINE" | put "$a" /etc/machine-id)" = 204 ]
	s=$(snap "$a")
	stop
}
MACHINE=00000000000040008000000000000000
check() {
	[ "$(guest "$a" 'cat f')" = kept ]
	is_listed "$s"
	f=$(fork "$s")
	[ "$(guest "$f" 'cat f')" = kept ]
	[ "$(code DELETE "/v1/sandboxes/$f")" = 204 ]
	v=$(new '{"volumes":[{"name":"old","path":"/data"}]}')
	[ "$(guest "$v" 'cat /data/f')" = kept ]
	[ "$(code DELETE "/v1/sandboxes/$v")" = 204 ]
	agree
}

@test "at each point of a snapshot" {
	prepare
	for point in snapshot-numbered layer-recorded seal-frozen seal-made snapshot-sealed layer-ready snapshot-stored snapshot-recorded; do
		echo "$point" >&2
		FAULT=$point start
		hit POST "/v1/sandboxes/$a/snapshots"
		# whoever was killed had perhaps made it stand still: it runs again
		[ -z "$SRV" ] || [ "$(guest "$a" 'echo alive')" = alive ]
		[ -z "$SRV" ] || stop
		start
		[ "$(guest "$a" 'echo alive')" = alive ]
		n=$(get /v1/snapshots | jq '.snapshots | length')
		[ "$n" -ge 1 ]
		check
		# whole, if it is listed at all
		for x in $(get /v1/snapshots | jq -r '.snapshots[].id'); do
			[ "$x" != "$s" ] || continue
			[ "$(guest "$(fork "$x")" 'cat f')" = kept ]
			[ "$(code DELETE "/v1/snapshots/$x")" = 204 ]
		done
		for x in $(get /v1/sandboxes | jq -r '.sandboxes[] | select(.state == "running") | .id'); do
			[ "$x" = "$a" ] || [ "$(code DELETE "/v1/sandboxes/$x")" = 204 ]
		done
		agree
		stop
	done
	start
}

# What is there of a create that was never answered is there whole, or nothing is.
whole_or_nothing() { # NAME POINT SNAPSHOT
	local x=$1
	if [ "$2" != create-landed ]; then
		[ "$(code GET "/v1/sandboxes/$x")" = "404 not_found" ]
		x=$(new "{\"name\":\"$x\"${3:+,\"snapshot_id\":\"$3\"}}")
	fi
	[ "$(guest "$x" 'pwd')" = /sandbox/home ]
	get "/v1/sandboxes/$x/events" | jq -e --arg s "${3:-}" '[.events[] | select(.type == "sandbox.created")] == .events[:1]
		and (.events[0].snapshot // "") == $s'
	if [ -n "${3:-}" ]; then
		[ "$(guest "$x" 'cat f')" = kept ]
		[[ $(cat_ "$x" /etc/machine-id) =~ ^[0-9a-f]{32}$ ]]
		[ "$(cat_ "$x" /etc/machine-id)" != "$MACHINE" ]
	fi
	[ "$(code DELETE "/v1/sandboxes/$x")" = 204 ]
}

@test "at each point of a create, a fork and one of an image" {
	prepare
	for point in create-made create-recorded create-landed; do
		for from in "$s" ''; do
			echo "$point $from" >&2
			FAULT=$point start
			code POST /v1/sandboxes "{\"name\":\"${from:+fork-}$point\"${from:+,\"snapshot_id\":\"$from\"}}" 2>/dev/null || true
			wait_dead
			start
			[ "$(get /v1/sandboxes | jq --arg a "$a" '[.sandboxes[] | select(.state != "terminated" and .id != $a)] | length')" = $([ $point = create-landed ] && echo 1 || echo 0) ]
			whole_or_nothing "${from:+fork-}$point" "$point" "$from"
			check
			stop
		done
	done
	start
}

# It runs, and the record that would say so is not on the disk: nothing of what was acknowledged may go, nor be
# renewed once more.
@test "a fork that was answered is what it was, however soon the server dies" {
	prepare
	start
	for _ in 1 2 3; do
		f=$(fork "$s")
		id=$(cat_ "$f" /etc/machine-id)
		[ "$(echo a key | put "$f" /etc/ssh/ssh_host_own_key)" = 204 ]
		g=$(fork "$s")
		crash
		start
		[ "$(cat_ "$f" /etc/machine-id)" = "$id" ]
		[ "$(cat_ "$f" /etc/ssh/ssh_host_own_key)" = "a key" ]
		[ "$(guest "$g" 'cat f')" = kept ]
		[ "$(code DELETE "/v1/sandboxes/$f")" = 204 ]
		[ "$(code DELETE "/v1/sandboxes/$g")" = 204 ]
	done
	check
}

@test "at each point of a volume's beginning and end" {
	prepare
	for point in volume-prepared volume-made volume-there volume-recorded; do
		echo "$point" >&2
		FAULT=$point start
		hit POST /v1/volumes '{"name":"new","size_mb":32}'
		[ -z "$SRV" ] || stop
		start
		agree
		# it is there or it is not; either way the name can be had
		get /v1/volumes | jq -e 'any(.volumes[]; .name == "new")' >/dev/null || [ "$(code POST /v1/volumes '{"name":"new","size_mb":32}')" = 201 ]
		v=$(new '{"volumes":[{"name":"new","path":"/data"}]}')
		[ "$(guest "$v" 'echo x > /data/x && echo ok')" = ok ]
		[ "$(code DELETE "/v1/sandboxes/$v")" = 204 ]
		check
		stop
		for end in volume-forgotten volume-drop; do
			[ $point = volume-recorded ] || continue
			echo "$end" >&2
			FAULT=$end start
			hit DELETE /v1/volumes/new
			[ -z "$SRV" ] || stop
			start
			! get /v1/volumes | jq -e 'any(.volumes[]; .name == "new")' >/dev/null || false
			agree
			check
			[ "$(code POST /v1/volumes '{"name":"new","size_mb":32}')" = 201 ]
			stop
		done
		start
		[ "$(code DELETE /v1/volumes/new)" = 204 ]
		stop
	done
	start
}

@test "at each point of an end" {
	prepare
	for point in end-killed end-recorded end-answered; do
		echo "$point" >&2
		start
		v=$(new '{"volumes":[{"name":"old","path":"/data"}]}')
		stop
		FAULT=$point start
		code DELETE "/v1/sandboxes/$v" >/dev/null 2>&1 || true
		wait_dead
		start
		# its guest was dead before anything said so, and it is taken for nothing else
		[ "$(get "/v1/sandboxes/$v" | jq -r .state)" = terminated ]
		[ "$(code DELETE "/v1/sandboxes/$v")" = 204 ]
		check
		stop
	done
	start
}

@test "at each point of a start" {
	prepare
	start
	f=$(fork "$s")
	crash
	for point in restore-settled restore-swept; do
		echo "$point" >&2
		! FAULT=$point start 2>/dev/null || false
		SRV=
	done
	start
	[ "$(guest "$f" 'cat f')" = kept ]
	[ "$(code DELETE "/v1/sandboxes/$f")" = 204 ]
	check
}

area_there() { in_folder areas | grep -qx "$1"; }
shim_of() { od -An -t d4 -j 16 -N 4 "$D/state/priv/boxes/$1" | tr -d ' '; }

# The janitor waits where it would remove the first file.
@test "a start waits for no file of a sandbox that ended, nor for who removes files for the broker before" {
	start
	a=$(new)
	guest "$a" 'echo x > f' >/dev/null
	shim=$(shim_of "$a")
	crash
	kill -9 "$shim"
	FAULT=wait:janitor-files start
	area_there "$a"
	[ "$(get "/v1/sandboxes/$a" | jq -r .state)" = terminated ]
	b=$(new)
	[ "$(guest "$b" 'echo runs')" = runs ]
	[ "$(code DELETE "/v1/sandboxes/$b")" = 204 ]
	crash
	start
	[ "$(guest "$(new)" 'echo runs')" = runs ]
	for id in "$a" "$b"; do
		await 300 eval '! area_there "$id"'
		[ ! -e "$D/state/priv/boxes/$id" ]
	done
}

@test "the broker is killed while a snapshot is under way" {
	prepare
	for point in snapshot-numbered snapshot-sealed; do
		FAULT=stop:$point start
		srv=$SRV b=$(broker)
		(code POST "/v1/sandboxes/$a/snapshots" >/dev/null 2>&1) 3>&- &
		await 100 stopped "$srv"
		kill -9 "$b"
		kill -CONT "$srv"
		await 100 died
		wait "$SRV" 2>/dev/null || true
		SRV=
		start
		[ "$(guest "$a" 'echo alive')" = alive ]
		check
		for x in $(get /v1/snapshots | jq -r '.snapshots[].id'); do [ "$x" = "$s" ] || code DELETE "/v1/snapshots/$x"; done
		stop
	done
	start
}

@test "kill -9 at any moment while snapshots, forks and volumes come and go" {
	prepare
	start
	for round in 1 2 3 4 5 6; do
		for i in 1 2 3; do
			(s2=$(snap "$a" 2>/dev/null); [ -n "$s2" ] && { x=$(fork "$s2" 2>/dev/null); code DELETE "/v1/snapshots/$s2"; [ -n "$x" ] && code DELETE "/v1/sandboxes/$x"; }) >/dev/null 2>&1 3>&- &
			(code POST /v1/volumes "{\"name\":\"t$i\",\"size_mb\":16}"; code DELETE /v1/volumes/t$i) >/dev/null 2>&1 3>&- &
		done
		sleep "0.$((round * 13 % 10))$((round % 10))"
		crash
		wait 2>/dev/null || true
		start
	done
	for x in $(get /v1/sandboxes | jq -r '.sandboxes[] | select(.state == "running") | .id'); do [ "$x" = "$a" ] || code DELETE "/v1/sandboxes/$x"; done
	for x in $(get /v1/volumes | jq -r '.volumes[].name'); do [ "$x" = old ] || [ "$(code DELETE "/v1/volumes/$x")" = 204 ]; done
	for x in $(get /v1/snapshots | jq -r '.snapshots[].id'); do [ "$x" = "$s" ] || [ "$(code DELETE "/v1/snapshots/$x")" = 204 ]; done
	check
}
