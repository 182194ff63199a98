#!/usr/bin/python3
# SPDX-License-Identifier: MIT
# An sbx-pull that somebody has taken over, as skopeo might have been by what it read: the image's name
# registry.test/lie-NAME says what it brings and what it answers. pull.h has the layouts.
import array, hashlib, json, os, platform, socket, struct, sys, time

MAGIC = 0x50554C31
REQ = struct.Struct("<IIII512s")
ANS = struct.Struct("<IIiI256s")
uid, gid, state = int(sys.argv[1]), int(sys.argv[2]), sys.argv[4]
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


def image():  # manifest, configuration: of an image whose layer is told to have ten bytes
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    config = json.dumps({"architecture": arch, "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}).encode()
    kind = "application/vnd.oci.image."
    layer = {"mediaType": kind + "layer.v1.tar", "digest": "sha256:" + "7" * 64, "size": 10}
    of = {"mediaType": kind + "config.v1+json", "digest": "sha256:" + hashlib.sha256(config).hexdigest(), "size": len(config)}
    return json.dumps({"schemaVersion": 2, "mediaType": kind + "manifest.v1+json", "config": of, "layers": [layer]}).encode(), config


def linked(d, op):
    if op == 1:
        write(d + "/manifest", image()[0])
    else:
        os.symlink("/proc/self", d + "/image")


def grown(d, op):
    manifest, config = image()
    if op == 1:
        return write(d + "/manifest", manifest)
    os.mkdir(d + "/image")
    write(d + "/image/manifest.json", manifest)
    write(d + "/image/" + hashlib.sha256(config).hexdigest(), config)
    os.truncate(os.open(d + "/image/" + "7" * 64, os.O_RDWR | os.O_CREAT), 1 << 40)


TWICE = {"linked": linked, "grown": grown}
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
    if lie in TWICE:
        TWICE[lie]("%s/pull/%d" % (state, tag), op)
    if lie in LIES:
        LIES[lie]("%s/pull/%d" % (state, tag))
    answer(tag)
