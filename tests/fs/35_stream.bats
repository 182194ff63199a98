#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# sbx-fs/1: files over one connection a sandbox. What is believed is never older than a change that has
# been answered; the connection may be lost at any time.

load helper
setup_file() { fs_start; }
teardown_file() { fs_stop; }
setup() {
	fs_setup
	[ "${SBX_FS_PROTO:-auto}" = auto ] || skip "the plain way has no connection"
	W=$H/$BATS_TEST_NUMBER
	mkdir -p "$W"
	cd "$W" || return 1
	inside="cd /sandbox/home/$BATS_TEST_NUMBER 2>/dev/null || cd $BATS_TEST_NUMBER"
}
files() { jq ".files.$1" "$M/stats"; }
second_mount() {
	mkdir -p "$T/m2"
	"$O/bin/sbxfs" -f -o proto=auto "$T/m2" >>"$T/fslog" 2>&1 3>&- &
	echo $! >"$T/fspid2"
	fs_wait mountpoint -q "$T/m2"
}
# By signal: another mount namespace of this machine may hold a copy of the mount for a while.
second_end() {
	kill "$(cat "$T/fspid2")"
	fs_wait fs_gone "$(cat "$T/fspid2")"
}

@test "one connection carries the requests of many threads" {
	before=$(files plain)
	for i in $(seq 20); do (for k in $(seq 20); do echo "$i" > "f$i.$k"; cat "f$i.$k"; done > "$T/host/$i") & done
	wait
	for i in $(seq 20); do same "$(sort -u "$T/host/$i") $(wc -l < "$T/host/$i")" "$i 20"; done
	same "$(files connections)" 1
	same "$(files plain)" "$before"
	same "$(files lost)" 0
	[ "$(files requests)" -gt 1000 ]
}

# Each name is looked up and then removed, which makes a listing old at once.
@test "removing many files one after the other does not list their directory again and again" {
	mkdir d
	guest "$inside; i=0; while [ \$i -lt 400 ]; do : > d/\$i; i=\$((i + 1)); done" >/dev/null
	before=$(jq .cache_hits "$M/stats")
	python3 -c 'import os
for i in range(400): os.unlink(f"d/{i}")'
	# each listing answers one lookup and is old: there may be few, and not 40
	[ $(($(jq .cache_hits "$M/stats") - before)) -le 25 ]
	rmdir d
}

# ops: what the kernel has asked this mount so far; the text of stats may be a tenth of a second old.
ops() { sleep 0.2; jq .fuse_ops "$M/stats"; }
# walked_again COMMAND: after that, 41 directories are opened and closed; none of 1,000 names is asked for, and no
# directory read.
walked_again() {
	local before
	# A walk is watched from its second time on.
	for _ in 1 2 3; do find . -type f -ls >/dev/null; done
	"$1"
	before=$(ops)
	same "$(find . -type f -ls | wc -l)" 1000
	asked=$(($(ops) - before))
	[ "$asked" -le 110 ]
}
nothing() { :; }
labelled() {
	echo "$BATS_TEST_NUMBER" > "$B/labels/walked"
	api PATCH "/sandboxes/$(cat "$B/id")" -H "Content-Type: application/json" -d '{"labels":{"walked":"2"}}' >/dev/null
}
ran() { echo true > "$B/run"; }

# The kernel forgets what it knows when it wants memory, so there are several tries.
@test "a tree that is walked again is neither read nor looked up again, whatever is said of sandboxes meanwhile" {
	guest "$inside; for d in \$(seq 40); do mkdir \$d; for f in \$(seq 25); do : > \$d/\$f; done; done" >/dev/null
	for word in nothing labelled ran; do
		for try in $(seq 40); do
			walked_again "$word" && break
			echo "$word: $asked requests"
			[ "$try" -lt 40 ]
		done
	done
	rm -r [0-9]*
}

@test "what the guest has written is what the next open reads" {
	echo 0 > x; cat x >/dev/null; ls -l >/dev/null; stat x >/dev/null
	for i in $(seq 60); do
		guest "$inside; echo $i > x" >/dev/null
		same "$(cat x)" "$i"
		ls -l >/dev/null
	done
	for i in $(seq 20); do
		guest "$inside; echo r$i > new; mv new x" >/dev/null
		same "$(cat x)" "r$i"
	done
}

@test "what the guest makes, moves and removes is seen" {
	mkdir d; for i in $(seq 30); do echo "$i" > "d/$i"; done
	for i in $(seq 15); do
		ls -l d >/dev/null; stat d/* >/dev/null; [ ! -e "d/new$i" ]
		guest "$inside; echo made > d/new$i; rm d/$i; mv d/$((i + 15)) d/moved$i; chmod 600 d/moved$i" >/dev/null
		fs_wait test -e "d/new$i"
		same "$(cat "d/new$i")" made
		fs_wait test ! -e "d/$i"
		refused "No such file" cat "d/$((i + 15))"
		same "$(cat "d/moved$i")" "$((i + 15))"
		fs_wait sh -c "[ \$(stat -c %a d/moved$i) = 600 ]"
	done
	same "$(ls d | wc -l)" 30
	[ "$(files changes)" -gt 0 ]
}

@test "two mounts see each other's changes" {
	second_mount
	S=$T/m2/box/fs/sandbox/home/$BATS_TEST_NUMBER
	for i in $(seq 60); do
		echo "a$i" > x; same "$(cat "$S/x")" "a$i"
		echo "b$i" > "$S/x"; same "$(cat x)" "b$i"
		ls -l . "$S" >/dev/null
	done
	second_end
}

@test "what nothing changes is answered from memory" {
	mkdir m; for i in $(seq 100); do echo "$i" > "m/$i"; done
	ls -l m >/dev/null; sleep 0.1; ls -l m >/dev/null; ls -l m >/dev/null
	before=$(files requests)
	for k in 1 2 3 4 5; do
		stat m/* >/dev/null
		ls -l m >/dev/null
		sleep 0.3
	done
	[ $(($(files requests) - before)) -lt 100 ]
	[ "$(files watches)" -gt 0 ]
}

@test "a lost connection is opened anew, and open files go on" {
	echo keep > k; exec 5< k; exec 6> out
	head -c 3000000 /dev/urandom > "$T/host/r"
	for i in $(seq 5); do
		echo drop-caches > "$M/ctl"
		echo "$i" >&6
		same "$(cat k)" keep
	done
	(for i in $(seq 10); do echo drop-caches > "$M/ctl"; sleep 0.02; done) &
	for i in $(seq 10); do cp "$T/host/r" "r$i"; cmp "$T/host/r" "r$i"; done
	wait $!
	same "$(cat <&5)" keep
	exec 5<&- 6>&-
	same "$(cat out)" "$(seq 5)"
}

@test "a server that is killed under load: errors or the truth, and then all is well" {
	head -c 2000000 /dev/urandom > "$T/host/r"
	(n=0; while [ ! -e "$T/host/stop" ]; do n=$((n + 1)); cp "$T/host/r" "c$((n % 5))" 2>/dev/null || true; done) &
	w=$!
	kill -9 "$(cat "$T/pid")"
	fs_wait fs_gone "$(cat "$T/pid")"
	fs_server
	fs_wait cat "$B/state"
	touch "$T/host/stop"
	wait $w
	fs_wait cp "$T/host/r" good
	cmp "$T/host/r" good
	same "$(guest "$inside; sha256sum < good")" "$(sha256sum < "$T/host/r")"
}

@test "late writes are whole when fsync and close have returned" {
	python3 - <<'PY'
import os
f = os.open("late", os.O_WRONLY | os.O_CREAT)
for i in range(30): assert os.write(f, b"x" * (1 << 20)) == 1 << 20
os.fsync(f); os.close(f)
assert os.stat("late").st_size == 30 << 20
PY
	same "$(guest "$inside; wc -c < late" | tr -d ' ')" $((30 << 20))
	rm late
}

@test "cache=strict and cache=fixed" {
	cd /
	mkdir -p "$T/m2"
	for c in strict fixed:1; do
		"$O/bin/sbxfs" -o "proto=auto,cache=$c" "$T/m2"
		fs_wait mountpoint -q "$T/m2"
		S=$T/m2/box/fs/sandbox/home/$BATS_TEST_NUMBER
		echo one > "$S/f"; same "$(cat "$S/f")" one
		guest "$inside; echo three > f" >/dev/null
		same "$(cat "$S/f")" three
		same "$(jq .files.watches "$T/m2/stats")" 0
		fusermount3 -u "$T/m2"
	done
	refused "not known" "$O/bin/sbxfs" -o cache=wrong "$T/m2"
	refused "number of seconds" "$O/bin/sbxfs" -o cache=fixed:x "$T/m2"
	refused "not known" "$O/bin/sbxfs" -o proto=wrong "$T/m2"
}
