#!/usr/bin/python3
# SPDX-License-Identifier: MIT
# A run of skopeo that its registry has taken over: the image's name registry.test/lie-NAME says what it tries in its
# cell. What came of it goes into its last words, which the image's error shows.
import ctypes, errno, mmap, os, platform, re, resource, signal, socket, sys, time

libc = ctypes.CDLL(None, use_errno=True)
lie = re.search(r"/lie-([a-z]+)", " ".join(sys.argv)).group(1)
tag = os.environ["HOME"].split("/")[-1]
work = "/tmp/pull/" + tag
os.chdir(work)
NR = {  # x86_64, and what all later machines have
    "ioprio_set": (251, 30), "add_key": (248, 217), "keyctl": (250, 219), "ptrace": (101, 117), "unshare": (272, 97),
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "bpf": (321, 280),
    "io_uring_setup": (425, 425), "perf_event_open": (298, 241), "sched_setattr": (314, 274),
    "inotify_init1": (294, 26), "userfaultfd": (323, 282), "open_tree": (428, 428), "fallocate": (285, 47),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "setns": (308, 268), "clone3": (435, 435),
}


def call(name, *args):
    nr = NR[name][0 if platform.machine() == "x86_64" else 1]
    got = libc.syscall(nr, *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got


def ioctl(request, fill):
    fd = os.open(work, os.O_RDONLY)
    buf = ctypes.create_string_buffer(fill, 4096)
    got = libc.ioctl(fd, ctypes.c_ulong(request), buf)
    wrong = ctypes.get_errno()
    os.close(fd)
    if got < 0 and wrong not in (22, 95):  # these two: it was heard, but not with these numbers
        raise OSError(wrong, os.strerror(wrong))


def prctl(*args):
    if libc.prctl(*[ctypes.c_ulong(a) for a in args]) < 0:
        raise OSError(ctypes.get_errno(), "prctl")


def huge_pages():
    try:
        mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)
    except OSError as e:
        if e.errno != errno.ENOMEM:  # there are none at the moment
            raise


def alive(pid, sig):
    os.kill(pid, sig)
    raise OSError("it has no effect on the first process")


def loop(path, kind):
    s = socket.socket(*kind)
    s.close()


PR = resource
ATTEMPTS = {
    # the cell's first process, which has the same user
    "its-nproc": lambda: PR.prlimit(1, PR.RLIMIT_NPROC, (0, 0)),
    "its-nofile": lambda: PR.prlimit(1, PR.RLIMIT_NOFILE, (0, 0)),
    "its-cpu": lambda: PR.prlimit(1, PR.RLIMIT_CPU, (1000000, 1000000)),
    "its-affinity": lambda: os.sched_setaffinity(1, os.sched_getaffinity(1)),
    "its-policy": lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
    "its-niceness": lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
    "its-user's-niceness": lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),
    "its-disk": lambda: call("ioprio_set", 1, 1, 3 << 13),
    "its-memory": lambda: os.open("/proc/1/mem", os.O_RDONLY),
    "its-environment": lambda: os.open("/proc/1/environ", os.O_RDONLY),
    "its-descriptors": lambda: os.listdir("/proc/1/fd"),
    "its-root": lambda: os.listdir("/proc/1/root/"),
    "its-descriptor": lambda: call("pidfd_getfd", call("pidfd_open", 1, 0), 3, 0),
    "its-trace": lambda: call("ptrace", 0x4206, 1, 0, 0),
    # what the kernel keeps by user, or when all processes have ended
    "a-key": lambda: call("add_key", b"user", b"sign", b"x", 1, -4),
    "keyrings": lambda: call("keyctl", 0, -4, 1),
    "shared-memory": lambda: call("shmget", 77, 4096, 0o1600),
    "messages": lambda: call("msgget", 77, 0o1600),
    "semaphores": lambda: call("semget", 77, 1, 0o1600),
    "queue": lambda: call("mq_open", b"sign", 0o102, 0o600, 0),
    "watches": lambda: call("inotify_init1", 0),
    "descriptors-in-flight": lambda: loop(None, (socket.AF_UNIX, socket.SOCK_DGRAM)),
    "a-pair": lambda: socket.socketpair(),
    # namespaces, where it would have all rights, and code of the kernel that a copy needs none of
    "user-namespace": lambda: call("unshare", 0x10000000),
    "user-namespace-by-clone3": lambda: call("clone3", 0, 0),
    "mount-tree": lambda: call("open_tree", -100, b"/", 0),
    "bpf": lambda: call("bpf", 5, 0, 0),
    "io-uring": lambda: call("io_uring_setup", 4, ctypes.create_string_buffer(256)),
    "perf": lambda: call("perf_event_open", ctypes.create_string_buffer(b"\1\0\0\0\x80", 256), 0, -1, -1, 0),
    "userfaultfd": lambda: call("userfaultfd", 1),
    "half-a-processor": lambda: prctl(62, 1, 0, 0, 0),
    "huge-pages": huge_pages,
    # networks that are not its cell's
    "vsock": lambda: loop(None, (40, socket.SOCK_STREAM)),
    "kernel-crypto": lambda: loop(None, (38, socket.SOCK_SEQPACKET)),
    "mptcp": lambda: loop(None, (socket.AF_INET, socket.SOCK_STREAM, 262)),
    # of one file system: flags, projects (whose quota others have), subvolumes and snapshots
    "project": lambda: ioctl(0x401C5820, b"\0" * 12 + b"\x77\x77\1\0"),
    "flags": lambda: ioctl(0x40086602, b"\x40\0\0\0"),
    "subvolume": lambda: ioctl(0x5000940E, b"\0" * 8 + b"sub"),
    "encryption": lambda: ioctl(0xC0506617, b"\0" * 80),
    "hidden-bytes": lambda: call("fallocate", os.open("hidden", os.O_RDWR | os.O_CREAT), 1, 0, 1 << 20),
    # the folder that the work's lies in, and the rest of the root
    "beside-its-work": lambda: os.mkdir("/tmp/pull/%d" % (int(tag) + 4)),
    "its-work's-name": lambda: os.rename(work, "/tmp/pull/mine"),
    "mode-of-the-lent": lambda: os.chmod("/tmp/pull", 0),
    "mark-on-the-lent": lambda: os.setxattr("/tmp/pull", "user.mark", b"x"),
    "write-root": lambda: os.mkdir("/tmp/mine"),
    # signals
    **{"signal-%d" % s: (lambda s=s: alive(1, s)) for s in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)},
}


def words(text):
    sys.stderr.write('level=fatal msg="%s"\n' % text)
    sys.exit(1)


def reach():
    got = []
    for name, attempt in ATTEMPTS.items():
        try:
            attempt()
            got.append(name)
        except OSError:
            pass
    with open("/proc/self/oom_score_adj") as f:
        if f.read().strip() != "1000":
            got.append("not-the-first-to-go")
    words("got " + (" ".join(got) or "nothing"))


def closed():  # folders in which nobody may do anything, one below the other, and deep
    os.makedirs("image/a/b/c")
    at = os.open("image", os.O_RDONLY)
    for _ in range(150):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.fchmod(at, 0)
        os.close(at)
        at = below
    os.fchmod(at, 0)
    for d in ("a", "b"):
        os.makedirs(d + "/x/y")
        os.chmod(d + "/x", 0o400)
        os.chmod(d, 0o500)
    try:
        os.chmod("/tmp/pull", 0)
    except OSError:
        pass
    os.chmod(work, 0)
    words("closed")


def many():  # files without a byte, which no sum shows
    os.mkdir("junk")
    for n in range(2500):
        os.close(os.open("junk/%d" % n, os.O_WRONLY | os.O_CREAT))
    time.sleep(1000)


def beside():  # bytes where the image is not
    os.mkdir("junk")
    for n in range(80):
        with open("junk/%d" % n, "wb") as f:
            f.write(bytes(1 << 20))
    time.sleep(1000)


def hidden():  # what is in a folder without the right to read it
    os.mkdir("junk")
    os.chmod("junk", 0o300)
    time.sleep(1000)


def ways():  # connections that stay, as many as there can be
    port = int(os.environ["HTTPS_PROXY"].rsplit(":", 1)[1])
    kept = []
    for _ in range(150):
        s = socket.create_connection(("127.0.0.1", port), 5)
        s.send(b"CONNECT 203.0.113.1:443 HTTP/1.1\r\n")
        kept.append(s)
    if lie == "waysheld":
        open("held", "w").close()
        time.sleep(1000)
    words("left %d" % len(kept))


def way():  # one connection: does anybody listen to it?
    port = int(os.environ["HTTPS_PROXY"].rsplit(":", 1)[1])
    s = socket.create_connection(("127.0.0.1", port), 5)
    s.settimeout(20)
    s.send(b"GET / HTTP/1.1\r\n\r\n")
    words("heard " + s.recv(100).decode().split("\r")[0])


def stays():  # until it is ended
    time.sleep(1000)


globals()[{"waysheld": "ways"}.get(lie, lie)]()
