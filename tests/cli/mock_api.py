# SPDX-License-Identifier: MIT
# mock_api.py SOCKET SCRIPT LOG: a server that answers by a script. SCRIPT is JSON:
# {"METHOD /path": [[status, body], ...]}; each request takes the next answer, the last one stays.
# "METHOD *" is any other path. A body that is text is sent as it is; what has no answer is 404; status 0 is silence. LOG gets "METHOD /path body" lines.
import http.server, json, os, socketserver, sys, time

socket_path, script_path, log_path = sys.argv[1:4]
at = {}


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        key = self.command + " " + self.path
        with open(log_path, "a") as f:
            f.write((key + " " + body).strip() + "\n")
        with open(script_path) as f:
            text = f.read()
        if text != at.get("script"):
            at.clear()
            at["script"] = text
        answers = json.loads(text).get(key) or json.loads(text).get(self.command + " *")
        n = at.get(key, 0)
        at[key] = n + 1
        status, out = answers[min(n, len(answers) - 1)] if answers else (
            404, {"error": {"code": "not_found", "message": "nothing at " + self.path}})
        if status == 0:
            time.sleep(60)
        data = b"" if status == 204 else out.encode() if isinstance(out, str) else json.dumps(out).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def address_string(self):
        return "unix"

    def log_message(self, *args):
        pass


if os.path.exists(socket_path):
    os.unlink(socket_path)
Server(socket_path, Handler).serve_forever()
