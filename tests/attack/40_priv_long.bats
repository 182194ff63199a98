#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A hostile front for longer (ATTACK_SECS=60), and beside it everything that the broker and its children open,
# make, rename, mount, while they serve it: nothing of the host but its state directory, its control groups, what
# the kernel itself shows, and the programs and the image that it was given.
load helper

setup() {
	attack_setup
	O=${SBX_BUILD:-$PWD/build}
	export SBX_LIBEXEC=$O/bin SBX_IMAGES=$O/images ATTACK_SECS=${ATTACK_SECS:-60}
	W=$(mktemp -d /var/tmp/sbx-attack.XXXXXX)
}
teardown() { [ -z "${W:-}" ] || rm -rf --one-file-system "$W"; }

@test "requests at random for a minute" {
	T='requests_at_random' "$O/tests/contract/test_priv_live"
}

@test "disks that are measured keep nobody waiting" {
	T='disks_that_are_measured*' "$O/tests/contract/test_disk"
}

# Lines of processes that still have the host's root: not those that have made another one theirs, or went into a
# sandbox's, nor their children.
with_hosts_root() {
	awk '/ (pivot_root|setns)(\(| resumed).*= 0$/ && (/pivot_root/ || /NEWNS/ || /resumed/) { inside[$1] = 1 }
		/ (clone|clone3|fork|vfork)(\(| resumed).*= [0-9]+/ { if (inside[$1]) inside[$NF] = 1 }
		!inside[$1]' "$1"
}
# A line of strace: PID CALL(AT<folder>, "name", …) = N<path>. Absolute names are taken as they are, others below
# the folder; a mount that is attached nowhere yet shows as /, and has just these names made in it, or as a volume
# lost+found taken from it.
opened() {
	sed -nE 's/^[0-9]+ +(open|openat|openat2|creat|mkdir|mkdirat|unlink|unlinkat|rename|renameat|renameat2|symlink|symlinkat|link|linkat|mknod|mknodat|chmod|chown|truncate)\(//p' |
		grep -vE '= -1 (ENOENT|EEXIST|ELOOP|ENOTDIR|EINVAL|EPERM|EACCES)' |
		grep -oE '(AT_FDCWD|[0-9]+<[^>]*>|^)(, )?"[^"]*"|^"[^"]*"' |
		sed -E 's/^AT_FDCWD(<[^>]*>)?, //; s/^[0-9]+<([^>]*)>, "([^/"][^"]*)"/"\1\/\2"/; s/^[0-9]+<[^>]*>, "(\/.*)"/"\1"/' |
		tr -d '"' | sort -u
}

@test "what the broker opens while a hostile front asks" {
	command -v strace >/dev/null || skip "needs strace"
	strace -o /dev/null true || skip "strace may not trace here"
	ATTACK_SECS=$((ATTACK_SECS / 3)) ATTACK_TRACE=$W/trace "$O/tests/contract/test_priv_live"
	[ "$(wc -l <"$W/trace")" -gt 1000 ]
	with_hosts_root "$W/trace" | opened >"$W/opened"
	[ "$(wc -l <"$W/opened")" -gt 20 ]
	state=$(grep -oE '/var/tmp/sbx-priv-[A-Za-z0-9]{6}/state' "$W/trace" | head -n 1)
	[ -n "$state" ]
	grep -vE "^($state(/|\$)|/proc(/|\$)|/sys(/|\$)|/dev(/|\$)|$O/|/etc/ld.so|/lib|/usr/lib|/etc/localtime\$|//(empty|empty\.d|upper|work|sys|lost\+found|\.)(/|\$)|/\$|\.\$|[^/])" "$W/opened" >"$W/outside" || true
	if [ -s "$W/outside" ]; then
		head -n 20 "$W/outside" >&2
		return 1
	fi
	never grep -q canary "$W/opened"
	# no process of a sandbox is moved into its group as a whole, for which every fork of the machine would wait
	grep -qE 'openat2?\([^"]*/n[0-9]+(/guest)?>, "tasks"|CLONE_INTO_CGROUP' "$W/trace"
	never grep -E 'openat2?\([^"]*/n[0-9]+[^"]*>, "(init/)?cgroup.procs", [^)]*O_WRONLY' "$W/trace"
}
