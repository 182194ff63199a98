# SPDX-License-Identifier: MIT
"""What is measured: each row is some work in a folder of a way. What it needs is made by `prepare` before
the first round. "Not cached": the way is mounted anew, so that neither the kernel nor its daemon (sshfs keeps
attributes for 20 s) knows names and attributes, and for data the kernel has forgotten the pages of the mount's
file; what lies below every way stays in memory, so that no disk is measured."""
import contextlib
import os
import random
import shutil
import subprocess
import threading
import time

MIB = os.urandom(1 << 20)
SMALL = 200   # files of the rows that do something to each of some
PER_DIR = 9   # of the tree: about as a project has them
RANDOM = 2000  # reads


class Bench:
    def __init__(self, ways):
        self.ways = ways
        self.dir = os.environ["BENCH_DIR"]
        self.serial = 0
        self.call = None

    def at(self, way, *parts):
        return os.path.join(self.ways[way], *parts)


class Row:
    def __init__(self, name, run, before=None, after=None, goal_ssh=None, goal_base=None, base="pass",
                 heavy=False, ways=None, ours="unix", ssh="sshfs", needs=(), once=()):
        self.name, self.run, self.heavy, self.ways, self.needs = name, run, heavy, ways, needs
        self.before = before or (lambda b, w: None)
        self.after = after or (lambda b, w: None)
        self.goal_ssh, self.goal_base, self.base, self.ours, self.ssh = goal_ssh, goal_base, base, ours, ssh
        self.once = once  # ways that are slow, and in no goal: one round


def forget_names(b, w):
    subprocess.run([b.dir + "/again", w], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("2")
    time.sleep(0.05)
    os.stat(b.at(w))


def forget_pages(name):
    def before(b, w):
        if w == "native":
            return
        f = os.open(b.at(w, name), os.O_RDONLY)
        os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(f)
    return before


# --- small operations -------------------------------------------------------------------------------------

# As programs do that work in a folder: how deep a way is mounted is not measured.
@contextlib.contextmanager
def inside(folder):
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir("/")


def stat_all(b, w):
    with inside(b.at(w, "small")):
        for i in range(SMALL):
            os.stat(f"f{i}")


def read_all(b, w):
    with inside(b.at(w, "small")):
        for i in range(SMALL):
            f = os.open(f"f{i}", os.O_RDONLY)
            if len(os.read(f, 4096)) != 4096:
                raise SystemExit(f"bench: f{i} of {w} is too short")
            os.close(f)


def fresh(b, w):
    b.serial += 1
    b.new = b.at(w, f"new-{w}-{b.serial}")
    os.mkdir(b.new)


def create_all(b, w):
    with inside(b.new):
        for i in range(SMALL):
            f = os.open(f"f{i}", os.O_CREAT | os.O_WRONLY)
            os.write(f, MIB[:4096])
            os.close(f)


def filled(b, w):
    fresh(b, w)
    create_all(b, w)


def unlink_all(b, w):
    with inside(b.new):
        for i in range(SMALL):
            os.unlink(f"f{i}")


def remove_new(b, w):
    shutil.rmtree(b.new)


def ls(b, w):
    subprocess.run(["ls", "-l", b.at(w, "many")], stdout=subprocess.DEVNULL, check=True)


# --- long files -------------------------------------------------------------------------------------------

def read_long(b, w):
    f = os.open(b.at(w, "long"), os.O_RDONLY)
    while os.read(f, 1 << 20):
        pass
    os.close(f)


def read_far(b, w):
    f = os.open(b.at(w, "far"), os.O_RDONLY)
    while os.read(f, 1 << 20):
        pass
    os.close(f)


def write_long(b, w):
    f = os.open(b.at(w, f"written-{w}"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for _ in range(b.mib):
        os.write(f, MIB)
    os.fsync(f)
    os.close(f)


def write_small(b, w):
    f = os.open(b.at(w, f"written-{w}"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for i in range(8192):
        os.write(f, MIB[:4096])
    os.close(f)


def remove_written(b, w):
    os.unlink(b.at(w, f"written-{w}"))


def random_reads(f, count, pages, seed):
    r = random.Random(seed)
    for _ in range(count):
        os.pread(f, 4096, 4096 * r.randrange(pages))


def read_random(threads):
    def run(b, w):
        f = os.open(b.at(w, "long"), os.O_RDONLY)
        b.serial += 1
        t = [threading.Thread(target=random_reads, args=(f, RANDOM // threads, b.mib * 256, b.serial * 8 + n))
             for n in range(threads)]
        for x in t:
            x.start()
        for x in t:
            x.join()
        os.close(f)
    return run


# --- trees ------------------------------------------------------------------------------------------------

def sh(command, **more):
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)


def gone(b, *parts):
    shutil.rmtree(os.path.join(*parts), ignore_errors=True)


def in_way(command):
    """`command` knows $D, a folder of the way, and $B, the bench's own."""
    def run(b, w):
        sh(command, env={**os.environ, "D": b.at(w), "B": b.dir, "W": w}, cwd="/")
    return run


def without(name):
    return lambda b, w: shutil.rmtree(b.at(w, name.replace("W", w)), ignore_errors=True)


def warm_status(b, w):
    in_way("git -C $D/tree status")(b, w)


# --- control files ----------------------------------------------------------------------------------------

LABELS = 50


def label(b, w):
    if w == "call":
        return sum(one_call(b) for _ in range(LABELS))
    path = os.path.join(b.dir, "m/unix/bench/labels/k")
    for i in range(LABELS):
        f = os.open(path, os.O_WRONLY | os.O_TRUNC)
        os.write(f, b"x\n" if i % 2 else b"y\n")
        os.close(f)
    return None


def one_call(b):
    if not b.call:
        path = "/v1/sandboxes/" + os.environ["BENCH_BOX"]
        b.call = subprocess.Popen([os.environ["BENCH_BIN"] + "/call", "PATCH", path, '{"labels":{"k":"x"}}'],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    b.call.stdin.write("\n")
    b.call.stdin.flush()
    return float(b.call.stdout.readline())


# --- all of them ------------------------------------------------------------------------------------------

def rows(b):
    if "unix" in b.ways:
        b.ways["call"] = b.dir
    tree = dict(heavy=True, needs=("tree",), once=("native", "pass", "http", "tls"))
    many, small, long, far = dict(needs=("many",)), dict(needs=("small",)), dict(needs=("long",)), ["far", "sshfar"]
    return [
        Row(f"stat of {SMALL}, not cached", stat_all, forget_names, None, 0.3, 2.0, **small),
        Row(f"open, read 4 KiB, close: {SMALL}", read_all, lambda b, w: read_all(b, w), None, 0.25, 1.5, **small),
        Row(f"create, write 4 KiB, close: {SMALL}", create_all, fresh, remove_new, 0.5, 1.6),
        Row(f"unlink {SMALL}", unlink_all, filled, remove_new, 0.5, None),
        Row(f"ls -l of {b.files}, cold", ls, forget_names, None, 0.3, 1.4, **many),
        Row("stat again", stat_all, stat_all, None, 1.0, 1.2, "keep", **small),
        Row("read again", read_all, read_all, None, 1.0, 1.2, "keep", **small),
        Row("ls -l again", ls, ls, None, 1.0, 1.2, "keep", **many),
        Row(f"git clone of {b.tree}", in_way("git clone -q file://$B/repo $D/clone-$W"), without("clone-W"),
            without("clone-W"), 0.45, None, **tree),
        Row(f"untar {b.tree}", in_way("mkdir $D/tar-$W && tar -C $D/tar-$W -xf $B/tree.tar"), without("tar-W"),
            without("tar-W"), 0.45, None, **tree),
        Row("git status, second", in_way("git -C $D/tree status"), warm_status, None, 1.0, 1.2, "keep", heavy=True, needs=("tree",), once=("native", "http", "tls")),
        Row("grep -r", in_way("! grep -r nothing-of-this $D/tree/src"), forget_names, None, 0.4, None, **tree),
        Row("cp -r", in_way("cp -r $D/tree/src $D/copy-$W"), forget_names, without("copy-W"), 0.4, None, **tree),
        Row("tar c", in_way("tar -C $D -cf - tree/src | wc -c"), forget_names, None, 0.4, None, **tree),
        Row(f"sequential read of {b.mib} MiB", read_long, forget_pages("long"), None, 1 / 5, 1 / 0.4, heavy=True,
            **long),
        Row(f"sequential write of {b.mib} MiB", write_long, None, remove_written, 1 / 2.5, 1 / 0.5, heavy=True),
        Row(f"{RANDOM} random reads, 1 thread", read_random(1), forget_pages("long"), None, 0.2, None, **long),
        Row(f"{RANDOM} random reads, 8 threads", read_random(8), forget_pages("long"), None, 0.2, None, **long),
        Row("32 MiB in writes of 4 KiB", write_small, None, remove_written, 1 / 4, None),
        Row("10 ms away: sequential read", read_far, forget_pages("far"), None, 1 / 10, None, "pass", True, far,
            "far", "sshfar", needs=("far",)),
        Row("10 ms away: git status", in_way("git -C $D/tree status"), forget_names, None, 0.2, None, "pass", True,
            far, "far", "sshfar", needs=("tree",)),
        Row(f"echo x > labels/k: {LABELS}", label, None, None, None, 1.5, "call", ways=["unix", "call"],
            needs=("label",)),
    ]


def make_small(d):
    os.makedirs(d + "/small")
    for i in range(SMALL):
        with open(f"{d}/small/f{i}", "wb") as f:
            f.write(MIB[:4096])
        os.utime(f"{d}/small/f{i}", (1e9, 1e9))


def make_many(b, d):
    os.makedirs(d + "/many")
    for i in range(b.files):
        os.close(os.open(f"{d}/many/f{i}", os.O_CREAT | os.O_WRONLY))


def make_file(path, mib):
    with open(path, "wb") as f:
        for _ in range(mib):
            f.write(MIB)


def make_repo(b):
    """A repository of text, and its files as an archive."""
    r, src = random.Random(1), b.dir + "/repo/src"
    words = [f"{r.getrandbits(40):x}" for _ in range(4000)]
    for i in range(b.tree):
        if i % PER_DIR == 0:
            d = f"{src}/{i // PER_DIR % 23}/{i // PER_DIR}"
            os.makedirs(d)
        with open(f"{d}/file{i}.c", "w") as f:
            f.write(" ".join(r.choice(words) for _ in range(r.randrange(30, 800))))
    sh("git init -q && git add . && git commit -qm all && git repack -adq", cwd=b.dir + "/repo")
    sh("tar -C repo -cf tree.tar src", cwd=b.dir)


def prepare(b, all_rows):
    needs = {n for r in all_rows for n in r.needs}
    if "tree" in needs:
        make_repo(b)
    if "label" in needs and "unix" in b.ways:
        open(os.path.join(b.dir, "m/unix/bench/labels/k"), "w").close()
    for w in ("native", "pass", "keep", "unix", "tls", "sshfs", "sftp"):
        if w not in b.ways:
            continue
        d = b.at(w)
        if "small" in needs:
            make_small(d)
        if "many" in needs:
            make_many(b, d)
        if "long" in needs:
            make_file(d + "/long", b.mib)
        if "far" in needs:
            make_file(d + "/far", b.far_mib)
        if "tree" in needs:
            in_way("git clone -q file://$B/repo $D/tree && git -C $D/tree status")(b, w)
