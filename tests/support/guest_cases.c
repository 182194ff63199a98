/* SPDX-License-Identifier: MIT */
/* What guest.h promises, for any backend. Each test makes its own sandbox. */
#include "tests/support/guest_rig.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* A `sleep N` that no other program on this machine runs; `which` tells the tests apart. */
static const char *nap(unsigned which)
{
	static char text[8][32];
	char *t = text[which % 8];

	snprintf(t, sizeof(text[0]), "sleep 3%u%07d", which % 8, (int)getpid());
	return t;
}

/* box_sh with every %s replaced by the nap. */
static uint32_t nap_sh(struct box *b, const char *script, const char *with)
{
	char text[1024], *out = text;

	for (; *script; script++)
		if (script[0] == '%' && script[1] == 's')
			out = stpcpy(out, with), script++;
		else
			*out++ = *script;
	*out = 0;
	return box_sh(b, text);
}

#define WITH_BOX(b) struct box *b = box_new(*state)

static void a_command_runs_and_its_code_is_told(void **state)
{
	static const struct {
		const char *script;
		int code;
	} rows[] = { { "true", 0 }, { "exit 7", 7 }, { "exit 255", 255 }, { "kill -9 $$", 137 },
		{ "kill -TERM $$", 143 } };
	WITH_BOX(b);

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		_cleanup_(spooled_free_p) struct spooled o;
		box_run(b, rows[i].script, &o);
		assert_int_equal(o.exit_code, rows[i].code);
	}
	box_free(b);
}

static void streams_are_kept_apart_and_as_bytes(void **state)
{
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);

	box_run(b, "printf '\\360\\220'; printf 'e1' >&2; printf '\\377\\000\\376'", &o);
	assert_int_equal(o.len[0], 5);
	assert_memory_equal(o.out[0], "\360\220\377\000\376", 5);
	assert_string_equal(o.out[1], "e1");
	box_free(b);
}

static void order_between_streams_is_kept(void **state)
{
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);

	box_run(b, "for i in 1 2 3; do echo o; sleep 0.05; echo e >&2; sleep 0.05; done", &o);
	assert_int_equal(o.runs, 6);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(o.order[i], 2u | (i % 2 ? 0x80000000u : 0));
	box_free(b);
}

static void output_past_the_cap_is_counted_and_dropped(void **state)
{
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);

	box_run(b, "head -c 9437184 /dev/zero; echo end >&2", &o);
	assert_int_equal(o.exit_code, 0);
	assert_int_equal(o.len[0], SPOOL_CAP);
	assert_int_equal(o.dropped[0], 1048576);
	assert_string_equal(o.out[1], "end\n");
	box_free(b);
}

static void the_end_of_the_output_is_never_lost(void **state)
{
	WITH_BOX(b);

	for (int i = 0; i < 10; i++) {
		_cleanup_(spooled_free_p) struct spooled o;
		box_run(b, "seq 1 1000000", &o);
		assert_int_equal(o.len[0], 6888896);
		assert_string_equal(o.out[0] + o.len[0] - 9, "\n1000000\n");
	}
	box_free(b);
}

static void all_output_is_there_when_the_exit_is_told(void **state)
{
	WITH_BOX(b);

	for (int i = 0; i < 50; i++) {
		_cleanup_(spooled_free_p) struct spooled o;
		box_run(b, "echo a; echo b >&2; echo c", &o);
		assert_string_equal(o.out[0], "a\nc\n");
		assert_string_equal(o.out[1], "b\n");
	}
	box_free(b);
}

static void a_child_in_the_background_holds_nothing_up(void **state)
{
	static const char *const scripts[] = { "%s & echo started", "(setsid %s &) ; echo started" };
	WITH_BOX(b);

	for (size_t i = 0; i < 2; i++) {
		_cleanup_(spooled_free_p) struct spooled o;
		int64_t t = mono_ms();
		uint32_t num = nap_sh(b, scripts[i], nap(0));
		assert_true(box_wait_exit(b, num, 2000));
		assert_true(mono_ms() - t < patience_ms(2000));
		box_read(b, num, &o);
		assert_string_equal(o.out[0], "started\n");
		assert_int_equal(o.exit_code, 0);
	}
	assert_true(wait_count(nap(0), 2, 5000)); /* they live on */
	box_free(b);
	assert_true(wait_count(nap(0), 0, 5000));
}

static void a_background_child_can_go_on_writing(void **state)
{
	_cleanup_(spooled_free_p) struct spooled o, after;
	WITH_BOX(b);

	box_run(b, "(while ! test -e stop; do echo x || exit 9; sleep 0.02; done; echo ok > alive) &", &o);
	box_run(b, "sleep 0.3; touch stop; while ! test -s alive; do sleep 0.02; done; cat alive", &after);
	assert_string_equal(after.out[0], "ok\n");
	box_free(b);
}

static void a_tree_is_killed_with_everything_it_started(void **state)
{
	WITH_BOX(b);

	for (int i = 0; i < 5; i++) {
		struct err e = ERR_NULL;
		uint32_t num = nap_sh(b, "trap '' TERM; sh -c \"trap '' TERM INT HUP; %s\" & "
			"(setsid sh -c '%s & %s' &) ; %s | cat & echo up; wait", nap(1));
		assert_true(box_wait_output(b, num, "up", 5000));
		assert_true(wait_some(nap(1), 5000));
		int64_t t = mono_ms();
		assert_int_equal(guest_signal(b->guest, num, SIGKILL, true, &e), 0);
		assert_true(box_wait_exit(b, num, 3000));
		assert_true(mono_ms() - t < patience_ms(3000));
		assert_true(wait_count(nap(1), 0, 3000));
		_cleanup_(spooled_free_p) struct spooled o;
		box_read(b, num, &o);
		assert_int_equal(o.exit_code, 137);
		assert_string_equal(o.out[0], "up\n");
	}
	box_free(b);
}

static void what_cannot_start_says_which_thing_was_wrong(void **state)
{
	static const struct {
		const char *argv0, *cwd, *want;
	} rows[] = {
		{ "no-such-program", "/", "command \"no-such-program\": not found" },
		{ "/no/such", "/", "command \"/no/such\": not found" },
		{ "/etc", "/", "command \"/etc\": not executable" },
		{ "/etc/passwd", "/", "command \"/etc/passwd\": not executable" },
		{ "/sandbox/home/bad", "/", "command \"/sandbox/home/bad\": not executable, its interpreter" },
		{ "./bad", "/sandbox/home", "command \"./bad\": not executable, its interpreter" },
		{ "./text", "/sandbox/home", "command \"./text\": not executable" },
		{ "true", "/no/dir", "cwd \"/no/dir\": no such directory" },
		{ "true", "/etc/passwd", "cwd \"/etc/passwd\": no such directory" },
		{ "true", "/proc/self/fd/7", "cwd \"/proc/self/fd/7\": no such directory" },
		{ "true", "/proc/1/root", "cwd \"/proc/1/root\": " },
		{ "", "/", "argv must name" },
	};
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);

	box_run(b, "printf '#!/no/interp\\n' > bad; echo text > text; chmod +x bad text", &o);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *const argv[] = { rows[i].argv0, NULL };
		struct guest_start s = box_cmd(b, argv);
		struct err e = ERR_NULL;
		s.cwd = rows[i].cwd;
		assert_int_equal(box_start(b, &s, &e), 0);
		assert_int_equal(e.code, ERR_INVALID_REQUEST);
		if (!strstr(e.msg, rows[i].want))
			fail_msg("%s: %s", rows[i].argv0, e.msg);
		assert_int_equal(b->exits[s.num], 0);
	}
	box_free(b);
}

static void a_cwd_link_stays_inside(void **state)
{
	_cleanup_(spooled_free_p) struct spooled o, o2;
	const char *const argv[] = { "pwd", "-P", NULL };
	struct err e = ERR_NULL;
	WITH_BOX(b);

	box_run(b, "mkdir real; ln -s /sandbox/home/real link", &o);
	struct guest_start s = box_cmd(b, argv);
	s.cwd = "/sandbox/home/link";
	uint32_t num = box_start(b, &s, &e);
	assert_true(num && box_wait_exit(b, num, 5000));
	box_read(b, num, &o2);
	assert_non_null(strstr(o2.out[0], "/sandbox/home/real\n"));
	box_free(b);
}

static void no_input_is_the_end_of_input(void **state)
{
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);

	box_run(b, "cat; echo after:$?", &o);
	assert_string_equal(o.out[0], "after:0\n");
	box_free(b);
}

static void input_given_at_the_start_arrives_whole(void **state)
{
	const char *const argv[] = { "cat", NULL };
	size_t len = 3000000;
	char *data = malloc(len);
	struct err e = ERR_NULL;
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);

	for (size_t i = 0; i < len; i++)
		data[i] = (char)(i * 31 + i / 253);
	struct guest_start s = box_cmd(b, argv);
	s.stdin_data = data;
	s.stdin_len = len;
	uint32_t num = box_start(b, &s, &e);
	assert_true(num && box_wait_exit(b, num, 10000));
	box_read(b, num, &o);
	assert_int_equal(o.len[0], len);
	assert_memory_equal(o.out[0], data, len);
	free(data);
	box_free(b);
}

static void a_process_that_never_reads_does_not_hang_its_start(void **state)
{
	static char data[1000000];
	const char *const argv[] = { "true", NULL };
	struct err e = ERR_NULL;
	WITH_BOX(b);
	struct guest_start s = box_cmd(b, argv);

	s.stdin_data = data;
	s.stdin_len = sizeof(data);
	uint32_t num = box_start(b, &s, &e);
	assert_true(num && box_wait_exit(b, num, 5000));
	box_free(b);
}

static uint32_t start_open(struct box *b, const char *name, bool tty)
{
	const char *const argv[] = { name, NULL };
	struct guest_start s = box_cmd(b, argv);
	struct err e = ERR_NULL;

	s.stdin_open = true;
	s.tty = tty;
	uint32_t num = box_start(b, &s, &e);
	if (!num)
		fail_msg("%s", e.msg);
	return num;
}

static void input_stays_open_until_it_is_closed(void **state)
{
	struct err e = ERR_NULL;
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);
	uint32_t num = start_open(b, "cat", false);

	assert_int_equal(guest_stdin(b->guest, num, "one\n", 4, false, -1, &e), 0);
	assert_true(box_wait_output(b, num, "one\n", 5000));
	assert_int_equal(guest_stdin(b->guest, num, "two\n", 4, true, -1, &e), 0);
	assert_int_equal(guest_stdin(b->guest, num, "three\n", 6, false, -1, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	assert_true(box_wait_exit(b, num, 5000));
	box_read(b, num, &o);
	assert_int_equal(o.exit_code, 0);
	assert_string_equal(o.out[0], "one\ntwo\n");
	e = (struct err)ERR_NULL;
	assert_int_equal(guest_stdin(b->guest, num, "x", 1, false, -1, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	box_free(b);
}

struct writer {
	struct box *b;
	uint32_t num;
	int watch_fd, r;
	struct err e;
	pthread_t thread;
};

static void *write_much(void *arg)
{
	static const char data[1000000];
	struct writer *w = arg;

	w->r = guest_stdin(w->b->guest, w->num, data, sizeof(data), false, w->watch_fd, &w->e);
	return NULL;
}

static void blocked_input_waits_alone_and_ends_with_its_client(void **state)
{
	struct writer w = { .e = ERR_NULL };
	struct err e = ERR_NULL;
	int client[2];
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, client), 0);
	w.b = b;
	const char *const argv[] = { "sleep", "30013", NULL };
	struct guest_start s = box_cmd(b, argv);
	s.stdin_open = true;
	w.num = box_start(b, &s, &e);
	w.watch_fd = client[0];
	assert_int_equal(pthread_create(&w.thread, NULL, write_much, &w), 0);
	box_run(b, "echo others go on", &o);
	assert_string_equal(o.out[0], "others go on\n");
	close(client[1]);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.r, -1);
	assert_int_equal(w.e.sys, ECANCELED);
	assert_int_equal(b->exits[w.num], 0);
	close(client[0]);
	box_free(b);
}

static void shutdown_ends_a_call_under_way(void **state)
{
	const char *const argv[] = { "sleep", "30015", NULL };
	struct writer w = { .watch_fd = -1, .e = ERR_NULL };
	struct err e = ERR_NULL;
	WITH_BOX(b);
	struct guest_start s = box_cmd(b, argv);

	s.stdin_open = true;
	w.b = b;
	w.num = box_start(b, &s, &e);
	assert_int_equal(pthread_create(&w.thread, NULL, write_much, &w), 0);
	guest_shutdown(b->guest);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.r, -1);
	assert_int_equal(w.e.code, ERR_CONFLICT);
	assert_int_equal(guest_signal(b->guest, w.num, SIGTERM, false, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	box_free(b);
}

static void nothing_of_the_server_is_inherited(void **state)
{
	_cleanup_(spooled_free_p) struct spooled o, p;
	WITH_BOX(b);

	for (int i = 0; i < 20; i++)
		(void)start_open(b, "cat", i % 2);
	box_run(b, "grep -E 'SigIgn|SigBlk' /proc/self/status; umask; ls /proc/self/fd", &o);
	assert_string_equal(o.out[0], "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0022\n"
		"0\n1\n2\n3\n"); /* 3: what ls itself opened */
	box_run(b, "yes | head -n1", &p);
	assert_int_equal(p.exit_code, 0);
	assert_int_equal(p.len[1], 0);
	box_free(b);
}

static uint32_t start_tty(struct box *b, const char *script, uint16_t rows, uint16_t cols)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	struct guest_start s = box_cmd(b, argv);
	struct err e = ERR_NULL;

	s.tty = s.stdin_open = true;
	s.rows = rows;
	s.cols = cols;
	uint32_t num = box_start(b, &s, &e);
	if (!num)
		fail_msg("%s", e.msg);
	return num;
}

static void a_terminal_has_its_size_from_the_first_moment(void **state)
{
	static const struct {
		uint16_t rows, cols;
		const char *want;
	} sizes[] = { { 37, 113, "37 113\r\n" }, { 0, 0, "24 80\r\n" }, { 0, 100, "24 80\r\n" },
		{ 500, 300, "500 300\r\n" } };
	WITH_BOX(b);

	for (size_t i = 0; i < 20; i++) {
		size_t k = i % ARRAY_LEN(sizes);
		_cleanup_(spooled_free_p) struct spooled o;
		uint32_t num = start_tty(b, "stty size", sizes[k].rows, sizes[k].cols);
		assert_true(box_wait_exit(b, num, 5000));
		box_read(b, num, &o);
		assert_string_equal(o.out[0], sizes[k].want);
	}
	box_free(b);
}

static void a_terminal_is_resized_and_ends_at_ctrl_d(void **state)
{
	struct err e = ERR_NULL;
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);
	uint32_t num = start_tty(b, "echo ready; while read l; do stty size; done; echo end", 10, 20);

	assert_true(box_wait_output(b, num, "ready", 5000));
	assert_int_equal(guest_resize(b->guest, num, 50, 132, &e), 0);
	assert_int_equal(guest_stdin(b->guest, num, "x\n", 2, false, -1, &e), 0);
	assert_true(box_wait_output(b, num, "50 132", 5000));
	assert_int_equal(guest_stdin(b->guest, num, "", 0, true, -1, &e), 0);
	assert_true(box_wait_exit(b, num, 5000));
	box_read(b, num, &o);
	assert_int_equal(o.exit_code, 0);
	assert_non_null(strstr(o.out[0], "end\r\n"));
	assert_int_equal(o.len[1], 0);
	box_free(b);
}

static void a_resize_is_signalled(void **state)
{
	struct err e = ERR_NULL;
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);
	uint32_t num = start_tty(b, "trap 'stty size; exit 3' WINCH; echo ready; "
		"while :; do sleep 0.02; done", 10, 20);

	assert_true(box_wait_output(b, num, "ready", 5000));
	assert_int_equal(guest_resize(b->guest, num, 51, 133, &e), 0);
	assert_true(box_wait_exit(b, num, 5000));
	box_read(b, num, &o);
	assert_int_equal(o.exit_code, 3);
	assert_non_null(strstr(o.out[0], "51 133"));
	box_free(b);
}

static void a_terminals_last_output_is_not_lost(void **state)
{
	WITH_BOX(b);

	for (int i = 0; i < 20; i++) {
		_cleanup_(spooled_free_p) struct spooled o;
		uint32_t num = start_tty(b, "seq 1 2000; printf last", 0, 0);
		assert_true(box_wait_exit(b, num, 5000));
		box_read(b, num, &o);
		assert_int_equal(o.len[0], 8893 + 2000 + 4);
		assert_string_equal(o.out[0] + o.len[0] - 4, "last");
	}
	box_free(b);
}

static void signals_go_to_the_group(void **state)
{
	struct err e = ERR_NULL;
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);
	uint32_t num = nap_sh(b, "%s & echo up; wait", nap(2));

	assert_true(box_wait_output(b, num, "up", 5000));
	assert_int_equal(guest_signal(b->guest, num, SIGTERM, false, &e), 0);
	assert_true(box_wait_exit(b, num, 5000));
	assert_true(wait_count(nap(2), 0, 5000));
	box_read(b, num, &o);
	assert_int_equal(o.exit_code, 143);
	assert_int_equal(guest_signal(b->guest, num, SIGTERM, false, &e), 0);
	assert_int_equal(guest_signal(b->guest, num, SIGKILL, true, &e), 0);
	assert_int_equal(guest_forget(b->guest, num, &e), 0);
	assert_int_equal(guest_signal(b->guest, num, SIGTERM, false, &e), 0);
	box_free(b);
}

static void processes_outlive_the_front(void **state)
{
	struct err e = ERR_NULL;
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);
	uint32_t num = box_sh(b, "echo $$; echo one; while ! test -e go; do sleep 0.02; done; echo two; "
		"echo $$");
	uint32_t fast = box_sh(b, "while ! test -e go1; do sleep 0.02; done; exit 5");

	assert_true(box_wait_output(b, num, "one", 5000));
	guest_free(steal(b->guest));
	assert_true(b->rig->ops->alive(b->rig->backend, b->id, b->generation, NULL, NULL));
	assert_false(b->rig->ops->alive(b->rig->backend, b->id, b->generation + 1, NULL, NULL));
	assert_int_equal(box_connect(b, &e), 0);
	box_sh(b, "touch go1");
	assert_true(box_wait_exit(b, fast, 5000));
	guest_free(steal(b->guest));
	b->exits[fast] = 0;
	assert_int_equal(box_connect(b, &e), 0);
	assert_true(box_wait_exit(b, fast, 5000)); /* told again to a new front */
	box_sh(b, "touch go");
	assert_true(box_wait_exit(b, num, 5000));
	box_read(b, num, &o);
	long first = strtol(o.out[0], NULL, 10);
	char want[64];
	snprintf(want, sizeof(want), "%ld\none\ntwo\n%ld\n", first, first);
	assert_string_equal(o.out[0], want);
	box_free(b);
}

static void a_wrong_secret_or_generation_is_refused(void **state)
{
	struct err e = ERR_NULL;
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);
	struct guest *mine = steal(b->guest);

	b->secret[3] ^= 1;
	assert_int_equal(box_connect(b, &e), -1);
	b->secret[3] ^= 1;
	b->generation++;
	assert_int_equal(box_connect(b, &e), -1);
	b->generation--;
	b->guest = mine;
	box_run(b, "echo undisturbed", &o);
	assert_string_equal(o.out[0], "undisturbed\n");
	box_free(b);
}

static void kill_part(struct guest_rig *r, const char *id, enum rig_part part)
{
	pid_t pid = r->part ? r->part(r, id, part) : 0;

	if (pid <= 0)
		skip();
	assert_int_equal(kill(pid, SIGKILL), 0);
}

static void when_a_part_dies_the_sandbox_is_gone(struct guest_rig *r, enum rig_part which)
{
	struct box *b = box_new(r);
	struct err e = ERR_NULL;
	_cleanup_(spooled_free_p) struct spooled o;
	uint32_t num = nap_sh(b, "echo up; (setsid %s &); %s", nap(3));

	assert_true(box_wait_output(b, num, "up", 5000));
	assert_true(wait_some(nap(3), 5000));
	kill_part(r, b->id, which);
	assert_true(box_wait_gone(b, 5000));
	assert_true(wait_count(nap(3), 0, 5000));
	assert_int_equal(guest_signal(b->guest, num, SIGTERM, false, &e), -1);
	for (int i = 0; i < 500 && r->ops->alive(r->backend, b->id, b->generation, NULL, NULL); i++)
		usleep(10000);
	assert_false(r->ops->alive(r->backend, b->id, b->generation, NULL, NULL));
	box_read(b, num, &o);
	if (which == RIG_INIT) {
		assert_int_equal(o.state, SPOOL_EXITED);
		assert_int_equal(o.exit_code, 137);
	}
	assert_string_equal(o.out[0], "up\n");
	box_free(b);
}

static void the_death_of_init_ends_the_sandbox(void **state)
{
	when_a_part_dies_the_sandbox_is_gone(*state, RIG_INIT);
}

static void the_death_of_the_shim_ends_the_sandbox(void **state)
{
	when_a_part_dies_the_sandbox_is_gone(*state, RIG_SHIM);
}

static void destroy_leaves_no_process(void **state)
{
	WITH_BOX(b);
	struct guest_rig *r = b->rig;
	struct err e = ERR_NULL;
	char id[SBX_ID_MAX];

	for (int i = 0; i < 5; i++)
		nap_sh(b, "(setsid %s &); %s & %s", nap(4));
	memcpy(id, b->id, sizeof(id));
	box_free(b);
	assert_int_equal(host_count(nap(4)), 0);
	assert_int_equal(r->ops->destroy(r->backend, id, &e), 0); /* idempotent */
	assert_false(r->ops->alive(r->backend, id, 7, NULL, NULL));
}

static void sweep_ends_what_is_not_kept(void **state)
{
	struct guest_rig *r = *state;
	struct box *kept = box_new(r), *lost = box_new(r);
	const char *const keep[] = { kept->id };
	struct err e = ERR_NULL;
	_cleanup_(spooled_free_p) struct spooled o;

	assert_int_equal(r->ops->sweep(r->backend, keep, 1, &e), 0);
	assert_true(box_wait_gone(lost, 5000));
	assert_false(r->ops->alive(r->backend, lost->id, 7, NULL, NULL));
	box_run(kept, "echo here", &o);
	assert_string_equal(o.out[0], "here\n");
	box_free(lost);
	box_free(kept);
}

static void large_arguments_and_environments_pass(void **state)
{
	enum { N = 9, LEN = 100000 };
	static char big[N][LEN];
	const char *argv[N + 4] = { "sh", "-c", "echo $#", "x" };
	struct err e = ERR_NULL;
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);

	for (int i = 0; i < N; i++) {
		memset(big[i], 'a', LEN - 1);
		argv[4 + i] = i < N - 1 ? big[i] : NULL;
	}
	struct guest_start s = box_cmd(b, argv);
	uint32_t num = box_start(b, &s, &e);
	assert_true(num && box_wait_exit(b, num, 5000));
	box_read(b, num, &o);
	assert_string_equal(o.out[0], "8\n");
	memset(big, 'a', sizeof(big)); /* one string longer than the kernel takes */
	big[1][LEN / 2] = 0;
	const char *const too_long[] = { "true", big[0], NULL };
	s = box_cmd(b, too_long);
	assert_int_equal(box_start(b, &s, &e), 0);
	assert_int_equal(e.code, ERR_INVALID_REQUEST);
	box_free(b);
}

static void *many_runs(void *arg)
{
	struct box *b = arg;

	for (int i = 0; i < 25; i++) {
		const char *const argv[] = { "sh", "-c", "echo $0; cat", "hello", NULL };
		struct guest_start s = box_cmd(b, argv);
		struct err e = ERR_NULL;
		struct spooled o;
		s.stdin_data = "in";
		s.stdin_len = 2;
		uint32_t num = box_start(b, &s, &e);
		if (!num || !box_wait_exit(b, num, 10000))
			return b;
		box_read(b, num, &o);
		bool ok = strcmp(o.out[0], "hello\nin") == 0 && o.exit_code == 0;
		spooled_free(&o);
		if (!ok)
			return b;
	}
	return NULL;
}

static void many_threads_run_at_once(void **state)
{
	pthread_t t[8];
	void *r;
	WITH_BOX(b);

	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, many_runs, b), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		pthread_join(t[i], &r);
		assert_null(r);
	}
	box_free(b);
}

static void a_writer_of_single_bytes_does_not_flood(void **state)
{
	_cleanup_(spooled_free_p) struct spooled o;
	WITH_BOX(b);
	uint32_t num = box_sh(b, "dd if=/dev/zero bs=1 count=200000 2>/dev/null");

	assert_true(box_wait_exit(b, num, 20000));
	box_read(b, num, &o);
	assert_int_equal(o.len[0], 200000);
	assert_int_equal(o.runs, 1);
	box_free(b);
}

static void a_port_inside_can_be_reached(void **state)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	struct err e = ERR_NULL;
	int got = -1;
	WITH_BOX(b);

	assert_int_equal(guest_dial(b->guest, 1, &got, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	if (!b->rig->isolated) {
		_cleanup_close_ int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
		assert_int_equal(listen(l, 1), 0);
		assert_int_equal(getsockname(l, (struct sockaddr *)&a, &len), 0);
		assert_int_equal(guest_dial(b->guest, ntohs(a.sin_port), &got, &e), 0);
		assert_true(got >= 0);
		close(got);
	}
	box_free(b);
}

/* What the front is short of says nothing about the sandbox, which goes on. */
static void no_descriptor_left_is_no_end_of_the_sandbox(void **state)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	_cleanup_close_ int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct err files = ERR_NULL, dial = ERR_NULL;
	socklen_t len = sizeof(a);
	struct rlimit was, none;
	int got = -1, lowest, r[2];
	WITH_BOX(b);

	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&a, &len), 0);
	assert_int_equal(guest_signal(b->guest, 1, SIGTERM, false, NULL), 0); /* leaves a connection */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	lowest = dup(l);
	assert_true(lowest >= 0);
	close(lowest);
	none = (struct rlimit){ (rlim_t)lowest, was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	r[0] = guest_files_connect(b->guest, &got, &files);
	r[1] = b->rig->isolated ? -1 : guest_dial(b->guest, ntohs(a.sin_port), &got, &dial);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_int_equal(r[0], -1);
	assert_int_equal(files.code, ERR_UNAVAILABLE);
	assert_int_equal(r[1], -1);
	if (!b->rig->isolated)
		assert_int_equal(dial.code, ERR_UNAVAILABLE);
	assert_int_equal(guest_files_connect(b->guest, &got, &files), 0);
	close(got);
	box_free(b);
}

int guest_cases_run(struct guest_rig *r, const char *name)
{
	const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_prestate(fn, r)
		T(a_command_runs_and_its_code_is_told),
		T(streams_are_kept_apart_and_as_bytes),
		T(order_between_streams_is_kept),
		T(output_past_the_cap_is_counted_and_dropped),
		T(the_end_of_the_output_is_never_lost),
		T(all_output_is_there_when_the_exit_is_told),
		T(a_child_in_the_background_holds_nothing_up),
		T(a_background_child_can_go_on_writing),
		T(a_tree_is_killed_with_everything_it_started),
		T(what_cannot_start_says_which_thing_was_wrong),
		T(a_cwd_link_stays_inside),
		T(no_input_is_the_end_of_input),
		T(input_given_at_the_start_arrives_whole),
		T(a_process_that_never_reads_does_not_hang_its_start),
		T(input_stays_open_until_it_is_closed),
		T(blocked_input_waits_alone_and_ends_with_its_client),
		T(shutdown_ends_a_call_under_way),
		T(nothing_of_the_server_is_inherited),
		T(a_terminal_has_its_size_from_the_first_moment),
		T(a_terminal_is_resized_and_ends_at_ctrl_d),
		T(a_resize_is_signalled),
		T(a_terminals_last_output_is_not_lost),
		T(signals_go_to_the_group),
		T(processes_outlive_the_front),
		T(a_wrong_secret_or_generation_is_refused),
		T(the_death_of_init_ends_the_sandbox),
		T(the_death_of_the_shim_ends_the_sandbox),
		T(destroy_leaves_no_process),
		T(sweep_ends_what_is_not_kept),
		T(large_arguments_and_environments_pass),
		T(many_threads_run_at_once),
		T(a_writer_of_single_bytes_does_not_flood),
		T(a_port_inside_can_be_reached),
		T(no_descriptor_left_is_no_end_of_the_sandbox),
	};

	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
