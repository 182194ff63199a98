#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Published suites on the mount, in short; `make suites` runs them in full.
load ../mount/lab

setup_file() { [ "$(id -u)" != 0 ] || lab_start; }
teardown_file() { lab_stop; }
setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	lab_setup
}

@test "fio: what was written is read back, by each way of reading and writing" {
	command -v fio >/dev/null || skip "there is no fio"
	fio_short 2m
}

@test "dbench: a file server's load" {
	command -v dbench >/dev/null || skip "there is no dbench"
	dbench_row 3 2
}

@test "bonnie++: sequential and random" {
	command -v bonnie++ >/dev/null || skip "there is no bonnie++"
	bonnie_row 16 0 -f
}

@test "stress-ng: locks, holes, names and attributes" {
	command -v stress-ng >/dev/null || skip "there is no stress-ng"
	for s in fpunch filename xattr lockofd rename; do stress_row "$s" 1; done
}
