/* SPDX-License-Identifier: MIT */
/* The guest contract on the fake backend. */
#include "tests/support/guest_rig.h"
#include "tests/support/test.h"

#include <fcntl.h>

/* run/<id>/pid: generation, then pid and start time of shim and init. */
static pid_t fake_part(struct guest_rig *r, const char *id, enum rig_part part)
{
	char path[128], buf[256], *p = buf;

	snprintf(path, sizeof(path), "run/%s/pid", id);
	_cleanup_close_ int fd = openat(r->state_dirfd, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, buf, sizeof(buf) - 1);
	if (n <= 0)
		return 0;
	buf[n] = 0;
	(void)strtoull(p, &p, 10);
	for (unsigned i = 0; i < 2 * (unsigned)part; i++)
		(void)strtoull(p, &p, 10);
	return (pid_t)strtol(p, &p, 10);
}

int main(void)
{
	struct backend_conf conf = { .libexec_dir = guest_rig_libexec(), .broker_fd = -1 };
	struct guest_rig r = { .part = fake_part };

	if (!guest_rig_open(&r, &fake_backend, &conf))
		return 1;
	int failed = guest_cases_run(&r, "guest on fake");
	guest_rig_close(&r);
	return failed;
}
