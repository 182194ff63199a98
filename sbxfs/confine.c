/* SPDX-License-Identifier: MIT */
/* Symbolic links of a guest. The host's kernel follows them, and cannot be told "read" from "follow";
 * so a link's text is changed until it cannot leave the guest's tree: an absolute target becomes a
 * relative one from the link's place, and what climbs too far stops at the guest's root. Only ".."
 * at the beginning is passed on: behind a name, which may be a link itself, it would climb from where
 * that link leads. */
#include "sbxfs/box.h"
#include "sbxfs/remote.h"
#include "sbxfs/session.h"
#include "sbxfs/treefs.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

struct parts {
	const char *p[GUEST_PATH_MAX / 2];
	size_t len[GUEST_PATH_MAX / 2];
	size_t n;
	int up; /* ".." in front */
};

/* Splits and folds; `up` counts what climbs out of the beginning. */
static void split(const char *s, struct parts *x)
{
	x->n = 0;
	x->up = 0;
	while (*s) {
		size_t n = strcspn(s, "/");

		if (n == 2 && s[0] == '.' && s[1] == '.') {
			if (x->n)
				x->n--;
			else
				x->up++;
		} else if (n && !(n == 1 && s[0] == '.')) {
			x->p[x->n] = s;
			x->len[x->n++] = n;
		}
		s += n;
		s += strspn(s, "/");
	}
}

/* May the text stay as it is? Relative, and ".." only in front and not too many. */
static bool is_tame(const char *s, int depth)
{
	bool named = false;
	int up = 0;

	if (*s == '/' || !*s)
		return false;
	while (*s) {
		size_t n = strcspn(s, "/");
		bool dotdot = n == 2 && s[0] == '.' && s[1] == '.';

		if (dotdot && (named || ++up > depth))
			return false;
		if (n && !dotdot && !(n == 1 && s[0] == '.'))
			named = true;
		s += n;
		s += strspn(s, "/");
	}
	return true;
}

static bool put(char **at, const char *end, const char *s, size_t n, bool *first)
{
	if ((size_t)(end - *at) < n + 2)
		return false;
	if (!*first)
		*(*at)++ = '/';
	*first = false;
	memcpy(*at, s, n);
	*at += n;
	**at = '\0';
	return true;
}

static int rewrite(int depth, const char *target, char *out, size_t size)
{
	struct parts *x = malloc(sizeof(*x));
	char *at = out, *end = out + size;
	bool first = true, ok = true;
	int up;

	if (!x)
		return -ENOMEM;
	split(target, x);
	up = target[0] == '/' ? depth : x->up < depth ? x->up : depth;
	for (int n = 0; n < up && ok; n++)
		ok = put(&at, end, "..", 2, &first);
	for (size_t n = 0; n < x->n && ok; n++)
		ok = put(&at, end, x->p[n], x->len[n], &first);
	if (first && ok)
		ok = put(&at, end, ".", 1, &first);
	free(x);
	return ok ? 0 : -ENAMETOOLONG;
}

int link_text(enum links_mode mode, int depth, const char *target, char *out, size_t size)
{
	if (mode == LINKS_EXACT || (depth >= 0 && is_tame(target, depth))) {
		if (strlen(target) >= size)
			return -ENAMETOOLONG;
		strcpy(out, target);
		return 0;
	}
	if (mode == LINKS_REFUSE || depth < 0)
		return -EPERM;
	return rewrite(depth, target, out, size);
}

/* What is behind a leading path; NULL: it does not lead there. */
static const char *behind(const char *path, const char *lead)
{
	size_t n = strlen(lead);

	return !strncmp(path, lead, n) && (path[n] == '/' || !path[n]) ? path + n : NULL;
}

const char *link_inside(struct mount *m, const char *box, const char *target)
{
	char shown[SBX_ID_MAX];
	const char *at = m->opt.links == LINKS_EXACT ? NULL : behind(target, m->opt.mountpoint), *rest;

	if (!at || *at++ != '/')
		return target;
	box_shown(m, box, shown, sizeof(shown));
	rest = behind(at, shown);
	if (!rest)
		rest = behind(at, box);
	rest = rest ? behind(rest, "/fs") : NULL;
	return !rest ? target : *rest ? rest : "/";
}

#define NAP_MS 250 /* not longer is waited for the kernel to move a directory */

/* A directory is about to be moved up. Who asks for a link from now on is told of one for its new place. */
void link_settles(struct mount *m)
{
	if (now_ms() - atomic_load(&m->climbed_ms) > LINK_CLIMB_MS)
		return;
	session_sleeps();
	(void)poll(NULL, 0, LINK_CLIMB_MS);
}

/* 1: right where we have it, and too much where the kernel may still have it, until *until_ms. */
static int text_for(struct req *q, struct inode *i, const char *target, char *out, size_t size, uint64_t *until_ms)
{
	enum links_mode mode = q->m->opt.links;
	bool climbs = mode != LINKS_EXACT && !is_tame(target, 0);
	struct climb c;
	int rc;

	if (climbs) /* before it is known how far */
		atomic_store(&q->m->climbed_ms, now_ms());
	c = link_climb(q->m, i);
	*until_ms = c.until_ms;
	if (climbs && c.until_ms && c.depth < 0)
		return 1;
	rc = link_text(mode, c.depth, target, out, size);
	return rc == 0 && climbs && c.until_ms && !is_tame(out, c.least) ? 1 : rc;
}

/* The kernel climbs from where it has the link, so a text that climbs out from there is only told when that is where
 * we have it. ESTALE makes the kernel look everything up once more, and be told. */
static int confined(struct req *q, struct inode *i, const char *target, char *out, size_t size)
{
	uint64_t until_ms, now = now_ms();
	int rc = text_for(q, i, target, out, size, &until_ms);

	if (rc == 1 && until_ms > now && until_ms <= now + NAP_MS) {
		session_rests((int)(until_ms - now) + 1);
		rc = text_for(q, i, target, out, size, &until_ms);
	}
	return rc == 1 ? refuse(q, ESTALE, "this link, or a directory above it, has been moved away") : rc;
}

void tree_readlink(struct req *q, struct inode *i)
{
	_cleanup_attr_ struct tree_attr a = { .target = NULL };
	char out[GUEST_PATH_MAX * 2] = "";
	int rc = tree_get(q, i, &a);

	if (rc == 0 && !a.target)
		rc = -EINVAL;
	if (rc == 0)
		rc = confined(q, i, a.target, out, sizeof(out));
	if (rc == -EPERM)
		rc = refuse(q, EPERM, "this link leads out of the sandbox and is not followed");
	if (rc == 0 && strlen(out) >= GUEST_PATH_MAX)
		rc = -ENAMETOOLONG;
	if (rc < 0)
		req_fail(q, rc);
	else
		fuse_reply_readlink(q->fr, out);
}
