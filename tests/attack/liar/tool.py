#!/usr/bin/python3
# SPDX-License-Identifier: MIT
# A run of skopeo that its registry has taken over: the image's name registry.test/lie-NAME says what it tries in its
# cell. What came of it goes into its last words, which the image's error shows.
import ctypes, errno, mmap, os, platform, re, resource, signal, socket, struct, sys, time

libc = ctypes.CDLL(None, use_errno=True)
lie = re.search(r"/lie-([a-z]+)", " ".join(sys.argv)).group(1)
tag = os.environ["HOME"].split("/")[-1]
work = "/tmp/pull/" + tag
os.chdir(work)
NR = {  # x86_64, and what all later machines have
    "ioprio_set": (251, 30), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "ptrace": (101, 117), "unshare": (272, 97), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "bpf": (321, 280), "io_uring_setup": (425, 425), "io_setup": (206, 0),
    "perf_event_open": (298, 241), "sched_setattr": (314, 274), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122), "setpriority": (141, 140),
    "inotify_init1": (294, 26), "userfaultfd": (323, 282), "open_tree": (428, 428), "fallocate": (285, 47),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "setns": (308, 268), "clone": (56, 220),
    "clone3": (435, 435), "process_vm_readv": (310, 270), "kcmp": (312, 272), "process_mrelease": (448, 448),
    "process_madvise": (440, 440), "socketpair": (53, 199), "mount": (165, 40), "umount2": (166, 39),
    "chroot": (161, 51), "mount_setattr": (442, 442), "seccomp": (317, 277), "name_to_handle_at": (303, 264),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "mbind": (237, 235), "personality": (135, 92),
    "socket": (41, 198), "memfd_create": (319, 279),
}
ALLOWED = ("clone", "clone3", "memfd_create", "pidfd_open", "socket")


def number(name):
    return NR[name][0 if platform.machine() == "x86_64" else 1]


def at(nr, *args):
    got = libc.syscall(nr, *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got


def call(name, *args):
    return at(number(name), *args)


# The filter's own answer, to what the kernel would answer in another way: by this it is seen that it was the filter,
# whatever this kernel has, and whatever this machine's settings allow.
def filtered(answer, attempt):
    def tried():
        try:
            attempt()
        except OSError as e:
            if e.errno == answer:
                raise
    return tried


def nonsense(name):  # EBADF, EFAULT, EINVAL, ESRCH; or it is done
    return filtered(errno.EPERM, lambda: call(name, -1, -1, -1, -1, -1, -1))


def later():  # whatever they do, and will do
    for nr in range(463, 1024):
        try:
            at(nr, -1, -1, -1, -1, -1, -1)
            return
        except OSError as e:
            if e.errno != errno.ENOSYS:
                return
    raise OSError(errno.ENOSYS, "none of them")


def family(answer, *kind):  # EINVAL, for the type
    return filtered(answer, lambda: call("socket", kind[0], -1, *kind[1:]))


def request(number):  # EFAULT, EBADF; or it is done
    def asked():
        fd = os.open("asked", os.O_RDWR | os.O_CREAT)
        got = libc.ioctl(fd, ctypes.c_ulong(number), ctypes.c_long(-1))
        wrong = ctypes.get_errno()
        os.close(fd)
        if got < 0:
            raise OSError(wrong, os.strerror(wrong))
    return filtered(errno.ENOTTY, asked)


def core_limit():  # 1, by which the kernel starts nobody for a crash
    for n in (0, 1):
        PR.setrlimit(PR.RLIMIT_CORE, (0, 0)) if n else PR.prlimit(0, PR.RLIMIT_CORE, (0, 0))
    if PR.getrlimit(PR.RLIMIT_CORE) == (1, 1):
        raise OSError("it stays")


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
    "mount-tree": lambda: call("open_tree", -100, b"/", 0),
    "io-uring": lambda: call("io_uring_setup", 4, ctypes.create_string_buffer(256)),
    "userfaultfd": lambda: call("userfaultfd", 1),
    "huge-pages": huge_pages,
    "huge-memory": lambda: call("memfd_create", b"huge", 4),
    **{"nonsense-" + name: nonsense(name) for name in NR if name not in ALLOWED and number(name)},
    # with what no kernel gives: a new user's namespace and a shared root
    "namespace-by-clone": filtered(errno.EPERM, lambda: call("clone", 0x10000200, 0, 0, 0, 0)),
    "namespace-by-clone3": filtered(errno.ENOSYS, lambda: call("clone3", struct.pack("<8Q", 0x10000200, *[0] * 7), 64)),
    "half-a-processor": filtered(errno.EPERM, lambda: prctl(62, -1, 0, 0, 0)),
    "later-calls": later,
    "core-limit": core_limit,
    # networks that are not its cell's
    "vsock": family(errno.EAFNOSUPPORT, 40, 0),
    "kernel-crypto": family(errno.EAFNOSUPPORT, 38, 0),
    "mptcp": family(errno.EPROTONOSUPPORT, socket.AF_INET, 262),
    "diagnosis": family(errno.EPROTONOSUPPORT, socket.AF_NETLINK, 4),
    # of one file system: flags, projects (whose quota others have), shared data; of any: maps, sizes
    **{name: request(nr) for name, nr in {"project": 0x401C5820, "flags": 0x40086602, "clone-of": 0x40049409,
                                          "map": 0xC020660B, "block-size": 2}.items()},
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
