#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The tree: what is where, and what mkdir, rmdir and mv do.

load helper
setup_file() { fs_start; }
teardown_file() { fs_stop; }
setup() { fs_setup; }

@test "mkdir makes a sandbox that runs, rmdir ends it" {
	mkdir "$M/one"
	same "$(cat "$M/one/state")" running
	id=$(cat "$M/one/id")
	same "$(api GET /sandboxes/one | jq -r .state)" running
	rmdir "$M/one"
	[ ! -e "$M/one" ]
	same "$(api GET "/sandboxes/$id" | jq -r .state)" terminated
	same "$(readlink "$M/by-id/$id")" "../ended/$id"
	same "$(jq -r .state "$M/ended/$id/info")" terminated
}

@test "mv renames a sandbox" {
	mkdir "$M/old"
	id=$(cat "$M/old/id")
	mv "$M/old" "$M/new-name"
	[ ! -e "$M/old" ]
	same "$(cat "$M/new-name/id")" "$id"
	echo third > "$M/new-name/name"
	same "$(cat "$M/third/id")" "$id"
	same "$(readlink "$M/by-id/$id")" ../third
	rmdir "$M/third"
}

@test "a taken name, a bad name and a word of the tree are refused" {
	refused "File exists" mkdir "$M/box"
	js POST /sandboxes '{"name":"behind"}' >/dev/null
	mkdir "$M/other"
	refused "File exists" mv -T --no-clobber "$M/other" "$M/behind" || refused "File exists" \
		python3 -c 'import os,sys; os.rename(sys.argv[1], sys.argv[2])' "$M/other" "$M/behind"
	refused "Invalid argument" mkdir "$M/Not_A_Name"
	refused "Invalid argument" mkdir "$M/templates"
	refused "File exists" mkdir "$M/new"
	rmdir "$M/other" "$M/behind"
}

@test "rmdir of a sandbox with a running process is busy, delete ends it" {
	mkdir "$M/busy"
	mkdir "$M/busy/processes/p"
	echo 'sleep 100' > "$M/busy/processes/p/cmd"
	refused "Device or resource busy" rmdir "$M/busy"
	[[ $(cat "$M/error") == *"processes run"* ]]
	echo delete > "$M/busy/ctl"
	[ ! -e "$M/busy" ]
}

@test "a draft becomes a sandbox by mv" {
	mkdir "$M/new/d"
	echo 0.5 > "$M/new/d/cpus"
	echo 256 > "$M/new/d/memory_mb"
	echo 'A=1' > "$M/new/d/env"
	echo 'B=2' >> "$M/new/d/env"
	echo x > "$M/new/d/labels/team"
	same "$(cat "$M/new/d/env")" "$(printf 'A\nB')"
	mv "$M/new/d" "$M/"
	same "$(cat "$M/d/cpus")" 0.5
	same "$(cat "$M/d/memory_mb")" 256
	same "$(cat "$M/d/env_names")" "$(printf 'A\nB')"
	same "$(cat "$M/d/labels/team")" x
	same "$(ls "$M/by-label/team/x")" d
	same "$(readlink "$M/by-label/team/x/d")" ../../../d
	[ ! -e "$M/new/d" ]
	rmdir "$M/d"
}

@test "a write into a control file is one request, and what it changed is asked for by nobody" {
	local before i n=100 t=0
	mkdir "$M/once"
	: >"$M/once/labels/k"
	# A record is believed for a second, which a busy machine may need for one round.
	while [ "$n" -gt 30 ] && [ "$((t += 1))" -le 10 ]; do
		before=$(jq .requests "$M/stats")
		for i in $(seq 20); do echo "$i" >"$M/once/labels/k"; done
		n=$(($(jq .requests "$M/stats") - before))
	done
	[ "$n" -le 30 ] || { echo "$n requests for 20 writes"; false; }
	same "$(cat "$M/once/labels/k")" 20
	rmdir "$M/once"
}

@test "labels that cannot be file names: what is listed can be read, and nothing else is meant" {
	slashes=$(printf '%0200d' 0 | tr 0 /) wide=$(printf '%0127d' 0 | sed 's/0/ü/g') # 600 and 257 bytes as names
	"$O/bin/sbx" api POST /v1/sandboxes "$(jq -cn --arg s "$slashes" --arg w "$wide/" \
		'{name: "odd", labels: {"a/b": "1", "a_b": "2", s: $s, w: $w, dots: "..", none: "", mark: "%", up: "../../etc"}}')" >/dev/null
	same "$(ls "$M/by-label" | tr '\n' ' ')" "a_b dots mark none s up w "
	for k in a_b dots mark none s up w; do
		for v in $(ls -A "$M/by-label/$k"); do
			same "$(ls "$M/by-label/$k/$v")" odd
			same "$(readlink "$M/by-label/$k/$v/odd")" ../../../odd
			[ "$(printf %s "$v" | wc -c)" -le 255 ]
		done
	done
	same "$(for k in dots none mark up; do ls -A "$M/by-label/$k"; done | tr '\n' ' ')" "%2E. % %25 ..%2F..%2Fetc "
	same "$(ls "$M/odd/labels" | grep -c '^a_b$')" 1
	same "$(cat "$M/odd/labels/a_b")" 2
	echo 3 >"$M/odd/labels/a_b"
	same "$("$O/bin/sbx" api GET /v1/sandboxes/odd | jq -r '.labels | .["a/b"] + .["a_b"]')" 13
	rm "$M/odd/labels/a_b"
	same "$(cat "$M/odd/labels/a_b")" 1 # the other one has the name now
	rmdir "$M/odd"
}

@test "the errno of a draft belongs to its mv" {
	mkdir "$M/new/e"
	echo 99999 > "$M/new/e/cpus"
	refused "Invalid request" mv "$M/new/e" "$M/"
	[[ $(cat "$M/error") == *cpus* ]]
	[ -d "$M/new/e" ]
	rmdir "$M/new/e"
}

@test "create takes a spec in any pieces, created names the sandbox" {
	echo '{"labels": {"a": "b"}}' > "$M/create"
	id=$(cat "$M/created")
	same "$(cat "$M/$id/labels/a")" b
	echo delete > "$M/$id/ctl"
	{ printf '{"name":'; printf '"pieces"'; printf '}\n'; } > "$M/create"
	same "$(cat "$M/pieces/state")" running
	rmdir "$M/pieces"
	# A child that ends with the file open is not the end of the document.
	{ printf '{"name":'; sh -c :; printf '"pieces"}\n'; } > "$M/create"
	same "$(cat "$M/pieces/state")" running
	rmdir "$M/pieces"
	refused "Invalid argument" bash -c "echo '{]' > $M/create"
	refused "Invalid argument" cp /dev/stdin "$M/create" <<<'{"unfinished": '
	[[ $(cat "$M/error") == *"too early"* ]]
}

@test "labels are files" {
	echo v1 > "$B/labels/k"
	same "$(cat "$B/labels/k")" v1
	same "$(api GET /sandboxes/box | jq -r .labels.k)" v1
	rm "$B/labels/k"
	[ ! -e "$B/labels/k" ]
	same "$(api GET /sandboxes/box | jq -r .labels.k)" null
	refused "Invalid argument" sh -c "echo x > $B/labels/Upper"
}

@test "labels that are written at once are all there" {
	local i jobs=()
	mkdir "$M/parts"
	for i in $(seq 20); do : >"$M/parts/labels/k$i"; done
	for i in $(seq 20); do
		echo "$i" >"$M/parts/labels/k$i" &
		jobs+=($!)
	done
	wait "${jobs[@]}"
	same "$(cat "$M"/parts/labels/k* | sort -n)" "$(seq 20)"
	rmdir "$M/parts"
}

@test "values are one line, records are the API's objects" {
	for f in id name state image cpus memory_mb disk_mb created_at idle_timeout idle_action; do
		same "$(wc -l < "$B/$f")" 1
	done
	same "$(jq -S . "$B/info")" "$(api GET /sandboxes/box | jq -S .)"
	same "$(jq -S . "$M/capabilities")" "$(api GET /capabilities | jq -S .)"
	same "$(jq -r .version "$M/node/info")" "$(cat "$M/node/version")"
	same "$(cat "$B/network/mode")" "$(api GET /sandboxes/box | jq -r .network.mode)"
	grep -q processes/NAME "$M/README"
}

can() { [ "$(jq ".capabilities.$1" "$M/capabilities")" = true ]; }

@test "settings are applied by the write, or refuse it" {
	echo 60 > "$B/idle_timeout"
	same "$(api GET /sandboxes/box | jq .idle_timeout_secs)" 60
	refused "write error: Invalid argument" bash -c "echo soon > $B/idle_timeout"
	refused "Operation not permitted" sh -c ": > $B/state"
	! can network_policy_update || return 0
	refused "Operation not supported" sh -c "printf open | cat > $B/network/mode"
	[[ $(cat "$B/error") == *network_policy_update* ]]
}

@test "what the server lacks is absent" {
	[ ! -e "$M/gateway" ]
	for row in images:images volumes:volumes disk_snapshot:snapshots; do
		can "${row%:*}" || [ ! -e "$M/${row#*:}" ]
	done
	for row in metrics:metrics disk_snapshot:snapshots tunnel:ports volumes:volumes; do
		can "${row%:*}" || [ ! -e "$B/${row#*:}" ]
	done
}

@test "cordoned stops new sandboxes" {
	echo 1 > "$M/node/cordoned"
	refused "Resource temporarily unavailable" mkdir "$M/late"
	echo 0 > "$M/node/cordoned"
	mkdir "$M/late"
	rmdir "$M/late"
}

@test "unknown verbs are refused in words, and the rest of the write is cancelled" {
	refused "write error: Invalid argument" bash -c "echo nonsense > $B/ctl"
	[[ $(cat "$B/error") == *"nonsense is not a verb"* ]]
	[[ $(getfattr --only-values -n user.sbx.error "$B/ctl") == *"nonsense is not a verb"* ]]
	refused "Invalid argument" bash -c "printf 'refresh too many\n' > $B/ctl"
	bash -c "printf 'wrong\ndelete\n' > $B/ctl" 2>/dev/null || true
	bash -c "exec 5> $B/ctl; echo wrong >&5; echo delete >&5" 2>/dev/null || true
	refused "Invalid argument" bash -c "echo fork > $B/ctl"
	[[ $(cat "$B/error") == *"fork needs 1 word behind it" ]]
	refused "Invalid argument" bash -c "echo suspend now > $B/ctl"
	[[ $(cat "$B/error") == *"suspend stands alone: "* ]]
	same "$(cat "$B/state")" running
	same "$(tail -n 1 "$B/errors" | jq -r .op)" write
}

@test "a line's end that is written by itself ends it, and is no empty line" {
	for f in labels/piece name idle_timeout; do
		was=$(cat "$B/$f" 2>/dev/null || true)
		bash -c "printf '%s' '${was:-red}' > $B/$f; exec 5> $B/$f; printf '%s' '${was:-red}' >&5; echo >&5"
		same "$(cat "$B/$f")" "${was:-red}"
	done
	echo first >"$B/labels/piece"
	bash -c "exec 5> $B/ctl; printf refresh >&5; echo >&5; echo refresh >&5"
	bash -c "exec 5> $B/run; printf 'echo one' >&5; echo >&5"
	same "$(cat "$B/last/stdout")" one
	n=$(ls "$B/processes" | wc -l)
	bash -c "exec 5> $B/run; printf 'echo two' >&5; echo >&5; printf 'echo three\n' >&5"
	same "$(ls "$B/processes" | wc -l)" $((n + 2))
	rm "$B/labels/piece"
}

@test "doing nothing to control files does nothing and succeeds" {
	: > "$B/ctl"
	touch "$B/ctl" "$M/create"
	truncate -s 0 "$B/name" "$B/ctl"
	same "$(cat "$B/name")" box
	chmod 600 "$B/ctl"
	refused "Operation not permitted" chmod 777 "$B/ctl"
}

@test "names that the server need not hear of are answered without it" {
	before=$(jq .requests "$M/stats")
	for n in .git .envrc .hg Makefile; do [ ! -e "$M/$n" ]; done
	after=$(jq .requests "$M/stats")
	[ $((after - before)) -le 1 ]
}

@test "listing, reading and copying the tree changes nothing" {
	n=$(api GET /sandboxes/box/events | jq '[.events[] | select(.type | startswith("file") | not)] | length')
	cp -r "$B/labels" "$B/network" "$B/processes" "$T/host/"
	find "$B" -path "$B/fs" -prune -o -path "$B/bin" -prune -o -print >/dev/null
	grep -rs --exclude-dir=fs --exclude-dir=bin zzz "$B" || true
	same "$(api GET /sandboxes/box/events | jq '[.events[] | select(.type | startswith("file") | not)] | length')" "$n"
}

@test "entries of the API appear and go" {
	js POST /sandboxes '{"name":"outside"}' >/dev/null
	fs_wait test -d "$M/outside"
	api DELETE /sandboxes/outside >/dev/null
	fs_wait test ! -e "$M/outside"
	[[ $(ls "$M") != *outside* ]]
}

@test "a name that is none makes no sandbox without one, and changes nothing" {
	mkdir "$M/new/odd"
	before=$(api GET /sandboxes | jq '.sandboxes | length')
	for name in $'bad\377' Bad 'a b' templates; do
		refused "" mv -T "$M/new/odd" "$M/$name"
		refused "" mkdir "$M/$name"
	done
	refused "Invalid argument" bash -c "echo \$'\\377' >'$B/name'"
	same "$(cat "$B/name")" box
	same "$(api GET /sandboxes | jq '.sandboxes | length')" "$before"
	rmdir "$M/new/odd"
}
