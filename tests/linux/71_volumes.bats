#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Volumes on real file systems: content, size, who may mount, what survives.

load records

setup() { records_setup; }
teardown() { records_teardown; }

mount_body() { echo "{\"volumes\":[{\"name\":\"$1\",\"path\":\"$2\"${3:+,\"read_only\":true}}]}"; }

@test "a volume outlives its sandbox" {
	start
	[ "$(code POST /v1/volumes '{"name":"v","size_mb":64}')" = 201 ]
	[ "$(code POST /v1/volumes '{"name":"v","size_mb":64}')" = "409 conflict" ]
	a=$(new "$(mount_body v /data)")
	[ "$(get "/v1/sandboxes/$a" | jq -c .volumes)" = '[{"name":"v","path":"/data"}]' ]
	[ "$(echo content | put "$a" /data/dir/f)" = 204 ]
	[ "$(code POST /v1/sandboxes "$(mount_body v /data)")" = "409 conflict" ]
	[ "$(code DELETE /v1/volumes/v)" = "409 conflict" ]
	[ "$(get /v1/volumes | jq -r '.volumes[0].attached_to')" = "$a" ]
	[ "$(code POST "/v1/sandboxes/$a/snapshots")" = "409 conflict" ]
	[ "$(code PUT "/v1/sandboxes/$a/snapshot-schedule" '{"every_secs":300}')" = "409 conflict" ]
	[ "$(code DELETE "/v1/sandboxes/$a")" = 204 ]
	[ "$(get /v1/volumes | jq -r '.volumes[0].attached_to // "nobody"')" = nobody ]
	b=$(new "$(mount_body v /srv/data ro)")
	[ "$(cat_ "$b" /srv/data/dir/f)" = content ]
	[ "$(echo no | put "$b" /srv/data/dir/f)" = 409 ]
	echo no | api -X PUT -H 'Content-Type: application/octet-stream' --data-binary @- "/v1/sandboxes/$b/files?path=/srv/data/g" | grep -q read-only
	[ "$(code DELETE "/v1/sandboxes/$b/files?path=/srv/data/dir/f")" = "409 conflict" ]
	[ "$(guest "$b" 'echo no > /srv/data/g' | grep -ci 'read-only')" = 1 ]
	[ "$(code DELETE "/v1/sandboxes/$b")" = 204 ]
	[ "$(code DELETE /v1/volumes/v)" = 204 ]
	[ "$(code DELETE /v1/volumes/v)" = "404 not_found" ]
	agree
	# the name is free, and what was there is not there any more
	[ "$(code POST /v1/volumes '{"name":"v","size_mb":64}')" = 201 ]
	a=$(new "$(mount_body v /data)")
	[ "$(guest "$a" 'ls -A /data | grep -v lost+found')" = "" ]
}

@test "one writer or many readers" {
	start
	[ "$(code POST /v1/volumes '{"name":"v","size_mb":64}')" = 201 ]
	w=$(new "$(mount_body v /data)")
	guest "$w" 'echo text > /data/f; sync'
	[ "$(code POST /v1/sandboxes "$(mount_body v /data ro)")" = "409 conflict" ]
	[ "$(code DELETE "/v1/sandboxes/$w")" = 204 ]
	r=$(new "$(mount_body v /data ro)") q=$(new "$(mount_body v /other ro)")
	[ "$(guest "$r" 'cat /data/f')" = text ] && [ "$(guest "$q" 'cat /other/f')" = text ]
	[ "$(code POST /v1/sandboxes "$(mount_body v /data)")" = "409 conflict" ]
	[ "$(code DELETE "/v1/sandboxes/$r")" = 204 ]
	[ "$(code DELETE /v1/volumes/v)" = "409 conflict" ]
	[ "$(code DELETE "/v1/sandboxes/$q")" = 204 ]
	[ "$(code DELETE /v1/volumes/v)" = 204 ]
	agree
}

@test "a volume holds what it promises and no more, and belongs to the sandbox user" {
	start
	[ "$(code POST /v1/volumes '{"name":"v","size_mb":64}')" = 201 ]
	[ "$(code POST /v1/volumes '{"name":"w","size_mb":32}')" = 201 ]
	a=$(new '{"disk_mb":40,"volumes":[{"name":"v","path":"/data/deep"},{"name":"w","path":"/w"}]}')
	[ "$(guest "$a" 'stat -c "%u %g" /data/deep /w | tr "\n" " "; id -u')" = "1001 1001 1001 1001 1001" ]
	[ "$(guest "$a" 'dd if=/dev/zero of=/data/deep/f bs=1M count=50 2>/dev/null && echo ok')" = ok ]
	guest "$a" 'dd if=/dev/zero of=/data/deep/g bs=1M count=60 conv=fsync 2>&1' | grep -qi 'no space\|quota'
	[ "$(guest "$a" 'dd if=/dev/zero of=/w/f bs=1M count=20 2>/dev/null && rm /w/f && echo ok')" = ok ]
	# one that lies over the home folder holds one
	[ "$(code POST /v1/volumes '{"name":"h","size_mb":16}')" = 201 ]
	for i in 1 2; do
		h=$(new "$(mount_body h /sandbox)")
		[ "$(guest "$h" 'pwd; touch x && ls')" = "$(printf '/sandbox/home\nx')" ]
		[ "$(code DELETE "/v1/sandboxes/$h")" = 204 ]
	done
	# set-id bits and devices have no effect there
	guest "$a" 'grep " /w " /proc/mounts' | grep nosuid | grep -q nodev
	# what it holds does not count against the sandbox's own disk
	[ "$(guest "$a" 'dd if=/dev/urandom of=own bs=1M count=20 conv=fsync 2>/dev/null && echo ok')" = ok ]
	[ "$(code POST /v1/volumes '{"name":"big","size_mb":102401}')" = "400 invalid_request" ]
}

@test "two creates for one volume: one gets it" {
	start
	[ "$(code POST /v1/volumes '{"name":"v","size_mb":32}')" = 201 ]
	for round in 1 2 3; do
		for i in 1 2 3 4; do (code POST /v1/sandboxes "$(mount_body v /data)" >"$D/c$i") 3>&- & done
		wait $(jobs -p | grep -v "^$SRV$") || true
		[ "$(cat "$D"/c? | sort | uniq -c | tr -s ' \n' ' ')" = " 1 201 3 409 conflict " ]
		h=$(get /v1/volumes | jq -r '.volumes[0].attached_to')
		[ "$(code DELETE "/v1/sandboxes/$h")" = 204 ]
	done
}

@test "a create that fails gives its volume back" {
	start
	[ "$(code POST /v1/volumes '{"name":"v","size_mb":32}')" = 201 ]
	a=$(new "$(mount_body v /data)")
	[ "$(code POST /v1/sandboxes '{"image":"127.0.0.1:1/no-such-image","volumes":[{"name":"v","path":"/data"}]}' | cut -c1)" = 4 ]
	[ "$(code DELETE "/v1/sandboxes/$a")" = 204 ]
	[ "$(code POST /v1/sandboxes '{"image":"127.0.0.1:1/no-such-image","volumes":[{"name":"v","path":"/data"}]}' | cut -c1)" != 2 ]
	[ "$(get /v1/volumes | jq -r '.volumes[0].attached_to // "nobody"')" = nobody ]
	a=$(new "$(mount_body v /data)")
}

@test "a volume is free once its holder is gone, and its content survives kill -9 of everything" {
	start
	[ "$(code POST /v1/volumes '{"name":"v","size_mb":64}')" = 201 ]
	a=$(new "$(mount_body v /data)")
	guest "$a" 'echo kept > /data/f; sync /data/f'
	b=$(broker)
	crash
	start
	[ "$(get /v1/volumes | jq -r '.volumes[0].attached_to')" = "$a" ]
	[ "$(guest "$a" 'cat /data/f')" = kept ]
	[ "$(code POST /v1/sandboxes "$(mount_body v /data ro)")" = "409 conflict" ]
	[ "$(code DELETE "/v1/sandboxes/$a")" = 204 ]
	r=$(new "$(mount_body v /data ro)")
	[ "$(guest "$r" 'cat /data/f; echo no > /data/g; echo $?' 2>/dev/null | head -n1)" = kept ]
	for i in 1 2; do new "$(mount_body v /d ro)" >/dev/null; done
	# the holder's shim is killed instead: as soon as the sandbox has ended the volume is free
	for id in $(get /v1/sandboxes | jq -r '.sandboxes[] | select(.state == "running") | .id'); do code DELETE "/v1/sandboxes/$id"; done
	a=$(new "$(mount_body v /data)")
	kill -9 "$(od -An -t d4 -j 16 -N 4 "$D/state/priv/boxes/$a" | tr -d ' ')"
	free() { [ "$(get /v1/volumes | jq -r '.volumes[0].attached_to // "nobody"')" = nobody ]; }
	await 100 free
	w=$(new "$(mount_body v /data)")
	[ "$(guest "$w" 'cat /data/f')" = kept ]
	# a stop that ends all keeps volumes
	stop
	start --no-keep-sandboxes
	free
	w=$(new "$(mount_body v /data)")
	[ "$(guest "$w" 'cat /data/f')" = kept ]
	agree
}

@test "a state directory that has lost its records is refused, and nothing in it is" {
	start
	[ "$(code POST /v1/volumes '{"name":"v","size_mb":16}')" = 201 ]
	a=$(new "$(mount_body v /data)")
	[ "$(guest "$a" 'echo kept > /data/f; sync; echo ok')" = ok ]
	[ "$(code DELETE "/v1/sandboxes/$a")" = 204 ]
	stop
	mkdir "$D/away"
	mv "$D"/state/records.db* "$D/away/"
	if start 2>"$D/said"; then false; fi
	SRV=
	grep -q 'has lost records.db' "$D/said"
	[ ! -e "$D/state/records.db" ]
	mv "$D"/away/* "$D/state/"
	uid=$(stat -c %u "$D/state")
	for name in records.db run; do # as root puts a backup back
		chown 0 "$D/state/$name"
		if start 2>"$D/said"; then false; fi
		SRV=
		grep -q "$D/state/$name\" belongs to uid 0, the server runs as uid $uid: chown" "$D/said"
		chown "$uid" "$D/state/$name"
	done
	start
	a=$(new "$(mount_body v /data)")
	[ "$(guest "$a" 'cat /data/f')" = kept ]
}
