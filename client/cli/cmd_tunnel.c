/* SPDX-License-Identifier: MIT */
/* sbx tunnel: listens on the loopback interface and gives each connection a tunnel of its own, in a
 * thread of its own. Half-closes are passed on both ways. */
#include "client/cli/cmds.h"

#include "common/sys/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#define SHORT_MS 50

struct link {
	struct cli *c;
	const char *box; /* the id: a name may be another sandbox's tomorrow */
	int local, port;
};

static void *serve(void *arg)
{
	struct link *l = arg;
	struct sbx_error e;
	int remote = -1;

	if (sbx_tunnel(l->c->s, l->box, l->port, &remote, &e) < 0) {
		fail(&e);
	} else {
		sbx_join(l->local, remote);
		close(remote);
	}
	close(l->local);
	free(l);
	return NULL;
}

static int listen_on(int port, int *ret_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 64) < 0 ||
		getsockname(fd, (struct sockaddr *)&a, &len) < 0) {
		close(fd);
		return -1;
	}
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static bool is_short(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static int accept_loop(struct cli *c, const char *box, int fd, int port)
{
	for (;;) {
		int local = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		struct link *l;
		pthread_t t;
		if (local < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (local < 0 && is_short(errno)) { /* others end, and give back what is missing */
			(void)poll(NULL, 0, SHORT_MS);
			continue;
		}
		if (local < 0)
			return complain(1, "accept: %s", strerrordesc_np(errno));
		l = malloc(sizeof(*l));
		if (l)
			*l = (struct link){ c, box, local, port };
		if (!l || pthread_create(&t, NULL, serve, l) != 0) {
			free(l);
			close(local);
			continue;
		}
		pthread_detach(t);
	}
}

/* PORT[:LOCALPORT]; -1 after a message. */
static int parse_ports(const char *text, int *ret_port, int *ret_local)
{
	const char *colon = strchrnul(text, ':');
	_cleanup_free_ char *first = strndup(text, (size_t)(colon - text));
	long long port = first ? number_of(first, 65535, "PORT") : -1;
	long long local = *colon ? number_of(colon + 1, 65535, "LOCALPORT") : 0;

	if (port == 0)
		complain(EXIT_USAGE, "PORT is 1 to 65535");
	if (port < 1 || local < 0)
		return -1;
	*ret_port = (int)port;
	*ret_local = (int)local;
	return 0;
}

int cmd_tunnel(struct cli *c)
{
	_cleanup_close_ int fd = -1;
	struct sbx_sandbox box;
	struct sbx_error e;
	int port, want, local;

	if (parse_ports(c->pos[1], &port, &want) < 0)
		return EXIT_USAGE;
	if (!server_can(c, "tunnel")) {
		/* Told by the server itself, which may also be out of reach. */
		int probe = -1;
		if (sbx_tunnel(c->s, c->pos[0], port, &probe, &e) < 0)
			return fail(&e);
		close_p(&probe);
	}
	if (sbx_get(c->s, c->pos[0], &box, &e) < 0)
		return fail(&e);
	fd = listen_on(want, &local);
	if (fd < 0)
		return complain(1, "127.0.0.1:%d: %s", want, strerrordesc_np(errno));
	printf("127.0.0.1:%d\n", local);
	if (fflush(stdout) < 0)
		return 1; /* said at the end; nobody would know the port */
	return accept_loop(c, box.id, fd, port);
}
