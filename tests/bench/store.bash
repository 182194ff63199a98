# SPDX-License-Identifier: MIT
# A folder on a disk like a sandbox's own, for the ways that the mount is compared with: an overlay whose upper
# layer is a subvolume of a btrfs in a file. On another kind of disk a table would compare disks.

# store_make DIR: mounts it at DIR/store. 1: not possible here, and nothing is left.
store_make() {
	command -v mkfs.btrfs >/dev/null && mkdir -p "$1"/{pool,store,lower} && truncate -s 64G "$1/pool.btrfs" &&
		mkfs.btrfs -q -f -K -m single -d single "$1/pool.btrfs" >/dev/null &&
		store_loop=$(losetup --find --show --direct-io=on --sector-size 4096 "$1/pool.btrfs") &&
		mount -t btrfs -o nosuid,nodev,relatime "$store_loop" "$1/pool" &&
		btrfs -q subvolume create "$1/pool/area" && mkdir "$1"/pool/area/{upper,work} &&
		mount -t overlay -o "lowerdir=$1/lower,upperdir=$1/pool/area/upper,workdir=$1/pool/area/work,redirect_dir=on,xino=auto,index=off,metacopy=off,volatile" \
			bench "$1/store" && return 0
	store_end "$1"
	return 1
}
store_end() { # DIR
	for m in store pool; do mountpoint -q "$1/$m" && umount -l "$1/$m"; done
	[ -z "${store_loop:-}" ] || losetup -d "$store_loop"
	store_loop=
	rm -f "$1/pool.btrfs"
}
