#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Snapshots, forks and schedules on real file systems.

load records

setup() { records_setup; }
teardown() { records_teardown; }

@test "a fork begins with the files of the moment, and what is written after stays where it is" {
	start
	a=$(new '{"network":{"mode":"none"}}')
	guest "$a" 'echo then > state.txt'
	[ "$(get /v1/snapshots | jq -c .)" = '{"snapshots":[]}' ]
	s=$(snap "$a")
	[ "$(get /v1/snapshots | jq -r '.snapshots[0] | [.id, .sandbox, .image, .kind, .scheduled] | join(" ")')" = "$s $a base disk " ]
	[ "$(guest "$a" 'echo still; echo now > state.txt')" = still ]
	f=$(fork "$s") g=$(fork "$s")
	[ "$(guest "$f" 'cat state.txt')" = then ]
	[ "$(cat_ "$g" /sandbox/home/state.txt)" = then ]
	guest "$f" 'echo mine > state.txt; echo only > here'
	[ "$(guest "$g" 'cat state.txt; ls')" = "$(printf 'then\nstate.txt')" ]
	[ "$(guest "$a" 'cat state.txt')" = now ]
	# the process list is empty: nothing runs in a fork
	[ "$(get "/v1/sandboxes/$g/processes" | jq '.processes | length')" -le 1 ]
	[ "$(code POST /v1/sandboxes "{\"snapshot_id\":\"$s\",\"image\":\"another:1\"}")" = "400 invalid_request" ]
	[ "$(code POST /v1/sandboxes '{"snapshot_id":"snp_0000000000000000"}')" = "404 not_found" ]
	[ "$(json /v1/sandboxes "{\"snapshot_id\":\"$s\",\"memory_mb\":2048}" | jq .memory_mb)" = 2048 ]
	[ "$(code POST "/v1/sandboxes/$a/snapshots" | cut -c1-3)" = 201 ]
	[ "$(code DELETE "/v1/sandboxes/$a")" = 204 ]
	[ "$(code POST "/v1/sandboxes/$a/snapshots")" = "409 conflict" ]
	[ "$(code POST /v1/sandboxes/none/snapshots)" = "404 not_found" ]
	[ "$(get "/v1/sandboxes/$a/events" | jq -r '.events[] | select(.type == "snapshot.created") | .snapshot' | head -n1)" = "$s" ]
	[ "$(get "/v1/sandboxes/$f/events" | jq -r '.events[] | select(.type == "sandbox.created") | .snapshot')" = "$s" ]
}

# What a tree holds: types, modes, owners, sizes, links, times, contents.
listing='cd / && { find sandbox/home var etc -type f -exec stat -c "%n %F %a %u %g %s %h %Y" {} +
	find sandbox/home var etc -type f -exec md5sum {} +
	find sandbox/home var etc -type l -exec stat -c "%N" {} +
	find sandbox/home var etc -type d -exec stat -c "%n %F %a %u %g" {} + ; } | sort'

@test "a thousand files with all that a tree can have come out as they were, through three generations" {
	start
	a=$(new)
	guest "$a" 'mkdir d sparse links; i=0
		while [ $i -lt 1000 ]; do echo "$i" > d/$i; i=$((i+1)); done
		for i in 1 2 3; do ln d/$i links/hard$i; done; ln -s ../d/5 links/soft; ln -s /nowhere links/dangling
		dd if=/dev/urandom of=sparse/f bs=4k count=1 seek=4000 2>/dev/null; truncate -s 128M sparse/hole
		chmod 4755 d/7; chmod 000 d/8; touch -t 202001020304 d/9; mkdir -p deep/a/b/c; echo x > deep/a/b/c/x
		mkfifo pipe; touch "a name with  spaces" "$(printf "bytes\377")"' >/dev/null
	json "/v1/sandboxes/$a/fs/ops" '{"ops":[
		{"op":"setxattr","path":"/sandbox/home/d/1","name":"user.note","value":"dmFsdWU="},
		{"op":"mkdir","path":"/var/lib/made"},{"op":"rmdir","path":"/var/cache"},
		{"op":"unlink","path":"/etc/shells"},{"op":"rename","from":"/var/log","to":"/var/logged"},
		{"op":"chown","path":"/sandbox/home/d/6","uid":0,"gid":5}]}' | jq -e '.results | length == 6 and all(has("error") | not)'
	old=$a
	for generation in 1 2 3; do
		guest "$old" "$listing" >"$D/before"
		[ "$(wc -l <"$D/before")" -gt 1000 ]
		s=$(snap "$old")
		new_=$(fork "$s")
		guest "$new_" "$listing" >"$D/after"
		diff "$D/before" "$D/after"
		[ "$(json "/v1/sandboxes/$new_/fs/ops" '{"ops":[{"op":"getxattr","path":"/sandbox/home/d/1","name":"user.note"}]}' | jq -r '.results[0].value')" = dmFsdWU= ]
		# holes stay holes: a hundred and forty-four megabytes of them
		[ "$(guest "$new_" 'du -k sparse | cut -f1')" -lt 2000 ]
		# names of one file are names of one file still, until one is written
		[ $generation != 1 ] || [ "$(guest "$new_" 'stat -c %i d/3 links/hard3 | uniq | wc -l')" = 1 ]
		[ "$(guest "$new_" 'ls /var/cache 2>&1; ls /var/log 2>&1; ls /etc/shells 2>&1' | grep -c 'No such')" = 3 ]
		# a folder that is removed and made again hides what was below it
		guest "$new_" 'rm -rf deep; mkdir deep; echo new > deep/only; rm d/10; mv d moved; mkdir d; mv moved/* d/; rmdir moved' >/dev/null
		[ "$(guest "$new_" 'find deep' | tr '\n' ' ')" = "deep deep/only " ]
		old=$new_
	done
}

@test "a fork is a machine of its own" {
	start
	a=$(new '{"name":"original"}')
	for f in /etc/machine-id /var/lib/dbus/machine-id; do [ "$(echo 0123456789abcdef0123456789abcdef | put "$a" $f)" = 204 ]; done
	for f in /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_rsa_key.pub /etc/ssh/sshd_config /var/lib/systemd/random-seed; do
		[ "$(echo secret | put "$a" $f)" = 204 ]
	done
	s=$(snap "$a")
	f=$(new "{\"snapshot_id\":\"$s\",\"name\":\"one\"}") g=$(fork "$s")
	one=$(cat_ "$f" /etc/machine-id) two=$(cat_ "$g" /etc/machine-id)
	[[ $one =~ ^[0-9a-f]{32}$ ]] && [[ $two =~ ^[0-9a-f]{32}$ ]]
	[ "$one" != "$two" ] && [ "$one" != 0123456789abcdef0123456789abcdef ]
	[ "$(cat_ "$f" /var/lib/dbus/machine-id)" = "$one" ]
	[ "$(guest "$f" 'ls /etc/ssh /var/lib/systemd' | tr -s '\n' ' ')" = "/etc/ssh: sshd_config /var/lib/systemd: " ]
	[ "$(guest "$f" hostname)" = one ] && [ "$(guest "$g" hostname)" = "$g" ]
	[ "$(cat_ "$a" /etc/machine-id)" = 0123456789abcdef0123456789abcdef ]
	[ "$(cat_ "$a" /etc/ssh/ssh_host_rsa_key)" = secret ]
	[ "$(guest "$f" 'head -c16 /dev/urandom | md5sum')" != "$(guest "$g" 'head -c16 /dev/urandom | md5sum')" ]
}

@test "a snapshot goes when nobody stands on it, and not before" {
	start
	a=$(new)
	guest "$a" 'echo kept > f'
	s=$(snap "$a")
	f=$(fork "$s")
	[ "$(code DELETE "/v1/snapshots/$s")" = 204 ]
	[ "$(code DELETE "/v1/snapshots/$s")" = "404 not_found" ]
	[ "$(code POST /v1/sandboxes "{\"snapshot_id\":\"$s\"}")" = "404 not_found" ]
	EXTRA=1 await 50 layers_agree
	[ "$(guest "$f" 'cat f; echo more >> f; cat f' | tr '\n' ' ')" = "kept kept more " ]
	[ "$(code DELETE "/v1/sandboxes/$f")" = 204 ]
	agree
}

@test "twenty forks of one snapshot at once" {
	start
	a=$(new)
	guest "$a" 'echo shared > f; head -c 3000000 /dev/urandom > big'
	sum=$(guest "$a" 'md5sum < big')
	s=$(snap "$a")
	for i in $(seq 20); do (new "{\"snapshot_id\":\"$s\",\"memory_mb\":64,\"name\":\"f$i\"}" >"$D/f$i") 3>&- & done
	wait $(jobs -p | grep -v "^$SRV$")
	for i in $(seq 20); do [ -s "$D/f$i" ]; guest "f$i" "echo $i >> f" >/dev/null; done
	for i in $(seq 20); do [ "$(guest "f$i" 'cat f; md5sum < big' | tr '\n' ' ')" = "shared $i $sum " ]; done
	[ "$(guest "$a" 'cat f')" = shared ]
	[ "$(cat "$D"/f? "$D"/f?? | sort -u | wc -l)" = 20 ]
}

@test "a client that leaves does not cancel it, and a delete does not stop it" {
	start
	count() { get /v1/snapshots | jq '.snapshots | length'; }
	under_way() { get "/v1/sandboxes/$a" | jq -e 'has("snapshotting")' >/dev/null; }
	over() { ! under_way; }
	begun() { under_way || [ "$(count)" -gt "$before" ]; }
	for i in 1 2 3 4; do
		a=$(new)
		guest "$a" "head -c 20000000 /dev/urandom > big; echo $i > f" >/dev/null
		before=$(count)
		curl -sS --unix-socket "$D/sock" -X POST "http://localhost/v1/sandboxes/$a/snapshots" >/dev/null 2>&1 3>&- &
		client=$!
		await 100 begun
		kill -9 "$client" 2>/dev/null || true
		wait "$client" 2>/dev/null || true
		[ "$((i % 2))" = 0 ] || [ "$(code DELETE "/v1/sandboxes/$a")" = 204 ]
		await 300 over
		if [ "$(count)" -gt "$before" ]; then
			s=$(get /v1/snapshots | jq -r '.snapshots[0].id')
			[ "$(guest "$(fork "$s")" 'cat f; wc -c < big' | tr '\n' ' ')" = "$i 20000000 " ]
		else
			[ "$((i % 2))" = 1 ] # only where it was deleted
		fi
	done
	for id in $(get /v1/sandboxes | jq -r '.sandboxes[].id'); do [ "$(code DELETE "/v1/sandboxes/$id")" = 204 ]; done
	agree
}

@test "snapshots and deletes of one sandbox at once leave whole ones or nothing" {
	start
	for i in 1 2 3 4 5 6; do
		a=$(new)
		guest "$a" 'seq 2000 > f' >/dev/null
		for k in 1 2 3; do (code POST "/v1/sandboxes/$a/snapshots" >"$D/code$k") 3>&- & done
		sleep "0.0$i"
		[ "$(code DELETE "/v1/sandboxes/$a")" = 204 ]
		wait $(jobs -p | grep -v "^$SRV$") || true
		for k in 1 2 3; do grep -q '^201$\|^409 conflict$' "$D/code$k" || { cat "$D/code$k"; false; }; done
		made=$(cat "$D"/code? | grep -c 201) || true
		[ "$(get /v1/snapshots | jq --arg a "$a" '[.snapshots[] | select(.sandbox == $a)] | length')" = "$made" ]
	done
	for s in $(get /v1/snapshots | jq -r '.snapshots[].id'); do
		f=$(fork "$s")
		[ "$(guest "$f" 'wc -l < f')" = 2000 ]
		[ "$(code DELETE "/v1/sandboxes/$f")" = 204 ]
	done
	agree
}

@test "a schedule keeps exactly the newest" {
	LIMITS='"min_snapshot_every_secs":1,"max_snapshot_keep":2'
	start
	[ "$(code POST /v1/sandboxes '{"snapshot_every_secs":1,"snapshot_keep":3}')" = "400 invalid_request" ]
	[ "$(code POST /v1/sandboxes '{"snapshot_keep":1}')" = "400 invalid_request" ]
	a=$(json /v1/sandboxes '{"snapshot_every_secs":1,"snapshot_keep":1}' | tee "$D/a" | jq -r .id)
	[ "$(jq -c '[.snapshot_every_secs, .snapshot_keep]' "$D/a")" = '[1,1]' ]
	mine() { get /v1/snapshots | jq --arg a "$a" '[.snapshots[] | select(.sandbox == $a and .scheduled)] | length'; }
	three_taken() { [ "$(get "/v1/sandboxes/$a/events" | jq '[.events[] | select(.type == "snapshot.created")] | length')" -ge 3 ]; }
	await 200 three_taken
	[ "$(mine)" = 1 ]
	get "/v1/sandboxes/$a/events" | jq -e '[.events[] | select(.type == "snapshot.deleted") | .reason] | unique == ["retention"]'
	[ "$(json "/v1/sandboxes/$a/snapshot-schedule" '{"every_secs":0,"keep":0}' PUT | jq -c '[.snapshot_every_secs, .snapshot_keep]')" = '[null,null]' ]
	[ "$(mine)" = 1 ]
	[ "$(code PUT "/v1/sandboxes/$a/snapshot-schedule" '{"keep":1}')" = "400 invalid_request" ]
	[ "$(code PUT /v1/sandboxes/none/snapshot-schedule '{"every_secs":1}')" = "404 not_found" ]
	[ "$(code DELETE "/v1/sandboxes/$a")" = 204 ]
	[ "$(mine)" = 1 ]
	agree
}

@test "a restart keeps snapshots and forks, or removes snapshots with the sandboxes" {
	start
	a=$(new)
	guest "$a" 'echo kept > f'
	s=$(snap "$a")
	f=$(fork "$s")
	stop
	start
	[ "$(get /v1/snapshots | jq -r '.snapshots[].id')" = "$s" ]
	[ "$(guest "$f" 'cat f')" = kept ]
	[ "$(code DELETE "/v1/sandboxes/$f")" = 204 ]
	[ "$(guest "$(fork "$s")" 'cat f')" = kept ]
	agree
	stop
	start --no-keep-sandboxes
	[ "$(get /v1/snapshots | jq -c .)" = '{"snapshots":[]}' ]
	[ "$(get /v1/sandboxes | jq -r '[.sandboxes[].state] | unique | join(" ")')" = terminated ]
	agree
	a=$(new)
	snap "$a"
	stop
	start
	[ "$(get /v1/snapshots | jq -c .)" = '{"snapshots":[]}' ]
	agree
}
