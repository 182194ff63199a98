#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The host gives cores to a program, as many do. It is root's and runs outside every sandbox; a guest that
# crashes must not have it started. For the moment of this test the host's core_pattern is ours: the program
# passes on nothing and writes down only who crashed, and only sandboxes count.
bats_require_minimum_version 1.5.0
load helper

setup_file() {
	attack_up u
	[ "$(id -u)" = 0 ] || return 0
	cat /proc/sys/kernel/core_pattern >"$T/was"
	printf '#!/bin/sh\ncat >/dev/null\n[ "$1" -lt 1879048192 ] || echo "$1 $2" >>%s/crashed\n' "$T" >"$T/handler"
	chmod 755 "$T/handler"
	: >"$T/crashed"
}
setup() { attack_setup; }
teardown() {
	attack_clean
	[ ! -s "$T/was" ] || cat "$T/was" >/proc/sys/kernel/core_pattern
}
teardown_file() { attack_down; }

# As every uid of a sandbox outside of one: the handler works.
outside() { setpriv --reuid 1879048200 --regid 1879048200 --clear-groups sh -c "ulimit -c $1; kill -SEGV \$\$" || true; }
crashed() { grep -c . "$T/crashed" || true; }

@test "a guest that crashes starts no program of the host, whatever it does to its limits" {
	on u
	id=$(new)
	echo "|$T/handler %u %e" >/proc/sys/kernel/core_pattern || skip "core_pattern cannot be changed here"
	outside 0
	await 10 eval '[ "$(crashed)" = 1 ]' # 0 is no protection
	for limit in '' 'ulimit -c 0;' 'ulimit -Hc 0;' 'ulimit -c unlimited;'; do
		guest "$id" "sh -c '$limit kill -SEGV \$\$'; sh -c '$limit kill -ABRT \$\$'; true" >/dev/null
	done
	outside 0 # and it still works, so that the others would have been seen
	await 10 eval '[ "$(crashed)" -ge 2 ]'
	is "$(crashed)" 2
	alive "$id"
}
