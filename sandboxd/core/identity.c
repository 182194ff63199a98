/* SPDX-License-Identifier: MIT */
/* Every path is resolved by the fork's own file worker, inside the fork. */
#include "sandboxd/core/identity.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define KEYS_MAX 64

/* Their next user makes new ones. */
static const char *const secrets[] = { "/var/lib/systemd/random-seed",
	"/var/lib/urandom/random-seed", "/var/lib/systemd/credential.secret",
	"/var/lib/NetworkManager/secret_key" };
/* Both name the machine; the second is often a link to the first. */
static const char *const machine_ids[] = { "/etc/machine-id", "/var/lib/dbus/machine-id" };

/* What is not there, or below something that is no folder, has nothing to say. */
static int unless_missing(int rc, const struct err *why, struct err *e)
{
	if (rc == 0 || why->sys == ENOENT || why->sys == ENOTDIR || why->sys == ELOOP)
		return 0;
	if (e)
		*e = *why;
	return err_prefix(e, "the fork's own identity: ");
}

/* 1: a file with something in it. */
static int has_content(struct guestfs *fs, const char *path, struct err *e)
{
	struct guestfs_args a = { .path = path };
	struct guestfs_result r = { 0 };
	struct err why = ERR_NULL;
	int rc = guestfs_call(fs, FILES_STAT, &a, &r, &why);
	bool file = rc == 0 && S_ISREG(r.attr.mode) && r.attr.size > 0;

	guestfs_result_free(&r);
	return unless_missing(rc, &why, e) < 0 ? -1 : file;
}

static int write_id(struct guestfs *fs, const char *path, const char *line, struct err *e)
{
	struct guestfs_args a = { .path = path, .data = line, .data_len = strlen(line) };
	struct guestfs_result r = { 0 };
	int there = has_content(fs, path, e), rc;

	if (there <= 0)
		return there;
	rc = guestfs_call(fs, FILES_PUT, &a, &r, e);
	guestfs_result_free(&r);
	return rc < 0 ? err_prefix(e, "%s: ", path) : 0;
}

static int renew_machine_id(struct guestfs *fs, struct err *e)
{
	uint8_t raw[16];
	char line[34];

	if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
		return err_sys(e, errno, "random bytes");
	raw[6] = (raw[6] & 0x0f) | 0x40; /* a random UUID, as its manual wants it */
	raw[8] = (raw[8] & 0x3f) | 0x80;
	for (size_t i = 0; i < sizeof(raw); i++)
		snprintf(line + 2 * i, 3, "%02x", raw[i]);
	memcpy(line + 32, "\n", 2);
	for (size_t i = 0; i < ARRAY_LEN(machine_ids); i++)
		if (write_id(fs, machine_ids[i], line, e) < 0)
			return -1;
	return 0;
}

static int remove_file(struct guestfs *fs, const char *path, struct err *e)
{
	struct guestfs_args a = { .path = path };
	struct guestfs_result r = { 0 };
	struct err why = ERR_NULL;
	int rc = guestfs_call(fs, FILES_UNLINK, &a, &r, &why);

	guestfs_result_free(&r);
	if (rc < 0 && why.sys == EISDIR)
		return 0; /* not such a file, then */
	return unless_missing(rc, &why, e);
}

struct keys {
	char path[KEYS_MAX][64];
	size_t n;
};

static int note_key(void *arg, const struct guestfs_entry *en, struct err *e)
{
	struct keys *k = arg;

	(void)e;
	if (strncmp(en->name, "ssh_host_", 9) || en->name_len > 40 || !strstr(en->name, "_key") ||
		k->n == KEYS_MAX)
		return 0;
	snprintf(k->path[k->n++], sizeof(k->path[0]), "/etc/ssh/%s", en->name);
	return 0;
}

static int remove_host_keys(struct guestfs *fs, struct err *e)
{
	struct guestfs_page page = { .limit = FILES_LIST_MAX };
	struct keys k = { .n = 0 };
	struct err why = ERR_NULL;
	int rc = guestfs_list(fs, "/etc/ssh", &page, note_key, &k, &why);

	if (page.handle)
		guestfs_drop(fs, 0, page.handle);
	if (unless_missing(rc, &why, e) < 0)
		return -1;
	for (size_t i = 0; i < k.n; i++)
		if (remove_file(fs, k.path[i], e) < 0)
			return -1;
	return 0;
}

int identity_renew(struct guestfs *fs, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(secrets); i++)
		if (remove_file(fs, secrets[i], e) < 0)
			return -1;
	return renew_machine_id(fs, e) < 0 ? -1 : remove_host_keys(fs, e);
}
