/* SPDX-License-Identifier: MIT */
/* The one thread that reads the events of every guest. Inside the backend folder only. */
#ifndef SANDBOXD_BACKEND_HUB_H
#define SANDBOXD_BACKEND_HUB_H

#include "sandboxd/backend/guest.h"

/* One guest's events. Owned by the guest; the hub touches it only while it is registered. */
struct hub_entry {
	uint64_t key;            /* names it in the poll set: a pointer could be stale */
	struct hub_entry *next;
	int fd;                  /* non-blocking EVENTS connection; closed by hub_remove */
	const struct guest_watch *watch;
	void *arg;
	size_t got;
	struct proto_frame frames[64];
};
int hub_add(struct guest_hub *h, struct hub_entry *e_, struct err *e);
/* Nothing new is read for it; what is under way may still call back. */
void hub_mute(struct guest_hub *h, const struct hub_entry *e_);
/* No callback runs for it afterwards; waits for one under way unless called from one. */
void hub_remove(struct guest_hub *h, struct hub_entry *e_);

#endif
