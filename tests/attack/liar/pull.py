#!/usr/bin/python3
# SPDX-License-Identifier: MIT
# An sbx-pull that somebody has taken over, as skopeo might have been by what it read: the image's name
# registry.test/lie-NAME says what it brings and what it answers. pull.h has the layouts.
import array, os, socket, struct, sys, time

MAGIC = 0x50554C31
REQ = struct.Struct("<IIII512s")
ANS = struct.Struct("<IIiI256s")
uid, gid, state = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
front = socket.socket(fileno=3)
if os.fork():
    os._exit(0)  # the server waits for it, as for the real one
os.setgroups([])
os.setresgid(gid, gid, gid)
os.setresuid(uid, uid, uid)
os.makedirs(state + "/pull", mode=0o700, exist_ok=True)


def answer(tag, result=0, text=b"", magic=MAGIC):
    front.send(ANS.pack(magic, tag, result, 0, text))


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def deep(d):
    os.makedirs(d + "/image")
    at = os.open(d + "/image", os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=at)
        next_at = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = next_at
    os.close(at)
    write(d + "/manifest", b"{}")


def noise(d, tag):
    for other in range(tag + 3):
        if other != tag:
            answer(other, 0)
    answer(tag, 0, magic=1)
    front.send(b"short")
    front.send(b"x" * 5000)
    fds = array.array("i", [0] * 100)
    for _ in range(20):
        front.sendmsg([ANS.pack(MAGIC, 0xFFFFFFFF, 0, 0, b"")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    answer(tag, 9, b"\x1b]0;x\x07\n\xff\xfe\"</" + b"A" * 300)
    answer(tag, 0)
    answer(tag, -2147483648, b"%s%n")


LIES = {
    "fifo": lambda d: os.mkfifo(d + "/manifest"),
    "link": lambda d: os.symlink("/etc/passwd", d + "/manifest"),
    "records": lambda d: os.symlink("../../records.db", d + "/manifest"),
    "folder": lambda d: os.mkdir(d + "/manifest"),
    "huge": lambda d: os.truncate(os.open(d + "/manifest", os.O_RDWR | os.O_CREAT), 5 << 20),
    "hole": lambda d: os.truncate(os.open(d + "/manifest", os.O_RDWR | os.O_CREAT), 4 << 20),
    "nothing": lambda d: None,
    "deep": deep,
    "json": lambda d: write(d + "/manifest", b'{"layers":' + b"[" * 100000),
}
answer(0)
while True:
    data = front.recv(4096)
    if len(data) != REQ.size:
        sys.exit(0)
    magic, op, tag, source, ref = REQ.unpack(data)
    lie = ref.split(b"\0")[0].decode().split("lie-")[-1].split(":")[0].split("@")[0]
    if op == 3 or lie == "silent":
        continue
    if lie == "end":
        sys.exit(0)
    if lie == "noise":
        noise("%s/pull/%d" % (state, tag), tag)
        continue
    if lie in LIES:
        LIES[lie]("%s/pull/%d" % (state, tag))
    answer(tag)
