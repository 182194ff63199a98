#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Many files, entries, open files and threads, and large ones, with the memory of sbxfs; `make large` takes a
# million.
load ../mount/lab

setup_file() { [ "$(id -u)" != 0 ] || lab_start; }
teardown_file() { lab_stop; }
setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	lab_setup
}

@test "a tree of 10,000 files, and the memory given back" {
	tree_row 10000
}

@test "a directory of 5,000 entries" {
	entries_row 5000
}

@test "a sparse file of 100 GiB" {
	sparse_row 100
}

@test "2,000 open files" {
	open_row 2000
}

@test "64 threads" {
	threads_row 64 6
}

@test "requests of 1 MiB" {
	requests_row
}
