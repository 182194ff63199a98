/* SPDX-License-Identifier: MIT */
/* The environment of a process: what we give, the image's, the sandbox's, the request's; of equal
 * names the last one stands. Sorted by name, so that 100 000 variables cost no more than a sort. */
#include "sandboxd/core/proc_internal.h"

#include "common/sys/mem.h"

#include <string.h>

struct var {
	const char *name, *value;
	size_t name_len;
	size_t rank; /* the higher one wins */
};
struct vars {
	struct var *v;
	size_t n;
};

int proc_env_check(const struct strmap *env, struct err *e)
{
	for (size_t i = 0; i < env->n; i++)
		if (!env_name_ok(env->keys[i]))
			return err_set(e, ERR_INVALID_REQUEST,
				"env: a name is a letter or underscore, then letters, digits, underscores");
	for (size_t i = 0; i < env->n; i++)
		if (env_name_reserved(env->keys[i]))
			return err_set(e, ERR_REFUSED, "env: %s is reserved and cannot be set",
				env->keys[i]);
	return 0;
}

static void add(struct vars *l, const char *name, size_t name_len, const char *value)
{
	l->v[l->n] = (struct var){ name, value, name_len, l->n };
	l->n++;
}

static void add_list(struct vars *l, char *const *list)
{
	for (; list && *list; list++) {
		const char *eq = strchr(*list, '=');
		if (eq)
			add(l, *list, (size_t)(eq - *list), eq + 1);
	}
}

static void add_map(struct vars *l, const struct strmap *m)
{
	for (size_t i = 0; i < m->n; i++)
		add(l, m->keys[i], strlen(m->keys[i]), m->values[i]);
}

static int same_name(const struct var *a, const struct var *b)
{
	size_t n = a->name_len < b->name_len ? a->name_len : b->name_len;
	int r = memcmp(a->name, b->name, n);

	return r ? r : (a->name_len > b->name_len) - (a->name_len < b->name_len);
}

static int by_name_last_first(const void *pa, const void *pb)
{
	const struct var *a = pa, *b = pb;
	int r = same_name(a, b);

	return r ? r : (a->rank < b->rank) - (a->rank > b->rank);
}

/* Pointers and strings in one block. */
static char **pack(const struct vars *l)
{
	size_t size = (l->n + 1) * sizeof(char *), n = 0;
	char **out, *at;

	for (size_t i = 0; i < l->n; i++)
		size += l->v[i].name_len + strlen(l->v[i].value) + 2;
	out = malloc(size);
	if (!out)
		return NULL;
	at = (char *)(out + l->n + 1);
	for (size_t i = 0; i < l->n; i++) {
		const struct var *v = &l->v[i];
		if (i && same_name(v, v - 1) == 0)
			continue;
		out[n++] = at;
		memcpy(at, v->name, v->name_len);
		at += v->name_len;
		*at++ = '=';
		at = stpcpy(at, v->value) + 1;
	}
	out[n] = NULL;
	return out;
}

char **proc_env_build(const struct sandbox *s, const struct strmap *env, bool tty)
{
	static const char *const defaults[] = {
		"PATH",
		"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME",
		"/sandbox/home",
		"USER",
		"sandbox",
	};
	size_t room = ARRAY_LEN(defaults) / 2 + 1 + s->env.n + env->n;

	for (char **i = s->image_env; i && *i; i++)
		room++;
	_cleanup_free_ struct var *v = calloc(room, sizeof(*v));
	struct vars l = { .v = v };
	if (!v)
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(defaults); i += 2)
		add(&l, defaults[i], strlen(defaults[i]), defaults[i + 1]);
	if (tty)
		add(&l, "TERM", 4, "xterm-256color");
	add_list(&l, s->image_env);
	add_map(&l, &s->env);
	add_map(&l, env);
	qsort(l.v, l.n, sizeof(*l.v), by_name_last_first);
	return pack(&l);
}
