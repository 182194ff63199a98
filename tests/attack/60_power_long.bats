#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Power loss at POWER_CUTS=60 moments of each kind of disk, POWER_SEED=N chooses others.

load power

setup() {
	CUTS=${POWER_CUTS:-60}
	power_setup
}
teardown() { power_teardown; }

@test "power loss at many moments: pool of disks" {
	power_loss 8 mkfs.ext4 -q -F -E nodiscard
}

@test "power loss at many moments: an image for each disk" {
	SBX_DISK_PROVIDER=loop power_loss 8 mkfs.ext4 -q -F -E nodiscard
}

@test "power loss at many moments: during the first start" {
	power_loss_at_first_start
}

@test "power loss at many moments: the state directory is a btrfs" {
	power_loss 8 mkfs.btrfs -q -f
}

@test "power loss at many moments: the state directory is an xfs" {
	command -v mkfs.xfs >/dev/null || skip "needs xfsprogs"
	power_loss 8 mkfs.xfs -q -f
}
