#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# fs/ as a POSIX file system: what tools do on a local disk, they do here (MNT-1 to MNT-6, MNT-8).

load helper
setup_file() { fs_start; }
teardown_file() { fs_stop; }
setup() {
	fs_setup
	W=$H/$BATS_TEST_NUMBER
	mkdir -p "$W"
	cd "$W" || return 1
	inside="cd /sandbox/home/$BATS_TEST_NUMBER 2>/dev/null || cd $BATS_TEST_NUMBER"
}

@test "save by rename, the way editors do it" {
	echo x > .part; mv .part f; same "$(cat f)" x
	: > f; exec 7<>f; echo first >&7; mv f g; echo second >&7; exec 7>&-
	same "$(cat g)" "$(printf 'first\nsecond')"
	mkdir -p d/e; echo in > d/e/i; mv d d2; echo more >> d2/e/i
	same "$(cat d2/e/i)" "$(printf 'in\nmore')"
	[ ! -e d ]
	(for i in $(seq 100); do echo "v$i" > .t; sync .t; mv .t cur; done) &
	w=$! fails=0
	while kill -0 $w 2>/dev/null; do
		cat cur >/dev/null 2>&1 || { [ -e cur ] && fails=$((fails + 1)); }
	done
	[ "$fails" -le 1 ] # a miss before the first round
	same "$(guest "$inside; cat g cur")" "$(printf 'first\nsecond\nv100')"
	[ "$(df . | awk 'NR == 2 { print $2 }')" -gt 0 ]
}

@test "vim rewrites a file and leaves nothing behind" {
	command -v vim >/dev/null || skip "there is no vim"
	printf 'one\n' > v.txt
	vim -u NONE -es -c 's/one/two/' -c wq v.txt
	same "$(cat v.txt)" two
	same "$(ls -A)" v.txt
	sed -i s/two/three/ v.txt
	same "$(cat v.txt) $(ls -A)" "three v.txt"
}

@test "writing something shorter leaves no tail" {
	seq 500 > t; same "$(stat -c %s t)" 1892
	echo short > t; same "$(stat -c %s t) $(cat t)" "6 short"
	printf 0123456789 > u; : > u; echo x >> u; same "$(od -An -c u)" "$(printf 'x\n' | od -An -c)"
	printf 0123456789 > w; truncate -s 4 w; truncate -s 8 w
	same "$(od -An -tx1 w)" " 30 31 32 33 00 00 00 00"
	python3 - <<'PY'
import os
f = os.open("y", os.O_RDWR | os.O_CREAT, 0o644); os.write(f, b"0123456789"); os.ftruncate(f, 3)
assert (os.fstat(f).st_size, os.pread(f, 20, 0)) == (3, b"012")
os.lseek(f, 0, 2); os.write(f, b"Z"); assert os.pread(f, 20, 0) == b"012Z"
PY
	same "$(guest "$inside; cat y")" 012Z
}

@test "read-only files can be created, written by their maker, and removed" {
	(umask 333; echo hello > ro; same "$(cat ro) $(stat -c %a ro)" "hello 444"; rm -f ro; [ ! -e ro ])
	printf x > src; chmod 400 src; cp -p src dst; same "$(stat -c %a dst)" 400; rm -f dst
	printf '#!/bin/sh\necho ran\n' > x.sh; chmod +x x.sh; same "$(./x.sh)" ran
	ln x.sh y.sh; same "$(stat -c %h x.sh)" 2
	same "$(stat -c %i x.sh)" "$(stat -c %i y.sh)"
	same "$(guest "$inside; stat -c %a x.sh")" 755
}

@test "git: init, commit, amend, clone, gc, checkout" {
	git init -q r
	(cd r; seq 99 > s; git add s; git commit -qm 'a long first message'; echo 1 > s
		git commit -qam x --amend; same "$(git fsck --full 2>&1; git status --short)" "")
	git clone -q --no-hardlinks r c
	cd c
	for i in $(seq 6); do echo "$i" > n; git add n; git commit -qm "$i"; done
	git gc -q
	git checkout -q -b b HEAD~5
	same "$(git fsck --full --no-dangling 2>&1; git status --short; ls .git/*.lock 2>/dev/null)" ""
}

@test "appending appends" {
	uname > a; uname -r >> a; printf 3 >> a
	same "$(wc -l < a) $(tail -c1 a)" "2 3"
	for w in $(seq 8); do
		(for i in $(seq 50); do echo "w$w line $i ........................" >> log; done) &
	done
	wait
	same "$(wc -l < log) $(awk 'NF!=4' log | wc -l) $(sort log | uniq -d | wc -l)" "400 0 0"
	exec 8>>log; echo end >&8; truncate -s 0 log; echo again >&8; exec 8>&-
	same "$(cat log)" again
}

@test "what changed inside is what is read outside" {
	for i in $(seq 25); do
		n=$((RANDOM * 7 + 1))
		want=$(guest "$inside; head -c $n /dev/urandom > v; sha256sum < v")
		same "$(sha256sum < v)" "$want"
		same "$(sha256sum < v)" "$want"
	done
	guest "$inside; rm v; mkdir v"
	same "$(stat -c %F v)" directory
	guest "$inside; rmdir v"
	refused "No such file" ls v
}

@test "tail -f sees what is appended inside" {
	guest "$inside; touch grow"
	timeout 10 tail -n +1 -f grow > "$T/host/tail" &
	for i in 1 2 3; do guest "$inside; echo line $i >> grow"; done
	fs_wait grep -q 'line 3' "$T/host/tail"
	same "$(cat "$T/host/tail")" "$(printf 'line 1\nline 2\nline 3')"
	kill %1; wait || true
}

@test "what is written here is there inside, also while the file stays open" {
	exec 6> open; echo first >&6; echo second >&6
	fs_wait sh -c "curl -sS --unix-socket $T/sock 'http://localhost/v1/sandboxes/box/files?path=/sandbox/home/$BATS_TEST_NUMBER/open' | grep -q second"
	exec 6>&-
}

@test "a link made here to a path of the mount leads there, inside too" {
	echo text > f; mkdir d; echo deep > d/f
	ln -s "$PWD/f" abs; ln -s "$PWD/d" ../"$BATS_TEST_NUMBER"/dir; ln -s "$B/fs" root; ln -s "$B/fsx/f" near
	same "$(cat abs)$(cat dir/f)" textdeep
	target() { getfattr -h --only-values -n security.sbx.target "$1"; }
	same "$(target abs)" "/sandbox/home/$BATS_TEST_NUMBER/f"
	same "$(target root)" /
	same "$(target near)" "$B/fsx/f"
	same "$(realpath abs)" "$PWD/f"
}

@test "a link made inside does not lead to the host's files" {
	guest "$inside; ln -s /etc/hostname abs; ln -s ../../../etc/hostname rel; ln -s /proc/1/environ env
		ln -s /nowhere/x dangling; mkdir s; ln -s / s/root; ln -s loop loop; ln -s . here
		ln -s here/../../../../../../etc/hostname climb; ln -s ../../../../../../../../etc/hostname far"
	guest "echo of-the-guest > /etc/hostname 2>/dev/null" >/dev/null
	mkdir -p "$B/fs/etc"; echo of-the-guest > "$B/fs/etc/hostname"
	for l in abs rel s/root/etc/hostname climb far; do
		same "$(timeout 5 cat "$l")" of-the-guest
	done
	same "$(readlink abs)" ../../../etc/hostname
	same "$(stat -c %s abs)" 21
	same "$(getfattr -h --only-values -n security.sbx.target abs)" /etc/hostname
	refused "" cat env
	refused "No such file" bash -c 'echo pwned > dangling'
	[ ! -e /nowhere ]
	refused "Too many levels" cat loop
	same "$(readlink "$(guest "$inside; ln -s plain-name l1; echo l1")")" plain-name
	rm -r s
	[ -d "$B/fs/etc" ]
}

@test "times and modes stay as they are set" {
	cd "$T/host"
	mkdir -p src/sub; for i in $(seq 50); do echo "$i" > "src/sub/$i"; done
	touch -d '2001-02-03 04:05:06.789' src/sub/7; ln -s 7 src/sub/l; chmod 640 src/sub/9
	rsync -a src/ "$W/dst/"
	same "$(rsync -ai src/ "$W/dst/" | wc -l)" 0
	same "$(stat -c '%.3Y %a' "$W/dst/sub/7")" "$(stat -c '%.3Y %a' src/sub/7)"
	tar cf a.tar src; tar xpf a.tar -C "$W"; diff -r src "$W/src"
	cp -a src "$W/cp"; diff -r src "$W/cp"
	cd "$W"
	echo a > m; sleep 0.02; echo b > m2; [ m2 -nt m ]
	touch -r m m2; [ ! m2 -nt m ]; sleep 0.5; [ ! m2 -nt m ]
	touch -d '1969-12-31 23:59:58.5 UTC' old; same "$(stat -c %.1Y old)" -1.5
}

@test "an unlinked open file lives on" {
	python3 - <<'PY'
import os
f = os.open("gone", os.O_RDWR | os.O_CREAT, 0o600)
os.write(f, b"before"); os.unlink("gone"); os.write(f, b" after")
assert os.pread(f, 100, 0) == b"before after"
assert os.fstat(f).st_size == 12 and os.fstat(f).st_nlink == 0
os.ftruncate(f, 3); assert os.pread(f, 100, 0) == b"bef"
PY
	[ ! -e gone ]
	exec 5< <(:)
	echo data > x; exec 5< x; guest "$inside; rm x"; same "$(cat <&5)" data; exec 5<&-
}

@test "rename over, exclusive create, rename flags, directories" {
	echo a > a; echo b > b; mv a b; same "$(cat b)" a
	python3 - <<'PY'
import os, ctypes
os.close(os.open("e", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
try: os.open("e", os.O_CREAT | os.O_EXCL | os.O_WRONLY); raise SystemExit("made twice")
except FileExistsError: pass
libc = ctypes.CDLL(None, use_errno=True)
def rename2(a, b, flags): return libc.renameat2(-100, a, -100, b, flags), ctypes.get_errno()
open("p", "w").write("p"); open("q", "w").write("q")
assert rename2(b"p", b"q", 1) == (-1, 17)
assert rename2(b"p", b"q", 2)[0] == 0 and open("p").read() == "q" and open("q").read() == "p"
PY
	mkdir full; touch full/f
	refused "not empty" rmdir full
	refused "Is a directory" sh -c 'cat full'
	refused "Not a directory" ls b/x
	mkdir empty; mv -T empty full 2>/dev/null && false
	refused "File name too long" touch "$(printf 'n%.0s' $(seq 300))"
	refused "Invalid cross-device" python3 -c 'import os,sys; os.rename("b", sys.argv[1])' "$T/host/b"
	refused "Operation not permitted" python3 -c 'import os,sys; os.rename("b", sys.argv[1])' "$B/labels/b"
}

@test "mmap, holes, copies, fallocate, fifo, xattrs, fsync" {
	python3 - <<'PY'
import mmap, os
f = os.open("m", os.O_RDWR | os.O_CREAT, 0o644); os.ftruncate(f, 8192)
m = mmap.mmap(f, 8192); m[4096:4100] = b"mmap"; m.flush(); m.close(); os.fsync(f); os.fdatasync(f)
assert os.pread(f, 4, 4096) == b"mmap"
h = os.open("h", os.O_RDWR | os.O_CREAT); os.pwrite(h, b"end", 10 << 20)
assert os.fstat(h).st_size == (10 << 20) + 3 and os.fstat(h).st_blocks < 2048
assert os.lseek(h, 0, os.SEEK_HOLE) == 0
g = os.open("cp", os.O_RDWR | os.O_CREAT)
assert os.copy_file_range(f, g, 8192) == 8192 and os.pread(g, 4, 4096) == b"mmap"
os.posix_fallocate(g, 0, 20000); assert os.fstat(g).st_size == 20000
d = os.open(".", os.O_RDONLY); os.fsync(d)
os.mkfifo("fifo"); assert os.stat("fifo").st_mode & 0o170000 == 0o010000
try: os.setxattr("m", "user.a", b"1\0\xff")
except OSError as e: assert e.errno == 95
else:
    assert os.getxattr("m", "user.a") == b"1\0\xff" and "user.a" in os.listxattr("m")
    os.removexattr("m", "user.a"); assert "user.a" not in os.listxattr("m")
PY
	same "$(guest "$inside; stat -c %s h; od -An -c -j4096 -N4 m | tr -d ' '")" "$(printf '10485763\nmmap')"
}

@test "names are bytes" {
	names() { python3 -c 'import os; print(sorted(os.listdir(b".")))'; }
	python3 - <<'PY'
import os
for n in (b"a b", b"tab\tx", b"new\nline", b'quote"back\\slash', b"bad\377one", b"bad\376two", "ü€😀".encode(), b"%41", b"#?&+=", b"n" * 255):
    with open(n, "wb") as f: f.write(n)
for n in os.listdir(b"."):
    assert open(n, "rb").read() == n, n
    os.rename(n, n[:250] + b".x"); os.stat(n[:250] + b".x")
PY
	same "$(names | tr ',' '\n' | wc -l)" 10
	same "$(guest "$inside; find . -mindepth 1 -print0 | tr -cd '\000' | wc -c" | tr -d ' ')" 10
	python3 -c 'import os; [os.unlink(n) for n in os.listdir(b".")]'
	same "$(ls -A)" ""
}

@test "many entries" {
	guest "$inside; mkdir many; cd many; i=0; while [ \$i -lt 3000 ]; do : > f\$i; i=\$((i+1)); done"
	same "$(ls many | wc -l)" 3000
	same "$(ls -l many | wc -l)" 3001
	same "$(find many -type f | sort -u | wc -l)" 3000
	rm -r many
}

@test "who reads on in a directory that was opened before does not bring back what was" {
	mkdir many
	guest "$inside; cd many; for i in \$(seq 3000); do echo 123456789 > f\$i; done" >/dev/null
	python3 - "$B/run" "$inside" <<'PY'
import os, sys
names = os.listdir("many")
changed, removed = names[-1], names[-2]
def stats(it, n):  # who asks about names gets the next ones with what is known of them
    for _, e in zip(range(n), it):
        os.path.exists(e.path)
def size():  # by reading alone, without a question about attributes
    fd = os.open("many/" + changed, os.O_RDONLY)
    n = len(os.read(fd, 1000))
    os.close(fd)
    return n
with os.scandir("many") as it:
    stats(it, 10)
    with open(sys.argv[1], "w") as run:
        run.write(sys.argv[2] + "; head -c 100 /dev/zero > many/" + changed + "\n")
    assert size() == 100
    os.unlink("many/" + removed)
    for e in it:
        if e.name not in (changed, removed):
            os.path.exists(e.path)
got = size()
assert got == 100, got
assert not os.path.exists("many/" + removed)
PY
	rm -r many
}

@test "large and small writes arrive whole" {
	head -c 20000000 /dev/urandom > "$T/host/big"
	cp "$T/host/big" big
	same "$(sha256sum < big)" "$(sha256sum < "$T/host/big")"
	dd if="$T/host/big" of=small bs=1000 count=2000 status=none
	same "$(sha256sum < small)" "$(head -c 2000000 "$T/host/big" | sha256sum)"
	dd if=big bs=777 skip=1000 count=50 status=none | cmp - <(dd if="$T/host/big" bs=777 skip=1000 count=50 status=none)
	same "$(guest "$inside; sha256sum < big")" "$(sha256sum < "$T/host/big")"
}

@test "random reads and writes against a model, from two open files and the guest's view" {
	python3 - <<'PY'
import os, random
random.seed(7)
model = bytearray()
a = os.open("fsx", os.O_RDWR | os.O_CREAT); b = os.open("fsx", os.O_RDWR)
def check(fd):
    assert os.fstat(fd).st_size == len(model), (os.fstat(fd).st_size, len(model))
for n in range(600):
    fd = random.choice((a, b)); op = random.randrange(6); off = random.randrange(200000); ln = random.randrange(1, 30000)
    if op < 2:
        data = random.randbytes(ln); assert os.pwrite(fd, data, off) == ln
        if len(model) < off: model.extend(bytes(off - len(model)))
        model[off:off + ln] = data
    elif op < 4: assert os.pread(fd, ln, off) == bytes(model[off:off + ln]), n
    elif op == 4:
        os.ftruncate(fd, off); model = model[:off] + bytes(max(0, off - len(model)))
    else: check(fd)
os.close(a); os.close(b)
assert open("fsx", "rb").read() == bytes(model)
PY
}

@test "what has no x bit is not executable" {
	echo x > f; [ ! -x f ]; chmod +x f; [ -x f ]
	refused "Permission denied" bash -c 'chmod -x f; ./f'
}
