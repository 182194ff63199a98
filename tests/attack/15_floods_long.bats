#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# One sandbox takes all of something, again and again, while a neighbour works: what `run true` takes there stays
# within three times what it takes when all is quiet, the server's memory does not grow, and the host's does not
# either. FLOOD_SECS=20 is how long each goes on.
bats_require_minimum_version 1.5.0
load helper

setup_file() {
	attack_up u
	[ "$(id -u)" != 0 ] || on u
}
setup() {
	attack_setup
	on u
	SECS=${FLOOD_SECS:-20}
	A=$(new '{"name":"a","memory_mb":256,"disk_mb":256}') B=$(new '{"name":"b","memory_mb":256,"disk_mb":256}')
	give "$A" guest_pools
	give "$A" guest_flood
	RUN=$(body true)
}
teardown() { attack_clean; }
teardown_file() { attack_down; }

# Milliseconds that run true takes, the middle of N.
median() { # ID N
	local i
	for i in $(seq "$2"); do
		curl -sS --max-time 60 -o /dev/null -w '%{time_total}\n' --unix-socket "$D/sock" -H 'Content-Type: application/json' \
			-d "$RUN" "http://localhost/v1/sandboxes/$1/run"
	done | sort -n | awk '{ v[NR] = $1 } END { printf "%d\n", v[int((NR + 1) / 2)] * 1000000 }'
}
rss() { awk '$1 == "VmRSS:" { print $2 }' "/proc/$1/status"; }
shim() { od -An -td4 -j16 -N4 "$D/state/priv/boxes/$1" | tr -d ' '; }
host_free() { awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo; }

# flood WHAT SHELL-TEXT [SHOWN]: runs the text again and again in A while B is measured; SHOWN: with its output.
flood() { flood_by "$1" "./guest_flood again $(printf %q "$2")" "${3:-}"; }

# flood_by WHAT COMMAND [SHOWN]: the command must go on until it is ended from here. A machine is slow by itself now
# and then: what counts is the best of several medians.
flood_by() {
	local what=$1 cmd=$2 to='>/dev/null 2>&1' quiet loud best= left free n end p
	median "$B" 5 >/dev/null
	quiet=$(median "$B" 41)
	left=$(rss "$(server_pid)") free=$(host_free) n=$(shim "$A")
	local before=$(rss "$n")
	[ -z "${3:-}" ] || to=
	p=$(begin "$A" "exec $cmd </dev/null $to")
	end=$((SECONDS + SECS))
	while :; do
		loud=$(median "$B" 15)
		[ -n "$best" ] && [ "$best" -le "$loud" ] || best=$loud
		[ "$SECONDS" -lt "$end" ] || break
	done
	alive "$B"
	is "$(api "/v1/sandboxes/$A/processes/$p" | jq -r .state)" running
	printf '# %-10s quiet %6d us, flood %6d us, server %+d KiB, shim %+d KiB, host %+d MiB\n' "$what" "$quiet" "$best" \
		$(($(rss "$(server_pid)") - left)) $(($(rss "$n") - before)) $((($(host_free) - free) / 1024)) >&3
	[ "$best" -le $((3 * quiet + 1000)) ]
	[ $(($(rss "$(server_pid)") - left)) -lt 16384 ]
	[ $(($(rss "$n") - before)) -lt 4096 ]
	[ $((free - $(host_free))) -lt $((768 * 1024)) ]
	# it ends when it is told to, and nothing of it is left
	is "$(api -X DELETE -o /dev/null -w '%{http_code}' --max-time 30 "/v1/sandboxes/$A")" 204
}

@test "processes of a shell's bomb, and as many that wait" {
	local bomb='a() { a | a & }; a; ./guest_pools fork'
	flood fork "$bomb"
}
@test "processes that all go on making more" { flood_by bomb './guest_flood bomb'; }
@test "processes that make two and go" { flood_by storm './guest_flood storm'; }
@test "memory" { flood memory './guest_pools memory'; }
@test "memory of its temporary file systems" { flood tmpfs 'dd if=/dev/zero of=/tmp/x bs=1M; dd if=/dev/zero of=/dev/shm/x bs=1M; rm /tmp/x /dev/shm/x'; }
@test "the disk" { flood disk 'dd if=/dev/zero of=x bs=1M; sync; rm x'; }
@test "inodes" { flood inodes 'i=0; while [ $i -lt 20000 ]; do : > f$i || break; i=$((i + 1)); done; rm -rf f*'; }
@test "descriptors" { flood files './guest_pools files & ./guest_pools files & ./guest_pools files; wait'; }
@test "names that are not there" { flood names './guest_pools names'; }
@test "sockets' memory" { flood sockets './guest_pools tcp & ./guest_pools udp; wait'; }
@test "signals, inotify and message queues" { flood quotas './guest_pools signals & ./guest_pools inotify & ./guest_pools queues; wait'; }
@test "processor time" { flood cpu 'while :; do :; done & while :; do :; done & while :; do :; done & sleep 5; kill $!; wait'; }

@test "output, on both streams, in one line and in many" {
	flood output 'yes & cat /dev/zero & (while :; do printf x; printf y >&2; done) & wait' shown
	[ "$(du -sm "$D/state/run/$A" | cut -f1)" -lt 32 ] # what is kept of each has an end
}

@test "starts that fail, by the hundred, leave nothing" {
	before=$(ls "/proc/$(server_pid)/fd" | wc -l)
	for _ in $(seq 300); do
		post "/v1/sandboxes/$A/run" '{"argv":["/none"]}' >/dev/null
	done
	await 20 eval '[ "$(ls "/proc/$(server_pid)/fd" | wc -l)" -le '$((before + 4))' ]'
	alive "$A"
}

@test "the log and the record of events have an end" {
	# what a guest can have written there: refusals of its network, which are counted beyond a few a second
	was=$(stat -c %s "$D/log")
	guest "$A" 'i=0; while [ $i -lt 3000 ]; do nslookup n$i.evil.test 127.0.0.53; i=$((i + 1)); done >/dev/null 2>&1' 120 >/dev/null
	[ $(($(stat -c %s "$D/log") - was)) -lt 1000000 ]
	[ "$(du -sm "$D/state/audit" | cut -f1)" -lt 200 ]
}
