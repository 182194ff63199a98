/* SPDX-License-Identifier: MIT */
/* Who tells the kernel what: each sandbox's news come in their order, and one whose folder the kernel holds keeps
 * nobody else's back. The kernel is the function below, which holds whom it is told to. */
#include "common/sys/deadline.h"
#include "sbxfs/inode.h"
#include "sbxfs/nodes.h"
#include "sbxfs/trust.h"
#include "tests/support/test.h"

#define BOXES 15 /* held; one thread is left for another one */
#define NEWS  200

static struct mount m;
static struct inode *dirs[BOXES + 1];

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool holds[BOXES + 1];
	unsigned held, told[BOXES + 1];
	bool disorder;
} kernel = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

int fuse_lowlevel_notify_inval_entry(struct fuse_session *se, fuse_ino_t parent, const char *name, size_t len)
{
	unsigned b = 0;

	(void)se;
	(void)len;
	while (inode_nodeid(&m, dirs[b]) != parent)
		b++;
	pthread_mutex_lock(&kernel.lock);
	kernel.held += kernel.holds[b];
	pthread_cond_broadcast(&kernel.changed);
	while (kernel.holds[b])
		pthread_cond_wait(&kernel.changed, &kernel.lock);
	kernel.disorder |= (unsigned)atoi(name) != kernel.told[b];
	kernel.told[b]++;
	pthread_cond_broadcast(&kernel.changed);
	pthread_mutex_unlock(&kernel.lock);
	return 0;
}

static void tell(unsigned b, unsigned n)
{
	char name[16];

	(void)snprintf(name, sizeof(name), "%u", n);
	notify_entry(&m, inode_nodeid(&m, dirs[b]), name);
}

static bool comes(const unsigned *figure, unsigned n)
{
	struct timespec until = deadline_ms(30000);
	bool is;

	pthread_mutex_lock(&kernel.lock);
	while (*figure < n && cond_wait_until(&kernel.changed, &kernel.lock, &until))
		;
	is = *figure >= n;
	pthread_mutex_unlock(&kernel.lock);
	return is;
}

static int begin(void **state)
{
	char box[32];

	(void)state;
	memset(&m, 0, sizeof(m));
	m.se = (struct fuse_session *)&kernel; /* only to be there */
	assert_int_equal(inodes_new(&m, &m.inodes), 0);
	assert_int_equal(notifier_new(&m, &m.notifier), 0);
	for (unsigned b = 0; b <= BOXES; b++) {
		(void)snprintf(box, sizeof(box), "sbx_%016u", b);
		assert_int_equal(inode_virtual(&m, node_by_id(N_FS), box, "", 0, &dirs[b]), 0);
		kernel.holds[b] = false;
		kernel.told[b] = 0;
	}
	kernel.held = 0;
	kernel.disorder = false;
	return 0;
}

static int end(void **state)
{
	(void)state;
	pthread_mutex_lock(&kernel.lock);
	memset(kernel.holds, 0, sizeof(kernel.holds));
	pthread_cond_broadcast(&kernel.changed);
	pthread_mutex_unlock(&kernel.lock);
	while (!notifier_stop(m.notifier))
		;
	notifier_free(m.notifier);
	inodes_free(m.inodes);
	return 0;
}

/* Told back to back, so that one that waits may have been woken for both. */
static void who_is_held_keeps_nobody_back(void **state)
{
	(void)state;
	for (unsigned b = 0; b < BOXES; b++) {
		tell(BOXES, 2 * b);
		assert_true(comes(&kernel.told[BOXES], 2 * b + 1));
		kernel.holds[b] = true;
		tell(b, 0);
		tell(BOXES, 2 * b + 1);
		assert_true(comes(&kernel.told[BOXES], 2 * b + 2));
		assert_true(comes(&kernel.held, b + 1));
	}
	assert_false(kernel.disorder);
}

static void news_of_a_sandbox_come_in_their_order(void **state)
{
	(void)state;
	for (unsigned n = 0; n < NEWS; n++)
		for (unsigned b = 0; b <= BOXES; b++)
			tell(b, n);
	for (unsigned b = 0; b <= BOXES; b++)
		assert_true(comes(&kernel.told[b], NEWS));
	assert_false(kernel.disorder);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(who_is_held_keeps_nobody_back, begin, end),
		cmocka_unit_test_setup_teardown(news_of_a_sandbox_come_in_their_order, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
