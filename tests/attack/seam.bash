# SPDX-License-Identifier: MIT
# A server whose guest programs lie (tests/attack/liar), a sandbox `neighbour` on it, and what front and broker
# hold before and after a test.
load helper

setup_file() {
	attack_up
	[ -d "${T:-}" ] || return 0
	mkdir -p "$T/l"
	mkdir -m 700 "$T/l/state"
	on l
	"$O/bin/sandboxd" --listen "unix://$D/sock" --state-dir "$D/state" --libexec-dir "$O/tests/attack/liars" \
		--image-dir "${SBX_IMAGES:-$O/images}" --no-keep-sandboxes >>"$D/log" 2>&1 3>&- &
	echo $! >"$D/pid"
	await 60 server_up || { tail -n 20 "$D/log" >&2; return 1; }
	new '{"name": "neighbour"}' >"$T/neighbour"
}
teardown_file() {
	[ -d "${T:-}" ] || return 0
	on l
	remove_all
	server_stop
	attack_down
}
setup() {
	attack_setup
	on l
	FRONT=$(server_pid) BROKER=$(pgrep -P "$(server_pid)" -x sbx-priv | head -n1)
	neighbour # what it leaves in pools is there
	FRONT_FDS=$(fds "$FRONT") FRONT_KIB=$(rss "$FRONT") BROKER_FDS=$(fds "$BROKER") BROKER_KIB=$(rss "$BROKER")
}
teardown() {
	[ "$(id -u)" = 0 ] || return 0
	local id
	for id in $(api /v1/sandboxes | jq -r '.sandboxes[] | select(.state != "terminated" and .name != "neighbour") | .id'); do
		del "$id"
	done
	[ ! -s "$T/held/pid" ] || { on held && remove_all && server_stop; }
}

fds() { ls "/proc/$1/fd" | wc -l; }
few_of() { [ "$(fds "$1")" -le "$2" ] || { fds "$1" >&2; return 1; }; }
rss() { awk '$1 == "VmRSS:" { print $2 }' "/proc/$1/status"; }
neighbour() { is "$(guest neighbour 'echo fine')" fine; }
shim_of() { od -An -t d4 -j 16 -N 4 "$D/state/priv/boxes/$1" | tr -d ' '; }
# Spare sandboxes are made and go, a client's thread ends a moment after its answer, a sandbox's connections are kept.
few_fds() { [ "$(fds "$FRONT")" -le $((FRONT_FDS + 24)) ] && [ "$(fds "$BROKER")" -le $((BROKER_FDS + 24)) ]; }
as_before() {
	neighbour
	kill -0 "$FRONT" && kill -0 "$BROKER"
	await 60 few_fds || { echo "front $FRONT_FDS $(fds "$FRONT") broker $BROKER_FDS $(fds "$BROKER")" >&2; return 1; }
	[ $(($(rss "$FRONT") - FRONT_KIB)) -le $((98304 * ${SAN_MEMORY:-1})) ] && [ $(($(rss "$BROKER") - BROKER_KIB)) -le $((16384 * ${SAN_MEMORY:-1})) ] ||
		{ echo "front $FRONT_KIB $(rss "$FRONT") broker $BROKER_KIB $(rss "$BROKER")" >&2; return 1; }
	never grep -qE 'AddressSanitizer|stack smashing|buffer overflow' "$D/log"
}
# run ID ARGV-JSON: the status
code() { # curl's arguments, the path last: the status; 000 when the answer is cut
	api -o "$T/answer" -w '%{http_code}' "$@" 2>/dev/null || true
}
run_code() { code -X POST -H 'Content-Type: application/json' -d "{\"argv\": $2, \"timeout_secs\": 3}" "/v1/sandboxes/$1/run"; }
state_is() { is "$(api "/v1/sandboxes/$1" | jq -r .state)" "$2" 2>/dev/null; }

network() { jq -cn --arg n "lie-$1.test" '{network: {mode: "allowlist", allow: [$n]}}'; }
lines() { grep -c 'egress refused' "$D/log" || true; }
