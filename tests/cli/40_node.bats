#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Network, sleep, snapshots, volumes, images and usage as typed, against a server that answers by a
# script: what is asked of it, what is shown, which exit code.
load helper

setup_file() {
	O=${SBX_BUILD:-$PWD/build}
	T=$(mktemp -d "${TMPDIR:-/tmp}/sbx-cli.XXXXXX")
	export O T SBX_ENDPOINT=unix://$T/sock HOME=$T
	unset SBX_TOKEN SBX_TOKEN_FILE SBX_CA XDG_RUNTIME_DIR
	echo '{}' >"$T/script"
	python3 tests/cli/mock_api.py "$T/sock" "$T/script" "$T/log" 3>&- &
	echo $! >"$T/pid"
	cli_wait test -S "$T/sock"
}
teardown_file() {
	kill "$(cat "$T/pid")" 2>/dev/null
	cli_wait cli_gone || true
	rm -rf "$T"
}
setup() { : >"$T/log"; }

BOX='{"id":"sbx_0123456789abcdef","name":"box","state":"running","image":"base","cpus":1,"memory_mb":1,"disk_mb":1,"created_at":"2026-01-01T00:00:00Z","idle_timeout_secs":9,"network":{"mode":"allowlist","allow":["a.b"],"deny":["c.d"]}}'
SNAP='{"id":"snp_0123456789abcdef","sandbox":"sbx_0123456789abcdef","image":"base","kind":"disk","bytes":5000,"created_at":"2026-01-01T00:00:00Z"}'
SNAP2='{"id":"snp_fedcba9876543210","sandbox":"sbx_ffffffffffffffff","image":"base","kind":"disk","scheduled":true,"bytes":1,"created_at":"2026-01-01T00:00:00Z"}'
# script KEY ANSWERS...: each key with its list of [status, body].
script() {
	local out={} k
	while [ $# -gt 0 ]; do
		out=$(jq -c --arg k "$1" --argjson v "$2" '. + {($k): $v}' <<<"$out")
		shift 2
	done
	echo "$out" >"$T/script"
}
# was LINE...: exactly these requests came, in this order.
was() {
	printf '%s\n' "$@" >"$T/want"
	diff -u "$T/want" "$T/log"
}

@test "new sends volumes, network, sleep, schedule and snapshot" {
	script 'POST /v1/sandboxes' "[[201,$BOX]]"
	run sbx new box --volume data:/data --volume lib:/srv/lib:ro --network allowlist --allow a.b,c.d --allow e.f \
		--deny x.y --idle-action suspend --every 300 --keep 2
	[ "$status" -eq 0 ] && [ "$output" = box ]
	was 'POST /v1/sandboxes {"idle_action":"suspend","snapshot_every_secs":300,"snapshot_keep":2,"volumes":[{"name":"data","path":"/data"},{"name":"lib","path":"/srv/lib","read_only":true}],"network":{"mode":"allowlist","allow":["a.b","c.d","e.f"],"deny":["x.y"]},"name":"box"}'
}

@test "a password comes from a private file or standard input, and is on no command line" {
	script 'POST /v1/sandboxes' "[[201,$BOX]]"
	printf 'pa ss\n' >"$T/pw"
	chmod 600 "$T/pw"
	sbx new --login-registry r:5000 --login-user me --login-password "$T/pw"
	printf 'second' | sbx new --login-registry r --login-user me
	was 'POST /v1/sandboxes {"registry_login":{"registry":"r:5000","username":"me","password":"pa ss"}}' \
		'POST /v1/sandboxes {"registry_login":{"registry":"r","username":"me","password":"second"}}'
	: >"$T/log"
	chmod 644 "$T/pw"
	run sbx new --login-registry r --login-user me --login-password "$T/pw"
	[ "$status" -eq 2 ]
	[[ $output == *"chmod 600"* ]]
	run sbx new --login-user me
	[ "$status" -eq 2 ]
	[ ! -s "$T/log" ]
}

@test "headers of a metrics export come from a file, and a bad line is named without its text" {
	script 'PATCH /v1/sandboxes/box' "[[200,$BOX]]"
	printf 'Authorization: Bearer secret-1\n\nX-Two:  b \r\n' | sbx sandbox set box --metrics-export https://m.example \
		--metrics-every 30 --metrics-headers -
	was 'PATCH /v1/sandboxes/box {"metrics_export":{"endpoint":"https://m.example","interval_secs":30,"headers":{"Authorization":"Bearer secret-1","X-Two":"b"}}}'
	: >"$T/log"
	run sh -c "printf 'A: b\nsecret-2\n' | $O/bin/sbx sandbox set box --metrics-export https://m.example --metrics-headers -"
	[ "$status" -eq 2 ]
	[[ $output == *"line 2"* && $output != *secret-2* ]]
	run sbx sandbox set box --metrics-every 30
	[ "$status" -eq 2 ]
	sbx sandbox set box --metrics-export ''
	was 'PATCH /v1/sandboxes/box {"metrics_export":{"endpoint":""}}'
}

@test "network shows the policy, replaces it, and keeps what is not named" {
	script 'GET /v1/sandboxes/box' "[[200,$BOX]]" 'PATCH /v1/sandboxes/box' "[[200,$BOX]]"
	run sbx network box
	[[ $output == *"mode   allowlist"*"allow  a.b"*"deny   c.d"* ]]
	sbx network box none
	sbx network box allowlist --allow x.y
	sbx network box --allow q.r
	sbx network box --deny ''
	grep PATCH "$T/log" >"$T/patches"
	printf 'PATCH /v1/sandboxes/box {"network":%s}\n' '{"mode":"none"}' '{"mode":"allowlist","allow":["x.y"]}' \
		'{"mode":"allowlist","allow":["q.r"],"deny":["c.d"]}' \
		'{"deny":[],"mode":"allowlist","allow":["a.b"]}' | diff -u - "$T/patches"
}

@test "suspend and resume, several at once, go on behind a refusal" {
	script 'POST /v1/sandboxes/a/suspend' '[[409,{"error":{"code":"conflict","message":"a process runs"}}]]' \
		'POST /v1/sandboxes/b/suspend' "[[200,$BOX]]" 'POST /v1/sandboxes/b/resume' "[[200,$BOX]]"
	run sbx suspend a b
	[ "$status" -eq 1 ]
	[ "$output" = "sbx: a: a process runs" ]
	sbx resume b
	was 'POST /v1/sandboxes/a/suspend' 'POST /v1/sandboxes/b/suspend' 'POST /v1/sandboxes/b/resume'
}

@test "snapshots are taken, listed, told apart by sandbox, deleted" {
	script 'POST /v1/sandboxes/box/snapshots' "[[201,$SNAP]]" 'GET /v1/snapshots' "[[200,{\"snapshots\":[$SNAP,$SNAP2]}]]" \
		'GET /v1/sandboxes/box' "[[200,$BOX]]" 'DELETE /v1/snapshots/snp_1' '[[204,null]]'
	[ "$(sbx snapshot take box)" = snp_0123456789abcdef ]
	run sbx snapshot ls
	[[ ${lines[0]} == "ID "*KIND*SIZE*AGE ]]
	[[ ${lines[1]} == snp_0123456789abcdef*disk*4.9K* ]]
	[ "$(sbx snapshot ls -q | wc -l)" -eq 2 ]
	[ "$(sbx snapshot ls -q box)" = snp_0123456789abcdef ]
	[ "$(sbx snapshot ls -q sbx_ffffffffffffffff)" = snp_fedcba9876543210 ]
	[ "$(sbx --json snapshot ls box | jq -r '.snapshots[].id')" = snp_0123456789abcdef ]
	run sbx snapshot ls gone
	[ "$status" -eq 1 ]
	sbx snapshot rm snp_1
	run sbx snapshot rm snp_2
	[ "$status" -eq 1 ]
}

@test "fork of a snapshot is one create; fork of a sandbox leaves no snapshot behind" {
	script 'POST /v1/sandboxes' "[[201,$BOX]]" 'POST /v1/sandboxes/box/snapshots' "[[201,$SNAP]]" \
		'DELETE /v1/snapshots/snp_0123456789abcdef' '[[204,null]]'
	[ "$(sbx fork snp_0123456789abcdef copy -l a=b)" = box ]
	was 'POST /v1/sandboxes {"labels":{"a":"b"},"name":"copy","snapshot_id":"snp_0123456789abcdef"}'
	: >"$T/log"
	sbx fork box
	was 'POST /v1/sandboxes/box/snapshots' 'POST /v1/sandboxes {"snapshot_id":"snp_0123456789abcdef"}' \
		'DELETE /v1/snapshots/snp_0123456789abcdef'
}

@test "a fork that is refused still takes its snapshot away" {
	script 'POST /v1/sandboxes' '[[409,{"error":{"code":"conflict","message":"name taken"}}]]' \
		'POST /v1/sandboxes/box/snapshots' "[[201,$SNAP]]" \
		'DELETE /v1/snapshots/snp_0123456789abcdef' '[[204,null]]'
	run sbx fork box taken
	[ "$status" -eq 1 ]
	[ "$(tail -n 1 "$T/log")" = 'DELETE /v1/snapshots/snp_0123456789abcdef' ]
}

@test "an interrupted fork of a sandbox takes its snapshot away before it ends" {
	script 'POST /v1/sandboxes' '[[0,null]]' 'POST /v1/sandboxes/box/snapshots' "[[201,$SNAP]]" \
		'DELETE /v1/snapshots/snp_0123456789abcdef' '[[204,null]]'
	"$O/bin/sbx" fork box 2>/dev/null 3>&- &
	pid=$!
	cli_wait grep -q '^POST /v1/sandboxes {' "$T/log"
	kill -TERM $pid
	run wait $pid
	cli_wait grep -q '^DELETE' "$T/log"
	[ "$(tail -n 1 "$T/log")" = 'DELETE /v1/snapshots/snp_0123456789abcdef' ]
}

@test "a schedule is shown, set and stopped" {
	script 'GET /v1/sandboxes/box' "[[200,$BOX]]" 'PUT /v1/sandboxes/box/snapshot-schedule' \
		"[[200,$(jq -c '. + {snapshot_every_secs:300,snapshot_keep:2}' <<<"$BOX")],[200,$BOX]]"
	[ "$(sbx schedule box)" = "no schedule" ]
	[ "$(sbx schedule box --every 300 --keep 2)" = "every 300 seconds, the newest 2 stay" ]
	[ "$(sbx schedule box --every 0)" = "no schedule" ]
	run sbx schedule box --keep 3
	[ "$status" -eq 2 ]
	was 'GET /v1/sandboxes/box' 'PUT /v1/sandboxes/box/snapshot-schedule {"every_secs":300,"keep":2}' \
		'PUT /v1/sandboxes/box/snapshot-schedule {"every_secs":0,"keep":0}'
}

@test "volumes are made, listed and removed" {
	V='{"name":"data","size_mb":64,"created_at":"2026-01-01T00:00:00Z"}'
	script 'POST /v1/volumes' "[[201,$V]]" 'GET /v1/volumes' "[[200,{\"volumes\":[$V]}]]" \
		'DELETE /v1/volumes/data' '[[204,null]]'
	[ "$(sbx volume create data --size 64)" = data ]
	[ "$(sbx volume ls -q)" = data ]
	run sbx volume ls
	[[ ${lines[0]} == NAME*MIB*ATTACHED* && ${lines[1]} == data*64* ]]
	sbx volume rm data
	was 'POST /v1/volumes {"name":"data","size_mb":64}' 'GET /v1/volumes' 'GET /v1/volumes' 'DELETE /v1/volumes/data'
}

I='{"image":"a/b:3","state":"installing","in_use":0,"progress":{"phase":"pulling","done":1,"total":9}}'
DONE='{"image":"a/b:3","state":"installed","in_use":0,"bytes":2048,"digest":"sha256:00112233445566778899"}'
FAILED='{"image":"a/b:3","state":"failed","in_use":0,"error":"no \u001b[31mroute"}'

@test "pull waits for the end, -d does not" {
	script 'POST /v1/images' "[[202,$I]]" 'GET /v1/images' "[[200,{\"images\":[$I]}],[200,{\"images\":[$I]}],[200,{\"images\":[$DONE]}]]"
	[ "$(sbx image pull a/b:3)" = a/b:3 ]
	[ "$(grep -c 'GET /v1/images' "$T/log")" -eq 3 ]
	: >"$T/log"
	sbx image pull -d a/b:3
	was 'POST /v1/images {"image":"a/b:3"}'
}

@test "a pull that failed says why, without the control bytes, and ends with 1" {
	script 'POST /v1/images' "[[202,$I]]" 'GET /v1/images' "[[200,{\"images\":[$FAILED]}]]"
	run sbx image pull a/b:3
	[ "$status" -eq 1 ]
	[[ $output == *'no \x1b[31mroute'* && $output != *$'\033'* ]]
	script 'POST /v1/images' "[[202,$I]]" 'GET /v1/images' '[[200,{"images":[]}]]'
	run sbx image pull a/b:3
	[ "$status" -eq 1 ]
	[[ $output == *removed* ]]
}

@test "progress of a pull is for terminals only" {
	script 'POST /v1/images' "[[202,$I]]" 'GET /v1/images' "[[200,{\"images\":[$DONE]}]]"
	run sbx image pull a/b:3
	[[ $output != *pulling* ]]
	command -v script >/dev/null || skip "script is not installed"
	run command script -qec "$O/bin/sbx image pull a/b:3" /dev/null
	[[ $output == *"a/b:3: pulling 1B of 9B"* ]]
}

@test "images are listed and removed" {
	script 'GET /v1/images' "[[200,{\"images\":[$DONE]}]]" 'GET /v1/capabilities' '[[200,{"capabilities":{"images":true}}]]' \
		'DELETE /v1/images?image=a%2Fb%3A3' '[[200,{"image":"a/b:3","freed_bytes":2048}]]'
	run sbx image ls
	[[ ${lines[0]} == IMAGE*STATE*SIZE* && ${lines[1]} == a/b:3*installed*2.0K*sha256:001122334455* ]]
	[ "$(sbx image ls -q)" = a/b:3 ]
	[ "$(sbx image rm a/b:3)" = "freed 2.0K" ]
}

@test "import puts an archive into the image folder, whole or not at all" {
	mkdir -p "$T/images"
	echo content >"$T/root.tar"
	[ "$(sbx image import "$T/root.tar" mine --image-dir "$T/images")" = "$T/images/mine.tar" ]
	cmp "$T/root.tar" "$T/images/mine.tar"
	run sbx image import "$T/absent" other --image-dir "$T/images"
	[ "$status" -eq 1 ]
	run sbx image import "$T/root.tar" ../evil --image-dir "$T/images"
	[ "$status" -eq 2 ]
	[ "$(ls "$T/images")" = mine.tar ]
	# The kind is told by what is inside; another form of the same name goes.
	mkdir -p "$T/oci/blobs" "$T/docker" "$T/root/etc"
	touch "$T/oci/oci-layout" "$T/oci/manifest.json" "$T/docker/manifest.json" "$T/docker/layer.tar"
	head -c 5000 /dev/urandom >"$T/docker/layer.tar"
	for kind in oci:.oci.tar docker:.docker.tar root:.tar; do
		tar -C "$T/${kind%%:*}" -cf "$T/a.tar" .
		[ "$(sbx image import "$T/a.tar" mine --image-dir "$T/images")" = "$T/images/mine${kind#*:}" ]
		cmp "$T/a.tar" "$T/images/mine${kind#*:}"
		[ "$(ls "$T/images" | wc -l)" -eq 1 ]
	done
	run sbx image import "$T/oci" mine --image-dir "$T/images"
	[ "$status" -eq 1 ]
}

S1='{"time":"2026-01-01T00:00:05Z","cpu_percent":12.5,"memory_bytes":1048576,"memory_limit_bytes":2097152,"net_rx_bytes":0,"net_tx_bytes":1,"disk_read_bytes":2,"disk_write_bytes":3,"processes":4}'
S2=${S1/00:05Z/00:10Z}

@test "metrics show the newest sample; -f each new one until the sandbox ends" {
	GONE=${BOX/running/terminated}
	script 'GET /v1/sandboxes/box/metrics' "[[200,{\"interval_secs\":5,\"samples\":[$S1,$S2]}]]" \
		'GET /v1/sandboxes/box' "[[200,$BOX],[200,$GONE]]" \
		'GET /v1/sandboxes/sbx_0123456789abcdef/metrics' "[[200,{\"interval_secs\":5,\"samples\":[$S1]}],[200,{\"interval_secs\":5,\"samples\":[$S1,$S2]}]]"
	run sbx metrics box
	[[ ${lines[0]} == TIME*CPU%*MEMORY* ]]
	[[ ${lines[1]} == 2026-01-01T00:00:10Z*12.5*1.0M*2.0M* ]]
	[ "${#lines[@]}" -eq 2 ]
	run sbx --json metrics -f box
	[ "$status" -eq 0 ]
	[ "$(jq -r .time <<<"$output" | tr '\n' ' ')" = "2026-01-01T00:00:05Z 2026-01-01T00:00:10Z " ]
}

@test "a tunnel's local port is behind the colon" {
	for words in "box 0" "box 8080:" "box 8080:x" "box 70000" "box 80 81"; do
		run sbx tunnel $words
		[ "$status" -eq 2 ] || { echo "$words: $status"; false; }
	done
}

@test "a wrong volume or network word costs no request" {
	for words in "new --volume a" "new --volume a:b" "new --volume :/a" "new --volume a:/b:rx" "new --idle x" "volume create a --size x"; do
		run sbx $words
		[ "$status" -eq 2 ] || { echo "$words: $status"; false; }
	done
	[ ! -s "$T/log" ]
}

@test "what the server lacks is said with what to do, exit code 1" {
	U='[[501,{"error":{"code":"unsupported","message":"this server has no volumes"}}]]'
	script 'GET /v1/volumes' "$U" 'POST /v1/volumes' "$U"
	for words in "volume ls" "volume create a"; do
		run sbx $words
		[ "$status" -eq 1 ]
		[[ $output == "sbx: this server has no volumes; "*capability* ]]
	done
}

@test "doctor names each capability with what is missing for it" {
	NODE='{"node":"","version":"1","running":0,"capabilities":{"backend":"linux","capabilities":{"suspend":true}}}'
	script 'GET /v1/node' "[[200,$NODE]]"
	run sbx --json doctor
	[ "$(jq -r '.checks[] | select(.check == "suspend") | .result' <<<"$output")" = ok ]
	[ "$(jq -r '.checks[] | select(.check == "images") | .result' <<<"$output")" = limited ]
	[[ $(jq -r '.checks[] | select(.check == "images") | .mend' <<<"$output") == *skopeo* ]]
}

@test "what a server calls its volumes is a word for the completion, never a command" {
	script 'GET /v1/volumes' '[[200,{"volumes":[{"name":"$(touch${IFS}pwned)"},{"name":"`touch${IFS}pwned`"},{"name":"fine"}]}]]'
	sbx completion bash >"$T/completion"
	PATH=$O/bin:$PATH
	cd "$T"
	out=$(bash -c '. ./completion; COMP_WORDS=(sbx volume rm ""); COMP_CWORD=3; _sbx; echo "${COMPREPLY[@]}"')
	[[ $out == *"\$(touch"*fine ]]
	[ ! -e "$T/pwned" ]
}

@test "completion knows snapshots, volumes and images" {
	script 'GET /v1/snapshots' "[[200,{\"snapshots\":[$SNAP]}]]" 'GET /v1/volumes' '[[200,{"volumes":[{"name":"data"}]}]]' \
		'GET /v1/capabilities' '[[200,{"capabilities":{"images":true}}]]' \
		'GET /v1/images' "[[200,{\"images\":[$DONE]}]]" 'GET /v1/sandboxes' "[[200,{\"sandboxes\":[$BOX]}]]"
	sbx completion bash >"$T/completion"
	words() { bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sbx; echo "${COMPREPLY[@]}"' _ "$T/completion" "$@"; }
	PATH=$O/bin:$PATH
	[ "$(words sbx volume rm '')" = data ]
	[ "$(words sbx image rm '')" = a/b:3 ]
	[ "$(words sbx snapshot rm '')" = snp_0123456789abcdef ]
	[ "$(words sbx fork '')" = "box snp_0123456789abcdef" ]
	[ "$(words sbx suspend '')" = box ]
}

@test "a folder within itself, without an end, is not removed for ever" {
	script 'DELETE *' '[[409,{"error":{"code":"conflict","message":"not empty","errno":"ENOTEMPTY"}}]]' \
		'GET *' '[[200,"{\"name\":\"ddddddddddddddddddddddddddddddd\",\"type\":\"dir\"}\n{\"end\":true}\n"]]'
	run timeout 60 "$O/bin/sbx" file rm -r box /d
	[ "$status" -eq 1 ]
	[[ $output == *"too long a path" ]]
}

@test "a server that gives the whole for a part is not asked for ever" {
	python3 -c 'import json, sys
json.dump({"GET /v1/sandboxes/box/files?path=/big": [[413, {"error": {"code": "too_large", "message": "large"}}], [200, "x" * 4300000]],
"GET /v1/capabilities": [[200, {"capabilities": {"fs_range": True}}]]}, open(sys.argv[1], "w"))' "$T/script"
	run timeout 60 "$O/bin/sbx" file get box /big "$T/big"
	[ "$status" -eq 1 ]
	[ "$output" = "sbx: the server sent more than was asked for: Protocol error" ]
	[ ! -e "$T/big" ]
}

@test "an output that does not wait gets all of it, an input that has nothing yet is waited for" {
	python3 -c 'import json, sys
json.dump({"GET /v1/sandboxes/box/files?path=/f": [[200, "x" * 300000]], "PUT /v1/sandboxes/box/files?path=/f": [[204, ""]],
"GET /v1/capabilities": [[200, {"capabilities": {}}]]}, open(sys.argv[1], "w"))' "$T/script"
	run timeout 60 python3 - "$O/bin/sbx" <<-'PY'
		import os, subprocess, sys, time
		r, w = os.pipe()
		os.set_blocking(w, False)
		p = subprocess.Popen([sys.argv[1], "cat", "box", "/f"], stdout=w)
		os.close(w)
		n = 0
		while data := os.read(r, 4096): n += len(data)
		print(p.wait(), n)
		r, w = os.pipe()
		os.set_blocking(r, False)
		p = subprocess.Popen([sys.argv[1], "cp", "-", "box:/f"], stdin=r)
		time.sleep(0.2)
		os.write(w, b"late")
		os.close(w)
		print(p.wait())
	PY
	[ "$output" = $'0 300000\n0' ]
}

@test "a listing that has no end is none" {
	script 'GET *' '[[200,"{\"name\":\"a\"}\n{\"end\":true,\"next\":\"YQ\"}\n"]]'
	for cmd in "file ls box /d" "cp -r box:/d $T/d"; do # the same page again and again
		run timeout 60 "$O/bin/sbx" $cmd
		[ "$status" -eq 1 ] || { echo "$cmd: $status"; false; }
		[ "$(grep -c "after=YQ" "$T/log")" -eq 1 ]
		: >"$T/log"
	done
	python3 - "$T/script" <<-'EOF' # always another one
		import json, sys
		page, path = '{"name":"a"}\n' * 400000, "GET /v1/sandboxes/box/fs/list?path=/d"
		out = {}
		for n in range(4):
		    out[path + ("&after=%d" % n if n else "")] = [[200, page + '{"end":true,"next":"%d"}\n' % (n + 1)]]
		json.dump(out, open(sys.argv[1], "w"))
	EOF
	run timeout 120 "$O/bin/sbx" file ls box /d
	[ "$status" -eq 1 ] || { echo "$status: ${output:0:300}"; false; }
	[[ $output == *"more than 1,000,000 entries"* ]]
	[ "$(grep -c . "$T/log")" -eq 3 ]
}
