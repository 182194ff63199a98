#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A web page of somebody else that tries to drive the API from a real browser.

  browser.py API_PORT TOKEN SANDBOX COMMAND...   serves the page, runs the browser COMMAND on it (its address is added),
                                           and prints what the page could read; exit 1 when that was anything.
                                           The page even knows the token
The page reports each attack that it made; an attack is lost when the page reads a status or a byte of an answer."""
import http.server
import json
import subprocess
import sys
import threading

PAGE = """<!doctype html><title>page</title><body><script>
const port = "%(port)s", box = "%(box)s", token = "%(token)s";
const report = [];
const seen = (name, what) => report.push([name, String(what)]);
const later = (ms) => new Promise(r => setTimeout(r, ms));
async function attempt(name, promise) {
	try {
		const a = await Promise.race([promise, later(4000).then(() => { throw "nothing"; })]);
		if (a && a.type === "opaque") return seen(name, "opaque");
		seen(name, "READ " + a.status + " " + (await a.text()).slice(0, 60));
	} catch (e) { seen(name, "no: " + e); }
}
function element(tag, fields) {
	return new Promise(done => {
		const e = Object.assign(document.createElement(tag), fields);
		e.onload = () => done("load"); e.onerror = () => done("error");
		document.body.append(e);
		setTimeout(() => done("nothing"), 3000);
	});
}
function form(url, enctype, fields) {
	const f = Object.assign(document.createElement("form"), { method: "post", action: url, enctype, target: "frame" });
	for (const [k, v] of Object.entries(fields)) f.append(Object.assign(document.createElement("input"), { name: k, value: v }));
	document.body.append(f);
	f.submit();
}
function stream(name, make) {
	return new Promise(done => {
		let s;
		try { s = make(); } catch (e) { seen(name, "no: " + e); return done(); }
		s.onopen = () => { seen(name, "READ open"); done(); };
		s.onmessage = e => seen(name, "READ " + e.data);
		s.onerror = () => { seen(name, "no"); done(); };
		setTimeout(done, 3000);
	});
}
async function all() {
	await attempt("control: the page reads its own server", fetch("/own"));
	for (const host of ["127.0.0.1", "localhost", "rebound.example"]) {
		const api = `http://${host}:${port}`, at = n => `${host}: ${n}`;
		const json = { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" };
		await attempt(at("GET"), fetch(api + "/v1/sandboxes"));
		await attempt(at("GET without CORS"), fetch(api + `/v1/sandboxes/${box}/files?path=/etc/hostname`, { mode: "no-cors" }));
		await attempt(at("POST of JSON"), fetch(api + "/v1/sandboxes", json));
		await attempt(at("POST of text"), fetch(api + "/v1/sandboxes", { method: "POST", mode: "no-cors", headers: { "Content-Type": "text/plain" }, body: "{}" }));
		await attempt(at("POST of nothing"), fetch(api + "/v1/sandboxes", { method: "POST", mode: "no-cors" }));
		await attempt(at("DELETE"), fetch(api + "/v1/sandboxes/" + box, { method: "DELETE" }));
		await attempt(at("with a token"), fetch(api + "/v1/sandboxes", { headers: { Authorization: "Bearer " + token } }));
		await attempt(at("with cookies"), fetch(api + "/v1/sandboxes", { credentials: "include", mode: "no-cors" }));
		await attempt(at("resume"), fetch(api + `/v1/sandboxes/${box}/resume`, { method: "POST", mode: "no-cors" }));
		await attempt(at("by a redirect"), fetch(`/redirect?${api}/v1/sandboxes`, { method: "POST", body: "{}" }));
		seen(at("beacon"), navigator.sendBeacon(api + "/v1/sandboxes", new Blob(["{}"], { type: "text/plain" })) ? "sent" : "no");
		seen(at("image"), await element("img", { src: api + `/v1/sandboxes/${box}/files?path=/etc/hostname` }));
		seen(at("script"), await element("script", { src: api + "/v1/capabilities" }));
		seen(at("style"), await element("link", { rel: "stylesheet", href: api + "/v1/capabilities" }));
		await element("iframe", { name: "frame", src: api + "/v1/capabilities" });
		try { seen(at("frame"), "READ " + frames[0].document.body.innerText); } catch (e) { seen(at("frame"), "no: " + e.name); }
		form(api + "/v1/sandboxes", "text/plain", { '{"name":"form","labels":{"a': '":"b"}}' });
		await later(300);
		form(api + "/v1/sandboxes", "application/x-www-form-urlencoded", { name: "form" });
		await later(300);
		form(api + `/v1/sandboxes/${box}/run`, "multipart/form-data", { argv: "id" });
		await later(300);
		await stream(at("WebSocket"), () => new WebSocket(`ws://${host}:${port}/v1/sandboxes/${box}/tunnel?port=1`));
		await stream(at("EventSource"), () => new EventSource(api + "/v1/events?follow=1"));
	}
	await fetch("/report", { method: "POST", body: JSON.stringify(report) });
}
all();
</script>"""


class Page(http.server.BaseHTTPRequestHandler):
    report = None
    done = threading.Event()

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.startswith("/redirect?"):
            return self.answer(307, Location=self.path.split("?", 1)[1])
        body = b"own" if self.path == "/own" else self.server.page
        return self.answer(200, body, **{"Content-Type": "text/html"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/report":
            Page.report = json.loads(body)
            Page.done.set()
            return self.answer(204)
        return self.do_GET()


def main():
    port, token, box, *command = sys.argv[1:]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    me = server.server_address[1]
    server.page = (PAGE % {"port": port, "box": box, "token": token}).encode()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = subprocess.Popen(command + [f"http://127.0.0.1:{me}/"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if not Page.done.wait(300):
            print("the page never reported")
            return 1
    finally:
        browser.terminate()
        browser.wait(30)
    lost = [r for r in Page.report if "READ" in r[1] and not r[0].startswith("control")]
    control = [r for r in Page.report if r[0].startswith("control") and "READ 200 own" in r[1]]
    for name, what in Page.report:
        print(f"{name}: {what}")
    print(f"{len(Page.report) - 1} attacks of a page, {len(lost)} lost")
    return 1 if lost or not control else 0


if __name__ == "__main__":
    sys.exit(main())
