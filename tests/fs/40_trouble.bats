#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Trouble: a server that is gone, frozen or another one; a mount that dies; unmounting.

load helper
setup_file() { fs_start; }
teardown_file() { fs_stop; }
setup() { fs_setup; }

server_kill() { kill -9 "$(cat "$T/pid")"; fs_wait fs_gone "$(cat "$T/pid")"; }
ms() { date +%s%3N; }

@test "without the server errors come at once, and the top can be read" {
	ls "$M" >/dev/null
	server_kill
	fs_wait refused "Host is down" cat "$B/state" # what was just heard is believed until the watch is seen to end
	before=$(ms)
	for i in 1 2 3 4 5; do refused "Host is down" cat "$B/state"; done
	[ $(($(ms) - before)) -lt 1500 ]
	[[ $(ls "$M") == *stats* ]]
	same "$(jq -r .server "$M/stats")" down
	[[ $(cat "$M/error") == *"does not answer"* ]]
	fs_server
	fs_wait grep -q running "$B/state"
	same "$(jq -r .server "$M/stats")" up
}

@test "processes, streams and open files go on when the server is back" {
	mkdir "$B/processes/long"
	P=$B/processes/long
	echo 'echo first; while [ ! -e go ]; do sleep 0.05; done; echo second; exit 6' > "$P/cmd"
	timeout 60 cat "$P/stdout.follow" > "$T/host/out" &
	o=$!
	timeout 60 cat "$P/wait" > "$T/host/code" &
	c=$!
	fs_wait grep -q first "$T/host/out"
	echo data > "$H/keep"
	exec 5< "$H/keep"
	server_kill
	fs_server
	fs_wait cat "$B/state"
	same "$(cat <&5)" data
	exec 5<&-
	same "$(cat "$P/state")" running
	touch "$H/go"
	wait $o $c
	same "$(cat "$T/host/out")" "$(printf 'first\nsecond')"
	same "$(cat "$T/host/code")" 6
	rm "$H/go"
	rmdir "$P"
}

@test "a command line that is written goes on when the server is back, and its end is the write's" {
	rm -f "$H/go" "$H/ran"
	echo 'echo once >> ran; n=0; while [ ! -e go ] && [ $((n += 1)) -lt 1200 ]; do sleep 0.05; done' >"$B/run" &
	c=$!
	fs_wait test -s "$H/ran"
	server_kill
	fs_server
	fs_wait cat "$B/state"
	kill -0 $c
	touch "$H/go"
	wait $c
	same "$(cat "$H/ran")" once
	rm "$H/go" "$H/ran"
}

@test "a frozen server leaves callers killable and ends in an error" {
	kill -STOP "$(cat "$T/pid")"
	sleep 1.2 # what was heard before is not believed for so long
	cat "$B/info" >/dev/null 2>&1 &
	c=$!
	sleep 1.2
	kill -9 $c
	wait $c || [ $? = 137 ]
	before=$(ms)
	refused "" cat "$B/state"
	[ $(($(ms) - before)) -lt 12000 ]
	before=$(ms)
	ls "$M" >/dev/null
	[ $(($(ms) - before)) -lt 3000 ]
	kill -CONT "$(cat "$T/pid")"
	fs_wait grep -q running "$B/state"
}

@test "the same name, a moment later, is another sandbox" {
	js POST /sandboxes '{"name":"again"}' >/dev/null
	mkdir "$M/again/processes/p"
	echo 'while :; do echo tick; sleep 0.1; done' > "$M/again/processes/p/cmd"
	echo old > "$M/again/home/f"
	exec 6< "$M/again/home/f"
	cd "$M/again"
	timeout 20 cat "$M/again/processes/p/stdout.follow" >/dev/null &
	st=$!
	api DELETE /sandboxes/again
	js POST /sandboxes '{"name":"again"}' >/dev/null
	same "$(ls "$M/again/processes")" ""
	[ ! -e "$M/again/home/f" ]
	refused "" cat <&6
	exec 6<&-
	[ ! -e home/f ]
	refused "" cat state
	wait $st
	cd /
	rmdir "$M/again"
}

@test "another server behind the same address: nothing of the old one is shown" {
	[ "${SBX_BACKEND:-fake}" = fake ] || skip "only the fake backend's state can be moved"
	mkdir -p "$T/host"
	kill "$(cat "$T/pid")"
	fs_wait fs_gone "$(cat "$T/pid")"
	mv "$T/state" "$T/state.old"
	mkdir -m 700 "$T/state"
	fs_server
	fs_wait test ! -e "$B"
	mkdir "$M/fresh"
	same "$(ls "$M/fresh/home/")" ""
	rmdir "$M/fresh"
	kill "$(cat "$T/pid")"
	fs_wait fs_gone "$(cat "$T/pid")"
	rm -rf "$T/state"
	mv "$T/state.old" "$T/state"
	fs_server
	fs_wait cat "$B/state"
}

@test "SIGTERM ends the mount, sends what was collected, and streams end" {
	mkdir "$B/processes/s"
	echo 'sleep 60' > "$B/processes/s/cmd"
	timeout 20 cat "$B/processes/s/wait" > "$T/host/eof" &
	c=$!
	sleep 0.3
	python3 -c '
import os, sys, time
f = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for i in range(100): os.write(f, b"x" * 100)
os.kill(int(sys.argv[2]), 15); time.sleep(1)' "$H/collected" "$(cat "$T/fspid")"
	wait $c || true
	fs_wait fs_gone "$(cat "$T/fspid")"
	refused "" mountpoint -q "$M"
	fs_mount
	same "$(stat -c %s "$H/collected")" 10000
	echo KILL > "$B/processes/$(ls "$B/processes" | sort -n | tail -n 1)/ctl"
}

@test "fusermount3 -u ends the program" {
	command -v fusermount3 >/dev/null || skip "there is no fusermount3"
	cd /
	fusermount3 -u "$M"
	fs_wait fs_gone "$(cat "$T/fspid")"
	fs_mount
	ls "$B" >/dev/null
}

@test "a mount whose program was killed is taken away by the next" {
	cd /
	kill -9 "$(cat "$T/fspid")"
	fs_wait fs_gone "$(cat "$T/fspid")"
	refused "not connected" ls "$M"
	fs_mount
	same "$(cat "$B/state")" running
	same "$(grep -c " $M " /proc/self/mountinfo)" 1
}

@test "a mount over a file, or over a mount that lives, is refused and covers nothing" {
	echo kept >"$T/file"
	refused "$T/file: Not a directory" "$O/bin/sbxfs" "$T/file"
	same "$(cat "$T/file")" kept
	refused "$M: sbxfs is mounted there already" "$O/bin/sbxfs" "$M"
	same "$(grep -c " $M " /proc/self/mountinfo)" 1
	refused "max_threads=N" "$O/bin/sbxfs" -o max_threads=257 "$M"
	refused "no group 4294967296" "$O/bin/sbxfs" -o gid=4294967296 "$M" # not root's: as many bits as a number has
	refused "watch, strict, fixed:N" "$O/bin/sbxfs" -o cache=often "$M"
	same "$("$O/bin/sbxfs" --version)" "sbxfs $("$O/bin/sbx" --version | cut -d' ' -f2)"
}

@test "no descriptor, thread or inode is left behind" {
	n() { ls "/proc/$(cat "$T/fspid")/fd" | wc -l; }
	find "$B" -maxdepth 3 >/dev/null 2>&1 || true
	before=$(n)
	for i in 1 2 3; do
		mkdir "$M/leak"
		echo x > "$M/leak/home/f"
		echo 'seq 1000' > "$M/leak/run"
		cat "$M/leak/last/stdout.follow" "$M/leak/last/wait" >/dev/null
		rmdir "$M/leak"
	done
	fs_wait sh -c "[ \$(ls /proc/$(cat "$T/fspid")/fd | wc -l) -le $((before + 6)) ]"
	same "$(jq .parked "$M/stats")" 0
	[ "$(id -u)" = 0 ] || return 0
	echo 2 > /proc/sys/vm/drop_caches
	fs_wait sh -c "[ \$(jq .inodes $M/stats) -lt 200 ]"
}

@test "mount options: helper order, ids=map, links=refuse, group" {
	cd /
	mkdir "$T/m2"
	"$O/bin/sbxfs" "$SBX_ENDPOINT" "$T/m2" -o rw,ids=map,links=refuse,nofail 9>"$T/held"
	fs_wait mountpoint -q "$T/m2"
	grep " $T/m2 " /proc/self/mountinfo | grep -q 'nosuid,nodev.*fuse.sbxfs sbxfs'
	same "$(find /proc/[0-9]*/fd -lname "$T/held" 2>/dev/null)" "" # by who goes on in the background
	guest 'ln -sf /etc/hostname out' >/dev/null
	refused "Operation not permitted" readlink -v "$T/m2/box/fs/sandbox/home/out"
	same "$(stat -c %u "$T/m2/box/home/")" "$(id -u)"
	fusermount3 -u "$T/m2"
	refused "not known" "$O/bin/sbxfs" -o ids=wrong "$T/m2"
	refused "no group" "$O/bin/sbxfs" -o gid=no-such-group "$T/m2"
	[ "$(id -u)" = 0 ] || return 0
	"$O/bin/sbxfs" -o gid=65533 "$T/m2"
	fs_wait mountpoint -q "$T/m2"
	chmod 755 "$T"
	as() { setpriv --reuid 65532 --regid "$1" --clear-groups "${@:2}"; }
	same "$(as 65533 cat "$T/m2/box/state")" running
	as 65533 sh -c "echo of-the-group > $T/m2/box/home/by-group"
	same "$(cat "$H/by-group")" of-the-group
	refused "Permission denied" as 65531 ls "$T/m2"
	refused "Permission denied" as 65531 cat "$M/box/state"
	fusermount3 -u "$T/m2"
}

@test "a server out of descriptors: calls end, and when it has some again all is well" {
	pid=$(cat "$T/pid")
	echo keep >"$H/keep"
	mkdir -p "$T/m5"
	"$O/bin/sbxfs" -f -o timeout=2 "$T/m5" >>"$T/fslog" 2>&1 3>&- &
	few=$!
	fs_wait mountpoint -q "$T/m5"
	same "$(cat "$T/m5/box/home/keep")" keep
	used=$(ls "/proc/$pid/fd" | wc -l)
	prlimit --pid "$pid" --nofile=$((used + 1)): || { kill $few; skip "the server is another user's"; }
	for i in $(seq 20); do timeout -k 1 30 cat "$T/m5/box/state" "$T/m5/box/home/keep" >/dev/null 2>&1 & done
	for j in $(jobs -p); do
		[ "$j" = $few ] && continue
		wait "$j" || [ $? != 124 ]
	done
	same "$(timeout 10 ls "$T/m5" | grep -c stats)" 1
	prlimit --pid "$pid" --nofile=4096:
	fs_wait sh -c "[ \"\$(cat '$T/m5/box/home/keep')\" = keep ]"
	# The same here.
	used=$(ls "/proc/$few/fd" | wc -l)
	prlimit --pid $few --nofile=$used:
	for i in $(seq 20); do timeout -k 1 30 cat "$T/m5/box/info" >/dev/null 2>&1 & done
	for j in $(jobs -p); do
		[ "$j" = $few ] && continue
		wait "$j" || [ $? != 124 ]
	done
	prlimit --pid $few --nofile=4096:
	fs_wait sh -c "[ \"\$(cat '$T/m5/box/home/keep')\" = keep ]"
	kill $few
	fs_wait fs_gone $few
}
