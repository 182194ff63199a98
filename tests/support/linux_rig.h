/* SPDX-License-Identifier: MIT */
/* The linux backend with a broker of its own, for test programs that run as root. */
#ifndef TESTS_SUPPORT_LINUX_RIG_H
#define TESTS_SUPPORT_LINUX_RIG_H

#include "tests/support/guest_rig.h"

struct linux_rig {
	struct guest_rig rig; /* first: the two are told apart by nobody */
	const char *provider; /* of disks; NULL: the first that works */
	const char *fault;    /* a point at which a part of the broker is killed, common/sys/fault.h */
	pid_t broker;
	int broker_fd;
};
/* Sentence why these tests cannot run here, or NULL. */
const char *linux_rig_missing(void);
/* Folder, broker, backend, first sweep, base. */
void linux_rig_open(struct linux_rig *l);
/* Ends every sandbox and the broker, removes the folder, waits until the broker's groups have gone. */
void linux_rig_close(struct linux_rig *l);
/* kill -9 of the broker; then a new one on the same folder, without a sweep. */
void linux_rig_kill_broker(struct linux_rig *l);
void linux_rig_restart(struct linux_rig *l);

/* The control groups of a broker on that folder, which it names after it. They have to go with it. */
#define RIG_GROUPS_NAME 40
void rig_groups_name(char name[RIG_GROUPS_NAME], const char *state_dir);
void rig_groups_gone(const char *name);

/* What sandboxes could leave on this host. */
struct leftovers {
	unsigned groups; /* folders below this rig's control groups */
	unsigned areas, records;
	unsigned loops;     /* loop devices backed by files of this rig */
	unsigned mounts;    /* in this test's mount namespace */
	unsigned processes; /* of this rig's broker and sandboxes */
};
void linux_rig_count(struct linux_rig *l, struct leftovers *ret);
/* Waits until no more records and areas are there than before; spare sandboxes have neither. */
bool linux_rig_wait_clean(struct linux_rig *l, const struct leftovers *before, int ms);

#endif
