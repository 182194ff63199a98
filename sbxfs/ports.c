/* SPDX-License-Identifier: MIT */
/* One thread a port that accepts, one a connection that copies. A thread keeps its port by a reference,
 * so that the end of a port waits for nobody: it closes the door, shuts the connections down, and the
 * last thread out frees it. */
#include "sbxfs/ports.h"

#include "common/sys/thread.h"
#include "sbxfs/box.h"
#include "sbxfs/errlog.h"
#include "sbxfs/port_dir.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORTS_MAX 256
#define CONNECTIONS_MAX 512 /* of the mount */
#define BACKLOG 64
#define SHORT_OF_MS 100
#define STACK_BYTES (128u * 1024)

struct conn {
	struct conn *next; /* of the port; under lock */
	struct port *port;
	int local, remote; /* under lock: -1 when it is not there yet, or no longer */
};
struct port {
	/* fixed */
	struct ports *all;
	char box[SBX_ID_MAX], path[108];
	int number, listen_fd;
	int wake_fd; /* tells the accepting thread that something changed */

	/* under lock */
	struct port *next;
	unsigned refs; /* the list, the accepting thread, connections */
	bool ended;
	int tcp_fd, tcp;
	struct conn *conns;
	unsigned open;
	uint64_t connections;
	char error[200];
};
struct ports {
	struct mount *m;
	pthread_mutex_t lock;
	pthread_cond_t idle; /* no thread is left */
	/* under lock */
	struct port *first;
	struct port_dir dir;
	unsigned n, threads, conns;
	uint64_t made;
	bool stopping;
};

int ports_new(struct mount *m, struct ports **ret)
{
	struct ports *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->m = m;
	p->dir = (struct port_dir)PORT_DIR_NULL;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->idle, NULL);
	*ret = p;
	return 0;
}

int port_of_word(const char *word)
{
	int n = 0;

	if (word[0] < '1' || word[0] > '9')
		return 0;
	for (; *word; word++) {
		if (*word < '0' || *word > '9' || n > 65535)
			return 0;
		n = n * 10 + (*word - '0');
	}
	return n <= 65535 ? n : 0;
}

/* Lock held, for all below up to the threads. */
static struct port *port_find(struct ports *all, const char *box, int number)
{
	struct port *p;

	for (p = all->first; p; p = p->next)
		if (p->number == number && !strcmp(p->box, box))
			return p;
	return NULL;
}

static void port_unref(struct port *p)
{
	if (--p->refs)
		return;
	close(p->wake_fd);
	free(p);
}

static void wake(const struct port *p)
{
	(void)!write(p->wake_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

/* Takes it out of the list: new connections are refused from here on, open ones end. */
static void port_end(struct port *p)
{
	struct port **at = &p->all->first;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	p->all->n--;
	p->ended = true;
	unlink(p->path);
	for (struct conn *c = p->conns; c; c = c->next) {
		shutdown(c->local, SHUT_RDWR);
		if (c->remote >= 0)
			shutdown(c->remote, SHUT_RDWR);
	}
	wake(p);
	port_unref(p);
}

static int thread_start(struct ports *all, void *(*fn)(void *), void *arg)
{
	int r = thread_detached(fn, arg, STACK_BYTES);

	if (r == 0)
		all->threads++;
	return r;
}

static void thread_ends(struct ports *all)
{
	if (--all->threads == 0)
		pthread_cond_broadcast(&all->idle);
}

/* ---- connections ---- */

/* Whoever connected sees only a close; the words are where other refusals are. */
static void note(struct port *p, const struct sbx_error *e)
{
	struct mount *m = p->all->m;
	struct req q = { .m = m, .uid = m->opt.owner, .op = "connect", .err = *e };
	char name[SBX_ID_MAX];
	json_t *box;
	bool ended;

	box_shown(m, p->box, name, sizeof(name));
	(void)snprintf(q.path, sizeof(q.path), "%s/ports/%d", name, p->number);
	memcpy(q.box, p->box, sizeof(q.box));
	errlog_note(m->errors, &q, e->sys ? e->sys : EIO);
	if (e->status != 404 && e->status != 409)
		return;
	/* Nothing listens there, or there is no sandbox any more. */
	q.start_ms = now_ms();
	ended = box_live(&q, p->box, &box) < 0;
	if (!ended)
		json_decref(box);
	if (ended && (q.err.sys == ESTALE || q.err.status == 404))
		ports_forget_box(m, p->box);
}

static void conn_free(struct conn *c)
{
	struct port *p = c->port;
	struct conn **at = &p->conns;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	p->open--;
	p->all->conns--;
	free(c);
}

static void *connection(void *arg)
{
	struct conn *c = arg;
	struct port *p = c->port;
	struct ports *all = p->all;
	struct sbx_error e = { .status = 0 };
	int remote = -1, local = c->local;
	int bad = sbx_tunnel(all->m->sbx, p->box, p->number, &remote, &e);
	bool go;

	pthread_mutex_lock(&all->lock);
	(void)snprintf(p->error, sizeof(p->error), "%.199s", bad < 0 ? e.message : "");
	c->remote = remote;
	go = bad == 0 && !p->ended;
	pthread_mutex_unlock(&all->lock);
	if (bad < 0)
		note(p, &e);
	if (go)
		sbx_join(local, remote);
	pthread_mutex_lock(&all->lock);
	conn_free(c);
	close(local);
	if (remote >= 0)
		close(remote);
	port_unref(p);
	thread_ends(all);
	pthread_mutex_unlock(&all->lock);
	return NULL;
}

static void take_connection(struct port *p, int fd)
{
	struct ports *all = p->all;
	int local = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	struct conn *c = local < 0 ? NULL : calloc(1, sizeof(*c));
	bool ok = false;

	/* Out of descriptors: whoever waits is still there in a moment. */
	if (local < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
		poll(NULL, 0, SHORT_OF_MS);
	pthread_mutex_lock(&all->lock);
	if (c && !p->ended && all->conns < CONNECTIONS_MAX) {
		*c = (struct conn){ .next = p->conns, .port = p, .local = local, .remote = -1 };
		ok = thread_start(all, connection, c) == 0;
	}
	if (ok) {
		p->conns = c;
		p->refs++;
		p->open++;
		p->connections++;
		all->conns++;
	} else if (local >= 0 && !p->ended) {
		(void)snprintf(p->error, sizeof(p->error), "too many connections through this mount");
	}
	pthread_mutex_unlock(&all->lock);
	if (ok)
		return;
	free(c);
	if (local >= 0)
		close(local);
}

static void *accepting(void *arg)
{
	struct port *p = arg;
	struct ports *all = p->all;
	bool ended = false;

	while (!ended) {
		struct pollfd f[3] = { { p->wake_fd, POLLIN, 0 }, { p->listen_fd, POLLIN, 0 } };
		uint64_t n;

		pthread_mutex_lock(&all->lock);
		f[2] = (struct pollfd){ p->tcp_fd, POLLIN, 0 };
		ended = p->ended;
		pthread_mutex_unlock(&all->lock);
		if (ended || (poll(f, 3, -1) < 0 && errno != EINTR))
			break;
		if (f[0].revents)
			(void)!read(p->wake_fd, &n, sizeof(n));
		for (int i = 1; i < 3; i++)
			if (f[i].revents & POLLIN)
				take_connection(p, f[i].fd);
	}
	pthread_mutex_lock(&all->lock);
	close(p->listen_fd);
	if (p->tcp_fd >= 0)
		close(p->tcp_fd);
	p->tcp_fd = -1;
	port_unref(p);
	thread_ends(all);
	pthread_mutex_unlock(&all->lock);
	return NULL;
}

/* ---- making and ending ---- */

static int port_begin(struct ports *all, struct port *p)
{
	int rc = port_dir_open(&all->dir, &all->m->opt);

	if (rc < 0)
		return rc;
	(void)snprintf(p->path, sizeof(p->path), "%s/%llu-%d", all->dir.path,
		(unsigned long long)++all->made, p->number);
	p->listen_fd = port_dir_listen(&all->m->opt, p->path);
	if (p->listen_fd < 0)
		return p->listen_fd;
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = p->wake_fd < 0 ? -errno : thread_start(all, accepting, p);
	if (rc == 0)
		return 0;
	unlink(p->path);
	close(p->listen_fd);
	if (p->wake_fd >= 0)
		close(p->wake_fd);
	return rc;
}

int port_make(struct req *q, const char *box, int number)
{
	struct ports *all = q->m->ports;
	struct port *p = calloc(1, sizeof(*p));
	int rc = p ? 0 : -ENOMEM;

	pthread_mutex_lock(&all->lock);
	if (rc == 0 && port_find(all, box, number))
		rc = -EEXIST;
	else if (rc == 0 && all->stopping)
		rc = -ESHUTDOWN;
	else if (rc == 0 && all->n >= PORTS_MAX)
		rc = refuse(q, ENOSPC, "this mount has %d ports open: rmdir one", PORTS_MAX);
	if (rc == 0) {
		*p = (struct port){ .all = all, .number = number, .tcp_fd = -1, .refs = 2 };
		(void)snprintf(p->box, sizeof(p->box), "%s", box);
		rc = port_begin(all, p);
		if (rc < 0)
			refuse(q, -rc, "no socket could be made in %s: %s", all->dir.path[0] ?
				all->dir.path : "the runtime directory", strerrordesc_np(-rc));
	}
	if (rc == 0) {
		p->next = all->first;
		all->first = p;
		all->n++;
	}
	pthread_mutex_unlock(&all->lock);
	if (rc < 0)
		free(p);
	return rc;
}

int port_remove(struct mount *m, const char *box, int number)
{
	struct port *p;

	pthread_mutex_lock(&m->ports->lock);
	p = port_find(m->ports, box, number);
	if (p)
		port_end(p);
	pthread_mutex_unlock(&m->ports->lock);
	return p ? 0 : -ENOENT;
}

void ports_forget_box(struct mount *m, const char *box)
{
	struct port *p, *next;

	pthread_mutex_lock(&m->ports->lock);
	for (p = m->ports->first; p; p = next) {
		next = p->next;
		if (!strcmp(p->box, box))
			port_end(p);
	}
	pthread_mutex_unlock(&m->ports->lock);
}

void ports_stop(struct ports *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	while (p->first)
		port_end(p->first);
	while (p->threads)
		pthread_cond_wait(&p->idle, &p->lock);
	port_dir_close(&p->dir);
	pthread_mutex_unlock(&p->lock);
}

void ports_free(struct ports *p)
{
	if (!p)
		return;
	ports_stop(p);
	pthread_cond_destroy(&p->idle);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

int port_nth(struct mount *m, const char *box, size_t n)
{
	struct port *p;
	int number = 0;

	pthread_mutex_lock(&m->ports->lock);
	for (p = m->ports->first; p && !number; p = p->next)
		if (!strcmp(p->box, box) && n-- == 0)
			number = p->number;
	pthread_mutex_unlock(&m->ports->lock);
	return number;
}

static int listen_loopback(int want, int *ret_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)want),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int on = 1, sys, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, BACKLOG) == 0 &&
		getsockname(fd, (struct sockaddr *)&a, &len) == 0) {
		*ret_port = ntohs(a.sin_port);
		return fd;
	}
	sys = errno;
	close(fd);
	return -sys;
}

int port_tcp(struct req *q, const char *box, int number, int want)
{
	struct ports *all = q->m->ports;
	int at = 0, fd = listen_loopback(want, &at), rc = 0;
	struct port *p;

	if (fd < 0)
		return refuse(q, -fd, "127.0.0.1:%d: %s", want, strerrordesc_np(-fd));
	pthread_mutex_lock(&all->lock);
	p = port_find(all, box, number);
	if (!p)
		rc = -ENOENT;
	else if (p->tcp_fd >= 0)
		rc = refuse(q, EBUSY, "it listens on 127.0.0.1:%d already", p->tcp);
	if (rc == 0) {
		p->tcp_fd = fd;
		p->tcp = at;
		wake(p);
	}
	pthread_mutex_unlock(&all->lock);
	if (rc < 0)
		close(fd);
	return rc;
}

int port_view(struct mount *m, const char *box, int number, struct port_view *ret)
{
	struct port *p;

	pthread_mutex_lock(&m->ports->lock);
	p = port_find(m->ports, box, number);
	if (p) {
		*ret = (struct port_view){ .tcp = p->tcp, .open = p->open,
			.connections = p->connections };
		memcpy(ret->path, p->path, sizeof(ret->path));
		memcpy(ret->error, p->error, sizeof(ret->error));
	}
	pthread_mutex_unlock(&m->ports->lock);
	return p ? 0 : -ENOENT;
}
