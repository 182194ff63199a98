#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The internet of the network tests: name servers, web servers, an echo, a server that speaks first.
Runs in its own network namespace; every connection and every query becomes a line of DIR/log.

  world.py DIR    DIR/zone: lines "NAME TYPE VALUE..." (A, AAAA, CNAME, or A with flip: one address, then the
                  other), read again for each query; DIR/cert.pem, DIR/key.pem; DIR/ready is made at the end
"""
import hashlib
import base64
import os
import socket
import ssl
import struct
import sys
import threading

DIR = sys.argv[1]
LOG = open(DIR + "/log", "a", buffering=1)
LOCK = threading.Lock()
FLIPS = {}


def log(*words):
    with LOCK:
        LOG.write(" ".join(str(w) for w in words) + "\n")


# --- names

def zone(name, kind):
    """Records of the name: [(name, kind, value)], or None when it does not exist."""
    found, exists = [], False
    with open(DIR + "/zone") as f:
        lines = [line.split() for line in f if line.strip()]
    for n, k, *values in lines:
        if n != name:
            continue
        exists = True
        if k == "CNAME":
            found.append((n, k, values[0]))
            more = zone(values[0], kind)
            found += more or []
        elif k == "FLIP" and kind == "A":
            i = FLIPS.get(n, 0)
            FLIPS[n] = i + 1
            found.append((n, "A", values[min(i, len(values) - 1)]))
        elif k == kind:
            found += [(n, k, v) for v in values]
        elif k in ("BIG", "SILENT", "FAIL"):
            found.append((n, k, ""))
    return found if exists else None


def pack_name(name):
    return b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0"


def pack_record(name, kind, value):
    code, data = {
        "A": (1, lambda: socket.inet_pton(socket.AF_INET, value)),
        "AAAA": (28, lambda: socket.inet_pton(socket.AF_INET6, value)),
        "CNAME": (5, lambda: pack_name(value)),
    }[kind]
    data = data()
    return pack_name(name) + struct.pack(">HHIH", code, 1, 60, len(data)) + data


def answer(query, tcp, at):
    labels, i = [], 12
    while query[i]:
        labels.append(query[i + 1:i + 1 + query[i]].decode("latin1"))
        i += 1 + query[i]
    name = ".".join(labels).lower()
    code = struct.unpack(">H", query[i + 1:i + 3])[0]
    kind = {1: "A", 28: "AAAA"}.get(code, "other")
    log("query", at, "tcp" if tcp else "udp", kind, name)
    records = zone(name, kind)
    question = query[12:i + 5]
    flags, rcode = 0x8180, 0
    if records is None:
        records, rcode = [], 3
    for _, k, _v in records:
        if k == "SILENT":
            return None
        if k == "FAIL":
            records, rcode = [], 2
            break
        if k == "BIG" and not tcp:
            flags |= 0x0200
    records = [r for r in records if r[1] in ("A", "AAAA", "CNAME")]
    if flags & 0x0200:
        records = []
    body = b"".join(pack_record(*r) for r in records)
    return query[:2] + struct.pack(">HHHHH", flags | rcode, 1, len(records), 0, 0) + question + body


def dns_udp(at):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((at, 53))
    while True:
        q, peer = s.recvfrom(2048)
        a = answer(q, False, at)
        if a:
            s.sendto(a, peer)


def dns_tcp(c):
    while True:
        head = c.recv(2, socket.MSG_WAITALL)
        if len(head) < 2:
            return
        q = c.recv(struct.unpack(">H", head)[0], socket.MSG_WAITALL)
        a = answer(q, True, c.getsockname()[0])
        c.sendall(struct.pack(">H", len(a)) + a)


# --- servers

def http(c, tls=""):
    f = c.makefile("rb")
    while True:
        line = f.readline().strip().decode("latin1")
        if not line:
            return
        headers = {}
        while True:
            h = f.readline().strip().decode("latin1")
            if not h:
                break
            k, _, v = h.partition(":")
            headers[k.lower()] = v.strip()
        log("request", line, "host", headers.get("host"), "tls", tls or "-")
        body = f.read(int(headers.get("content-length", 0)))
        if headers.get("transfer-encoding") == "chunked":
            while True:
                n = int(f.readline(), 16)
                body += f.read(n)
                f.readline()
                if n == 0:
                    break
        if line.split()[1] == "/half":  # of an answer; what follows is logged
            c.sendall(b"HTTP/1.1")
            c.shutdown(socket.SHUT_WR)
        if line.split()[1] in ("/half", "/none"):
            for rest in f:
                log("behind", rest.strip().decode("latin1"))
            log("ended", line)
            return
        if headers.get("upgrade") == "websocket":
            key = headers.get("sec-websocket-key", "") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
            c.sendall(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                       "Sec-WebSocket-Accept: %s\r\n\r\n" % accept).encode())
            while True:
                d = f.read1(4096)
                if not d:
                    return
                c.sendall(d)
        text = "host=%s path=%s body=%d\n" % (headers.get("host"), line.split()[1], len(body))
        if line.split()[1].startswith("/big/"):
            size = int(line.split()[1][5:])
            c.sendall(("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size).encode())
            chunk = b"x" * 65536
            while size:
                n = min(size, len(chunk))
                c.sendall(chunk[:n])
                size -= n
            continue
        c.sendall(("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s"
                   % (len(text), text)).encode())


def https(c):
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.set_ciphers("ALL:@SECLEVEL=0")  # the base image's client knows only old ones
    ctx.load_cert_chain(DIR + "/cert.pem", DIR + "/key.pem")
    names = []
    ctx.sni_callback = lambda _s, n, _c: names.append(n)
    t = ctx.wrap_socket(c, server_side=True)
    http(t, names[0] if names else "none")


def echo(c):
    """What comes goes back, and the end too."""
    while True:
        d = c.recv(65536)
        if not d:
            break
        c.sendall(d)
    c.shutdown(socket.SHUT_WR)


def count(c):
    """Says how much came, after the end of it."""
    n = 0
    while True:
        d = c.recv(65536)
        if not d:
            break
        n += len(d)
    c.sendall(b"%d\n" % n)


def first(c):
    """Speaks first, as ssh and mail servers do."""
    c.sendall(b"SSH-2.0-world\r\n")
    d = c.recv(1024)
    c.sendall(b"got " + d)


def banner(c):
    """Speaks first and much, as much as the port says in units of 16 KiB from 20000 on, then hears the other out."""
    c.sendall(b"x" * ((c.getsockname()[1] - 20000) * 16384))
    while c.recv(65536):
        pass


def sink(c):
    """Tells in the log what arrives, line by line."""
    peer = c.getpeername()[1]
    try:
        for line in c.makefile("rb"):
            log("sink", peer, line.decode("latin1").strip())
    except OSError:
        pass
    log("sink", peer, "ended")


def serve(port, fn, family=socket.AF_INET):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind(("" if family == socket.AF_INET6 else "0.0.0.0", port))
    s.listen(512)

    def one(c):
        try:
            fn(c)
        except (OSError, ssl.SSLError, ValueError, IndexError):
            pass
        finally:
            c.close()

    def loop():
        while True:
            c, _peer = s.accept()
            log("connect", "%s:%d" % c.getsockname()[:2])
            threading.Thread(target=one, args=(c,), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()


SERVERS = {53: dns_tcp, 80: http, 443: https, 22: first, 7: echo, 8: count, 9: sink, 8080: http, 8443: https, 3128: http}
for p, fun in SERVERS.items():
    serve(p, fun)
for p in range(20001, 20065):
    serve(p, banner)
serve(80, http, socket.AF_INET6)
for at in ("11.0.0.53", "192.168.77.53"):
    threading.Thread(target=dns_udp, args=(at,), daemon=True).start()
open(DIR + "/ready", "w").close()
threading.Event().wait()
