# SPDX-License-Identifier: MIT
# The rows of the model, the suites and large trees, for scenarios (small numbers) and for `run` (large
# ones). Each works on one sandbox of the linux backend at $H and says what it found; 1: not as it should be.
. "${BASH_SOURCE[0]%/*}/../fs/helper.bash"
HERE=$(cd "${BASH_SOURCE[0]%/*}" && pwd)

lab_start() {
	export SBX_BACKEND=linux TMPDIR=/var/tmp
	fs_start "$@" || return 1
	[ ! -s "$T/skip" ] || return 0
	mkdir "$T/m2" "$T/native" || return 1
	lab_again auto
}
# A second mount of the same server at $T/m2.
lab_again() { # PROTO
	"$O/bin/sbxfs" -f -o "proto=$1" "$T/m2" >>"$T/fslog2" 2>&1 3>&- &
	echo $! >"$T/fspid2"
	fs_wait mountpoint -q "$T/m2"
}
lab_again_stop() {
	[ -s "$T/fspid2" ] || return 0
	kill "$(cat "$T/fspid2")" 2>/dev/null
	fs_wait fs_gone "$(cat "$T/fspid2")" || kill -9 "$(cat "$T/fspid2")" 2>/dev/null
	mountpoint -q "$T/m2" && fusermount3 -uz "$T/m2"
	rm -f "$T/fspid2"
}
lab_stop() {
	[ -n "${T:-}" ] && [ -d "$T" ] || return 0
	lab_again_stop
	fs_stop
}
lab_setup() {
	fs_setup || return 1
	cd / || return 1
	W=$H/w
	rm -rf "$W"
	mkdir -p "$W"
}

# model SECONDS [SEED]: two processes on one mount, one on another, one in the guest.
model() {
	local log
	log=$(mktemp "${LOGS:-$T}/model.XXXXXX") || return 1
	[ -e "$H/model" ] || cp "$O/mount/model" "$H/model" || return 1
	"$O/mount/model" ${2:+-s "$2"} -t "$1" -l "$log" \
		"mount=$O/mount/model actor $W" "mount=$O/mount/model actor $W" \
		"other=$O/mount/model actor $T/m2/box/fs/sandbox/home/w" \
		"guest=$O/bin/sbx run box /sandbox/home/model actor /sandbox/home/w" || return 1
	rm -f "$log"
}

# posix [http]: the same rows here and on a disk of this machine.
posix() {
	rm -rf "$T/native/p" "$H/p"
	cat "$HERE/posix.known" ${1:+"$HERE/posix.$1"} >"$T/known" && mkdir "$T/native/p" "$H/p" &&
		"$O/mount/posix" "$T/native/p" "$H/p" "$T/known"
}

# fio_row ENGINE SIZE [OPTION...]: writes with a checksum in every block, then reads and compares.
fio_row() {
	local engine=$1 size=$2 out
	shift 2
	out=$(fio --name="$engine" --directory="$W" --ioengine="$engine" --size="$size" --verify=crc32c \
		--verify_fatal=1 --do_verify=1 --randrepeat=0 --fallocate=none --output-format=terse "$@" 2>&1) ||
		{ echo "fio $engine $*: $out"; return 1; }
	rm -f "$W"/*
}
fio_rows() { # SIZE
	fio_row psync "$1" --rw=randwrite --bs=4k &&
		fio_row psync "$1" --rw=randrw --bsrange=512-128k --bs_unaligned --numjobs=2 &&
		fio_row sync "$1" --rw=write --bs=1m --end_fsync=1 &&
		fio_row pvsync2 "$1" --rw=randrw --bs=16k --direct=1 &&
		fio_row mmap "$1" --rw=randwrite --bs=4k &&
		fio_row mmap "$1" --rw=randrw --bs=64k --numjobs=2 &&
		fio_row libaio "$1" --rw=randwrite --bs=16k --iodepth=16 --direct=1 &&
		fio_row libaio "$1" --rw=randrw --bs=4k --iodepth=8 &&
		fio_row posixaio "$1" --rw=randwrite --bs=32k --iodepth=8 &&
		{ ! fio_has io_uring || fio_row io_uring "$1" --rw=randrw --bs=8k --iodepth=16; } &&
		fio_row psync "$1" --rw=randwrite --bs=4k --fsync=16 --fallocate=posix
}
fio_short() { # SIZE
	fio_row psync "$1" --rw=randrw --bsrange=512-128k --bs_unaligned &&
		fio_row mmap "$1" --rw=randwrite --bs=4k &&
		fio_row libaio "$1" --rw=randwrite --bs=16k --iodepth=16 --direct=1 &&
		{ ! fio_has io_uring || fio_row io_uring "$1" --rw=randrw --bs=8k --iodepth=16; }
}
# Some hosts do not let anybody have it.
fio_has() {
	fio --name=has --directory="$T/native" --ioengine="$1" --size=64k --rw=write >/dev/null 2>&1
}
dbench_row() { # SECONDS CLIENTS
	dbench -D "$W" -t "$1" -c /usr/share/dbench/client.txt "$2" >"$T/dbench.out" 2>&1 &&
		grep -q '^ *Throughput' "$T/dbench.out" &&
		! grep -v 'barrier semaphore' "$T/dbench.out" | grep -qi 'failed\|error' ||
		{ tail -n 20 "$T/dbench.out"; return 1; }
	rm -rf "$W"/*
}
bonnie_row() { # MIB FILES (times 1024) [-f: not byte by byte]
	bonnie++ ${3:-} -q -d "$W" -u root -r "$(($1 / 2))" -s "$1" -n "$2" >"$T/bonnie.out" 2>&1 ||
		{ tail -n 20 "$T/bonnie.out"; return 1; }
	rm -rf "$W"/*
}
# Of Python's own suite (Debian's libpython3.11-testsuite, passed over where it is not) the programs about files.
# Not among them what goes by the text of an absolute link, by owners that a sandbox does not have, or by set-id
# bits: doc/limits.md.
PY_FILES="test_os test_posix test_shutil test_pathlib test_tarfile test_posixpath test_genericpath test_tempfile
test_mailbox test_dbm_dumb test_mmap test_largefile test_io test_file test_fileio test_fileinput test_glob
test_zipfile test_gzip test_fcntl test_filecmp test_shelve test_unicode_file test_unicode_file_functions"
PY_NOT="ReadlinkTests test_chown test_fchown test_lchown test_copytree_symlinks test_copytree_symlink_dir
test_copytree_dangling_symlinks test_posix_spawnp test_absolute_symlink test_parent_symlink test_sly_relative2
test_modes"
python_row() { # [PROGRAMS]
	local not=() n
	/usr/bin/python3 -c 'import test.test_os' 2>/dev/null || { echo "Python's suite is not here"; return 0; }
	for n in $PY_NOT; do not+=(-i "$n"); done
	# shellcheck disable=SC2086
	(cd "$W" && TMPDIR=$W PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -m test --tempdir "$W" "${not[@]}" ${1:-$PY_FILES}) \
		>"$T/python.out" 2>&1 || { tail -n 60 "$T/python.out"; return 1; }
	rm -rf "$W"/*
}
# Of stress-ng those about files that a FUSE file system can take part in. Not among them: what needs a block
# device or a file system of its own (chattr, file-ioctl, fiemap, verity, quota, swap, binderfs, umount).
STRESSORS="access aiol chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify fallocate fcntl filename
flock fpunch fstat getdent hdd inotify io iomix link locka lockf lockofd mknod msync open readahead rename revio
seek sendfile splice symlink sync-file touch utime xattr"
stress_row() { # STRESSOR SECONDS
	local out rc at=$W
	# The text of an absolute link is not shown as it is: doc/limits.md.
	[ "$1" != symlink ] || at=.
	out=$(cd "$W" && stress-ng --temp-path "$at" --verify --timeout "$2" "--$1" 2 --hdd-bytes 16m --fallocate-bytes 16m \
		--sync-file-bytes 16m --iomix-bytes 16m --seek-size 16m --readahead-bytes 16m --copy-file-bytes 128m \
		--revio-bytes 16m --sendfile-size 1m --msync-bytes 16m 2>&1)
	rc=$?
	rm -rf "$W"/*
	# 3: no room for it here, 4: not to be had here.
	[ $rc = 0 ] || [ $rc = 3 ] || [ $rc = 4 ] || { echo "stress-ng $1: status $rc"; tail -n 15 <<<"$out"; return 1; }
}

pss() { awk '/^Pss:/ { print $2 }' "/proc/$(cat "$T/fspid")/smaps_rollup"; }
known_inodes() { jq .inodes "$M/stats"; }
# Its kernel gives back what it holds of names; then sbxfs does.
forget() { sync; echo 2 >/proc/sys/vm/drop_caches; }
# given_back KIB INODES: no more than so much.
given_back() {
	forget
	[ "$(known_inodes)" -le "$2" ] && [ "$(pss)" -le "$1" ]
}
# tree_row FILES: so many in directories of a thousand, made by the guest; find and du see all of them.
tree_row() { tree_made 0 $(($1 / 1000)) && tree_walked "$1"; }
tree_made() { # FIRST LAST: directories, the last not among them
	local n
	for ((n = $1; n < $2; n += 10)); do
		SLOW=${SLOW:-4} guest "mkdir -p w/tree; cd w/tree; for d in \$(seq $n $((n + 9))); do mkdir \$d; (cd \$d; seq 1000 | xargs touch)
			done; echo made" | grep -q made || { echo "the guest made no tree"; return 1; }
	done
}
tree_walked() { # FILES
	local before after most=0 n p
	before=$(pss)
	find "$W/tree" -type f >"$T/found" & p=$!
	while kill -0 $p 2>/dev/null; do
		n=$(pss); [ "${n:-0}" -le "$most" ] || most=$n
		sleep 0.2
	done
	wait $p || return 1
	same "$(sort -u "$T/found" | wc -l)" "$1" || return 1
	du -s "$W/tree" >/dev/null || return 1
	same "$(find "$W/tree" -type f -size 0 | wc -l)" "$1" || return 1
	after=$(pss)
	[ "$after" -le "$most" ] || most=$after
	for ((n = 0; n < 3; n++)); do fs_wait given_back $((before + 24 * 1024)) 3000 && break; done
	given_back $((before + 24 * 1024)) 3000 || { echo "kept: $(pss) KiB, $(known_inodes) inodes"; return 1; }
	echo "tree of $1 files: sbxfs $before KiB before, at most $most, $(pss) after forgetting; known: $(known_inodes)"
	[ "$most" -le $((TREE_KIB)) ] || { echo "more than $TREE_KIB KiB"; return 1; }
}
TREE_KIB=$((352 * 1024)) # names and a listing, doc/limits.md
entries_row() { # ENTRIES of one directory
	local before most n
	for ((n = 1; n <= $1; n += 10000)); do
		SLOW=${SLOW:-4} guest "mkdir -p w/one; cd w/one; seq $n $((n + 9999 < $1 ? n + 9999 : $1)) | xargs touch; echo made" |
			grep -q made || { echo "the guest made no entries"; return 1; }
	done
	before=$(pss)
	same "$(ls -f "$W/one" | wc -l)" $(($1 + 2)) || return 1
	same "$(ls -l "$W/one" | wc -l)" $(($1 + 1)) || return 1
	most=$(pss)
	[ -e "$W/one/1" ] && [ -e "$W/one/$1" ] && [ ! -e "$W/one/0" ] || return 1
	guest "touch w/one/0; rm w/one/1"
	# Names follow when word of the change has come; only an open asks.
	fs_wait test -e "$W/one/0" && fs_wait test ! -e "$W/one/1" || return 1
	rm -r "$W/one" || return 1
	echo "directory of $1 entries: sbxfs $before KiB before, $most after ls -l"
}
sparse_row() { # GIB
	python3 - "$W/sparse" "$1" <<'PY'
import os, sys
path, gib = sys.argv[1], int(sys.argv[2])
size = gib << 30
f = os.open(path, os.O_RDWR | os.O_CREAT)
os.ftruncate(f, size)
for at in (0, size // 2, size - 5): assert os.pwrite(f, b"hello", at) == 5
os.fsync(f)
st = os.fstat(f)
assert st.st_size == size and st.st_blocks * 512 < 16 << 20, st
seen, at = 0, 0
while True:
    try: at = os.lseek(f, at, os.SEEK_DATA)
    except OSError: break
    end = os.lseek(f, at, os.SEEK_HOLE)
    assert end > at
    seen += end - at; at = end
assert 15 <= seen < 16 << 20, seen
for at in (0, size // 2, size - 5): assert os.pread(f, 5, at) == b"hello"
assert os.pread(f, 4096, size // 3) == bytes(4096)
PY
	same "$(guest 'stat -c %s w/sparse')" $(($1 << 30)) || return 1
	cp --sparse=always "$W/sparse" "$W/copy" 2>/dev/null &&
		same "$(stat -c %s "$W/copy")" $(($1 << 30)) && [ "$(du -m "$W/copy" | cut -f1)" -lt 32 ] || return 1
	rm "$W/sparse" "$W/copy"
	echo "sparse file of $1 GiB: holes stay holes, also when it is copied"
}
open_row() { # FILES
	local before most
	before=$(pss)
	python3 - "$W" "$1" <<'PY' || return 1
import os, resource, sys
d, n = sys.argv[1], int(sys.argv[2])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(n + 100, 1024)), hard))
f = [os.open(f"{d}/o{i}", os.O_RDWR | os.O_CREAT) for i in range(n)]
for i in range(n):
    for part in (b"number %d, " % i, b"written twice"): os.write(f[i], part)
for i in range(0, n, 7): os.unlink(f"{d}/o{i}")
for i in range(n): assert os.pread(f[i], 100, 0) == b"number %d, written twice" % i
with open("/proc/self/fd/%d" % f[1], "rb") as g: assert g.read() == b"number 1, written twice"
print(os.getpid(), flush=True)
for x in f: os.close(x)
for i in range(n):
    if i % 7: assert os.path.getsize(f"{d}/o{i}") == len(b"number %d, written twice" % i)
    else: assert not os.path.exists(f"{d}/o{i}")
PY
	most=$(pss)
	rm -rf "$W"/o*
	echo "$1 files open: sbxfs $before KiB before, $most after they were closed"
}
threads_row() { # THREADS ROUNDS
	python3 - "$W" "$1" "$2" <<'PY' || return 1
import os, random, sys, threading
d, n, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
bad = []
shared = os.open(f"{d}/shared", os.O_RDWR | os.O_CREAT)
os.posix_fadvise(shared, 0, 0, os.POSIX_FADV_RANDOM)  # a page of each thread's own (doc/limits.md)
log = os.open(f"{d}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def work(t):
    r = random.Random(t)
    try:
        os.mkdir(f"{d}/t{t}")
        for i in range(rounds):
            p = f"{d}/t{t}/{i % 5}"
            data = r.randbytes(r.randrange(1, 50000))
            with open(p + ".new", "wb") as f: f.write(data)
            os.rename(p + ".new", p)
            with open(p, "rb") as f: assert f.read() == data, "content"
            assert os.path.getsize(p) == len(data), "size"
            block = bytes([t + 1]) * 1500
            os.pwrite(shared, block, t * 4096 + 77)
            assert os.pread(shared, 1500, t * 4096 + 77) == block, "shared"
            os.write(log, b"%03d %05d\n" % (t, i))
            names = os.listdir(f"{d}/t{t}")
            assert str(i % 5) in names, "listing"
            if i % 5 == 4: os.unlink(p)
    except BaseException as e: bad.append((t, repr(e)))
ts = [threading.Thread(target=work, args=(t,)) for t in range(n)]
for t in ts: t.start()
for t in ts: t.join()
assert not bad, bad[:3]
lines = open(f"{d}/log").read().split("\n")[:-1]
assert sorted(lines) == ["%03d %05d" % (t, i) for t in range(n) for i in range(rounds)], len(lines)
PY
	rm -rf "$W"/t* "$W/shared" "$W/log"
	echo "$1 threads: each saw what it wrote"
}
# requests_row: the kernel's requests carry 1 MiB.
requests_row() {
	local a b c
	a=$(jq .fuse_ops "$M/stats")
	dd if=/dev/zero of="$W/big" bs=1M count=64 status=none || return 1
	b=$(jq .fuse_ops "$M/stats")
	guest 'head -c 67108864 /dev/zero > w/long'
	dd if="$W/long" of=/dev/null bs=1M status=none || return 1
	c=$(jq .fuse_ops "$M/stats")
	rm "$W/big" "$W/long"
	echo "64 MiB: $((b - a)) requests of the kernel to write, $((c - b)) to read"
	[ $((b - a)) -lt 110 ] && [ $((c - b)) -lt 200 ]
}
