# SPDX-License-Identifier: MIT
# What 57_mount_tools.bats cannot say in shell.
import ctypes
import mmap
import os
import pty
import select
import sqlite3
import struct
import subprocess
import sys
import time

PATIENCE = 30
H = os.environ["H"]


def inside(line):
    """Runs it inside, in the folder that this one is; its output."""
    here = "/sandbox/home" + os.getcwd()[len(H):]
    return subprocess.run(["curl", "-sS", "--max-time", "30", "--unix-socket", os.environ["T"] + "/sock",
                           "http://localhost/v1/sandboxes/box/run", "-H", "Content-Type: application/json", "-d",
                           '{"argv":["sh","-c","cd %s && %s"]}' % (here, line)], check=True,
                          capture_output=True, text=True).stdout


class Terminal:
    def __init__(self, *argv):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvp(argv[0], argv)
        self.seen = b""

    def until(self, text):
        end = time.time() + PATIENCE
        while text.encode() not in self.seen:
            assert time.time() < end, f"never showed {text!r}, but {self.seen[-300:]!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:  # its end
                    time.sleep(0.01)
        self.seen = b""

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self, key=""):
        """key: typed again until it helps; what comes with an interrupt may be thrown away with it."""
        end = time.time() + PATIENCE
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            assert time.time() < end, "it does not end"
            try:
                self.type(key)
            except OSError:
                pass
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    os.read(self.fd, 65536)
                except OSError:
                    pass
        os.close(self.fd)


def nano(name, text):
    t = Terminal("nano", "-I", "-G", "--", name)
    t.until("one")
    t.type(text)
    t.until(text.strip())
    t.type("\x0f")
    t.until("Name to Write")
    t.type("\r")
    t.until("Wrote")
    t.type("\x18")
    t.end()


def follow(name, *argv):
    t = Terminal(*argv)
    t.until("first")
    for word in ("second", "third"):
        inside(f"echo {word}{argv[0]} >> {name}")
        t.until(word + argv[0])
    t.type("\x03")
    t.end("q")


class Watch:
    """inotify of this host's kernel."""
    CLOSE_WRITE, MOVED_TO = 0x8, 0x80

    def __init__(self, path, mask):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(0o4000)
        assert self.fd >= 0 and self.libc.inotify_add_watch(self.fd, path.encode(), mask) >= 0

    def until(self, mask, name):
        end, buf = time.time() + PATIENCE, b""
        while True:
            assert time.time() < end, f"nobody was told of {name}"
            if select.select([self.fd], [], [], 0.1)[0]:
                buf += os.read(self.fd, 65536)
            while len(buf) >= 16:
                _, got, _, n = struct.unpack("iIII", buf[:16])
                this, buf = buf[16:16 + n].rstrip(b"\0").decode(), buf[16 + n:]
                if got & mask and this == name:
                    return


def saves():
    w = Watch(".", Watch.CLOSE_WRITE | Watch.MOVED_TO)
    fd = os.open("c.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, b"renamed\n")
    os.fchmod(fd, 0o644)
    os.fsync(fd)
    os.close(fd)
    os.rename("c.tmp", "c")
    d = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(d)
    os.close(d)
    w.until(Watch.MOVED_TO, "c")
    with open("d", "w") as f:
        f.write("old and longer")
    fd = os.open("d", os.O_WRONLY | os.O_TRUNC)
    os.write(fd, b"in place\n")
    os.fdatasync(fd)
    os.close(fd)
    w.until(Watch.CLOSE_WRITE, "d")


def sqlite():
    for name, mode in (("j.db", "delete"), ("w.db", "wal")):
        c = sqlite3.connect(name, isolation_level=None)
        assert c.execute(f"pragma journal_mode={mode}").fetchone() == (mode,)
        c.execute("create table t (i int primary key, v text)")
        c.execute("begin")
        c.executemany("insert into t values (?, ?)", ((i, str(i) * 50) for i in range(2000)))
        c.execute("commit")
        c.execute("begin")
        c.execute("delete from t")
        c.execute("rollback")
        c.execute("vacuum")
        assert c.execute("pragma integrity_check").fetchone() == ("ok",)
        c.close()
        c = sqlite3.connect(name)
        assert c.execute("select count(*), max(length(v)) from t").fetchone() == (2000, 200)
        c.close()


def mapped():
    with open("m", "wb") as f:
        f.write(b"." * 10000)
    with open("m", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[5000:5004] = b"here"
        m.flush()
        assert "aGVyZQ==" in inside("dd if=m bs=1 skip=5000 count=4 2>/dev/null")
        m[0:5] = b"there"
    assert "dGhlcmU=" in inside("dd if=m bs=1 count=5 2>/dev/null")
    inside("printf inside | dd of=m bs=1 seek=100 conv=notrunc 2>/dev/null")
    with open("m", "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        assert m[100:106] == b"inside" and m[5000:5004] == b"here"


globals()[sys.argv[1]](*sys.argv[2:])
