/* SPDX-License-Identifier: MIT */
/* A backend, a hub and sandboxes made with it, without daemon and records; and the contract of
 * guest.h as one list of tests that any backend must pass. */
#ifndef TESTS_SUPPORT_GUEST_RIG_H
#define TESTS_SUPPORT_GUEST_RIG_H

#include "sandboxd/backend/backend.h"
#include "sandboxd/backend/guest.h"
#include "sandboxd/proto/spool.h"
#include "tests/support/patience.h"

#include <pthread.h>
#include <sys/types.h>

enum rig_part { RIG_SHIM, RIG_INIT };
struct guest_rig {
	const struct backend_ops *ops;
	struct backend *backend;
	struct guest_hub *hub;
	bool isolated;       /* the guest has its own root, ids and /proc */
	char state_dir[128];
	int state_dirfd;
	/* Host pid of a part of a sandbox; 0 when it is not known. NULL: those tests are skipped. */
	pid_t (*part)(struct guest_rig *r, const char *id, enum rig_part part);
	unsigned made;
	const struct backend_chain *base; /* what sandboxes stand on; NULL: the backend knows */
};
/* For backends with layers, once it is open: the image base, as layer guest_rig_base. */
extern const struct backend_chain guest_rig_base;
void guest_rig_import_base(struct guest_rig *r);
/* Makes the temporary state folder; for backends that need it before they are opened. */
void guest_rig_prepare(struct guest_rig *r);
/* conf: dirs and broker for the backend's open; its state fields are filled in here. On error it says
 * why, cleans up and returns false. */
bool guest_rig_open(struct guest_rig *r, const struct backend_ops *ops, struct backend_conf *conf);
void guest_rig_close(struct guest_rig *r); /* after prepare alone, too */
/* The folder of the built programs, found from the test program's own place. */
const char *guest_rig_libexec(void);

#define BOX_NUMS 4096
struct box {
	struct guest_rig *rig;
	char id[SBX_ID_MAX];
	int run_dirfd;
	uint64_t generation;
	uint8_t secret[PROTO_SECRET_LEN];
	struct guest *guest;
	struct backend_image image;
	uint32_t next_num;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* under lock */
	unsigned outputs[BOX_NUMS], exits[BOX_NUMS];
	bool gone;
};
struct box *box_new(struct guest_rig *r);
/* With these layers, volumes and this size of disk; the rest as box_new. */
struct box *box_like(struct guest_rig *r, const struct backend_spec *like);
void box_free(struct box *b); /* destroys the sandbox */
int box_connect(struct box *b, struct err *e);

/* A start with defaults: complete env of the image, cwd /sandbox/home, no input. */
struct guest_start box_cmd(struct box *b, const char *const *argv);
/* Makes the spool and starts; the number, or 0 with e. */
uint32_t box_start(struct box *b, struct guest_start *s, struct err *e);
uint32_t box_sh(struct box *b, const char *script); /* asserts that it starts */
bool box_wait_exit(struct box *b, uint32_t num, int ms);
bool box_wait_gone(struct box *b, int ms);

struct spooled {
	char *out[2]; /* NUL-terminated */
	size_t len[2];
	uint64_t dropped[2];
	uint32_t state, runs, flags;
	uint32_t *order;
	int exit_code;
};
void box_read(struct box *b, uint32_t num, struct spooled *ret);
void spooled_free(struct spooled *o);
static inline void spooled_free_p(struct spooled *o)
{
	spooled_free(o);
}
/* Runs a script to its end and returns everything; asserts that it ends in ten seconds. */
void box_run(struct box *b, const char *script, struct spooled *ret);
/* Until stdout holds `text`. */
bool box_wait_output(struct box *b, uint32_t num, const char *text, int ms);

/* Processes of the host whose command line holds `text`, zombies not counted. */
unsigned host_count(const char *text);
bool wait_count(const char *text, unsigned want, int ms);
bool wait_some(const char *text, int ms); /* who has said that it is up may yet have to execute it */
int64_t mono_ms(void);

/* Runs the contract; the group's state is the rig. */
int guest_cases_run(struct guest_rig *r, const char *name);

#endif
