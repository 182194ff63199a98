#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Another user of the machine, who has a shell and nothing else. The folder that everything lies in is open to
# him, so that nothing is proved by a closed door further up.
bats_require_minimum_version 1.5.0
load helper

TOKEN=token-of-the-test-7d1f09ab
SECRET=secret-in-the-environment-51c2 # of a sandbox
SECOND=secret-of-one-process-ab07     # of one of its processes
STRANGER=54321

setup_file() {
	[ "$(id -u)" = 0 ] || return 0
	attack_up
	(umask 077 && mkdir -p "$T/keys" && echo "$TOKEN" >"$T/keys/token")
	server u --token-file "$T/keys/token"
	ID=$(new "{\"name\":\"box\",\"env\":{\"SECRET\":\"$SECRET\"}}")
	post "/v1/sandboxes/$ID/processes" "{\"argv\":[\"sleep\",\"600\"],\"env\":{\"SECOND\":\"$SECOND\"}}" >/dev/null
	export ID
	M=$T/m
	export M
	mkdir "$M"
	"$O/bin/sbxfs" -f -o "token_file=$T/keys/token,endpoint=unix://$D/sock" "$M" >>"$T/fslog" 2>&1 3>&- &
	echo $! >"$T/fspid"
	await 20 mountpoint -q "$M" || { cat "$T/fslog" >&2; return 1; }
	find_parts >"$T/parts"
}
setup() {
	attack_setup
	on u
}
teardown_file() {
	[ -n "${T:-}" ] || return 0
	on u
	for f in fspid fspid2 fspid3 srvpid3 trappid; do
		[ -s "$T/$f" ] || continue
		kill "$(cat "$T/$f")" 2>/dev/null || continue
		await 20 mount_gone "$(cat "$T/$f")" || kill -9 "$(cat "$T/$f")"
	done
	for m in "$M" "$T/m2" "$T/m3"; do ! mountpoint -q "$m" || umount -l "$m"; done
	attack_down
}
mount_gone() { ! kill -0 "$1" 2>/dev/null; }

# The helper's api, with the token.
api() {
	local args=("$@") path=${*: -1}
	unset 'args[${#args[@]}-1]'
	curl -sS --max-time 60 --unix-socket "$D/sock" -H @<(echo "Authorization: Bearer $TOKEN") "${args[@]}" "http://localhost$path"
}
stranger() { setpriv --reuid $STRANGER --regid $STRANGER --clear-groups -- "$@"; }
member() { setpriv --reuid $STRANGER --regid $STRANGER --groups "$1" -- "${@:2}"; }

# The server, the mount, the sandbox's shim and all that they have started; looked for once, they stay the same.
find_parts() {
	ps -eo pid=,ppid= | awk -v roots="$(server_pid) $(cat "$T/fspid") $(shim)" '
		BEGIN { n = split(roots, r, " "); for (i = 1; i <= n; i++) is[r[i]] = 1 }
		{ pid[NR] = $1; up[NR] = $2 }
		END {
			for (more = 1; more;) {
				more = 0
				for (i = 1; i <= NR; i++) if (!is[pid[i]] && is[up[i]]) more = is[pid[i]] = 1
			}
			for (i = 1; i <= NR; i++) if (is[pid[i]]) print pid[i]
		}'
}
parts() { cat "$T/parts"; }
shim() { od -An -td4 -j16 -N4 "$D/state/priv/boxes/$ID" | tr -d ' '; }

@test "the sockets take nobody but their owner, although their folder is open" {
	is "$(stat -c %a "$D/sock")" 600
	refused=$(stranger curl -sS --max-time 5 --unix-socket "$D/sock" http://localhost/v1/health 2>&1) && false
	[[ $refused == *"ermission denied"* || $refused == *"onnect"* ]]
	never stranger ls "$D/state"
	never stranger test -e "$D/state/records.db"
	is "$(find "$D/state" -mindepth 1 -maxdepth 3 -not -path '*/priv/*' | stranger xargs -r ls -d 2>/dev/null)" ""
}

@test "below the state directory nothing depends on its mode alone: sockets, spools and records are private too" {
	is "$(find "$D/state" -type s -perm /077 | wc -l)" 0
	is "$(find "$D/state" -xdev -type f -perm /077 -not -path '*/priv/layers/*' -not -path '*/priv/areas/*' | wc -l)" 0
	is "$(stat -c '%u %a' "$D/state/priv")" "0 700"
	is "$(find "$D/state" -mindepth 1 -maxdepth 1 -type d -perm /077 | wc -l)" 0
}

@test "no abstract socket, no port, no System V memory belongs to the server" {
	is "$(grep -ac '@.*\(sbx\|sandbox\)' /proc/net/unix)" 0
	for p in $(parts); do
		is "$(ls -l "/proc/$p/fd" 2>/dev/null | grep -c '/dev/shm/\|SYSV')" 0
	done
	never stranger curl -sS --max-time 2 http://127.0.0.1:8080/v1/health
}

@test "of the server's processes a stranger sees no memory, no environment, no descriptors" {
	all=$(parts)
	[ "$(wc -w <<<"$all")" -ge 7 ]
	stranger sh -s $all >"$T/seen" 2>/dev/null <<-'END' || true
		for p; do
			for f in environ mem maps auxv stack syscall io pagemap; do
				head -c 1 /proc/$p/$f | grep -q . && echo $p/$f
			done
			ls /proc/$p/fd/ /proc/$p/map_files/ | grep -q '^[0-9a-f]' && echo $p/fd
			for l in exe cwd root fd/0 ns/mnt; do readlink /proc/$p/$l && echo $p/$l; done
			kill -0 $p && echo $p
			test -d /proc/$p && echo there >&3
		done 3>&1
	END
	is "$(sort -u "$T/seen")" there
}

@test "tokens and values of environments are in no argument, no environment and no file but the records" {
	printf '%s\n' "$TOKEN" "$SECRET" "$SECOND" >"$T/keys/patterns"
	# clients that have the token in a file, and one that is waiting while we look
	SBX_TOKEN_FILE=$T/keys/token "$O/bin/sbx" event follow box >/dev/null 2>&1 3>&- &
	client=$!
	await 10 grep -qz . "/proc/$client/cmdline"
	found=
	for p in $(parts) $client; do
		for f in cmdline environ comm; do
			# guest processes have their own environment; that is what it is for
			tr '\0' '\n' <"/proc/$p/$f" 2>/dev/null | grep -qF -f "$T/keys/patterns" && found+=" $p/$f"
		done
	done
	kill "$client"
	for p in $found; do
		[ "$(awk '$1 == "Uid:" { print $2 }' "/proc/${p%/*}/status")" -ge 1879048192 ] || { echo "$p"; false; }
		never stranger cat "/proc/$p"
	done
	is "$(find "$D" -xdev -type f -not -path '*/priv/*' -exec grep -laF -f "$T/keys/patterns" {} + | grep -vc '/records.db')" 0
	is "$(find "$D/state/priv" -xdev -type f -size -4M -not -path '*/layers/*' -exec grep -laF -f "$T/keys/patterns" {} + | wc -l)" 0
	is "$(grep -cF -f "$T/keys/patterns" "$D/log" "$T/fslog" | grep -vc ':0$')" 0
	is "$(stat -c %a "$D"/state/records.db* | sort -u)" 600
	# the answers have names, not values
	api "/v1/sandboxes/$ID" >"$T/answer"
	never grep -qF -f "$T/keys/patterns" "$T/answer"
	# and what is gone is gone: the file of the records keeps no value of a sandbox that has ended
	id=$(new '{"env":{"GONE":"value-of-an-ended-one-99aa"}}')
	del "$id"
	await 30 eval '! grep -qa value-of-an-ended-one-99aa "$D"/state/records.db*'
}

@test "nothing of the server lies in folders that all may write" {
	for p in $(parts); do
		is "$(ls -l "/proc/$p/fd" 2>/dev/null | awk '{ print $NF }' | grep "^/tmp/\|^/var/tmp/\|^/dev/shm/\|^/run/lock/" | grep -vc "^$T")" 0
	done
}

@test "the mount lets nobody in, also not to what its owner has just looked at" {
	is "$(cat "$M/box/state" | head -n1 | grep -c .)" 1
	stat "$M/box/fs/etc/passwd" >/dev/null
	(cd "$M/box" && ls -l fs/etc >/dev/null && cat fs/etc/passwd >/dev/null)
	for how in "ls $M" "ls $M/box" "stat $M/box" "stat $M/box/state" "cat $M/box/state" "stat $M/box/fs/etc/passwd" \
		"cat $M/box/fs/etc/passwd" "readlink $M/box/fs/etc/mtab" "test -e $M/box/fs/etc/passwd" "ls $M/box/fs/etc" \
		"sh -c 'cd $M/box'" "sh -c 'echo x > $M/box/fs/tmp/x'" "mkdir $M/other" "touch $M/box/fs/etc/passwd" \
		"getfattr -d $M/box/fs/etc/passwd"; do
		stat "$M/box/fs/etc/passwd" "$M/box/state" >/dev/null # keeps it in the kernel's cache
		never eval "stranger $how" 2>/dev/null >&2
	done
	(cd "$M/box/fs/etc" && pwd -P >/dev/null && stat passwd >/dev/null) # the owner is none the worse for it
}

@test "with gid= the group is let in, and nobody else" {
	mkdir -p "$T/m2"
	"$O/bin/sbxfs" -f -o "gid=60606,token_file=$T/keys/token,endpoint=unix://$D/sock" "$T/m2" >>"$T/fslog" 2>&1 3>&- &
	echo $! >"$T/fspid2"
	await 20 mountpoint -q "$T/m2"
	is "$(member 60606 cat "$T/m2/box/fs/etc/passwd" | grep -c '^root:')" 1
	for how in "ls $T/m2" "stat $T/m2/box" "stat $T/m2/box/state" "stat $T/m2/box/fs/etc/passwd" "cat $T/m2/box/fs/etc/passwd" \
		"sh -c 'cd $T/m2/box/fs'" "sh -c 'echo x > $T/m2/box/fs/tmp/x'"; do
		member 60606 stat "$T/m2/box/fs/etc/passwd" "$T/m2/box/state" >/dev/null
		never eval "stranger $how" 2>/dev/null >&2
		never eval "member 60607 $how" 2>/dev/null >&2
	done
	member 60606 sh -c "cd $T/m2/box && pwd -P" >/dev/null
}

@test "a port of the mount is its owner's" {
	mkdir "$M/box/ports/7777"
	s=$(readlink "$M/box/ports/7777/socket")
	[ -S "$s" ]
	is "$(stat -c '%u %a' "$s" "${s%/*}" | tr '\n' ,)" "0 600,0 700,"
	never stranger ls "${s%/*}" 2>/dev/null
	# Who is let in hears nothing, because nobody listens inside, maybe before it has looked; connecting is the question.
	socat -u OPEN:/dev/null "UNIX-CONNECT:$s"
	run stranger socat -u OPEN:/dev/null "UNIX-CONNECT:$s"
	[ "$status" != 0 ]
	[[ $output == *"Permission denied"* ]]
	rmdir "$M/box/ports/7777"
	never test -e "$s"
}

@test "a runtime folder of his, in an environment that was kept, gets neither server nor client nor ports" {
	mkdir -m 755 "$T/run" "$T/home" "$T/m3" && chown $STRANGER "$T/run"
	# Not by the function: what is started in the background has to be the process that $! names.
	setpriv --reuid $STRANGER --regid $STRANGER --clear-groups -- \
		socat -u "UNIX-LISTEN:$T/run/sandboxd.sock" "CREATE:$T/run/caught" 3>&- &
	echo $! >"$T/trappid"
	await 20 test -S "$T/run/sandboxd.sock"
	kept=(env -u SBX_ENDPOINT "XDG_RUNTIME_DIR=$T/run" "HOME=$T/home")
	out=$("${kept[@]}" "$O/bin/sbx" ls 2>&1) && false
	[[ $out == *"$T/home/.config"* ]]
	mkdir -m 700 "$T/home/state"
	"${kept[@]}" "$O/bin/sandboxd" --libexec-dir "$O/bin" --state-dir "$T/home/state" --image-dir "$T/images" >>"$T/homelog" 2>&1 3>&- &
	local srv=$!
	echo $srv >"$T/srvpid3"
	await 60 test -S "$T/home/.config/sandbox/sandboxd.sock"
	"${kept[@]}" "$O/bin/sbxfs" -f -o "token_file=$T/keys/token,endpoint=unix://$D/sock" "$T/m3" >>"$T/fslog" 2>&1 3>&- &
	local fs=$!
	echo $fs >"$T/fspid3"
	await 20 mountpoint -q "$T/m3"
	mkdir "$T/m3/box/ports/7778"
	s=$(readlink "$T/m3/box/ports/7778/socket")
	kill $fs $srv "$(cat "$T/trappid")" || true
	await 30 mount_gone $fs
	await 60 mount_gone $srv
	[[ $s != "$T/run"* ]]
	is "$(ls -A "$T/run" | grep -vx sandboxd.sock)" "" # nobody came, nothing was made
}

@test "nor does a home of his" {
	mkdir -p "$T/his/.config/sandbox" && chown -R $STRANGER "$T/his"
	setpriv --reuid $STRANGER --regid $STRANGER --clear-groups -- \
		socat -u "UNIX-LISTEN:$T/his/.config/sandbox/sandboxd.sock" "CREATE:$T/his/caught" 3>&- &
	echo $! >"$T/trappid"
	await 20 test -S "$T/his/.config/sandbox/sandboxd.sock"
	out=$(env -u SBX_ENDPOINT -u XDG_RUNTIME_DIR "HOME=$T/his" timeout 20 "$O/bin/sbx" ls 2>&1) && false
	kill "$(cat "$T/trappid")" || true
	[[ $out == *"belongs to another user"* ]]
	[ ! -e "$T/his/caught" ]
}

# --- the state directory

@test "a state directory that others can enter, or that is somebody else's, is refused untouched" {
	try() { timeout 20 "$O/bin/sandboxd" --listen "unix://$T/never" --state-dir "$1" 2>&1; }
	mkdir -m 755 "$T/open"
	out=$(try "$T/open") && false
	[[ $out == *"open to others"* ]]
	mkdir -m 700 "$T/theirs" && chown $STRANGER "$T/theirs"
	out=$(try "$T/theirs") && false
	[[ $out == *"belongs to uid $STRANGER"* ]]
	is "$(stat -c '%u %a' "$T/theirs")" "$STRANGER 700"
	is "$(ls -A "$T/open")" ""
}

@test "a link in the place of the state directory does not give a folder of root's away" {
	mkdir -m 700 "$T/precious" && echo x >"$T/precious/file"
	mkdir -m 1777 "$T/sticky"
	stranger ln -s "$T/precious" "$T/sticky/state"
	out=$(timeout 20 "$O/bin/sandboxd" --listen "unix://$T/never" --state-dir "$T/sticky/state" 2>&1) && false
	ln -s "$T/precious" "$T/mine" # and where the kernel does not care
	out=$(timeout 20 "$O/bin/sandboxd" --listen "unix://$T/never" --state-dir "$T/mine" 2>&1) && false
	is "$(stat -c '%u %a' "$T/precious")" "0 700"
	is "$(ls -A "$T/precious")" file
}

@test "links in the state directory are followed by nobody with rights" {
	own=$(stat -c %u "$D/state") # as if the server's own user had put them there
	mkdir -m 700 "$T/target" && echo x >"$T/target/f"
	for name in priv lock run audit pull records.db; do
		rm -rf "$T/s3" && mkdir -m 700 "$T/s3"
		ln -s "$T/target" "$T/s3/$name"
		[ $name != lock ] && [ $name != records.db ] || ln -sfn "$T/target/f" "$T/s3/$name"
		chown -h "$own" "$T/s3" "$T/s3/$name"
		timeout 20 "$O/bin/sandboxd" --listen "unix://$T/never" --state-dir "$T/s3" >"$T/out" 2>&1 3>&- &
		p=$!
		await 20 eval '! kill -0 '$p' 2>/dev/null || grep -q started "$T/out"'
		kill $p 2>/dev/null || true
		wait $p || true
		! grep -q 'belongs to uid' "$T/out" || { cat "$T/out"; false; } # then it would not have come to the link
		is "$(stat -c '%u %a' "$T/target" "$T/target/f" | tr '\n' ' ')" "0 700 0 644 "
		is "$(ls -A "$T/target") $(cat "$T/target/f")" "f x"
	done
}

@test "what stands in the socket's place is not removed unless it is a dead socket" {
	mkdir -p -m 1777 "$T/sticky"
	stranger ln -s "$T/keys/token" "$T/sticky/link"
	stranger touch "$T/sticky/file"
	for f in link file; do
		out=$(timeout 20 "$O/bin/sandboxd" --listen "unix://$T/sticky/$f" --state-dir "$T/s4" 2>&1) && false
		stat "$T/sticky/$f" >/dev/null # of the link itself: a kernel may refuse to follow it here
	done
	is "$(cat "$T/keys/token")" "$TOKEN"
}

@test "files that the server reads for its operator are refused when others can write or read them" {
	cp "$T/keys/token" "$T/token-open" && chmod 644 "$T/token-open"
	out=$(timeout 20 "$O/bin/sandboxd" --listen "unix://$T/never" --state-dir "$T/s5" --token-file "$T/token-open" 2>&1) && false
	[[ $out == *"can be read by others"* ]]
	never grep -qF "$TOKEN" <<<"$out"
	out=$("$O/bin/sbx" --token-file "$T/token-open" ls 2>&1) && false
	never grep -qF "$TOKEN" <<<"$out"
}
