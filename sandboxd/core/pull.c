/* SPDX-License-Identifier: MIT */
#include "sandboxd/core/pull.h"

#include "common/base/log.h"
#include "common/json/json.h"
#include "common/sys/deadline.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "common/sys/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>

#define TICK_MS 200

struct call {
	struct call *next;
	uint32_t tag;
	bool done;
	struct pull_ans ans;
};
struct pull {
	int fd, stop; /* stop: eventfd that ends the reader */
	int dirfd;    /* pull/ */
	pthread_t reader;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* under lock */
	uint32_t tag;
	struct call *calls;
	bool dead;
};

/* --- the socket ------------------------------------------------------------------------------ */

/* It goes into an answer and into the log: plain text, whatever was sent. */
static void clean(char *text, size_t size)
{
	text[size - 1] = '\0';
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

static void take(struct pull *p, const struct pull_ans *ans)
{
	pthread_mutex_lock(&p->lock);
	for (struct call *c = p->calls; c; c = c->next)
		if (c->tag == ans->tag) {
			c->ans = *ans;
			clean(c->ans.text, sizeof(c->ans.text));
			c->done = true;
		}
	pthread_cond_broadcast(&p->cond);
	pthread_mutex_unlock(&p->lock);
}

static void *read_answers(void *arg)
{
	struct pull *p = arg;
	struct pollfd fds[2] = { { .fd = p->fd, .events = POLLIN },
		{ .fd = p->stop, .events = POLLIN } };
	struct pull_ans ans;

	for (;;) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		if (fds[1].revents)
			return NULL;
		if (!fds[0].revents)
			continue;
		ssize_t n = fd_recv_msg(p->fd, &ans, sizeof(ans), NULL, NULL);
		if (n <= 0)
			break;
		if (n == sizeof(ans) && ans.magic == PULL_MAGIC)
			take(p, &ans);
	}
	log_error("sbx-pull has ended: no image can be fetched until the server is started again");
	pthread_mutex_lock(&p->lock);
	p->dead = true;
	pthread_cond_broadcast(&p->cond);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int pull_new(int fd, int state_dirfd, struct pull **ret, struct err *e)
{
	struct pull *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return err_oom(e);
	p->fd = fd;
	p->dirfd = openat(state_dirfd, "pull", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	p->stop = eventfd(0, EFD_CLOEXEC);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->cond, NULL);
	r = p->dirfd < 0 || p->stop < 0 ? errno : pthread_create(&p->reader, NULL, read_answers, p);
	if (r == 0) {
		*ret = p;
		return 0;
	}
	close_p(&p->dirfd);
	close_p(&p->stop);
	free(p);
	return err_sys(e, r, "the folder pull in the state directory");
}

void pull_free(struct pull *p)
{
	uint64_t one = 1;

	if (!p)
		return;
	if (write(p->stop, &one, sizeof(one)) == sizeof(one))
		pthread_join(p->reader, NULL);
	close(p->stop);
	close(p->fd);
	close(p->dirfd);
	pthread_cond_destroy(&p->cond);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* --- work ------------------------------------------------------------------------------------ */

int pull_begin(struct pull *p, struct pull_work *ret, struct err *e)
{
	char name[16];

	pthread_mutex_lock(&p->lock);
	ret->tag = ++p->tag;
	pthread_mutex_unlock(&p->lock);
	snprintf(name, sizeof(name), "%u", ret->tag);
	if (mkdirat(p->dirfd, name, 0700) < 0)
		return err_sys(e, errno, "a folder to fetch an image into");
	ret->dirfd = openat(p->dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (ret->dirfd >= 0)
		return 0;
	err_sys(e, errno, "a folder to fetch an image into");
	(void)unlinkat(p->dirfd, name, AT_REMOVEDIR);
	return -1;
}

void pull_end(struct pull *p, struct pull_work *w)
{
	char name[16];
	int r;

	if (w->dirfd < 0)
		return;
	close(w->dirfd);
	w->dirfd = -1;
	snprintf(name, sizeof(name), "%u", w->tag);
	r = tree_remove(p->dirfd, name);
	if (r < 0)
		log_warn("what was fetched of an image could not be removed folder=pull/%s: %s",
			name, strerror(-r));
}

int pull_login(const struct pull_work *w, const char *registry, const char *auth, struct err *e)
{
	_cleanup_json_ json_t *o = json_pack("{s:{s:{s:s}}}", "auths", registry, "auth", auth);
	char *text = o ? json_text(o) : NULL;
	int fd, r = -ENOMEM;

	fd = openat(w->dirfd, "auth.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		r = -errno;
	else if (text)
		r = fd_write_full(fd, text, strlen(text));
	close_p(&fd);
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
	return r < 0 ? err_sys(e, -r, "write the login for the registry") : 0;
}

static int refuse(const struct pull_ans *a, struct err *e)
{
	static const struct {
		enum err_code code;
		const char *what;
	} rows[] = {
		[PULL_NOT_FOUND] = { ERR_NOT_FOUND,
			"the registry does not know it, or asks for a login" },
		[PULL_DENIED] = { ERR_REFUSED, "the registry refused the login" },
		[PULL_REFUSED] = { ERR_REFUSED,
			"the registry has no public address; the server was not started with "
			"--registry-allow-private" },
		[PULL_UNREACHABLE] = { ERR_UNAVAILABLE, "the registry cannot be reached" },
		[PULL_STALLED] = { ERR_UNAVAILABLE, "the registry has stopped sending" },
		[PULL_CANCELLED] = { ERR_CONFLICT, "the install was cancelled" },
		[PULL_DAMAGED] = { ERR_INTERNAL, "what was sent is not what its digest says" },
		[PULL_FULL] = { ERR_UNAVAILABLE, "the host's disk is full" },
		[PULL_MORE] = { ERR_INTERNAL, "what came is more than an image may be" },
		[PULL_FAILED] = { ERR_INTERNAL, "it could not be fetched" },
	};
	int i = a->result > 0 && (size_t)a->result < ARRAY_LEN(rows) ? a->result : PULL_FAILED;

	if (a->text[0])
		return err_set(e, rows[i].code, "%s (%.150s)", rows[i].what, a->text);
	return err_set(e, rows[i].code, "%s", rows[i].what);
}

static void unlink_call(struct pull *p, const struct call *c)
{
	struct call **at = &p->calls;

	while (*at && *at != c)
		at = &(*at)->next;
	if (*at)
		*at = c->next;
}

static void send_cancel(struct pull *p, uint32_t tag)
{
	struct pull_req q = { .magic = PULL_MAGIC, .op = PULL_CANCEL, .tag = tag };

	(void)fd_send_msg(p->fd, &q, sizeof(q), NULL, 0);
}

/* Lock held. Let go while tick looks around; after a cancel the answer is waited for all the same,
 * as the folder is in use until it comes. */
static int wait_done(struct pull *p, struct call *c, int (*tick)(void *, struct err *), void *arg,
	struct err *why)
{
	bool cancelled = false;

	while (!c->done && !p->dead) {
		(void)cond_wait_ms(&p->cond, &p->lock, TICK_MS);
		if (c->done || cancelled)
			continue;
		pthread_mutex_unlock(&p->lock);
		cancelled = tick(arg, why) < 0;
		if (cancelled)
			send_cancel(p, c->tag);
		pthread_mutex_lock(&p->lock);
	}
	return cancelled ? -1 : 0;
}

int pull_run(struct pull *p, const struct pull_work *w, enum pull_op op, enum pull_source source,
	const char *ref, int (*tick)(void *arg, struct err *e), void *arg, struct err *e)
{
	struct pull_req q = { .magic = PULL_MAGIC, .op = op, .tag = w->tag, .source = source };
	struct call c = { .tag = w->tag };
	struct err why = ERR_NULL;
	int rc, r;

	if (snprintf(q.ref, sizeof(q.ref), "%s", ref) >= (int)sizeof(q.ref))
		return err_set(e, ERR_INVALID_REQUEST, "the image's name is too long");
	pthread_mutex_lock(&p->lock);
	c.next = p->calls;
	/* unlinked below before it goes out of scope */
	/* cppcheck-suppress autoVariables */
	p->calls = &c;
	pthread_mutex_unlock(&p->lock);
	r = fd_send_msg(p->fd, &q, sizeof(q), NULL, 0);
	pthread_mutex_lock(&p->lock);
	rc = r < 0 ? 0 : wait_done(p, &c, tick, arg, &why);
	unlink_call(p, &c);
	pthread_mutex_unlock(&p->lock);
	if (rc < 0) {
		if (e)
			*e = why;
		return -1;
	}
	if (!c.done)
		return err_set(e, ERR_UNAVAILABLE,
			"sbx-pull has ended; images are fetched once the server is started again");
	return c.ans.result == PULL_OK ? 0 : refuse(&c.ans, e);
}
