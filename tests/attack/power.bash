# SPDX-License-Identifier: MIT
# Power loss. The state directory lies on a disk that notes each write and each flush (powerdisk.c). A server works
# on it; then the disk is made anew as it may be when the power went at some moment: everything that was flushed by
# then, and of the rest nothing, all, a part in any order, or torn sectors of it. On each of these a server must
# start, everything that was answered must be there, and all must work.
#
# CUTS: at how many moments of each test; POWER_SEED=N chooses others. A test that fails says where it cut.

load ../linux/records

power_setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	[ -e /dev/fuse ] && [ -e /dev/loop-control ] || skip "needs /dev/fuse and /dev/loop-control"
	records_setup
	PD=$O/tests/attack/powerdisk
	RANDOM=${POWER_SEED:-1}
	LOOP= FUSE=
	mkdir "$D/state" "$D/p"
	# After a power loss the machine starts anew. The disk is mounted where only the server sees it: other
	# mount namespaces, which are made all the time, would hold it.
	cat /proc/sys/kernel/random/boot_id >"$D/boot"
	VIA=(unshare -m sh -c 'mount --bind "$1/boot" /proc/sys/kernel/random/boot_id &&
		mount -o noatime "$1/loop" "$1/state" && chmod 700 "$1/state" && shift && exec "$@"' - "$D")
}
power_teardown() {
	[ -n "${D:-}" ] && [ -d "$D" ] || return 0
	[ -n "${BATS_TEST_COMPLETED:-}" ] || tail -n 8 "$D/log" >&2 || true
	stop_all || true
	[ -z "$LOOP" ] || disk_down || true
	fuse_down
	rm -rf --one-file-system "$D"
}

# --- the disk ---

# disk_up IMAGE [LOG]: the state directory will lie on it; with a LOG its writes are noted.
disk_up() {
	local file=$1
	if [ -n "${2:-}" ]; then
		"$PD" serve "$D/p" "$1" "$2" 2>>"$D/log" 3>&- &
		FUSE=$!
		file=$D/p/disk
		await 100 test -e "$file"
	fi
	LOOP=$(losetup -f --show "$file")
	ln -sfn "$LOOP" "$D/loop"
}
detached() { [ -z "$(losetup -nO BACK-FILE "$LOOP" 2>/dev/null)" ]; }
fuse_down() {
	[ -n "$FUSE" ] || return 0
	kill "$FUSE" || true
	wait "$FUSE" || true
	FUSE=
}
disk_down() {
	losetup -d "$LOOP" 2>/dev/null || true
	await 1200 detached # with the last process of the server, and its network namespaces, which the kernel takes its time for
	LOOP=
	fuse_down
}
stop_all() {
	local id
	[ -n "$SRV" ] || return 0
	for id in $(get /v1/sandboxes | jq -r '.sandboxes[] | select(.state != "terminated") | .id'); do
		[ "$(code DELETE "/v1/sandboxes/$id")" = 204 ]
	done
	stop
}
new_boot() { printf '%08x-0000-4000-8000-%012x\n' "$RANDOM" "$RANDOM" >"$D/boot"; }

# --- what is done, and what was promised ---

mark() { echo "$*" >"$D/p/mark"; }
# step KEY VALUE COMMAND...: VALUE is asked for, then promised; - is nothing, ? what the answer says
step() {
	local key=$1 value=$2 out
	shift 2
	mark "want $key $value"
	out=$("$@")
	[ "$value" != '?' ] || value=$out
	mark "have $key $value"
}
is() { # CODE METHOD PATH [BODY]
	local want=$1 got
	shift
	got=$(code "$@")
	[ "$got" = "$want" ] || { echo "$* answered $got" >&2; return 1; }
}
promised() { awk -v k="$1" '$2 == "have" && $3 == k { v = $4 } END { print v }' < <("$PD" marks "$D/log.disk"); }
fill_volume() { # NAME TEXT
	local w
	w=$(new "{\"volumes\":[{\"name\":\"$1\",\"path\":\"/data\"}]}")
	guest "$w" "echo $2 | dd of=/data/f conv=fsync 2>/dev/null && echo synced" | grep -q synced
	mark "have file/$1 $2"
	is 204 DELETE "/v1/sandboxes/$w"
}
work() { # ROUNDS
	local i a
	for i in $(seq "$1"); do
		step "box/$i" '?' new "{\"name\":\"b$i\"}"
		a=$(promised "box/$i")
		step "label/$i" "l$i" is 200 PATCH "/v1/sandboxes/$a" "{\"labels\":{\"k\":\"l$i\"}}"
		step "vol/$i" 16 is 201 POST /v1/volumes "{\"name\":\"v$i\",\"size_mb\":16}"
		mark "want file/v$i one"
		fill_volume "v$i" one
		guest "$a" "echo content-$i > f" >/dev/null
		step "snap/$i" '?' snap "$a"
		[ $((i % 2)) = 1 ] || continue
		mark "want file/v$i two"
		fill_volume "v$i" two
		step "label/$i" "m$i" is 200 PATCH "/v1/sandboxes/$a" "{\"labels\":{\"k\":\"m$i\"}}"
		[ "$i" != 1 ] || continue
		step "snap/$((i - 1))" - is 204 DELETE "/v1/snapshots/$(promised "snap/$((i - 1))")"
		step "vol/$((i - 1))" - is 204 DELETE "/v1/volumes/v$((i - 1))"
		is 204 DELETE "/v1/sandboxes/$(promised "box/$((i - 1))")"
	done
}

# --- what is there ---

# box ID, or "-"; after a power loss nothing runs
check_boxes() {
	get /v1/sandboxes >"$D/boxes"
	jq -e '[.sandboxes[] | select(.state != "terminated")] == []' "$D/boxes" >/dev/null ||
		{ echo "something runs" >&2; return 1; }
	get /v1/volumes >"$D/volumes"
	get /v1/snapshots >"$D/snapshots"
}
# Every volume that is listed, mounted at /v/NAME in one sandbox: "NAME TEXT" lines
read_volumes() {
	local all w
	all=$(jq -c '[.volumes[] | {name, path: ("/v/" + .name)}]' "$D/volumes")
	: >"$D/files"
	[ "$all" != '[]' ] || return 0
	w=$(new "{\"volumes\":$all}")
	guest "$w" 'cd /v; for v in *; do echo $v $(cat $v/f 2>/dev/null || echo -); done; for v in *; do echo x > $v/new || echo FAILED; done' >"$D/files"
	if grep FAILED "$D/files" >&2; then return 1; fi
	is 204 DELETE "/v1/sandboxes/$w"
}
value_of() { # KEY: what is there now
	local n=${1#*/}
	case $1 in
	box/*) jq -r --arg i "$2" '[.sandboxes[] | select(.id == $i).id][0] // "-"' "$D/boxes" ;;
	label/*) jq -r --arg i "$2" '[.sandboxes[] | select(.id == $i).labels.k][0] // "-"' "$D/boxes" ;;
	vol/*) jq -r --arg n "v$n" '[.volumes[] | select(.name == $n).size_mb][0] // "-"' "$D/volumes" ;;
	snap/*) jq -r --arg i "$2" '[.snapshots[] | select(.id == $i).id][0] // "-"' "$D/snapshots" ;;
	file/*) awk -v n="$n" '$1 == n { print $2; there = 1 } END { if (!there) print "absent" }' "$D/files" ;;
	esac
}
# Lines "KEY HAVE WANTS...": what was promised last, and what was asked for since.
promises() {
	"$PD" marks "$D/log.disk" "$1" | awk '
		$2 == "want" { seen[$3]; want[$3] = want[$3] " " $4 }
		$2 == "have" { seen[$3]; have[$3] = $4; want[$3] = "" }
		END { for (k in seen) print k, (k in have ? have[k] : "-") want[k] }' | sort
}
check_promises() { # AT
	local key have want id is
	while read -r key have want; do
		id=$have
		[ "${key%%/*}" != label ] || id=$(awk -v k="box/${key#*/}" '$1 == k { print $2 }' "$D/promises")
		is=$(value_of "$key" "$id")
		[[ " $have $want " != *" $is "* && " $want " != *" ? "* ]] || continue
		[ "$key $is" != "$key absent" ] || continue # its volume says enough
		echo "$key is $is, promised $have${want:+, asked for $want}" >&2
		return 1
	done <"$D/promises"
}
# Each snapshot that is listed is whole.
check_snapshots() {
	local s f n
	for s in $(jq -r '.snapshots[].id' "$D/snapshots"); do
		f=$(fork "$s")
		n=$(awk -v s="$s" '$1 ~ /^snap\// && $2 == s { print substr($1, 6) }' "$D/promises")
		guest "$f" 'cat f' | grep -qx "content-${n:-[0-9]*}" || { echo "snapshot $s of $n has lost its content" >&2; return 1; }
		is 204 DELETE "/v1/sandboxes/$f"
	done
}
check_works() {
	local a
	a=$(new)
	[ "$(guest "$a" 'echo x > f; cat f')" = x ]
	is 204 DELETE "/v1/sandboxes/$a"
}
check_all() { # AT
	promises "$1" >"$D/promises"
	check_boxes
	read_volumes
	check_promises
	check_snapshots
	check_works
	agree
}

# --- cutting ---

# Every second moment is the one right after a promise.
moments() { # N
	local have all last i
	mapfile -t have < <("$PD" marks "$D/log.disk" | awk '$2 == "have" { print $1 + 1 }')
	last=$("$PD" marks "$D/log.disk" | tail -n1)
	for i in $(seq "$1"); do
		if [ $((i % 2)) = 1 ] && [ ${#have[@]} -gt 0 ]; then
			echo "${have[$((RANDOM % ${#have[@]}))]}"
		else
			echo $(((RANDOM * 32768 + RANDOM) % last))
		fi
	done
}
# The host's own file system writes its superblock in place, too. One that is torn is what a boot's fsck is for.
host_boots() {
	unshare -m mount -o noatime "$LOOP" "$D/p" 2>>"$D/log" || e2fsck -fy "$LOOP" >>"$D/log" 2>&1 || [ $? = 1 ]
}
# cut_and_look CHECK: at CUTS moments
cut_and_look() {
	local at how n=0 ways=(none some torn all)
	for at in $(moments "$CUTS"); do
		how=${ways[$((n % 4))]}
		[ $((n % 2)) = 0 ] && [ $((RANDOM % 2)) = 0 ] && how=none
		n=$((n + 1))
		echo "cut at $at, $how, $n" >&2
		cp --sparse=always "$D/before" "$D/after"
		"$PD" cut "$D/log.disk" "$at" "$how" "$n" "$D/after"
		new_boot
		disk_up "$D/after"
		[ "$how" != torn ] || host_boots
		start
		"$1" "$at"
		stop_all
		disk_down
	done
	echo "cut at $n moments of $("$PD" marks "$D/log.disk" | tail -n1)" >&2
}
# power_loss ROUNDS MKFS...
power_loss() {
	local rounds=$1
	shift
	truncate -s 1200M "$D/before"
	"$@" "$D/before" >/dev/null
	disk_up "$D/before"
	start
	check_works
	stop_all
	disk_down
	cp --sparse=always "$D/before" "$D/live"
	disk_up "$D/live" "$D/log.disk"
	start
	work "$rounds"
	stop_all
	disk_down
	cut_and_look check_all
}

first_start() {
	check_boxes
	check_works
	agree
}
power_loss_at_first_start() {
	truncate -s 1200M "$D/before"
	mkfs.ext4 -q -F -E nodiscard "$D/before"
	cp --sparse=always "$D/before" "$D/live"
	disk_up "$D/live" "$D/log.disk"
	start
	check_works
	stop_all
	disk_down
	cut_and_look first_start
}
