#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Another user of this machine, where what he does takes seconds.
load ../cli/helper

setup_file() {
	[ "$(id -u)" = 0 ] || skip "needs root, as who mounts for him has it"
	cli_start
}
teardown_file() {
	[ ! -s "$T/holds.pid" ] || kill -9 "$(cat "$T/holds.pid")" 2>/dev/null || true
	umount -l "$T/holds" 2>/dev/null || true
	cli_stop
}

@test "doctor does not wait for a mount that holds whoever asks it" {
	mkdir "$T/holds"
	cat >"$T/holds.py" <<-'PY'
		import ctypes, os, struct, sys
		f = os.open("/dev/fuse", os.O_RDWR)
		words = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % f
		if ctypes.CDLL(None).mount(b"sbxfs", sys.argv[1].encode(), b"fuse.sbxfs", 0, words):
		    sys.exit(1)
		asked = os.read(f, 1 << 20)
		out = struct.pack("<IIIIHHIIHHI", 7, 31, 0, 0, 12, 9, 1 << 16, 1, 32, 0, 0) + bytes(24)
		os.write(f, struct.pack("<IiQ", 16 + len(out), 0, struct.unpack_from("<Q", asked, 8)[0]) + out)
		open(sys.argv[2], "w").close()
		while True: os.read(f, 1 << 20) # and says nothing
	PY
	python3 "$T/holds.py" "$T/holds" "$T/holds.up" 3>&- &
	echo $! >"$T/holds.pid"
	cli_wait test -e "$T/holds.up"
	status=0
	timeout 60 "$O/bin/sbx" doctor >"$T/doctor" || status=$?
	[ "$status" -ne 124 ]
	grep -q "holds does not answer" "$T/doctor"
}
