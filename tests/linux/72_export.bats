#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Pushes of metrics over names and TLS, as the server does them without any right: in the lab of the network
# tests, with an authority of its own and names that resolve to what they should not.

load net/lab

setup_file() {
	lab_up
	certificates
	export_server
	lab_save
}
teardown_file() {
	lab_load
	lab_down
}
setup() { lab_load; }
teardown() { remove_all; }

certificates() {
	local w=$D/world
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lab-authority \
		-keyout "$D/ca.key" -out "$D/ca.pem" 2>/dev/null
	openssl req -newkey rsa:2048 -nodes -subj /CN=collector -keyout "$w/key.pem" -out "$D/csr" 2>/dev/null
	openssl x509 -req -in "$D/csr" -CA "$D/ca.pem" -CAkey "$D/ca.key" -CAcreateserial -days 2 \
		-extfile <(echo 'subjectAltName=DNS:ok.test,DNS:flip.test,DNS:mixed.test,DNS:inner.test,DNS:host.test') \
		-out "$w/cert.pem" 2>/dev/null
}
# The lab's names, its authority, and settings of a user's that must not count.
export_server() {
	echo 'nameserver 11.0.0.53' >"$D/resolv.conf"
	echo '{"limits":{"min_metrics_export_secs":1}}' >"$D/policy"
	mkdir "$D/home"
	printf 'machine ok.test login lost password zq7netrc\n' >"$D/home/.netrc"
	HOME=$D/home HTTPS_PROXY=http://11.0.1.20:3128 ALL_PROXY=http://11.0.1.20:3128 \
		nsenter --net="/run/netns/$NSH" unshare -m sh -c '
			mount --bind "$1/resolv.conf" /etc/resolv.conf
			mount --bind "$1/ca.pem" /etc/ssl/certs/ca-certificates.crt
			shift
			exec "$@"' - "$D" "$O/bin/sandboxd" --listen "unix://$D/sock" --state-dir "$D/state" \
		--image-dir "${SBX_IMAGES:-$O/images}" --policy "$D/policy" --log-level debug 2>>"$D/log" 3>&- &
	SRV=$!
	wait_for 60 server_is_up || {
		cat "$D/log" >&2
		return 1
	}
}
# box HOST: a sandbox that exports to it, its id in $S
box() {
	post /v1/sandboxes "{\"network\":{\"mode\":\"none\"},\"metrics_export\":{\"endpoint\":\"https://$1\",
		\"interval_secs\":1,\"headers\":{\"X-Key\":\"zq7secret\"}}}" >"$D/answer"
	S=$(jq -r .id "$D/answer")
	[ "$S" != null ] || {
		cat "$D/answer" >&2
		return 1
	}
}
status() { api "/v1/sandboxes/$S" | jq -r ".metrics_export.$1 // \"\""; }
failed_with() { status last_error | grep -q -- "$1"; }
succeeded() { [ -n "$(status last_push_at)" ]; }

@test "a collector is reached by name over TLS" {
	mark
	box ok.test
	wait_for 20 succeeded
	[ -z "$(status last_error)" ]
	world_saw 'request POST /v1/metrics HTTP/1.1 host ok.test tls ok.test'
}

@test "a name that has moved to a private address is refused when it is connected to" {
	mark
	box flip.test
	wait_for 20 succeeded
	wait_for 30 failed_with 'not a public one'
	[ -n "$(status failing_since)" ]
	[ -n "$(status last_push_at)" ]
	world_saw 'query .* A flip.test'
	never world_saw 10.9.9.9
}

@test "inner addresses, the host's own and loopback are refused, by name and by number" {
	local names=(inner.test meta.test loop.test host.test mapped.test 10.9.9.9 127.0.0.1 169.254.169.254
		'[::1]' '[::ffff:10.9.9.9]' 11.0.0.1 0.0.0.0 0x7f.1 2130706433) ids=() i
	mark
	for i in "${names[@]}"; do
		box "$i"
		ids+=("$S")
	done
	for i in "${!names[@]}"; do
		S=${ids[i]}
		wait_for 25 failed_with 'not a public one' || {
			echo "${names[i]}: $(api "/v1/sandboxes/$S" | jq -c .metrics_export)" >&2
			return 1
		}
		[ -z "$(status last_push_at)" ]
	done
	never world_saw 'request'
}

@test "of several addresses a public one is taken" {
	box mixed.test
	wait_for 20 succeeded
}

@test "a certificate must be of the authority and of the name" {
	box other.test
	wait_for 20 failed_with 'certificate'
	[ -z "$(status last_push_at)" ]
}

@test "a name that nobody answers for delays nobody" {
	local silent gone
	box silent.test
	silent=$S
	box nowhere.test
	gone=$S
	box ok.test
	wait_for 9 succeeded
	S=$gone
	wait_for 20 failed_with 'does not resolve'
	S=$silent
	wait_for 30 failed_with 'within 10 seconds\|does not resolve'
}

newest() { api "/v1/sandboxes/$S/metrics?last=1" | jq ".samples[-1].$1"; }
above() { [ "$(newest "$1")" -ge "$2" ]; }

@test "the bytes of a sandbox's network are in its usage" {
	new "$(allow ok.test)"
	wait_for 10 above net_rx_bytes 0
	[ "$(newest net_rx_bytes)" -lt 1000 ]
	[ "$(guest 'wget -q -O - http://ok.test/big/3000000 | wc -c')" = 3000000 ]
	wait_for 15 above net_rx_bytes 3000000
	[ "$(newest net_rx_bytes)" -lt 3100000 ]
	guest 'head -c 2000000 /dev/zero | nc -w 5 ok.test 8'
	wait_for 15 above net_tx_bytes 2000000
	[ "$(newest net_tx_bytes)" -lt 2100000 ]
	# a pause of the network starts no count anew
	patch "/v1/sandboxes/$S" '{"network":{"mode":"none"}}' >/dev/null
	patch "/v1/sandboxes/$S" "{\"network\":$(allow ok.test)}" >/dev/null
	[ "$(guest 'wget -q -O - http://ok.test/big/1000000 | wc -c')" = 1000000 ]
	wait_for 15 above net_rx_bytes 4000000
	[ "$(newest net_rx_bytes)" -lt 4200000 ]
}

@test "nothing of it is in the log, and no proxy or other login was used" {
	box nowhere.test
	wait_for 20 failed_with 'does not resolve'
	never grep -q 'zq7\|nowhere\|flip.test\|collector' "$D/log"
	never grep -rq 'zq7netrc' "$D/world/log" "$D/state/audit"
	never grep -rq 'zq7secret' "$D/state/audit"
	never grep -q '3128\|CONNECT' "$D/world/log"
}
