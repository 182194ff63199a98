# SPDX-License-Identifier: MIT
# climb.py PID…: from each folder that these processes hold, up by "..", as they could. Says of each of them how many
# folders it holds, and of each folder from which the way does not end at the process's root or in itself where it leads.
import os, sys

out = 0


def which(fd):
    st = os.fstat(fd)
    return st.st_dev, st.st_ino


def top(fd, root):
    here = which(fd)
    while here != root:  # a root bounds the walk, where it meets it
        up = os.open("..", os.O_PATH | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = up
        if which(fd) == here:
            break
        here = which(fd)
    name = os.readlink("/proc/self/fd/%d" % fd)
    os.close(fd)
    return here, name


for pid in sys.argv[1:]:
    proc = "/proc/" + pid
    name = open(proc + "/cmdline").read().split("\0")[0]
    st = os.stat(proc + "/root")
    root, folders = (st.st_dev, st.st_ino), 0
    for held in ["cwd"] + ["fd/" + fd for fd in os.listdir(proc + "/fd")]:
        path = proc + "/" + held
        if not os.path.isdir(path):
            continue
        folders += 1
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
        start = which(fd)
        end, where = top(fd, root)
        if end not in (root, start):
            print("%s: %s (%s) leads to %s" % (name, held, os.readlink(path), where))
            out = 1
    print("%s holds %d" % (name, folders))
sys.exit(out)
