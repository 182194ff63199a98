#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Power loss at a few moments; at many in 60_power_long.bats.

load power

setup() {
	CUTS=${POWER_CUTS:-4}
	power_setup
}
teardown() { power_teardown; }

@test "power loss: what was answered is there, pool of disks" {
	command -v mkfs.btrfs >/dev/null || skip "needs btrfs-progs"
	power_loss 3 mkfs.ext4 -q -F -E nodiscard
}

@test "power loss: what was answered is there, an image for each disk" {
	CUTS=${POWER_CUTS:-3}
	SBX_DISK_PROVIDER=loop power_loss 3 mkfs.ext4 -q -F -E nodiscard
}

@test "power loss: during the first start" {
	CUTS=${POWER_CUTS:-3}
	power_loss_at_first_start
}
