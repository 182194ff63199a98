# SPDX-License-Identifier: MIT
# A server of its own for one file of attacks, or two: `server u` is the product, `server r` has the broker
# that starts guest processes as guest root. `on u` and `on r` choose which one api, new, guest … talk to.
# What a test makes is removed after it; what must not change is looked at by the test itself.

attack_up() { # SERVERS…
	local s
	[ "$(id -u)" = 0 ] || return 0
	export O=${SBX_BUILD:-$PWD/build} T
	T=$(mktemp -d /var/tmp/sbx-attack.XXXXXX)
	chmod 755 "$T" # as open as a careless operator's folder
	mkdir "$T/root" "$T/images"
	cp "${SBX_IMAGES:-$O/images}/base.tar" "$T/images" # where the server can read it, too
	ln -s "$O"/bin/sbx-* "$T/root"
	ln -sf "$O/tests/linux/root/sbx-priv" "$T/root/sbx-priv"
	for s; do server "$s" || return 1; done
}
attack_setup() { [ "$(id -u)" = 0 ] || skip "needs root"; }
attack_clean() { # after each test: the sandboxes of every server
	local s
	for s in u r; do
		[ -s "$T/$s/pid" ] || continue
		on $s
		remove_all
	done
}
attack_down() {
	local s
	[ -n "${T:-}" ] && [ -d "$T" ] || return 0
	for s in u r; do
		[ -s "$T/$s/pid" ] || continue
		on $s
		remove_all
		server_stop
	done
	rm -rf --one-file-system "$T"
}

# server u|r [FLAGS…]
server() {
	local s=$1 bin=$O/bin
	shift
	[ "$s" = u ] || bin=$T/root
	mkdir -p "$T/$s"
	[ -d "$T/$s/state" ] || mkdir -m 700 "$T/$s/state"
	on "$s"
	"$O/bin/sandboxd" --listen "unix://$D/sock" --state-dir "$D/state" --libexec-dir "$bin" \
		--image-dir "$T/images" --no-keep-sandboxes "$@" >>"$D/log" 2>&1 3>&- &
	echo $! >"$D/pid"
	await 60 server_up || { tail -n 20 "$D/log" >&2; return 1; }
}
on() { D=$T/$1; export D SBX_ENDPOINT=unix://$T/$1/sock; }
server_pid() { cat "$D/pid"; }
server_up() { [ "$(curl -sS --max-time $((5 * ${SLOW:-1})) --unix-socket "$D/sock" -o /dev/null -w '%{http_code}' http://localhost/v1/health 2>/dev/null)" = 200 ]; }
server_stop() {
	kill "$(server_pid)"
	await 60 server_gone || kill -9 "$(server_pid)"
	rm -f "$D/pid"
}
server_gone() { ! kill -0 "$(server_pid)" 2>/dev/null; }
remove_all() {
	local id
	for id in $(api /v1/sandboxes | jq -r '.sandboxes[] | select(.state != "terminated") | .id'); do
		api -X DELETE "/v1/sandboxes/$id" >/dev/null
	done
}

# await SECONDS COMMAND…: until it succeeds; SLOW times as long
await() {
	local end=$((SECONDS + $1 * ${SLOW:-1}))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || { echo "gave up waiting for: $*" >&2; return 1; }
		sleep 0.05
	done
}
# `! command` never fails a test; this does, when the command succeeds
never() {
	if "$@"; then
		echo "this should have failed: $*" >&2
		return 1
	fi
}
# is GOT WANTED
is() { [ "$1" = "$2" ] || { printf 'got:  %q\nwant: %q\n' "$1" "$2" >&2; return 1; }; }

api() { # curl's arguments, the path last
	local args=("$@") path=${*: -1}
	unset 'args[${#args[@]}-1]'
	curl -sS --max-time $((60 * ${SLOW:-1})) --unix-socket "$D/sock" "${args[@]}" "http://localhost$path"
}
post() { api -X POST -H 'Content-Type: application/json' -d "$2" "$1"; }
new() { # [BODY]: the id
	local out
	out=$(post /v1/sandboxes "${1:-{\}}")
	jq -er .id <<<"$out" 2>/dev/null || { echo "no sandbox: $out" >&2; return 1; }
}
del() { api -X DELETE "/v1/sandboxes/$1" >/dev/null; }
body() { jq -cn --arg c "$1" --argjson t "${2:-30}" '{argv: ["sh", "-c", $c], timeout_secs: $t}'; }
# guest ID SHELL-TEXT [SECONDS]: its output and errors
guest() { post "/v1/sandboxes/$1/run" "$(body "$2" "${3:-30}")" | jq -j '(.stdout, .stderr) // "" | @base64d'; }
# begin ID SHELL-TEXT: a process that goes on; its number
begin() { post "/v1/sandboxes/$1/processes" "$(jq -cn --arg c "$2" '{argv: ["sh", "-c", $c]}')" | jq -er .pid; }
alive() { is "$(guest "$1" 'echo alive')" alive; }
put() { # ID PATH <CONTENT: the status
	api -X PUT -H 'Content-Type: application/octet-stream' --data-binary @- -o /dev/null -w '%{http_code}' "/v1/sandboxes/$1/files?path=$2"
}
get() { api "/v1/sandboxes/$1/files?path=$2"; }
# give ID PROGRAM: of this build, as ./PROGRAM of the home folder
give() {
	is "$(put "$1" "/sandbox/home/$2" <"$O/tests/attack/$2")" 204
	guest "$1" "chmod 755 $2"
}
said() { # ID PROCESS TEXT: its output so far holds it
	api "/v1/sandboxes/$1/processes/$2/output/stdout" | grep -q -- "$3"
}
