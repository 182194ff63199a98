#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""oci.py DIR KIND: makes an OCI layout for the tests of images. The kinds are the functions below: a small
root that works in several layers, and layers of every hostile sort. Needs a static busybox."""
import gzip, hashlib, io, json, os, shutil, sys, tarfile

BUSYBOX = next((b for b in (os.environ.get("BUSYBOX"), "/bin/busybox", "/usr/bin/busybox") if b and os.path.exists(b)), None)


class Tar:
    def __init__(self):
        self.buf = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.buf, mode="w", format=tarfile.PAX_FORMAT)

    def put(self, name, data=None, kind=tarfile.REGTYPE, link="", mode=0o644, uid=0, dev=(0, 0), pax=None):
        i = tarfile.TarInfo(name)
        i.type, i.linkname, i.mode, i.uid, i.gid = kind, link, mode, uid, uid
        i.devmajor, i.devminor = dev
        i.pax_headers = pax or {}
        data = data.encode() if isinstance(data, str) else data or b""
        i.size = len(data) if kind == tarfile.REGTYPE else 0
        self.tar.addfile(i, io.BytesIO(data) if i.size else None)
        return self

    def dir(self, name, mode=0o755, uid=0):
        return self.put(name, kind=tarfile.DIRTYPE, mode=mode, uid=uid)

    def link(self, name, to):
        return self.put(name, kind=tarfile.SYMTYPE, link=to, mode=0o777)

    def done(self):
        self.tar.close()
        return self.buf.getvalue()


class Layout:
    """Blobs by digest, one index. compress: gzip, zstd or none, per layer."""

    def __init__(self, path):
        self.path, self.blobs = path, os.path.join(path, "blobs", "sha256")
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(self.blobs)
        with open(os.path.join(path, "oci-layout"), "w") as f:
            json.dump({"imageLayoutVersion": "1.0.0"}, f)

    def blob(self, data):
        name = hashlib.sha256(data).hexdigest()
        with open(os.path.join(self.blobs, name), "wb") as f:
            f.write(data)
        return {"digest": "sha256:" + name, "size": len(data)}

    def image(self, layers, env=(), arch=None, compress="gzip", config=None, layer_type=None, edit=None):
        arch = arch or {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, "amd64")
        descs, diffs = [], []
        for tar in layers:
            diffs.append("sha256:" + hashlib.sha256(tar).hexdigest())
            packed, suffix = pack(tar, compress)
            descs.append({"mediaType": layer_type or "application/vnd.oci.image.layer.v1.tar" + suffix, **self.blob(packed)})
        conf = config if config is not None else {
            "architecture": arch, "os": "linux", "rootfs": {"type": "layers", "diff_ids": diffs},
            "config": {"Env": list(env), "User": "root", "WorkingDir": "/etc", "Entrypoint": ["/bin/false"]}}
        m = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
             "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **self.blob(json.dumps(conf).encode())},
             "layers": descs}
        if edit:
            edit(m)
        return {"mediaType": m["mediaType"], **self.blob(json.dumps(m).encode())}, arch

    def index(self, *descs):
        with open(os.path.join(self.path, "index.json"), "w") as f:
            json.dump({"schemaVersion": 2, "manifests": list(descs)}, f)


def pack(tar, how):
    if how == "none":
        return tar, ""
    if how == "zstd":
        import subprocess
        return subprocess.run(["zstd", "-q", "-c"], input=tar, stdout=subprocess.PIPE, check=True).stdout, "+zstd"
    return gzip.compress(tar, 1, mtime=0), "+gzip"


def root():
    """The lowest layer: a shell and some things to be changed by those above."""
    t = Tar()
    for d in ("bin", "etc", "usr", "usr/share", "var", "var/gone", "var/hidden", "opt"):
        t.dir(d)
    t.dir("tmp", 0o1777)
    with open(BUSYBOX, "rb") as f:
        t.put("bin/busybox", f.read(), mode=0o755)
    for a in ("sh", "cat", "ls", "id", "env", "stat", "find", "test", "echo", "pwd", "true"):
        t.link("bin/" + a, "busybox")
    t.put("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nimage:x:1001:1001::/home/image:/bin/sh\n")
    t.put("etc/group", "root:x:0:\nimage:x:1001:\n")
    t.put("etc/keep", "lowest").put("etc/change", "lowest").put("etc/delete", "lowest")
    t.put("var/gone/file", "lowest").put("var/hidden/file", "lowest").put("opt/is-a-file", "lowest")
    return t.done()


def upper():
    t = Tar()
    t.put("etc/change", "upper").put("etc/.wh.delete").put("var/.wh.gone")
    t.dir("var/hidden").put("var/hidden/.wh..wh..opq").put("var/hidden/new", "upper")
    t.put("opt/.wh.is-a-file").dir("opt/is-a-file").put("opt/is-a-file/inside", "upper")
    return t.done()


ENV = ("PATH=/bin:/usr/bin", "COLOUR=blue", "HOME=/root", "USER=root", "LD_PRELOAD=/x.so", "BAD NAME=1", "EMPTY=", "nothing")


def one(lay, **more):
    return lay.image([root(), upper()], ENV, **more)


def good(lay):
    d, _ = one(lay)
    lay.index(d)


def plain(lay):
    d, _ = one(lay, compress="none")
    lay.index(d)


def zstd(lay):
    d, _ = one(lay, compress="zstd")
    lay.index(d)


def many(lay):
    """An index for several machines, ours in the middle."""
    ours, arch = one(lay)
    other, _ = lay.image([Tar().put("other", "x").done()], arch="s390x")
    lay.index({**other, "platform": {"os": "linux", "architecture": "s390x"}},
              {**ours, "platform": {"os": "linux", "architecture": arch}},
              {**other, "platform": {"os": "unknown", "architecture": "unknown"}})


def foreign(lay):
    d, _ = lay.image([root()], arch="s390x")
    lay.index(d)


def wide(lay):
    """127 layers, each on top of the other."""
    d, _ = lay.image([root()] + [Tar().put("n/%d" % i, str(i)).put("n/last", str(i)).done() for i in range(126)])
    lay.index(d)


def too_wide(lay):
    d, _ = lay.image([root()] + [Tar().put("n/%d" % i, str(i)).done() for i in range(127)])
    lay.index(d)


def scratch(lay):
    """Nothing that a sandbox needs is there but a program."""
    with open(BUSYBOX, "rb") as f:
        d, _ = lay.image([Tar().put("busybox", f.read(), mode=0o755).done()])
    lay.index(d)


def covered(lay):
    """The second layer hides all of the first."""
    t = Tar().put(".wh..wh..opq").dir("bin")
    with open(BUSYBOX, "rb") as f:
        t.put("bin/busybox", f.read(), mode=0o755)
    for a in ("sh", "cat", "ls", "test", "echo"):
        t.link("bin/" + a, "busybox")
    d, _ = lay.image([root(), t.done()])
    lay.index(d)


def all_out(lay):
    """Whiteouts of everything there is, and of what is not."""
    t = Tar()
    for n in ("bin", "etc", "usr", "var", "opt", "tmp", "no-such"):
        t.put(".wh." + n)
    d, _ = lay.image([root(), t.done()])
    lay.index(d)


def bad(name, tar, **more):
    def make(lay):
        d, _ = lay.image([root(), tar()], **more)
        lay.index(d)
    make.__name__ = name
    globals()[name] = make


bad("absolute", lambda: Tar().put("/etc/escaped", "x").done())
bad("dots", lambda: Tar().put("../escaped", "x").done())
bad("inner_dots", lambda: Tar().put("a/../../escaped", "x").done())
bad("hard_out", lambda: Tar().put("h", kind=tarfile.LNKTYPE, link="../../etc/passwd").done())
bad("through_link", lambda: Tar().link("l", "/etc").put("l/escaped", "x").done())
bad("wh_dots", lambda: Tar().put("etc/.wh...").done())
bad("wh_dot", lambda: Tar().put("etc/.wh..").done())
bad("wh_nothing", lambda: Tar().put("etc/.wh.").done())
bad("wh_out", lambda: Tar().put("../.wh.x").done())
bad("wh_below_link", lambda: Tar().link("l", "/etc").put("l/.wh.passwd").done())
bad("wh_below_file", lambda: Tar().put("f", "x").put("f/.wh.x").done())
bad("owner", lambda: Tar().put("f", "x", uid=70000).done())
bad("proc_link", lambda: Tar().put(".wh.proc").link("proc", "etc").done())
bad("home_link", lambda: Tar().link("sandbox", "/etc").done())
bad("deep", lambda: Tar().put("/".join(["d"] * 2000) + "/f", "x").done())
bad("truncated", lambda: Tar().put("f", b"x" * 100000).done()[:50000], compress="none")
bad("garbage", lambda: bytes((i * 7919 >> 3) & 255 for i in range(100000)), compress="none")
bad("layer_type", lambda: Tar().put("f", "x").done(), layer_type="application/vnd.example.squashfs")


def devices(lay):
    t = Tar()
    t.put("etc/null", kind=tarfile.CHRTYPE, dev=(1, 3)).put("etc/disk", kind=tarfile.BLKTYPE, dev=(8, 0))
    t.put("etc/pipe", kind=tarfile.FIFOTYPE).put("etc/keep", kind=tarfile.CHRTYPE, dev=(0, 0))
    t.put("etc/xattrs", "x", pax={"SCHILY.xattr.trusted.overlay.redirect": "/etc", "SCHILY.xattr.user.overlay.opaque": "y",
                                  "SCHILY.xattr.user.colour": "blue"})
    d, _ = lay.image([root(), t.done()])
    lay.index(d)


def wrong_blob(lay):
    good(lay)
    big = max((os.path.join(lay.blobs, b) for b in os.listdir(lay.blobs)), key=os.path.getsize)
    with open(big, "r+b") as f:
        f.seek(1000)
        f.write(b"X")


def wrong_manifest(lay):
    d, _ = one(lay)
    with open(os.path.join(lay.blobs, d["digest"][7:]), "ab") as f:
        f.write(b" ")
    lay.index(d)


def bomb(lay):
    """More than a gigabyte of nothing in a little over one megabyte."""
    t = Tar()
    i = tarfile.TarInfo("zeros")
    i.size = 5 << 28
    head = i.tobuf(tarfile.PAX_FORMAT if i.size < (8 << 30) else tarfile.GNU_FORMAT)
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="w", compresslevel=9, mtime=0) as z:
        z.write(head)
        for _ in range(i.size >> 20):
            z.write(bytes(1 << 20))
        z.write(bytes(1024))
    packed = out.getvalue()

    def edit(m):
        m["layers"].append({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **lay.blob(packed)})
    d, _ = lay.image([root()], edit=edit)
    lay.index(d)


def crowd(lay):
    """A hundred thousand entries."""
    t = Tar()
    t.dir("crowd")
    for i in range(100000):
        if i % 1000 == 0:
            t.dir("crowd/%d" % (i // 1000))
        t.put("crowd/%d/%d" % (i // 1000, i))
    d, _ = lay.image([root(), t.done()])
    lay.index(d)


def huge_env(lay):
    d, _ = lay.image([root()], ["V%d=%s" % (i, "x" * 300) for i in range(999)])
    lay.index(d)


def not_json(lay):
    d, _ = lay.image([root()], config="no object")
    lay.index(d)


def negative(lay):
    def edit(m):
        m["layers"][0]["size"] = -1
    d, _ = lay.image([root()], edit=edit)
    lay.index(d)


def path_digest(lay):
    def edit(m):
        m["layers"][0]["digest"] = "sha256:../../../../../../../../../../../../../../etc/passwd"
    d, _ = lay.image([root()], edit=edit)
    lay.index(d)


if __name__ == "__main__":
    globals()[sys.argv[2]](Layout(sys.argv[1]))
