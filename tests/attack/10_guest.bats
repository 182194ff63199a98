#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Code in a sandbox against the host, the server and its neighbours: races, pools that all share, and text that
# means something to a terminal. What is one call and one answer is in test_inside.c.
bats_require_minimum_version 1.5.0
load helper

setup_file() { attack_up u r; }
setup() { attack_setup; }
teardown() { attack_clean; }
teardown_file() {
	[ ! -s "${T:-}/fspid" ] || kill "$(cat "$T/fspid")" 2>/dev/null || true
	[ -z "${T:-}" ] || ! mountpoint -q "$T/m" || umount -l "$T/m"
	attack_down
}

# --- races

# The folder d and the link l change names a hundred thousand times a second; l leads to a folder that only
# the host has, and to the guest's own root, where the names below it are others.
race_files() {
	local s=$1 id end p seen=0 missed=0 got
	on "$s"
	mkdir -p "$T/host" && echo HOST >"$T/host/f" && echo x >"$T/host/host-only"
	id=$(new)
	give "$id" guest_race
	guest "$id" "mkdir d; echo GOOD > d/f; ln -s $T/host l" >/dev/null
	p=$(begin "$id" './guest_race swap d l 240')
	end=$((SECONDS + 200))
	# until both sides were met, and some more
	while [ "$seen" -lt 3 ] || [ "$missed" -lt 3 ]; do
		got=$(get "$id" /sandbox/home/d/f)
		[[ $got != *HOST* ]]
		if [ "$got" = GOOD ]; then seen=$((seen + 1)); else missed=$((missed + 1)); fi
		echo GOOD | put "$id" /sandbox/home/d/f >/dev/null
		echo GOOD | put "$id" /sandbox/home/d/new >/dev/null
		[[ $(api "/v1/sandboxes/$id/dirs?path=/sandbox/home/d") != *'"host-only"'* ]]
		api -X DELETE "/v1/sandboxes/$id/files?path=/sandbox/home/d/new" >/dev/null
		api -X DELETE "/v1/sandboxes/$id/files?path=/sandbox/home/d/host-only" >/dev/null
		[ "$SECONDS" -lt "$end" ]
	done
	is "$(ls "$T/host")" "$(printf 'f\nhost-only')"
	is "$(cat "$T/host/f")" HOST
	alive "$id"
}

@test "a folder that is exchanged for a link: no read, write, listing or delete goes astray" {
	race_files u
	race_files r
}

@test "a snapshot taken during the exchange holds nothing of the host, and its fork neither" {
	on u
	mkdir -p "$T/host" && echo HOST-SECRET >"$T/host/f"
	id=$(new)
	give "$id" guest_race
	guest "$id" "mkdir -p a/d; echo GOOD > a/d/f; ln -s $T/host a/l; ln -s / a/root; ln -s /proc/1/root a/init" >/dev/null
	begin "$id" './guest_race swap a/d a/l 60' >/dev/null
	for _ in 1 2 3; do
		snap=$(api -X POST "/v1/sandboxes/$id/snapshots" | jq -er .id)
		fork=$(new "{\"snapshot_id\":\"$snap\"}")
		[ "$(guest "$fork" 'cat a/d/f a/l/f 2>/dev/null')" = GOOD ]
		is "$(guest "$fork" 'grep -rs HOST-SECRET a/d a/l | wc -l')" 0
		del "$fork"
		api -X DELETE "/v1/snapshots/$snap" >/dev/null
	done
	# and none of the layers that were written has it
	never grep -rqs HOST-SECRET "$D/state/priv/layers"
}

# What a client could not ask for, an image can have in its place.
links_image() {
	mkdir -p "$T/tree/mnt/real"
	for l in etc:/etc sys:/proc/sys up:../../../../tmp near:/mnt/real loop:/mnt/loop; do ln -sfn "${l#*:}" "$T/tree/mnt/${l%%:*}"; done
	: >"$T/tree/mnt/file"
	cp "$O/images/base.tar" "$T/links.tar"
	tar -rf "$T/links.tar" -C "$T/tree" --owner=0 --group=0 mnt
	mv "$T/links.tar" "$T/images/links.tar"
}

@test "a volume is not mounted through what an image has in its place" {
	on u
	links_image
	before=$(find /etc /mnt -maxdepth 2 | sort | sha256sum)
	is "$(post /v1/volumes '{"name":"v","size_mb":64}' | jq -r .name)" v
	for path in /mnt/etc /mnt/etc/x /mnt/sys /mnt/up /mnt/up/x /mnt/near /mnt/near/x /mnt/file /mnt/file/x \
		/mnt/loop /proc/x /sys/x /dev/x /dev/shm /mnt/../etc; do
		out=$(post /v1/sandboxes "{\"image\":\"links\",\"volumes\":[{\"name\":\"v\",\"path\":\"$path\"}]}")
		[ "$(jq -r '.error.code // empty' <<<"$out")" ] || { echo "$path: $out"; false; }
	done
	# the volume is free, and where there is a folder it is mounted
	ok=$(new '{"image":"links","volumes":[{"name":"v","path":"/mnt/real/x"}]}')
	is "$(guest "$ok" 'echo text > /mnt/real/x/f; cat /mnt/near/x/f')" text
	del "$ok"
	is "$(api -X DELETE -o /dev/null -w '%{http_code}' /v1/volumes/v)" 204
	is "$(find /etc /mnt -maxdepth 2 | sort | sha256sum)" "$before"
}

@test "a reader of a volume stays a reader, with every right of guest root" {
	on r
	post /v1/volumes '{"name":"w","size_mb":64}' >/dev/null
	id=$(new '{"volumes":[{"name":"w","path":"/data"}]}')
	is "$(guest "$id" 'echo text > /data/f; chmod 666 /data/f; cat /data/f')" text
	del "$id"
	id=$(new '{"volumes":[{"name":"w","path":"/data","read_only":true}]}')
	out=$(guest "$id" 'exec 2>&1; echo no > /data/f; mount -o remount,rw /data; mount -o bind /data /tmp; chmod 777 /data
		exec 5</data/f; echo no > /proc/self/fd/5; echo no > /proc/self/root/data/f; ln /data/f /data/g; rm /data/f
		touch /data/f; cat /data/f')
	is "$(tail -n1 <<<"$out")" text
	is "$(grep -cv 'Read-only\|denied\|permitted\|text$' <<<"$out")" 0
	del "$id"
	api -X DELETE /v1/volumes/w >/dev/null
}

# --- the first process

@test "who stops the server's starts half-way stops his own sandbox only" {
	on u
	id=$(new) other=$(new)
	give "$id" guest_race
	begin "$id" './guest_race stop 5' >/dev/null
	for _ in 1 2 3 4 5 6 7 8; do # answered, well or not, and never for ever
		api -X POST -H 'Content-Type: application/json' -d "$(body true 3)" -o /dev/null -w '%{http_code}\n' \
			--max-time 30 "/v1/sandboxes/$id/run" &
	done >"$T/codes"
	for _ in 1 2 3; do alive "$other"; done
	is "$(api -X DELETE -o /dev/null -w '%{http_code}' --max-time 30 "/v1/sandboxes/$id")" 204
	wait
	is "$(grep -c '^[245]' "$T/codes")" 8
	alive "$other"
}

@test "a working directory leads nowhere but into the sandbox" {
	for s in u r; do
		on $s
		id=$(new)
		guest "$id" 'ln -s /proc/1/root one; ln -s /proc/self/root own; ln -s /proc/self/fd fds; mkfifo pipe; ln -s /proc/1/cwd cwd' >/dev/null
		for cwd in /proc/1/root /proc/1/cwd /proc/self/root /proc/self/fd/0 /proc/self/fd/3 /proc/self/fd/7 /proc/self/fd/64 \
			/proc/thread-self/root /sandbox/home/one /sandbox/home/own /sandbox/home/fds/3 /sandbox/home/cwd \
			/sandbox/home/pipe /dev/null /proc/1/fd/3; do
			out=$(post "/v1/sandboxes/$id/run" "$(jq -cn --arg d "$cwd" '{argv: ["pwd"], cwd: $d}')")
			[ "$(jq -r '.error.code // empty' <<<"$out")" ] || { echo "$cwd: $out"; false; }
		done
		is "$(post "/v1/sandboxes/$id/run" '{"argv":["pwd"],"cwd":"/sandbox"}' | jq -r '.stdout | @base64d')" /sandbox
		alive "$id"
	done
}

# --- what the host has once

# The neighbour, and the host itself, must get as much as they would without the attacker.
@test "quotas of a user are a sandbox's own: inotify, pending signals, message queues" {
	on u
	a=$(new) b=$(new)
	give "$a" guest_pools
	give "$b" guest_pools
	for kind in inotify signals queues; do
		p=$(begin "$a" "tail -f /dev/null | ./guest_pools $kind")
		await 30 said "$a" "$p" took
		[ "$(guest "$b" "./guest_pools $kind 8 </dev/null")" = "took 8" ]
		is "$("$O/tests/attack/guest_pools" $kind 8 </dev/null)" "took 8"
	done
}

@test "what lies in sockets counts as the sandbox's memory" {
	on u
	for kind in tcp udp; do
		id=$(new '{"memory_mb":64}')
		give "$id" guest_pools
		got=$(guest "$id" "./guest_pools $kind </dev/null" | awk '{ print $2 }')
		[ "${got:-0}" -le 64 ] || { echo "$kind: $got MiB in a sandbox of 64"; false; } # none: it was killed
	done
}

# The file worker writes these, outside the guest's groups.
@test "files that come from outside into memory take it from the sandbox's processes, not from the host" {
	local id init n got
	on u
	id=$(new '{"memory_mb":256}')
	init=$(pgrep -P "$(od -An -t d4 -j 16 -N 4 "$D/state/priv/boxes/$id" | tr -d ' ')" | head -n1)
	guest "$id" '(head -c 200000000 /dev/zero; exec sleep 1000) | tail -c 200000000 >/dev/null 2>&1 &
		until [ "$(awk "\$1 == \"VmRSS:\" { print \$2 }" "/proc/$!/status")" -gt 190000 ]; do sleep 0.1; done' >/dev/null
	is "$(guest "$id" 'pidof tail | wc -w')" 1
	for n in 1 2 3 4 5 6; do # 192 MiB beside them: all that is in memory is 384 MiB at most
		got=/tmp
		[ $((n % 2)) = 0 ] || got=/dev/shm
		is "$(head -c 33554432 /dev/zero | put "$id" "$got/f$n")" 204
	done
	is "$(guest "$id" 'pidof tail | wc -w')" 0
	kill -0 "$init"
	is "$(head -c 67108864 /dev/zero | put "$id" /tmp/large)" 409 # half of the memory is what /tmp may hold
	is "$(guest "$id" 'ls /tmp; cat /tmp/* /dev/shm/* | wc -c')" "$(printf 'f2\nf4\nf6\n201326592')"
	is "$(put "$id" /sandbox/home/small <<<small)" 204
}

@test "where memory ends, guests go before their shim and file worker, and before others of the host" {
	local id shim pid
	on u
	id=$(new)
	shim=$(od -An -t d4 -j 16 -N 4 "$D/state/priv/boxes/$id" | tr -d ' ')
	is "$(guest "$id" 'cat /proc/self/oom_score_adj')" 900
	for pid in "$shim" "$(pgrep -P "$shim" -x sbx-worker || pgrep -P "$shim" | tail -n 1)"; do
		is "$(cat "/proc/$pid/oom_score_adj")" "$(cat /proc/self/oom_score_adj)"
	done
}

@test "paths of the host are in no file of procfs" {
	for s in u r; do
		on $s
		id=$(new '{"volumes":[]}')
		is "$(guest "$id" "grep -ls '$T\|/var/tmp\|sandboxd' /proc/self/mountinfo /proc/self/mounts /proc/self/mountstats \
			/proc/1/cmdline /proc/1/mountinfo /proc/self/cgroup /proc/1/cgroup /proc/swaps /proc/locks \
			/proc/net/unix /proc/self/maps /proc/self/environ /proc/1/status; true")" ""
	done
}

@test "names in /dev/shm, System V memory, queues and abstract sockets stay in their sandbox" {
	on u
	a=$(new) b=$(new)
	guest "$a" 'echo s > /dev/shm/x; : > /dev/mqueue/q; echo s > /tmp/t; ipcs -m' >/dev/null
	is "$(guest "$b" 'ls -A /dev/shm; ls -A /dev/mqueue; ls -A /tmp; cat /proc/sysvipc/shm | wc -l; grep -c @ /proc/net/unix')" "$(printf '1\n0')"
	is "$(ls /dev/shm | grep -cx x)" 0
}

# --- text for terminals

@test "no byte of a guest reaches a terminal as a command of its own: listings, events, errors" {
	on u
	id=$(new '{"name":"text"}') n=/sandbox/home/n
	guest "$id" 'mkdir -p "$(printf "n/e\033]0;title\007")"; cd n; : > "$(printf "c1\302\2331m")"; : > "$(printf "new\nline")"
		: > "$(printf "tab\there")"; : > "$(printf "del\177")"; : > "$(printf "back\rto")"; : > "$(printf "raw\233\37731m")"
		ln -s "$(printf "to\033[2J")" link; mkfifo "$(printf "pipe\033[3m\nof")"' >/dev/null
	printf x | put "$id" /sandbox/home/n/%1b%5b31mred >/dev/null
	get "$id" /sandbox/home/n/%1b%5bmissing >/dev/null
	api -X POST -H 'Content-Type: application/json' -d '{"argv":["/bin/\u001b[2Jx","\u009b31m","a\nb"]}' "/v1/sandboxes/$id/run" >/dev/null
	api -X POST -H 'Content-Type: application/json' -d '{"argv":["sleep","600","\u001b[2J\nforged line"]}' "/v1/sandboxes/$id/processes" >/dev/null
	sbx() { "$O/bin/sbx" "$@" 2>&1 </dev/null || true; }
	clean() { # FILE: nothing but lines of printable text, no byte that is a command where a byte is a letter
		never grep -qaP '[\x00-\x08\x0b-\x1f\x7f]' "$1" && never grep -qaP '\xc2[\x80-\x9f]' "$1" &&
			iconv -f UTF-8 -t UTF-8 "$1" >/dev/null
	}
	for what in "file ls text $n" "file ls -l text $n" "event ls text" "ps text" "sandbox show text" "ls" \
		"process show text 1" "cat text $n/$(printf '\033[1m')" "file rm text $n/$(printf '\033[2J')" \
		"run text $(printf '/bin/\033[2J')" "cp -r text:$n $T/copied" "cp $T/images text:$n/$(printf '\033[4m')" "--json event ls text" "--json file ls text $n" \
		"api GET '/v1/sandboxes/$id/dirs?path=$n'" "api GET '/v1/sandboxes/$id/fs/list?path=$n'"; do
		eval "sbx $what" >"$T/out"
		[ -s "$T/out" ] || { echo "nothing from: $what"; false; }
		clean "$T/out" || { echo "$what:"; cat -v "$T/out"; false; }
	done
	# one entry, one line
	is "$(sbx file ls text $n | wc -l)" "$(guest "$id" 'ls -A n | tr -dc "" | wc -c; find n -mindepth 1 -maxdepth 1 -exec echo x \; | wc -l' | tail -n1)"
	is "$(sbx ps text | grep -c '^forged')" 0
	# the server's own log and its record of events are lines of text, too
	clean "$D/log"
	jq -e . "$D/state/audit/events.jsonl" >/dev/null
	clean "$D/state/audit/events.jsonl"
}

@test "nor by the mount: its files say what a guest wrote in letters and signs" {
	on u
	id=$(new '{"name":"text"}')
	mkdir -p "$T/m"
	"$O/bin/sbxfs" -f -o "endpoint=unix://$D/sock" "$T/m" >>"$D/fslog" 2>&1 3>&- &
	echo $! >"$T/fspid"
	await 20 mountpoint -q "$T/m"
	post "/v1/sandboxes/$id/processes" '{"argv":["sleep","600","\u001b[2J\nforged line","\u009b31m"]}' >/dev/null
	post "/v1/sandboxes/$id/run" '{"argv":["/bin/\u001b[2Jx"]}' >/dev/null
	guest "$id" 'mkdir odd; cd odd; : > "$(printf "e\033]0;x\007")"; ln -s "$(printf "/\033[2J")" l; mkfifo "$(printf "p\033[1m")"' >/dev/null
	# whatever a guest calls a folder that cannot be removed
	guest "$id" 'cd odd; for f in "e\033]0;y\007" "n\nforged error line" "r\233\37731m" "c\302\2331m"; do
		mkdir -p "$(printf "$f")/full"; done' >/dev/null
	for f in 'e\033]0;y\007' 'n\nforged error line' 'r\233\37731m' 'c\302\2331m'; do
		never timeout 10 rmdir "$T/m/text/fs/sandbox/home/odd/$(printf "$f")" 2>/dev/null
		timeout 10 cat "$T/m/error" "$T/m/text/error" >>"$T/said"
	done
	printf 'x\033[2J\n' >"$T/m/text/ctl" 2>/dev/null || true
	for f in error errors events text/info text/error text/errors text/events text/processes/1/cmd text/processes/1/info \
		text/processes/1/state; do
		timeout 10 head -c 65536 "$T/m/$f" >>"$T/said" || true
	done
	mv "$T/said" "$T/out"
	[ "$(wc -c <"$T/out")" -gt 1000 ]
	grep -q forged "$T/out"
	never grep -qaP '[\x00-\x08\x0b-\x1f\x7f]' "$T/out"
	never grep -qaP '\xc2[\x80-\x9f]' "$T/out"
	never grep -qa '^forged' "$T/out"
	iconv -f UTF-8 -t UTF-8 "$T/out" >/dev/null
	is "$(grep -c '"op":"rmdir"' "$T/out")" 8 # four, in two files: none is left out for its name
	kill "$(cat "$T/fspid")"
	await 20 eval '! mountpoint -q "$T/m"'
}

@test "a copy out of a sandbox is not written through a link that an earlier copy brought" {
	on u
	id=$(new '{"name":"copy"}')
	mkdir -p "$T/prey" "$T/into" && echo KEPT >"$T/prey/passwd"
	guest "$id" "mkdir tree; ln -s $T/prey tree/sub; ln -s $T/prey/passwd tree/file; ln -s $T/prey/new tree/dangling" >/dev/null
	"$O/bin/sbx" cp -r copy:/sandbox/home/tree "$T/into/tree"
	[ -L "$T/into/tree/sub" ]
	guest "$id" 'rm tree/*; mkdir tree/sub; echo EVIL > tree/sub/passwd; echo EVIL > tree/file; echo EVIL > tree/dangling' >/dev/null
	"$O/bin/sbx" cp -r copy:/sandbox/home/tree "$T/into/tree" >"$T/out" 2>&1 || true
	"$O/bin/sbx" cp -r copy:/sandbox/home/tree/. "$T/into/tree" >>"$T/out" 2>&1 || true
	is "$(cat "$T/prey/passwd")" KEPT
	is "$(ls "$T/prey")" passwd
}
