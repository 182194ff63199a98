#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""registry.py ROOT PORTFILE [MODE]: a registry on a loopback port that serves the OCI layouts below ROOT (ROOT/NAME is
the repository NAME, every tag is its index's first entry). Writes its port to PORTFILE, and each request to
ROOT/requests. Modes: plain; login (alice, "secret 1"); stall (a blob stops in the middle: then ROOT/stalled appears);
lie (a byte of each big blob is wrong); lie_manifest; endless (a blob never ends); gone (every blob is 404); redirect URL
(blobs are elsewhere)."""
import base64, hashlib, http.server, json, os, sys, time

ROOT, PORTFILE = sys.argv[1], sys.argv[2]
MODE = sys.argv[3] if len(sys.argv) > 3 else "plain"
LOGIN = "Basic " + base64.b64encode(b"alice:secret 1").decode()


def mode():
    try:  # a test may change it
        with open(os.path.join(ROOT, "mode")) as f:
            return f.read().strip()
    except OSError:
        return MODE


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def note(self):
        with open(os.path.join(ROOT, "requests"), "a") as f:
            f.write("%s %s\n" % (self.command, self.path))

    def fail(self, status, code, **headers):
        body = json.dumps({"errors": [{"code": code, "message": code.lower().replace("_", " ")}]}).encode()
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k.replace("_", "-"), v)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def give(self, data, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Content-Digest", "sha256:" + hashlib.sha256(data).hexdigest())
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def manifest(self, name, ref):
        lay = os.path.join(ROOT, name)
        try:
            if ref.startswith("sha256:"):
                with open(os.path.join(lay, "blobs/sha256", ref[7:]), "rb") as f:
                    data = f.read()
            else:
                with open(os.path.join(lay, "index.json"), "rb") as f:
                    index = f.read()
                first = json.loads(index)["manifests"]
                if len(first) == 1:
                    with open(os.path.join(lay, "blobs/sha256", first[0]["digest"][7:]), "rb") as f:
                        data = f.read()
                else:
                    data = index
        except OSError:
            return self.fail(404, "MANIFEST_UNKNOWN")
        if mode() == "lie_manifest" and ref.startswith("sha256:"):
            data += b" "
        kind = "manifest" if b'"layers"' in data else "index"
        self.give(data, "application/vnd.oci.image.%s.v1+json" % kind)

    def blob(self, name, digest):
        try:
            with open(os.path.join(ROOT, name, "blobs/sha256", digest[7:]), "rb") as f:
                data = f.read()
        except OSError:
            return self.fail(404, "BLOB_UNKNOWN")
        m, big = mode(), len(data) > 100000
        if m == "gone" and big:
            return self.fail(404, "BLOB_UNKNOWN")
        if m.startswith("redirect ") and big:
            self.send_response(307)
            self.send_header("Location", m[9:])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if m == "lie" and big:
            data = data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]
        if m in ("stall", "endless") and big:
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            if m == "stall":
                self.send_header("Content-Length", str(len(data)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data[:1000])
            self.wfile.flush()
            open(os.path.join(ROOT, "stalled"), "w").close()
            while True:
                if m == "endless":
                    self.wfile.write(bytes(1 << 20))
                else:
                    time.sleep(1)
        self.give(data, "application/octet-stream")

    def do_GET(self):
        self.note()
        if mode() == "login" and self.headers.get("Authorization") != LOGIN:
            return self.fail(401, "UNAUTHORIZED", WWW_Authenticate='Basic realm="tests"')
        parts = self.path.strip("/").split("/")
        if self.path in ("/v2/", "/v2"):
            return self.give(b"{}", "application/json")
        if parts[0] == "v2" and len(parts) >= 4 and parts[-2] == "manifests":
            return self.manifest("/".join(parts[1:-2]), parts[-1])
        if parts[0] == "v2" and len(parts) >= 4 and parts[-2] == "blobs":
            return self.blob("/".join(parts[1:-2]), parts[-1])
        self.fail(404, "NOT_FOUND")

    do_HEAD = do_GET


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
with open(PORTFILE + ".tmp", "w") as f:
    f.write(str(server.server_address[1]))
os.rename(PORTFILE + ".tmp", PORTFILE)
server.serve_forever()
