# SPDX-License-Identifier: MIT
# The rows of 58_mount_coherent.bats: what has been changed inside, and answered, is what the mounts show.
# An open is exact at once, and so is everything under cache=strict; names and attributes that the kernel
# may keep are told a moment later, and are waited for.
import errno
import json
import os
import random
import re
import signal
import sys
import threading
import time

from hand import B, DIR, H, H2, Hand, inside, until


def text(path):
    with open(path) as f:
        return f.read()


def absent(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
        return False
    except OSError as e:
        assert e.errno == errno.ENOENT, e
        return True


class Model:
    """What is inside, as it should be: name → content, or None for a directory."""

    def __init__(self, seed, mounts, strict):
        self.r, self.mounts, self.strict = random.Random(seed), mounts, strict
        self.hand, self.files, self.n, self.modes = Hand(), {}, 0, {}

    def content(self):
        self.n += 1
        return f"{self.n:06d}" + "x" * self.r.choice((0, 1, 10, 100, 4000, 5000))

    def step(self):
        a, b = (f"t/f{self.r.randrange(8)}" for _ in "ab")
        do, files, r = self.hand.do, self.files, self.r
        what = r.choice(("write", "write", "append", "put", "cut", "mv", "rm", "chmod", "mmap", "over"))
        old = files.get(a)
        if what == "write":
            files[a] = self.content()
            do("write", inside(a), files[a])
        elif what == "over":  # under another name first
            files[a] = self.content()
            do("write", inside("t/tmp"), files[a])
            do("mv", inside("t/tmp"), inside(a))
            self.modes.pop(a, None)
        elif old is None:
            return [a]
        elif what == "append":
            files[a] = old + "end"
            do("append", inside(a), "end")
        elif what in ("put", "mmap") and len(old) > 4:
            off = r.randrange(len(old) - 3)
            files[a] = old[:off] + "PUT" + old[off + 3:]
            do(what, inside(a), off, "PUT")
        elif what == "cut":
            files[a] = old[:r.randrange(len(old) + 1)]
            do("cut", inside(a), len(files[a]))
        elif what == "chmod":
            self.modes[a] = r.choice((0o600, 0o644, 0o755))
            do("chmod", inside(a), f"{self.modes[a]:o}")
        elif what == "rm":
            del files[a]
            self.modes.pop(a, None)
            do("rm", inside(a))
        elif what == "mv" and a != b:
            files[b] = files.pop(a)
            self.modes.pop(b, None)
            if a in self.modes:
                self.modes[b] = self.modes.pop(a)
            do("mv", inside(a), inside(b))
        return [a, b]

    def now(self, what, fn):
        if self.strict:
            assert fn(), what
        else:
            until(what, fn)

    def check(self, name):
        want = self.files.get(name)
        for m in self.mounts:
            path = f"{m}/{name}"
            if want is None:
                assert absent(path), f"{path}: it is gone"
                self.now(f"{path} is gone", lambda: not os.path.exists(path))
                continue
            self.now(f"{path} is there", lambda: os.path.exists(path))
            fd = os.open(path, os.O_RDONLY)
            size, got = os.fstat(fd).st_size, os.read(fd, 1 << 20).decode()
            os.close(fd)
            assert got == want, f"{path}: {got[:20]!r}, {len(got)} bytes, and not {want[:20]!r}, {len(want)}"
            assert size == len(want), f"{path}: size {size}, and not {len(want)}"
            self.now(f"size of {path}", lambda: os.stat(path).st_size == len(want))
            if name in self.modes:
                self.now(f"mode of {path}", lambda: os.stat(path).st_mode & 0o777 == self.modes[name])

    def listing(self):
        want = {n[2:] for n in self.files}
        for m in self.mounts:
            self.now(f"names in {m}", lambda: set(os.listdir(f"{m}/t")) == want)


def inside_changes(seconds, strict):
    hand = Hand()
    m = Model(time.time_ns() if not os.environ.get("SEED") else int(os.environ["SEED"]), [H, H2],
              strict == "strict")
    hand.do("mkdir", inside("t"))
    until("the folder", lambda: os.path.isdir(f"{H}/t") and os.path.isdir(f"{H2}/t"))
    end, n = time.time() + float(seconds), 0
    while time.time() < end or n < 40:
        for name in m.step():
            m.check(name)
        if n % 8 == 0:
            m.listing()
        n += 1
    m.listing()
    for name in list(m.files):
        hand.do("rm", inside(name))
    hand.do("rmdir", inside("t"))
    print(n, "changes")


def times(n=60):
    """mtime as the mount shows it moves with each change; one open file follows, too."""
    hand = Hand()
    hand.do("write", inside("m"), "0")
    fds = [os.open(f"{d}/m", os.O_RDONLY) for d in (H, H2)]
    before = [0, 0]
    for i in range(int(n)):
        hand.do("write", inside("m"), str(i))
        for k, d in enumerate((H, H2)):
            fd = os.open(f"{d}/m", os.O_RDONLY)
            now = os.fstat(fd).st_mtime_ns
            os.close(fd)
            assert now >= before[k], "time goes back"
            before[k] = now
            until("an open file follows", lambda: os.pread(fds[k], 20, 0) == str(i).encode())
        assert before[0] == before[1]
    for fd in fds:
        os.close(fd)


def between(n=150):
    """Two mounts write and read each other's files."""
    for i in range(int(n)):
        for a, b in ((H, H2), (H2, H)):
            with open(f"{a}/x", "w") as f:
                f.write(f"{a}{i}" + "." * (i * 37 % 9000))
            assert text(f"{b}/x") == f"{a}{i}" + "." * (i * 37 % 9000), i
            with open(f"{a}/y.tmp", "w") as f:
                f.write(f"{i}")
            os.rename(f"{a}/y.tmp", f"{a}/y")
            assert text(f"{b}/y") == f"{i}", i


def replaced(n=2500, readers=3):
    """A name that is always there, renamed over from inside all the time: every open finds one."""
    hand, over, bad, seen = Hand(), threading.Event(), [], [0]
    hand.do("write", inside("p"), "0")
    until("it is there", lambda: os.path.exists(f"{H}/p") and os.path.exists(f"{H2}/p"))

    def read(path):
        last = 0
        while not over.is_set():
            try:
                k = int(text(path))
                if k < last:
                    bad.append(f"{path}: {k} after {last}")
                last = k
                fd = os.open(path, os.O_RDWR)
                os.close(fd)
                seen[0] += 1
            except (OSError, ValueError) as e:
                bad.append(f"{path}: {e}")

    threads = [threading.Thread(target=read, args=(f"{H if i % 2 else H2}/p",)) for i in range(int(readers))]
    for t in threads:
        t.start()
    try:
        hand.do("replace", inside("p"), n)
    finally:
        over.set()
        for t in threads:
            t.join()
    assert not bad, f"{len(bad)} of {seen[0]}: {bad[:5]}"
    assert text(f"{H}/p") == f"{n}\n" and text(f"{H2}/p") == f"{n}\n"


def doubted():
    """How often the second mount was told that changes had been lost."""
    with open(os.environ["T"] + "/m2/stats") as f:
        return json.load(f)["files"]["doubted"]


def of_process(p, what):
    try:
        with open(f"/proc/{p}/{what}") as f:
            return f.read()
    except OSError:
        return ""


def worker():
    """Who reads the queue: the file worker, which is beside the hand in one group of processes."""
    pids = [p for p in os.listdir("/proc") if p.isdigit()]
    hands = [p for p in pids if of_process(p, "comm") == "hand\n" and os.path.exists(f"/proc/{p}/root{DIR}/o")]
    group = re.search("/sandboxd-[^/]+/n[0-9]+/", of_process(hands[0], "cgroup")).group()
    return int(next(p for p in pids if group in of_process(p, "cgroup") and
                    of_process(p, "cmdline").startswith("sbx-worker")))


BELIEVED = 9  # seconds: the kernel asks again by itself after ten, and that proves nothing


def overflow():
    """More changes than the queue holds while nobody reads it: all is in doubt then. The file worker stands
    still meanwhile, so what comes after the flood is lost for certain. That the mount shows it has to be
    seen before beliefs end by themselves; a machine on which that took too long is asked again."""
    hand = Hand()
    hand.do("mkdir", inside("o"))
    until("the folder", lambda: os.path.isdir(f"{H2}/o"))
    took = [overflowed(hand)]
    while took[-1] > BELIEVED and len(took) < 3:
        took.append(overflowed(hand))
    assert took[-1] <= BELIEVED, f"not told, but asked again: after {took} s"


def overflowed(hand):
    """Seconds from before anything was believed until all changes were seen."""
    before, began = doubted(), time.time()
    with open("/proc/sys/fs/inotify/max_queued_events") as f:
        enough = int(f.read())  # each file of the flood is at least two changes
    for i in range(64):
        hand.do("write", inside(f"o/{i}"), "before")
    hand.ask("rm", inside("o/none"))
    for _ in range(3):  # so that it is watched, and believed
        until("a listing", lambda: len(os.listdir(f"{H2}/o")) >= 64)
        for i in range(64):
            until("what was before", lambda: os.stat(f"{H2}/o/{i}").st_size == len("before"))
        os.path.exists(f"{H2}/o/none")
    pid = worker()
    os.kill(pid, signal.SIGSTOP)
    try:
        hand.do("flood", inside("o"), enough)
        for i in range(64):
            hand.do("write", inside(f"o/{i}"), f"after {i}")
        hand.do("rm", inside("o/5"))
        hand.do("write", inside("o/none"), "now")
    finally:
        os.kill(pid, signal.SIGCONT)
    until("word of what was lost", lambda: doubted() > before)
    for i in range(64):  # an open would ask in any case: these are what is believed
        until(f"size of o/{i}", lambda: i == 5 or os.stat(f"{H2}/o/{i}").st_size == len(f"after {i}"))
    until("a name less", lambda: not os.path.exists(f"{H2}/o/5"))
    took = time.time() - began
    until("a new name", lambda: os.path.exists(f"{H2}/o/none"))
    until("a listing without it", lambda: "5" not in os.listdir(f"{H2}/o"))
    assert absent(f"{H2}/o/5")
    for i in range(64):
        assert i == 5 or text(f"{H2}/o/{i}") == f"after {i}"
    return took


def appended(n=400):
    """Lines appended from both mounts and inside at once: each is there once, and whole."""
    hand = Hand()

    def lines(d, tag):
        fd = os.open(f"{d}/a", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for i in range(int(n)):
            line = f"{tag} {i} {i:064d}\n".encode()
            assert os.write(fd, line) == len(line)
        os.close(fd)

    hand.do("write", inside("a"), "")
    until("it is there", lambda: os.path.exists(f"{H}/a") and os.path.exists(f"{H2}/a"))
    threads = [threading.Thread(target=lines, args=(d, t)) for d, t in ((H, "one"), (H, "more"), (H2, "two"))]
    hand.send("lines", inside("a"), "in", n)
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert hand.answer() == 0
    want = sorted(f"{t} {i} {i:064d}" for t in ("one", "more", "two", "in") for i in range(int(n)))
    for d in (H, H2):
        assert sorted(text(f"{d}/a").splitlines()) == want, d


globals()[sys.argv[1]](*sys.argv[2:])
