#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Network policies over time: what PATCH does to what is open, mode open, and what outlives whom.

load net/lab

setup_file() {
	lab_up
	lab_save
}
teardown_file() {
	lab_load
	lab_down
}
setup() {
	lab_load
	mark
	: >"$D/log"
}
teardown() {
	if [ -n "$SRV" ]; then
		remove_all
		server_stop
	fi
	rm -rf --one-file-system "$D/state"
}

POKE=/sandbox/home/poke
put_poke() {
	api -X PUT -T "$O/tests/linux/poke" -H 'Content-Type: application/octet-stream' \
		"/v1/sandboxes/$S/files?path=$POKE" >/dev/null
	guest "chmod 755 $POKE"
}
fetch() { guest "wget -q -O - http://$1 2>&1"; }
address() { guest "nslookup $1 | awk '/^Address: [0-9.]*\$/ { print \$2 }'" | tail -n1; }
start_process() {
	jq -n --arg s "$1" '{argv: ["sh", "-c", $s]}' >"$D/start.json"
	P=$(api -X POST -H 'Content-Type: application/json' -d @"$D/start.json" "/v1/sandboxes/$S/processes" | jq -r .pid)
}
mode() { api "/v1/sandboxes/$S" | jq -r .network.mode; }
# The far end has heard nothing for a second.
sink_is_quiet() {
	local a b
	a=$(grep -c '^sink' "$D/world/log")
	sleep 1
	b=$(grep -c '^sink' "$D/world/log")
	[ "$a" = "$b" ]
}
sink_hears() { [ "$(grep -c '^sink.*tick' "$D/world/log")" -ge "$1" ]; }
patch_code() {
	api -X PATCH -H 'Content-Type: application/json' -d "$1" -o "$D/answer" -w '%{http_code}' "/v1/sandboxes/$S"
}

@test "PATCH puts the new policy in force and cuts what it forbids" {
	server_start
	new "$(allow ok.test other.test)"
	put_poke
	start_process "$POKE hold $(address ok.test) 9"
	local hold=$P
	wait_for 10 sink_hears 3
	[ "$(patch_code "{\"network\":$(allow other.test)}")" = 200 ]
	# cut by the time of the answer: what the server still logs was under way
	wait_for 5 world_saw 'sink .*ended'
	sink_is_quiet
	wait_for 5 has_exited "$hold"
	never fetch ok.test/
	fetch other.test/ | grep -q host=other.test
	[ "$(api "/v1/sandboxes/$S/events" | jq '[(.events? // .)[] | select(.type == "sandbox.network_updated")] | length')" = 1 ]
	api "/v1/sandboxes/$S/events" | jq -e '[(.events? // .)[] | select(.type == "sandbox.network_updated")][0].network == {"mode":"allowlist","allow":["other.test"]}'
}
has_exited() { [ "$(api "/v1/sandboxes/$S/processes/$1" | jq -r .state)" = exited ]; }

@test "PATCH leaves alone what the new policy still allows" {
	server_start
	new "$(allow ok.test other.test)"
	put_poke
	start_process "$POKE hold $(address ok.test) 9"
	wait_for 10 sink_hears 3
	[ "$(patch_code "{\"network\":$(allow ok.test)}")" = 200 ]
	mark
	wait_for 10 sink_hears 5
	never world_saw ended
}

@test "PATCH to none cuts all; a bad one changes nothing; from none it comes back" {
	server_start
	new "$(allow ok.test)"
	put_poke
	start_process "$POKE hold $(address ok.test) 9"
	wait_for 10 sink_hears 3
	[ "$(patch_code '{"network":{"mode":"none"}}')" = 200 ]
	wait_for 5 world_saw 'sink .*ended'
	sink_is_quiet
	never fetch ok.test/
	[ "$(patch_code '{"network":{"mode":"allowlist","allow":[]},"name":"renamed"}')" = 403 ]
	[ "$(patch_code '{"network":{"mode":"open"},"name":"renamed"}')" = 403 ]
	[ "$(patch_code '{"network":{"mode":"allowlist","allow":["*"]}}')" = 400 ]
	[ "$(api "/v1/sandboxes/$S" | jq -c '[.network.mode, .name]')" = '["none",null]' ]
	[ "$(patch_code "{\"network\":$(allow ok.test),\"name\":\"renamed\"}")" = 200 ]
	fetch ok.test/ | grep -q host=ok.test
	[ "$(api /v1/sandboxes/renamed | jq -r .id)" = "$S" ]
}

@test "a sandbox made without a network gets one" {
	server_start
	new '{"mode":"none"}'
	never fetch ok.test/
	[ "$(patch_code "{\"network\":$(allow ok.test)}")" = 200 ]
	fetch ok.test/ | grep -q host=ok.test
	never fetch other.test/
}

@test "while the policy changes back and forth nothing that neither allows gets through" {
	server_start
	new "$(allow ok.test)"
	guest 'for n in 1 2 3 4; do (end=$(( $(date +%s) + 6 )); while [ $(date +%s) -lt $end ]; do wget -q -T 2 -O /dev/null http://evil.test/ http://shared.test/; printf "GET / HTTP/1.1\r\nHost: shared.test\r\n\r\n" | nc -w 1 198.18.0.1 80 >/dev/null; done) & done; wait' &
	local pid=$!
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		patch "/v1/sandboxes/$S" "{\"network\":$(allow ok.test '*.sub.test')}" >/dev/null
		patch "/v1/sandboxes/$S" "{\"network\":$(allow other.test)}" >/dev/null
		patch "/v1/sandboxes/$S" '{"network":{"mode":"none"}}' >/dev/null
	done
	wait "$pid" || true
	never world_saw 'host shared.test'
	never world_saw 'query .*evil'
}

@test "open: everything public but what is denied" {
	server_start --egress-open
	new '{"mode":"open","deny":["other.test","*.sub.test"]}'
	put_poke
	fetch ok.test/ | grep -q host=ok.test
	fetch shared.test/ | grep -q host=shared.test
	[ "$(address ok.test)" = 11.0.1.10 ]
	fetch 11.0.1.10/ | grep -q host=11.0.1.10
	[ "$(guest 'echo hello | nc 11.0.1.20 7')" = hello ]
	guest 'nc -w 5 11.0.1.10 22 </dev/null' | grep -q SSH
	guest 'nslookup a.sub.test; nslookup other.test' | grep -c NXDOMAIN
	mark
	never fetch other.test/
	guest "printf 'GET / HTTP/1.1\r\nHost: other.test\r\n\r\n' | nc 11.0.1.20 80; printf 'GET / HTTP/1.1\r\nHost: ok.test\r\n\r\nGET / HTTP/1.1\r\nHost: a.sub.test\r\n\r\n' | nc 11.0.1.10 80" || true
	never world_saw 'host other.test'
	never world_saw 'host a.sub.test'
	mark
	for a in 10.9.9.9 169.254.169.254 100.64.1.1 172.16.1.1 192.168.77.9 198.18.0.1 203.0.113.9 11.0.0.1 11.0.0.2 192.168.77.53; do
		[ "$(guest "$POKE tcp $a 80")" = "tcp closed" ]
	done
	for n in inner meta loop mapped; do never fetch "$n.test/"; done
	[ "$(guest "$POKE udp 11.0.1.10 123")" = "udp 101" ]
	never world_saw connect
	# a name that answers public, then private: the dialled address is judged
	fetch flip.test/ >/dev/null
	mark
	never fetch flip.test/
	never world_saw connect
}

@test "open without rules passes what it does not understand; a rule that comes later cuts it" {
	server_start --egress-open
	new '{"mode":"open"}'
	put_poke
	[ "$(guest 'printf "no protocol at all" | nc 11.0.1.10 7')" = "no protocol at all" ]
	guest "printf 'GET / HTTP/1.1\r\nhost:ok.test\n\r\n\r\n' | nc 11.0.1.10 80" || true
	world_saw 'connect 11.0.1.10:80'
	start_process "$POKE hold 11.0.1.10 9"
	wait_for 10 sink_hears 3
	[ "$(patch_code "{\"network\":$(allow ok.test)}")" = 200 ]
	wait_for 5 world_saw 'sink .*ended'
	sink_is_quiet
}

@test "a hello that hides its server's name goes out while there is no rule; one that comes later cuts it" {
	server_start --egress-open
	new '{"mode":"open"}'
	for how in open ech; do
		python3 "$NET_DIR/hello.py" ok.test "$how" >"$D/hello"
		put_file "$D/hello" "/tmp/$how"
		start_process "{ cat /tmp/$how; echo; echo behind $how; sleep 60; } | nc 11.0.1.10 9"
		wait_for 10 world_saw "sink .* behind $how"
	done
	never world_saw ended
	[ "$(patch_code '{"network":{"mode":"open","deny":["evil.test"]}}')" = 200 ]
	wait_for 5 world_saw "sink $(sink_of 'behind ech') ended"
	never world_saw "sink $(sink_of 'behind open') ended"
}
sink_of() { sed -n "s/^sink \([0-9]*\) $1\$/\1/p" "$D/world/log"; }

@test "open is not offered without the flag, and the ceiling says so" {
	server_start
	[ "$(api /v1/capabilities | jq -c '[.capabilities.egress_open, .capabilities.egress_allowlist, .network.ceiling, .network.default.mode]')" = '[false,true,"allowlist","allowlist"]' ]
	api -o "$D/answer" -w '%{http_code}' -X POST -H 'Content-Type: application/json' -d '{"network":{"mode":"open"}}' /v1/sandboxes | grep -q 403
	api -X POST -H 'Content-Type: application/json' -d '{}' /v1/sandboxes | jq -e '.network.mode == "allowlist" and (.network.allow | index("pypi.org"))'
}

@test "kill -9 of the server keeps networks going; the next one takes them back with their policies" {
	server_start
	new "$(allow ok.test)"
	put_poke
	start_process "$POKE hold $(address ok.test) 9"
	wait_for 10 sink_hears 3
	kill -9 "$SRV"
	wait_for 10 server_has_gone
	mark
	wait_for 10 sink_hears 10
	server_start
	[ "$(mode)" = allowlist ]
	mark
	wait_for 10 sink_hears 3
	fetch ok.test/ | grep -q host=ok.test
	never fetch other.test/
	[ "$(patch_code "{\"network\":$(allow other.test)}")" = 200 ]
	wait_for 5 world_saw 'sink .*ended'
	fetch other.test/ | grep -q host=other.test
}

@test "an egress process that dies lets nothing through, and another takes its place" {
	server_start
	new "$(allow ok.test)"
	fetch ok.test/ | grep -q host=ok.test
	local was
	was=$(egress_pid)
	kill -9 "$was"
	fetched() { fetch ok.test/ | grep -q host=ok.test; }
	wait_for 15 fetched
	never fetch other.test/
	[ "$(api "/v1/sandboxes/$S" | jq -r .state)" = running ]
	wait_for 5 grep -q 'serves again' "$D/log"
}
@test "an egress process has an id of its own and no right, and ends with its sandbox" {
	server_start
	new "$(allow ok.test)"
	local first=$(egress_pid) a=$S
	new "$(allow ok.test)"
	local pid=$(egress_pid)
	is() { awk -v k="$1:" '$1 == k { print $2 }' "/proc/$pid/status"; }
	[ "$(awk '$1 == "Uid:" { print $2, $3, $4, $5 }' "/proc/$pid/status" | tr ' ' '\n' | sort -u | wc -l)" = 1 ]
	[ "$(is Uid)" -gt 1000000 ]
	[ "$(is Uid)" != "$(awk '$1 == "Uid:" { print $2 }' "/proc/$first/status")" ]
	for set in CapInh CapPrm CapEff CapBnd CapAmb; do [ "$(is $set)" = 0000000000000000 ]; done
	[ "$(is NoNewPrivs)" = 1 ]
	[ "$(is Seccomp)" = 2 ]
	[ "$(awk '/Max open files/ { print $5 }' "/proc/$pid/limits")" -le 8192 ]
	[ "$(awk '/Max core file size/ { print $5 $6 }' "/proc/$pid/limits")" = 11 ]
	api -X DELETE "/v1/sandboxes/$S"
	wait_for 10 has_ended "$pid"
	# and when only the shim dies, without a server to notice
	S=$a
	kill -9 "$SRV"
	wait_for 10 server_has_gone
	kill -9 "$(od -An -td4 -j16 -N4 "$D/state/priv/boxes/$S" | tr -d ' ')"
	wait_for 10 has_ended "$first"
	server_start
}
has_ended() { [ ! -e "/proc/$1" ]; }

@test "SIGHUP reads the resolvers again" {
	# a mount namespace of its own, so that this machine's resolv.conf is left alone
	echo 'nameserver 192.168.77.54' >"$D/resolv"
	nsenter --net="/run/netns/$NSH" unshare -m sh -c "mount --bind '$D/resolv' /etc/resolv.conf; exec \"\$@\"" sh \
		"$O/bin/sandboxd" --listen "unix://$D/sock" --state-dir "$D/state" --image-dir "${SBX_IMAGES:-$O/images}" 2>>"$D/log" 3>&- &
	SRV=$!
	wait_for 30 server_is_up
	new "$(allow ok.test)"
	never fetch ok.test/
	cat >"$D/resolv" <<<'nameserver 192.168.77.53'
	kill -HUP "$SRV"
	fetched() { fetch ok.test/ | grep -q host=ok.test; }
	wait_for 10 fetched
}

@test "a resolver that is silent or fails makes way for the next; aliases and long answers work" {
	server_start --egress-resolver 11.0.0.53
	new "$(allow ok.test alias.test big.test silent.test fail.test)"
	fetch alias.test/ | grep -q host=alias.test
	fetch big.test/ | grep -q host=big.test
	world_saw 'tcp A big.test'
	never fetch fail.test/
	[ "$(grep -c 'A fail.test' "$D/world/log")" -ge 2 ]
	grep -q 'query 11.0.0.53 .*fail.test' "$D/world/log"
	grep -q 'query 192.168.77.53 .*fail.test' "$D/world/log"
}

@test "thousands of rules: a create, a PATCH and a lookup are as quick as with a few" {
	server_start
	python3 - >"$D/many.json" <<-END
		import json
		names = ["h%d.example.test" % i for i in range(8000)] + ["ok.test"]
		print(json.dumps({"network": {"mode": "allowlist", "allow": names, "deny": ["d%d.test" % i for i in range(4000)]}}))
	END
	post /v1/sandboxes "@$D/many.json" >"$D/answer"
	S=$(jq -r .id "$D/answer")
	[ "$S" != null ]
	fetch ok.test/ | grep -q host=ok.test
	never fetch other.test/
	guest 'nslookup h7999.example.test' | grep -q 198.18
	[ "$(patch_code "@$D/many.json")" = 200 ]
	fetch ok.test/ | grep -q host=ok.test
}

@test "glibc's resolver and a TLS client that checks names work as on any machine" {
	local root=$D/glibc f
	command -v curl >/dev/null || skip "no curl"
	mkdir -p "$root/bin" "$root/etc" "$D/images"
	cp /bin/busybox "$root/bin/busybox"
	ln -s busybox "$root/bin/sh"
	cp "$(command -v curl)" "$root/bin/curl"
	for f in $(ldd "$(command -v curl)" | grep -o '/[^ ]*') /lib/*/libnss_dns.so.2 /lib/*/libnss_files.so.2; do
		[ -e "$f" ] && mkdir -p "$root$(dirname "$f")" && cp -L "$f" "$root$f"
	done
	echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
	ln -s ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf" # as some images ship it
	cp "$D/world/cert.pem" "$root/etc/world.pem"
	tar -C "$root" --owner=0 --group=0 -cf "$D/images/glibc.tar" .
	cp "${SBX_IMAGES:-$O/images}/base.tar" "$D/images/"
	SBX_IMAGES=$D/images server_start
	post /v1/sandboxes "{\"image\":\"glibc\",\"network\":$(allow ok.test shared.test)}" >"$D/answer"
	S=$(jq -r .id "$D/answer")
	[ "$(guest 'curl -sS --cacert /etc/world.pem https://ok.test/y')" = "host=ok.test path=/y body=0" ]
	[ "$(guest 'curl -sS http://ok.test/1 http://ok.test/2 | wc -l')" = 2 ]
	# the certificate is the server's own, so another name is found out by the client
	guest 'curl -sS --cacert /etc/world.pem https://shared.test/; echo $?' | grep -q '^60$'
	guest 'curl -sS http://evil.test/; echo $?' | grep -q '^6$'
	mark
	# the case of the field guide: an allowed name, somebody else's address
	guest 'curl -sk -m5 --connect-to ok.test:443:11.0.1.20:443 https://ok.test/; echo $?; curl -s -m5 -H "Host: ok.test" http://11.0.1.20/; echo $?; curl -sk -m5 https://11.0.1.20/; echo $?' >"$D/out" || true
	never grep -q '^0$' "$D/out"
	never world_saw 'connect 11.0.1.20'
	rm -rf "$root" "$D/images"
}

@test "without a socket lookup program a redirect does the same" {
	server_start --libexec-dir "$O/tests/linux/redirect"
	grep -q 'caught by an nftables redirect' "$D/log"
	new "$(allow ok.test shared.test inner.test)"
	put_poke
	fetch ok.test/ | grep -q host=ok.test
	[ "$(guest 'head -c 2000000 /dev/zero | nc ok.test 8')" = 2000000 ]
	guest 'nslookup evil.test 8.8.8.8' | grep -q NXDOMAIN
	never fetch inner.test/
	mark
	[ "$(guest "$POKE tcp 11.0.1.10 80")" = "tcp closed" ]
	[ "$(guest "$POKE tcp 127.0.0.1 80")" = "tcp 111" ]
	[ "$(guest "$POKE udp 11.0.1.10 123")" = "udp 101" ]
	[ "$(served 192.0.2.2 8080)" = hello ]
	guest "printf 'GET / HTTP/1.1\r\nHost: shared.test\r\n\r\n' | nc ok.test 80" || true
	never world_saw connect
	kill -9 "$(egress_pid)"
	fetched() { fetch ok.test/ | grep -q host=ok.test; }
	wait_for 15 fetched
}

@test "connections of a sandbox that sleeps wait for it" {
	server_start
	new "$(allow ok.test)"
	put_poke
	guest "$POKE hold $(address ok.test) 9 >/dev/null 2>&1 &"
	wait_for 10 sink_hears 3
	[ "$(api -X POST -o /dev/null -w '%{http_code}' "/v1/sandboxes/$S/suspend")" = 200 ]
	sink_is_quiet
	mark
	[ "$(api -X POST -o /dev/null -w '%{http_code}' "/v1/sandboxes/$S/resume")" = 200 ]
	wait_for 10 sink_hears 3
	never world_saw ended
}

@test "a network is changed in a running sandbox only" {
	server_start
	new "$(allow ok.test)"
	api -X POST "/v1/sandboxes/$S/suspend" >/dev/null
	[ "$(patch_code "{\"network\":$(allow other.test)}")" = 409 ]
	[ "$(mode)" = allowlist ]
	api -X POST "/v1/sandboxes/$S/resume" >/dev/null
	fetch ok.test/ | grep -q host=ok.test
	[ "$(patch_code "{\"network\":$(allow other.test)}")" = 200 ]
	fetch other.test/ | grep -q host=other.test
}

@test "a network that is changed while its sandbox ends is a conflict, not trouble of the server" {
	server_start --egress-open
	for i in $(seq 30); do
		id=$(post /v1/sandboxes '{"network":{"mode":"open"}}' | jq -r .id)
		for mode in none open none open; do
			patch "/v1/sandboxes/$id" "{\"network\":{\"mode\":\"$mode\"}}" >"$D/patch.$mode.$i" 3>&- &
			patches[${#patches[@]}]=$!
		done
		api -X DELETE "/v1/sandboxes/$id" >/dev/null
		wait "${patches[@]}"
		patches=()
	done
	never grep -hE '"(unavailable|internal)"' "$D"/patch.*
	grep -qh '"conflict"' "$D"/patch.*
}
