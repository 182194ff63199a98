#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A guest moves a folder down and up again all the time, while on this machine one program stands in it and follows a
# link, and another one looks where it is. The link climbs out of the tree from the upper place and not from the lower.
load ../fs/helper

setup_file() { fs_start; }
teardown_file() { fs_stop; }
setup() { fs_setup; }

@test "a link is never followed from another place than that for which it was told" {
	echo secret >"$T/host/secret"
	guest "mkdir -p t/1/2/3/4/5/6/7/8/c; ln -s ../../../../../../../../../../../..$T/host/secret t/1/2/3/4/5/6/7/8/c/l"
	start 'cd; while :; do mv t/1/2/3/4/5/6/7/8/c c; sleep 0.02; mv c t/1/2/3/4/5/6/7/8/c; sleep 0.02; done'
	cat >"$T/host/race.py" <<-'PY'
		import multiprocessing, os, sys, time
		home, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
		deep = home + "/t/1/2/3/4/5/6/7/8/c"

		def look():
		    while time.monotonic() < end:
		        for p in (home + "/c", deep):
		            try: os.stat(p)
		            except OSError: pass

		def follow():
		    tries = secrets = 0
		    while time.monotonic() < end:
		        try: d = os.open(deep, os.O_RDONLY)
		        except OSError: continue
		        for _ in range(2000):
		            tries += 1
		            try: f = os.open("l", os.O_RDONLY, dir_fd=d)
		            except OSError: continue
		            secrets += os.read(f, 100) == b"secret\n"
		            os.close(f)
		        os.close(d)
		    return tries > 1000, secrets

		looks = multiprocessing.Process(target=look)
		looks.start()
		print(*follow())
		looks.join()
	PY
	same "$(timeout 300 python3 "$T/host/race.py" "$H" "${LINK_SECS:-120}")" "True 0"
}
