#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A peer of sbx-fs/1 that lies, and a way to the server that fails (liar.py). Every call ends, nothing is
# believed that cannot be, what lies above the sandbox answers all the while, and when the lie ends all is
# well without a new mount.

load helper
setup_file() {
	fs_start
	[ ! -s "$T/skip" ] || return 0
	export L=$T/lm LIAR_TARGET=$T/host/secret
	mkdir -p "$L"
	mkdir "$M/other"
	echo pass >"$T/word"
	echo secret >"$T/host/secret"
	echo truth >"$M/box/home/f"
	echo other >"$M/other/home/f"
	python3 tests/fs/liar.py "$T/liar" "$T/sock" "$T/word" >>"$T/log" 2>&1 3>&- &
	echo $! >"$T/liarpid"
	fs_wait test -S "$T/liar"
	SBX_ENDPOINT=unix://$T/liar "$O/bin/sbxfs" -f -o timeout=2 "$L" >>"$T/fslog" 2>&1 3>&- &
	echo $! >"$T/lpid"
	fs_wait mountpoint -q "$L"
}
teardown_file() {
	[ ! -s "$T/heldpid" ] || kill -9 "$(cat "$T/heldpid")" || true # of a row that failed
	for p in lpid liarpid; do
		[ ! -s "$T/$p" ] || kill "$(cat "$T/$p")" || true
	done
	[ ! -s "$T/lpid" ] || fs_wait fs_gone "$(cat "$T/lpid")" || kill -9 "$(cat "$T/lpid")"
	for m in lm m3; do
		! mountpoint -q "$T/$m" 2>/dev/null || fusermount3 -uz "$T/$m"
	done
	fs_stop
}
setup() {
	fs_setup
	LH=$L/box/fs/sandbox/home
	fs_wait heard
}
teardown() { [ -s "$T/skip" ] || lie pass; }

lie() {
	echo "$1" >"$T/word"
	timeout 20 sh -c "echo drop-caches > '$L/ctl'"
}
# within SECS COMMAND...: it ends in time, whatever it says.
within() {
	rc=0
	timeout -k 1 "$@" >"$T/host/out" 2>&1 || rc=$?
	[ $rc != 124 ] && [ $rc != 137 ] || { echo "no end: $*"; return 1; }
}
# A peer that did not answer in time, as on a busy machine, is left alone for ten seconds; who lies has to be heard.
heard() {
	cat "$LH/f" && [ "$(jq .files.connections "$L/stats")" -gt 0 ]
}
# third OPTIONS: one more mount behind the liar, at $T/m3.
third() {
	! mountpoint -q "$T/m3" 2>/dev/null || fusermount3 -uz "$T/m3" # of a row that failed
	mkdir -p "$T/m3"
	SBX_ENDPOINT=unix://$T/liar "$O/bin/sbxfs" -o "$1" "$T/m3"
	fs_wait mountpoint -q "$T/m3"
}
# From now on nothing is a lie about the sandbox `other`, until the file goes.
spare_other() { jq -r '.sandboxes[] | select(.name == "other") | .id' <(api GET /sandboxes) >"$T/word.not"; }
# What has nothing to do with the liar.
others() {
	[[ $(timeout 15 ls "$L") == *stats* ]]
	same "$(timeout 15 cat "$M/box/home/f")" truth
	same "$(timeout 15 cat "$L/box/state")" running
}
# The mount lives, and has not grown without bound.
sound() {
	others
	[ "$(awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$(cat "$T/lpid")/status")" -lt 900 ]
}
# The truth again, by the same mount.
healed() {
	lie pass
	fs_wait sh -c "[ \"\$(cat '$LH/f')\" = truth ]"
	sound
}
names() { python3 -c 'import os, sys; print(sorted(os.listdir(sys.argv[1].encode())))' "$1"; }

@test "attributes of a file that the server has dropped are set by its name, while that is its own" {
	lie dropped
	exec 5<>"$LH/f"
	chmod 600 "$LH/f"
	touch "$LH/f"
	timeout 10 python3 -c 'import os; os.fchmod(5, 0o640); os.ftruncate(5, 2)'
	echo swapped >"$T/word"
	refused "Stale file handle" timeout 10 python3 -c 'import os; os.fchmod(5, 0o600)'
	refused "Stale file handle" timeout 10 python3 -c 'import os; os.ftruncate(5, 0)'
	exec 5<&-
	healed
}

@test "far away a tree is fetched ahead of who walks it, and he misses nothing that changed meanwhile" {
	guest 'for a in 1 2 3 4 5; do for b in 1 2 3 4 5; do mkdir -p tree/$a/$b; echo x > tree/$a/$b/f; done; done'
	seen() { (cd "$1" && timeout 60 find . | sort); }
	inside() { guest 'cd tree && find .' | sort; }
	lie far
	same "$(seen "$LH/tree")" "$(inside)"
	for n in 1 2 3; do
		(seen "$LH/tree" >/dev/null) &
		guest "echo y > tree/$n/4/new; mv tree/$n/1 tree/$n/moved; rm -r tree/5/$n" >/dev/null
		wait $!
		agree() { [ "$(seen "$LH/tree")" = "$(inside)" ]; }
		fs_wait agree
		same "$(cat "$LH/tree/$n/4/new")" y
	done
	guest 'rm -r tree'
	fs_wait sh -c "! [ -e '$LH/tree' ]"
	healed
}

@test "a folder that the guest moves down under a shell in it: its links lead nowhere outside" {
	local deep=t/1/2/3/4/5/6/7/8
	# Up to the top of this machine from where the shell stands, and not from where the folder is then.
	guest "mkdir -p c $deep; ln -s ../../../../../../../../../../../..$LIAR_TARGET c/l; ln -s /sandbox/home/f c/f"
	lie far
	cat "$LH/$deep/none" 2>/dev/null || true
	cd "$LH/c"
	refused "" cat l
	same "$(cat f)" truth
	guest "mv c $deep/c"
	fs_wait sh -c "! [ -e '$LH/c' ]"
	# What is fetched ahead tells of its new place us, and not the kernel.
	ls "$LH/t/1/2/3/4/5/6" >/dev/null
	ls "$LH/t/1/2/3/4/5/6/7" >/dev/null
	for _ in $(seq 10); do
		refused "" cat l
		[[ $(cat f 2>&1) != *secret* ]]
		sleep 0.1
	done
	# By its new name all is as it should be, and for the shell as well.
	same "$(cat "$LH/$deep/c/f")" truth
	refused "No such file" cat "$LH/$deep/c/l"
	same "$(cat f)" truth
	cd "$T/host"
	guest 'rm -r t'
	healed
}

@test "a folder that the kernel cannot move, since somebody is at work above it: its links lead nowhere outside" {
	local deep=d/1/2/3/4/5/6/7/8
	third timeout=20
	R=$T/m3/box/fs/sandbox/home
	echo here >"$T/word"
	fs_wait test -d "$R/$deep" # first questions go another way, until there is a connection
	cd "$R/c"
	refused "No such file" cat l
	mkdir "$R/x" 2>/dev/null 3>&- & # the kernel keeps the folder for it
	p=$!
	echo $p >"$T/heldpid"
	fs_wait test -e "$T/word.x"
	rm -f "$T/word.c"
	echo there >"$T/word"
	(while [ ! -e "$T/word.c" ]; do stat "$R/c"; sleep 0.05; done) >/dev/null 2>&1 3>&- & # so that it is asked for
	fs_wait test -e "$T/word.c"
	for _ in 1 2 3 4 5; do
		refused "Stale file handle" cat "$R/$deep/c/l"
		[[ $(cat l 2>&1) != *secret* ]]
		sleep 0.1
	done
	kill -0 $p # it is held all the while
	kill $p
	wait $p $! || true
	rm "$T/heldpid" "$T"/word.[xc]
	moved() { [[ $(cat "$R/$deep/c/l" 2>&1) == *"No such file"* ]]; }
	fs_wait moved # now it can
	refused "No such file" cat l
	cd "$T/host"
	fusermount3 -u "$T/m3"
	healed
}

@test "names that no directory can hold are left out, all others are shown" {
	lie names
	same "$(names "$LH")" "[b'\\x01\\x1b[31m\\x7f', b'new\\nline', b'$(printf 'n%.0s' $(seq 255))', b'\\xff\\xfebad']"
	healed
}

@test "special files are shown and cannot be opened as such; set-id bits mean nothing" {
	grep " $L " /proc/self/mountinfo | grep -q 'nosuid,nodev'
	lie types
	same "$(cd "$LH"; stat -c %F fifo sock chr blk)" \
		"$(printf 'fifo\nsocket\ncharacter special file\nblock special file')"
	same "$(stat -c %a "$LH/setid")" 755
	[ ! -e "$LH/none" ]
	refused "Permission denied" timeout 10 cat "$LH/chr"
	refused "Permission denied" timeout 10 cat "$LH/blk"
	refused "No such device or address" timeout 10 cat "$LH/sock"
	# The host's own pipe, as on NFS: whoever waits for it can be interrupted.
	timeout -k 1 1 cat "$LH/fifo" || same $? 124
	healed
}

@test "links never lead out of the tree, however they are made" {
	lie links
	for l in abs rel; do
		refused "" timeout 10 cat "$LH/$l"
		[[ $(readlink "$LH/$l") == ..* ]]
		[[ $(realpath -m "$LH/$l") == "$L"/box/fs/* ]]
	done
	for l in long nul none; do within 15 cat "$LH/$l"; done
	within 15 ls -lL "$LH"
	healed
	[ "$(id -u)" = 0 ] || return 0
	# As they were made, where nobody can follow them.
	third timeout=2,links=exact
	lie links
	echo drop-caches >"$T/m3/ctl"
	same "$(readlink "$T/m3/box/fs/sandbox/home/abs")" "$LIAR_TARGET"
	refused "Too many levels" timeout 10 cat "$T/m3/box/fs/sandbox/home/abs"
	fusermount3 -u "$T/m3"
}

@test "a directory that is within itself: walks end" {
	lie loop
	within 60 find "$LH" -maxdepth 60
	within 60 ls -R "$LH"
	healed
}

@test "a directory without an end, and one of empty pages" {
	lie empty
	refused "Protocol error" timeout 20 ls "$LH"
	lie endless
	within 60 ls -f "$LH"
	[ $rc != 0 ]
	healed
}

@test "sizes that are none, and that change under the reader" {
	lie size63
	refused "Protocol error" timeout 20 stat "$LH/f"
	lie size62
	same "$(timeout 20 stat -c %s "$LH/f")" 9223372036854775807
	same "$(timeout 20 head -c 5 "$LH/f")" "a lie"
	within 30 cat "$LH/f"
	lie grows
	for _ in 1 2 3 4 5; do within 30 cat "$LH/f"; done
	healed
}

@test "an answer that breaks a rule ends the connection, and the plain way tells the truth" {
	for w in tag slot op flags short more huge close version cap; do
		lie $w
		same "$w $(timeout 30 cat "$LH/f")" "$w truth"
		others
	done
	healed
}

@test "an answer that is well formed and impossible is an error or nothing" {
	while read -r w want; do
		lie "$w"
		got=$(timeout 40 cat "$LH/f" 2>&1) || true
		[[ $got =~ $want ]] || { echo "$w: $got"; false; }
		others
	done <<-'ROWS'
		errno Input/output.error
		enosys not.supported
		eintr Input/output.error
		handle Stale
		long Stale|truth
		greedy a.lie
		same a.lie
	ROWS
	lie count
	refused "Protocol error" timeout 20 ls "$LH"
	lie twice
	within 60 ls -lR "$LH"
	healed
}

@test "what one sandbox tells of locks is nothing to those who wait for another's" {
	spare_other
	lie grant
	flock -F "$M/other/home/f" sh -c "echo >'$T/host/held'; exec sleep 60" 3>&- &
	fs_wait test -e "$T/host/held"
	cat "$LH/f"
	fs_wait sh -c "[ \"\$(jq .files.pushes '$L/stats')\" -gt 300 ]"
	same "$(timeout 1 flock "$L/other/home/f" echo mine; echo $?)" 124
	kill $!
	same "$(timeout 30 flock "$L/other/home/f" echo mine)" mine
	rm "$T/word.not"
	healed
}

@test "a folder that one sandbox holds, holds no word of what has changed in another" {
	spare_other
	third timeout=20
	R=$T/m3/box/fs/sandbox/home
	echo nosy >"$T/word"
	echo one >"$M/other/home/g"
	for _ in 1 2 3; do
		ls "$R" "$T/m3/other/home" >/dev/null
		! stat "$R/none" 2>/dev/null
		stat "$T/m3/other/home/g" >/dev/null
	done
	mkdir "$R/x" 2>/dev/null 3>&- &
	p=$!
	echo $p >"$T/heldpid"
	fs_wait sh -c "[ \"\$(jq .files.pushes '$T/m3/stats')\" -gt 0 ]"
	for i in 1 2 3; do # each would be believed for ten seconds
		stat "$T/m3/other/home/g" >/dev/null
		echo more >>"$M/other/home/g"
		told() { [ "$(stat -c %s "$T/m3/other/home/g")" = $((4 + 5 * i)) ]; }
		fs_wait told
	done
	kill -0 $p # it is held all the while
	kill $p
	echo pass >"$T/word"
	wait $p || true
	rm "$T/heldpid"
	fusermount3 -u "$T/m3"
	rm "$T/word.not"
	healed
}

@test "a write that one sandbox does not take keeps none of another back" {
	spare_other
	third timeout=30
	echo stuck >"$T/word"
	# The second write of an open file is sent later, by whoever does that for all.
	cat >"$T/host/two.py" <<-'PY'
		import os, sys, time
		for p in sys.argv[1:]:
		    f = os.open(p, os.O_WRONLY | os.O_CREAT)
		    os.write(f, b"one\n")
		    os.write(f, b"two\n")
		    time.sleep(0.2)
		time.sleep(600)
	PY
	python3 "$T/host/two.py" "$T/m3/box/fs/sandbox/home/f" "$T/m3/other/home/late" 3>&- &
	echo $! >"$T/heldpid"
	fs_wait grep -q two "$M/other/home/late" # with the first one it would take three times as long
	kill -9 $!
	echo pass >"$T/word"
	fs_wait fs_gone $!
	rm "$T/heldpid"
	fs_wait fusermount3 -u "$T/m3"
	rm "$T/word.not"
	healed
}

@test "a hello that drips, answers that drip" {
	lie hello
	within 15 cat "$LH/f"
	same "$(cat "$T/host/out")" truth
	lie drip
	within 30 cat "$LH/f"
	[[ $(cat "$T/host/out") == "a lie"* || $(cat "$T/host/out") == truth ]]
	healed
}

@test "no answers, or only changes without end: all calls end, can be killed, and others are served" {
	for w in silent flood flood2; do
		lie $w
		for i in $(seq 60); do timeout -k 1 60 stat "$LH/f" >/dev/null 2>&1 & done
		stat "$LH/f" >/dev/null 2>&1 &
		k=$!
		sleep 1.5
		others
		kill -9 $k 2>/dev/null || true
		fs_wait fs_gone $k
		for j in $(jobs -p); do
			wait "$j" || same "$w $(($? == 124 || $? == 137))" "$w 0"
		done
		others
	done
	healed
}

@test "a peer that stops reading: the writer is told, and can be killed" {
	lie true
	cat >"$T/host/w.py" <<-'PY'
		import os, sys
		f = os.open(sys.argv[1], os.O_WRONLY)
		os.write(f, b"x" * (1 << 20))
		open(sys.argv[2], "w").write("stop")
		def told(call, *args):
		    try: call(*args)
		    except OSError as e: print("told", e.errno, flush=True); return True
		    return False
		if not any(told(os.write, f, b"y" * (1 << 20)) for _ in range(40)):
		    told(os.fsync, f) or told(os.close, f) or print("not told")
	PY
	within 60 python3 "$T/host/w.py" "$LH/f" "$T/word"
	[[ $(cat "$T/host/out") == *told\ [0-9]* ]]
	lie true
	python3 "$T/host/w.py" "$LH/f" "$T/word" &
	k=$!
	fs_wait grep -q stop "$T/word"
	sleep 1.5
	kill -9 $k 2>/dev/null || true
	fs_wait fs_gone $k
	healed
}

@test "a server that takes ever so little of a write: told by fsync and by close, once each" {
	lie part
	timeout 60 python3 - "$LH/f" <<-'PY'
		import errno, os, sys
		f = os.open(sys.argv[1], os.O_WRONLY)
		def told(call, *args):
		    try: call(*args)
		    except OSError as e: return e.errno
		    return 0
		os.write(f, b"x")
		assert told(os.write, f, b"y" * 100000) == 0
		assert told(os.fsync, f) == errno.EIO
		assert told(os.fsync, f) == 0
		assert told(os.write, f, b"z") == errno.EIO
		assert told(os.close, f) == errno.EIO
	PY
	# A copy onto such a disk is no success.
	head -c 100000 /dev/zero >"$M/other/home/zeros"
	for get in "cp other:/sandbox/home/zeros" "file get other /sandbox/home/zeros"; do
		refused "Input/output error" timeout 60 "$O/bin/sbx" $get "$LH/copy"
	done
	refused "Input/output error" timeout 60 sh -c "'$O/bin/sbx' cat other /sandbox/home/zeros >'$LH/out'"
	healed
}

@test "an unreachable server: each call ends, the top answers, open files go on, nothing is mounted anew" {
	for proto in auto http; do
		third "timeout=1,proto=$proto"
		R=$T/m3/box/home
		echo keep >"$M/box/home/keep"
		exec 5<"$R/keep" 6>"$R/out"
		echo one >&6
		lie hold
		s=$SECONDS
		while [ $((SECONDS - s)) -lt "${TROUBLE_SECS:-4}" ]; do
			within 15 cat "$R/keep"
			within 15 sh -c "echo x > '$R/x'"
			[[ $(timeout 5 ls "$T/m3") == *stats* ]]
		done
		refused "Host is down" cat "$T/m3/box/state"
		echo pass >"$T/word"
		fs_wait sh -c "[ \"\$(cat '$R/keep')\" = keep ]"
		same "$(cat <&5)" keep
		echo two >&6
		exec 5<&- 6>&-
		same "$(cat "$M/box/home/out")" "$(printf 'one\ntwo')"
		lie slow
		same "$(timeout 30 cat "$R/keep")" keep
		lie cut
		within 20 cat "$R/keep"
		lie pass
		fs_wait sh -c "[ \"\$(cat '$R/keep')\" = keep ]"
		fusermount3 -u "$T/m3"
	done
	healed
}
