/* SPDX-License-Identifier: MIT */
/* sbx-fs/1 through the whole server: what is refused and in which order; that every operation has the
 * same result as its plain request; what counts as use and what is logged; who ends it. */
#include "tests/support/fsc.h"
#include "tests/support/suite.h"

#include "common/sys/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define UPGRADE "Connection: Upgrade\r\nUpgrade: sbx-fs/1\r\n"
#define BACK    "Sandbox-Background: 1\r\n"
#define HOME    "/sandbox/home"

static struct rig *rig;
static const char *id;

/* One try; 101: *c is ready for the hello. */
static int try(const char *ref, const char *headers, struct fsc *c)
{
	int fd = rig_open(rig, "GET", rig_path("/v1/sandboxes/%s/fs", ref), headers, NULL, NULL, 0);
	_cleanup_answer_ struct answer a = httpc_head(fd);
	char v[64];

	if (a.status != 101) {
		close(fd);
		return a.status;
	}
	assert_string_equal(answer_header(&a, "Upgrade", v, sizeof(v)), "sbx-fs/1");
	fsc_init(c, fd);
	return 101;
}

static void up(struct fsc *c, const char *ref, const char *headers)
{
	assert_int_equal(try(ref, headers, c), 101);
	(void)fsc_hello(c);
}

/* --- opening --------------------------------------------------------------------------------- */

static void openings_are_checked_in_order(void **state)
{
	static const struct {
		const char *ref, *headers;
		int status;
	} rows[] = {
		{ "nobody", NULL, 400 },
		{ "nobody", "Connection: Upgrade\r\nUpgrade: sbx-fs/2\r\n", 400 },
		{ "nobody", "Upgrade: sbx-fs/1\r\n", 400 },
		{ "nobody", UPGRADE, 404 },
		{ "ended", UPGRADE, 409 },
		{ "ended", UPGRADE BACK, 409 },
	};
	struct fsc c;

	(void)state;
	(void)rig_sandbox(rig, "{\"name\":\"ended\"}");
	rig_end(rig, "ended");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(try(rows[i].ref, rows[i].headers, &c), rows[i].status);
}

static void there_are_sixteen_a_sandbox(void **state)
{
	struct fsc c[FS_CONNS_MAX + 1];

	(void)state;
	for (unsigned i = 0; i < FS_CONNS_MAX; i++)
		up(&c[i], id, UPGRADE);
	assert_int_equal(try(id, UPGRADE, &c[FS_CONNS_MAX]), 503);
	fsc_fini(&c[5]);
	for (int i = 0; i < 1000; i++) { /* its end is noticed a moment later */
		if (try(id, UPGRADE, &c[5]) == 101)
			break;
		assert_true(i < 999);
		rig_pause(10);
	}
	for (unsigned i = 0; i < FS_CONNS_MAX; i++)
		fsc_fini(&c[i]);
}

/* --- the same results ------------------------------------------------------------------------ */

/* `$` in a text is the folder of one of the two ways. */
static char *fill(const char *text, const char *dir, char out[512])
{
	char *p = out;

	for (; text && *text; text++) {
		if (*text == '$')
			p += sprintf(p, "%s", dir);
		else
			*p++ = *text;
		assert_true(p - out < 500);
	}
	*p = '\0';
	return text ? out : NULL;
}

static const char *name_of(int64_t value)
{
	switch (-value) {
	case FILES_E_NOTREG:
		return "EINVAL";
	case FILES_E_REFUSED:
		return "EPERM";
	case FILES_E_RACED:
		return "EAGAIN";
	case FILES_E_HANDLE:
		return "ESTALE";
	}
	return strerrorname_np((int)-value);
}

#define F(...) { __VA_ARGS__ }
static const struct pair {
	const char *plain; /* an element of "ops" */
	enum files_op op;
	struct guestfs_args a; /* paths with $ */
} pairs[] = {
	{ "{'op':'mkdir','path':'$/n','mode':'0750'}", FILES_MKDIR, F(.path = "$/n", .mode = 0750) },
	{ "{'op':'mkdir','path':'$/n'}", FILES_MKDIR, F(.path = "$/n", .mode = 0755) },
	{ "{'op':'mkdir','path':'$/none/n'}", FILES_MKDIR, F(.path = "$/none/n", .mode = 0755) },
	{ "{'op':'mkdir','path':'$/f/n'}", FILES_MKDIR, F(.path = "$/f/n", .mode = 0755) },
	{ "{'op':'symlink','path':'$/s','target':'../x'}", FILES_SYMLINK, F(.path = "$/s", .path2 = "../x") },
	{ "{'op':'symlink','path':'$/s','target':'y'}", FILES_SYMLINK, F(.path = "$/s", .path2 = "y") },
	{ "{'op':'link','from':'$/f','to':'$/h'}", FILES_LINK, F(.path = "$/f", .path2 = "$/h") },
	{ "{'op':'link','from':'$/d','to':'$/hd'}", FILES_LINK, F(.path = "$/d", .path2 = "$/hd") },
	{ "{'op':'link','from':'$/f','to':'$/h'}", FILES_LINK, F(.path = "$/f", .path2 = "$/h") },
	{ "{'op':'mknod','path':'$/p2','type':'fifo','mode':'0600'}", FILES_MKNOD,
		F(.path = "$/p2", .mode = S_IFIFO | 0600) },
	{ "{'op':'mknod','path':'$/c','type':'char','mode':'0600'}", FILES_MKNOD,
		F(.path = "$/c", .mode = S_IFCHR | 0600) },
	{ "{'op':'chmod','path':'$/f','mode':'0604'}", FILES_SETATTR,
		F(.path = "$/f", .mode = 0604, .flags = FILES_SET_MODE) },
	{ "{'op':'chmod','path':'$/l','mode':'0600'}", FILES_SETATTR,
		F(.path = "$/l", .mode = 0600, .flags = FILES_SET_MODE) },
	{ "{'op':'chmod','path':'$/l','mode':'0640','follow':true}", FILES_SETATTR,
		F(.path = "$/l", .mode = 0640, .flags = FILES_SET_MODE | FILES_FOLLOW) },
	{ "{'op':'utimes','path':'$/f','mtime':'7.000000005'}", FILES_SETATTR,
		F(.path = "$/f", .mtime = { .sec = 7, .nsec = 5 }, .flags = FILES_SET_MTIME) },
	{ "{'op':'truncate','path':'$/f','size':3}", FILES_SETATTR,
		F(.path = "$/f", .offset = 3, .flags = FILES_SET_SIZE) },
	{ "{'op':'truncate','path':'$/d','size':3}", FILES_SETATTR,
		F(.path = "$/d", .offset = 3, .flags = FILES_SET_SIZE) },
	{ "{'op':'truncate','path':'$/p','size':3}", FILES_SETATTR,
		F(.path = "$/p", .offset = 3, .flags = FILES_SET_SIZE) },
	{ "{'op':'truncate','path':'$/none','size':3}", FILES_SETATTR,
		F(.path = "$/none", .offset = 3, .flags = FILES_SET_SIZE) },
	{ "{'op':'fallocate','path':'$/f','length':9}", FILES_FALLOCATE, F(.path = "$/f", .length = 9) },
	{ "{'op':'fallocate','path':'$/d','length':9}", FILES_FALLOCATE, F(.path = "$/d", .length = 9) },
	{ "{'op':'copy','from':'$/big','to':'$/f','offset':1,'to_offset':2,'length':500}", FILES_COPY,
		F(.path = "$/big", .path2 = "$/f", .offset = 1, .offset2 = 2, .length = 500) },
	{ "{'op':'copy','from':'$/none','to':'$/f','length':5}", FILES_COPY,
		F(.path = "$/none", .path2 = "$/f", .length = 5) },
	{ "{'op':'copy','from':'$/big','to':'$/big','offset':0,'to_offset':2,'length':5}", FILES_COPY,
		F(.path = "$/big", .path2 = "$/big", .offset2 = 2, .length = 5) },
	{ "{'op':'setxattr','path':'$/f','name':'user.k','value':'YWJj'}", FILES_XATTR_SET,
		F(.path = "$/f", .path2 = "user.k", .data = "abc", .data_len = 3) },
	{ "{'op':'setxattr','path':'$/f','name':'user.k','value':'YWJj','flags':['create']}",
		FILES_XATTR_SET, F(.path = "$/f", .path2 = "user.k", .data = "abc", .data_len = 3, .mode = 1) },
	{ "{'op':'setxattr','path':'$/f','name':'user.q','value':'YWJj','flags':['replace']}",
		FILES_XATTR_SET, F(.path = "$/f", .path2 = "user.q", .data = "abc", .data_len = 3, .mode = 2) },
	{ "{'op':'setxattr','path':'$/f','name':'system.posix_acl_access','value':'YQ=='}",
		FILES_XATTR_SET,
		F(.path = "$/f", .path2 = "system.posix_acl_access", .data = "a", .data_len = 1) },
	{ "{'op':'setxattr','path':'$/f','name':'trusted.x','value':'YQ=='}", FILES_XATTR_SET,
		F(.path = "$/f", .path2 = "trusted.x", .data = "a", .data_len = 1) },
	{ "{'op':'getxattr','path':'$/f','name':'user.k'}", FILES_XATTR_GET,
		F(.path = "$/f", .path2 = "user.k") },
	{ "{'op':'getxattr','path':'$/f','name':'user.none'}", FILES_XATTR_GET,
		F(.path = "$/f", .path2 = "user.none") },
	{ "{'op':'getxattr','path':'$/p','name':'user.k'}", FILES_XATTR_GET,
		F(.path = "$/p", .path2 = "user.k") },
	{ "{'op':'listxattr','path':'$/f'}", FILES_XATTR_LIST, F(.path = "$/f") },
	{ "{'op':'removexattr','path':'$/f','name':'user.k'}", FILES_XATTR_REMOVE,
		F(.path = "$/f", .path2 = "user.k") },
	{ "{'op':'removexattr','path':'$/f','name':'user.k'}", FILES_XATTR_REMOVE,
		F(.path = "$/f", .path2 = "user.k") },
	{ "{'op':'rename','from':'$/f','to':'$/g'}", FILES_RENAME, F(.path = "$/f", .path2 = "$/g") },
	{ "{'op':'rename','from':'$/f','to':'$/g2'}", FILES_RENAME, F(.path = "$/f", .path2 = "$/g2") },
	{ "{'op':'rename','from':'$/g','to':'$/d'}", FILES_RENAME, F(.path = "$/g", .path2 = "$/d") },
	{ "{'op':'rename','from':'$/d','to':'$/d/x/in'}", FILES_RENAME,
		F(.path = "$/d", .path2 = "$/d/x/in") },
	{ "{'op':'rename','from':'$/g','to':'$/big','flags':['noreplace']}", FILES_RENAME,
		F(.path = "$/g", .path2 = "$/big", .flags = FILES_NOREPLACE) },
	{ "{'op':'rename','from':'$/g','to':'$/big','flags':['exchange']}", FILES_RENAME,
		F(.path = "$/g", .path2 = "$/big", .flags = FILES_EXCHANGE) },
	{ "{'op':'unlink','path':'$/d'}", FILES_UNLINK, F(.path = "$/d") },
	{ "{'op':'unlink','path':'$/s'}", FILES_UNLINK, F(.path = "$/s") },
	{ "{'op':'unlink','path':'$/s'}", FILES_UNLINK, F(.path = "$/s") },
	{ "{'op':'rmdir','path':'$/d'}", FILES_RMDIR, F(.path = "$/d") },
	{ "{'op':'rmdir','path':'$/g'}", FILES_RMDIR, F(.path = "$/g") },
	{ "{'op':'rmdir','path':'$/n'}", FILES_RMDIR, F(.path = "$/n") },
	{ "{'op':'rmdir','path':'/'}", FILES_RMDIR, F(.path = "/") },
	{ "{'op':'unlink','path':'$/p'}", FILES_UNLINK, F(.path = "$/p") },
};

/* What the two answers say, in one form: "errno" or numbers. */
static void plain_says(const char *dir, const struct pair *p, char out[512])
{
	char text[512], quoted[600];
	json_t *o, *r, *t;

	fill(p->plain, dir, text);
	for (char *c = text; *c; c++)
		*c = *c == '\'' ? '"' : *c;
	snprintf(quoted, sizeof(quoted), "{\"ops\":[%s]}", text);
	o = rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/fs/ops", id), quoted, 200);
	r = json_array_get(json_object_get(o, "results"), 0);
	t = json_object_get(r, "error");
	if (t) {
		snprintf(out, 512, "%s", json_string_value(json_object_get(t, "errno")));
	} else {
		json_t *a = json_object_get(r, "attr");
		const char *v = json_string_value(json_object_get(r, "value"));
		snprintf(out, 512, "mode %lld nlink %lld size %lld uid %lld mtime7 %d copied %lld value %d names %d",
			json_integer_value(json_object_get(a, "mode")),
			json_integer_value(json_object_get(a, "nlink")),
			json_integer_value(json_object_get(a, "size")),
			json_integer_value(json_object_get(a, "uid")),
			a && !strcmp(json_string_value(json_object_get(a, "mtime")), "7.000000005"),
			json_integer_value(json_object_get(r, "copied")), v && !strcmp(v, "YWJj"),
			(int)json_array_size(json_object_get(r, "names")));
	}
	json_decref(o);
}

static void frames_say(struct fsc *c, const char *dir, const struct pair *p, char out[512])
{
	char one[512], two[512];
	struct guestfs_args a = p->a;
	struct fsc_answer ans;
	int64_t v;

	a.path = a.path ? fill(a.path, dir, one) : NULL;
	a.path2 = a.path2 ? fill(a.path2, dir, two) : NULL;
	v = fsc_call(c, p->op, &a, &ans);
	if (v < 0) {
		snprintf(out, 512, "%s", name_of(v));
	} else {
		const struct files_attr *t = &ans.rep.attr;
		int names = 0;
		for (uint32_t i = 0; p->op == FILES_XATTR_LIST && i < ans.rep.data_len; i++)
			names += !ans.data[i];
		snprintf(out, 512, "mode %lld nlink %lld size %lld uid %lld mtime7 %d copied %lld value %d names %d",
			(long long)(t->mode & 07777), (long long)t->nlink, (long long)t->size,
			(long long)t->uid, t->mtime.sec == 7 && t->mtime.nsec == 5,
			p->op == FILES_COPY ? (long long)v : 0,
			p->op == FILES_XATTR_GET && !strcmp(ans.data, "abc"), names);
	}
	fsc_answer_free(&ans);
}

static void every_operation_has_the_result_of_its_plain_request(void **state)
{
	static const char tree[] = "for x in one two; do (cd $x; find . -printf '%p %y %m %n %s %l\\n' | "
				   "sort; cat g big d/x) >../$x.txt 2>&1; done; mv ../one.txt ../two.txt "
				   ". 2>/dev/null; cmp one.txt two.txt && wc -l < one.txt";
	struct fsc c;
	char a[512], b[512];
	_cleanup_free_ char *out = NULL;

	(void)state;
	assert_int_equal(rig_sh(rig, id,
				 "for x in one two; do mkdir -p $x/d; cd $x; echo hello > f; seq 1000 > big; "
				 "echo x > d/x; ln -s f l; mkfifo p; cd ..; done",
				 NULL),
		0);
	up(&c, id, UPGRADE);
	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		plain_says(HOME "/one", &pairs[i], a);
		frames_say(&c, HOME "/two", &pairs[i], b);
		if (strcmp(a, b))
			fail_msg("%s\nplain:  %s\nframes: %s", pairs[i].plain, a, b);
	}
	fsc_fini(&c);
	assert_int_equal(rig_sh(rig, id, rig_path("%s", tree), &out), 0);
	assert_true(atoi(out) > 200);
}

/* Open, by every way that a path can be. */
static void opens_have_the_same_results(void **state)
{
	static const struct {
		const char *path, *words;
		unsigned flags;
	} rows[] = {
		{ "/f", "'read'", FILES_O_READ | FILES_FOLLOW },
		{ "/l", "'read'", FILES_O_READ | FILES_FOLLOW },
		{ "/l", "'read','nofollow'", FILES_O_READ },
		{ "/none", "'read'", FILES_O_READ | FILES_FOLLOW },
		{ "/d", "'read'", FILES_O_READ | FILES_FOLLOW },
		{ "/d", "'write'", FILES_O_WRITE | FILES_FOLLOW },
		{ "/p", "'read'", FILES_O_READ | FILES_FOLLOW },
		{ "/f/x", "'read'", FILES_O_READ | FILES_FOLLOW },
		{ "/new%s", "'write','create','exclusive'",
			FILES_O_WRITE | FILES_O_CREATE | FILES_O_EXCL | FILES_FOLLOW },
		{ "/f", "'write','create','exclusive'",
			FILES_O_WRITE | FILES_O_CREATE | FILES_O_EXCL | FILES_FOLLOW },
		{ "/dangling%s", "'write','create'", FILES_O_WRITE | FILES_O_CREATE | FILES_FOLLOW },
		{ "/f", "'read','write','trunc'",
			FILES_O_READ | FILES_O_WRITE | FILES_O_TRUNC | FILES_FOLLOW },
	};
	struct fsc c;

	(void)state;
	assert_int_equal(rig_sh(rig, id,
				 "mkdir o; cd o; echo hello > f; ln -s f l; mkdir d; mkfifo p; "
				 "ln -s later1 dangling1; ln -s later2 dangling2",
				 NULL),
		0);
	up(&c, id, UPGRADE);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char one[64], two[64], body[256];
		struct fsc_answer ans;
		snprintf(one, sizeof(one), rows[i].path, "1");
		snprintf(two, sizeof(two), rows[i].path, "2");
		int n = snprintf(body, sizeof(body),
			"{'path':'" HOME "/o%s','flags':[%s],'mode':'0604','inline':3}", one, rows[i].words);
		for (char *p = body; *p; p++)
			*p = *p == '\'' ? '"' : *p;
		if (i + 1 == ARRAY_LEN(rows)) /* emptied twice */
			assert_int_equal(rig_sh(rig, id, "echo again > o/f", NULL), 0);
		_cleanup_answer_ struct answer a = rig_send(rig, "POST",
			rig_path("/v1/sandboxes/%s/fs/open", id), NULL, NULL, body, (size_t)n);
		json_t *o = answer_json(&a), *attr = json_object_get(o, "attr");
		int64_t v = fsc_call(&c, FILES_OPEN,
			&(struct guestfs_args){ .path = rig_path(HOME "/o%s", two), .mode = 0604,
				.length = 3, .flags = rows[i].flags | FILES_O_DIR_OK },
			&ans);
		if (a.status != 200) {
			assert_string_equal(
				json_string_value(json_object_get(json_object_get(o, "error"), "errno")),
				name_of(v));
		} else {
			const char *data = json_string_value(json_object_get(o, "data"));
			assert_int_equal(v < 0 ? v : 0, 0);
			assert_true(ans.rep.handle);
			assert_int_equal(json_integer_value(json_object_get(attr, "mode")),
				ans.rep.attr.mode & 07777);
			assert_int_equal(
				json_integer_value(json_object_get(attr, "size")), ans.rep.attr.size);
			assert_int_equal(json_is_true(json_object_get(o, "created")),
				(ans.rep.flags & FILES_REP_CREATED) != 0);
			assert_int_equal(data && *data, ans.rep.data_len > 0);
			assert_true(!data || !*data || (!strcmp(data, "aGVs") && !strcmp(ans.data, "hel")));
		}
		fsc_answer_free(&ans);
		json_decref(o);
	}
	fsc_fini(&c);
}

/* Handles, listings, space: what a frame tells is what the plain request tells. */
static void handles_have_the_same_results(void **state)
{
	struct fsc c;
	struct fsc_answer ans;
	json_t *o;
	char h[32];

	(void)state;
	assert_int_equal(rig_sh(rig, id, "mkdir h; cd h; printf 0123456789 > f; ln -s f l; mkdir d", NULL), 0);
	up(&c, id, UPGRADE "Sbx-Client: me\r\n");
	assert_int_equal(fsc_call(&c, FILES_OPEN,
				 &(struct guestfs_args){ .path = HOME "/h/f", .flags = FILES_O_READ | FILES_O_WRITE },
				 &ans),
		0);
	snprintf(h, sizeof(h), "%llu", (unsigned long long)ans.rep.handle);
	uint64_t handle = ans.rep.handle;
	fsc_answer_free(&ans);
	/* made on the stream, used by the plain way, and back */
	_cleanup_answer_ struct answer r = rig_send(rig, "GET",
		rig_path("/v1/sandboxes/%s/fs/handles/%s?offset=3&length=4", id, h),
		"Sbx-Client: me\r\n", NULL, NULL, 0);
	assert_answer(&r, 200, NULL);
	assert_string_equal(r.body, "3456");
	assert_int_equal(fsc_call(&c, FILES_READ,
				 &(struct guestfs_args){ .handle = handle, .offset = 3, .length = 4 }, &ans),
		4);
	assert_string_equal(ans.data, "3456");
	fsc_answer_free(&ans);
	assert_int_equal(fsc_call(&c, FILES_READ,
				 &(struct guestfs_args){ .handle = handle, .offset = 99, .length = 4 }, &ans),
		0);
	fsc_answer_free(&ans);
	assert_int_equal(fsc_call(&c, FILES_WRITE,
				 &(struct guestfs_args){ .handle = handle, .offset = 10, .data = "ab",
					 .data_len = 2 },
				 &ans),
		2);
	assert_int_equal(ans.rep.attr.size, 12);
	fsc_answer_free(&ans);
	assert_int_equal(FSC(&c, FILES_WRITE, .handle = handle, .data = "Z", .data_len = 1,
				 .flags = FILES_O_APPEND),
		1);
	assert_int_equal(FSC(&c, FILES_SEEK, .handle = handle, .mode = 1), 13);
	assert_int_equal(FSC(&c, FILES_SEEK, .handle = handle, .offset = 13), -ENXIO);
	assert_int_equal(FSC(&c, FILES_SYNC, .handle = handle, .flags = FILES_DATA_ONLY), 0);
	assert_int_equal(FSC(&c, FILES_CLOSE, .handle = handle), 0);
	assert_int_equal(rig_status(rig, "GET", rig_path("/v1/sandboxes/%s/fs/handles/%s", id, h),
				 "Sbx-Client: me\r\n", NULL),
		404);
	assert_int_equal(fsc_call(&c, FILES_STAT, &(struct guestfs_args){ .path = HOME "/h/l" }, &ans), 0);
	assert_string_equal(ans.data, "f");
	assert_true(S_ISLNK(ans.rep.attr.mode));
	fsc_answer_free(&ans);
	o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/fs/stat?path=%s/h/f", id, HOME), NULL, 200);
	assert_int_equal(fsc_call(&c, FILES_STAT, &(struct guestfs_args){ .path = HOME "/h/f" }, &ans), 0);
	assert_int_equal(json_integer_value(json_object_get(o, "ino")), ans.rep.attr.ino);
	assert_int_equal(json_integer_value(json_object_get(o, "gen")), ans.rep.attr.gen);
	assert_int_equal(json_integer_value(json_object_get(o, "size")), 13);
	fsc_answer_free(&ans);
	json_decref(o);
	assert_int_equal(fsc_call(&c, FILES_LIST, &(struct guestfs_args){ .path = HOME "/h" }, &ans), 3);
	assert_true(ans.rep.flags & FILES_REP_END);
	fsc_answer_free(&ans);
	assert_int_equal(fsc_call(&c, FILES_LIST, &(struct guestfs_args){ .path = HOME "/h", .length = 2 }, &ans), 2);
	assert_true(ans.rep.handle);
	assert_int_equal(FSC(&c, FILES_LIST, .handle = ans.rep.handle, .offset = FILES_CURSOR_GO_ON), 1);
	fsc_answer_free(&ans);
	assert_int_equal(FSC(&c, FILES_LIST, .path = HOME "/h/f"), -ENOTDIR);
	assert_int_equal(fsc_call(&c, FILES_STATFS, &(struct guestfs_args){ .path = "/" }, &ans), 0);
	assert_int_equal(ans.rep.data_len, sizeof(struct files_statfs));
	fsc_answer_free(&ans);
	fsc_fini(&c);
}

/* --- coherence with the guest ---------------------------------------------------------------- */

static void what_the_guest_wrote_is_pushed_before_it_is_read(void **state)
{
	struct fsc c;
	char want[32];

	(void)state;
	assert_int_equal(rig_sh(rig, id, "mkdir w", NULL), 0);
	up(&c, id, UPGRADE BACK);
	int64_t w = FSC(&c, FILES_WATCH, .path = HOME "/w");
	assert_true(w > 0);
	for (int i = 0; i < 40; i++) {
		struct fsc_answer a;
		fsc_forget(&c);
		snprintf(want, sizeof(want), "%d\n", i);
		assert_int_equal(rig_sh(rig, id, rig_path("echo %d > w/f", i), NULL), 0);
		assert_int_equal(fsc_call(&c, FILES_OPEN,
					 &(struct guestfs_args){ .path = HOME "/w/f", .length = 10,
						 .flags = FILES_O_READ | FILES_INLINE_CLOSE },
					 &a),
			0);
		assert_string_equal(a.data, want);
		fsc_answer_free(&a);
		assert_true(fsc_changed(&c, (uint64_t)w, "f", FS_INVAL_DATA));
	}
	fsc_fini(&c);
}

/* --- use and log ----------------------------------------------------------------------------- */

static bool has_ended(void *ref)
{
	return rig_in_state(rig, ref, "terminated");
}

/* Two seconds of idleness end this sandbox: flagged requests count, looking and the open stream do
 * not. */
static void only_flagged_requests_keep_a_sandbox(void **state)
{
	char *ref = strdup(rig_sandbox(rig, "{\"idle_timeout_secs\":3}"));
	struct timespec from, to;
	struct fsc c;

	(void)state;
	up(&c, ref, UPGRADE BACK);
	clock_gettime(CLOCK_MONOTONIC, &from);
	do {
		assert_int_equal(FSC(&c, FILES_STAT, .path = "/", .flags = FILES_USE), 0);
		rig_pause(100);
		clock_gettime(CLOCK_MONOTONIC, &to);
	} while (to.tv_sec - from.tv_sec < 6);
	assert_false(has_ended(ref));
	/* the rest is only looking, to the end: then the stream is cut */
	for (int i = 0;; i++) {
		struct fsc_answer a;
		assert_true(i < 300);
		struct files_req q = { .path_len = 1 };
		struct fs_frame f = { .op = FILES_STAT, .tag = 1000 + (uint64_t)i, .len = sizeof(q) + 1 };
		if (fd_send_full(c.fd, &f, sizeof(f), 1000) < 0 || fd_send_full(c.fd, &q, sizeof(q), 1000) < 0 ||
			fd_send_full(c.fd, "/", 1, 1000) < 0 || !fsc_recv(&c, &a))
			break;
		fsc_answer_free(&a);
		rig_pause(100);
	}
	rig_wait(has_ended, ref, 10000);
	fsc_fini(&c);
	free(ref);
}

struct want {
	const char *type;
	int n;
};

static bool logged(void *arg)
{
	struct want *w = arg;

	return rig_events(rig, "audited", w->type, NULL) >= w->n;
}

static void the_log_has_each_file_once(void **state)
{
	struct fsc c;
	struct fsc_answer a;
	struct want rows[] = { { "file.written", 1 }, { "file.read", 1 }, { "file.removed", 1 } };

	(void)state;
	(void)rig_sandbox(rig, "{\"name\":\"audited\"}");
	up(&c, "audited", UPGRADE);
	assert_int_equal(fsc_call(&c, FILES_OPEN,
				 &(struct guestfs_args){ .path = HOME "/x", .mode = 0644,
					 .flags = FILES_O_READ | FILES_O_WRITE | FILES_O_CREATE | FILES_USE },
				 &a),
		0);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(FSC(&c, FILES_WRITE, .handle = a.rep.handle, .offset = i, .data = "x",
					 .data_len = 1),
			1);
		assert_int_equal(FSC(&c, FILES_READ, .handle = a.rep.handle, .length = 9), i + 1);
	}
	assert_int_equal(FSC(&c, FILES_CLOSE, .handle = a.rep.handle), 0);
	fsc_answer_free(&a);
	assert_int_equal(FSC(&c, FILES_UNLINK, .path = HOME "/x"), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		rig_wait(logged, &rows[i], 10000);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(rig_events(rig, "audited", rows[i].type, NULL), rows[i].n);
	fsc_fini(&c);
}

/* --- ends ------------------------------------------------------------------------------------ */

static void deleting_the_sandbox_cuts(void **state)
{
	char *ref = strdup(rig_sandbox(rig, NULL));
	struct fsc c[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		up(&c[i], ref, UPGRADE);
	rig_end(rig, ref);
	for (int i = 0; i < 3; i++) {
		assert_true(fsc_ended(&c[i], 10000));
		fsc_fini(&c[i]);
	}
	free(ref);
}

static void handles_live_over_a_stop_of_the_server(void **state)
{
	struct fsc c;
	struct fsc_answer a;

	(void)state;
	assert_int_equal(rig_sh(rig, id, "echo still here > keep", NULL), 0);
	up(&c, id, UPGRADE "Sbx-Client: me\r\n");
	assert_int_equal(fsc_call(&c, FILES_OPEN,
				 &(struct guestfs_args){ .path = HOME "/keep", .flags = FILES_O_READ }, &a),
		0);
	uint64_t h = a.rep.handle;
	fsc_answer_free(&a);
	rig_stop(rig);
	assert_true(fsc_ended(&c, 10000));
	fsc_fini(&c);
	rig_start(rig);
	up(&c, id, UPGRADE "Sbx-Client: me\r\n");
	assert_int_equal(fsc_call(&c, FILES_READ, &(struct guestfs_args){ .handle = h, .length = 99 }, &a), 11);
	assert_string_equal(a.data, "still here\n");
	fsc_answer_free(&a);
	fsc_fini(&c);
}

static void bytes_before_the_answer_end_it(void **state)
{
	char head[800], junk[200];
	int fd = httpc_unix(rig->sock);

	(void)state;
	memset(junk, 'x', sizeof(junk));
	snprintf(head, sizeof(head),
		"GET /v1/sandboxes/%s/fs HTTP/1.1\r\nHost: localhost\r\n%s%s%s%s\r\n%.*s", id,
		rig->token[0] ? "Authorization: Bearer " : "", rig->token, rig->token[0] ? "\r\n" : "",
		UPGRADE, (int)sizeof(junk), junk);
	httpc_send(fd, head);
	_cleanup_answer_ struct answer a = httpc_head(fd);
	assert_int_equal(a.status, 101);
	struct fsc c;
	fsc_init(&c, fd);
	/* whether the bytes were taken with the header or came behind it: no hello, so it ends */
	assert_true(fsc_ended(&c, 10000));
	fsc_fini(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(openings_are_checked_in_order),
		cmocka_unit_test(there_are_sixteen_a_sandbox),
		cmocka_unit_test(every_operation_has_the_result_of_its_plain_request),
		cmocka_unit_test(opens_have_the_same_results),
		cmocka_unit_test(handles_have_the_same_results),
		cmocka_unit_test(what_the_guest_wrote_is_pushed_before_it_is_read),
		cmocka_unit_test(only_flagged_requests_keep_a_sandbox),
		cmocka_unit_test(the_log_has_each_file_once),
		cmocka_unit_test(deleting_the_sandbox_cuts),
		cmocka_unit_test(bytes_before_the_answer_end_it),
		cmocka_unit_test(handles_live_over_a_stop_of_the_server),
	};

	return run_suite(tests, NULL, &rig, &id);
}
