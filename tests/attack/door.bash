# SPDX-License-Identifier: MIT
# A server for what comes over the network (door.py): without isolation behind a socket; TCP takes the real one.

TOKEN=0123456789abcdef-door

door_setup() {
	O=${SBX_BUILD:-$PWD/build}
	D=$(mktemp -d /var/tmp/sbx-door.XXXXXX)
	SRV=
	(umask 077 && echo "$TOKEN" >"$D/token")
}
door_teardown() {
	[ -n "${D:-}" ] || return 0
	[ -n "${BATS_TEST_COMPLETED:-}" ] || tail -n 8 "$D/log" >&2 || true
	if [ -n "$SRV" ]; then
		kill "$SRV" 2>/dev/null || true
		wait "$SRV" || true
	fi
	rm -rf "$D"
}
# door ADDRESS [FLAGS...]: a server there; sets AT for door.py
door() {
	local address=$1 backend=fake
	shift
	[ "${address%%:*}" = unix ] || backend=linux
	[ $backend = fake ] || [ "$(id -u)" = 0 ] || skip "needs root"
	"$O/bin/sandboxd" --backend $backend --listen "$address" --state-dir "$D/state" --no-keep-sandboxes \
		--image-dir "${SBX_IMAGES:-$O/images}" "$@" 2>>"$D/log" 3>&- &
	SRV=$!
	for _ in $(seq 600); do
		grep -q 'started listen=' "$D/log" && break
		kill -0 "$SRV"
		sleep 0.05
	done
	case $address in
	unix:*) AT=unix:${address#unix://} ;;
	*) AT=tcp:$(sed -n 's/.*127\.0\.0\.1:\([0-9]*\).*/\1/p' "$D/log" | head -n1) ;;
	esac
}
door_py() { python3 tests/attack/door.py "$@"; }
certificate() { # a CA and a certificate of it for localhost
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ca \
		-keyout "$D/ca.key" -out "$D/ca.pem" 2>>"$D/log"
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost \
		-keyout "$D/key.pem" -out "$D/req.pem" 2>>"$D/log"
	openssl x509 -req -in "$D/req.pem" -CA "$D/ca.pem" -CAkey "$D/ca.key" -CAcreateserial -days 2 \
		-extfile <(echo subjectAltName=DNS:localhost) -out "$D/cert.pem" 2>>"$D/log"
}
