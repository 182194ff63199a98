#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Layers made by somebody who means harm: refused with a reason, or unpacked without what is dangerous. The
# host's files, the records and the other images stay as they are.
bats_require_minimum_version 1.5.0

setup_file() {
	[ "$(id -u)" = 0 ] || return 0
	export O=${SBX_BUILD:-$PWD/build}
	export D=$(mktemp -d /var/tmp/sbx-hostile.XXXXXX)
	mkdir -p "$D/images"
	mkdir -m 700 "$D/state"
	cp "$O/images/base.tar" "$D/images/base.tar" # the build may lie where the server has no way to
	server_start
	ls "$D/state/priv/layers" >"$D/before"
}
teardown_file() {
	[ -n "${D:-}" ] || return 0
	for id in $(api GET /sandboxes | jq -r '.sandboxes[]|select(.state!="terminated").id'); do api DELETE "/sandboxes/$id"; done
	kill "$(cat "$D/server")"
	wait_for gone "$(cat "$D/server")"
	rm -rf --one-file-system "$D"
}
server_start() {
	"$O/bin/sandboxd" --listen "unix://$D/sock" --state-dir "$D/state" --image-dir "$D/images" >>"$D/log" 2>&1 3>&- &
	echo $! >"$D/server"
	wait_for up || { tail -n 20 "$D/log" >&2; return 1; }
}
setup() { [ "$(id -u)" = 0 ] || skip "needs root"; }
wait_for() {
	local n=1200
	until "$@" >/dev/null 2>&1; do
		n=$((n - 1))
		[ $n -gt 0 ] || return 1
		sleep 0.05
	done
}
gone() { ! kill -0 "$1" 2>/dev/null; }
up() { [ "$(curl -sS --max-time $((5 * ${SLOW:-1})) --unix-socket "$D/sock" -o /dev/null -w '%{http_code}' http://localhost/v1/health 2>/dev/null)" = 200 ]; }
api() {
	local m=$1 p=$2
	shift 2
	curl -sS --max-time $((120 * ${SLOW:-1})) --unix-socket "$D/sock" -X "$m" "$@" "http://localhost/v1$p"
}
js() { api "$1" "$2" -H 'Content-Type: application/json' --data-binary "$3"; }
image() { api GET /images | jq -c --arg i "$1" '.images[]|select(.image==$i)'; }
state_is() { [ "$(image "$1" | jq -r .state)" = "$2" ]; }
make() { python3 tests/linux/oci.py "$D/images/$1.oci" "$1"; }
install() { # KIND STATE
	make "$1"
	js POST /images "{\"image\":\"$1\"}" >/dev/null
	wait_for eval '! state_is '"$1"' installing'
	state_is "$1" "$2" || { image "$1"; return 1; }
	rm -rf "$D/images/$1.oci"
}
box() { js POST /sandboxes "{\"image\":\"$1\"}" | jq -r .id; }
in_box() {
	js POST "/sandboxes/$1/run" "$(jq -cn --arg c "$2" '{argv:["/bin/sh","-c",$c]}')" | jq -r '.stdout|@base64d'
}
is() { [ "$1" = "$2" ] || { echo "is \"$1\", not \"$2\"" >&2; return 1; }; }
same_layers() { diff "$D/before" <(ls "$D/state/priv/layers"); }

@test "names that lead out, links that lead out, whiteouts of what is not theirs" {
	for k in absolute dots inner_dots hard_out wh_dots wh_dot wh_nothing wh_out wh_below_link wh_below_file owner \
		home_link deep; do
		install $k failed
		api DELETE "/images?image=$k" >/dev/null
	done
	wait_for same_layers
	[ ! -e /etc/escaped ] && [ ! -e /escaped ] && [ ! -e "$D/escaped" ]
}

@test "a link in the way of a file gives way, and nothing is written through it" {
	make through_link
	js POST /images '{"image":"through_link"}' >/dev/null
	wait_for eval '! state_is through_link installing'
	[ ! -e /etc/escaped ]
	api DELETE '/images?image=through_link' >/dev/null
}

@test "what is no archive, no image, or not what its digest says" {
	for k in truncated garbage layer_type wrong_blob wrong_manifest not_json negative path_digest too_wide foreign \
		huge_env proc_link; do
		install $k failed
		api DELETE "/images?image=$k" >/dev/null
	done
	wait_for same_layers
}

@test "a bomb is stopped by its ratio" {
	install bomb failed
	image bomb | jq -r .error | grep -q 'expands beyond'
	api DELETE '/images?image=bomb' >/dev/null
	wait_for same_layers
}

@test "devices are left out, and attributes that overlayfs or the host would believe" {
	install devices installed
	id=$(box devices)
	is "$(in_box "$id" 'ls /etc/null /etc/disk /etc/pipe 2>/dev/null; cat /etc/keep /etc/xattrs')" lowestx
	top=$(ls -d "$D"/state/priv/layers/[0-9]*/etc/xattrs)
	is "$(getfattr -d -m - "$top" 2>/dev/null | grep -v '^#' | grep .)" 'user.colour="blue"'
	api DELETE "/sandboxes/$id" >/dev/null
}

@test "one that deletes everything still has what a sandbox needs" {
	install all_out installed
	[[ $(js POST /sandboxes '{"image":"all_out"}' | jq -r .state) == running ]]
	id=$(api GET /sandboxes | jq -r '.sandboxes[0].id')
	is "$(js POST "/sandboxes/$id/run" '{"argv":["/bin/sh"]}' | jq -r .error.code)" invalid_request
	api DELETE "/sandboxes/$id" >/dev/null
}

@test "a layer that hides all below it, a layer that is all there is, and as many as there may be" {
	install covered installed
	id=$(box covered)
	is "$(in_box "$id" 'ls /; test -e /etc/keep || echo none')" "$(printf '%s\n' bin dev etc proc run sandbox sys tmp none)"
	api DELETE "/sandboxes/$id" >/dev/null
	install scratch installed
	id=$(box scratch)
	is "$(js POST "/sandboxes/$id/run" '{"argv":["/busybox","pwd"]}' | jq -r '.stdout|@base64d')" /sandbox/home
	api DELETE "/sandboxes/$id" >/dev/null
	install wide installed
	id=$(box wide)
	is "$(in_box "$id" 'cat /n/last; ls /n | wc -l' | tr -d '\n')" 125127
	api DELETE "/sandboxes/$id" >/dev/null
}

@test "every compression that layers come in" {
	for k in good plain zstd; do
		install $k installed
		id=$(box $k)
		is "$(in_box "$id" 'cat /etc/change')" upper
		api DELETE "/sandboxes/$id" >/dev/null
	done
}

@test "a hundred thousand entries; kill -9 in the middle of them leaves nothing, and a second try works" {
	make crowd
	before=$(ls "$D/state/priv/layers" | grep -c '^[0-9]*$')
	js POST /images '{"image":"crowd"}' >/dev/null
	wait_for eval 'ls -A "$D/state/priv/layers" | grep -q "[.]tmp$"'
	wait_for eval '[ -e "$D"/state/priv/layers/.*.tmp/crowd/3 ]'
	kill -9 "$(cat "$D/server")"
	wait_for gone "$(cat "$D/server")"
	server_start
	is "$(image crowd)" ""
	wait_for eval '! ls -A "$D/state/priv/layers" | grep -q "[.]tmp$\|gone"'
	is "$(ls "$D/state/priv/layers" | grep -c '^[0-9]*$')" "$before"
	install crowd installed
	id=$(box crowd)
	is "$(in_box "$id" 'find /crowd -type f | wc -l')" 100000
	api DELETE "/sandboxes/$id" >/dev/null
	[ "$(api DELETE '/images?image=crowd' | jq .freed_bytes)" -gt 0 ]
}

@test "after all of this the server and its first image are as before" {
	id=$(box base)
	is "$(in_box "$id" 'id -un')" sandbox
	api DELETE "/sandboxes/$id" >/dev/null
	is "$(find "$D/state/pull" -mindepth 1 ! -name '.cell-[0-3]' 2>/dev/null)" ""
}
