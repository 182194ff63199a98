#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The mount over files of an image. The first change copies them to the sandbox's own layer, and what
# somebody has open or stands in stays the same object.
load ../fs/helper

setup_file() {
	[ "$(id -u)" = 0 ] || return 0
	export SBX_BACKEND=linux TMPDIR=/var/tmp
	fs_start
}
teardown_file() { fs_stop; }
setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	fs_setup
}

@test "a shell in a folder of the image stays in it when it is changed for the first time" {
	cd "$H"
	echo one > a
	sleep 1.2
	same "$(ls -A)" a
	cd "$B/fs/etc"
	guest 'echo from inside > /sandbox/home/b'
	mkdir new
	sleep 1.2
	[ -d new ] && same "$(ls -d new)" new
	same "$(ls -A "$H" | tr '\n' ' ')" 'a b '
}

@test "files of the image take a link, a mode and more text" {
	cd "$B/fs/etc"
	ls >/dev/null
	ln passwd second
	same "$(stat -c %h passwd second | tr '\n' ' ')" '2 2 '
	echo more >> hostname
	same "$(tail -n 1 hostname)" more
	chmod 600 shells
	same "$(stat -c %a shells)" 600
}
