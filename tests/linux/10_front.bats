#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The server as root starts it: what it has given up, and what survives the end of its parts.

setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	O=${SBX_BUILD:-$PWD/build}
	D=$(mktemp -d /var/tmp/sbx-front.XXXXXX) # 0700: only root may pass
	(umask 077; echo 0123456789abcdef-one >"$D/token")
	TOK=0123456789abcdef-one
}

teardown() {
	[ -n "${D:-}" ] || return 0
	! mountpoint -q "$D/disk" || umount -l "$D/disk"
	[ -z "${NEIGHBOUR:-}" ] || find "$NEIGHBOUR" -depth -type d -exec rmdir {} \;
	if [ -n "${SRV:-}" ] || [ -n "${ENDED:-}" ]; then
		server_up || start
		for id in $(api /v1/sandboxes | grep -o '"sbx_[0-9a-f]*"' | tr -d '"'); do
			api -X DELETE "/v1/sandboxes/$id" >/dev/null
		done
		stop
	fi
	rm -rf --one-file-system "$D"
}

start() {
	"$O/bin/sandboxd" --listen "unix://$D/sock" --state-dir "$D/state" --token-file "$D/token" "$@" \
		2>>"$D/log" 3>&- &
	SRV=$!
	for _ in $(seq $((1200 * ${SLOW:-1}))); do
		server_up && return 0
		kill -0 "$SRV" 2>/dev/null || break
		sleep 0.05
	done
	cat "$D/log" >&2
	return 1
}
stop() {
	kill "$SRV"
	wait "$SRV"
	SRV=
}
api() {
	local args=("$@") path=${*: -1}
	unset 'args[${#args[@]}-1]'
	curl -sS --max-time $((20 * ${SLOW:-1})) --unix-socket "$D/sock" -H "Authorization: Bearer $TOK" "${args[@]}" "http://localhost$path"
}
json() { api -X POST -H 'Content-Type: application/json' -d "$2" "$1"; }
server_up() { [ "$(api -o /dev/null -w '%{http_code}' /v1/health 2>/dev/null)" = 200 ]; }
status_of() { awk -v k="$2:" '$1 == k { print $2 }' "/proc/$1/status"; }

@test "the server has an uid of its own, no capability, no way back" {
	start
	[ "$(status_of "$SRV" Uid)" != 0 ]
	for set in CapInh CapPrm CapEff CapBnd CapAmb; do
		[ "$(status_of "$SRV" $set)" = 0000000000000000 ]
	done
	[ "$(status_of "$SRV" NoNewPrivs)" = 1 ]
	[ "$(status_of "$SRV" Seccomp)" = 2 ]
	[ -z "$(awk '$1 == "Groups:" { print $2 }' "/proc/$SRV/status")" ]
	[ "$(awk '/Max core file size/ { print $5 $6 }' "/proc/$SRV/limits")" = 11 ]
}

# 0 would be none on a disk, but a program that the host gives them to is started all the same.
@test "a crash of none of its parts starts the host's program for cores" {
	local p=() one name
	start
	json /v1/sandboxes '{"name":"a","network":{"mode":"allowlist","allow":["ok.test"]}}' | grep -q running
	api '/v1/sandboxes/a/fs/stat?path=/' >/dev/null
	p=("$SRV" $(pgrep -f "sbx-pull .*$D/state") $(od -An -td4 -j16 -N4 "$D"/state/priv/boxes/sbx_*))
	for _ in 1 2 3; do
		p+=($(pgrep -P "$(IFS=,; echo "${p[*]}")"))
	done
	cd /proc
	cat "${p[@]/%//cmdline}" | tr '\0' '\n' >"$D/all"
	for name in sandboxd sbx-priv sbx-pull sbx-shim sbx-egress sbx-init sbx-worker; do
		grep -q "$name" "$D/all" || { echo "$name is not among them"; return 1; }
	done
	for one in "${p[@]}"; do
		name=$(awk '/Max core file size/ { print $5 $6 }' "/proc/$one/limits" 2>/dev/null) || continue # it has ended
		[ "$name" = 11 ] || { tr '\0' ' ' <"/proc/$one/cmdline"; return 1; }
	done
}

@test "the broker is the only part that stays privileged" {
	start
	broker=$(pgrep -P "$SRV" -x sbx-priv | head -n1)
	keeper=$(pgrep -P "$SRV" -x sbx-keeper)
	[ "$(status_of "$broker" Uid)" = 0 ]
	[ "$(status_of "$keeper" CapEff)" = 0000000000000000 ]
	[ "$(status_of "$keeper" Seccomp)" = 2 ]
	# none of them shows a token to others
	! tr '\0' ' ' <"/proc/$broker/cmdline" | grep -q 0123456789abcdef || false
	! tr '\0' ' ' <"/proc/$SRV/cmdline" | grep -q 0123456789abcdef-one || false
}

# holders DIR: processes of this server, and of its sandboxes, in whose mount namespace something is mounted there.
holders() {
	local p
	for p in $(pgrep -f "$D/state") $(pgrep -P "$(pgrep -P "$SRV" -x sbx-priv | tr '\n' ',')$SRV"); do
		[ "$(readlink "/proc/$p/ns/mnt")" = "$(readlink /proc/self/ns/mnt)" ] ||
			! grep -qs " $1 " "/proc/$p/mountinfo" || tr '\0' ' ' <"/proc/$p/cmdline"
	done
}

@test "no part of the server holds what the host has mounted elsewhere" {
	mkdir "$D/disk"
	mount -t tmpfs none "$D/disk"
	start
	json /v1/sandboxes '{}' >/dev/null
	held=$(holders "$D/disk")
	umount "$D/disk"
	[ -n "$(pgrep -f "sbx-pull .*$D/state")" ]
	[ -z "$held" ] || { echo "$held"; false; }
}

@test "the state belongs to the server's user, the broker's part to root" {
	start
	[ "$(stat -c %u "$D/state")" = "$(status_of "$SRV" Uid)" ]
	[ "$(stat -c %a "$D/state")" = 700 ]
	[ "$(stat -c %u "$D/state/priv")" = 0 ]
	[ -z "$(find "$D/state" -maxdepth 2 -type f -perm /077 ! -path '*/priv/*')" ]
}

# Niceness, and the slice where the kernel has one for each.
turns() { # PID
	sed 's/.*) //' "/proc/$1/stat" | cut -d' ' -f17
	sed -n 's/^se.slice *: *//p' "/proc/$1/sched" 2>/dev/null || true
}
shorter() { [ "$(tail -n 1 <<<"$1")" -lt "$(tail -n 1 <<<"$2")" ]; }
@test "who answers is served soon, and what a guest runs is like every other program" {
	local long=6$RANDOM guest init mine
	start
	json /v1/sandboxes '{"name":"a"}' | grep -q running
	json /v1/sandboxes/a/processes '{"argv":["sleep","'$long'"]}' | grep -q '"pid":1'
	guest=$(pgrep -xf "sleep $long")
	init=$(sed 's/.*) //' "/proc/$guest/stat" | cut -d' ' -f2)
	mine=$(turns $$)
	[ "$(turns "$guest")" = "$mine" ]
	[ "$(turns "$init" | head -n 1)" = "$(head -n 1 <<<"$mine")" ]
	[ "$(turns "$SRV" | head -n 1)" -lt "$(head -n 1 <<<"$mine")" ]
	# by the kernel, not by the figure: before 6.12 nobody has a slice of its own
	printf '%s\n6.12\n' "$(uname -r)" | sort -VC && return 0
	[ "$(wc -l <<<"$mine")" = 2 ] || return 0 # nor does every kernel show it
	shorter "$(turns "$init")" "$mine"
	shorter "$(turns "$SRV")" "$mine"
}

@test "the token is read again though only root may read it" {
	start
	echo 0123456789abcdef-two >"$D/token"
	kill -HUP "$SRV"
	TOK=0123456789abcdef-two
	for _ in $(seq $((600 * ${SLOW:-1}))); do
		[ "$(api -o /dev/null -w '%{http_code}' /v1/node)" = 200 ] && break
		sleep 0.05
	done
	[ "$(api -o /dev/null -w '%{http_code}' /v1/node)" = 200 ]
	TOK=0123456789abcdef-one
	[ "$(api -o /dev/null -w '%{http_code}' /v1/node)" = 401 ]
	TOK=0123456789abcdef-two
}

@test "without its broker the server ends with 1 and the sandboxes go on" {
	start
	json /v1/sandboxes '{"name":"a"}' | grep -q running
	json /v1/sandboxes/a/processes '{"argv":["sleep","600"]}' | grep -q '"pid":1'
	kill -9 "$(pgrep -P "$SRV" -x sbx-priv | head -n1)"
	rc=0
	wait "$SRV" || rc=$?
	SRV= ENDED=1
	[ "$rc" = 1 ]
	grep -q 'broker sbx-priv has ended' "$D/log"
	start
	api /v1/sandboxes/a/processes/1 | grep -q '"state":"running"'
	json /v1/sandboxes/a/run '{"argv":["true"]}' | grep -q '"exit_code":0'
}

@test "a stop keeps sandboxes and the next start has them, the same process in them" {
	start
	json /v1/sandboxes '{"name":"a"}' | grep -q running
	json /v1/sandboxes/a/processes '{"argv":["sleep","600"]}' | grep -q '"pid":1'
	stop
	start
	api /v1/sandboxes/a | grep -q '"state":"running"'
	api /v1/sandboxes/a/processes/1 | grep -q '"state":"running"'
}

@test "with --no-keep-sandboxes a stop ends them" {
	start --no-keep-sandboxes
	json /v1/sandboxes '{"name":"a"}' | grep -q running
	stop
	start
	! api /v1/sandboxes/a | grep -q '"state":"running"' || false
}

@test "a second server on the same state does not start" {
	start
	run "$O/bin/sandboxd" --listen "unix://$D/sock2" --state-dir "$D/state"
	[ "$status" = 1 ]
	[[ "$output" == *"another sandboxd uses the state directory"* ]]
}

@test "a state directory that was moved keeps its sandboxes, and another in its old place leaves them alone" {
	n=7$RANDOM
	start
	json /v1/sandboxes '{"name":"a"}' | grep -q running
	json /v1/sandboxes/a/processes "{\"argv\":[\"sleep\",\"$n\"]}" | grep -q '"pid":1'
	stop
	mv "$D/state" "$D/moved"
	ln -s moved "$D/state" # only for start: the server goes by what it leads to
	start
	api /v1/sandboxes/a/processes/1 | grep -q '"state":"running"'
	rm "$D/state"
	"$O/bin/sandboxd" --listen "unix://$D/sock2" --state-dir "$D/state" 2>"$D/log2" 3>&- &
	other=$!
	for _ in $(seq $((1200 * ${SLOW:-1}))); do
		! grep -q ' started ' "$D/log2" && kill -0 "$other" 2>/dev/null || break
		sleep 0.05
	done
	json /v1/sandboxes/a/run '{"argv":["true"]}' | grep -q '"exit_code":0' || alive=no
	kill "$other"
	wait "$other"
	rm -rf --one-file-system "$D/state"
	ln -s moved "$D/state"
	[ "${alive:-yes}" = yes ]
	grep -q ' started ' "$D/log2"
	[ "$(api -X DELETE -o /dev/null -w '%{http_code}' /v1/sandboxes/a)" = 204 ]
	! pgrep -f "^sleep $n" || false # its end was told: it has ended, and by the groups that it has
}

@test "a sandbox never gets the ids that one of another server has" {
	block_of() { od -An -tu4 -j4 -N4 "$D/state/priv/boxes/$1" | tr -d ' '; }
	new() { json /v1/sandboxes '{}' | grep -o '"id":"[^"]*"' | cut -d'"' -f4; }
	start
	own=$(block_of "$(new)")
	stop
	top=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
	NEIGHBOUR=${top:-/sys/fs/cgroup/pids}/sandboxd-neighbour$RANDOM
	mkdir "$NEIGHBOUR"
	from=$((own > 20 ? own - 20 : 0))
	for n in $(seq "$from" $((own + 40))); do [ "$n" = "$own" ] || mkdir "$NEIGHBOUR/n$n"; done
	start
	for _ in 1 2 3; do
		n=$(block_of "$(new)")
		[ "$n" -lt "$from" ] || [ "$n" -gt $((own + 40)) ] || { echo "$n is a neighbour's"; false; }
	done
}
