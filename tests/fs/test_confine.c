/* SPDX-License-Identifier: MIT */
/* Texts of symbolic links: none leads out of the guest's tree, tame ones stay as they were made. */
#include "sbxfs/box.h"
#include "sbxfs/treefs.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static const struct row {
	const char *name;
	enum links_mode mode;
	int depth; /* directories between the root and the link */
	const char *target, *want; /* NULL: refused with -EPERM */
} rows[] = {
	{ "a name stays", LINKS_CONFINE, 2, "file", "file" },
	{ "a path below stays", LINKS_CONFINE, 0, "a/b/c", "a/b/c" },
	{ "climbing within stays", LINKS_CONFINE, 2, "../../etc/x", "../../etc/x" },
	{ "an emacs lock stays", LINKS_CONFINE, 1, "me@host.12:34", "me@host.12:34" },
	{ "dots and slashes stay", LINKS_CONFINE, 1, ".//./a/", ".//./a/" },
	{ "absolute is made relative", LINKS_CONFINE, 2, "/etc/passwd", "../../etc/passwd" },
	{ "absolute at the top", LINKS_CONFINE, 0, "/etc", "etc" },
	{ "the root itself", LINKS_CONFINE, 0, "/", "." },
	{ "the root from below", LINKS_CONFINE, 3, "/", "../../.." },
	{ "too far up stops at the root", LINKS_CONFINE, 1, "../../../etc", "../etc" },
	{ "up at the top", LINKS_CONFINE, 0, "..", "." },
	{ "up behind a name is folded", LINKS_CONFINE, 1, "here/../../x", "../x" },
	{ "up behind a name, far", LINKS_CONFINE, 1, "a/../../../../x", "../x" },
	{ "up in an absolute path", LINKS_CONFINE, 1, "/a/../../../x", "../x" },
	{ "unknown place is refused", LINKS_CONFINE, -1, "/x", NULL },
	{ "refuse passes tame ones", LINKS_REFUSE, 1, "../x", "../x" },
	{ "refuse refuses absolute", LINKS_REFUSE, 1, "/x", NULL },
	{ "refuse refuses climbing", LINKS_REFUSE, 1, "../../x", NULL },
	{ "exact changes nothing", LINKS_EXACT, 0, "/etc/../..", "/etc/../.." },
};

static void confine(void **state)
{
	const struct row *r = *state;
	char out[GUEST_PATH_MAX * 2];
	int rc = link_text(r->mode, r->depth, r->target, out, sizeof(out));

	if (!r->want) {
		assert_int_equal(rc, -EPERM);
		return;
	}
	assert_int_equal(rc, 0);
	assert_string_equal(out, r->want);
}

/* Whatever the text: walking it from its place never gets above the root, not even when every name
 * in it were a link to ".". */
static void never_leaves(void **state)
{
	static const char *const parts[] = { "..", "a", ".", "", "/" };

	(void)state;
	srandom(1);
	for (int n = 0; n < 20000; n++) {
		char target[128] = "", out[512];
		int depth = (int)(random() % 4), at = depth;

		for (long k = random() % 9 + 1; k; k--) {
			strcat(target, parts[random() % 5]);
			strcat(target, random() % 4 ? "/" : "");
		}
		if (!target[0] || link_text(LINKS_CONFINE, depth, target, out, sizeof(out)) < 0)
			continue;
		assert_int_not_equal(out[0], '/');
		for (char *save, *p = strtok_r(out, "/", &save); p; p = strtok_r(NULL, "/", &save)) {
			at -= !strcmp(p, "..");
			assert_true(at >= 0);
		}
	}
}

#define BOX "sbx_0000000000000001"

static void a_path_through_the_mount_is_one_inside(void **state)
{
	static const char *const pairs[][2] = { { "/mnt/x/" BOX "/fs/a/b", "/a/b" }, { "/mnt/x/" BOX "/fs/", "/" },
		{ "/mnt/x/" BOX "/fs", "/" }, { "/mnt/x/" BOX "/fs/../../y", "/../../y" },
		{ "/mnt/x/" BOX "/fsx/a", NULL }, { "/mnt/x/" BOX "/ctl", NULL }, { "/mnt/x/" BOX, NULL },
		{ "/mnt/x/" BOX "2/fs/a", NULL }, { "/mnt/x/sbx_0000000000000002/fs/a", NULL }, { "/mnt/x", NULL },
		{ "/mnt/x/", NULL }, { "/mnt/x//fs/a", NULL }, { "/mnt/xy/" BOX "/fs/a", NULL }, { "/", NULL },
		{ "", NULL }, { "mnt/x/" BOX "/fs/a", NULL }, { "/etc/passwd", NULL } };
	static char mountpoint[] = "/mnt/x";
	static struct mount m;

	(void)state;
	m.opt.mountpoint = mountpoint;
	assert_int_equal(boxes_new(&m.boxes), 0);
	for (size_t n = 0; n < sizeof(pairs) / sizeof(pairs[0]); n++) {
		m.opt.links = LINKS_CONFINE;
		assert_string_equal(link_inside(&m, BOX, pairs[n][0]), pairs[n][pairs[n][1] != NULL]);
		m.opt.links = LINKS_EXACT;
		assert_string_equal(link_inside(&m, BOX, pairs[n][0]), pairs[n][0]);
	}
	boxes_free(m.boxes);
}

int main(void)
{
	struct CMUnitTest tests[sizeof(rows) / sizeof(rows[0]) + 2];
	size_t n;

	for (n = 0; n < sizeof(rows) / sizeof(rows[0]); n++)
		tests[n] = (struct CMUnitTest){ .name = rows[n].name, .test_func = confine,
			.initial_state = (void *)(uintptr_t)&rows[n] };
	tests[n] = (struct CMUnitTest){ .name = "no text leaves the tree", .test_func = never_leaves };
	tests[n + 1] = (struct CMUnitTest)cmocka_unit_test(a_path_through_the_mount_is_one_inside);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
