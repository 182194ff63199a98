#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# System calls on the mount give what they give on a disk of this machine, but for what doc/limits.md lists.
load ../mount/lab

setup_file() { [ "$(id -u)" != 0 ] || lab_start; }
teardown_file() { lab_stop; }
setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	lab_setup
}

@test "system calls give what they give on a disk" {
	posix
}

@test "system calls give what they give on a disk: plain requests" {
	lab_again_stop
	lab_again http
	H=$T/m2/box/fs/sandbox/home
	posix http
}
