/* SPDX-License-Identifier: MIT */
/* ports/N: what a port of a sandbox looks like here. */
#include "sbxfs/box.h"
#include "sbxfs/nodes_fn.h"
#include "sbxfs/ports.h"
#include "sbxfs/value.h"
#include "sbxfs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ports_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	struct port_view v;
	int number = port_of_word(name);

	if (!number || port_view(q->m, d->box, number, &v) < 0)
		return -ENOENT;
	return found_set(ret, N_PORT, d->box, name);
}

static int ports_list(struct req *q, const struct spot *d, struct lister *l)
{
	char word[16];
	int number;

	for (size_t n = 0; (number = port_nth(q->m, d->box, n)); n++) {
		(void)snprintf(word, sizeof(word), "%d", number);
		lister_add(l, word, N_PORT, d->box);
	}
	return 0;
}

static int ports_mkdir(struct req *q, const struct spot *d, const char *name)
{
	int number = port_of_word(name), rc;
	json_t *o;

	if (!number)
		return refuse(q, EINVAL, "a port is a number from 1 to 65535, not %s", name);
	rc = box_live(q, d->box, &o);
	if (rc < 0)
		return rc;
	json_decref(o);
	return port_make(q, d->box, number);
}

static int ports_rmdir(struct req *q, const struct spot *d, const char *name)
{
	return port_remove(q->m, d->box, port_of_word(name));
}

const struct dir dir_ports = { .id = N_BOX_PORTS, .find = ports_find, .list = ports_list,
	.mkdir = ports_mkdir, .rmdir = ports_rmdir };

static int view(struct req *q, const struct spot *s, struct port_view *ret)
{
	return port_view(q->m, s->box, port_of_word(s->arg), ret) < 0 ? -ESTALE : 0;
}

int read_port_socket(struct req *q, const struct spot *s, struct text *t)
{
	struct port_view v;
	int rc = view(q, s, &v);

	if (rc == 0)
		txt_str(t, v.path);
	return rc;
}

int read_port_address(struct req *q, const struct spot *s, struct text *t)
{
	struct port_view v;
	int rc = view(q, s, &v);

	if (rc == 0 && v.tcp)
		txt_printf(t, "127.0.0.1:%d\n", v.tcp);
	return rc;
}

int read_port_info(struct req *q, const struct spot *s, struct text *t)
{
	char address[32] = "";
	struct port_view v;
	int rc = view(q, s, &v);
	json_t *o;

	if (rc < 0)
		return rc;
	if (v.tcp)
		(void)snprintf(address, sizeof(address), "127.0.0.1:%d", v.tcp);
	o = json_pack("{s:i,s:s,s:s,s:i,s:I,s:s}", "port", port_of_word(s->arg), "socket", v.path,
		"address", address, "open", (int)v.open, "connections", (json_int_t)v.connections,
		"error", v.error);
	txt_json(t, o);
	json_decref(o);
	return 0;
}

static int do_tcp(struct req *q, const struct spot *s, char **args, unsigned n)
{
	int64_t want = 0;
	int rc = n ? value_int(q, "tcp", args[0], strlen(args[0]), 1, 65535, &want) : 0;

	return rc < 0 ? rc : port_tcp(q, s->box, port_of_word(s->arg), (int)want);
}

const struct verb port_verbs[] = {
	{ "tcp", 0, 1, do_tcp, "[PORT] listen on the loopback interface as well; every user of this host "
		"can connect there", CAP_NONE },
	{ NULL, 0, 0, NULL, NULL, CAP_NONE },
};

int apply_port_ctl(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	(void)len;
	(void)append;
	return verb_run(q, s, port_verbs, value);
}
