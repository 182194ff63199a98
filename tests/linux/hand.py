# SPDX-License-Identifier: MIT
# The host's side of hand.c: tells it what to do inside, over a port of the mount.
import errno
import os
import socket
import time

B = os.environ["B"]
H = os.environ["H"]  # the folder on the first mount
H2 = os.environ.get("H2", H)
DIR = os.environ["DIR"]  # the same inside
PATIENCE = 30


class Hand:
    def __init__(self, port=7000):
        end = time.time() + PATIENCE
        while True:
            self.s = socket.socket(socket.AF_UNIX)
            try:
                self.s.connect(f"{B}/ports/{port}/socket")
                self.f = self.s.makefile("rw", newline="\n")
                if self.ask("nonsense") == -errno.ENOSYS:
                    return
            except OSError:
                pass
            self.s.close()
            assert time.time() < end, "the hand inside does not answer"
            time.sleep(0.05)

    def send(self, *words):
        self.f.write("\t".join(str(w) for w in words) + "\n")
        self.f.flush()

    def answer(self):
        line = self.f.readline()
        if not line:
            raise OSError("the hand is gone")
        return int(line)

    def ask(self, *words):
        self.send(*words)
        return self.answer()

    def do(self, *words):
        r = self.ask(*words)
        assert r == 0, f"{words}: {errno.errorcode.get(-r, r)}"


def inside(name):
    return f"{DIR}/{name}"


def until(what, fn):
    """Waits until fn() is true: what is told a moment later may be a moment late."""
    end = time.time() + PATIENCE
    while not fn():
        assert time.time() < end, what
        time.sleep(0.002)
