# SPDX-License-Identifier: MIT
# A server of its own for tests of snapshots and volumes, and what its records and its disk say.
# SBX_DISK_PROVIDER=loop: on other disks than the first choice.

records_setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	O=${SBX_BUILD:-$PWD/build}
	D=$(mktemp -d /var/tmp/sbx-records.XXXXXX)
	SRV=
}

# Ends every sandbox, whatever state the test left the server in.
records_teardown() {
	local id
	[ -n "${D:-}" ] && [ -d "$D" ] || return 0
	[ -n "${BATS_TEST_COMPLETED:-}" ] || tail -n 8 "$D/log" >&2 || true
	if [ -d "$D/state" ]; then
		server_up || start || true
		for id in $(get /v1/sandboxes | jq -r '.sandboxes[]? | select(.state != "terminated") | .id'); do
			api -X DELETE "/v1/sandboxes/$id" >/dev/null || true
		done
		[ -z "$SRV" ] || stop
	fi
	rm -rf --one-file-system "$D"
}

server_up() { [ "$(curl -sS --max-time $((20 * ${SLOW:-1})) --unix-socket "$D/sock" -o /dev/null -w '%{http_code}' http://localhost/v1/health 2>/dev/null)" = 200 ]; }

# Without a network: what is tested here is not that.
start() { # [FLAGS...]: FAULT=point kills or stops it there; LIMITS: of the policy; VIA: what starts it
	(umask 077; echo "{\"limits\":{${LIMITS:-}},\"network\":{\"default\":{\"mode\":\"none\"},\"ceiling\":\"none\"}}" >"$D/policy")
	SBX_FAULT=${FAULT:-} "${VIA[@]}" "$O/bin/sandboxd" --listen "unix://$D/sock" --state-dir "$D/state" --policy "$D/policy" \
		${SBX_DISK_PROVIDER:+--disk-provider "$SBX_DISK_PROVIDER"} "$@" 2>>"$D/log" 3>&- &
	SRV=$!
	for _ in $(seq $((600 * ${SLOW:-1}))); do
		server_up && return 0
		kill -0 "$SRV" 2>/dev/null || break
		sleep 0.05
	done
	wait "$SRV" || true
	SRV=
	tail -n 20 "$D/log" >&2
	return 1
}
stop() {
	kill "$SRV"
	wait "$SRV" || true
	SRV=
}
# No control group of the server's is left. They are named after the state directory, by a hash.
no_groups() {
	local dir=$D/state h=1469598103934665603 i c
	for ((i = 0; i < ${#dir}; i++)); do
		printf -v c %d "'${dir:i:1}"
		h=$(((h ^ c) * 1099511628211))
	done
	printf -v h 'sandboxd-%08x' $(((h ^ (h >> 32)) & 0xffffffff))
	[ ! -d "/sys/fs/cgroup/$h" ] && ! compgen -G "/sys/fs/cgroup/*/$h" >/dev/null
}
crash() {
	kill -9 "$SRV" 2>/dev/null || true
	wait "$SRV" 2>/dev/null || true
	SRV=
}

# await TENTHS COMMAND...; SLOW times as long
await() {
	local n=$(($1 * ${SLOW:-1}))
	shift
	while ! "$@"; do
		n=$((n - 1))
		[ "$n" -gt 0 ] || { echo "gave up waiting for: $*" >&2; return 1; }
		sleep 0.1
	done
}

api() { # curl's arguments, the path last
	local args=("$@") path=${*: -1}
	unset 'args[${#args[@]}-1]'
	curl -sS --max-time $((60 * ${SLOW:-1})) --unix-socket "$D/sock" "${args[@]}" "http://localhost$path"
}
get() { api "$1"; }
json() { api -X "${3:-POST}" -H 'Content-Type: application/json' -d "$2" "$1"; }
# code METHOD PATH [BODY]: the HTTP status and the error's code
code() {
	local out why=
	out=$(api -X "$1" ${3:+-H 'Content-Type: application/json' -d "$3"} -w '\n%{http_code}' "$2")
	[[ $out != *'"error"'* ]] || why=$(jq -r '.error.code // empty' <<<"${out%$'\n'*}" 2>/dev/null)
	echo "${out##*$'\n'}${why:+ $why}"
}
id_of() { jq -er .id <<<"$1" 2>/dev/null || { echo "no id: $1" >&2; return 1; }; }
new() { id_of "$(json /v1/sandboxes "${1:-{\}}")"; }
snap() { id_of "$(api -X POST "/v1/sandboxes/$1/snapshots")"; }
fork() { new "{\"snapshot_id\":\"$1\"}"; }
guest() { # ID SHELL-TEXT: its output; its exit code is lost
	json "/v1/sandboxes/$1/run" "$(jq -cn --arg c "$2" '{argv: ["sh", "-c", $c]}')" | jq -j '(.stdout, .stderr) | @base64d'
}
put() { api -X PUT -H 'Content-Type: application/octet-stream' --data-binary @- -o /dev/null -w '%{http_code}' "/v1/sandboxes/$1/files?path=$2"; }
cat_() { api "/v1/sandboxes/$1/files?path=$2"; }

broker() { pgrep -P "$SRV" -x sbx-priv | head -n1; }
# What lies in the broker's folder of that name, wherever it is mounted.
in_folder() { # NAME...
	local n want=()
	for n; do want+=(-o -lname "*/$n"); done
	find "/proc/$(broker)/fd" \( "${want[@]:1}" \) -exec ls -A {}/ \; 2>/dev/null | sort -u
}
layers_there() { in_folder layers sealed | grep -E '^(\.gone-)?[0-9]+$' | sort -n | tr '\n' ' '; }
volumes_there() { in_folder areas | grep -c '^vol-' || true; }

# Records and disk agree: each volume has an area and no area is without one; of layers exactly those are
# there that images, snapshots and live sandboxes need. What is dropped in the background is awaited.
agree() {
	await 100 volumes_agree
	await 100 layers_agree
}
volumes_agree() { [ "$(volumes_there)" = "$(get /v1/volumes | jq '.volumes | length')" ]; }
# An image's layers, and one for each snapshot that is listed or that a live fork stands on: $EXTRA of these.
layers_agree() {
	local n
	n=$(layers_there | wc -w)
	[ "$n" = $((${IMAGE_LAYERS:-1} + $(get /v1/snapshots | jq '.snapshots | length') + ${EXTRA:-0})) ]
}
