#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The README's tour, run as typed against a real mount; its printed output is the expectation.

load ../fs/helper

setup_file() { export SBX_BACKEND=linux; [ "$(id -u)" = 0 ] || export SBX_BACKEND=fake; fs_start; rmdir "$M/box"; }
teardown_file() { fs_stop; }

@test "every line of the tour prints what the README shows" {
	[ "$SBX_BACKEND" = linux ] || skip "the tour shows the isolated user and home; needs root"
	awk '/^<!-- tour/ { on = 1 } on && /^```$/ { exit } on && !/^```/ && !/^<!--/' README.md \
		>"$BATS_TEST_TMPDIR/tour"
	script=$BATS_TEST_TMPDIR/script
	sed -n 's/^\$ //p' "$BATS_TEST_TMPDIR/tour" | sed "s#M=/mnt/sandboxes#M=$M#" >"$script"
	grep -v '^\$ ' "$BATS_TEST_TMPDIR/tour" >"$BATS_TEST_TMPDIR/want"
	[ "$(wc -l <"$script")" -ge 10 ]
	timeout 60 bash "$script" >"$BATS_TEST_TMPDIR/got" 2>"$BATS_TEST_TMPDIR/err" || true
	diff -u "$BATS_TEST_TMPDIR/want" "$BATS_TEST_TMPDIR/got" || { cat "$BATS_TEST_TMPDIR/err"; false; }
}
