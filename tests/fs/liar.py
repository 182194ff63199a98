#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""liar.py LISTEN REAL WORD: stands between a mount and its server, and does to it what the file WORD says.

LISTEN and REAL are paths of unix sockets or HOST:PORT. With the word `pass` bytes pass; `hold` keeps all
bytes back, in both directions, until the word changes; `slow` lets pieces pass a quarter of a second late,
`far` 5 ms; `cut` ends every connection. With any other word requests pass as well, but the connection of sbx-fs/1 is
spoken by this program: a small tree of its own, in which one thing is a lie. The word is looked at with each
piece and each frame, so that it can be changed at any time. The sandbox whose id WORD.not has, if there is such a
file, is let alone."""
import os, re, socket, stat, struct, sys, threading, time

FRAME, REQ, REP = struct.Struct("<IHHQq"), struct.Struct("<6Q4IqIIqII4I"), struct.Struct("<4Q2I112s")
ATTR, ENTRY, INVAL = struct.Struct("<4I6QqIIqIIqII"), struct.Struct("<112sQII"), struct.Struct("<QII")
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../common/fs/files.h")) as header:
    OPS = re.findall(r"^\tFILES_([A-Z_]+)[ =,]", re.search(r"enum files_op \{(.*?)\};", header.read(), re.S)[1], re.M)
STAT, LIST, OPEN, READ, WRITE, CLOSE, HELLO, WATCH, INVAL_OP, GRANT, MKDIR, SETATTR = (
    1 + OPS.index(o) for o in "STAT LIST OPEN READ WRITE CLOSE HELLO WATCH INVAL GRANT MKDIR SETATTR".split())
END, ALL, NAME = 1, 16, 1
ENOENT, ENOSPC, ESTALE_E = -2, -28, -1004


def word():
    try:
        with open(sys.argv[3]) as f:
            return f.read().strip()
    except OSError:
        return "pass"


def neighbour():
    """The id of the sandbox about which nothing is a lie, or what no id is."""
    try:
        with open(sys.argv[3] + ".not") as f:
            return f.read().strip().encode() or b"\0"
    except OSError:
        return b"\0"


def address(text, listen=False):
    if "/" in text:
        s, a = socket.socket(socket.AF_UNIX), text
    else:
        host, port = text.rsplit(":", 1)
        s, a = socket.socket(), (host, int(port))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listen:
        s.bind(a)
        s.listen(64)
    else:
        s.connect(a)
    return s


def end(*socks):
    for s in socks:
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def copy(a, b):
    """Bytes from a to b, as the word lets them."""
    try:
        while True:
            data = a.recv(65536)
            while word() == "hold":
                time.sleep(0.05)
            time.sleep({"slow": 0.25, "far": 0.005}.get(word(), 0))
            if not data or word() == "cut":
                break
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
        if word() == "cut":
            end(a, b)
    except OSError:
        end(a, b)


def attr(mode, size=0, ino=1, nlink=1, version=1):
    t = (1700000000, 0, 0)
    return ATTR.pack(mode, 1001, 1001, nlink, size, (size + 511) // 512 & (1 << 63) - 1, ino, 7, 1, version, *t, *t, *t)


FILE, DIR = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755
TRUTH = b"a lie of the right length.\n"
TREE = {b"/": (DIR, 2), b"/sandbox": (DIR, 3), b"/sandbox/home": (DIR, 4), b"/sandbox/home/f": (FILE, 5),
        b"/sandbox/home/d": (DIR, 6)}
HOME = b"/sandbox/home"
# What a listing of the home directory shows under each word, as name, mode, number, link text.
LISTS = {
    "names": [(n, FILE, 100 + i, b"") for i, n in enumerate((b"", b".", b"..", b"a/b", b"nul\0x", b"n" * 256, b"n" * 255,
              b"new\nline", b"\1\33[31m\177", b"\377\376bad"))],
    "types": [(b"fifo", stat.S_IFIFO | 0o666, 101, b""), (b"sock", stat.S_IFSOCK | 0o777, 102, b""),
              (b"chr", stat.S_IFCHR | 0o666, 103, b""), (b"blk", stat.S_IFBLK | 0o666, 104, b""),
              (b"none", 0o644, 105, b""), (b"setid", stat.S_IFREG | 0o6755, 106, b"")],
    "loop": [(b"self", DIR, 4, b""), (b"up", DIR, 3, b""), (b"top", DIR, 2, b"")],
    "links": [(b"abs", stat.S_IFLNK | 0o777, 107, os.environ.get("LIAR_TARGET", "/etc/passwd").encode()),
              (b"rel", stat.S_IFLNK | 0o777, 108, b"../" * 20 + os.environ.get("LIAR_TARGET", "/etc/passwd").encode()),
              (b"long", stat.S_IFLNK | 0o777, 109, b"x/" * 2047), (b"nul", stat.S_IFLNK | 0o777, 110, b"/etc\0x"),
              (b"none", stat.S_IFLNK | 0o777, 111, b"")],
}

DEEP = b"/sandbox/home/d/1/2/3/4/5/6/7/8"


def moving(w, path):
    """A folder with a link in it, `here` below the home directory and `there` far below it."""
    at = (DEEP if w == "there" else HOME) + b"/c"
    if path in (at, at + b"/l"):
        return (DIR, 30, b"") if path == at else LISTS["links"][0][1:]
    if DEEP.startswith(path + b"/") or path == DEEP:
        return DIR, 10 + path.count(b"/"), b""
    return TREE[path] + (b"",) if path in TREE else None


class Liar:
    def __init__(self, sock):
        self.sock, self.lock, self.count, self.page = sock, threading.Lock(), 0, b""

    def get(self, n):
        data = b""
        while len(data) < n:
            piece = self.sock.recv(n - len(data))
            if not piece:
                raise OSError("the end")
            data += piece
        return data

    def answer(self, op, tag, value=0, data=b"", handle=0, flags=0, a=b"\0" * 112, offset=0, len_more=0, frame_flags=0):
        rep = REP.pack(handle, offset, 0, 0, flags, len(data), a)
        frame = FRAME.pack(max(0, len(rep) + len(data) + len_more), op, frame_flags, tag, value)
        with self.lock:
            self.sock.sendall(frame + rep + data)

    def push(self, *changes):
        data = b"".join(INVAL.pack(w, what, len(name)) + name for w, what, name in changes)
        self.answer(INVAL_OP, 0, len(changes), data)

    def flood(self, w):
        """Changes without end, while the mount asks and is not answered."""
        try:
            while word() == w:
                self.push(*([(0, ALL, b"")] * 2000 if w == "flood" else [(1, NAME, b"x%d" % i) for i in range(2000)]))
        except OSError:
            pass

    def grants(self, w):
        """Locks that nobody has asked it for: all numbers that a wait for one may have."""
        try:
            while word() == w:
                for n in range(256):
                    self.answer(GRANT, 0, 0, handle=n, a=attr(FILE, ino=5))
                time.sleep(0.05)
        except OSError:
            pass

    def hello(self, w):
        head = self.get(FRAME.size + REQ.size)
        _, op, _, tag, _ = FRAME.unpack_from(head)
        data = struct.pack("<6IQ", 4 << 20, 4294967295 if w == "greedy" else 128, 10240, 16384, 1, 0, 3)
        if w == "hello":  # a byte a second
            text = FRAME.pack(REP.size + len(data), op, 0, tag, 1) + REP.pack(0, 0, 0, 0, 0, len(data), b"\0" * 112) + data
            for b in text:
                self.sock.sendall(bytes([b]))
                time.sleep(1)
            return
        if w == "version":
            self.answer(op, tag, 2, data)
        elif w == "cap":
            self.answer(op, tag, 1, data + b"x")
        else:
            self.answer(op, tag, 1, data)

    def listing(self, w, tag, path, q):
        handle, flags, out = 0, END, []
        if path == HOME or not path or w == "loop":
            out = [(n, FILE if n == b"f" else DIR, TREE[HOME + b"/" + n][1], b"") for n in (b"f", b"d")]
            out = LISTS.get(w, out)
        if w in ("endless", "empty") and (path == HOME or not path):
            n = 4000 if w == "endless" else 0
            if n and not self.page:
                self.page = self.entries([(b"n%d" % i, FILE, 1000 + i, b"") for i in range(n)])
            return self.answer(LIST, tag, n, self.page if n else b"", 77)
        self.answer(LIST, tag, len(out) + (w == "count"), self.entries(out), handle, flags)

    def entries(self, of):
        return b"".join(ENTRY.pack(attr(m, 0, ino), i, len(n), len(t)) + n + t for i, (n, m, ino, t) in enumerate(of))

    def find(self, w, path):
        for name, mode, ino, target in LISTS.get(w, []):
            if path == HOME + b"/" + name:
                return mode, ino, target
        base = path.rsplit(b"/", 1)
        while w == "loop" and len(base) == 2 and base[1] in (b"self", b"up", b"top"):
            return DIR, {b"self": 4, b"up": 3, b"top": 2}[base[1]], b""
        if w in ("here", "there"):
            return moving(w, path)
        if w == "part" and path.startswith(HOME + b"/") and path not in TREE:
            return FILE, 50, b""
        return TREE[path] + (b"",) if path in TREE else None

    def truth(self, w, op, tag, path, q):
        found = self.find(w, path)
        size = {"size63": 1 << 63, "size62": (1 << 63) - 1}.get(w, len(TRUTH))
        if w == "grows":
            self.count += 1
            size = len(TRUTH) + self.count % 7 * 100000
        if op in (STAT, OPEN, WATCH) and not found:
            return self.answer(op, tag, ENOENT)
        mode, ino, target = found or (FILE, 5, b"")
        if w in ("dropped", "swapped") and op in (STAT, SETATTR) and q["handle"]:
            return self.answer(op, tag, ESTALE_E)
        if w == "swapped" and path == HOME + b"/f":
            ino = 51
        a = attr(mode, size if stat.S_ISREG(mode) else 4096, ino, version=self.count + 1)
        if op == STAT:
            return self.answer(op, tag, 0, target, a=a)
        if op == OPEN:
            return self.answer(op, tag, 0, TRUTH[:q["length"]] if w not in ("handle", "long") else b"", 99, a=a)
        if op == READ:
            data = TRUTH[q["offset"]:][:q["length"]]
            if w == "long":
                data = b"x" * (q["length"] + 1)
            return self.answer(op, tag, ESTALE_E, a=a) if w == "handle" else self.answer(op, tag, len(data), data)
        if op == WRITE:
            return self.answer(op, tag, 1 if w == "part" else q["data_len"], a=a)
        if op == WATCH:
            self.count += w != "same"
            return self.answer(op, tag, self.count, a=a)
        return self.answer(op, tag, 0, a=a)

    def lie(self, w, op, tag, path, q):
        """True: that was the answer."""
        if w in ("silent", "flood", "flood2", "stop"):
            if w.startswith("flood") and not self.count:
                self.count = 1
                threading.Thread(target=self.flood, args=(w,), daemon=True).start()
            while w == "stop" and word() == w:
                time.sleep(0.1)
            return True
        if w == "grant" and not self.count:
            self.count = 1
            threading.Thread(target=self.grants, args=(w,), daemon=True).start()
        if op in (CLOSE, HELLO):
            return False
        if w == "nosy" and op == MKDIR:  # the kernel keeps the folder for as long, and is told of names in it
            self.push(*((n, NAME, b"n%d" % n) for n in range(self.count + 1)))
            return True
        if w in ("here", "there") and (op == MKDIR or path == HOME + b"/c"):
            with open(sys.argv[3] + os.fsdecode(path[-2:]).replace("/", "."), "w"):
                pass
        if w in ("here", "there") and op == MKDIR:
            return True
        if w in ("here", "there") and op == WATCH:
            self.answer(op, tag, ENOSPC)
            return True
        if w == "stuck" and op == WRITE and q["offset"]:
            return True
        if w == "tag":
            self.answer(op, tag + 128, 0, a=attr(DIR))
        elif w == "slot":
            self.answer(op, tag + 1, 0, a=attr(DIR))
        elif w == "twice":
            for _ in range(2):
                self.answer(op, tag, 0, a=attr(DIR, ino=9))
        elif w == "op":
            self.answer(op + 1, tag, 0, a=attr(DIR))
        elif w == "flags":
            self.answer(op, tag, 0, frame_flags=1)
        elif w == "short":
            self.answer(op, tag, 0, len_more=-40)
        elif w == "more":
            self.answer(op, tag, 0, len_more=1000)
        elif w == "huge":
            with self.lock:
                self.sock.sendall(FRAME.pack(0xffffffff, op, 0, tag, 0) + REP.pack(0, 0, 0, 0, 0, 0xffffff00, b"\0" * 112))
        elif w == "errno":
            self.answer(op, tag, -(1 << 62))
        elif w == "enosys":
            self.answer(op, tag, -38)
        elif w == "eintr":
            self.answer(op, tag, -4)
        elif w == "close":
            end(self.sock)
        else:
            return False
        return True

    def serve(self):
        self.hello(word())
        while True:
            _, op, _, tag, _ = FRAME.unpack(self.get(FRAME.size))
            v = REQ.unpack(self.get(REQ.size))
            q = {"handle": v[1], "offset": v[3], "length": v[5], "data_len": v[18]}
            path = self.get(v[16])
            self.get(v[17] + v[18])
            w = word()
            if w in ("pass", "far", "cut"):
                return
            if w == "drip":
                time.sleep(0.3)
            if not self.lie(w, op, tag, path, q):
                (self.listing if op == LIST else lambda w, t, p, q: self.truth(w, op, t, p, q))(w, tag, path, q)


def connection(client):
    head = b""
    try:
        while word() == "hold":
            time.sleep(0.05)
        if word() == "cut":
            return end(client)
        if "/" not in sys.argv[1]:
            return both(client, b"")
        while b"\r\n\r\n" not in head:
            piece = client.recv(65536)
            if not piece:
                return end(client)
            head += piece
        if b"sbx-fs/1" not in head or word() in ("pass", "slow", "far") or neighbour() in head:
            return both(client, head)
        client.sendall(b"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: sbx-fs/1\r\n\r\n")
        Liar(client).serve()
    except OSError:
        pass
    end(client)


def both(client, head):
    try:
        server = address(sys.argv[2])
        server.sendall(head)
    except OSError:
        return end(client)
    threading.Thread(target=copy, args=(server, client), daemon=True).start()
    copy(client, server)


listener = address(sys.argv[1], True)
while True:
    c, _ = listener.accept()
    threading.Thread(target=connection, args=(c,), daemon=True).start()
