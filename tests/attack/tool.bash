# SPDX-License-Identifier: MIT
# A server in whose mount namespace /usr/bin/skopeo is a program that does what the image's name says
# (tests/attack/liar/tool.py): a run that its registry has taken over. sbx-pull, its cells and the front are the
# product's.
load helper

setup_file() {
	attack_up
	[ "$(id -u)" = 0 ] && [ -x /usr/bin/skopeo ] || return 0
	REAL=$O/bin
	install -m 755 tests/attack/liar/tool.py "$T/tool"
	mkdir -p "$T/o/bin"
	ln -s "$REAL"/sbx-* "$T/o/bin"
	printf '#!/bin/sh\nexec unshare -m sh -c '\''mount --bind "%s" /usr/bin/skopeo && exec "%s/sandboxd" "$@"'\'' sandboxd "$@"\n' \
		"$T/tool" "$REAL" >"$T/o/bin/sandboxd"
	chmod 755 "$T/o/bin/sandboxd"
	O=$T/o
	server u
}
setup() {
	attack_setup
	[ -x /usr/bin/skopeo ] && [ -x /usr/bin/python3 ] || skip "skopeo or python3 is not installed"
	on u
}
teardown() { true; }
teardown_file() { attack_down; }

name() { echo "registry.test/lie-$1:1"; }
image() { api /v1/images | jq -c --arg i "$(name "$1")" '.images[] | select(.image == $i)'; }
over() { [ "$(image "$1" | jq -r .state)" != installing ]; }
asked() { post /v1/images "{\"image\": \"$(name "$1")\"}" >/dev/null; }
remove() { api -X DELETE "/v1/images?image=$(name "$1")" >/dev/null; }
lie() { # NAME: what the run said in the end, or what was said of it
	asked "$1"
	await 60 over "$1"
	image "$1" | jq -r .error | sed 's/.*: //'
	remove "$1"
}
nothing_fetched() { [ -z "$(find "$D/state/pull" -mindepth 1 ! -name '.cell-[0-3]')" ]; }
held() { [ -n "$(find "$D/state/pull" -name held)" ]; }
desk() { # the process that looks after the cells
	local p
	for p in $(pgrep -x sbx-pull -u "$(stat -c %u "$D/state")"); do
		tr '\0' '\n' <"/proc/$p/cmdline" | grep -qx "$D/state" || continue
		[ "$(awk '/^NSpid:/{print NF - 1}' "/proc/$p/status")" != 2 ] || echo "$p"
	done
}
cells() { pgrep -x sbx-pull -P "$(desk)" -r S; }
end_cell() { # PID: until it holds nothing any more
	kill -9 "$1"
	await 30 eval "[ ! -e /proc/$1 ]"
}
fds() { # of the desk and its cells
	local p n=0
	for p in $(desk) $(cells); do n=$((n + $(ls "/proc/$p/fd" | wc -l))); done
	echo $n
}
runs_of() { pgrep -P "$(cells | paste -sd,)" -f "python3 .*lie-$1:"; }
run_of() { runs_of "$1" | head -n1; }
