/* SPDX-License-Identifier: MIT */
/* Many clients that do everything at once for a while, each with sandboxes, snapshots and a volume
 * of its own, now and then hanging up in the middle; then all that is there is deleted. What they
 * are told wrong fails the run; what the server keeps of it all is looked at by tests/soak/run.
 * soak SECONDS CLIENTS SEED */
#include "client/include/sbx.h"
#include "common/sys/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BOXES   3
#define SNAPS   3
#define CLIENTS 64

struct box {
	char id[64];
	bool volume, asleep;
};
struct client {
	pthread_t thread;
	unsigned seed;
	int number;
	struct box boxes[BOXES]; /* id "": a free place */
	char snaps[SNAPS][64];
	bool has_volume, volume_busy;
	char volume[32];
	int64_t hang_up_at; /* ms; 0: stays on the line */
};

static struct sbx *api;
static int64_t end_ms;
static atomic_uint wrong;

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static unsigned any(struct client *c, unsigned below)
{
	return (unsigned)rand_r(&c->seed) % below;
}

/* --- what was asked, and how it was answered -------------------------------------------------- */

enum op {
	CREATE,
	RUN,
	START,
	WRITE,
	READ,
	SNAPSHOT,
	FORK,
	DROP,
	SLEEP,
	WAKE,
	NETWORK,
	RENAME,
	VOLUME,
	MOUNT,
	UNVOLUME,
	METRICS,
	LIST,
	HANG_UP,
	DELETE,
	OPS
};
enum answer { FINE, CONFLICT, BUSY, GONE, WRONG, ANSWERS };
static atomic_uint counts[OPS][ANSWERS];

static const char *const op_names[OPS] = { "create", "run", "start", "write a file", "read a file",
	"snapshot", "fork", "drop a snapshot", "suspend", "resume", "change the network", "rename",
	"make a volume", "mount a volume", "delete a volume", "read metrics", "list", "hang up",
	"delete" };

static enum answer answer_of(const struct sbx_error *e)
{
	switch (e->status) {
	case 409:
		return CONFLICT;
	case 503:
		return BUSY;
	case 404:
		return GONE;
	default:
		return WRONG;
	}
}

/* Notes the outcome; true when it was fine. */
static bool done(enum op op, int r, const struct sbx_error *e)
{
	enum answer a = r == 0 ? FINE : answer_of(e);

	counts[op][a]++;
	if (a == WRONG && wrong++ < 20)
		fprintf(stderr, "soak: %s: %d %s: %s\n", op_names[op], e->status, e->code,
			e->message);
	return a == FINE;
}

/* --- the operations --------------------------------------------------------------------------- */

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
	counts[HANG_UP][FINE]++;
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

static void *client(void *arg)
{
	struct client *c = arg;
	unsigned all = 0;

	for (size_t i = 0; i < ARRAY_LEN(turns); i++)
		all += turns[i].weight;
	while (now_ms() < end_ms && wrong < 1000) { /* else there is no server any more */
		unsigned at = any(c, all);
		size_t i = 0;
		for (; at >= turns[i].weight; i++)
			at -= turns[i].weight;
		turns[i].f(c);
	}
	return NULL;
}

/* --- the end ---------------------------------------------------------------------------------- */

static void delete_all(void)
{
	struct sbx_sandbox *boxes = NULL;
	struct sbx_snapshot *snaps = NULL;
	struct sbx_volume *volumes = NULL;
	struct sbx_error e;
	size_t n = 0;

	if (done(LIST, sbx_list(api, NULL, &boxes, &n, &e), &e))
		for (size_t i = 0; i < n; i++)
			if (strcmp(boxes[i].state, "terminated") != 0)
				done(DELETE, sbx_delete(api, boxes[i].id, &e), &e);
	if (done(LIST, sbx_snapshot_list(api, &snaps, &n, &e), &e))
		for (size_t i = 0; i < n; i++)
			done(DROP, sbx_snapshot_delete(api, snaps[i].id, &e), &e);
	if (done(LIST, sbx_volume_list(api, &volumes, &n, &e), &e))
		for (size_t i = 0; i < n; i++)
			done(UNVOLUME, sbx_volume_delete(api, volumes[i].name, &e), &e);
	free(boxes);
	free(snaps);
	free(volumes);
}

static void report(void)
{
	unsigned sum = 0;

	printf("%-22s %8s %8s %8s %8s %8s\n", "operation", "fine", "409", "503", "404", "wrong");
	for (int i = 0; i < OPS; i++) {
		printf("%-22s", op_names[i]);
		for (int k = 0; k < ANSWERS; k++) {
			printf(" %8u", counts[i][k]);
			sum += counts[i][k];
		}
		puts("");
	}
	printf("%u answers\n", sum);
}

int main(int argc, char **argv)
{
	static struct client clients[CLIENTS];
	int n = argc == 4 ? atoi(argv[2]) : 0;
	struct sbx_options opt = { 0 };
	struct sbx_error e;

	if (n < 1 || n > CLIENTS) {
		fputs("usage: soak SECONDS CLIENTS SEED\n", stderr);
		return 2;
	}
	if (sbx_open(&opt, &api, &e) < 0) {
		fprintf(stderr, "soak: %s\n", e.message);
		return 1;
	}
	end_ms = now_ms() + 1000LL * atoi(argv[1]);
	for (int i = 0; i < n; i++) {
		clients[i] = (struct client){ .number = i,
			.seed = (unsigned)atoi(argv[3]) * 1000 + (unsigned)i };
		snprintf(clients[i].volume, sizeof(clients[i].volume), "soak-%d", i);
		pthread_create(&clients[i].thread, NULL, client, &clients[i]);
	}
	for (int i = 0; i < n; i++)
		pthread_join(clients[i].thread, NULL);
	delete_all();
	report();
	sbx_close(api);
	return wrong ? 1 : 0;
}
