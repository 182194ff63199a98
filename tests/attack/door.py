#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Attacks on the server's door, as bytes on a socket. Each row says which answers are right; what follows a row's
bytes is never answered as a request of its own unless the row says so.

  door.py rows ADDRESS TOKEN          framing, smuggling, hosts, origins: prints what went wrong; exit 1 then
  door.py pipeline ADDRESS N          N requests at once, N answers in order
  door.py flood ADDRESS N SECS        N connections that say nothing, while one client asks
  door.py slow ADDRESS TOKEN          slow headers and readers beside a client that asks
  door.py tls ADDRESS CA              bad TLS peers
ADDRESS: unix:/path or tcp:port. ROWS=word keeps the rows whose name holds it."""
import concurrent.futures
import functools
import os
import resource
import select
import socket
import ssl
import struct
import sys
import threading
import time

PATIENCE = 30


def connect(address, block=True):
    kind, where = address.split(":", 1)
    s = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET, socket.SOCK_STREAM)
    # As a plain client does, who waits for a place in a full queue; with Python's own timeout he would not.
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", PATIENCE, 0))
    s.connect(where if kind == "unix" else ("127.0.0.1", int(where)))
    s.settimeout(PATIENCE)
    return s


def answers_of(data):
    """The status of each answer in a stream; None where a body is cut."""
    got = []
    while data.startswith(b"HTTP/1."):
        head, sep, rest = data.partition(b"\r\n\r\n")
        if not sep:
            break
        status = int(head.split()[1])
        fields = {}
        for line in head.split(b"\r\n")[1:]:
            k, _, v = line.partition(b":")
            fields[k.strip().lower()] = v.strip()
        got.append(status)
        if status == 100 or status == 204:
            data = rest
        elif b"content-length" in fields:
            data = rest[int(fields[b"content-length"]):]
        elif fields.get(b"transfer-encoding") == b"chunked":
            at = rest.find(b"0\r\n\r\n")
            data = rest[at + 5:] if at >= 0 else b""
        else:
            data = b""
    if data:
        got.append("rest")
    return got


def talk(address, sent, fine, quiet=0.6):
    """Sends, then reads until the server closes or has said nothing for a while after all that is right; what is
    missing yet, an answer or the end, has time on a slow machine."""
    s = connect(address)
    try:
        s.sendall(sent)
    except OSError:
        pass
    data, closed, end = b"", False, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        wait = quiet if data else 2
        if not select.select([s], [], [], wait)[0]:
            if fine(answers_of(data), False):
                break
            continue
        try:
            piece = s.recv(65536)
        except OSError:
            piece = b""
        if not piece:
            closed = True
            break
        data += piece
    s.close()
    return answers_of(data), closed


# --- rows ---

H = b"Host: localhost\r\n"
NEXT = b"GET /v1/capabilities HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer TOKEN\r\n\r\n"
A = b"Authorization: Bearer TOKEN\r\n"
J = b"Content-Type: application/json\r\n"
POST = b"POST /v1/node/cordon HTTP/1.1\r\n" + H + A + J
GET = b"GET /v1/node HTTP/1.1\r\n"
BODY = b'{"cordoned":false}'
TE = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"12\r\n" + BODY + b"\r\n0\r\n\r\n"
REFUSED, FORBIDDEN = [[400]], [[403]]


def rows():
    """name, bytes, answers that are right; after a refusal, and after chunks, the connection has to be closed."""
    def cl(value, body=BODY):
        return POST + b"Content-Length: " + value + b"\r\n\r\n" + body

    def te(value, body=CHUNKS):
        return POST + b"Transfer-Encoding:" + value + b"\r\n\r\n" + body

    def chunked(body):
        return POST + TE + b"\r\n" + body

    yield "plain", cl(b"18"), [[200]]
    yield "plain chunks", chunked(CHUNKS), [[200]]
    # two lengths
    yield "both lengths", POST + b"Content-Length: 4\r\n" + TE + b"\r\n" + CHUNKS + NEXT, REFUSED
    yield "both lengths, chunks first", POST + TE + b"Content-Length: 4\r\n\r\n" + CHUNKS + NEXT, REFUSED
    yield "length twice", POST + b"Content-Length: 18\r\nContent-Length: 18\r\n\r\n" + BODY + NEXT, REFUSED
    yield "two lengths that differ", POST + b"Content-Length: 18\r\nContent-Length: 0\r\n\r\n" + BODY + NEXT, REFUSED
    yield "list of lengths", cl(b"18, 18", BODY + NEXT), REFUSED
    for bad in (b"+18", b"-18", b"0x12", b"18.0", b"1 8", b"18;", b"", b"\x0b18", b"18\x0b", b"\xef\xbc\x91\xef\xbc\x98",
                b"18446744073709551634", b"99999999999999999999999999999999"):
        yield f"length {bad!r}", cl(bad, BODY + NEXT), [[400], [413]]
    yield "length with zeros", cl(b"0018"), [[200]]
    # spellings of Transfer-Encoding
    for bad in (b" gzip, chunked", b" chunked, chunked", b" identity", b" xchunked", b" chunked;q=1", b" \"chunked\"",
                b" chunked\x0b", b" chu\tnked", b"", b" ,chunked"):
        yield f"coding {bad!r}", te(bad, CHUNKS + NEXT), REFUSED
    yield "coding twice", POST + TE + TE + b"\r\n" + CHUNKS + NEXT, REFUSED
    yield "coding in capitals", te(b" CHUNKED"), [[200], [400]]
    yield "space before the colon", POST + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS + NEXT, REFUSED
    yield "space before the colon of a length", POST + b"Content-Length : 18\r\n\r\n" + BODY + NEXT, REFUSED
    yield "folded coding", POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS + NEXT, REFUSED
    yield "folded length", POST + b"Content-Length:\r\n 18\r\n\r\n" + BODY + NEXT, REFUSED
    yield "a fold hides a length", POST + b"X: a\r\n Content-Length: 18\r\n\r\n" + BODY + NEXT, REFUSED
    yield "chunks in HTTP/1.0", b"POST /v1/node/cordon HTTP/1.0\r\n" + H + A + J + TE + b"\r\n" + CHUNKS + NEXT, REFUSED
    # chunks
    # what is taken leniently ends the conversation: no other reader finds a second request behind it
    for bad in (b"+12\r\n", b"-1\r\n", b"0x12\r\n", b"12 x\r\n", b"\r\n", b"g\r\n", b" 12\r\n", b"10000000000000012\r\n", b"12\n", b"12\r"):
        yield f"chunk size {bad!r}", chunked(bad + BODY + b"\r\n0\r\n\r\n" + NEXT), [[400], [413]] + [[200]] * (bad == b"12\n")
    yield "a chunk without end", chunked(b"FFFFFFFFFFFFFFFF\r\n" + BODY + b"\r\n0\r\n\r\n" + NEXT), [[400], [413], []]
    yield "a chunk without end, and more than is taken", chunked(b"FFFFFFFFFFFFFFFF\r\n" + b" " * 1100000), [[400], [413]]
    yield "chunk extension", chunked(b"12;a=b;c\r\n" + BODY + b"\r\n0;last\r\n\r\n") + NEXT, [[200], [400]]
    yield "bare LF in a chunk extension", chunked(b"12;a\nb\r\n" + BODY + b"\r\n0\r\n\r\n" + NEXT), REFUSED
    yield "bare LF after a chunk", chunked(b"12\r\n" + BODY + b"\n0\r\n\r\n" + NEXT), [[200], [400]]
    yield "no end of a chunk", chunked(b"12\r\n" + BODY + b"xx0\r\n\r\n" + NEXT), REFUSED
    yield "trailers count for nothing", chunked(b"12\r\n" + BODY + b"\r\n0\r\nContent-Length: 90\r\nHost: evil\r\n\r\n") + NEXT, [[200], [400]]
    yield "body behind the last chunk", chunked(b"12\r\n" + BODY + b"\r\n0\r\n\r\n") + b"x" + NEXT, [[200]]
    # lines
    yield "bare LF everywhere", (GET + H + A + b"\r\n").replace(b"\r\n", b"\n"), REFUSED
    yield "bare LF hides a header", GET + b"Host: localhost\nX-Y: 1\r\n" + A + b"\r\n", REFUSED
    yield "bare LF at the end", GET + H + A + b"\n", REFUSED
    yield "two NULs for CRLF", GET + H + A + b"X: a\x00\x00Content-Length\x00 5\r\n\r\n", REFUSED
    yield "bare CR in a header", GET + H + A + b"X: a\rContent-Length: 5\r\n\r\n", REFUSED
    yield "bare CR ends a line", GET + b"Host: localhost\r" + A + b"\r\n", [[400], [403]]
    yield "NUL in a header", GET + H + A + b"X: a\x00b\r\n\r\n", REFUSED
    yield "NUL in Host", GET + b"Host: localhost\x00.evil\r\n" + A + b"\r\n", [[400], [403]]
    yield "NUL in the target", b"GET /v1/node\x00x HTTP/1.1\r\n" + H + A + b"\r\n", [[400]]
    yield "no colon", GET + H + A + b"nonsense\r\n\r\n", REFUSED
    yield "no name", GET + H + A + b": x\r\n\r\n", REFUSED
    yield "a blank in a name", GET + H + A + b"X Y: z\r\n\r\n", REFUSED
    yield "a blank before the first header", GET + b" X: y\r\n" + H + A + b"\r\n", REFUSED
    yield "a folded header", GET + H + A + b"X: a\r\n b\r\n\r\n", REFUSED
    yield "a folded token", GET + H + b"Authorization: Bearer\r\n TOKEN\r\n\r\n", [[400], [401]]
    yield "an empty line first", b"\r\n" + GET + H + A + b"\r\n", [[200], [400]]
    # first lines
    yield "HTTP/0.9", b"GET /v1/node\r\n\r\n", [[400], [505], [403], []]
    yield "HTTP/1.2", b"GET /v1/node HTTP/1.2\r\n" + H + A + b"\r\n", [[200], [400], [505]]
    yield "HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [[400], [505], []]
    yield "lower case version", b"GET /v1/node http/1.1\r\n" + H + A + b"\r\n", [[400], [505]]
    yield "two blanks", b"GET  /v1/node HTTP/1.1\r\n" + H + A + b"\r\n", REFUSED
    yield "a word too many", b"GET /v1/node x HTTP/1.1\r\n" + H + A + b"\r\n", REFUSED
    yield "a tab", b"GET\t/v1/node\tHTTP/1.1\r\n" + H + A + b"\r\n", [[400], []]
    yield "garbage", bytes(range(256)) * 4, [[400], [505], []]
    yield "a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 64 + b"\r\n\r\n", [[400], [505], []]
    yield "a huge header", GET + H + A + b"X: " + b"a" * 300000 + b"\r\n\r\n", [[431], [400]]
    yield "many headers", GET + H + A + b"X: y\r\n" * 40000 + b"\r\n", [[431], [400]]
    yield "a huge target", b"GET /v1/" + b"a" * 300000 + b" HTTP/1.1\r\n" + H + A + b"\r\n", [[414], [431], [400]]
    # targets
    yield "absolute form", b"GET http://localhost/v1/node HTTP/1.1\r\n" + H + A + b"\r\n", [[200]]
    yield "absolute form of another host", b"GET http://evil.example/v1/node HTTP/1.1\r\n" + H + A + b"\r\n", REFUSED
    yield "absolute form against Host", b"GET http://localhost/v1/node HTTP/1.1\r\nHost: evil.example\r\n" + A + b"\r\n", REFUSED
    yield "absolute form with a user", b"GET http://localhost@evil.example/v1/node HTTP/1.1\r\n" + H + A + b"\r\n", REFUSED
    yield "absolute form of a user", b"GET http://evil@localhost/v1/node HTTP/1.1\r\n" + H + A + b"\r\n", REFUSED
    yield "CONNECT", b"CONNECT evil.example:443 HTTP/1.1\r\n" + H + A + b"\r\n" + NEXT, [[404, 200], [400], [404]]
    yield "OPTIONS *", b"OPTIONS * HTTP/1.1\r\n" + H + A + b"\r\n", [[404], [400]]
    for path in (b"//v1/node", b"/v1//node", b"/v1/./node", b"/v1/x/../node", b"/%76%31/node%00", b"/v1/node;x", b"/V1/node", b"\\v1\\node"):
        yield f"path {path!r}", b"GET " + path + b" HTTP/1.1\r\n" + H + A + b"\r\n", [[404], [400]]
    # a body that is a request
    for what, head in (("of a refusal", b"POST /v1/node/cordon HTTP/1.1\r\n" + H + J),
                       ("of a GET", b"GET /v1/node HTTP/1.1\r\n" + H + A + J),
                       ("of HEAD", b"HEAD /v1/node HTTP/1.0\r\n" + H + A + J),
                       ("of an upgrade", b"GET /v1/node HTTP/1.1\r\n" + H + A + J + b"Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n")):
        yield "a request in the body " + what, head + b"Content-Length: %d\r\n\r\n" % len(NEXT) + NEXT, [[401], [200], [400], [200, "rest"], [404]]
    yield "h2c is not spoken", GET + H + A + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", [[200]]
    yield "a WebSocket is not spoken", GET + H + A + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", [[200]]
    # names of this machine, and names that only look so
    for host in (b"evil.example", b"localhost.evil.example", b"127.0.0.1.nip.io", b"localhost@evil.example", b"evil.example:80@localhost",
                 b"localhost, evil.example", b"localhost evil.example", b"localhost\tevil", b"localhost/..", b"127.1", b"2130706433",
                 b"0x7f.0.0.1", b"0177.0.0.1", b"0.0.0.0", b"[::]", b"[::ffff:1.2.3.4]", b"localhost:", b"localhost:80:80", b"localhost:-1", b"[::1", b"::1]",
                 b"localhost%00", b"\xe2\x93\x9bocalhost", b"169.254.169.254", b"localhost..", b"*"):
        right = [[403], [400]] if host != b"localhost:" else [[200], [403]]
        yield f"host {host!r}", GET + b"Host: " + host + b"\r\n" + A + b"\r\n", right
    yield "two hosts", GET + H + b"Host: evil.example\r\n" + A + b"\r\n", REFUSED
    yield "a host that others forwarded", GET + b"Host: evil.example\r\nX-Forwarded-Host: localhost\r\nForwarded: host=localhost\r\n" + A + b"\r\n", FORBIDDEN
    for origin in (b"null", b"http://evil.example", b"https://localhost.evil.example", b"http://localhost:81", b"http://localhost@evil.example",
                   b"file://", b"http://evil.example/http://localhost", b"chrome-extension://abcdef", b"", b"http://localhost http://evil.example",
                   b"http://LOCALHOST.:80", b"//localhost"):
        yield f"origin {origin!r}", GET + H + A + b"Origin: " + origin + b"\r\n\r\n", FORBIDDEN
    yield "two origins", GET + H + A + b"Origin: http://localhost\r\nOrigin: http://evil.example\r\n\r\n", [[403], [400]]
    # what a browser sends for a page of somebody else
    for site in (b"cross-site", b"same-site"):
        for mode in (b"no-cors", b"navigate", b"websocket"):
            yield f"a page's GET {site!r} {mode!r}", GET + H + A + b"Sec-Fetch-Site: " + site + b"\r\nSec-Fetch-Mode: " + mode + b"\r\n\r\n", FORBIDDEN
    for site in (b"none", b"same-origin"):
        yield f"the user's own GET {site!r}", GET + H + A + b"Sec-Fetch-Site: " + site + b"\r\n\r\n", [[200]]
    page = b"Origin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\n"
    for kind in (b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x"):
        yield f"a form {kind!r}", b"POST /v1/sandboxes HTTP/1.1\r\n" + H + page + b"Content-Type: " + kind + b"\r\nContent-Length: 2\r\n\r\n{}", FORBIDDEN
        yield f"a form without an origin {kind!r}", b"POST /v1/sandboxes HTTP/1.1\r\n" + H + A + b"Content-Type: " + kind + b"\r\nContent-Length: 2\r\n\r\n{}", [[415]]
    yield "a preflight", b"OPTIONS /v1/sandboxes HTTP/1.1\r\n" + H + page + b"Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,content-type\r\nAccess-Control-Request-Private-Network: true\r\n\r\n", FORBIDDEN
    yield "a beacon", b"POST /v1/sandboxes HTTP/1.1\r\n" + H + page + b"Content-Length: 0\r\n\r\n", FORBIDDEN
    yield "a WebSocket of a page", b"GET /v1/sandboxes/x/tunnel?port=1 HTTP/1.1\r\n" + H + page + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", FORBIDDEN
    yield "a rebound name", b"POST /v1/sandboxes HTTP/1.1\r\nHost: rebound.example\r\nOrigin: http://rebound.example\r\nSec-Fetch-Site: same-origin\r\n" + J + b"Content-Length: 2\r\n\r\n{}", FORBIDDEN
    # tokens
    for token in (b"TOKE", b"TOKENN", b"token", b"TOKEN x", b"TOKEN\x0b", b"TOKEN,TOKEN", b"TOKEN\x00", b""):
        yield f"token {token!r}", GET + H + b"Authorization: Bearer " + token + b"\r\n\r\n", [[401], [400]]
    # blanks around a value are no part of it (RFC 9110, 5.5)
    yield "a token between blanks", GET + H + b"Authorization:  Bearer TOKEN \t\r\n\r\n", [[200]]
    for name in (b"Proxy-Authorization: Bearer TOKEN", b"Cookie: token=TOKEN", b"X-Token: TOKEN", b"Authorization: Basic TOKEN"):
        yield f"token in {name!r}", GET + H + name + b"\r\n\r\n", [[401]]
    yield "two tokens", GET + H + A + b"Authorization: Bearer x\r\n\r\n", [[401], [400]]


def is_right(row, got, closed):
    _, sent, right = row
    if got not in right:
        return False
    # an answer that ends a conversation: the next bytes may not be somebody's request
    ends = got and (got[-1] in (400, 413, 431, 505) or b"\r\nTransfer-Encoding: chunked" in sent)
    return closed or not ends


def run_rows(address, token):
    keep = os.environ.get("ROWS", "")
    todo = [r for r in rows() if keep in r[0]]
    bad, n = 0, len(todo)

    def ask(row):
        return talk(address, row[1].replace(b"TOKEN", token.encode()), functools.partial(is_right, row))

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        heard = list(pool.map(ask, todo))
    for row, (got, closed) in zip(todo, heard):
        if not is_right(row, got, closed):
            bad += 1
            print(f"{row[0]}: got {got}{' and closed' if closed else ''}, right were {row[2]}")
    print(f"{n} rows, {bad} wrong")
    return bad


# --- many and slow ---

HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def pipeline(address, n):
    s = connect(address)
    sender = threading.Thread(target=s.sendall, args=(HEALTH * n,), daemon=True)
    sender.start()
    data = b""
    end = time.monotonic() + 4 * PATIENCE
    while data.count(b"HTTP/1.1 200") < n or not data.endswith(b"}"):
        piece = s.recv(1 << 20) if time.monotonic() < end else b""
        if not piece:
            break
        data += piece
    got = answers_of(data)
    print(f"{len(got)} answers")
    return got != [200] * n


def asks(address):
    """One request on a connection of its own; its status, or why there was no answer."""
    try:
        s = connect(address)
        s.sendall(HEALTH)
        got = s.recv(65536)
        s.close()
        return answers_of(got)[0] if got else "nothing"
    except OSError as e:
        return type(e).__name__


class Neighbour(threading.Thread):
    """Asks again and again, as a client does that is told there is no room or is hung up on: a little later. What is
    not answered with 200 for some seconds is counted."""

    SECS = 10

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.done, self.good, self.bad, self.slowest, self.why = address, False, 0, 0, 0.0, []

    def run(self):
        while not self.done:
            began = time.monotonic()
            while (heard := asks(self.address)) != 200 and time.monotonic() - began < self.SECS:
                self.why.append(heard)
                time.sleep(0.1)
            self.good += heard == 200
            self.bad += heard != 200
            self.slowest = max(self.slowest, time.monotonic() - began)
            time.sleep(0.05)

    def verdict(self, what):
        self.done = True
        self.join(2 * PATIENCE)
        print(f"{what}: {self.good} answers to a neighbour, {self.bad} failed each time {self.why}, the slowest took {self.slowest:.2f} s")
        return self.bad > 0 or self.good == 0


def said_to(s):
    """What a connection that said nothing heard: a status, "closed", or None while it is open."""
    try:
        got = s.recv(4096)
    except BlockingIOError:
        return None
    except OSError:
        return "closed"
    return answers_of(got)[0] if got.startswith(b"HTTP/1.") and b"\r\n\r\n" in got else "closed"


def flood(address, n, secs):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = max(hard, n + 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (want, want))
    watch = Neighbour(address)
    watch.start()
    open_, heard = [], {}
    for _ in range(n):
        try:
            open_.append(connect(address))
        except OSError as e:
            heard[type(e).__name__] = heard.get(type(e).__name__, 0) + 1
    for s in open_:
        s.setblocking(False)
    end = time.monotonic() + secs
    while open_ and time.monotonic() < end:
        for s in list(open_):
            said = said_to(s)
            if said is not None:
                heard[said] = heard.get(said, 0) + 1
                open_.remove(s)
                s.close()
        time.sleep(0.2)
    print(f"{n} connections: {heard}, {len(open_)} still open")
    bad = watch.verdict("flood")
    for s in open_:
        s.close()
    return bad


READERS = 3


def slow(address, token):
    """A byte of a header now and then; answers that nobody reads, more than any buffer takes."""
    watch = Neighbour(address)
    watch.start()
    headers = [connect(address) for _ in range(50)]
    readers = [connect(address) for _ in range(READERS)]
    for s in headers + readers:
        s.setblocking(False)
    for s in readers:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    began = time.monotonic()
    cut = {"headers": set(), "readers": set()}
    # a reader counts once the answers to it fill what the kernel keeps for both; a busy machine takes its time for that
    while time.monotonic() - began < 600 and (len(cut["headers"]) < 50 or len(cut["readers"]) < READERS):
        for what, sockets, sent in (("headers", headers, b"G"), ("readers", readers, HEALTH * 1000)):
            for i, s in enumerate(sockets):
                if i in cut[what]:
                    continue
                try:
                    while s.send(sent) == len(sent) and what == "readers":
                        pass
                except BlockingIOError:
                    pass
                except OSError:
                    cut[what].add(i)
                # a reader never reads; a hang-up is seen without it
                p = select.poll()
                p.register(s, select.POLLRDHUP)
                if what == "headers" and said_to(s) is not None or p.poll(0):
                    cut[what].add(i)
        time.sleep(0.5)
    print(f"cut: {len(cut['headers'])} of 50 slow headers, {len(cut['readers'])} of {READERS} that do not read, after {time.monotonic() - began:.0f} s")
    return watch.verdict("slow") or len(cut["headers"]) < 50 or len(cut["readers"]) < READERS


# --- TLS ---

def tls_asks(address, ca):
    ctx = ssl.create_default_context(cafile=ca)
    try:
        with connect(address) as raw, ctx.wrap_socket(raw, server_hostname="localhost") as s:
            s.sendall(HEALTH)
            return answers_of(s.recv(65536))[0]
    except OSError as e:
        print(e)
        return 0


def client_hello():
    """A real one: what a client would send first."""
    ctx = ssl.create_default_context()
    out = ssl.MemoryBIO()
    obj = ctx.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
    try:
        obj.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def hung_up(s, secs):
    s.settimeout(secs)
    try:
        while s.recv(65536):
            pass
    except socket.timeout:
        return False
    except OSError:
        pass
    return True


def tls_rows():
    hello = client_hello()
    record = lambda kind, body, version=0x0301: struct.pack("!BHH", kind, version, len(body)) + body
    yield "plain HTTP", HEALTH
    yield "garbage", os.urandom(4096)
    yield "SSL 2", b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + b"x" * 35
    yield "SSL 3", record(22, b"\x01\x00\x00\x2d\x03\x00" + b"x" * 32 + b"\x00\x00\x04\x00\x04\x00\x05\x01\x00", 0x0300)
    yield "a record that is too long", b"\x16\x03\x01\xff\xff" + b"x" * 70000
    yield "an empty record", record(22, b"")
    yield "alerts without end", record(21, b"\x01\x00") * 1000
    yield "a hello that lies about its length", b"\x16\x03\x01" + struct.pack("!H", len(hello) - 5) + b"\x01\xff\xff\xff" + hello[9:]
    yield "half a hello", hello[:len(hello) // 2]
    yield "a hello, then nothing", hello
    yield "a hello, then garbage", hello + os.urandom(2000)
    yield "a hello, then data in the clear", hello + record(23, HEALTH, 0x0303)
    yield "a hello twice", hello + hello
    yield "a hello in single bytes", b"".join(record(22, hello[i:i + 1]) for i in range(5, len(hello)))
    for i in range(20):
        at = 5 + (i * 37) % (len(hello) - 5)
        yield f"a hello with byte {at} changed", hello[:at] + bytes([hello[at] ^ (1 + i)]) + hello[at + 1:]


def tls(address, ca):
    """Every bad peer at once; each is hung up on within the deadline of a header, and a good one is answered."""
    bad, open_ = 0, []
    for name, sent in tls_rows():
        s = connect(address)
        try:
            s.sendall(sent)
        except OSError:
            pass
        open_.append((name, s))
    hello = client_hello()
    for _ in range(200):
        s = connect(address)
        s.sendall(hello)
        open_.append(("one of 200 half-open handshakes", s))
    if tls_asks(address, ca) != 200:
        bad += 1
        print("a good client is not answered beside bad ones")
    for name, s in open_:
        if not hung_up(s, PATIENCE):
            bad += 1
            print(f"{name}: still open")
        s.close()
    for version in ("TLSv1", "TLSv1_1"):
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
        ctx.set_ciphers("ALL:@SECLEVEL=0")
        ctx.minimum_version = ctx.maximum_version = getattr(ssl.TLSVersion, version)
        try:
            with connect(address) as raw, ctx.wrap_socket(raw):
                bad += 1
                print(f"{version} is spoken")
        except OSError:
            pass
    if tls_asks(address, ca) != 200:
        bad += 1
        print("a good client is not answered afterwards")
    print(f"{len(open_) + 4} peers, {bad} wrong")
    return bad


def main():
    what, address, *rest = sys.argv[1:]
    if what == "rows":
        return run_rows(address, rest[0])
    if what == "pipeline":
        return pipeline(address, int(rest[0]))
    if what == "flood":
        return flood(address, int(rest[0]), float(rest[1]))
    if what == "slow":
        return slow(address, rest[0])
    if what == "tls":
        return tls(address, rest[0])
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
