#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The door from the network side: requests that two readers would read differently, hosts and origins, what a
# browser sends for a page of somebody else, many requests at once, connections that say nothing, bad TLS peers.

load door

setup() { door_setup; }
teardown() { door_teardown; }

@test "door: each malformed, smuggled or foreign request has one right answer" {
	door "unix://$D/sock" --token-file "$D/token"
	door_py rows "$AT" "$TOKEN"
	[ "$(curl -sS --unix-socket "$D/sock" -H "Authorization: Bearer $TOKEN" http://localhost/v1/sandboxes | jq '.sandboxes | length')" = 0 ]
}

@test "door: as many answers as requests, in order, however many are sent at once" {
	door "unix://$D/sock"
	door_py pipeline "$AT" 5000
}

@test "door: connections that say nothing do not keep out one that asks" {
	door "unix://$D/sock" --max-connections 64
	door_py flood "$AT" 1000 3
}

@test "door: bad TLS peers are hung up on, and good ones answered beside them" {
	certificate
	door 127.0.0.1:0 --token-file "$D/token" --tls-cert "$D/cert.pem" --tls-key "$D/key.pem"
	door_py tls "$AT" "$D/ca.pem"
	# a client of TLS 1.2 that wants to negotiate anew is not followed
	got=$( (printf 'R\n'; sleep 1; printf 'GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n'; sleep 1) |
		timeout 5 openssl s_client -quiet -tls1_2 -legacy_renegotiation -CAfile "$D/ca.pem" -connect "127.0.0.1:${AT#tcp:}" 2>>"$D/log" || true)
	[[ $got != *"200 OK"* ]]
	curl -sS --max-time 30 --cacert "$D/ca.pem" "https://localhost:${AT#tcp:}/v1/health" | grep -q ok
}
