# SPDX-License-Identifier: MIT
# attach.py SOCKET ID TIMES COUNT: so many times a connection of sbx-fs/1 that attaches COUNT descriptors to a
# request for which nobody expects any. Says how many of the connections were ended for it.
import array, socket, struct, sys

sock, box, times, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
REQ = 8 * 6 + 4 * 4 + 16 * 2 + 4 * 4  # struct files_req
HELLO, STAT = 31, 1
null = open("/dev/null")


def connect():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    s.connect(sock)
    s.sendall(("GET /v1/sandboxes/%s/fs HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
               "Upgrade: sbx-fs/1\r\n\r\n" % box).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += s.recv(1)
    assert b" 101 " in head, head
    return s


def answered(s):
    need, got = 24, b""
    while len(got) < need:
        try:
            more = s.recv(need - len(got))
        except ConnectionResetError:
            return False
        if not more:
            return False
        got += more
        if len(got) == 24:
            need = 24 + struct.unpack_from("<I", got)[0]
    return True


def ask(s, op, tag, value, path, attached):
    req = bytearray(REQ)
    struct.pack_into("<I", req, REQ - 16, len(path))
    msg = struct.pack("<IHHQq", REQ + len(path), op, 0, tag, value) + bytes(req) + path
    fds = array.array("i", [null.fileno()] * attached)
    s.sendmsg([msg], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if attached else [])
    return answered(s)


ended = 0
for _ in range(times):
    with connect() as s:
        assert ask(s, HELLO, 1, 1, b"", 0)
        assert ask(s, STAT, 2, 0, b"/", 0)
        ended += not ask(s, STAT, 3, 0, b"/", count)
print(ended)
