/* SPDX-License-Identifier: MIT */
/* Which of the host's mounts stay in a namespace that lives long. */
#include "common/sys/mounts.h"
#include "tests/support/test.h"

static void the_system_and_the_way_to_what_is_needed_stay(void **state)
{
	static const char *const need[] = { "/srv/box/state", "/home/me/build/bin", NULL };
	static const struct {
		const char *dir, *type;
		bool stays;
	} rows[] = {
		{ "/", "ext4", true },
		{ "/usr", "ext4", true },
		{ "/usr/local", "ext4", true },
		{ "/etc/resolv.conf", "ext4", true },
		{ "/sys/fs/cgroup/unified", "cgroup2", true },
		{ "/groups", "cgroup", true },
		{ "/run", "tmpfs", true },
		{ "/run/user/1000/doc", "fuse.portal", false },
		{ "/var", "ext4", true },
		{ "/var/lib/other", "xfs", false },
		{ "/tmp", "tmpfs", true },
		{ "/tmp/x", "tmpfs", false },
		{ "/srv", "xfs", true },
		{ "/srv/box", "xfs", true },
		{ "/srv/box/state", "btrfs", true },
		{ "/srv/box/state/priv/pool", "btrfs", true },
		{ "/srv/box/state2", "btrfs", false },
		{ "/srv/bo", "btrfs", false },
		{ "/home", "nfs", true },
		{ "/home/me", "nfs", true },
		{ "/home/you", "nfs", false },
		{ "/mnt/sandboxes", "fuse.sbxfs", false },
		{ "/media/disk", "vfat", false },
		{ "/systems", "ext4", false },
	};

	(void)state;
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++)
		if (mounts_needed(rows[n].dir, rows[n].type, need) != rows[n].stays)
			fail_msg("%s", rows[n].dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_system_and_the_way_to_what_is_needed_stay),
	};

	return cmocka_run_group_tests_name("mounts", tests, NULL, NULL);
}
