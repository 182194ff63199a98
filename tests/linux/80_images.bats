#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Images as users meet them: files of the image folder, registries that are honest and that are not, what a
# sandbox made of them sees, and what is left after every way of going wrong. No row needs the internet.
bats_require_minimum_version 1.5.0

setup_file() {
	[ "$(id -u)" = 0 ] || return 0
	export O=${SBX_BUILD:-$PWD/build}
	export D=$(mktemp -d /var/tmp/sbx-images.XXXXXX)
	mkdir -p "$D/images" "$D/reg"
	cp "$O/images/base.tar" "$D/images/base.tar" # the build may lie where the server has no way to
	for k in good many plain foreign; do python3 tests/linux/oci.py "$D/reg/$k" $k; done
	registry "$D/reg"
	server_start --registry-allow-private --pull-stall-secs 3
}
teardown_file() {
	[ -n "${D:-}" ] || return 0
	end_sandboxes
	server_stop
	for p in "$D"/*.pid; do [ -e "$p" ] && kill "$(cat "$p")" 2>/dev/null; done
	rm -rf --one-file-system "$D"
}
setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	[ -x /usr/bin/skopeo ] || skip "skopeo is not installed"
	PORT=$(cat "$D/reg.port")
	R=localhost:$PORT
	rm -f "$D/reg/mode" "$D/reg/requests"
	up || server_start --registry-allow-private --pull-stall-secs 3
}
teardown() {
	[ -n "${D:-}" ] && end_sandboxes
	true
}

registry() { # ROOT [MODE]
	python3 tests/linux/registry.py "$1" "$1.port" "${2:-plain}" >"$1.log" 2>&1 3>&- &
	echo $! >"$1.pid"
	wait_for test -s "$1.port"
}
server_start() {
	mkdir -p -m 700 "$D/state"
	SBX_FAULT=${FAULT:-} "$O/bin/sandboxd" --listen "unix://$D/sock" --state-dir "$D/state" \
		--image-dir "$D/images" "$@" >>"$D/log" 2>&1 3>&- &
	echo $! >"$D/server"
	wait_for up || { tail -n 20 "$D/log" >&2; return 1; }
}
server_stop() {
	[ -s "$D/server" ] || return 0
	kill "$(cat "$D/server")" 2>/dev/null || true
	wait_for gone "$(cat "$D/server")" || kill -9 "$(cat "$D/server")"
	rm -f "$D/server"
}
up() { [ "$(curl -sS --max-time $((5 * ${SLOW:-1})) --unix-socket "$D/sock" -o /dev/null -w '%{http_code}' http://localhost/v1/health 2>/dev/null)" = 200 ]; }
gone() { ! kill -0 "$1" 2>/dev/null; }
wait_for() { # command..., at most 20 s
	local n=400
	until "$@" >/dev/null 2>&1; do
		n=$((n - 1))
		[ $n -gt 0 ] || return 1
		sleep 0.05
	done
}
api() {
	local m=$1 p=$2
	shift 2
	curl -sS --max-time $((60 * ${SLOW:-1})) --unix-socket "$D/sock" -X "$m" "$@" "http://localhost/v1$p"
}
js() { # METHOD PATH BODY [curl options]
	local m=$1 p=$2 b=$3
	shift 3
	api "$m" "$p" -H 'Content-Type: application/json' --data-binary "$b" "$@"
}
code() { js "$1" "$2" "${3:-}" -o /dev/null -w '%{http_code}'; }
end_sandboxes() {
	for id in $(api GET /sandboxes 2>/dev/null | jq -r '.sandboxes[]|select(.state!="terminated").id' 2>/dev/null); do
		api DELETE "/sandboxes/$id" >/dev/null
	done
}
image() { api GET /images | jq -c --arg i "$1" '.images[]|select(.image==$i)'; }
state_is() { [ "$(image "$1" | jq -r .state)" = "$2" ]; }
install() { # IMAGE: and waits for the end of it
	[ "$(code POST /images "{\"image\":\"$1\"}")" = 202 ]
	wait_for eval '! state_is '"$1"' installing'
	state_is "$1" "${2:-installed}" || { image "$1"; return 1; }
}
box() { js POST /sandboxes "{\"image\":\"$1\"}" | jq -r .id; }
in_box() { # ID script
	js POST "/sandboxes/$1/run" "$(jq -cn --arg c "$2" '{argv:["/bin/sh","-c",$c]}')" | jq -r '.stdout|@base64d'
}
fetched() { find "$D/state/pull" -mindepth 1 ! -name '.cell-[0-3]'; } # that is still there: what runs are lent, too
layers() { ls "$D/state/priv/layers"; }
USERS=1878982651,1878982652,1878982653,1878982654 # of the cells (sandboxd/drop.h)
tool() { # WORD: the process of the run that has this in its command
	local p
	p=$(pgrep -u $USERS -f "^[^ ]*skopeo .*$1" | head -n1)
	[ -n "$p" ] && echo "$p"
}
in_run() { # PID COMMAND...: what somebody does who has taken this run of the tool over
	local p=$1 u g
	shift
	u=$(awk '/^Uid:/{print $2}' "/proc/$p/status") g=$(awk '/^Gid:/{print $2}' "/proc/$p/status")
	nsenter -t "$p" -m -p -n -i -S "$u" -G "$g" -- setpriv --no-new-privs "$@"
}
remove() { api DELETE "/images?image=$1"; }
is() { [ "$1" = "$2" ] || { echo "is \"$1\", not \"$2\"" >&2; return 1; }; }

@test "a pulled image is what its layers say, with the sandbox's user and without its settings" {
	install "$R/good:1"
	id=$(box "$R/good:1")
	is "$(in_box "$id" 'id; pwd; echo $HOME $USER $COLOUR; cat /etc/keep /etc/change')" "uid=1001(sandbox) gid=1001(sandbox)
/sandbox/home
/sandbox/home sandbox blue
lowestupper"
	# deleted, hidden, replaced
	is "$(in_box "$id" 'ls /var /var/hidden /opt/is-a-file; test -e /etc/delete || echo none')" "/opt/is-a-file:
inside

/var:
hidden

/var/hidden:
new
none"
	is "$(in_box "$id" 'cat /etc/passwd; echo x >/sandbox/home/f && cat /sandbox/home/f; stat -c %a /tmp /etc')" "root:x:0:0:root:/root:/bin/sh
sandbox:x:1001:1001:sandbox:/sandbox/home:/bin/sh
x
1777
755"
	is "$(in_box "$id" 'env' | grep -c 'LD_PRELOAD\|BAD\|nothing')" 0
	is "$(api GET "/sandboxes/$id" | jq -r .image)" "$R/good:1"
	is "$(image "$R/good:1" | jq -c '[.state,.in_use,(.digest|startswith("sha256:")),(.bytes>1000000),has("installed_at")]')" '["installed",1,true,true,true]'
	is "$(api GET /node | jq -c --arg i "$R/good:1" '.images|index($i)!=null')" true
}

@test "a pull shows its phase, outlives its request and is one however often it is asked for" {
	remove "$R/many:1" >/dev/null
	for _ in $(seq 10); do code POST /images "{\"image\":\"$R/many:1\"}" & done >"$D/codes"
	for _ in $(seq 5); do code POST /sandboxes "{\"image\":\"$R/many:1\"}" & done >"$D/creates"
	is "$(image "$R/many:1" | jq -r '.progress.phase' | grep -c 'pulling\|building\|null')" 1
	wait_for state_is "$R/many:1" installed
	wait_for eval '[ $(wc -c <"$D/creates") = 15 ]'
	is "$(cat "$D/codes")" "$(printf '202%.0s' $(seq 10))"
	is "$(cat "$D/creates")" "$(printf '201%.0s' $(seq 5))"
	is "$(image "$R/many:1" | jq .in_use)" 5
	# each blob came once
	is "$(grep 'GET.*/blobs/' "$D/reg/requests" | sort | uniq -d)" ""
}

@test "installing again looks at the tag and fetches nothing that has not changed" {
	install "$R/good:1"
	rm -f "$D/reg/requests"
	install "$R/good:1"
	is "$(grep -c /blobs/ "$D/reg/requests")" 0
	before=$(image "$R/good:1" | jq -r .digest)
	python3 tests/linux/oci.py "$D/reg/good" plain
	install "$R/good:1"
	[ "$(image "$R/good:1" | jq -r .digest)" != "$before" ]
	python3 tests/linux/oci.py "$D/reg/good" good
}

@test "an image that cannot be checked again stays installed" {
	install "$R/good:1"
	digest=$(image "$R/good:1" | jq -r .digest)
	mv "$D/reg/good" "$D/reg/away"
	install "$R/good:1"
	mv "$D/reg/away" "$D/reg/good"
	is "$(image "$R/good:1" | jq -c '[.digest,.error]')" "[\"$digest\",null]"
}

@test "what was asked for by digest is that, and nothing else" {
	digest=$(jq -r '.manifests[0].digest' "$D/reg/good/index.json")
	install "$R/good@$digest"
	is "$(image "$R/good@$digest" | jq -r .digest)" "$digest"
	echo lie_manifest >"$D/reg/mode"
	install "$R/plain@$(jq -r '.manifests[0].digest' "$D/reg/plain/index.json")" failed
}

@test "removal: in use, the default, installing, unknown, then gone with its bytes" {
	install "$R/plain:1"
	id=$(box "$R/plain:1")
	is "$(code DELETE "/images?image=$R/plain:1")" 409
	is "$(code DELETE "/images?image=base")" 409
	is "$(code DELETE "/images?image=$R/none:1")" 404
	is "$(code DELETE "/images?image=Not%20An%20Image")" 400
	is "$(code DELETE "/images")" 400
	echo stall >"$D/reg/mode"
	is "$(code POST /images "{\"image\":\"$R/many:stalls\"}")" 202
	is "$(code DELETE "/images?image=$R/many:stalls")" 409
	wait_for state_is "$R/many:stalls" failed
	is "$(remove "$R/many:stalls" | jq -c .freed_bytes)" 0
	rm "$D/reg/mode"
	api DELETE "/sandboxes/$id" >/dev/null
	before=$(layers | wc -l)
	[ "$(remove "$R/plain:1" | jq .freed_bytes)" -gt 1000000 ]
	wait_for eval '[ $(layers | wc -l) -lt '"$before"' ]'
	is "$(image "$R/plain:1")" ""
}

@test "a running sandbox keeps its layers when its image is replaced" {
	mkdir -p "$D/extra"
	echo 1 >"$D/extra/first"
	echo 2 >"$D/extra/second"
	cp "$O/images/base.tar" "$D/next.tar"
	tar -rf "$D/next.tar" -C "$D/extra" first
	cp "$D/next.tar" "$D/images/swap.tar"
	id=$(box swap)
	tar -rf "$D/next.tar" -C "$D/extra" second
	mv "$D/next.tar" "$D/images/swap.tar"
	two=$(box swap)
	is "$(in_box "$id" 'cat /second 2>/dev/null; echo end')" end
	is "$(in_box "$two" 'cat /second')" 2
	before=$(layers | wc -l)
	api DELETE "/sandboxes/$id" >/dev/null
	api DELETE "/sandboxes/$two" >/dev/null
	wait_for eval '[ $(layers | wc -l) -lt '"$before"' ]' # the old one; the new stays
	is "$(image swap | jq -c '[.state,.in_use]')" '["installed",0]'
}

@test "a login opens its registry for one create and is found nowhere" {
	mkdir -p "$D/priv"
	cp -r "$D/reg/good" "$D/priv/good"
	registry "$D/priv" login
	P=localhost:$(cat "$D/priv.port")
	is "$(code POST /sandboxes "{\"image\":\"$P/good:1\"}")" 404
	LOGIN="\"registry_login\":{\"registry\":\"$P\",\"username\":\"alice\",\"password\":"
	is "$(code POST /sandboxes "{\"image\":\"$P/good:1\",$LOGIN\"wrong\"}}")" 403
	id=$(js POST /sandboxes "{\"image\":\"$P/good:1\",$LOGIN\"secret 1\"}}" | jq -r .id)
	is "$(in_box "$id" 'cat /etc/change')" upper
	# listed while it is used, and not served to others
	is "$(image "$P/good:1" | jq -c '[.state,.in_use]')" '["installed",1]'
	is "$(code POST /sandboxes "{\"image\":\"$P/good:1\"}")" 404
	is "$(api GET /node | jq -c --arg i "$P/good:1" '.images|index($i)')" null
	# another registry's login is not sent to this one
	is "$(code POST /sandboxes "{\"image\":\"$P/good:1\",\"registry_login\":{\"registry\":\"example.com\",\"username\":\"alice\",\"password\":\"secret 1\"}}")" 404
	b64=$(printf 'alice:secret 1' | base64)
	run ! grep -rqa --exclude='pool.*' -e 'secret 1' -e "$b64" "$D/state" "$D/log"
	api DELETE "/sandboxes/$id" >/dev/null
	is "$(image "$P/good:1")" ""
}

@test "the login's form is checked" {
	for bad in '{"registry":"","username":"a","password":"b"}' '{"registry":"a b","username":"a","password":"b"}' \
		'{"registry":"x:1","username":"","password":"b"}' '{"registry":"x:1","username":"a:b","password":"b"}' \
		'{"registry":"x:1","username":"a","password":"b\nc"}' '{"registry":"x/y","username":"a","password":"b"}'; do
		is "$(code POST /sandboxes "{\"image\":\"$R/good:1\",\"registry_login\":$bad}")" 400
	done
}

@test "Debian's registry, with a tag and a digest" {
	command -v docker-registry >/dev/null || skip "docker-registry is not installed"
	port=$(python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])')
	cat >"$D/dist.yml" <<-END
	version: 0.1
	storage: {filesystem: {rootdirectory: $D/dist}}
	http: {addr: "127.0.0.1:$port"}
	END
	docker-registry serve "$D/dist.yml" >"$D/dist.log" 2>&1 3>&- &
	echo $! >"$D/dist.pid"
	wait_for curl -fsS "http://127.0.0.1:$port/v2/"
	skopeo --insecure-policy copy -q --dest-tls-verify=false "oci:$D/reg/good" "docker://127.0.0.1:$port/team/app:v1"
	install "127.0.0.1:$port/team/app:v1"
	id=$(box "127.0.0.1:$port/team/app:v1")
	is "$(in_box "$id" 'cat /etc/change')" upper
	install "127.0.0.1:$port/team/app@$(image "127.0.0.1:$port/team/app:v1" | jq -r .digest)"
	install "127.0.0.1:$port/team/app:v2" failed
}

@test "archives and layouts in the image folder" {
	cp -r "$D/reg/good" "$D/images/lay.oci"
	tar -C "$D/reg/good" -cf "$D/images/arch.oci.tar" .
	skopeo --insecure-policy copy -q "oci:$D/reg/good" "docker-archive:$D/images/dock.docker.tar:x/y:1"
	for i in lay arch dock; do
		install $i
		id=$(box $i)
		is "$(in_box "$id" 'cat /etc/change; ls /var; id -u')" "upperhidden
1001"
		api DELETE "/sandboxes/$id" >/dev/null
	done
	is "$(fetched)" ""
}

@test "registries that lie, stall or never end: a reason, and nothing is left" {
	before=$(layers)
	for m in lie:digest lie_manifest:lies stall:stopped endless:more gone:; do
		echo "${m%%:*}" >"$D/reg/mode"
		install "$R/many:${m%%:*}" failed
		image "$R/many:${m%%:*}" | jq -r .error | grep -qi "${m#*:}" || { image "$R/many:${m%%:*}"; return 1; }
	done
	echo "redirect http://10.1.2.3/x" >"$D/reg/mode"
	install "$R/many:redirect" failed
	rm "$D/reg/mode"
	install "$R/foreign:1" failed
	image "$R/foreign:1" | jq -r .error | grep -q s390x
	install "no.such.host.invalid/x:1" failed
	is "$(layers)" "$before"
	is "$(fetched)" ""
	# tried again, the same name works
	install "$R/many:lie"
	state_is base installed || { image base; return 1; }
}

@test "without the operator's word no private or loopback address is reached" {
	server_stop
	server_start
	rm -f "$D/reg/requests"
	for i in "$R/good:1" "127.0.0.1:$PORT/good:1" "127.8.9.1:$PORT/good:1" "x.localhost:$PORT/good:1"; do
		remove "$i" >/dev/null
		is "$(code POST /sandboxes "{\"image\":\"$i\"}")" 403
	done
	[ ! -e "$D/reg/requests" ]
	own=$(hostname -I | cut -d' ' -f1)
	[ -z "$own" ] || is "$(code POST /sandboxes "{\"image\":\"$own:$PORT/good:1\"}")" 403
	server_stop
}

@test "the policy's list of images is exact" {
	server_stop
	echo '{"images":["base","'"$R"'/good:1"]}' >"$D/policy"
	server_start --registry-allow-private --policy "$D/policy"
	is "$(code POST /images "{\"image\":\"$R/good:1\"}")" 202
	wait_for state_is "$R/good:1" installed
	for i in "$R/good:2" "$R/good" docker.io/library/base base:latest; do
		is "$(code POST /images "{\"image\":\"$i\"}")" 403
		is "$(code POST /sandboxes "{\"image\":\"$i\"}")" 403
	done
	server_stop
}

@test "what a name means is fixed, and errors say where was looked" {
	js POST /sandboxes '{"image":"no-such-word"}' >"$D/answer"
	jq -r .error.message "$D/answer" | grep -q "$D/images.*docker.io"
	for i in 'a/b@sha256:12' 'localhost:1/A/b' 'x.y/z:.t' 'x.y/z//w'; do
		is "$(code POST /sandboxes "{\"image\":\"$i\"}")" 400
	done
}

@test "the tool sees nothing of the host and knows no secret" {
	server_stop
	server_start --registry-allow-private --pull-stall-secs 60
	mkdir -p "$D/priv"
	[ -s "$D/priv.port" ] || { cp -r "$D/reg/good" "$D/priv/good"; registry "$D/priv" login; }
	rm -f "$D/priv/stalled"
	echo stall >"$D/priv/mode"
	P=localhost:$(cat "$D/priv.port")
	js POST /sandboxes "{\"image\":\"$P/good:2\",\"registry_login\":{\"registry\":\"$P\",\"username\":\"alice\",\"password\":\"secret 1\"}}" >"$D/answer" &
	asker=$!
	wait_for test -e "$D/priv/stalled" # the one that waits now for the rest of a blob, not one that only asks
	skopeo=$(tool good)
	for set in CapPrm CapEff CapBnd; do is "$(awk -v k=$set: '$1==k{print $2}' /proc/$skopeo/status)" 0000000000000000; done
	is "$(awk '$1=="NoNewPrivs:"{print $2}' /proc/$skopeo/status)" 1
	run ! grep -qa 'secret\|YWxpY2U6' /proc/$skopeo/cmdline /proc/$skopeo/environ
	for ns in net mnt pid ipc; do [ "$(readlink /proc/$skopeo/ns/$ns)" != "$(readlink /proc/self/ns/$ns)" ]; done
	is "$(in_run "$skopeo" cat /proc/net/dev | grep -c :)" 1
	# of the root only programs, certificates and what is its own; nothing can be changed but the work
	is "$(in_run "$skopeo" ls -A / | grep -v '^\(lib.*\|gnu\|nix\)$' | tr '\n' ' ')" 'bin dev etc proc sbin tmp usr '
	is "$(in_run "$skopeo" ls -A /dev | tr '\n' ' ')" 'full null random urandom zero '
	run ! in_run "$skopeo" ls -A "$D"
	for d in / /usr /usr/bin /etc /etc/ssl /dev /tmp /tmp/conf; do
		run in_run "$skopeo" touch "$d/mine"
		[[ $status != 0 && $output == *'Read-only file system'* ]] || { echo "$d: $output"; false; }
	done
	rm -f "$D/priv/mode"
	kill "$skopeo"
	wait "$asker" || true
	grep -q '"error"' "$D/answer"
	is "$(fetched)" ""
	server_stop
	server_start --registry-allow-private --pull-stall-secs 3
}

# Two runs that wait for the rest of a blob, and somebody who has taken one of them over.
@test "a run reaches no other run, and what it leaves behind goes with it" {
	server_stop
	server_start --registry-allow-private --pull-stall-secs 60
	[ -s "$D/priv.port" ] || { mkdir -p "$D/priv"; cp -r "$D/reg/good" "$D/priv/good"; registry "$D/priv" login; }
	rm -f "$D/priv/stalled" "$D/reg/stalled"
	echo stall | tee "$D/priv/mode" >"$D/reg/mode"
	P=localhost:$(cat "$D/priv.port")
	js POST /sandboxes "{\"image\":\"$P/good:3\",\"registry_login\":{\"registry\":\"$P\",\"username\":\"alice\",\"password\":\"secret 1\"}}" >"$D/answer" &
	asker=$!
	is "$(code POST /images "{\"image\":\"$R/many:apart\"}")" 202
	wait_for test -e "$D/priv/stalled"
	wait_for test -e "$D/reg/stalled"
	good=$(tool good) many=$(tool many)
	for ns in net mnt pid ipc; do [ "$(readlink /proc/$good/ns/$ns)" != "$(readlink /proc/$many/ns/$ns)" ]; done
	in_run "$good" sh -c 'grep -q YWxpY2U6 /tmp/pull/*/auth.json'
	is "$(in_run "$many" sh -c 'cat /tmp/pull/*/auth.json')" '{"auths":{}}'
	is "$(in_run "$many" find /tmp /proc/[0-9]*/root/tmp -name auth.json 2>/dev/null | grep -c '^/tmp')" 1
	is "$(in_run "$many" sh -c 'cat /proc/[0-9]*/cmdline' | tr '\0' '\n' | grep -c good)" 0
	# its cell's own process and the folder that the work lies in are out of its reach; a program is left
	run ! in_run "$many" sh -c 'cat /proc/1/environ || ls /proc/1/fd/'
	run ! in_run "$many" sh -c 'cd /tmp/pull && { mv [0-9]* mine || ln -s /etc other || mkdir a || touch c || chmod 700 .; }'
	in_run "$many" sh -c 'kill -9 1; kill -STOP 1; cd /tmp/pull/[0-9]*; mkdir -p a/b; touch a/b/c'
	in_run "$many" setsid -f sleep 4321 3>&- >"$D/left.log" 2>&1
	wait_for pgrep -u $USERS -f '^sleep 4321'
	kill "$many"
	wait_for state_is "$R/many:apart" failed
	is "$(pgrep -u $USERS -f '^sleep 4321')" ""
	is "$(find "$D/state/pull" -mindepth 2 | grep -vc "/.cell-[0-3]/[0-9]*\(/.*\)\?\$")" 0
	[ -e "/proc/$good" ]
	rm -f "$D/priv/mode" "$D/reg/mode"
	kill "$good"
	wait "$asker" || true
	wait_for eval '[ -z "$(fetched)" ]'
	install "$R/many:apart"
	remove "$R/many:apart" >/dev/null
	server_stop
	server_start --registry-allow-private --pull-stall-secs 3
}

@test "a kill at every point of an install: records and disk agree, and it works afterwards" {
	for i in $(api GET /images | jq -r '.images[].image'); do remove "$i" >/dev/null; done
	server_stop
	for f in layer-recorded layer-ready image-pulled image-layers image-built image-recorded layer-unpacked layer-erased; do
		FAULT=$f server_start --registry-allow-private || true
		if [ $f = layer-erased ]; then install "$R/good:1" || true; remove "$R/good:1" >/dev/null 2>&1 || true
		else js POST /images "{\"image\":\"$R/good:1\"}" >/dev/null 2>&1 || true; fi
		if [ $f = layer-unpacked ]; then wait_for eval '! state_is '"$R/good:1"' installing'
		else wait_for gone "$(cat "$D/server")" || { echo "did not die at $f"; return 1; }; fi
		server_stop
		server_start --registry-allow-private
		[ $f = image-recorded ] || is "$(image "$R/good:1" | jq -r .state | sed s/failed//)" ""
		wait_for agree || { echo "after $f:"; agree; return 1; }
		is "$(fetched)" ""
		install "$R/good:1"
		id=$(box "$R/good:1")
		is "$(in_box "$id" 'cat /etc/change')" upper
		api DELETE "/sandboxes/$id" >/dev/null
		remove "$R/good:1" >/dev/null
		wait_for agree || { echo "removed after $f:"; agree; return 1; }
		server_stop
	done
}
# Every tree has a record, every record a tree. The server keeps its records to itself: a copy is read.
agree() {
	rm -rf "$D/db"
	mkdir "$D/db"
	cp "$D"/state/records.db* "$D/db/"
	diff <(layers | grep '^[0-9]*$' | sort) <(timeout 10 python3 -c '
import sqlite3, sys
for (key,) in sqlite3.connect(sys.argv[1]).execute(
        "select key from thing where kind=\"layer\" and key<>\"next\""):
    print(key)' "$D/db/records.db" | sort)
}

@test "a stop in the middle of a pull is quick, and leaves nothing half made" {
	up || server_start --registry-allow-private
	remove "$R/many:halt" >/dev/null
	echo stall >"$D/reg/mode"
	is "$(code POST /images "{\"image\":\"$R/many:halt\"}")" 202
	wait_for grep -q /blobs/ "$D/reg/requests"
	pid=$(cat "$D/server")
	SECONDS=0
	server_stop
	[ $SECONDS -lt 10 ]
	rm "$D/reg/mode"
	server_start --registry-allow-private
	is "$(image "$R/many:halt")" ""
	is "$(fetched)" ""
	is "$(pgrep -u $USERS -x skopeo)" ""
	install "$R/many:halt"
}
