#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Trouble of the mount on real isolation: what becomes of writes that are under way when a disk is full, a
# sandbox ends or somebody is killed; and the mount over TCP and TLS, on a network that fails.
load ../crash/helper
load ../fs/helper

setup_file() {
	[ "$(id -u)" = 0 ] || return 0
	export SBX_BACKEND=linux TMPDIR=/var/tmp
	fs_start
	[ ! -s "$T/skip" ] || return 0
	cat >"$T/told.py" <<-'PY'
		# told(call, ...): 0, or the errno that it gave.
		import errno, os, sys, time
		def told(call, *args):
		    try: call(*args)
		    except OSError as e: return e.errno
		    return 0
		FULL = (errno.ENOSPC, errno.EDQUOT)
	PY
}
teardown_file() { fs_stop; }
setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	fs_setup
	export PYTHONPATH=$T PYTHONDONTWRITEBYTECODE=1
}
teardown() { [ -z "${RELAY:-}" ] || kill "$RELAY"; }

@test "a full disk is told at the write, fsync or close of the file it met, and only there" {
	echo '{"name":"tiny","disk_mb":64}' >"$M/create"
	timeout 120 python3 - "$M/tiny/home" "$H" <<-'PY'
		from told import *
		tiny, box = sys.argv[1:]
		def make(path): return os.open(path, os.O_RDWR | os.O_CREAT)
		big, small, other = make(tiny + "/big"), make(tiny + "/small"), make(box + "/other")
		for f in (small, other):
		    os.write(f, b"before"); os.fsync(f)
		os.write(big, b"k" * (8 << 20)); os.fsync(big)
		e = [next((r for r in (told(os.write, big, b"x" * (1 << 20)) for _ in range(200)) if r), 0)]
		e += [told(os.fsync, big)]
		assert any(r in FULL for r in e), e
		assert told(os.fsync, small) == 0 and told(os.close, small) == 0
		for _ in range(20): assert told(os.write, other, b"y" * (1 << 20)) == 0
		assert told(os.fsync, other) == 0 and told(os.close, other) == 0
		assert os.pread(big, 8 << 20, 0) == b"k" * (8 << 20)
		told(os.close, big)
		os.unlink(tiny + "/big")
		def fits():
		    try: f = make(tiny + "/again")
		    except OSError as e:
		        assert e.errno in FULL, e
		        return False
		    try:
		        return told(os.write, f, b"z" * (1 << 20)) == 0 and told(os.fsync, f) == 0
		    finally: told(os.close, f)
		end = time.monotonic() + 30
		while not fits(): assert time.monotonic() < end
	PY
	rmdir "$M/tiny"
}

@test "a file that is removed while it is written goes on; a sandbox that ends is told to its own files" {
	echo '{"name":"brief"}' >"$M/create"
	timeout 120 python3 - "$M/brief/home" "$H" "$T/sock" <<-'PY'
		from told import *
		import http.client, socket
		class C(http.client.HTTPConnection):
		    def connect(self): self.sock = socket.socket(socket.AF_UNIX); self.sock.connect(sys.argv[3])
		def api(method, path):
		    c = C("localhost"); c.request(method, "/v1" + path); r = c.getresponse(); r.read(); return r.status
		brief, box = sys.argv[1:3]
		def make(path): return os.open(path, os.O_RDWR | os.O_CREAT)
		gone, other = make(box + "/gone"), make(box + "/other2")
		for f in (gone, other): os.write(f, b"a")
		for _ in range(8): os.write(gone, b"g" * (1 << 20))
		assert api("DELETE", "/sandboxes/box/files?path=/sandbox/home/gone") == 204
		assert told(os.write, gone, b"g" * (1 << 20)) == 0 and told(os.fsync, gone) == 0
		assert os.fstat(gone).st_size == (9 << 20) + 1 and told(os.close, gone) == 0
		f = make(brief + "/f"); os.write(f, b"a")
		for _ in range(8): os.write(f, b"g" * (1 << 20))
		assert api("DELETE", "/sandboxes/brief") == 204
		e = [told(os.write, f, b"g" * (1 << 20)) for _ in range(3)] + [told(os.fsync, f), told(os.close, f)]
		assert any(e), e
		assert not set(e) - {0, errno.ESTALE, errno.ENOENT, errno.EIO}, e
		assert told(os.write, other, b"b" * 5000000) == 0 and told(os.fsync, other) == 0 and told(os.close, other) == 0
	PY
}

@test "a server killed under writes: each file is told, or holds all of it" {
	cat >"$T/w.py" <<-'PY'
		from told import *
		path, go = sys.argv[1:]
		files = [os.open(path + str(n), os.O_RDWR | os.O_CREAT) for n in range(4)]
		quiet = os.open(path + "quiet", os.O_RDWR | os.O_CREAT)
		os.write(quiet, b"q"); os.fsync(quiet)
		for f in files: os.write(f, b"0")
		open(go, "w").close()
		e, size = [0] * 4, [1] * 4
		end = time.monotonic() + 3
		while time.monotonic() < end:
		    for n, f in enumerate(files):
		        if e[n]: continue
		        e[n] = told(os.write, f, bytes([size[n] % 251]) * 100000)
		        size[n] += 100000 if not e[n] else 0
		for n, f in enumerate(files):
		    s = told(os.fsync, f); c = told(os.close, f)
		    print(n, size[n], e[n] or s or c)
		print("quiet", told(os.close, quiet))
	PY
	timeout 120 python3 "$T/w.py" "$H/k" "$T/go" >"$T/host/k" &
	w=$!
	fs_wait test -e "$T/go"
	sleep 0.5
	kill -9 "$(cat "$T/pid")"
	fs_wait fs_gone "$(cat "$T/pid")"
	fs_server
	wait $w
	fs_wait cat "$B/state"
	grep -q 'quiet 0' "$T/host/k"
	grep -v quiet "$T/host/k" | while read -r n size err; do
		[ "$err" != 0 ] || same "$(guest "wc -c < /sandbox/home/k$n")" "$size"
	done
}

# acked VICTIM: writes records, each with fsync, until VICTIM is killed; their number.
acked() {
	cat >"$T/a.py" <<-'PY'
		from told import *
		f = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC); n = 0
		out = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
		while not told(os.write, f, b"%08d" % n * 512 * 3) and not told(os.fsync, f):
		    n += 1
		    os.pwrite(out, b"%d" % n, 0)
	PY
	rm -f "$T/host/acked"
	timeout 60 python3 "$T/a.py" "$1" "$T/host/acked" 2>/dev/null &
	local w=$!
	fs_wait sh -c "[ \"\$(cat '$T/host/acked')\" -ge 20 ]"
	kill -9 "$2"
	wait $w || true
	fs_wait fs_gone "$2"
}
# What was acknowledged is there: records in /data/a of a sandbox.
holds() {
	local n
	n=$(cat "$T/host/acked")
	[ "$n" -ge 20 ]
	js POST "/sandboxes/$1/run" "$(jq -cn '{argv:["sh","-c","cat /data/a"],timeout_secs:60}')" |
		jq -r .stdout | base64 -d | python3 -c '
import sys
n = int(sys.argv[1]); d = sys.stdin.buffer.read()
assert d[:n * 12288] == b"".join(b"%08d" % i * 1536 for i in range(n)), (n, len(d))' "$n"
}

@test "what fsync acknowledged outlives kill -9 of the mount, of the server and of the worker" {
	js POST /volumes '{"name":"v","size_mb":64}' >/dev/null
	box() { js POST /sandboxes '{"name":"vol","volumes":[{"name":"v","path":"/data"}]}' | jq -r .id; }
	id=$(box)
	acked "$M/vol/fs/data/a" "$(cat "$T/fspid")"
	cd /
	fs_mount
	same "$(grep -c " $M " /proc/self/mountinfo)" 1
	holds vol
	acked "$M/vol/fs/data/a" "$(cat "$T/pid")"
	fs_server
	fs_wait cat "$M/vol/state"
	holds vol
	acked "$M/vol/fs/data/a" "$(process_of "$id" worker)"
	ended() { [ "$(api GET "/sandboxes/$id" | jq -r .state)" = terminated ]; }
	fs_wait ended
	id2=$(box)
	holds "$id2"
	api DELETE "/sandboxes/$id2"
	api DELETE /volumes/v
}

@test "reads of many threads: a server that is killed spoils none, a worker that stands still leaves them killable" {
	cat >"$T/r.py" <<-'PY'
		import os, random, sys, threading, time
		path, out = sys.argv[1:]
		f = os.open(path, os.O_RDONLY | os.O_DIRECT) # each read is a request
		good, bad = [0] * 8, []
		def reads(n):
		    r = random.Random(n)
		    while True:
		        at, size = r.randrange(1900), r.choice((4096, 4096, 65536, 200000))
		        try: d = os.pread(f, size, at * 4096)
		        except OSError: time.sleep(0.01); continue
		        if d != b"".join(b"%08d" % i * 512 for i in range(at, at + 49))[:size]: bad.append(at)
		        good[n] += 1
		for n in range(8): threading.Thread(target=reads, args=(n,), daemon=True).start()
		while True:
		    with open(out + ".new", "w") as o: print(min(good), len(bad), file=o)
		    os.rename(out + ".new", out)
		    time.sleep(0.05)
	PY
	python3 -c 'import sys; open(sys.argv[1], "wb").write(b"".join(b"%08d" % i * 512 for i in range(2000)))' "$H/pages"
	worker=$(process_of "$(api GET /sandboxes/box | jq -r .id)" worker)
	python3 "$T/r.py" "$H/pages" "$T/host/reads" &
	r=$!
	goes_on() { [ "$(cut -d' ' -f1 "$T/host/reads")" -gt "$1" ]; }
	fs_wait goes_on 50
	kill -9 "$(cat "$T/pid")"
	fs_wait fs_gone "$(cat "$T/pid")"
	fs_server
	fs_wait goes_on $(($(cut -d' ' -f1 "$T/host/reads") + 50))
	kill -STOP "$worker"
	kill -9 $r
	fs_wait fs_gone $r || { kill -CONT "$worker"; false; }
	kill -CONT "$worker"
	same "$(cut -d' ' -f2 "$T/host/reads")" 0
	fs_wait sh -c "[ \"\$(head -c 8 '$H/pages')\" = 00000000 ]"
	rm "$H/pages"
}

# over OPTIONS...: ends the server, starts it on TCP with a token, a relay before it, and mounts that.
over() {
	kill "$(cat "$T/pid")"
	fs_wait fs_gone "$(cat "$T/pid")"
	read -r port near < <(python3 -c '
import socket
s = [socket.create_server(("127.0.0.1", 0)) for _ in "ab"]
print(*(x.getsockname()[1] for x in s))')
	echo 'mount-token-of-this-test-0123456789' >"$T/token"
	chmod 600 "$T/token"
	echo pass >"$T/word"
	"$O/bin/sandboxd" --listen "127.0.0.1:$port" --token-file "$T/token" --state-dir "$T/state" "$@" \
		>>"$T/log" 2>&1 3>&- &
	echo $! >"$T/pid"
	python3 "$BATS_TEST_DIRNAME/../fs/liar.py" "127.0.0.1:$near" "127.0.0.1:$port" "$T/word" >>"$T/log" 2>&1 3>&- &
	RELAY=$!
	mkdir -p "$T/m4"
}
far_mount() { # SCHEME [SBXFS OPTIONS]
	local scheme=$1
	shift
	"$O/bin/sbxfs" -f --endpoint "$scheme://127.0.0.1:$near" --token-file "$T/token" "$@" -o timeout=1 "$T/m4" \
		>>"$T/fslog" 2>&1 3>&- &
	FAR=$!
	fs_wait mountpoint -q "$T/m4"
	fs_wait cat "$T/m4/box/state"
}
far_test() {
	local R=$T/m4/box/home
	head -c 5000000 /dev/urandom >"$T/host/r"
	cp "$T/host/r" "$R/far"
	cmp "$T/host/r" "$R/far"
	for i in $(seq 20); do echo "$i" >"$R/f$i"; same "$(cat "$R/f$i")" "$i"; done
	ls -l "$R" >/dev/null
	same "$(jq .files.connections "$T/m4/stats")" 1
	same "$(jq .files.plain "$T/m4/stats")" 0
	exec 5<"$R/far"
	echo hold >"$T/word"
	timeout -k 1 30 cat "$R/f1" >/dev/null 2>&1 || [ $? != 124 ]
	same "$(timeout 10 ls "$T/m4" | grep -c stats)" 1
	echo pass >"$T/word"
	fs_wait cmp "$T/host/r" "$R/far"
	cmp "$T/host/r" - <&5
	exec 5<&-
	echo cut >"$T/word"
	timeout -k 1 30 cat "$R/f1" >/dev/null 2>&1 || [ $? != 124 ]
	echo pass >"$T/word"
	fs_wait cmp "$T/host/r" "$R/far"
	kill $FAR
	fs_wait fs_gone $FAR
}

@test "over TCP with a token" {
	over
	far_mount http
	far_test
}

@test "over TLS with a token" {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test \
		-addext subjectAltName=IP:127.0.0.1 -keyout "$T/key.pem" -out "$T/cert.pem" 2>/dev/null
	chmod 600 "$T/key.pem"
	over --tls-cert "$T/cert.pem" --tls-key "$T/key.pem"
	far_mount https --ca "$T/cert.pem"
	far_test
	# Back to the socket, which the other mount has been waiting for.
	kill "$(cat "$T/pid")"
	fs_wait fs_gone "$(cat "$T/pid")"
	fs_server
	fs_wait grep -q running "$B/state"
}
