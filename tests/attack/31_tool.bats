#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Runs of skopeo, taken over by their registries, against each other, their cells, sbx-pull and the front.
load tool

@test "a run of the tool gets nothing by any call that a copy does not need" {
	is "$(lie reach)" 'it could not be fetched (got nothing)'
}

@test "each run has a user for itself, who is not the front's" {
	local i p
	for i in 1 2 3 4; do
		post /v1/images "{\"image\": \"registry.test/lie-stays:$i\"}" >/dev/null
	done
	await 30 eval '[ $(runs_of stays | wc -l) = 4 ]'
	for p in $(runs_of stays); do
		awk '/^Uid:/{print $2, $3, $4, $5}' "/proc/$p/status"
	done | tr ' ' '\n' | sort -u >"$D/users"
	kill $(runs_of stays)
	await 30 eval '! api /v1/images | grep -q installing'
	for i in 1 2 3 4; do
		api -X DELETE "/v1/images?image=registry.test/lie-stays:$i" >/dev/null
	done
	is "$(wc -l <"$D/users")" 4
	! grep -qxE "0|$(stat -c %u "$D/state")" "$D/users"
	await 30 nothing_fetched
}

@test "folders that a run has closed are removed, and the cells serve the next runs" {
	local i before said
	before=$(fds)
	for i in 1 2; do
		said=$(lie closed)
		[[ $said == *'(closed)' || $said == *'more than an image may be' ]] || { echo "$said"; return 1; } # it was seen
		await 30 nothing_fetched || { ls -AR "$D/state/pull" | head -n 20; return 1; }
	done
	is "$(lie reach)" 'it could not be fetched (got nothing)'
	await 30 eval '[ $(fds) = '"$before"' ]' || { fds; return 1; }
}

@test "bytes beside the image are counted, and a folder that cannot be counted counts as too much" {
	local i
	for i in beside hidden; do
		is "$(lie $i)" 'what came is more than an image may be'
		await 30 nothing_fetched
	done
}

@test "connections that a run keeps, or leaves behind, are missed by no other run" {
	local i before
	before=$(fds)
	asked waysheld
	await 30 held
	for i in 1 2; do
		is "$(lie way | grep -c 'no public address')" 1
		is "$(lie ways)" 'it could not be fetched (left 150)'
	done
	is "$(lie way | grep -c 'no public address')" 1
	kill "$(run_of waysheld)"
	await 30 over waysheld
	remove waysheld
	await 30 eval '[ $(fds) = '"$before"' ]' || { fds; return 1; }
}

# The last one: no image can be fetched any more afterwards.
@test "a cell that dies costs its run alone; when all have, it is said what to do" {
	local i cell said
	asked stays
	await 30 eval '[ -n "$(run_of stays)" ]'
	cell=$(awk '/^PPid:/{print $2}' "/proc/$(run_of stays)/status")
	end_cell "$cell"
	await 30 over stays
	[[ $(image stays | jq -r .error) == *'another try may go well'* ]]
	remove stays
	for i in 1 2; do # nobody is in these: nobody hears of it
		end_cell "$(cells | head -n1)"
		is "$(lie reach)" 'it could not be fetched (got nothing)'
	done
	grep -q 'warning.*sbx-pull.*1 of 4 are left' "$D/log"
	end_cell "$(cells | head -n1)"
	said=$(lie reach)
	[[ $said == *'once the server is started again'* ]] || { echo "$said"; return 1; }
	await 30 nothing_fetched
	server_stop
	server u
	is "$(lie reach)" 'it could not be fetched (got nothing)'
}
