#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A file under random operations of two processes on one mount, one on another and one in the guest, held
# against an array of bytes. `make model` does the same for as long as one likes.
load ../mount/lab

setup_file() { [ "$(id -u)" != 0 ] || lab_start; }
teardown_file() { lab_stop; }
setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	lab_setup
}

@test "random operations, in turns and at once: a small file" {
	model 7 2
}

@test "random operations, in turns and at once: a large file" {
	model 7 17
}

@test "random operations, another seed each time" {
	model 7
}

@test "random operations, the other mount goes the plain way" {
	lab_again_stop
	lab_again http
	model 7
}
