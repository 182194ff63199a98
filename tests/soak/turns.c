/* SPDX-License-Identifier: MIT */
/* What a client does: a table of operations and how often each comes. One that cannot be now (no
 * sandbox, no free place) is passed over. */
#include "tests/soak/soak.h"

#include "common/sys/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static unsigned any(struct client *c, unsigned below)
{
	return (unsigned)rand_r(&c->seed) % below;
}

static struct box *free_place(struct client *c)
{
	for (int i = 0; i < BOXES; i++)
		if (!c->boxes[i].id[0])
			return &c->boxes[i];
	return NULL;
}

static struct box *some_box(struct client *c)
{
	struct box *b = &c->boxes[any(c, BOXES)];

	return b->id[0] ? b : NULL;
}

static struct box *awake_box(struct client *c)
{
	struct box *b = some_box(c);

	return b && !b->asleep ? b : NULL;
}

static void make(struct client *c, enum op op, const struct sbx_spec *spec)
{
	struct box *b = free_place(c);
	struct sbx_sandbox s;
	struct sbx_error e;

	if (!b || !done(op, sbx_create(api, spec, &s, &e), &e))
		return;
	*b = (struct box){ .volume = spec->n_volumes > 0 };
	snprintf(b->id, sizeof(b->id), "%s", s.id);
	c->volume_busy |= b->volume;
}

static void create(struct client *c)
{
	static const char *const env[] = { "SOAK=1", NULL };
	static const char *const networks[] = { NULL, "none", "allowlist" };

	make(c, CREATE,
		&(struct sbx_spec){ .env = any(c, 2) ? env : NULL,
			.network = networks[any(c, ARRAY_LEN(networks))],
			.memory_mb = any(c, 3) ? 0 : 64 + any(c, 64),
			.lifetime_secs = any(c, 8) ? 0 : 5 + any(c, 10) });
}

static void fork_one(struct client *c)
{
	const char *snap = c->snaps[any(c, SNAPS)];

	if (*snap)
		make(c, FORK,
			&(struct sbx_spec){
				.snapshot_id = snap, .network = any(c, 2) ? "none" : NULL });
}

static void mount_one(struct client *c)
{
	struct sbx_volume_mount m = {
		.name = c->volume, .path = "/data", .read_only = any(c, 4) == 0
	};

	if (c->has_volume && !c->volume_busy)
		make(c, MOUNT, &(struct sbx_spec){ .volumes = &m, .n_volumes = 1 });
}

static void run(struct client *c)
{
	static const char *const texts[] = { "true", "head -c 3000000 /dev/zero", "sleep 5",
		"head -c 2000000 /dev/urandom > big; echo x > f$$; ls | wc -l", "exit 3",
		"(sleep 1; echo late) & echo at once", "nslookup github.com 127.0.0.53",
		"kill -9 $$" };
	const char *argv[] = { "sh", "-c", texts[any(c, ARRAY_LEN(texts))], NULL };
	struct sbx_command q = { .argv = argv, .timeout_secs = 1 + (int)any(c, 3) };
	struct box *b = awake_box(c);
	struct sbx_result r;
	struct sbx_error e;

	if (b && done(RUN, sbx_run(api, b->id, &q, &r, &e), &e))
		sbx_result_free(&r);
}

static void start(struct client *c)
{
	const char *argv[] = { "sh", "-c", any(c, 2) ? "yes | head -c 500000" : "cat", NULL };
	struct sbx_command q = { .argv = argv, .tty = any(c, 4) == 0 };
	struct box *b = awake_box(c);
	struct sbx_error e;
	int64_t pid;

	if (!b || !done(START, sbx_start(api, b->id, &q, &pid, &e), &e))
		return;
	if (any(c, 4))
		(void)sbx_signal(api, b->id, pid, "KILL", &e);
}

/* Reads to the end of it, or leaves in the middle. */
static void attach(struct client *c)
{
	static const char *const argv[] = { "sh", "-c", "seq 20000; cat", NULL };
	struct sbx_command q = { .argv = argv };
	struct box *b = awake_box(c);
	_cleanup_free_ char *path = NULL, *frame = malloc(SBX_FRAME_MAX);
	struct sbx_error e;
	int64_t pid;
	size_t len;
	char type;
	int fd;

	if (!b || !frame || sbx_start(api, b->id, &q, &pid, &e) < 0)
		return;
	path = sbx_path("/v1/sandboxes/%s/processes/%lld/attach", b->id, (long long)pid);
	if (!path || !done(ATTACH, sbx_upgrade(api, path, "sbx-stream/1", false, &fd, &e), &e))
		return;
	if (any(c, 2)) {
		(void)sbx_frame_write(fd, 'e', NULL, 0);
		while (sbx_frame_read(fd, &type, frame, &len) > 0)
			;
	} else {
		(void)sbx_signal(api, b->id, pid, "KILL", &e);
	}
	close(fd);
}

/* Somebody listens from the second time on. */
static void tunnel(struct client *c)
{
	static const char *const argv[] = { "nc", "-ll", "-p", "7000", "-e", "cat", NULL };
	struct sbx_command q = { .argv = argv };
	struct box *b = awake_box(c);
	struct sbx_error e;
	char buf[4096];
	int64_t pid;
	int fd;

	if (!b)
		return;
	if (!b->listens) {
		b->listens = sbx_start(api, b->id, &q, &pid, &e) == 0;
		return;
	}
	if (!done(TUNNEL, sbx_tunnel(api, b->id, 7000, &fd, &e), &e))
		return;
	if (any(c, 4) && write(fd, "all of it", 9) == 9 && shutdown(fd, SHUT_WR) == 0)
		while (read(fd, buf, sizeof(buf)) > 0)
			;
	close(fd);
}

static void put(struct client *c)
{
	static char content[300000];
	struct box *b = awake_box(c);
	struct sbx_error e;
	char path[64];

	if (!b)
		return;
	snprintf(path, sizeof(path), "%s/d%u/f%u", b->volume ? "/data" : "/sandbox/home", any(c, 4),
		any(c, 20));
	done(WRITE, sbx_file_put(api, b->id, path, content, any(c, sizeof(content)), &e), &e);
}

static void get(struct client *c)
{
	struct box *b = awake_box(c);
	struct sbx_error e;
	char *buf;
	size_t len;

	if (b && done(READ, sbx_file_get(api, b->id, "/etc/passwd", &buf, &len, &e), &e))
		free(buf);
}

static void snapshot(struct client *c)
{
	struct box *b = awake_box(c);
	struct sbx_snapshot s;
	struct sbx_error e;

	for (int i = 0; b && i < SNAPS; i++) {
		if (c->snaps[i][0])
			continue;
		if (done(SNAPSHOT, sbx_snapshot_take(api, b->id, &s, &e), &e))
			snprintf(c->snaps[i], sizeof(c->snaps[i]), "%s", s.id);
		return;
	}
}

static void drop(struct client *c)
{
	char *snap = c->snaps[any(c, SNAPS)];
	struct sbx_error e;

	if (!*snap)
		return;
	done(DROP, sbx_snapshot_delete(api, snap, &e), &e);
	*snap = '\0';
}

static void fall_asleep(struct client *c)
{
	struct box *b = awake_box(c);
	struct sbx_error e;

	if (b)
		b->asleep = done(SLEEP, sbx_suspend(api, b->id, NULL, &e), &e);
}

static void wake(struct client *c)
{
	struct box *b = some_box(c);
	struct sbx_error e;

	if (!b || !b->asleep)
		return;
	done(WAKE, sbx_resume(api, b->id, NULL, &e), &e);
	b->asleep = false;
}

static void network(struct client *c)
{
	static const char *const allow[] = { "github.com", "pypi.org", NULL };
	struct box *b = awake_box(c);
	struct sbx_error e;
	struct sbx_update u = { .network = any(c, 2) ? "none" : "allowlist" };

	if (any(c, 2) && u.network[0] == 'a')
		u.allow = allow;
	if (b)
		done(NETWORK, sbx_update(api, b->id, &u, NULL, &e), &e);
}

static void rename_one(struct client *c)
{
	struct box *b = some_box(c);
	struct sbx_error e;
	char name[32];

	snprintf(name, sizeof(name), "soak-%u",
		any(c, 40)); /* few names: clients are in each other's way */
	if (b)
		done(RENAME, sbx_rename(api, b->id, name, &e), &e);
}

static void make_volume(struct client *c)
{
	struct sbx_error e;

	if (!c->has_volume)
		c->has_volume = done(VOLUME, sbx_volume_create(api, c->volume, 16, NULL, &e), &e);
}

static void delete_volume(struct client *c)
{
	struct sbx_error e;

	if (!c->has_volume || c->volume_busy)
		return;
	if (done(UNVOLUME, sbx_volume_delete(api, c->volume, &e), &e))
		c->has_volume = false;
}

static void metrics(struct client *c)
{
	struct box *b = some_box(c);
	struct sbx_sample *list;
	struct sbx_error e;
	size_t n;

	if (b && done(METRICS, sbx_metrics(api, b->id, NULL, &list, &n, &e), &e))
		free(list);
}

static void list(struct client *c)
{
	struct sbx_sandbox *all;
	struct sbx_error e;
	size_t n;

	(void)c;
	if (done(LIST, sbx_list(api, NULL, &all, &n, &e), &e))
		free(all);
}

static bool hung_up(void *arg)
{
	struct client *c = arg;

	return now_ms() >= c->hang_up_at;
}

/* Whatever comes of it ends by itself: nobody knows its id. */
static void hang_up(struct client *c)
{
	struct sbx_request q = { .method = "POST",
		.path = "/v1/sandboxes",
		.body = "{\"lifetime_secs\":4}",
		.body_len = 19,
		.cancelled = hung_up,
		.arg = c };
	struct sbx_response r = { 0 };
	struct sbx_error e;

	c->hang_up_at = now_ms() + any(c, 30);
	if (sbx_call(api, &q, &r, &e) == 0)
		sbx_response_free(&r);
	done(HANG_UP, 0, NULL);
}

static void end_one(struct client *c)
{
	struct box *b = some_box(c);
	struct sbx_error e;

	if (!b)
		return;
	done(DELETE, sbx_delete(api, b->id, &e), &e);
	c->volume_busy &= !b->volume;
	*b = (struct box){ 0 };
}

static const struct {
	void (*f)(struct client *c);
	unsigned weight;
} turns[] = {
	{ create, 12 },
	{ run, 14 },
	{ start, 6 },
	{ attach, 5 },
	{ tunnel, 5 },
	{ put, 10 },
	{ get, 6 },
	{ snapshot, 5 },
	{ fork_one, 5 },
	{ drop, 5 },
	{ fall_asleep, 4 },
	{ wake, 8 },
	{ network, 6 },
	{ rename_one, 3 },
	{ make_volume, 3 },
	{ mount_one, 4 },
	{ delete_volume, 2 },
	{ metrics, 4 },
	{ list, 1 },
	{ hang_up, 2 },
	{ end_one, 10 },
};

void soak_turn(struct client *c)
{
	unsigned all = 0, at;
	size_t i = 0;

	for (size_t k = 0; k < ARRAY_LEN(turns); k++)
		all += turns[k].weight;
	for (at = any(c, all); at >= turns[i].weight; i++)
		at -= turns[i].weight;
	turns[i].f(c);
}
