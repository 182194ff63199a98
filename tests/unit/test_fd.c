/* SPDX-License-Identifier: MIT */
/* Whole reads and writes against a peer that moves a little now and then, and messages that bring more
 * descriptors than anybody asked for. */
#include "tests/support/test.h"

#include "common/sys/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EACH_MS 20
#define MOVES   200
#define BYTES   100000

struct peer {
	int fd;
	bool reads;
	atomic_bool stop;
};

/* A byte each twenty milliseconds, for longer than any row waits. */
static void *move_a_little(void *arg)
{
	struct peer *p = arg;
	struct timespec pause = { .tv_nsec = EACH_MS * 1000000 };
	char b = 0;

	for (int i = 0; i < MOVES && !p->stop; i++) {
		if ((p->reads ? recv(p->fd, &b, 1, MSG_DONTWAIT) : send(p->fd, &b, 1, MSG_NOSIGNAL)) == 0)
			break;
		nanosleep(&pause, NULL);
	}
	shutdown(p->fd, SHUT_RDWR); /* who still waits hears something else */
	return NULL;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void a_peer_that_moves_a_little_is_late(void **state)
{
	(void)state;
	for (int reads = 0; reads < 2; reads++) {
		char *buf = calloc(1, 8 << 20);
		int sv[2], r;
		pthread_t t;
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
		struct peer p = { .fd = sv[1], .reads = reads };
		assert_int_equal(pthread_create(&t, NULL, move_a_little, &p), 0);
		int64_t began = now_ms();
		r = reads ? fd_send_full(sv[0], buf, 8 << 20, 300) : fd_recv_full(sv[0], buf, BYTES, 300);
		int64_t took = now_ms() - began;
		p.stop = true;
		pthread_join(t, NULL);
		close(sv[0]);
		close(sv[1]);
		free(buf);
		assert_int_equal(r, -ETIMEDOUT);
		assert_in_range(took, 250, 60000); /* all of it would take half an hour */
	}
}

static void what_is_there_is_taken_whatever_the_deadline(void **state)
{
	char buf[64];
	int sv[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	assert_int_equal(fd_send_full(sv[1], buf, sizeof(buf), 0), 0);
	assert_int_equal(fd_recv_full(sv[0], buf, sizeof(buf), 0), 0);
	assert_int_equal(fd_recv_full(sv[0], buf, 1, 0), -ETIMEDOUT);
	close(sv[1]);
	assert_int_equal(fd_recv_full(sv[0], buf, 1, 0), -ENODATA);
	close(sv[0]);
}

static unsigned open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void descriptors_beyond_the_room_are_closed(void **state)
{
	unsigned before = open_fds();
	int sv[2], fds[8], got[8];
	char b = 0;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	for (size_t i = 0; i < 8; i++)
		fds[i] = sv[0];
	for (size_t room = 0; room <= 8; room++) {
		size_t n = room;
		assert_int_equal(fd_send_msg(sv[0], &b, 1, fds, 8), 0);
		assert_int_equal(fd_recv_msg(sv[1], &b, 1, got, room ? &n : NULL), 1);
		for (size_t i = 0; i < n; i++)
			close(got[i]);
		assert_int_equal(room ? n : 0, room);
	}
	close(sv[0]);
	close(sv[1]);
	assert_int_equal(open_fds(), before);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_peer_that_moves_a_little_is_late),
		cmocka_unit_test(what_is_there_is_taken_whatever_the_deadline),
		cmocka_unit_test(descriptors_beyond_the_room_are_closed),
	};

	return run_table(tests);
}
