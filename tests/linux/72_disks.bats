#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Where disks lie: a state directory on a small ext4 that gets full, on a btrfs, with a pool that is broken;
# and what the API says of a disk whose file system does not know its size.

load records

setup() { records_setup; }
teardown() {
	[ -z "${COPY:-}" ] || uncopy
	records_teardown
	[ -n "${IMG:-}" ] || return 0
	# the broker clears away for a moment after the server's end
	await 100 eval '! mountpoint -q "$D/state" || umount "$D/state" 2>/dev/null'
	rm -rf --one-file-system "$D"
}

# host_on MIB MKFS...: the state directory is a file system of that size
host_on() {
	IMG=$D/host.img
	truncate -s "$1M" "$IMG"
	shift
	"$@" "$IMG" >/dev/null
	mkdir -p "$D/state"
	mount -o loop "$IMG" "$D/state"
	chmod 700 "$D/state"
}
# kernel_has VERSION: this kernel or a later one
kernel_has() { [ "$(printf '%s\n' "$1" "$(uname -r)" | sort -V | head -n1)" = "$1" ]; }
needs_quotas() { kernel_has 6.7 || skip "simple quotas of btrfs came with Linux 6.7"; }
provider() { grep -o 'disk areas [a-z0-9]*' "$D/log" | tail -n1; }
pool_mb() { echo $(($(stat -c %s "$D/state/priv/pool.btrfs") >> 20)); }
host_free_mb() { df -m --output=avail "$D/state" | tail -n1 | tr -d ' '; }

@test "the pool grows while the host has room, and a full one refuses writes and nothing else" {
	needs_quotas
	host_on 1400 mkfs.ext4 -q -F
	start
	[ "$(provider)" = "disk areas btrfs" ]
	a=$(new '{"disk_mb":4000}') b=$(new '{"disk_mb":300}')
	before=$(pool_mb)
	[ "$before" -lt 600 ]
	# all of the host's space, 300 MB a second; the reason is the pool's, not the sandbox's own limit
	guest "$a" 'i=0; while busybox fallocate -l 30M big$i; do i=$((i+1)); sleep 0.1; done 2>&1' | grep -q "No space left on device"
	[ "$(pool_mb)" -gt "$((before + 400))" ]
	[ "$(host_free_mb)" -ge 30 ]
	# the other one lives on, can read and run, and the server keeps records
	[ "$(guest "$b" 'cat /etc/hostname >/dev/null; echo alive')" = alive ]
	[ "$(code PATCH "/v1/sandboxes/$b" '{"labels":{"k":"v"}}')" = 200 ]
	[ "$(code DELETE "/v1/sandboxes/$a")" = 204 ]
	await 100 eval '[ "$(guest "$b" "dd if=/dev/zero of=big bs=1M count=100 2>/dev/null && echo room; rm -f big")" = room ]'
	# no device error was met on the way
	! dmesg 2>/dev/null | tail -n 50 | grep -E "BTRFS (error|critical).*$(losetup -nO NAME -j "$D/state/priv/pool.btrfs" | sed 's#/dev/##' | tr -d ' ')" || false
}

@test "a state directory on btrfs needs no pool" {
	needs_quotas
	host_on 2000 mkfs.btrfs -q -f
	start
	[ "$(provider)" = "disk areas btrfs" ]
	[ ! -e "$D/state/priv/pool.btrfs" ]
	a=$(new '{"disk_mb":100}')
	[ "$(guest "$a" 'dd if=/dev/zero of=big bs=1M count=200 2>/dev/null; echo $?; rm big; echo kept > f')" = 1 ]
	s=$(snap "$a")
	f=$(fork "$s")
	[ "$(cat_ "$f" /sandbox/home/f)" = kept ]
	[ "$(code DELETE "/v1/sandboxes/$a")" = 204 ]
	[ "$(code DELETE "/v1/sandboxes/$f")" = 204 ]
	[ "$(code DELETE "/v1/snapshots/$s")" = 204 ]
	agree
	await 100 eval '[ -z "$(ls "$D/state/priv/sealed")" ] && ! ls "$D/state/priv/areas" | grep -q ^sbx_'
}

# marked PATH: whether the kernel may be asked to compress what is there, or will be made there
marked() { python3 -c 'import os, sys; os.setxattr(sys.argv[1], "btrfs.compression", b"zlib")' "$1" 2>/dev/null; }

@test "on a btrfs of the host's own nobody inside has the kernel compress, in a fork neither" {
	local id p long=7$RANDOM
	needs_quotas
	host_on 2000 mkfs.btrfs -q -f
	touch "$D/state/f"
	marked "$D/state/f"
	rm "$D/state/f"
	start
	json /v1/volumes '{"name":"v","size_mb":100}' | jq -e .name
	b=$(new '{"disk_mb":100,"volumes":[{"name":"v","path":"/v"}]}')
	guest "$b" 'echo x >/v/f'
	a=$(new '{"disk_mb":100}')
	guest "$a" 'mkdir d; echo x >f; echo x >d/f'
	s=$(snap "$a")
	f=$(fork "$s")
	guest "$f" 'mkdir e; echo y >e/f; echo y >>f'
	for id in "$a" "$b" "$f"; do
		long=$((long + 1))
		json "/v1/sandboxes/$id/processes" "{\"argv\":[\"sleep\",\"$long\"]}" | grep -q '"pid"'
		await 10 pgrep -xf "sleep $long" >/dev/null
		p=/proc/$(pgrep -xf "sleep $long")/root
		for n in sandbox/home sandbox/home/f sandbox/home/d sandbox/home/d/f v v/f sandbox/home/e sandbox/home/e/f; do
			[ ! -e "$p/$n" ] || ! marked "$p/$n" || { echo "$id: $n is marked"; return 1; }
		done
	done
	[ -e "$p/sandbox/home/e/f" ]
}

@test "a pool that cannot be used ends the start with its name; without it by name the server runs" {
	start --disk-provider loop
	stop
	echo junk >"$D/state/priv/pool.btrfs"
	! start 2>/dev/null || false
	grep -q 'pool.btrfs cannot be used' "$D/log"
	await 300 no_groups
	[ "$(cat "$D/state/priv/pool.btrfs")" = junk ]
	start --disk-provider loop
	a=$(new)
	[ "$(guest "$a" 'echo runs')" = runs ]
}

@test "a superblock that a power loss left half written is made whole from its copy" {
	needs_quotas
	host_on 1200 mkfs.ext4 -q -F
	start
	[ -e "$D/state/priv/pool.btrfs" ]
	a=$(new '{"disk_mb":100}')
	[ "$(guest "$a" 'echo kept > f')" = '' ]
	s=$(snap "$a")
	[ "$(code DELETE "/v1/sandboxes/$a")" = 204 ]
	stop
	await 300 eval '! losetup -nO NAME -j "$D/state/priv/pool.btrfs" | grep -q .'
	dd if=/dev/zero of="$D/state/priv/pool.btrfs" bs=512 seek=129 count=2 conv=notrunc status=none
	start
	grep -q 'superblock of priv/pool.btrfs was half written' "$D/log"
	[ "$(cat_ "$(fork "$s")" /sandbox/home/f)" = kept ]
}

# super_u64 FILE OFFSET: a number of the first superblock
super_u64() { od -An -tu8 -j $((65536 + $2)) -N 8 "$1" | tr -d ' '; }
# What lies on the host's disk at this moment, as a power loss would leave it, with what is in no commit of the pool yet.
cut() {
	local r=0
	fsfreeze -f "$D/state"
	cp --sparse=always "$D/state/priv/pool.btrfs" "$D/cut" || r=1
	fsfreeze -u "$D/state"
	[ $r = 0 ] && [ "$(super_u64 "$D/cut" 96)" != 0 ]
}

@test "what a volume's file had synced before the commit that was cut is there after it" {
	needs_quotas
	host_on 1200 mkfs.ext4 -q -F
	start
	json /v1/volumes '{"name":"v","size_mb":64}' >/dev/null
	a=$(new '{"volumes":[{"name":"v","path":"/data"}]}')
	# where a commit of the pool comes between, once more
	n=0
	until [ "$(guest "$a" "echo kept >/data/f$n && sync /data/f$n && echo synced")" = synced ] && cut; do
		n=$((n + 1))
		[ $n -lt 10 ]
	done
	[ "$(code DELETE "/v1/sandboxes/$a")" = 204 ]
	stop
	await 300 eval '! losetup -nO NAME -j "$D/state/priv/pool.btrfs" | grep -q .'
	cmp -s "$D/cut" "$D/state/priv/pool.btrfs" && return 1
	# of the next commit's first superblock, which was under way, all but the first sector is there
	dd if="$D/state/priv/pool.btrfs" of="$D/cut" bs=512 skip=129 seek=129 count=7 conv=notrunc status=none
	cp --sparse=always "$D/cut" "$D/state/priv/pool.btrfs"
	start
	grep -q 'superblock of priv/pool.btrfs was half written' "$D/log"
	a=$(new '{"volumes":[{"name":"v","path":"/data","read_only":true}]}')
	[ "$(guest "$a" "cat /data/f$n")" = kept ]
}

@test "disks in memory have neither snapshots nor volumes, whatever else the host can do" {
	kernel_has 6.3 || skip "tmpfs shifts ids from Linux 6.3 on"
	start --disk-provider tmpfs
	get /v1/capabilities >"$D/tmpfs"
	stop
	rm -rf --one-file-system "$D/state"
	start --disk-provider loop
	get /v1/capabilities >"$D/loop"
	can() { jq -c ".capabilities | [$2]" "$D/$1"; }
	[ "$(can tmpfs .disk_snapshot,.volumes)" = "[false,false]" ]
	[ "$(can loop .disk_snapshot,.volumes)" = "[true,true]" ]
	rest=.suspend,.metrics,.egress_allowlist,.network_policy_update
	[ "$(can tmpfs $rest)" = "$(can loop $rest)" ]
}

@test "what is free on a disk is the disk's own, whichever way it is made" {
	for p in $(kernel_has 6.7 && echo btrfs) loop; do
		start --disk-provider $p
		a=$(new '{"disk_mb":200}')
		guest "$a" 'dd if=/dev/urandom of=f bs=1M count=60 2>/dev/null; sync'
		s=$(get "/v1/sandboxes/$a/fs/statfs?path=/sandbox/home")
		jq -e '.blocks * .bsize / 1048576 | . > 150 and . <= 200' <<<"$s"
		jq -e '(.blocks - .bfree) * .bsize / 1048576 | . >= 60 and . < 80' <<<"$s"
		# a folder in memory is as large as it is
		jq -e '.blocks * .bsize / 1048576 | . > 200' <<<"$(get "/v1/sandboxes/$a/fs/statfs?path=/tmp")"
		[ "$(code DELETE "/v1/sandboxes/$a")" = 204 ]
		stop
		rm -rf --one-file-system "$D/state"
	done
}

# Ends what runs on the copy, and the copy.
uncopy() {
	local id
	[ -n "$SRV" ] || start --state-dir "$D/copy"
	for id in $(get /v1/sandboxes | jq -r '.sandboxes[] | select(.state != "terminated") | .id'); do
		code DELETE "/v1/sandboxes/$id" >/dev/null
	done
	stop
	await 100 eval 'umount "$D/copy" 2>/dev/null'
	COPY=
}

@test "a copy of a state directory works beside the original, after a second start, too" {
	needs_quotas
	host_on 600 mkfs.ext4 -q -F
	start
	a=$(new '{"disk_mb":64}') # goes on, so that the original's disk stays mounted
	guest "$a" 'echo kept >f' >/dev/null
	s=$(snap "$a")
	stop
	mkdir -m 700 "$D/copy"
	truncate -s 600M "$D/copy.img"
	mkfs.ext4 -q -F "$D/copy.img"
	mount -o loop "$D/copy.img" "$D/copy"
	COPY=1
	chmod 700 "$D/copy"
	cp -a "$D/state/." "$D/copy/"
	start --state-dir "$D/copy"
	f=$(fork "$s") # goes on as well
	[ "$(guest "$f" 'cat f')" = kept ]
	stop
	start --state-dir "$D/copy"
	[ "$(provider)" = "disk areas btrfs" ]
	[ "$(guest "$f" 'cat f')" = kept ]
	uncopy
	start
	[ "$(guest "$a" 'cat f')" = kept ]
}
