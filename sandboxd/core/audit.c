/* SPDX-License-Identifier: MIT */
/* One line is one write() to an append-only descriptor; no sync, because a lost tail of the log
 * fails nobody. The newest lines stay in a ring for those who follow. Sequence numbers start at the
 * wall clock in microseconds, so that they keep growing over restarts. */
#include "sandboxd/core/audit.h"

#include "common/base/log.h"
#include "common/sys/deadline.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define FILE_MAX     ((off_t)8 * 1024 * 1024)
#define OLD_FILES    5
#define RING         4096
#define RING_BYTES   (16u * 1024 * 1024) /* of the lines in it, however long they are */
#define READ_MAX     5000
#define LINE_MAX_LEN (4u * 1024 * 1024) /* longer ones are skipped when reading */
#define FOLLOW_BATCH 512
#define FOLLOW_BYTES (1024 * 1024) /* then a batch ends, but for its first event */

struct audit {
	char *path;
	pthread_mutex_t lock;
	pthread_cond_t more;
	/* under lock */
	int fd; /* -1: could not be opened, tried again with the next event */
	off_t size;
	bool cut; /* the file ends within a line */
	bool complained, stop;
	char *ring[RING];     /* JSON texts; number seq is at seq % RING */
	size_t held;          /* bytes of those */
	uint64_t first, next; /* numbers held: first .. next - 1 */
};

static void complain(struct audit *a, const char *what)
{
	if (!a->complained)
		log_warn("audit: %s, events are not kept reason=\"%s\"", what, strerror(errno));
	a->complained = true;
}

static void open_file(struct audit *a)
{
	struct stat st;
	char last;

	a->fd = open(a->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (a->fd < 0 || fstat(a->fd, &st) < 0) {
		complain(a, "the log cannot be opened");
		return;
	}
	if (st.st_mode & 077)
		fchmod(a->fd, 0600);
	a->size = st.st_size;
	a->cut = a->size > 0 && pread(a->fd, &last, 1, a->size - 1) == 1 && last != '\n';
}

static void old_name(const struct audit *a, int n, char *out, size_t size)
{
	snprintf(out, size, n ? "%s.%d" : "%s", a->path, n);
}

static void rotate(struct audit *a)
{
	char from[4200], to[4200];
	int bad = 0;

	for (int n = OLD_FILES - 1; n >= 0; n--) {
		old_name(a, n, from, sizeof(from));
		old_name(a, n + 1, to, sizeof(to));
		bad = rename(from, to) < 0 && errno != ENOENT ? errno : 0;
	}
	close(a->fd);
	open_file(a);
	if (!bad)
		return;
	/* Of an operator's file in a folder of root's, say. It goes on to grow, and this is tried again when as
	 * much has come once more. */
	log_warn("audit: \"%s\" has %lld MiB and cannot be renamed reason=\"%s\"", a->path,
		(long long)(a->size >> 20), strerror(bad));
	a->size = 0;
}

/* A line that found no room for its end must not take the next one with it. */
static bool end_cut_line(struct audit *a)
{
	if (a->cut && write(a->fd, "\n", 1) == 1) {
		a->size++;
		a->cut = false;
	}
	return !a->cut;
}

/* Lock held. */
static void append(struct audit *a, const char *line, size_t len)
{
	ssize_t n;

	if (a->fd < 0)
		open_file(a);
	if (a->fd >= 0 && a->size > 0 && a->size + (off_t)len > FILE_MAX)
		rotate(a);
	if (a->fd < 0)
		return;
	n = end_cut_line(a) ? write(a->fd, line, len) : -1;
	if (n > 0)
		a->size += n;
	if (n == (ssize_t)len) {
		a->complained = false;
		return;
	}
	a->cut |= n > 0;
	if (n > 0)
		errno = ENOSPC; /* nothing else writes a part */
	complain(a, "the log cannot be written");
}

static void drop_first(struct audit *a)
{
	char **slot = &a->ring[a->first++ % RING];

	a->held -= strlen(*slot);
	free(*slot);
	*slot = NULL;
}

/* Lock held; takes the text. */
static void remember(struct audit *a, char *text)
{
	size_t len = strlen(text);

	while (a->next > a->first &&
		(a->next - a->first == RING || a->held + len > RING_BYTES))
		drop_first(a);
	a->ring[a->next++ % RING] = text;
	a->held += len;
	pthread_cond_broadcast(&a->more);
}

static int make_folder(const char *path, struct err *e)
{
	char dir[4096];
	const char *slash = strrchr(path, '/');
	struct stat st;

	if (!slash || slash == path)
		return 0;
	snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
	if (mkdir(dir, 0700) == 0)
		return 0;
	if (errno == EEXIST && stat(dir, &st) == 0 && S_ISDIR(st.st_mode))
		return 0;
	return err_sys(e, errno, "audit log folder \"%s\"", dir);
}

int audit_open(const char *path, struct audit **ret, struct err *e)
{
	struct audit *a;

	if (make_folder(path, e) < 0)
		return -1;
	a = calloc(1, sizeof(*a));
	if (!a || !(a->path = strdup(path))) {
		free(a);
		return err_oom(e);
	}
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->more, NULL);
	a->first = a->next = (uint64_t)clock_wall_ns() / 1000;
	a->complained = true; /* the error says it */
	open_file(a);
	a->complained = false;
	if (a->fd < 0) {
		err_sys(e, errno, "audit log \"%s\"", path);
		audit_close(a);
		return -1;
	}
	*ret = a;
	return 0;
}

void audit_close(struct audit *a)
{
	if (!a)
		return;
	if (a->fd >= 0)
		close(a->fd);
	for (size_t i = 0; i < RING; i++)
		free(a->ring[i]);
	pthread_cond_destroy(&a->more);
	pthread_mutex_destroy(&a->lock);
	free(a->path);
	free(a);
}

/* `time`, `type` and `sandbox` come first in the line, so the object is built anew. */
static char *event_text(const char *type, const char *id, json_t *fields)
{
	_cleanup_json_ json_t *o = json_object();
	char when[CLOCK_TEXT_LEN];
	char *text, *line;
	size_t len;

	clock_text(clock_wall_ns(), when);
	json_object_set_new(o, "time", json_string(when));
	json_object_set_new(o, "type", json_string(type));
	json_object_set_new(o, "sandbox", json_string(id));
	if (fields)
		json_object_update(o, fields);
	json_decref(fields);
	text = json_text(o);
	if (!text)
		return NULL;
	len = strlen(text);
	line = realloc(text, len + 2);
	if (!line) {
		free(text);
		return NULL;
	}
	memcpy(line + len, "\n", 2);
	return line;
}

void audit_event(struct audit *a, const char *type, const char *sandbox_id, json_t *fields)
{
	char *line;

	if (!a) {
		json_decref(fields);
		return;
	}
	line = event_text(type, sandbox_id, fields);
	if (!line)
		return;
	pthread_mutex_lock(&a->lock);
	append(a, line, strlen(line));
	remember(a, line);
	pthread_mutex_unlock(&a->lock);
}

/* The lines that may be of this sandbox: the needle is how our own writer spells it; the parsed
 * event decides. Kept newest READ_MAX in a circle. */
struct reading {
	const char *id;
	char needle[96];
	json_t *kept[READ_MAX];
	uint64_t n;
};

static void take_line(struct reading *r, const char *line, size_t len)
{
	json_t *o;
	const char *id;

	if (!memmem(line, len, r->needle, strlen(r->needle)))
		return;
	if (json_parse_any(line, len, LINE_MAX_LEN, &o, NULL) < 0)
		return;
	id = json_string_value(json_object_get(o, "sandbox"));
	if (!id || strcmp(id, r->id)) {
		json_decref(o);
		return;
	}
	json_decref(r->kept[r->n % READ_MAX]);
	r->kept[r->n++ % READ_MAX] = o;
}

/* The log as it is at one moment, oldest first: what is renamed or removed later stays open, so that no event
 * is missed or met twice. */
struct files {
	int v[OLD_FILES + 1];
	size_t n;
};

static void close_files(struct files *f)
{
	while (f->n)
		close_p(&f->v[--f->n]);
}

/* What cannot be opened is not a log without events. */
static int open_one(struct files *f, const char *path, struct err *e)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "the event log");
	if (S_ISREG(st.st_mode))
		f->v[f->n++] = steal_fd(&fd);
	return 0;
}

static int open_files(struct audit *a, struct files *f, struct err *e)
{
	char path[4200];
	int rc = 0;

	pthread_mutex_lock(&a->lock);
	for (int n = OLD_FILES; n >= 0 && rc == 0; n--) {
		old_name(a, n, path, sizeof(path));
		rc = open_one(f, path, e);
	}
	pthread_mutex_unlock(&a->lock);
	return rc;
}

static int read_one(struct reading *r, int *fd, struct err *e)
{
	FILE *f = fdopen(*fd, "r");
	_cleanup_free_ char *line = NULL;
	size_t room = 0;
	ssize_t len;
	int rc = 0;

	if (!f)
		return err_sys(e, errno, "the event log");
	*fd = -1;
	while ((len = getline(&line, &room, f)) > 0)
		if (len < (ssize_t)LINE_MAX_LEN && line[len - 1] == '\n')
			take_line(r, line, (size_t)len - 1);
	if (!feof(f))
		rc = err_sys(e, errno, "the event log");
	fclose(f);
	return rc;
}

int audit_read(struct audit *a, const char *sandbox_id, json_t **ret_events, bool *ret_truncated,
	struct err *e)
{
	_cleanup_free_ struct reading *r = calloc(1, sizeof(*r));
	json_t *events = json_array();
	struct files f = { .n = 0 };
	uint64_t from;
	int rc;

	if (!r || !events) {
		json_decref(events);
		return err_oom(e);
	}
	r->id = sandbox_id;
	snprintf(r->needle, sizeof(r->needle), "\"sandbox\":\"%s\"", sandbox_id);
	rc = open_files(a, &f, e);
	for (size_t i = 0; i < f.n && rc == 0; i++)
		rc = read_one(r, &f.v[i], e);
	close_files(&f);
	from = r->n > READ_MAX ? r->n - READ_MAX : 0;
	for (uint64_t i = from; i < r->n; i++)
		json_array_append_new(events, r->kept[i % READ_MAX]);
	if (rc < 0) {
		json_decref(events);
		return -1;
	}
	*ret_events = events;
	*ret_truncated = from > 0;
	return 0;
}

static void wait_for(struct audit *a, uint64_t seq, int timeout_ms)
{
	struct timespec until = deadline_ms(timeout_ms);

	while (a->next <= seq && !a->stop && cond_wait_until(&a->more, &a->lock, &until))
		;
}

/* A number that was never given is one of an earlier run, whose clock was ahead of ours: what came after it
 * is lost as well. Lock held. */
static bool is_lost(const struct audit *a, uint64_t after)
{
	return after + 1 < a->first || after >= a->next;
}

/* Lock held: nobody who has something to log waits until a batch has been parsed. */
static size_t copy_batch(const struct audit *a, uint64_t seq, char *texts[FOLLOW_BATCH])
{
	size_t n = 0, bytes = 0;

	for (; seq < a->next && n < FOLLOW_BATCH; seq++) {
		const char *text = a->ring[seq % RING];
		bytes += strlen(text);
		if ((n && bytes > FOLLOW_BYTES) || !(texts[n] = strdup(text)))
			break;
		n++;
	}
	return n;
}

json_t *audit_follow(struct audit *a, uint64_t after, int timeout_ms, bool *ret_lost)
{
	json_t *list = json_array();
	char *texts[FOLLOW_BATCH];
	uint64_t seq;
	size_t n;

	pthread_mutex_lock(&a->lock);
	if (timeout_ms > 0)
		wait_for(a, is_lost(a, after) ? a->first : after + 1, timeout_ms);
	*ret_lost = is_lost(a, after);
	seq = *ret_lost ? a->first : after + 1;
	n = copy_batch(a, seq, texts);
	pthread_mutex_unlock(&a->lock);
	for (size_t i = 0; i < n; i++) {
		json_t *event = json_loadb(texts[i], strlen(texts[i]), JSON_ALLOW_NUL, NULL);
		json_array_append_new(list,
			json_pack("{s:I,s:o}", "seq", (json_int_t)(seq + i), "event", event));
		free(texts[i]);
	}
	return list;
}

uint64_t audit_seq(struct audit *a)
{
	uint64_t n;

	pthread_mutex_lock(&a->lock);
	n = a->next - 1;
	pthread_mutex_unlock(&a->lock);
	return n;
}

void audit_wake(struct audit *a)
{
	pthread_mutex_lock(&a->lock);
	a->stop = true;
	pthread_cond_broadcast(&a->more);
	pthread_mutex_unlock(&a->lock);
}
