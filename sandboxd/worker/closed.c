/* SPDX-License-Identifier: MIT */
/* What the front has to put into the event log without having seen it: handles that ended by
 * themselves, and what requests of a stream did. The front fetches it when an answer says so, and
 * once a second while there are streams. What does not fit is counted, not kept. */
#include "sandboxd/worker/state.h"

#include <stdlib.h>
#include <string.h>

static bool make_room(struct worker *w)
{
	unsigned room = w->closed_room ? 2 * w->closed_room : 32;
	struct closed *p;

	if (w->nclosed < w->closed_room)
		return true;
	p = room <= CLOSED_MAX ? realloc(w->closed, room * sizeof(*p)) : NULL;
	if (!p)
		return false;
	w->closed = p;
	w->closed_room = room;
	return true;
}

/* worker.lock held. */
void closed_add(struct worker *w, char *path, uint64_t read, uint64_t written, uint32_t flags)
{
	if (!path || strlen(path) >= FILES_PATH_MAX /* for the front */ || !make_room(w)) {
		w->closed_lost++;
		free(path);
		return;
	}
	w->closed[w->nclosed] = (struct closed){
		.path = path, .bytes_read = read, .bytes_written = written, .flags = flags
	};
	__atomic_store_n(&w->nclosed, w->nclosed + 1, __ATOMIC_RELAXED);
}

static void record(struct job *j, const char *path, uint64_t read, uint64_t written, uint32_t flags)
{
	char *copy = strdup(path);

	pthread_mutex_lock(&j->w->lock);
	closed_add(j->w, copy, read, written, flags);
	pthread_mutex_unlock(&j->w->lock);
}

static bool emptied(const struct job *j)
{
	return (j->rep.flags & FILES_REP_CREATED) ||
	       ((j->q.flags & FILES_O_TRUNC) && (j->q.flags & FILES_O_WRITE));
}

/* The same as the plain requests leave; what goes through a handle is told at its end. */
void closed_record(struct job *j, int64_t value)
{
	switch (j->f.op) {
	case FILES_REMOVE:
	case FILES_UNLINK:
	case FILES_RMDIR:
		record(j, j->path, 0, 0, FILES_REP_REMOVED);
		break;
	case FILES_FALLOCATE:
		if (!j->q.handle)
			record(j, j->path, 0, 0, FILES_REP_CREATED);
		break;
	case FILES_SETATTR:
		if (!j->q.handle && (j->q.flags & FILES_SET_SIZE))
			record(j, j->path, 0, 0, FILES_REP_CREATED);
		break;
	case FILES_COPY:
		if (!j->q.handle2 && value > 0)
			record(j, j->path2, 0, (uint64_t)value, FILES_REP_CREATED);
		break;
	case FILES_OPEN:
		if (!j->rep.handle && (j->out_len || emptied(j)))
			record(j, j->path, j->out_len, 0, emptied(j) ? FILES_REP_CREATED : 0);
		break;
	default:
		break;
	}
}

static bool pack(struct job *j, const struct closed *c)
{
	struct files_closed head = { .bytes_read = c->bytes_read,
		.bytes_written = c->bytes_written,
		.path_len = (uint32_t)strlen(c->path),
		.flags = c->flags };

	if (j->out_len + sizeof(head) + head.path_len > FILES_EXPIRED_MAX)
		return false;
	memcpy(j->out + j->out_len, &head, sizeof(head));
	memcpy(j->out + j->out_len + sizeof(head), c->path, head.path_len);
	j->out_len += sizeof(head) + head.path_len;
	return true;
}

int64_t op_expired(struct job *j)
{
	struct worker *w = j->w;
	unsigned n = 0;

	pthread_mutex_lock(&w->lock);
	while (n < w->nclosed && pack(j, &w->closed[n]))
		free(w->closed[n++].path);
	if (n)
		memmove(w->closed, w->closed + n, (w->nclosed - n) * sizeof(*w->closed));
	__atomic_store_n(&w->nclosed, w->nclosed - n, __ATOMIC_RELAXED);
	if (!w->nclosed) {
		free(w->closed);
		w->closed = NULL;
		w->closed_room = 0;
	}
	j->rep.offset = w->closed_lost;
	pthread_mutex_unlock(&w->lock);
	return n;
}
