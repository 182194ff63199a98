#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What a program inside has changed, and its write has returned, is what two mounts show: content, size,
# times, names and absence; in tight loops, over lost connections and a server that is started anew.
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
coherent() { python3 "$BATS_TEST_DIRNAME/coherence.py" "$@"; }

@test "changes inside, in a tight loop: an open shows them, and the kernel is told of the rest" {
	coherent inside_changes 4 watch
}
@test "times move with changes, and open files follow" { coherent times; }
@test "two mounts read what the other has written" { coherent between; }
@test "a name that is replaced all the time is always there" { coherent replaced; }
@test "lines appended from two mounts and inside at once are all there" { coherent appended; }
@test "a queue of changes that overflows puts all in doubt" { coherent overflow; }
@test "a command is one, however it is written" {
	line='echo ran >> /sandbox/home/ran'
	rm -f "$H/ran"
	echo "$line" >"$B/run"
	echo "$line" >>"$B/run"
	echo "$line" | dd of="$B/run" bs=64k status=none
	echo "$line" | tee "$B/run" >/dev/null
	exec 8>"$B/run"
	(echo "$line") >&8
	exec 8>&-
	LINE=$line python3 - "$B/run" <<'PY'
import os, sys
line = os.environ["LINE"].encode() + b"\n"
for how in range(4):
    fd = os.open(sys.argv[1], os.O_WRONLY | (os.O_TRUNC if how != 2 else 0))
    if how == 1:
        os.ftruncate(fd, 0)
    if how == 2:  # in pieces of one call, and with a copy that is closed before
        os.close(os.dup(fd))
        assert os.writev(fd, [line[:7], line[7:]]) == len(line)
    else:
        assert os.write(fd, line) == len(line)
    if how == 3:
        os.fsync(fd)
    os.close(fd)
PY
	same "$(guest 'wc -l < /sandbox/home/ran' | tr -d ' ')" 9
	: >"$B/run"
	truncate -s 0 "$B/run"
	same "$(guest 'wc -l < /sandbox/home/ran' | tr -d ' ')" 9
}
@test "a connection that is lost puts all in doubt" {
	for i in 1 2 3 4 5; do
		echo "a$i" >"$H/c"; ls -l "$H" >/dev/null; stat "$H/c" "$H/none$i" >/dev/null 2>&1 || true
		echo drop-caches >"$M/ctl"
		guest "cd /sandbox/home; echo b$i > c; echo new > none$i; rm -f none$((i - 1))" >/dev/null
		same "$(cat "$H/c")" "b$i"
		fs_wait test -e "$H/none$i"
		fs_wait test ! -e "$H/none$((i - 1))"
	done
}
@test "nothing of before is shown after the server was started anew" {
	echo before >"$H/s"; mkdir -p "$H/sd"; touch "$H/sd/old"; ls -l "$H/sd" >/dev/null; stat "$H/s" >/dev/null
	kill "$(cat "$T/pid")"
	fs_wait fs_gone "$(cat "$T/pid")"
	fs_server
	guest "cd /sandbox/home; echo after > s; mv sd/old sd/new" >/dev/null
	fs_wait cat "$B/state"
	fs_wait sh -c "[ \"\$(cat '$H/s')\" = after ]"
	same "$(cat "$H/s")" after
	fs_wait test -e "$H/sd/new"
	fs_wait test ! -e "$H/sd/old"
}
@test "cache=strict: names and attributes are exact at once, too" {
	fs_second_end
	fs_second -o cache=strict
	guest 'rm -rf /sandbox/home/t' >/dev/null
	H=$H2 coherent inside_changes 3 strict
}
@test "where there are no more watches nothing is believed for long" {
	fs_second_end
	guest 'mkdir -p /sandbox/home/w; cd /sandbox/home/w; for i in $(seq 25); do mkdir $i; echo a > $i/f; done' >/dev/null
	# The limit of this sandbox's own user namespace; other sandboxes may have a hand, too.
	: >"$H/mine"
	for p in $(pgrep -x hand); do
		[ ! -e "/proc/$p/root/sandbox/home/mine" ] || break
	done
	nsenter -t "$p" -U sh -c 'echo 10 > /proc/sys/user/max_inotify_watches'
	fs_second
	look() { for i in $(seq 25); do ls "$H2/w/$i"; stat "$H2/w/$i/f" "$H2/w/$i/none"; done >/dev/null 2>&1 || true; }
	look; look; look
	[ "$(jq .files.watches "$M2/stats")" -le 10 ]
	same "$(jq -r '.files | .watch, .locks' "$M2/stats")" "$(printf 'inotify\nshared')"
	[ "$(jq .files.unwatched "$M2/stats")" -gt 0 ]
	sbx_said=$("$O/bin/sbx" --json doctor) || true
	jq -e --arg m "$M2: inotify" '.checks[] | select(.check == "mounts") | .detail | contains($m)' <<<"$sbx_said" ||
		[ "$(grep -c fuse.sbxfs /proc/self/mounts)" -gt 2 ] # there is no room for the mounts of others
	guest 'cd /sandbox/home/w; for i in $(seq 25); do echo bbb > $i/f; echo > $i/none; done' >/dev/null
	for i in $(seq 25); do same "$(cat "$H2/w/$i/f")" bbb; done
	for i in $(seq 25); do
		fs_wait test -e "$H2/w/$i/none"
		fs_wait sh -c "[ \$(stat -c %s '$H2/w/$i/f') = 4 ]"
	done
}
