/* SPDX-License-Identifier: MIT */
#include "tests/support/inside.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROWS_MAX 256

static struct linux_rig rig;
static const struct inside_plan *plan;
static char *answers; /* of one run of all attacks */

struct linux_rig *inside_rig(void)
{
	return &rig;
}

/* --- getting the program in --------------------------------------------------------------------
 */

/* The build folder, which this program lies two folders below. */
static const char *build_folder(void)
{
	static char exe[PATH_MAX];
	static const char *dir;

	if (!dir) {
		assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
		dir = dirname(dirname(dirname(exe)));
	}
	return dir;
}

static char *load(const char *path, size_t *len)
{
	FILE *f = fopen(path, "re");
	struct stat st;
	char *buf;

	if (!f || fstat(fileno(f), &st) < 0)
		fail_msg("%s is not built", path);
	buf = malloc((size_t)st.st_size);
	*len = fread(buf, 1, (size_t)st.st_size, f);
	fclose(f);
	return buf;
}

void inside_put(struct box *b)
{
	static const char *const argv[] = { "sh", "-c", "cat > attack && chmod 755 attack", NULL };
	struct guest_start s = box_cmd(b, argv);
	char path[PATH_MAX + 64];
	struct err e = ERR_NULL;
	size_t len;

	snprintf(path, sizeof(path), "%s/tests/%s", build_folder(), plan->program);
	_cleanup_free_ char *data = load(path, &len);
	s.stdin_data = data;
	s.stdin_len = len;
	uint32_t num = box_start(b, &s, &e);
	if (!num)
		fail_msg("%s", e.msg);
	assert_true(box_wait_exit(b, num, 30000));
}

static int run_attacks(void **state)
{
	struct box *b = box_new(&rig.rig);
	struct spooled o;

	(void)state;
	inside_put(b);
	box_run(b, "id -u", &o); /* who it really is */
	assert_string_equal(o.out[0], plan->as_root ? "0\n" : "1001\n");
	spooled_free(&o);
	box_run(b, "./attack </dev/null", &o);
	answers = strdup(o.out[0]);
	spooled_free(&o);
	box_run(b, "echo usable", &o); /* and the sandbox is none the worse for it */
	assert_string_equal(o.out[0], "usable\n");
	spooled_free(&o);
	box_free(b);
	return 0;
}

/* --- rows --------------------------------------------------------------------------------------
 */

static bool answer_of(const char *name, char *buf, size_t size)
{
	size_t n = strlen(name);

	for (const char *p = answers; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
		if (strncmp(p, name, n) == 0 && p[n] == ' ') {
			snprintf(buf, size, "|%.*s|", (int)strcspn(p + n + 1, "\n"), p + n + 1);
			return true;
		}
	return false;
}

static void attack_fails(void **state)
{
	const struct inside_row *r = *state;
	char got[512];

	if (!answer_of(r->name, got, sizeof(got)))
		fail_msg("no answer");
	if (!strstr(r->want, got))
		fail_msg("ended with %s, wanted one of %s", got, r->want);
}

static int run_rows(const struct inside_plan *p)
{
	static struct CMUnitTest tests[ROWS_MAX];
	size_t n = 0;

	assert_true(p->nrows + p->nmore <= ROWS_MAX);
	for (size_t i = 0; i < p->nrows; i++)
		tests[n++] = (struct CMUnitTest){ .name = p->rows[i].name,
			.test_func = attack_fails,
			.initial_state = (void *)(uintptr_t)&p->rows[i] };
	for (size_t i = 0; i < p->nmore; i++)
		tests[n++] = p->more[i];
	return _cmocka_run_group_tests(p->title, tests, n, run_attacks, NULL);
}

/* The programs and images of this build, and the broker that the plan wants. */
static void use_broker(const char *kind)
{
	char path[PATH_MAX + 64];

	if (kind)
		snprintf(path, sizeof(path), "%s/tests/linux/%s", build_folder(), kind);
	else
		snprintf(path, sizeof(path), "%s/bin", build_folder());
	setenv("SBX_LIBEXEC", path, 1);
	snprintf(path, sizeof(path), "%s/images", build_folder());
	setenv("SBX_IMAGES", path, 1);
}

static int run_plan(const struct inside_plan *p)
{
	int failed;

	plan = p;
	rig = (struct linux_rig){ 0 };
	use_broker(p->broker);
	linux_rig_open(&rig);
	failed = run_rows(p);
	linux_rig_close(&rig);
	free(answers);
	answers = NULL;
	return failed;
}

int inside_run(const struct inside_plan *plans, size_t n)
{
	const char *why = linux_rig_missing();
	int failed = 0;

	if (why) {
		printf("# SKIP attacks from inside: %s\n", why);
		return 0;
	}
	cmocka_set_test_filter(getenv("T"));
	for (size_t i = 0; i < n; i++)
		failed += run_plan(&plans[i]);
	return failed;
}
