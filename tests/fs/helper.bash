# SPDX-License-Identifier: MIT
# A server and a mount in a folder of their own for one file of scenarios. SBX_BACKEND=linux runs the
# same on real isolation. SBX_FS_PROTO=http or auto picks the way of requests about guest files. Where there is no fuse, every scenario is skipped with the reason.

fs_start() {
	O=${SBX_BUILD:-$PWD/build}
	T=$(mktemp -d "${TMPDIR:-/tmp}/sbx-fs.XXXXXX")
	M=$T/m
	export O T M SBX_ENDPOINT=unix://$T/sock HOME=$T GIT_CONFIG_GLOBAL=$T/gitconfig GIT_CONFIG_NOSYSTEM=1
	unset SBX_TOKEN SBX_TOKEN_FILE SBX_CA
	mkdir -p "$M" "$T/host"
	mkdir -m 700 "$T/state"
	# Under ids=raw git asks before it trusts a tree of somebody else.
	printf '[safe]\n\tdirectory = *\n[user]\n\tname = n\n\temail = a@b\n' >"$T/gitconfig"
	[ -c /dev/fuse ] || { echo "there is no /dev/fuse" >"$T/skip"; return 0; }
	fs_server "$@"
	fs_mount
	mkdir "$M/box"
}
fs_server() {
	local backend=${SBX_BACKEND:-fake}
	"$O/bin/sandboxd" --backend "$backend" --listen "$SBX_ENDPOINT" --state-dir "$T/state" "$@" \
		>>"$T/log" 2>&1 3>&- &
	echo $! >"$T/pid"
	fs_wait fs_up || { tail -n 20 "$T/log" >&2; return 1; }
}
fs_up() { curl -fsS --max-time $((2 * ${SLOW:-1})) --unix-socket "$T/sock" http://localhost/v1/health; }
fs_mount() {
	"$O/bin/sbxfs" -f -o "proto=${SBX_FS_PROTO:-auto}" "$@" "$M" >>"$T/fslog" 2>&1 3>&- &
	echo $! >"$T/fspid"
	fs_wait mountpoint -q "$M" || { tail -n 20 "$T/fslog" >&2; return 1; }
}
fs_setup() {
	[ ! -s "$T/skip" ] || skip "$(cat "$T/skip")"
	B=$M/box
	H=$B/fs/sandbox/home
	cd "$T/host" || return 1
}
# Ends the mount first: a server that is gone must not be waited for.
fs_stop() {
	cd /
	[ -n "${T:-}" ] && [ -d "$T" ] || return 0
	for id in $(api GET /sandboxes 2>/dev/null | jq -r '.sandboxes[] | select(.state != "terminated") | .id'); do
		api DELETE "/sandboxes/$id" >/dev/null 2>&1
	done
	for p in fspid pid; do
		[ -s "$T/$p" ] || continue
		kill "$(cat "$T/$p")" 2>/dev/null
		kill -CONT "$(cat "$T/$p")" 2>/dev/null
		fs_wait fs_gone "$(cat "$T/$p")" || kill -9 "$(cat "$T/$p")" 2>/dev/null
	done
	mountpoint -q "$M" 2>/dev/null && fusermount3 -uz "$M"
	rm -rf --one-file-system "$T"
}
fs_gone() { ! kill -0 "$1" 2>/dev/null; }
# fs_wait COMMAND...: until it succeeds, thirty seconds at most, FS_SLOW times as long under a sanitizer, SLOW times on a slow machine.
fs_wait() {
	local n=$((600 * ${FS_SLOW:-${SLOW:-1}}))
	while ! "$@" >/dev/null 2>&1; do
		n=$((n - 1))
		[ "$n" -gt 0 ] || return 1
		sleep 0.05
	done
}
# What the other side does: through the API, never through the mount.
api() {
	local m=$1 p=$2
	shift 2
	curl -sS --max-time $((30 * ${SLOW:-1})) --unix-socket "$T/sock" -X "$m" "$@" "http://localhost/v1$p"
}
js() { api "$1" "$2" -H 'Content-Type: application/json' --data-binary "$3"; }
guest() {
	js POST /sandboxes/box/run "$(jq -cn --arg c "$1" '{argv:["sh","-c",$c],timeout_secs:60}')" |
		jq -r .stdout | base64 -d
}
start() { js POST /sandboxes/box/processes "$(jq -cn --arg c "$1" '{argv:["sh","-c",$c]}')" | jq -r .pid; }
# same A B: equal texts, or both are shown.
same() { [ "$1" = "$2" ] || { printf 'got:  %q\nwant: %q\n' "$1" "$2"; return 1; }; }
# refused ERRNO-TEXT COMMAND...: it fails, and the tool says why.
refused() {
	local want=$1 out
	shift
	if out=$(LC_ALL=C "$@" 2>&1); then echo "succeeded: $*"; return 1; fi
	[[ $out == *"$want"* ]] || { echo "said: $out"; return 1; }
}
# fs_second [OPTIONS...]: a second mount, at $M2, with $B2 and $H2 as the first has them.
fs_second() {
	M2=$T/m2 B2=$T/m2/box H2=$T/m2/box/fs/sandbox/home
	mkdir -p "$M2"
	"$O/bin/sbxfs" -f -o "proto=${SBX_FS_PROTO:-auto}" "$@" "$M2" >>"$T/fslog" 2>&1 3>&- &
	echo $! >"$T/fspid2"
	fs_wait mountpoint -q "$M2" || { tail -n 20 "$T/fslog" >&2; return 1; }
}
# By signal: another mount namespace of this machine may hold a copy of the mount for a while.
fs_second_end() {
	[ -s "$T/fspid2" ] || return 0
	kill "$(cat "$T/fspid2")" 2>/dev/null
	fs_wait fs_gone "$(cat "$T/fspid2")" || kill -9 "$(cat "$T/fspid2")" 2>/dev/null
	rm -f "$T/fspid2"
	mountpoint -q "$T/m2" 2>/dev/null && fusermount3 -uz "$T/m2"
	return 0
}
# hand_start: tests/linux/hand.c inside, behind port 7000, and what tests/linux/hand.py needs to ask it.
hand_start() {
	export B H H2 DIR=/sandbox/home
	cp "$O/tests/linux/hand" "$H/hand"
	chmod 755 "$H/hand"
	start 'exec /sandbox/home/hand 7000' >"$T/hand"
	[ -d "$B/ports/7000" ] || mkdir "$B/ports/7000"
	export PYTHONPATH=$BATS_TEST_DIRNAME:$BATS_TEST_DIRNAME/../linux PYTHONDONTWRITEBYTECODE=1
}
