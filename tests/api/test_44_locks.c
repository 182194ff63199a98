/* SPDX-License-Identifier: MIT */
/* Locks of files through the whole server: between owners of one handle, between handles, connections,
 * plain requests and processes inside; waiting for them, and what ends them. */
#include "tests/support/fsc.h"
#include "tests/support/suite.h"

#include "common/sys/fd.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOME "/sandbox/home"
#define R    FILES_LOCK_READ
#define W    FILES_LOCK_WRITE
#define WAIT FILES_LOCK_WAIT
#define FL   FILES_LOCK_FLOCK

static struct rig *rig;
static const char *id;

static void up(struct fsc *c, const char *client)
{
	int fd = rig_open(rig, "GET", rig_path("/v1/sandboxes/%s/fs", id),
		rig_path("Connection: Upgrade\r\nUpgrade: sbx-fs/1\r\nSbx-Client: %s\r\n", client), NULL, NULL,
		0);
	_cleanup_answer_ struct answer a = httpc_head(fd);

	assert_int_equal(a.status, 101);
	fsc_init(c, fd);
	assert_true(fsc_hello(c).features & FS_FEATURE_LOCKS);
}

static uint64_t open_as(struct fsc *c, const char *name, unsigned flags)
{
	struct fsc_answer a;
	uint64_t h;

	assert_int_equal(fsc_call(c, FILES_OPEN,
				 &(struct guestfs_args){ .path = *name ? rig_path(HOME "/%s", name) : HOME,
					 .flags = flags, .mode = 0644 },
				 &a),
		0);
	h = a.rep.handle;
	fsc_answer_free(&a);
	return h;
}

#define RW (FILES_O_READ | FILES_O_WRITE | FILES_O_CREATE)
#define LOCK(c, h, how, ...) FSC((c), FILES_LOCK, .handle = (h), .mode = (how), __VA_ARGS__)

static void is_grant(const struct fsc_answer *a, uint32_t number, int64_t value)
{
	assert_int_equal(a->f.tag, 0);
	assert_int_equal(a->f.op, FILES_GRANT);
	assert_int_equal(a->f.value, value);
	assert_int_equal(a->rep.handle, number);
	assert_true(value < 0 || S_ISREG(a->rep.attr.mode));
}

static void granted(struct fsc *c, uint32_t number, int64_t value)
{
	struct fsc_answer a;

	assert_true(fsc_recv(c, &a));
	is_grant(&a, number, value);
	fsc_answer_free(&a);
}

/* One's own request makes room for one's own wait: its answer and the word come in any order. */
static void then_granted(struct fsc *c, enum files_op op, const struct guestfs_args *args, uint32_t number,
	int64_t value)
{
	uint64_t tag = fsc_send(c, op, args);

	for (int n = 0, answers = 0; n < 2; n++) {
		struct fsc_answer a;

		assert_true(fsc_recv(c, &a));
		if (a.f.tag == tag) {
			assert_int_equal(a.f.value, 0);
			assert_int_equal(answers++, 0);
		} else {
			is_grant(&a, number, value);
		}
		fsc_answer_free(&a);
	}
}
#define ARGS(...) &(struct guestfs_args){ __VA_ARGS__ }

/* --- who excludes whom ------------------------------------------------------------------------- */

/* Each step on one of three handles of one file: 0 and 1 of one client, 2 of another. */
static void owners_exclude_each_other(void **state)
{
	static const struct {
		const char *why;
		unsigned handle, mode;
		uint64_t owner, from, len;
		int64_t want;
	} rows[] = {
		{ "first", 0, W, 1, 0, 10, 0 },
		{ "the same once more", 0, W, 1, 0, 10, 0 },
		{ "the same owner by another handle", 1, W, 1, 5, 10, 0 },
		{ "another owner of the same handle", 0, R, 2, 9, 1, -EAGAIN },
		{ "behind it", 0, W, 2, 15, 5, 0 },
		{ "another client, same number", 2, R, 1, 0, 1, -EAGAIN },
		{ "another client, behind all", 2, W, 1, 20, 0, 0 },
		{ "and it keeps off the first", 0, R, 1, 25, 1, -EAGAIN },
		{ "less than before", 1, R, 1, 0, 15, 0 },
		{ "so others read", 0, R, 2, 0, 5, 0 },
		{ "in another client, too", 2, R, 1, 0, 5, 0 },
		{ "one reader may not write", 0, W, 1, 0, 5, -EAGAIN },
		{ "a reader goes, the other stays", 0, 0, 1, 0, 5, 0 },
		{ "which the other client sees", 2, W, 1, 0, 5, -EAGAIN },
		{ "the last reader of that client goes", 1, 0, 2, 0, 5, 0 },
		{ "now it is free", 2, W, 1, 0, 5, 0 },
		{ "middle goes, both ends stay", 2, 0, 1, 1, 3, 0 },
		{ "before the middle", 0, R, 1, 0, 2, -EAGAIN },
		{ "the middle", 0, W, 1, 1, 3, 0 },
		{ "all of it goes", 2, 0, 1, 0, 0, 0 },
		{ "to the end", 0, W, 3, 100, 0, 0 },
		{ "far behind the end", 2, W, 1, INT64_MAX, 1, -EAGAIN },
		{ "what nobody holds goes, too", 1, 0, 77, 0, 0, 0 },
	};
	struct fsc a, b;
	uint64_t h[3];

	(void)state;
	up(&a, "first");
	up(&b, "second");
	h[0] = open_as(&a, "ranges", RW);
	h[1] = open_as(&a, "ranges", RW);
	h[2] = open_as(&b, "ranges", RW);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int64_t got = LOCK(rows[i].handle == 2 ? &b : &a, h[rows[i].handle], rows[i].mode,
			.offset2 = rows[i].owner, .offset = rows[i].from, .length = rows[i].len);
		if (got != rows[i].want)
			fail_msg("%s: %lld", rows[i].why, (long long)got);
	}
	fsc_fini(&a);
	fsc_fini(&b);
}

static void rights_of_the_handle_decide(void **state)
{
	struct fsc c;
	uint64_t r, w, rw, d;

	(void)state;
	up(&c, "rights");
	rw = open_as(&c, "rights", RW);
	r = open_as(&c, "rights", FILES_O_READ);
	w = open_as(&c, "rights", FILES_O_WRITE);
	d = open_as(&c, "", FILES_O_READ | FILES_O_DIR_OK);
	assert_int_equal(LOCK(&c, r, W, .offset2 = 1), -EBADF);
	assert_int_equal(LOCK(&c, w, R, .offset2 = 1), -EBADF);
	assert_int_equal(LOCK(&c, d, R, .offset2 = 1), -EISDIR);
	assert_int_equal(LOCK(&c, d, W | FL, .offset2 = 1), 0);
	/* From a handle that reads to one that writes, with what is held. */
	assert_int_equal(LOCK(&c, r, R, .offset2 = 1, .offset = 3, .length = 4), 0);
	assert_int_equal(LOCK(&c, rw, W, .offset2 = 1, .offset = 5, .length = 4), 0);
	assert_int_equal(LOCK(&c, rw, W, .offset2 = 2, .offset = 3, .length = 1), -EAGAIN);
	assert_int_equal(LOCK(&c, rw, R, .offset2 = 2, .offset = 8, .length = 1), -EAGAIN);
	assert_int_equal(FSC(&c, FILES_CLOSE, .handle = r), 0);
	assert_int_equal(LOCK(&c, rw, W, .offset2 = 2, .offset = 3, .length = 1), -EAGAIN);
	/* It went over to that one, and ends with it. */
	assert_int_equal(FSC(&c, FILES_CLOSE, .handle = rw), 0);
	assert_int_equal(LOCK(&c, w, W, .offset2 = 2), 0);
	fsc_fini(&c);
}

static void what_makes_no_sense_is_refused(void **state)
{
	static const struct {
		uint64_t from, len;
		unsigned mode;
		int64_t want;
	} rows[] = {
		{ 0, 0, R | W, -EINVAL },
		{ 0, 0, FILES_LOCK_ALL + 1, -EINVAL },
		{ 0, 0, W | FL | FILES_LOCK_TEST, -EINVAL },
		{ 0, 0, W | WAIT | FILES_LOCK_TEST, -EINVAL },
		{ 0, 0, FILES_LOCK_TEST, -EINVAL },
		{ 1ull << 63, 0, W, -EINVAL },
		{ INT64_MAX, 2, W, -EINVAL },
		{ INT64_MAX, 1, W, 0 },
		{ 1, INT64_MAX, W, 0 },
		{ 1, UINT64_MAX, W, -EINVAL },
		{ 0, 0, 0, 0 },
	};
	struct fsc c;
	uint64_t h;

	(void)state;
	up(&c, "sense");
	h = open_as(&c, "sense", RW);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(LOCK(&c, h, rows[i].mode, .offset = rows[i].from, .length = rows[i].len),
			rows[i].want);
	assert_int_equal(LOCK(&c, h + 1, W, .offset = 0), -FILES_E_HANDLE);
	assert_int_equal(FSC(&c, FILES_UNWAIT, .handle = 5), -ENOENT);
	fsc_fini(&c);
}

static void who_is_in_the_way_is_told(void **state)
{
	struct files_locked l;
	struct fsc_answer ans;
	struct fsc a, b;
	uint64_t h, o;

	(void)state;
	up(&a, "asks");
	up(&b, "has");
	h = open_as(&a, "told", RW);
	o = open_as(&b, "told", RW);
	assert_int_equal(LOCK(&a, h, R, .offset2 = 1, .uid = 4711, .offset = 10, .length = 5), 0);
	assert_int_equal(LOCK(&b, o, W, .offset2 = 1, .uid = 4712, .offset = 20), 0);
	static const struct {
		uint64_t owner, from, len;
		unsigned mode;
		struct files_locked want;
		int64_t value;
	} rows[] = {
		{ 2, 0, 10, W, { 0 }, 0 },
		{ 2, 0, 15, R, { 0 }, 0 },
		{ 1, 0, 15, W, { 0 }, 0 },
		{ 2, 0, 15, W, { .offset = 10, .length = 5, .who = 4711 }, 1 },
		{ 1, 0, 0, R, { .offset = 20, .write = 1 }, 1 },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(fsc_call(&a, FILES_LOCK,
					 &(struct guestfs_args){ .handle = h, .offset2 = rows[i].owner,
						 .offset = rows[i].from, .length = rows[i].len,
						 .mode = rows[i].mode | FILES_LOCK_TEST },
					 &ans),
			rows[i].value);
		assert_int_equal(ans.rep.data_len, rows[i].value ? sizeof(l) : 0);
		if (rows[i].value)
			assert_memory_equal(ans.data, &rows[i].want, sizeof(l));
		fsc_answer_free(&ans);
	}
	fsc_fini(&a);
	fsc_fini(&b);
}

/* --- with processes inside --------------------------------------------------------------------- */

/* What a process inside gets when it tries: 0 it has it, 1 it has not. */
static int inside(const char *how, const char *name)
{
	return rig_sh(rig, id,
		rig_path("python3 -c 'import fcntl,sys\n"
			 "f=open(\"%s\",\"r+\")\n"
			 "try: fcntl.%s(f,fcntl.LOCK_EX|fcntl.LOCK_NB)\n"
			 "except BlockingIOError: sys.exit(1)'",
			name, how),
		NULL);
}

static void processes_inside_are_excluded(void **state)
{
	static const struct {
		const char *how;
		unsigned mode;
	} rows[] = { { "lockf", W }, { "lockf", R }, { "flock", W | FL }, { "flock", R | FL } };
	struct fsc c;
	uint64_t h;

	(void)state;
	up(&c, "inside");
	h = open_as(&c, "both", RW);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(inside(rows[i].how, "both"), 0);
		assert_int_equal(LOCK(&c, h, rows[i].mode, .offset2 = 1), 0);
		assert_int_equal(inside(rows[i].how, "both"), 1);
		assert_int_equal(LOCK(&c, h, rows[i].mode & FL, .offset2 = 1), 0);
		assert_int_equal(inside(rows[i].how, "both"), 0);
	}
	assert_int_equal(LOCK(&c, h, W, .offset2 = 1), 0);
	assert_int_equal(LOCK(&c, h, W | FL, .offset2 = 1), 0);
	assert_int_equal(inside("lockf", "both") + inside("flock", "both"), 2);
	assert_int_equal(FSC(&c, FILES_CLOSE, .handle = h), 0);
	assert_int_equal(inside("lockf", "both") + inside("flock", "both"), 0);
	fsc_fini(&c);
}

/* A process inside holds it until a file appears; then who waits gets it, though nobody tells. */
static void a_process_inside_lets_go(void **state)
{
	struct fsc c;
	uint64_t h;

	(void)state;
	up(&c, "lets");
	for (int flock = 0; flock < 2; flock++) {
		char text[400];
		snprintf(text, sizeof(text),
			"rm -f go held; (exec 8<>lets; python3 -c 'import fcntl,os,time\n"
			"fcntl.%s(8,fcntl.LOCK_EX); open(\"held\",\"w\")\n"
			"while not os.path.exists(\"go\"): time.sleep(0.01)' ) >/dev/null 2>&1 & "
			"while [ ! -e held ]; do sleep 0.01; done",
			flock ? "flock" : "lockf");
		assert_int_equal(rig_sh(rig, id, text, NULL), 0);
		h = open_as(&c, "lets", RW);
		assert_int_equal(LOCK(&c, h, W | (flock ? FL : 0), .offset2 = 1), -EAGAIN);
		assert_int_equal(LOCK(&c, h, W | WAIT | (flock ? FL : 0), .offset2 = 1, .gid = 9), 1);
		assert_int_equal(rig_sh(rig, id, "touch go", NULL), 0);
		granted(&c, 9, 0);
		assert_int_equal(inside(flock ? "flock" : "lockf", "lets"), 1);
		assert_int_equal(FSC(&c, FILES_CLOSE, .handle = h), 0);
	}
	fsc_fini(&c);
}

/* --- waiting ----------------------------------------------------------------------------------- */

static void who_waits_is_told(void **state)
{
	struct fsc a, b;
	uint64_t h, o;

	(void)state;
	up(&a, "holds");
	up(&b, "waits");
	h = open_as(&a, "wait", RW);
	o = open_as(&b, "wait", RW);
	assert_int_equal(LOCK(&b, o, W | WAIT, .offset2 = 1, .gid = 1, .offset = 50, .length = 1), 0);
	assert_int_equal(LOCK(&a, h, W, .offset2 = 1, .length = 10), 0);
	/* Three in a row, and one that is taken out. */
	for (uint32_t n = 1; n <= 4; n++)
		assert_int_equal(LOCK(&b, o, W | WAIT, .offset2 = n, .gid = n, .length = 1), 1);
	assert_int_equal(LOCK(&b, o, W | WAIT, .offset2 = 9, .gid = 4), -EINVAL);
	assert_int_equal(FSC(&b, FILES_UNWAIT, .handle = 2), 0);
	assert_int_equal(FSC(&b, FILES_UNWAIT, .handle = 2), -ENOENT);
	assert_int_equal(LOCK(&a, h, 0, .offset2 = 1), 0);
	granted(&b, 1, 0);
	assert_int_equal(LOCK(&a, h, W, .offset2 = 1, .length = 1), -EAGAIN);
	then_granted(&b, FILES_LOCK, ARGS(.handle = o, .offset2 = 1), 3, 0);
	then_granted(&b, FILES_LOCK, ARGS(.handle = o, .offset2 = 3), 4, 0);
	/* A handle that is closed meanwhile. */
	assert_int_equal(LOCK(&a, h, W | WAIT, .offset2 = 1, .gid = 7), 1);
	then_granted(&a, FILES_CLOSE, ARGS(.handle = h), 7, -FILES_E_HANDLE);
	/* Who waits and goes leaves nothing. */
	h = open_as(&a, "wait", RW);
	assert_int_equal(LOCK(&a, h, W | WAIT, .offset2 = 1, .gid = 7), 1);
	fsc_fini(&a);
	assert_int_equal(LOCK(&b, o, 0, .offset2 = 4), 0);
	up(&a, "other");
	h = open_as(&a, "wait", RW);
	/* unless the other's going is not noticed yet: then soon */
	if (LOCK(&a, h, W | WAIT, .offset2 = 1, .gid = 7, .length = 1) != 0)
		granted(&a, 7, 0);
	fsc_fini(&a);
	fsc_fini(&b);
}

#define FILES 64

static void there_is_room_for_so_many(void **state)
{
	struct fsc a, b;
	uint64_t h[FILES], o;
	uint32_t n;
	int64_t rc = 0;

	(void)state;
	up(&a, "many");
	up(&b, "more");
	for (n = 0; n < FILES; n++)
		h[n] = open_as(&a, rig_path("room%u", n), RW);
	o = open_as(&b, "room0", RW);
	for (n = 0; n < FS_LOCKS_MAX * 2 && rc == 0; n++)
		rc = LOCK(&a, h[n % FILES], W, .offset2 = n % 4, .offset = n * 2, .length = 1);
	assert_int_equal(rc, -ENOLCK);
	assert_in_range(n, FS_LOCKS_MAX - 200, FS_LOCKS_MAX + 1); /* rows before this may have left some */
	assert_int_equal(LOCK(&a, h[1], W, .offset2 = 1, .offset = n * 2, .length = 1), -ENOLCK);
	assert_int_equal(LOCK(&b, o, W, .offset2 = 1, .offset = n * 2, .length = 1), -ENOLCK);
	/* What makes it no more is still to be had. */
	assert_int_equal(LOCK(&a, h[1], R, .offset2 = 1, .offset = 2, .length = 1), 0);
	assert_int_equal(LOCK(&a, h[1], 0, .offset2 = 1), 0);
	assert_int_equal(LOCK(&b, o, W, .offset2 = 1, .offset = n * 2, .length = 1), 0);
	for (n = 0; n < FS_WAITS_MAX / 2; n++)
		assert_int_equal(LOCK(&b, o, W | WAIT, .offset2 = n, .gid = n + 1, .length = 1), 1);
	assert_int_equal(LOCK(&b, o, W | WAIT, .offset2 = n, .gid = n + 1, .length = 1), -ENOLCK);
	/* Others are served all the while. */
	assert_int_equal(FSC(&a, FILES_STAT, .path = HOME "/room0"), 0);
	fsc_fini(&b);
	for (n = 0; n < FILES; n++)
		assert_int_equal(FSC(&a, FILES_CLOSE, .handle = h[n]), 0);
	o = open_as(&a, "room0", RW);
	assert_int_equal(LOCK(&a, o, W, .offset2 = 1, .length = 100), 0);
	fsc_fini(&a);
}

/* --- the plain way ----------------------------------------------------------------------------- */

static void the_plain_way_locks_at_once_or_not(void **state)
{
	static const struct {
		const char *body;
		int status;
		const char *says;
	} rows[] = {
		{ "{\"type\":\"write\",\"offset\":5,\"length\":5,\"owner\":1}", 409, "EAGAIN" },
		{ "{\"type\":\"write\",\"offset\":5,\"length\":5,\"test\":true}", 200, "\"offset\":0,\"length\":8" },
		{ "{\"type\":\"read\",\"offset\":8,\"test\":true}", 200, "\"free\":true" },
		{ "{\"type\":\"write\",\"offset\":8,\"owner\":1}", 200, "{}" },
		{ "{\"type\":\"none\",\"owner\":1}", 200, "{}" },
		{ "{\"type\":\"write\",\"flock\":true}", 200, "{}" },
		{ "{\"type\":\"none\",\"flock\":true}", 200, "{}" },
		{ "{\"type\":\"both\"}", 400, "type" },
		{ "{\"type\":\"none\",\"test\":true}", 400, "test" },
		{ "{\"offset\":1}", 400, "type" },
		{ "{\"type\":\"read\",\"offset\":-1}", 400, "offset" },
	};
	struct fsc c;
	uint64_t h;

	(void)state;
	up(&c, "frames");
	h = open_as(&c, "plain", RW);
	assert_int_equal(LOCK(&c, h, W, .offset2 = 1, .length = 8), 0);
	json_t *o = rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/fs/open", id),
		"{\"path\":\"" HOME "/plain\",\"flags\":[\"read\",\"write\"]}", 200);
	char path[200];
	snprintf(path, sizeof(path), "/v1/sandboxes/%s/fs/handles/%s/lock", id,
		json_string_value(json_object_get(o, "handle")));
	json_decref(o);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		_cleanup_answer_ struct answer a =
			rig_send(rig, "POST", path, NULL, NULL, rows[i].body, strlen(rows[i].body));
		if (a.status != rows[i].status || !strstr(a.body, rows[i].says))
			fail_msg("%s: %d %s", rows[i].body, a.status, a.body);
	}
	assert_int_equal(rig_status(rig, "POST", rig_path("/v1/sandboxes/%s/fs/handles/77/lock", id), NULL,
				 "{\"type\":\"read\"}"),
		404);
	fsc_fini(&c);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(owners_exclude_each_other),
		cmocka_unit_test(rights_of_the_handle_decide),
		cmocka_unit_test(what_makes_no_sense_is_refused),
		cmocka_unit_test(who_is_in_the_way_is_told),
		cmocka_unit_test(processes_inside_are_excluded),
		cmocka_unit_test(a_process_inside_lets_go),
		cmocka_unit_test(who_waits_is_told),
		cmocka_unit_test(there_is_room_for_so_many),
		cmocka_unit_test(the_plain_way_locks_at_once_or_not),
	};

	return run_suite(tests, NULL, &rig, &id);
}
