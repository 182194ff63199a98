# SPDX-License-Identifier: MIT
# A machine and an internet of its own for the network tests: two network namespaces and a cable. The
# whole server runs in the first; the second has public-looking addresses, name servers and web servers
# (world.py). No packet leaves the machine.
#
#   11.0.0.1    the machine           11.0.0.53, 192.168.77.53   the operator's resolvers (the same)
#   2600:1::1   the machine           2600:1::10  six.test
#   11.0.1.10   ok.test, *.sub.test   11.0.1.20  other.test, shared.test too
#   10.9.9.9, 169.254.169.254, 100.64.1.1, 172.16.1.1, 192.168.77.9   what must never be reached

NET_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
INNER="10.9.9.9 169.254.169.254 100.64.1.1 172.16.1.1 192.168.77.9 198.18.0.1 203.0.113.9"

lab_up() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	O=${SBX_BUILD:-$PWD/build}
	D=$(mktemp -d /var/tmp/sbx-net.XXXXXX)
	NSH=sbxh-$$-$RANDOM NSW=sbxw-$$-$RANDOM
	ip netns add "$NSH"
	ip netns add "$NSW"
	ip -n "$NSH" link add cable type veth peer name cable netns "$NSW"
	ip -n "$NSH" link set lo up
	ip -n "$NSW" link set lo up
	ip -n "$NSH" addr add 11.0.0.1/24 dev cable
	ip -n "$NSH" addr add 11.0.0.2/24 dev cable
	ip -n "$NSW" addr add 11.0.0.254/24 dev cable
	for a in 11.0.0.53 11.0.1.10 11.0.1.11 11.0.1.20 192.168.77.53 $INNER; do
		ip -n "$NSW" addr add "$a/32" dev cable
	done
	ip -n "$NSH" link set cable up
	ip -n "$NSW" link set cable up
	ip -n "$NSH" route add default via 11.0.0.254
	for a in 2600:1::1 fd00::1; do ip -n "$NSH" addr add "$a/64" dev cable nodad; done
	for a in 2600:1::10 fd00::10; do ip -n "$NSW" addr add "$a/64" dev cable nodad; done
	mkdir "$D/world"
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=world -addext subjectAltName=DNS:ok.test \
		-keyout "$D/world/key.pem" -out "$D/world/cert.pem" 2>/dev/null
	cat >"$D/world/zone" <<-END
		ok.test A 11.0.1.10
		a.sub.test A 11.0.1.10
		b.a.sub.test A 11.0.1.10
		other.test A 11.0.1.20
		shared.test A 11.0.1.10
		two.test A 11.0.1.11
		alias.test CNAME mid.test
		mid.test CNAME ok.test
		inner.test A 10.9.9.9
		meta.test A 169.254.169.254
		loop.test A 127.0.0.1
		host.test A 11.0.0.1
		host2.test A 11.0.0.2
		mixed.test A 10.9.9.9 11.0.1.10 169.254.169.254
		mapped.test AAAA ::ffff:10.9.9.9 ::ffff:127.0.0.1 ::1 64:ff9b::a09:909 fd00::1
		six.test AAAA 2600:1::10
		host6.test AAAA 2600:1::1
		ula.test AAAA fd00::10
		flip.test FLIP 11.0.1.10 10.9.9.9
		big.test BIG
		big.test A 11.0.1.10
		silent.test SILENT
		fail.test FAIL
	END
	nsenter --net="/run/netns/$NSW" python3 "$NET_DIR/world.py" "$D/world" 3>&- &
	WORLD=$!
	wait_for 10 test -e "$D/world/ready"
}

lab_down() {
	[ -n "${D:-}" ] || return 0
	if [ -n "${SRV:-}" ]; then
		remove_all
		server_stop
	fi
	[ -z "${WORLD:-}" ] || kill "$WORLD" 2>/dev/null
	ip netns del "$NSH" 2>/dev/null
	ip netns del "$NSW" 2>/dev/null
	rm -rf --one-file-system "$D"
}

# From setup_file to the tests, which are processes of their own.
lab_save() {
	SRV=${SRV:-}
	declare -p O D NSH NSW WORLD SRV >"$BATS_FILE_TMPDIR/lab"
}
lab_load() {
	eval "$(sed 's/^declare -[-x]* /declare -g /' "$BATS_FILE_TMPDIR/lab")"
}
remove_all() {
	for id in $(api /v1/sandboxes | jq -r '.sandboxes[] | select(.state != "terminated") | .id'); do
		api -X DELETE "/v1/sandboxes/$id" >/dev/null
	done
}
# `! command` never fails a test; this does, when the command succeeds
never() {
	if "$@"; then
		echo "this should have failed: $*" >&2
		return 1
	fi
}

# wait_for SECONDS COMMAND…: until it succeeds; SLOW times as long
wait_for() {
	local end=$((SECONDS + $1 * ${SLOW:-1}))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.05
	done
}

api() {
	local args=("$@") path=${*: -1}
	unset 'args[${#args[@]}-1]'
	curl -sS --max-time $((40 * ${SLOW:-1})) --unix-socket "$D/sock" "${args[@]}" "http://localhost$path"
}
post() { api -X POST -H 'Content-Type: application/json' -d "$2" "$1"; }
patch() { api -X PATCH -H 'Content-Type: application/json' -d "$2" "$1"; }
server_is_up() { [ "$(api -o /dev/null -w '%{http_code}' /v1/health 2>/dev/null)" = 200 ]; }

server_start() {
	nsenter --net="/run/netns/$NSH" "$O/bin/sandboxd" --listen "unix://$D/sock" --state-dir "$D/state" \
		--image-dir "${SBX_IMAGES:-$O/images}" --egress-resolver 192.168.77.53 "$@" 2>>"$D/log" 3>&- &
	SRV=$!
	wait_for 30 server_is_up || {
		cat "$D/log" >&2
		return 1
	}
}
server_has_gone() { ! kill -0 "$SRV" 2>/dev/null; }
server_stop() {
	kill "$SRV"
	wait_for 30 server_has_gone
	SRV=
}

# new NETWORK: the id of a new sandbox
new() {
	local body=${1:+"{\"network\":$1}"}
	post /v1/sandboxes "${body:-"{}"}" >"$D/answer"
	S=$(jq -r .id "$D/answer")
	[ "$S" != null ] || {
		cat "$D/answer" >&2
		return 1
	}
}
allow() { # allow NAME…: a policy
	local list
	list=$(printf '"%s",' "$@")
	printf '{"mode":"allowlist","allow":[%s]}' "${list%,}"
}
# guest SCRIPT: runs it in $S; its output, its exit code
guest() {
	jq -n --arg s "$1" '{argv: ["sh", "-c", $s], timeout_secs: 30}' >"$D/run.json"
	api -X POST -H 'Content-Type: application/json' -d @"$D/run.json" "/v1/sandboxes/$S/run" >"$D/answer"
	jq -j '(.stdout // "" | @base64d), (.stderr // "" | @base64d)' "$D/answer"
	local code
	code=$(jq -r '.exit_code // 255' "$D/answer")
	return "$code"
}

put_file() { # put_file FROM TO [MODE]
	api -X PUT -T "$1" -H 'Content-Type: application/octet-stream' "/v1/sandboxes/$S/files?path=$2" >/dev/null
	[ -z "${3:-}" ] || guest "chmod $3 $2"
}

# served ADDRESS PORT: what a server inside says to one who connects there, once it listens.
served() {
	guest "$POKE serve $2 >/dev/null & n=0; until nc -w 3 $1 $2 </dev/null 2>/dev/null; do
		[ \$((n += 1)) -lt 100 ] || exit 1; sleep 0.1; done"
}
world_saw() { grep -q -- "$1" "$D/world/log"; }
mark() { : >"$D/world/log"; }

# The egress process of $S: in one control group with its shim, whose pid the broker's record has.
egress_pid() {
	local group
	group=$(group_of "$(od -An -td4 -j16 -N4 "$D/state/priv/boxes/$S" | tr -d ' ')")
	for p in $(pgrep -f '^sbx-egress$'); do
		[ "$(group_of "$p")" = "$group" ] && echo "$p" && return
	done
	return 1
}
group_of() { awk -F: '$1 == 0 { print $3 }' "/proc/$1/cgroup" 2>/dev/null; }
