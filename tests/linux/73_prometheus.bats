#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The page for Prometheus, read by Prometheus' own parser, before and after sandboxes come and go.

setup_file() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	export O=${SBX_BUILD:-$PWD/build} D
	D=$(mktemp -d /var/tmp/sbx-prom.XXXXXX)
	echo '{"pools":[{"image":"base","size":1}]}' >"$D/policy"
	"$O/bin/sandboxd" --policy "$D/policy" --listen "unix://$D/sock" --state-dir "$D/state" --image-dir "${SBX_IMAGES:-$O/images}" \
		--metrics-listen 127.0.0.1:0 --capacity-cpus 8 --capacity-memory-mb 8192 --capacity-disk-mb 100000 \
		2>"$D/log" 3>&- &
	echo $! >"$D/pid"
	for _ in $(seq 600); do
		[ "$(api -o /dev/null -w '%{http_code}' /v1/health 2>/dev/null)" = 200 ] && return 0
		kill -0 "$(cat "$D/pid")" 2>/dev/null || break
		sleep 0.1
	done
	cat "$D/log" >&2
	return 1
}
teardown_file() {
	[ -n "${D:-}" ] || return 0
	for id in $(api /v1/sandboxes | jq -r '.sandboxes[] | select(.state != "terminated") | .id'); do
		api -X DELETE "/v1/sandboxes/$id" >/dev/null
	done
	kill "$(cat "$D/pid")"
	for _ in $(seq 300); do
		kill -0 "$(cat "$D/pid")" 2>/dev/null || break
		sleep 0.1
	done
	rm -rf --one-file-system "$D"
}
api() {
	local args=("$@") path=${*: -1}
	unset 'args[${#args[@]}-1]'
	curl -sS --max-time $((60 * ${SLOW:-1})) --unix-socket "$D/sock" "${args[@]}" "http://localhost$path"
}
post() { api -X POST -H 'Content-Type: application/json' -d "$2" "$1"; }
url() { grep -o 'http://127[^ ]*/metrics' "$D/log"; }
# are: rows "VALUE NAME [LABEL=VALUE]" on standard input, against what the parser makes of one page
are() {
	curl -sS --max-time $((20 * ${SLOW:-1})) "$(url)" >"$D/page"
	/usr/bin/python3 -c '
import sys
from prometheus_client.parser import text_string_to_metric_families as parse
samples = [s for f in parse(open(sys.argv[1]).read()) for s in f.samples]
rows, bad = [row.split() for row in sys.stdin], []
for want, name, *label in rows:
    labels = dict(l.split("=", 1) for l in label)
    found = [s.value for s in samples if s.name == name and s.labels == labels]
    if found != [float(want)]:
        bad.append("%s %s: %s, wanted %s" % (name, labels, found, want))
sys.exit("\n".join(bad) or (None if rows else "no rows"))' "$D/page"
}

@test "the parser finds every name of the contract, with its type" {
	curl -sS "$(url)" | /usr/bin/python3 -c '
import sys
from prometheus_client.parser import text_string_to_metric_families as parse
families = {f.name: f.type for f in parse(sys.stdin.read())}
want = dict.fromkeys("sandboxes processes_running pool_ready pool_booting pool_target cordoned capacity_cpus "
	"capacity_memory_mb capacity_disk_mb free_cpus free_memory_mb free_disk_mb".split(), "gauge")
want.update(creates="counter", create_seconds="histogram")
want = {"sandboxd_" + k: v for k, v in want.items()}
assert families == want, set(families.items()) ^ set(want.items())'
}

@test "it is plain text of the format's version, and nothing else is answered" {
	curl -sS -D - -o /dev/null "$(url)" | grep -qi '^content-type: text/plain; version=0.0.4'
	[ "$(curl -sS -o /dev/null -w '%{http_code}' -I "$(url)")" = 200 ]
	for way in /metrics/ / /v1/sandboxes /v1/health; do
		[ "$(curl -sS -o /dev/null -w '%{http_code}' "$(url | sed 's|/metrics||')$way")" = 404 ]
	done
	[ "$(curl -sS -o /dev/null -w '%{http_code}' -X POST -d x "$(url)")" = 404 ]
	# a page in a browser reaches it by another name
	[ "$(curl -sS -o /dev/null -w '%{http_code}' -H 'Host: evil.example' "$(url)")" = 403 ]
	[ "$(curl -sS -o /dev/null -w '%{http_code}' -H 'Host: localhost:1' "$(url)")" = 200 ]
	# nor is it an endpoint of the API
	[ "$(api -o /dev/null -w '%{http_code}' /metrics)" = 404 ]
}

pool_is_full() {
	are 2>/dev/null <<-END
		1 sandboxd_pool_ready image=base
		0 sandboxd_pool_booting image=base
	END
}

@test "the figures follow what happens" {
	for _ in $(seq 100); do
		pool_is_full && break
		sleep 0.1
	done
	are <<-END
		1 sandboxd_pool_ready image=base
		0 sandboxd_pool_booting image=base
		1 sandboxd_pool_target image=base
		0 sandboxd_sandboxes state=running
		8 sandboxd_capacity_cpus
		7 sandboxd_free_cpus
	END
	A=$(post /v1/sandboxes '{"name":"a","cpus":2,"memory_mb":512,"disk_mb":1000,"network":{"mode":"none"}}' | jq -r .id)
	B=$(post /v1/sandboxes '{"name":"b","cpus":0.5,"memory_mb":256,"disk_mb":1000,"network":{"mode":"none"}}' | jq -r .id)
	[ "$(post /v1/sandboxes '{"name":"a"}' | jq -r .error.code)" = conflict ]
	[ "$(post /v1/sandboxes '{"cpus":99}' | jq -r .error.code)" = invalid_request ]
	are <<-END
		2 sandboxd_sandboxes state=running
		0 sandboxd_sandboxes state=pending
		4.5 sandboxd_free_cpus
		6400 sandboxd_free_memory_mb
		87760 sandboxd_free_disk_mb
		$(api /v1/node | jq .free.disk_mb) sandboxd_free_disk_mb
		2 sandboxd_creates_total code=ok
		1 sandboxd_creates_total code=conflict
		1 sandboxd_creates_total code=invalid_request
		2 sandboxd_create_seconds_count
		2 sandboxd_create_seconds_bucket le=+Inf
	END
	post "/v1/sandboxes/$A/processes" '{"argv":["sleep","1000"]}' >/dev/null
	post "/v1/sandboxes/$B/suspend" '' >/dev/null
	are <<-END
		1 sandboxd_processes_running
		1 sandboxd_sandboxes state=suspended
		4.5 sandboxd_free_cpus
	END
	api -X DELETE "/v1/sandboxes/$A"
	api -X DELETE "/v1/sandboxes/$B"
	post /v1/node/cordon '{"cordoned":true}' >/dev/null
	[ "$(post /v1/sandboxes '{}' | jq -r .error.code)" = unavailable ]
	are <<-END
		2 sandboxd_sandboxes state=terminated
		0 sandboxd_processes_running
		7 sandboxd_free_cpus
		1 sandboxd_cordoned
		1 sandboxd_creates_total code=unavailable
	END
	post /v1/node/cordon '{"cordoned":false}' >/dev/null
	are <<<"0 sandboxd_cordoned"
}

@test "the histogram is cumulative and adds up" {
	curl -sS "$(url)" | /usr/bin/python3 -c '
import sys
from prometheus_client.parser import text_string_to_metric_families as parse
h = [f for f in parse(sys.stdin.read()) if f.name == "sandboxd_create_seconds"][0]
buckets = [(float(s.labels["le"]), s.value) for s in h.samples if s.name.endswith("_bucket")]
assert buckets == sorted(buckets) and [b for _, b in buckets] == sorted(b for _, b in buckets)
assert buckets[-1][0] == float("inf") and len(buckets) > 5
count = [s.value for s in h.samples if s.name.endswith("_count")][0]
total = [s.value for s in h.samples if s.name.endswith("_sum")][0]
assert buckets[-1][1] == count == 2 and 0 < total < 60 * count'
}
