/* SPDX-License-Identifier: MIT */
/* Capabilities (capabilities(7)) of the calling thread, as each of our programs gives them up. */
#ifndef COMMON_SYS_CAPS_H
#define COMMON_SYS_CAPS_H

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Takes all but `kept`, a bit each, out of what a program that it starts could ever get: 0 or -errno. */
static inline int caps_bound(uint64_t kept)
{
	/* Behind the kernel's last one reading fails: it may know more than our headers. */
	for (int c = 0; c < 64 && prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
		if (!(kept & (1ull << c)) && prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0)
			return -errno;
	return 0;
}

/* These are in force; all others are gone for good: 0 or -errno. */
static inline int caps_keep(uint64_t kept)
{
	const uint32_t low = (uint32_t)kept, high = (uint32_t)(kept >> 32);
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	const struct __user_cap_data_struct set[2] = {
		{ .effective = low, .permitted = low },
		{ .effective = high, .permitted = high },
	};

	return syscall(SYS_capset, &head, set) < 0 ? -errno : 0;
}

#endif
