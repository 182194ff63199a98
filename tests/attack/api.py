#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A holder of the token against what others hold: requests that race for one name, numbers of another sandbox, names
that are paths, commands or nothing.

  api.py races SOCKET     one name is made, written to, read and ended by many at once
  api.py others SOCKET    processes and handles of one sandbox, asked for in another
  api.py names SOCKET     names, references and numbers that are none
Prints what went wrong; exit 1 then."""
import collections
import http.client
import json
import re
import socket
import sys
import threading
import time
import urllib.parse

SIZE = 200000
wrong = []


def expect(ok, what):
    if not ok:
        wrong.append(what)
        print(what)


class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(sys.argv[2])


def ask(method, path, body=None, kind="application/json"):
    c = Unix("localhost")
    data = json.dumps(body) if isinstance(body, (dict, list)) else body
    c.request(method, path, data, {"Content-Type": kind} if data is not None else {})
    r = c.getresponse()
    got = r.status, r.read()
    c.close()
    return got


def make(**spec):
    status, body = ask("POST", "/v1/sandboxes", spec)
    return json.loads(body)["id"] if status == 201 else None


# --- one name ---

def races():
    made, ended = collections.Counter(), collections.Counter()
    end = time.monotonic() + 6

    def repeat(fn, who):
        while time.monotonic() < end:
            fn(who)

    def create(who):
        status, body = ask("POST", "/v1/sandboxes", {"name": "raced", "labels": {"by": str(who)}})
        expect(status in (201, 409, 503), f"a create answered {status}")
        if status == 201:
            made[json.loads(body)["id"]] += 1

    def write(who):
        status, _ = ask("PUT", "/v1/sandboxes/raced/files?path=/sandbox/home/f", bytes([65 + who]) * SIZE,
                        "application/octet-stream")
        expect(status in (204, 404, 409, 503), f"a write answered {status}")

    def read(who):
        try:
            status, body = ask("GET", "/v1/sandboxes/raced/files?path=/sandbox/home/f")
        except http.client.IncompleteRead:
            return  # its sandbox ended on the way: a connection that is cut is what can be said then
        expect(status in (200, 404, 409, 503), f"a read answered {status}")
        if status == 200:
            expect(len(body) == SIZE and len(set(body)) == 1, f"a read of {len(body)} bytes by {set(body)}")

    def remove(who):
        time.sleep(0.05)
        status, _ = ask("DELETE", "/v1/sandboxes/raced")
        expect(status in (204, 404, 409, 503), f"an end answered {status}")
        ended[status] += 1

    def count(who):
        _, body = ask("GET", "/v1/sandboxes")
        live = [s for s in json.loads(body)["sandboxes"] if s["state"] != "terminated" and s.get("name") == "raced"]
        expect(len(live) <= 1, f"{len(live)} sandboxes have one name")

    threads = [threading.Thread(target=repeat, args=(fn, n))
               for fn, many in ((create, 3), (write, 4), (read, 2), (remove, 2), (count, 1)) for n in range(many)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expect(made and max(made.values()) == 1, "an id was given twice, or none at all")
    expect(ended[204] > 0, "none was ended")
    ask("DELETE", "/v1/sandboxes/raced")
    print(f"{len(made)} sandboxes had the name, {ended[204]} were ended")


# --- another's numbers ---

def others():
    mine, theirs = make(), make()
    _, body = ask("POST", f"/v1/sandboxes/{theirs}/processes", {"argv": ["sleep", "600"]})
    pid = json.loads(body)["pid"]
    ask("PUT", f"/v1/sandboxes/{theirs}/files?path=/sandbox/home/secret", b"theirs", "application/octet-stream")
    handles = []
    for _ in range(3):
        status, body = ask("POST", f"/v1/sandboxes/{theirs}/fs/open", {"path": "/sandbox/home/secret", "flags": ["read", "write"]})
        expect(status == 200, f"their handle was not opened: {status} {body}")
        handles.append(json.loads(body).get("handle"))
    tries = [
        ("GET", f"/processes/{pid}", None), ("GET", f"/processes/{pid}/output", None),
        ("GET", f"/processes/{pid}/output/stdout", None), ("GET", f"/processes/{pid}/attach", None),
        ("POST", f"/processes/{pid}/signal", {"signal": "KILL"}), ("POST", f"/processes/{pid}/stdin", b"x"),
    ]
    for h in handles:
        tries += [
            ("GET", f"/fs/handles/{h}?offset=0&length=6", None), ("PUT", f"/fs/handles/{h}?offset=0", b"mine!!"),
            ("POST", f"/fs/handles/{h}/sync", {}), ("DELETE", f"/fs/handles/{h}", None),
            ("POST", f"/fs/handles/{h}/lock", {"type": "write", "start": 0, "length": 0, "owner": 1}),
            ("POST", "/fs/ops", {"ops": [{"op": "truncate", "handle": h, "size": 0}]}),
        ]
    for method, path, what in tries:
        kind = "application/octet-stream" if isinstance(what, bytes) else "application/json"
        status, body = ask(method, f"/v1/sandboxes/{mine}{path}", what, kind)
        fine = 400 <= status < 500 or (path == "/fs/ops" and status == 200 and b'"error"' in body)
        expect(fine and b"theirs" not in body, f"{method} {path} in another sandbox: {status} {body[:80]}")
    status, body = ask("GET", f"/v1/sandboxes/{theirs}/files?path=/sandbox/home/secret")
    expect(body == b"theirs", f"their file is {body} now")
    status, body = ask("GET", f"/v1/sandboxes/{theirs}/processes/{pid}")
    expect(json.loads(body).get("state") == "running", f"their process is {body}")
    for s in (mine, theirs):
        ask("DELETE", f"/v1/sandboxes/{s}")
    print(f"{len(tries)} tries")


# --- names that are none ---

ODD = ["..", ".", "/", "../../../etc/passwd", "a/../../b", "%2e%2e", "a b", "a\nb", "a\x00b", "\x1b[2J", "$(reboot)", "`id`", ";id",
       "-rf", "--help", "docker-archive:/etc/passwd", "dir:/etc", "oci:/", "containers-storage:x", "http://127.0.0.1/x", "A" * 5000,
       "\u202eabc", "\u00e4", "snp_../../x", "snp_00000000000000zz", "sbx_0000000000000000/../..", "con", "0", "NULL", "", "ﬀ", "127.0.0.1:1/x@sha256:" + "0" * 64]

NAMES = ("0", "con", "")  # are names, and the last one asks for none
KEY = re.compile("[a-z0-9][a-z0-9._/-]{0,62}")  # of a label


def names():
    box, n = make(name="plain"), 0
    quote = lambda s: urllib.parse.quote(s, safe="")
    for odd in ODD:
        fixed = [
            ("POST", "/v1/sandboxes", {"name": odd} if odd not in NAMES else None),
            ("POST", "/v1/sandboxes", {"image": odd} if odd else None),
            ("POST", "/v1/sandboxes", {"snapshot_id": odd} if odd else None),
            ("POST", "/v1/sandboxes", {"volumes": [{"name": odd, "path": "/data"}]}),
            ("POST", "/v1/sandboxes", {"labels": {odd: "x"}} if not KEY.fullmatch(odd) else None),
            ("PATCH", f"/v1/sandboxes/{box}", {"name": odd} if odd not in NAMES else None),
            ("POST", "/v1/volumes", {"name": odd, "size_mb": 16} if odd not in NAMES else None),
            ("DELETE", f"/v1/volumes/{quote(odd)}", None), ("DELETE", f"/v1/snapshots/{quote(odd)}", None),
            ("GET", f"/v1/sandboxes/{quote(odd)}/processes", None), ("DELETE", f"/v1/sandboxes/{quote(odd)}/files?path=/x", None),
            ("GET", f"/v1/sandboxes/{box}/processes/{quote(odd)}", None),
            ("GET", f"/v1/sandboxes/{box}/fs/handles/{quote(odd)}?offset=0&length=1", None),
            ("DELETE", f"/v1/images?image={quote(odd)}", None),
        ]
        for method, path, what in fixed:
            if what is None and method in ("POST", "PATCH"):
                continue
            status, body = ask(method, path, what)
            n += 1
            fine = 400 <= status < 500 or status == 501
            expect(fine, f"{method} {path[:60]} {str(what)[:60]}: {status} {body[:100]}")
            expect(b"\x1b" not in body and b"\x7f" not in body, f"{method} {path[:60]} answers with a control byte")
    status, body = ask("GET", "/v1/sandboxes")
    expect([s["id"] for s in json.loads(body)["sandboxes"]] == [box], "something was made")
    ask("DELETE", f"/v1/sandboxes/{box}")
    print(f"{n} names")


{"races": races, "others": others, "names": names}[sys.argv[1]]()
sys.exit(1 if wrong else 0)
