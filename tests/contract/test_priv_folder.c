/* SPDX-License-Identifier: MIT */
/* The broker and a hostile front that uses what is its own: the state directory belongs to the front's user,
 * only priv/ in it does not. Links and other things in the place of the folders where the broker makes
 * sockets, priv/ renamed and replaced: what is created is refused or goes where it belongs, the next broker
 * takes no priv/ that is not root's, and the canaries beside the state directory stay as they are. */
#include "tests/support/priv_rig.h"

#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct priv_rig rig;
static uint64_t canaries;

static int open_rig(void **state)
{
	(void)state;
	priv_rig_open(&rig);
	canaries = priv_rig_canaries(&rig);
	priv_rig_ready(&rig);
	return 0;
}

static int close_rig(void **state)
{
	(void)state;
	priv_rig_close(&rig);
	return 0;
}

static int ask(uint32_t op, const char *id)
{
	struct priv_req q = priv_rig_req(op, id);

	q.generation = 7;
	return priv_rig_ask(&rig, &q, NULL, 0);
}

static void as_front(void (*fn)(const char *id), const char *id)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (setgid(PRIV_RIG_FRONT) < 0 || setuid(PRIV_RIG_FRONT) < 0 ||
			fchdir(rig.state_dirfd) < 0)
			_exit(2);
		fn(id);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void need(int r)
{
	if (r < 0)
		_exit(3);
}

static char *run_of(const char *id)
{
	static char path[128];

	snprintf(path, sizeof(path), "run/%s", id);
	return path;
}

static void link_for_folder(const char *id)
{
	need(symlink("../../canary/empty", run_of(id)));
}

static void file_for_folder(const char *id)
{
	need(open(run_of(id), O_CREAT | O_WRONLY, 0600));
}

static void link_for_socket(const char *id)
{
	need(mkdir(run_of(id), 0700));
	need(symlink("../../../canary/sock", strcat(run_of(id), "/sock")));
}

static void folder_for_socket(const char *id)
{
	need(mkdir(run_of(id), 0700));
	need(mkdir(strcat(run_of(id), "/sock"), 0700));
}

static void no_way_in(const char *id)
{
	need(mkdir(run_of(id), 0));
}

static void link_for_run(const char *id)
{
	(void)id;
	need(rename("run", "kept"));
	need(symlink("../canary/run", "run"));
}

static void run_again(const char *id)
{
	(void)id;
	need(unlink("run"));
	need(rename("kept", "run"));
}

/* What a create does with what it finds there: refused, and nothing is left of it. */
static void names_planted_for_a_create(void **state)
{
	static const struct {
		const char *id;
		void (*plant)(const char *id);
		void (*undo)(const char *id);
		bool made; /* it only takes away what was the front's own */
	} rows[] = {
		{ "sbx_p1", link_for_folder, NULL, false },
		{ "sbx_p2", file_for_folder, NULL, false },
		{ "sbx_p3", link_for_socket, NULL, true },
		{ "sbx_p4", folder_for_socket, NULL, false },
		{ "sbx_p5", no_way_in, NULL, false },
		{ "sbx_p6", link_for_run, run_again, false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		as_front(rows[i].plant, rows[i].id);
		int r = ask(PRIV_CREATE, rows[i].id);
		if (rows[i].undo)
			as_front(rows[i].undo, rows[i].id);
		if ((r == 0) != rows[i].made)
			fail_msg("%s: %d", rows[i].id, r);
		assert_int_equal(ask(PRIV_DESTROY, rows[i].id), 0);
		assert_int_equal(ask(PRIV_ALIVE, rows[i].id), ESRCH);
		assert_int_equal(priv_rig_canaries(&rig), canaries);
	}
}

static void goes_into_priv(const char *id)
{
	(void)id;
	if (open("priv", O_RDONLY | O_DIRECTORY) >= 0 || open("priv/lock", O_RDWR) >= 0 ||
		rename("priv/layers", "mine") == 0 || rename("priv", "run/priv") == 0 ||
		mkdir("priv/new", 0700) == 0)
		_exit(4);
}

static void takes_priv_away(const char *id)
{
	(void)id;
	need(rename("priv", "away"));
	need(symlink("../canary/priv", "priv"));
}

static void makes_its_own(const char *id)
{
	(void)id;
	need(unlink("priv"));
	need(mkdir("priv", 0700));
	need(mkdir("priv/boxes", 0700));
}

static void brings_it_back(const char *id)
{
	(void)id;
	need(rmdir("priv/boxes"));
	need(rmdir("priv"));
	need(rename("away", "priv"));
}

/* The folder around priv/ is the front's, priv/ is not: taking it away gains nothing, the broker that
 * runs does not look there again, and the next one takes nobody else's. */
static void the_brokers_own_folder_replaced(void **state)
{
	struct priv_ans a;

	(void)state;
	priv_rig_box(&rig, "sbx_later");
	as_front(goes_into_priv, "");
	as_front(takes_priv_away, "");
	priv_rig_run_dir(&rig, "sbx_away");
	assert_int_equal(ask(PRIV_CREATE, "sbx_away"), 0);
	assert_int_equal(ask(PRIV_DESTROY, "sbx_away"), 0);
	for (int i = 0; i < 2; i++) {
		priv_rig_restart(&rig);
		assert_false(priv_rig_next(&rig, &a, 60000)); /* it has ended by itself */
		assert_int_equal(priv_rig_canaries(&rig), canaries);
		if (i == 0)
			as_front(makes_its_own, "");
	}
	as_front(brings_it_back, "");
	priv_rig_restart(&rig);
	assert_int_equal(ask(PRIV_ALIVE, "sbx_later"), 0);
	priv_rig_ready(&rig);
	assert_int_equal(ask(PRIV_ALIVE, "sbx_later"), ESRCH); /* was not kept */
}

int main(void)
{
	const char *why = priv_rig_missing();
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_planted_for_a_create),
		cmocka_unit_test(the_brokers_own_folder_replaced),
	};

	if (why) {
		printf("# SKIP broker: %s\n", why);
		return 0;
	}
	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests(tests, open_rig, close_rig);
}
