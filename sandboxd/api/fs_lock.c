/* SPDX-License-Identifier: MIT */
/* POST …/fs/handles/{h}/lock: {"type":"read"|"write"|"none","offset","length","owner","who","flock",
 * "test"}. Ranges belong to the owner, a number of the client's; length 0 is to the end of all. With
 * flock it is the handle's lock of the whole file. A lock that others have is 409 with EAGAIN: nobody
 * waits here. With test nothing is locked: {"free":true}, or what stands in the way. Locks end with
 * their handle; that of a client not heard from for FS_LOCK_SECS ends then. */
#include "sandboxd/api/files.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <string.h>

static int lock_args(const struct fs_lock_body *b, struct guestfs_args *a, struct err *e)
{
	static const struct {
		const char *word;
		unsigned mode;
	} types[] = { { "none", 0 }, { "read", FILES_LOCK_READ }, { "write", FILES_LOCK_WRITE } };
	size_t n = 0;

	while (n < ARRAY_LEN(types) && strcmp(types[n].word, b->type))
		n++;
	if (n == ARRAY_LEN(types))
		return err_set(e, ERR_INVALID_REQUEST, "type: read, write or none");
	if (b->test && (b->flock || !types[n].mode))
		return err_set(e, ERR_INVALID_REQUEST, "test: of a range, for read or write");
	a->mode = types[n].mode | (b->flock ? FILES_LOCK_FLOCK : 0) | (b->test ? FILES_LOCK_TEST : 0);
	a->offset = (uint64_t)b->offset;
	a->length = (uint64_t)b->length;
	a->offset2 = (uint64_t)b->owner;
	a->uid = (uint32_t)b->who;
	return 0;
}

/* What stands in the way, or that nothing does. */
static json_t *locked_json(const struct guestfs_result *r)
{
	struct files_locked l;

	if (r->value == 0)
		return json_pack("{s:b}", "free", true);
	memcpy(&l, r->data, sizeof(l));
	return json_pack("{s:b, s:s, s:I, s:I, s:I}", "free", false, "type", l.write ? "write" : "read",
		"offset", (json_int_t)(l.offset & INT64_MAX), "length", (json_int_t)(l.length & INT64_MAX),
		"who", (json_int_t)l.who);
}

static int lock_body(struct call *c, const struct fs_lock_body *b, struct err *e)
{
	struct guestfs_args a = { .client = 0 };
	struct guestfs_result r;
	_cleanup_visit_ struct visit v = { .s = NULL };
	json_t *o;

	if (lock_args(b, &a, e) < 0 || files_enter(c, &v, &a.client, e) < 0 || files_handle(c, &a.handle, e) < 0)
		return -1;
	if (guestfs_call(v.s->fs, FILES_LOCK, &a, &r, e) < 0)
		return e->sys == EAGAIN ? err_set_sys(e, ERR_CONFLICT, EAGAIN, "locked by others") : -1;
	o = b->test ? locked_json(&r) : json_object();
	guestfs_result_free(&r);
	return reply_json(c, 200, o);
}

int handle_fs_lock(struct call *c, struct err *e)
{
	struct fs_lock_body b = { .type = NULL };
	int r;

	if (call_decode(c, fs_lock_fields, &b, e) < 0)
		return -1;
	r = lock_body(c, &b, e);
	schema_free(fs_lock_fields, &b);
	return r;
}
