#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The files API on real isolation: devices and system files, owners, and paths that a guest swaps
# while they are resolved. One sandbox for all scenarios.

setup_file() {
	[ "$(id -u)" = 0 ] || return 0
	export O=${SBX_BUILD:-$PWD/build} D
	D=$(mktemp -d /var/tmp/sbx-files.XXXXXX)
	"$O/bin/sandboxd" --listen "unix://$D/sock" --state-dir "$D/state" --no-keep-sandboxes \
		2>>"$D/log" 3>&- &
	echo $! >"$D/pid"
	for _ in $(seq $((1200 * ${SLOW:-1}))); do
		[ "$(api -o /dev/null -w '%{http_code}' /v1/health 2>/dev/null)" = 200 ] && break
		sleep 0.05
	done
	api -X POST -H 'Content-Type: application/json' -d '{"disk_mb":256}' /v1/sandboxes |
		jq -r .id >"$D/id"
}
setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	S=/v1/sandboxes/$(cat "$D/id")
}
teardown_file() {
	[ -n "${D:-}" ] || return 0
	kill "$(cat "$D/pid")"
	for _ in $(seq 400); do
		kill -0 "$(cat "$D/pid")" 2>/dev/null || break
		sleep 0.05
	done
	rm -rf --one-file-system "$D"
}
api() {
	local args=("$@") path=${*: -1}
	unset 'args[${#args[@]}-1]'
	curl -sS --max-time $((60 * ${SLOW:-1})) --unix-socket "$D/sock" "${args[@]}" "http://localhost$path"
}
code() { api -o /dev/null -w '%{http_code}' "$@"; }
put() { code -X PUT -H 'Content-Type: application/octet-stream' --data-binary "$2" "$S/files?path=$1"; }
get() { api "$S/files?path=$1"; }
guest() {
	api -X POST -H 'Content-Type: application/json' \
		-d "$(jq -n --arg c "$1" '{argv: ["sh", "-c", $c]}')" "$S/run" | jq -r .stdout | base64 -d
}

@test "pipes, devices and system files are refused at once, and nothing is written" {
	guest 'mkfifo pipe; ln -s pipe viapipe; ln -s /dev/zero z; ln -s /proc/kmsg k'
	for p in /sandbox/home/pipe /sandbox/home/viapipe /sandbox/home/z /sandbox/home/k /dev/zero \
		/dev/tty /dev/null /dev/ptmx /proc/kmsg /proc/cpuinfo /proc/sys/kernel/core_pattern; do
		run get "$p"
		[[ $output == *"not a regular file"* ]] || { echo "$p: $output"; false; }
		run put "$p" x
		[[ $output == 400 || $output == 403 ]] || { echo "put $p: $output"; false; }
	done
	[ "$(put /proc/new x)" = 403 ]
	[ "$(guest 'echo alive')" = alive ]
}

@test "links of procfs lead nowhere" {
	guest 'sleep 60 & ln -sf /proc/$!/root r; ln -sf /proc/$!/cwd c; ln -sf /proc/self/fd/0 f'
	for p in r/etc/hosts c/x f; do
		[[ $(code "$S/files?path=/sandbox/home/$p") == 4* ]]
		[[ $(put "/sandbox/home/$p" x) == 4* ]]
	done
}

@test "new files belong to the sandbox's user, root's stay root's" {
	[ "$(put /sandbox/home/n/m/f x)" = 204 ]
	[ "$(guest 'stat -c "%u %g %a" n n/m n/m/f')" = "$(printf '1001 1001 755\n1001 1001 755\n1001 1001 644')" ]
	[ "$(put /etc/hosts '127.0.0.1 here')" = 204 ]
	[ "$(guest 'stat -c "%u %a" /etc/hosts; cat /etc/hosts')" = "$(printf '0 644\n127.0.0.1 here')" ]
	[ "$(put /root/secret x)" = 204 ]
	[ "$(get /root/secret)" = x ]
}

@test "modes, owners and times of every kind of file are changed" {
	guest 'mkdir meta; : > meta/f; mkdir meta/d; mkfifo meta/p; ln -s f meta/l'
	ops() {
		api -X POST -H 'Content-Type: application/json' -d "{\"ops\":[$1]}" "$S/fs/ops" |
			jq -r '.results[] | .error.errno // "ok"' | tr '\n' ' '
	}
	for f in f d p; do
		[ "$(ops "{\"op\":\"chmod\",\"path\":\"/sandbox/home/meta/$f\",\"mode\":\"0700\"},
			{\"op\":\"utimes\",\"path\":\"/sandbox/home/meta/$f\",\"mtime\":\"86400.5\"},
			{\"op\":\"chown\",\"path\":\"/sandbox/home/meta/$f\",\"uid\":7,\"gid\":8}")" = "ok ok ok " ]
	done
	[ "$(ops '{"op":"utimes","path":"/sandbox/home/meta/l","mtime":"86400"},
		{"op":"chown","path":"/sandbox/home/meta/l","uid":7},
		{"op":"chmod","path":"/sandbox/home/meta/l","mode":"0700"}')" = "ok ok EOPNOTSUPP " ]
	[ "$(guest 'stat -c "%a %u %g %Y" meta/f meta/d meta/p')" = "$(yes '700 7 8 86400' | head -n 3)" ]
	[ "$(ops '{"op":"truncate","path":"/sandbox/home/meta/f","size":5},
		{"op":"mknod","path":"/sandbox/home/meta/dev","type":"chr"}')" = "ok EPERM " ]
}

@test "a directory swapped for a link outside never leads there" {
	mkdir -m 755 "$D/host"
	echo HOST >"$D/host/f"
	guest "mkdir -p d; echo GOOD > d/f; ln -s $D/host l"
	api -X POST -H 'Content-Type: application/json' -d "$(jq -n '{argv: ["sh", "-c",
		"while :; do mv -T d k; mv -T l d; mv -T d l; mv -T k d; done"], timeout_secs: 8}')" \
		"$S/run" >/dev/null &
	end=$(($(date +%s) + 5))
	while [ "$(date +%s)" -lt "$end" ]; do
		[[ $(get /sandbox/home/d/f) != HOST ]]
		put /sandbox/home/d/f GOOD >/dev/null
		put /sandbox/home/d/new GOOD >/dev/null
		code -X DELETE "$S/files?path=/sandbox/home/d/new" >/dev/null
		[[ $(api "$S/dirs?path=/sandbox/home/d") != *host* ]]
	done
	wait $!
	[ "$(ls "$D/host")" = f ]
	[ "$(cat "$D/host/f")" = HOST ]
}

@test "an upload that is cut short leaves the old file and no other" {
	guest 'mkdir u'
	[ "$(put /sandbox/home/u/f precious)" = 204 ]
	head -c 20000000 /dev/zero >"$D/big"
	timeout 0.5 curl -s -X PUT -H 'Content-Type: application/octet-stream' --limit-rate 4M \
		--unix-socket "$D/sock" --data-binary @"$D/big" "http://localhost$S/files?path=/sandbox/home/u/f" || true
	[ "$(get /sandbox/home/u/f)" = precious ]
	[ "$(guest 'ls -A u')" = f ]
}

@test "a full disk is 409 with its reason and changes nothing" {
	guest 'mkdir full; echo old > full/f; dd if=/dev/zero of=full/fill bs=1M 2>/dev/null; sync'
	head -c 20000000 /dev/zero >"$D/big"
	run api -X PUT -H 'Content-Type: application/octet-stream' --data-binary @"$D/big" \
		"$S/files?path=/sandbox/home/full/f"
	[[ $output == *'"conflict"'* && $output =~ \"(ENOSPC|EDQUOT)\" ]] || { echo "$output"; false; }
	[ "$(get /sandbox/home/full/f)" = old ]
	guest 'rm -r full'
}

@test "an upload that finds the disk full says which file it was" {
	guest 'head -c 300000000 /dev/zero > fill' >/dev/null
	head -c 3000000 /dev/zero >"$D/three"
	run api -X PUT -H 'Content-Type: application/octet-stream' --data-binary "@$D/three" \
		"$S/files?path=/sandbox/home/late"
	guest 'rm fill'
	[[ $output =~ /sandbox/home/late:\ (No\ space\ left\ on\ device|Disk\ quota\ exceeded) ]] || { echo "$output"; false; }
	[ "$(guest 'ls late 2>/dev/null')" = "" ]
}

@test "a listing of a tree remembers so many bytes, however long the guest's names are" {
	guest 'd=/tmp/wide; p=$(printf %0240d 0); for i in 1 2 3 4 5 6 7; do d=$d/$p; done
		mkdir -p $d && cd $d && seq 4500 | sed "s/^/$p/" | xargs mkdir && echo made' | grep made
	run api "$S/fs/list?path=/tmp/wide&depth=8"
	[[ ${lines[-1]} == *'"error"'*'too many directories'* ]]
	[ "${#lines[@]}" -gt 1000 ]
	guest 'rm -rf /tmp/wide'
	run api "$S/fs/list?path=/sandbox&depth=8"
	[[ ${lines[-1]} == '{"end":true}' ]]
}
