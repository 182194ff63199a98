/* SPDX-License-Identifier: MIT */
#include "sandboxd/priv/net.h"

#include "common/sys/mem.h"

#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int loopback_up(void)
{
	_cleanup_close_ int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo" };

	if (s < 0 || ioctl(s, SIOCGIFFLAGS, &r) < 0)
		return -errno;
	r.ifr_flags |= IFF_UP | IFF_RUNNING;
	return ioctl(s, SIOCSIFFLAGS, &r) < 0 ? -errno : 0;
}

int net_setup(gid_t gid, struct fail *f)
{
	int r = loopback_up();

	if (r < 0)
		return fail_set(f, r, "bring up the loopback interface");
	/* Low ports by the switch instead of a capability: the namespace is not the guest's. */
	r = file_write(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	if (r < 0)
		return fail_set(f, r, "open low ports");
	r = file_write(AT_FDCWD, "/proc/sys/net/ipv4/ping_group_range", "%u %u", gid, gid + 65535);
	return r < 0 ? fail_set(f, r, "set ping_group_range") : 0;
}
