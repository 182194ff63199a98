#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The host's disk is full where the server keeps its records, while disks still have room of their own.

load records

setup() { records_setup; }
teardown() {
	[ -z "${IMG:-}" ] || rm -f "$D/state/fill"
	records_teardown
	[ -n "${IMG:-}" ] || return 0
	await 100 eval '! mountpoint -q "$D/state" || umount "$D/state" 2>/dev/null'
	rm -rf --one-file-system "$D"
}

@test "a full host takes no new sandbox and says so; what is there goes on and can be removed" {
	IMG=$D/host.img
	truncate -s 1400M "$IMG"
	mkfs.ext4 -q -F "$IMG"
	mkdir -p "$D/state"
	mount -o loop "$IMG" "$D/state"
	chmod 700 "$D/state"
	start
	a=$(new '{"disk_mb":64}') b=$(new '{"disk_mb":64}')
	dd if=/dev/zero of="$D/state/fill" bs=1M 2>/dev/null || true
	dd if=/dev/zero bs=512 >>"$D/state/fill" 2>/dev/null || true
	await 50 eval '[ "$(code POST /v1/sandboxes "{}")" = "503 unavailable" ]'
	# within the second after which the disk is looked at again
	await 50 eval 'json /v1/sandboxes "{}" | jq -r .error.message | grep -q "disk is too full"'
	[ "$(code PATCH "/v1/sandboxes/$a" '{"labels":{"k":"v"}}')" = 200 ]
	[ "$(code DELETE "/v1/sandboxes/$b")" = 204 ]
	rm "$D/state/fill"
	await 50 eval '[ "$(code POST /v1/sandboxes "{}")" = 201 ]'
	[ "$(guest "$a" 'echo alive')" = alive ]
}
