#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The inside of the seam, taken over: sbx-init, sbx-worker and sbx-egress are programs that lie (tests/attack/liar),
# the shim, the front and the broker are the product's. A second sandbox answers meanwhile. Afterwards front and
# broker are the same processes, with no more descriptors and about the memory that they had.
load seam

@test "an init that says wrong things: its sandbox works on, and so does everybody's" {
	local id lie got
	id=$(new)
	for lie in ops sizes errors statuses twice flood; do
		got=$(run_code "$id" "[\"lie\", \"$lie\"]")
		[[ $got == 200 || $got == 4?? || $got == 503 ]] || { echo "$lie: $got" >&2; return 1; }
		neighbour
		is "$(guest "$id" "echo $lie")" "$lie"
	done
	as_before
}

@test "an init that attaches descriptors: its shim keeps none" {
	local id shim before
	id=$(new)
	guest "$id" true
	shim=$(shim_of "$id")
	before=$(fds "$shim")
	run_code "$id" '["lie", "descriptors"]' >/dev/null
	is "$(guest "$id" 'echo on')" on
	[ "$(fds "$shim")" -le $((before + 4)) ]
	as_before
}

@test "an init that ends, or says nothing at all, ends its own sandbox" {
	local id lie
	for lie in die empty; do
		id=$(new)
		run_code "$id" "[\"lie\", \"$lie\"]" >/dev/null
		await 30 state_is "$id" terminated
		neighbour
	done
	as_before
}

@test "an init that falls silent costs whoever asks it, and can be removed" {
	local id got
	id=$(new)
	run_code "$id" '["lie", "stall"]' >"$T/code" &
	got=$!
	for _ in 1 2 3; do neighbour; done
	wait $got
	is "$(cat "$T/code")" 503
	is "$(code -X DELETE "/v1/sandboxes/$id")" 204
	as_before
}

# held BIN GROUPS: nothing that a sandbox's processes hold leads out, on a server with that broker, whose shims hold as
# many folders of control groups. The programs are the product's.
held() {
	local id shim name got=0
	mkdir -p "$T/held/state"
	chmod 700 "$T/held/state"
	on held
	"$O/bin/sandboxd" --listen "unix://$D/sock" --state-dir "$D/state" --libexec-dir "$1" \
		--image-dir "${SBX_IMAGES:-$O/images}" --no-keep-sandboxes >>"$D/log" 2>&1 3>&- &
	echo $! >"$D/pid"
	await 60 server_up
	id=$(new "$(network held)")
	begin "$id" 'sleep 600' >/dev/null
	shim=$(shim_of "$id")
	python3 tests/attack/climb.py "$shim" $(pgrep -P "$shim") >"$T/climbed" || got=1
	cat "$T/climbed"
	[ "$got" = 0 ]
	for name in sbx-init sbx-worker sbx-egress; do grep -q "^$name holds" "$T/climbed"; done
	GROUPS_HELD=$(groups_held "$shim")
	is "$(grep -c . <<<"$GROUPS_HELD")" "$2"
	is "$(guest "$id" 'echo on')" on
}
groups_held() {
	local f
	for f in "/proc/$1/fd"/*; do
		[ ! -d "$f" ] || [[ $(stat -L -f -c %T "$f") != cgroup2* ]] || echo "$f"
	done
}

# A root bounds a walk that meets it, and no walk that begins on another mount.
@test "no folder that shim, init, worker or egress process hold leads out of what they may see" {
	held "$O/bin" "$(grep -m1 -c ' cgroup2 .*favordynmods' /proc/self/mounts || true)"
}

@test "nor the guest's control group, which a shim holds where moving processes is cheap" {
	grep -q ' cgroup2 ' /proc/self/mounts || skip "needs cgroup2"
	held "$O/tests/linux/moves" 1
	# nor are there more groups, or deeper ones, than processes need
	mkdir $(seq -f "$GROUPS_HELD/x%.0f" 3000) 2>/dev/null || true
	[ "$(ls -d "$GROUPS_HELD"/x* | wc -l)" -le 2048 ]
	never mkdir "$GROUPS_HELD/x1/y"
}

# What each lie must come to, by endpoint: no 200 for what makes no sense.
NONSENSE="op tag len short data-len value attr cut close"
SENSE="more errno size twice descriptors"

@test "a worker whose answers make no sense: an error for whoever asked" {
	local id lie path got
	id=$(new)
	for lie in $NONSENSE; do
		for path in fs/stat fs/list dirs files fs/statfs; do
			got=$(code "/v1/sandboxes/$id/$path?path=/lie/$lie")
			[[ $got == 4?? || $got == 5?? || $got == 000 ]] || { echo "$path $lie: $got $(head -c 200 "$T/answer")" >&2; return 1; }
		done
		got=$(put "$id" "/lie/$lie" <<<data)
		[[ $got == 4?? || $got == 5?? ]]
		neighbour
	done
	for lie in dots slash name-len target-len; do
		got=$(code "/v1/sandboxes/$id/dirs?path=/lie/$lie")
		[[ $got == 5?? ]] || { echo "$lie: $got $(head -c 200 "$T/answer")" >&2; return 1; }
	done
	is "$(guest "$id" 'echo kept >f; cat f')" kept
	is "$(get "$id" /sandbox/home/f)" kept
	as_before
}

@test "a worker that says more than it was asked, twice, with descriptors, for ever" {
	local id lie path
	id=$(new)
	for lie in $SENSE flood; do
		for path in fs/stat fs/list dirs files; do
			code --max-time 20 "/v1/sandboxes/$id/$path?path=/lie/$lie" >/dev/null
		done
		neighbour
	done
	code --max-time 20 "/v1/sandboxes/$id/fs/list?path=/lie/endless&limit=20000" >/dev/null
	is "$(guest "$id" 'echo kept >f; cat f')" kept
	is "$(get "$id" /sandbox/home/f)" kept
	as_before
}

worker_of() { pgrep -P "$(shim_of "$1")" -x sbx-worker || pgrep -P "$(shim_of "$1")" | tail -n 1; }

@test "a worker that makes threads without end makes them to a number" {
	local id
	id=$(new)
	is "$(code "/v1/sandboxes/$id/fs/stat?path=/lie/threads")" 200
	[ "$(jq .size "$T/answer")" -ge 1 ] && [ "$(jq .size "$T/answer")" -le 1152 ] || { jq .size "$T/answer" >&2; return 1; }
	neighbour
	del "$id"
	as_before
}

@test "a worker that takes memory without end takes its sandbox's, and ends with it" {
	local id got
	id=$(new '{"memory_mb": 64}')
	got=$(code "/v1/sandboxes/$id/fs/stat?path=/lie/touch")
	[[ $got == 5?? || $got == 000 ]] || { echo "$got $(head -c 200 "$T/answer")" >&2; return 1; }
	await 60 state_is "$id" terminated
	neighbour
	as_before
}

# A shim is the product's here; what it may take has an end all the same.
@test "a shim may make no process, and has an end to its memory" {
	local shim
	shim=$(shim_of "$(new)")
	is "$(awk '/^Max processes/ { print $3, $4 } /^Max address space/ { print $4, $5 }' "/proc/$shim/limits")" "$(printf '0 0\n536870912 536870912')"
}

# The other way round: a client's connection is the worker's own.
@test "a client that attaches descriptors to its requests: the worker keeps none" {
	local id worker before n
	id=$(new)
	code "/v1/sandboxes/$id/fs/stat?path=/" >/dev/null
	worker=$(worker_of "$id")
	before=$(fds "$worker")
	for n in 1 2 3 200; do
		is "$(python3 tests/attack/attach.py "$D/sock" "$id" 12 $n)" 12
		await 30 few_of "$worker" "$((before + 4))"
	done
	as_before
}

@test "a worker that was taken over does nothing with a connection but carry bytes, and starts nothing" {
	local id
	id=$(new)
	is "$(code "/v1/sandboxes/$id/dirs?path=/lie/calls")" 200
	is "$(jq -r '.entries[].name' "$T/answer")" nothing
	as_before
}

@test "names that a worker makes up are text, whatever is in them" {
	local id
	id=$(new)
	is "$(code "/v1/sandboxes/$id/dirs?path=/lie/escape")" 200
	jq -e '.entries | length == 1' "$T/answer"
	never grep -q '[[:cntrl:]]' <(tr -d '\n' <"$T/answer")
	is "$(code "/v1/sandboxes/$id/fs/list?path=/lie/escape")" 200
	[ "$(jq -c . "$T/answer" | wc -l)" = 2 ]
	never grep -q '[[:cntrl:]]' <(tr -d '\n' <"$T/answer")
}

@test "an egress process that speaks without end gets few lines of the log" {
	local id before
	before=$(lines)
	id=$(new "$(network flood)")
	for _ in $(seq 10); do neighbour; done
	sleep 2
	code -X PATCH -H 'Content-Type: application/json' -d "$(network descriptors)" "/v1/sandboxes/$id" >/dev/null
	neighbour
	del "$id"
	[ $(($(lines) - before)) -le 400 ] || { echo "$before $(lines)" >&2; return 1; }
	[ $(($(lines) - before)) -ge 1 ]
	never grep -q "$(printf '\033')" "$D/log"
	as_before
}

# The thread that hears them all, the one that measures them all, and the change itself go on.
@test "an egress process that stalls or talks on holds up nobody else" {
	local id lie other got
	other=$(new "$(network honest)")
	for lie in stall refusals answers twice nonsense counts; do
		id=$(new "$(network $lie)")
		got=$(code --max-time 40 -X PATCH -H 'Content-Type: application/json' -d "$(network honest2)" "/v1/sandboxes/$id")
		[[ $got == 200 || $got == 5?? || $got == 409 ]] || { echo "$lie: $got" >&2; return 1; }
		neighbour
		is "$(code --max-time 20 -X PATCH -H 'Content-Type: application/json' -d "$(network honest3)" "/v1/sandboxes/$other")" 200
		is "$(code -X DELETE "/v1/sandboxes/$id")" 204
	done
	as_before
}

image() { api /v1/images | jq -c --arg i "registry.test/lie-$1:1" '.images[] | select(.image == $i)'; }
installed() { [ "$(image "$1" | jq -r .state)" != installing ]; }

@test "what the tool that fetches images brings is looked at, not followed" {
	local lie why
	for lie in fifo link records folder huge hole nothing deep json noise; do
		post /v1/images "{\"image\": \"registry.test/lie-$lie:1\"}" >/dev/null
		await 60 installed $lie
		is "$(image $lie | jq -r .state)" failed
		why=$(image $lie | jq -r .error)
		[ -n "$why" ] && [[ $why != *root:* && $why != *$'\033'* ]]
		neighbour
		api -X DELETE "/v1/images?image=registry.test/lie-$lie:1" >/dev/null
	done
	is "$(ls -A "$D/state/pull")" ''
	as_before
}

@test "a fetched image that is a link, or whose layer is a terabyte: it is not read" {
	local lie
	for lie in linked:'the fetched image' grown:'not the size of its manifest'; do
		post /v1/images "{\"image\": \"registry.test/lie-${lie%%:*}:1\"}" >/dev/null
		await 60 installed "${lie%%:*}"
		[[ $(image "${lie%%:*}" | jq -r .error) == *"${lie#*:}"* ]] || { image "${lie%%:*}"; return 1; }
		api -X DELETE "/v1/images?image=registry.test/lie-${lie%%:*}:1" >/dev/null
	done
	as_before
}

# The last one: no image can be fetched any more afterwards.
@test "a tool that never answers holds up no other, and may end" {
	post /v1/images '{"image": "registry.test/lie-silent:1"}' >/dev/null
	for _ in 1 2 3; do neighbour; done
	is "$(image silent | jq -r .state)" installing
	post /v1/images '{"image": "registry.test/lie-end:1"}' >/dev/null
	await 60 installed end
	await 60 installed silent
	is "$(image silent | jq -r .state)$(image end | jq -r .state)" failedfailed
	as_before
}
