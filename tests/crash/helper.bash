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

# crash_wait TENTHS COMMAND...; SLOW times as long
crash_wait() {
	local n=$(($1 * ${SLOW:-1}))
	shift
	while ! "$@" >/dev/null 2>&1; do
		n=$((n - 1))
		[ "$n" -gt 0 ] || { echo "gave up waiting for: $*" >&2; return 1; }
		sleep 0.1
	done
}
api() { curl -sS --max-time $((30 * ${SLOW:-1})) --unix-socket "$T/sock" "$@"; }
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

# The pid of a sandbox's shim, from the broker's record of it: magic, block, generation, pid.
shim_of() { od -An -t d4 -j 16 -N 4 "$T/state/priv/boxes/$1" | tr -d ' '; }
# The control group of a sandbox in the hierarchy that all modes have.
group_of() {
	local top
	top=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
	sed -n 's/^0:://p' "/proc/$(shim_of "$1")/cgroup" | sed "s#/svc\$##; s#^#$top#"
}
# The pid of one of a sandbox's processes: shim, init or worker.
process_of() {
	local p
	for p in $(find "$(group_of "$1")" -name cgroup.procs -exec cat {} +); do
		[ "$(tr '\0' '\n' <"/proc/$p/cmdline" | head -n1)" = "sbx-$2" ] && echo "$p" && return
	done
	return 1
}
# A first sandbox makes the server keep its spare ones; what there is then is the measure.
crash_prime() {
	local id
	id=$(new)
	root=$(dirname "$(group_of "$id")")
	api -X DELETE "http://localhost/v1/sandboxes/$id"
	sleep 1
}
# Everything on the host that belongs to this server, counted.
leftovers() {
	echo "processes $(find "$root" -name cgroup.procs -exec cat {} + 2>/dev/null | wc -l)"
	echo "groups $(find /sys/fs/cgroup -type d -path "*/$(basename "$root")/*" | wc -l)"
	echo "loops $(losetup -nO BACK-FILE 2>/dev/null | grep -c "$T/state" || true)"
	# where the provider keeps them: a pool is mounted in the broker's namespace only
	echo "areas $(find "$T/state/priv/areas" "/proc/$(broker_of)/root$T/state/priv/pool/areas" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)"
	echo "boxes $(find "$T/state/priv/boxes" -mindepth 1 -maxdepth 1 -name 'sbx_*' | wc -l)"
	echo "mounts $(grep -c "$T/state" /proc/self/mountinfo || true)"
}
# Nothing more than `want`: fewer is spare sandboxes that are not there yet. The background part of an
# end is awaited.
leftovers_settle() {
	local want=$1 n=$((60 * ${SLOW:-1}))
	while ! paste -d' ' <(echo "$want") <(leftovers) | awk '$4 > $2 { exit 1 }'; do
		n=$((n - 1))
		[ "$n" -gt 0 ] || { diff <(echo "$want") <(leftovers) >&2; return 1; }
		sleep 0.1
	done
}
