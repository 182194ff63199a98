# SPDX-License-Identifier: MIT
# A supervised server and mount in a folder of their own, and what must be equal before and after.

crash_start() {
	O=${SBX_BUILD:-$PWD/build}
	T=$(mktemp -d /var/tmp/sbx-crash.XXXXXX)
	export SBX_ENDPOINT=unix://$T/sock
	mkdir -p "$T/state" "$T/m"
	chmod 700 "$T/state"
	setsid scripts/supervise "$T/sandboxd.pid" "$T/sandboxd.log" "$O/bin/sandboxd" --listen "$SBX_ENDPOINT" \
		--state-dir "$T/state" 3>&- >/dev/null 2>&1 &
	crash_wait_server
	setsid scripts/supervise "$T/sbxfs.pid" "$T/sbxfs.log" "$O/bin/sbxfs" -f "$T/m" 3>&- >/dev/null 2>&1 &
	crash_wait 100 mountpoint -q "$T/m"
}

# crash_wait TENTHS COMMAND...
crash_wait() {
	local n=$1
	shift
	while ! "$@" >/dev/null 2>&1; do
		n=$((n - 1))
		[ "$n" -gt 0 ] || { echo "gave up waiting for: $*" >&2; return 1; }
		sleep 0.1
	done
}
api() { curl -sS --max-time 30 --unix-socket "$T/sock" "$@"; }
crash_healthy() { [ "$(api -o /dev/null -w '%{http_code}' http://localhost/v1/capabilities)" = 200 ]; }
crash_wait_server() { crash_wait 300 crash_healthy || { tail -n 20 "$T/sandboxd.log" >&2; return 1; }; }
# The supervised child, not the supervisor.
child_of() { pgrep -P "$(cat "$T/$1.pid")" | head -n1; }
broker_of() { pgrep -P "$(child_of sandboxd)" -f sbx-priv | head -n1; }

crash_stop() {
	local id
	if [ -n "${T:-}" ] && [ -d "$T" ]; then
		for id in $("$O/bin/sbx" ls --quiet 2>/dev/null); do "$O/bin/sbx" rm "$id" >/dev/null 2>&1; done
		[ -s "$T/sbxfs.pid" ] && kill "$(cat "$T/sbxfs.pid")" 2>/dev/null
		[ -s "$T/sandboxd.pid" ] && kill "$(cat "$T/sandboxd.pid")" 2>/dev/null
		crash_wait 150 test ! -e "$T/sandboxd.pid" || true
		mountpoint -q "$T/m" && fusermount3 -uz "$T/m"
		rm -rf --one-file-system "$T"
	fi
}

# Everything on the host that belongs to our sandboxes, counted: processes, cgroups, loop devices, folders.
leftovers() {
	local tag=$T/state
	echo "shims $(for p in $(pgrep -x sbx-shim; pgrep -x sbx-init; pgrep -x sbx-worker); do
		tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null; readlink "/proc/$p/exe"; done | grep -c "$O" || true)"
	echo "cgroups $(find /sys/fs/cgroup -type d -path '*sandboxd*' -name 'sbx_*' 2>/dev/null | wc -l)"
	echo "loops $(losetup -nO BACK-FILE 2>/dev/null | grep -c "$tag" || true)"
	echo "areas $(find "$tag/priv/areas" -mindepth 1 -maxdepth 1 -name 'sbx_*' 2>/dev/null | wc -l)"
	echo "mounts $(grep -c "$tag" /proc/self/mountinfo || true)"
}
# The background part of an end is awaited, then compared.
leftovers_settle() {
	local want=$1 n=150
	while [ "$(leftovers)" != "$want" ]; do
		n=$((n - 1))
		[ "$n" -gt 0 ] || { diff <(echo "$want") <(leftovers) >&2; return 1; }
		sleep 0.1
	done
}
