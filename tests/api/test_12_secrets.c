/* SPDX-License-Identifier: MIT */
/* Case SEC-1: a secret goes in and is then looked for everywhere: answers, the log at its most
 * detailed, command lines, events, and the modes of what is kept. On both backends, where this is
 * root. */
#include "tests/support/rig.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET "zq7secret"
#define TOKEN  SECRET "-token-10"

static int saved_stderr = -1;
static char log_path[64];

static int setup_on(void **state, bool linux_backend)
{
	int fd;

	snprintf(log_path, sizeof(log_path), "/tmp/secrets-log-XXXXXX");
	fd = mkostemp(log_path, O_CLOEXEC);
	assert_true(fd >= 0);
	setenv("SBX_TEST_LOG", "debug", 1);
	fflush(stderr);
	saved_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	dup2(fd, STDERR_FILENO);
	close(fd);
	*state = rig_new(&(struct rig_conf){ .token = TOKEN, .linux_backend = linux_backend });
	return 0;
}

static int setup_fake(void **state)
{
	return setup_on(state, false);
}

static int setup_linux(void **state)
{
	return setup_on(state, true);
}

static int teardown(void **state)
{
	rig_free(*state);
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	unlink(log_path);
	return 0;
}

static bool file_has(const char *path, const char *what)
{
	_cleanup_free_ char *buf = malloc(1 << 20);
	FILE *f = fopen(path, "re");
	size_t n;

	assert_non_null(buf);
	if (!f)
		return false;
	n = fread(buf, 1, 1 << 20, f);
	fclose(f);
	return memmem(buf, n, what, strlen(what)) != NULL;
}

static void no_secret(const struct answer *a)
{
	if (memmem(a->head, strlen(a->head), SECRET, strlen(SECRET)) ||
		memmem(a->body, a->len, SECRET, strlen(SECRET)))
		fail_msg("an answer shows the secret: %s%s", a->head, a->body);
}

static void post(struct rig *r, const char *path, const char *body)
{
	_cleanup_answer_ struct answer a =
		rig_send(r, "POST", path, NULL, NULL, body, strlen(body));

	no_secret(&a);
}

static void use_secrets(struct rig *r, const char *id)
{
	_cleanup_answer_ struct answer put = { 0 }, wrong = { 0 }, query = { 0 }, events = { 0 };

	post(r, rig_path("/v1/sandboxes/%s/run", id),
		"{\"argv\":[\"sh\",\"-c\",\"true\",\"" SECRET "-2\"],\"env\":{\"T\":\"" SECRET
		"-3\"},"
		"\"stdin\":\"enE3c2VjcmV0LTQ=\"}");
	put = rig_send(r, "PUT", rig_path("/v1/sandboxes/%s/files?path=/sandbox/home/f", id), NULL,
		"application/octet-stream", SECRET "-5", strlen(SECRET "-5"));
	no_secret(&put);
	post(r, "/v1/sandboxes", "{\"env\":{\"LD_PRELOAD\":\"" SECRET "-6\"}}");
	post(r, "/v1/sandboxes",
		"{\"registry_login\":{\"registry\":\"bad host\",\"username\":\"u\","
		"\"password\":\"" SECRET "-7\"}}");
	post(r, "/v1/sandboxes",
		"{\"metrics_export\":{\"endpoint\":\"http://u:" SECRET "-8@h/\","
		"\"headers\":{\"Authorization\":\"" SECRET "-9\"}}}");
	wrong = rig_send(r, "GET", "/v1/sandboxes", "Authorization: Bearer " SECRET "-10\r\n", NULL,
		NULL, 0);
	no_secret(&wrong);
	query = rig_send(r, "GET", "/v1/sandboxes?token=" SECRET "-11", NULL, NULL, NULL, 0);
	no_secret(&query);
	post(r, rig_path("/v1/sandboxes/%s/run", id),
		"{\"argv\":[\"true\"],\"env\":{\"A\":\"" SECRET "-12\"},\"nonsense\":1}");
	events = rig_send(r, "GET", rig_path("/v1/sandboxes/%s/events", id), NULL, NULL, NULL, 0);
	assert_int_equal(events.status, 200);
	no_secret(&events);
}

static const char *name_of(const char *path)
{
	return strrchr(path, '/') + 1;
}

static int check_mode(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)type;
	(void)ftw;
	/* Below fake/ and priv/ lie the files of guests and images, with their modes, behind a
	 * folder of 0700. */
	if (S_ISDIR(st->st_mode) &&
		(!strcmp(name_of(path), "fake") || !strcmp(name_of(path), "priv")) &&
		(st->st_mode & 077)) {
		print_error("%s can be entered by others\n", path);
		return 1;
	}
	if (S_ISREG(st->st_mode) && !strstr(path, "/fake/") && !strstr(path, "/priv/") &&
		(st->st_mode & 077)) {
		print_error("%s can be read by others\n", path);
		return 1;
	}
	return 0;
}

/* Command lines of all processes that this program's server started. */
static void check_command_lines(void)
{
	DIR *proc = opendir("/proc");
	struct dirent *d;

	assert_non_null(proc);
	while ((d = readdir(proc))) {
		char path[300], comm[64] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%s/comm", d->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (!fgets(comm, sizeof(comm), f))
			comm[0] = '\0';
		fclose(f);
		snprintf(path, sizeof(path), "/proc/%s/cmdline", d->d_name);
		if ((strstr(comm, "sbx-") || !strncmp(comm, "sandboxd", 8)) &&
			file_has(path, SECRET))
			fail_msg("a command line shows the secret");
	}
	closedir(proc);
}

static void a_secret_is_shown_nowhere(void **state)
{
	struct rig *r = *state;
	const char *body = "{\"env\":{\"DB_PASS\":\"" SECRET "-1\"},\"labels\":{\"team\":\"a\"}}";
	_cleanup_answer_ struct answer a =
		rig_send(r, "POST", "/v1/sandboxes", NULL, NULL, body, strlen(body));
	json_t *v;

	assert_int_equal(a.status, 201);
	no_secret(&a);
	v = answer_json(&a);
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(v, "env_names"), 0)), "DB_PASS");
	use_secrets(r, json_string_value(json_object_get(v, "id")));
	check_command_lines();
	assert_false(file_has(log_path, SECRET));
	assert_false(file_has(rig_path("%s/audit/events.jsonl", r->state), SECRET));
	assert_int_equal(nftw(r->state, check_mode, 16, FTW_PHYS), 0);
	json_decref(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_secret_is_shown_nowhere, setup_fake, teardown),
	};
	const struct CMUnitTest as_root[] = {
		cmocka_unit_test_setup_teardown(a_secret_is_shown_nowhere, setup_linux, teardown),
	};
	int failed = run_table(tests);

	return rig_linux_missing() ? failed : failed + run_table(as_root);
}
