# SPDX-License-Identifier: MIT
# The rows of 56_mount_locks.bats.
import errno
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import time

from hand import H, H2, Hand, inside, until

HOWS = ("lockf", "flock")


def take(f, how, kind=fcntl.LOCK_EX, wait=False):
    now = 0 if wait or kind == fcntl.LOCK_UN else fcntl.LOCK_NB
    (fcntl.lockf if how == "lockf" else fcntl.flock)(f, kind | now)


def has(f, how, kind=fcntl.LOCK_EX):
    try:
        take(f, how, kind)
    except BlockingIOError:
        return False
    take(f, how, fcntl.LOCK_UN)
    return True


def other(path, how, kind=fcntl.LOCK_EX):
    """What another process of this host gets."""
    pid = os.fork()
    if pid == 0:
        with open(path, "r+") as f:
            os._exit(0 if has(f, how, kind) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def word(how):
    return "fcntl" if how == "lockf" else "flock"


def fresh_file(name, text=""):
    with open(f"{H}/{name}", "w") as f:
        f.write(text)


def exclude():
    hand = Hand()
    for how in HOWS:
        fresh_file("e")
        for holder in ("first", "second", "inside"):
            f = None
            if holder == "inside":
                hand.do("lock", word(how), inside("e"))
            else:
                f = open(f"{H if holder == 'first' else H2}/e", "r+")
                take(f, how)
            assert not other(f"{H}/e", how), (how, holder, "first")
            assert not other(f"{H2}/e", how), (how, holder, "second")
            if holder != "inside":
                r = hand.ask("lock", word(how), inside("e"))
                assert r == -errno.EAGAIN, (how, holder, r)
                take(f, how, fcntl.LOCK_UN)
            else:
                hand.do("unlock")
            assert other(f"{H}/e", how) and other(f"{H2}/e", how), (how, holder, "free")
            hand.do("lock", word(how), inside("e"))
            hand.do("unlock")
            if f:
                f.close()


def ranges():
    import struct
    fresh_file("r", "x" * 100)
    a, b = open(f"{H}/r", "r+"), open(f"{H2}/r", "r+")

    def blocker(f, start, length):
        """(type, start, length) of what is in the way."""
        lock = struct.pack("hhlli", fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        got = struct.unpack("hhlli", fcntl.fcntl(f, fcntl.F_GETLK, lock))
        return None if got[0] == fcntl.F_UNLCK else (got[0], got[2], got[3])

    fcntl.lockf(a, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 20)
    fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 20, 0)
    fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 0, 30)
    assert blocker(a, 0, 10) == (fcntl.F_WRLCK, 0, 20), blocker(a, 0, 10)
    assert blocker(b, 0, 0) == (fcntl.F_WRLCK, 20, 10), blocker(b, 0, 0)
    assert blocker(a, 35, 1) == (fcntl.F_WRLCK, 30, 0), blocker(a, 35, 1)
    fcntl.lockf(b, fcntl.LOCK_UN)
    fcntl.lockf(a, fcntl.LOCK_SH, 10, 20)
    fcntl.lockf(b, fcntl.LOCK_SH | fcntl.LOCK_NB, 10, 20)
    for f in (a, b):
        try:
            fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 25)
            raise AssertionError("two readers, and one writes")
        except BlockingIOError:
            pass
    fcntl.lockf(b, fcntl.LOCK_UN, 5, 20)
    fcntl.lockf(a, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 20)
    assert blocker(b, 0, 0)[:2] == (fcntl.F_WRLCK, 20)
    with open(f"{H}/r") as ro:
        try:
            fcntl.lockf(ro, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 99)
            raise AssertionError("a lock to write on a file open to read")
        except OSError as e:
            assert e.errno == errno.EBADF, e


def waiter(path, how):
    p = subprocess.Popen([sys.executable, __file__, "_wait", path, how], stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "asks\n"
    return p


def _wait(path, how):
    with open(path, "r+") as f:
        print("asks", flush=True)
        take(f, how, wait=True)
        print("has", flush=True)


def wait():
    hand = Hand()
    for how in HOWS:
        fresh_file("w")
        f = open(f"{H}/w", "r+")
        take(f, how)
        p = [waiter(f"{H2}/w", how), waiter(f"{H}/w", how)]
        hand.send("count", word(how), inside("w"), 1)
        time.sleep(0.2)
        assert all(x.poll() is None for x in p)
        take(f, how, fcntl.LOCK_UN)
        assert [x.communicate(timeout=30)[0] for x in p] == ["has\n"] * 2
        assert hand.answer() == 0
        hand.do("lock", word(how), inside("w"))
        p = [waiter(f"{H2}/w", how), waiter(f"{H}/w", how)]
        hand.do("unlock")
        assert [x.communicate(timeout=30)[0] for x in p] == ["has\n"] * 2


def _count(path, how, n):
    with open(path, "r+b", buffering=0) as f:
        for _ in range(int(n)):
            take(f, how, wait=True)
            k = int(os.pread(f.fileno(), 32, 0) or b"0") + 1
            os.pwrite(f.fileno(), b"%d\n" % k, 0)
            take(f, how, fcntl.LOCK_UN)


def count():
    hand, n = Hand(), 100
    for how in HOWS:
        fresh_file("c", "0\n")
        hand.send("count", word(how), inside("c"), n)
        p = [subprocess.Popen([sys.executable, __file__, "_count", f"{d}/c", how, str(n)]) for d in (H, H2, H2)]
        assert [x.wait(timeout=120) for x in p] == [0] * 3
        assert hand.answer() == 0
        assert open(f"{H}/c").read() == f"{4 * n}\n", (how, open(f"{H}/c").read())


def close():
    fresh_file("k")
    f, g = open(f"{H}/k", "r+"), open(f"{H}/k", "r+")
    take(f, "lockf")
    assert has(g, "lockf")  # its own
    take(f, "lockf")
    g.close()
    until("closing any of its files lets go", lambda: other(f"{H2}/k", "lockf"))
    take(f, "lockf")
    if os.fork() == 0:
        os._exit(0 if not has(f, "lockf") else 1)
    assert os.wait()[1] == 0
    assert not other(f"{H2}/k", "lockf")  # the child's end is not ours
    f.close()
    until("closed", lambda: other(f"{H2}/k", "lockf"))
    f = open(f"{H}/k", "r+")
    take(f, "flock")
    r, w = os.pipe()
    if os.fork() == 0:
        os.close(w)
        os.read(r, 1)
        os._exit(0 if not other(f"{H2}/k", "flock") else 1)
    os.close(r)
    f.close()
    assert not other(f"{H2}/k", "flock")  # the child has it open still
    os.close(w)
    assert os.wait()[1] == 0
    until("the last has closed it", lambda: other(f"{H2}/k", "flock"))
    # In a row, as scripts do: what the last process has let go is there for the next.
    for i in range(50):
        assert other(f"{H}/k", "flock") and other(f"{H}/k", "lockf"), i


def crowd():
    fresh_file("d")
    f = open(f"{H}/d", "r+")
    take(f, "lockf")
    take(f, "flock")
    pids = []
    for i in range(100):
        pid = os.fork()
        if pid == 0:
            with open(f"{H if i % 3 else H2}/d", "r+") as g:
                take(g, HOWS[i % 2], wait=True)
                os._exit(7)
        pids.append(pid)
    assert len(os.listdir(H)) > 1 and len(os.listdir(H2)) > 1
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert [os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids] == [-signal.SIGKILL] * 100
    # A signal that is not deadly.
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    with open(f"{H2}/d", "r+") as g:
        for how in HOWS:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            try:
                take(g, how, wait=True)
                raise AssertionError("got it")
            except TimeoutError:
                pass
    take(f, "lockf", fcntl.LOCK_UN)
    take(f, "flock", fcntl.LOCK_UN)
    for how in HOWS:  # no dead waiter has got it
        until(how, lambda: other(f"{H2}/d", how) and other(f"{H}/d", how))


def fresh():
    fresh_file("v", "0" * 8)
    a, b = (open(f"{d}/v", "r+b", buffering=0) for d in (H, H2))
    for i in range(1, 60):
        for f in (a, b):
            take(f, "lockf", wait=True)
            k = int(os.pread(f.fileno(), 8, 0))
            assert k == 2 * i - (2 if f is a else 1), (i, k)
            os.pwrite(f.fileno(), b"%08d" % (k + 1), 0)
            take(f, "lockf", fcntl.LOCK_UN)


def _insert(path, tag, n):
    c = sqlite3.connect(path, timeout=60, isolation_level=None)
    for i in range(int(n)):
        c.execute("insert into t values (?, ?)", (tag, i))


def sqlite():
    path = f"{H}/s.db"
    c = sqlite3.connect(path, timeout=60, isolation_level=None)
    c.execute("create table t (tag text, i int)")
    n = 12
    p = [subprocess.Popen([sys.executable, __file__, "_insert", f"{d}/s.db", str(k), str(n)])
         for k, d in enumerate((H, H2, H2))]
    assert [x.wait(timeout=200) for x in p] == [0] * 3
    assert c.execute("select count(*), count(distinct tag * 1000 + i) from t").fetchone() == (3 * n, 3 * n)
    assert c.execute("pragma integrity_check").fetchone() == ("ok",)
    c.execute("begin exclusive")
    d = sqlite3.connect(f"{H2}/s.db", timeout=0.1, isolation_level=None)
    try:
        d.execute("insert into t values ('x', 1)")
        raise AssertionError("written while another has all of it")
    except sqlite3.OperationalError as e:
        assert "locked" in str(e)
    c.execute("rollback")
    d.execute("insert into t values ('x', 1)")
    assert c.execute("select count(*) from t where tag = 'x'").fetchone() == (1,)


def lost(mount):
    for how in HOWS:
        fresh_file("l")
        f = open(f"{H}/l", "r+")
        take(f, how)
        p = waiter(f"{H2}/l", how)
        for _ in range(3):
            with open(f"{mount}/ctl", "w") as c:
                c.write("drop-caches\n")
            time.sleep(0.05)
            assert not other(f"{H2}/l", how) and not other(f"{H}/l", how)
        assert p.poll() is None
        f.write("still mine")
        f.flush()
        f.close()
        assert p.communicate(timeout=60)[0] == "has\n"


def died(gone, kept):
    """The lock of one mount ends with it; that of the other stays."""
    hand = Hand()
    until("the dead have locks", lambda: hand.ask("lock", "flock", inside(gone)) == 0)
    hand.do("unlock")
    r = hand.ask("lock", "flock", inside(kept))
    assert r == -errno.EAGAIN, r


def local():
    """The second mount has locks of its own."""
    hand = Hand()
    for how in HOWS:
        fresh_file("o")
        with open(f"{H2}/o", "r+") as f:
            take(f, how)
            assert not other(f"{H2}/o", how)
            assert other(f"{H}/o", how)
            hand.do("lock", word(how), inside("o"))
            hand.do("unlock")


globals()[sys.argv[1]](*sys.argv[2:])
