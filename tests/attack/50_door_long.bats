#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The door from the network side, with ten thousand connections, with clients that are slow for minutes, and with a
# real browser that shows a page of somebody else.

load door

setup() { door_setup; }
teardown() { door_teardown; }

@test "door: ten thousand connections are told that there is no room, and one that asks is answered" {
	door "unix://$D/sock"
	door_py flood "$AT" 10000 15
	door_py pipeline "$AT" 1000
}

@test "door: ten thousand connections from the network" {
	door 127.0.0.1:0 --token-file "$D/token"
	door_py flood "$AT" 10000 15
}

@test "door: slow headers and answers that nobody reads end, and a neighbour is answered meanwhile" {
	door 127.0.0.1:0 --token-file "$D/token"
	door_py slow "$AT" "$TOKEN"
}

@test "door: a page in a browser reads nothing and changes nothing, even one that knows the token" {
	command -v chromium >/dev/null || skip "needs the package chromium"
	door 127.0.0.1:0 --token-file "$D/token"
	ask() { curl -sS --max-time 60 -H "Authorization: Bearer $TOKEN" "$@"; }
	url=http://127.0.0.1:${AT#tcp:}/v1/sandboxes
	box=$(ask -H 'Content-Type: application/json' -d '{}' "$url" | jq -r .id)
	[ "$(ask -X POST "$url/$box/suspend" | jq -r .state)" = suspended ]
	HOME=$D python3 tests/attack/browser.py "${AT#tcp:}" "$TOKEN" "$box" chromium --headless=new --no-sandbox \
		--disable-gpu --disable-dev-shm-usage --no-first-run --user-data-dir="$D/profile" \
		--host-resolver-rules='MAP rebound.example 127.0.0.1'
	# one sandbox, and it sleeps on
	[ "$(ask "$url" | jq -c '[.sandboxes[].state]')" = '["suspended"]' ]
	grep -q . "$D/log"
	ask -X DELETE "$url/$box"
}
