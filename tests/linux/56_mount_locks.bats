#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# flock and fcntl between two mounts and processes inside; what waiting costs and what ends a lock.
load ../fs/helper

setup_file() {
	[ "$(id -u)" = 0 ] || return 0
	export SBX_BACKEND=linux TMPDIR=/var/tmp
	fs_start
	fs_setup
	fs_second
	hand_start
}
teardown_file() { fs_second_end; fs_stop; }
setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	fs_setup
	M2=$T/m2 B2=$T/m2/box H2=$T/m2/box/fs/sandbox/home
	export B H H2
}
lock() { python3 "$BATS_TEST_DIRNAME/locks.py" "$@"; }

@test "each excludes each: two mounts and a process inside, by fcntl and by flock" { lock exclude; }
@test "ranges, readers, and who is in the way" { lock ranges; }
@test "who waits gets it, in the other mount and inside" { lock wait; }
@test "a number counted up from three sides at once loses nothing" { lock count; }
@test "a child shares flock, not fcntl; closing lets go as the kernel does it" { lock close; }
@test "a hundred wait and are killed, and the mount goes on" { lock crowd; }
@test "who has the lock sees what was written under it before" { lock fresh; }
@test "sqlite: two mounts write one database at once" { lock sqlite; }
@test "a lost connection keeps the lock, and who waits goes on waiting" {
	lock lost "$M"
	lock lost "$M2"
}
@test "locks=local: among processes of this mount alone; a wrong word is refused" {
	fs_second_end
	fs_second -o locks=local
	lock local
	fs_second_end
	refused "not known" "$O/bin/sbxfs" -o locks=wrong "$M2"
	SBX_FS_PROTO=http fs_second
	lock local
	fs_second_end
	fs_second
}
@test "a mount that is killed loses its locks; one that asks nothing keeps them over a new server" {
	touch "$H/dead" "$H/keeps"
	exec 7<>"$H/keeps"
	flock -n 7
	kill "$(cat "$T/pid")"
	fs_wait fs_gone "$(cat "$T/pid")"
	fs_server
	fs_wait cat "$B2/state"
	fs_wait touch "$H2/dead"
	mkfifo "$T/held"
	python3 -c 'import fcntl,sys,time
f = open(sys.argv[1], "r+"); fcntl.flock(f, fcntl.LOCK_EX); print("held", flush=True); time.sleep(60)' \
		"$H2/dead" >"$T/held" 3>&- &
	holder=$!
	read -r _ <"$T/held"
	refused "" flock -n "$H/dead" true
	kill -9 "$(cat "$T/fspid2")"
	lock died dead keeps
	exec 7>&-
	kill -9 $holder
	umount -l "$M2"
	fs_second
}
