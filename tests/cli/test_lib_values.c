/* SPDX-License-Identifier: MIT */
/* The common calls: which request each one sends, and that an answer of another shape than the
 * contract's is refused instead of believed. */
#include "client/include/sbx.h"
#include "tests/support/peer.h"
#include "tests/support/test.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define BOX                                                                                           \
	"{\"id\":\"sbx_0123456789abcdef\",\"state\":\"suspended\",\"image\":\"base\",\"cpus\":0.5,"   \
	"\"memory_mb\":256,\"disk_mb\":512,\"network\":{\"mode\":\"allowlist\",\"allow\":[\"a.b\"]}," \
	"\"created_at\":\"2026-01-01T00:00:00Z\",\"idle_timeout_secs\":60,\"idle_suspended\":true,"   \
	"\"idle_action\":\"suspend\",\"snapshot_every_secs\":300,\"snapshot_keep\":2,"                \
	"\"snapshotting\":{\"phase\":\"capture\",\"bytes\":0}}"
#define SNAPSHOT                                                                                    \
	"{\"id\":\"snp_0123456789abcdef\",\"sandbox\":\"sbx_0123456789abcdef\",\"image\":\"base\"," \
	"\"kind\":\"disk\",\"scheduled\":true,\"bytes\":4096,\"created_at\":\"2026-01-01T00:00:00Z\"}"
#define VOLUME                                                                                     \
	"{\"name\":\"data\",\"size_mb\":64,\"created_at\":\"2026-01-01T00:00:00Z\","               \
	"\"attached_to\":\"sbx_0123456789abcdef\"}"
#define IMAGE                                                                                      \
	"{\"image\":\"docker.io/library/alpine:3\",\"state\":\"installing\",\"in_use\":0,"         \
	"\"default\":true,\"progress\":{\"phase\":\"pulling\",\"done\":3,\"total\":9}}"
#define SAMPLE                                                                                     \
	"{\"time\":\"2026-01-01T00:00:00Z\",\"cpu_percent\":12.5,\"memory_bytes\":1,"              \
	"\"memory_limit_bytes\":2,\"net_rx_bytes\":3,\"net_tx_bytes\":4,\"disk_read_bytes\":5,"    \
	"\"disk_write_bytes\":6}"
#define NODE                                                                                        \
	"{\"node\":\"\",\"version\":\"1\",\"capacity\":{\"cpus\":2,\"memory_mb\":3,\"disk_mb\":4}," \
	"\"free\":{\"cpus\":0.5,\"memory_mb\":1,\"disk_mb\":2},\"running\":7,\"cordoned\":true}"

/* ---- a peer that gives one answer and keeps what it was asked ---- */

struct scene {
	struct peer *peer;
	struct sbx *s;
	struct sbx_error e;
	int status;
	const char *answer;
	pthread_mutex_t lock;
	char request[8192];
};

static void serve(int fd, int nth, void *arg)
{
	struct scene *c = arg;
	char buf[8192], head[128];

	(void)nth;
	while (peer_request(fd, buf, sizeof(buf))) {
		pthread_mutex_lock(&c->lock);
		memcpy(c->request, buf, sizeof(buf));
		pthread_mutex_unlock(&c->lock);
		snprintf(head, sizeof(head), "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n",
			c->status, strlen(c->answer));
		peer_say(fd, head);
		peer_say(fd, c->answer);
	}
}

static void begin(struct scene *c)
{
	struct sbx_options opt = { .timeout_ms = 5000 };

	*c = (struct scene){ .status = 200, .answer = "{}" };
	pthread_mutex_init(&c->lock, NULL);
	c->peer = peer_start(serve, c);
	opt.endpoint = peer_endpoint(c->peer);
	assert_int_equal(sbx_open(&opt, &c->s, &c->e), 0);
}

static void end(struct scene *c)
{
	sbx_close(c->s);
	peer_stop(c->peer);
	pthread_mutex_destroy(&c->lock);
}

/* The first line without its protocol, a space, and the body. */
static void asked(struct scene *c, const char *want)
{
	char got[9000], *line, *body;

	pthread_mutex_lock(&c->lock);
	line = strstr(c->request, " HTTP/1.1\r\n");
	body = strstr(c->request, "\r\n\r\n");
	assert_non_null(line);
	assert_non_null(body);
	snprintf(got, sizeof(got), "%.*s%s%s", (int)(line - c->request), c->request,
		body[4] ? " " : "", body + 4);
	pthread_mutex_unlock(&c->lock);
	assert_string_equal(got, want);
}

/* ---- requests ---- */

static void create_sends_every_member(void **state)
{
	const char *env[] = { "A=x=y", NULL }, *labels[] = { "team=red", NULL };
	const char *allow[] = { "github.com", "*.example.com", NULL }, *deny[] = { "x.y", NULL };
	const char *headers[] = { "Authorization=Bearer k=v", NULL };
	struct sbx_volume_mount mounts[] = { { "data", "/data", false }, { "lib", "/lib2", true } };
	struct sbx_registry_login login = { "reg:5000", "me", "secret" };
	struct sbx_metrics_export export = { "https://m.example", 30, headers };
	struct sbx_spec spec = { .name = "n",
		.image = "i",
		.cpus = 0.5,
		.memory_mb = 1,
		.disk_mb = 2,
		.idle_timeout_secs = 3,
		.lifetime_secs = 4,
		.network = "allowlist",
		.env = env,
		.labels = labels,
		.allow = allow,
		.deny = deny,
		.idle_action = "suspend",
		.snapshot_id = "snp_0123456789abcdef",
		.snapshot_every_secs = 300,
		.snapshot_keep = 2,
		.volumes = mounts,
		.n_volumes = 2,
		.registry_login = &login,
		.metrics_export = &export,
		.gpus = 1 };
	struct sbx_sandbox b;
	struct scene c;

	(void)state;
	begin(&c);
	c.answer = BOX;
	assert_int_equal(sbx_create(c.s, &spec, &b, &c.e), 0);
	asked(&c,
		"POST /v1/sandboxes {\"name\":\"n\",\"image\":\"i\",\"cpus\":0.5,\"memory_mb\":1,"
		"\"disk_mb\":2,\"idle_timeout_secs\":3,\"lifetime_secs\":4,\"idle_action\":\"suspend\","
		"\"snapshot_id\":\"snp_0123456789abcdef\",\"snapshot_every_secs\":300,"
		"\"snapshot_keep\":2,\"gpus\":1,\"volumes\":[{\"name\":\"data\",\"path\":\"/data\"},"
		"{\"name\":\"lib\",\"path\":\"/lib2\",\"read_only\":true}],\"registry_login\":"
		"{\"registry\":\"reg:5000\",\"username\":\"me\",\"password\":\"secret\"},"
		"\"env\":{\"A\":\"x=y\"},\"labels\":{\"team\":\"red\"},\"network\":{\"mode\":"
		"\"allowlist\",\"allow\":[\"github.com\",\"*.example.com\"],\"deny\":[\"x.y\"]},"
		"\"metrics_export\":{\"endpoint\":\"https://m.example\",\"interval_secs\":30,"
		"\"headers\":{\"Authorization\":\"Bearer k=v\"}}}");
	assert_string_equal(b.id, "sbx_0123456789abcdef");
	assert_string_equal(b.name, "");
	assert_string_equal(b.state, "suspended");
	assert_string_equal(b.network, "allowlist");
	assert_string_equal(b.idle_action, "suspend");
	assert_true(b.idle_suspended);
	assert_true(b.snapshotting);
	assert_true(b.cpus == 0.5);
	assert_int_equal(b.snapshot_every_secs, 300);
	assert_int_equal(b.snapshot_keep, 2);
	assert_int_equal(sbx_create(c.s, NULL, &b, &c.e), 0);
	asked(&c, "POST /v1/sandboxes {}");
	end(&c);
}

static void update_sends_what_is_given_only(void **state)
{
	const char *none[] = { NULL };
	struct sbx_metrics_export stop = { .endpoint = "" };
	const struct {
		struct sbx_update u;
		const char *want;
	} rows[] = {
		{ { 0 }, "{}" },
		{ { .name = "" }, "{\"name\":\"\"}" },
		{ { .labels = none }, "{\"labels\":{}}" },
		{ { .idle_timeout_secs = -1 }, "{\"idle_timeout_secs\":0}" },
		{ { .idle_timeout_secs = 9, .idle_action = "suspend" },
			"{\"idle_action\":\"suspend\",\"idle_timeout_secs\":9}" },
		{ { .lifetime_secs = 7 }, "{\"lifetime_secs\":7}" },
		{ { .network = "none" }, "{\"network\":{\"mode\":\"none\"}}" },
		{ { .allow = none }, "{\"network\":{\"allow\":[]}}" },
		{ { .metrics_export = &stop }, "{\"metrics_export\":{\"endpoint\":\"\"}}" },
	};
	struct scene c;

	(void)state;
	begin(&c);
	c.answer = BOX;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char want[256];
		assert_int_equal(sbx_update(c.s, "a/b", &rows[i].u, NULL, &c.e), 0);
		snprintf(want, sizeof(want), "PATCH /v1/sandboxes/a%%2Fb %s", rows[i].want);
		asked(&c, want);
	}
	end(&c);
}

static void each_call_is_one_request(void **state)
{
	struct sbx_snapshot snap, *snaps;
	struct sbx_volume vol, *vols;
	struct sbx_image img, *imgs;
	struct sbx_sample *samples;
	struct sbx_sandbox box;
	struct sbx_node node;
	int64_t n64;
	struct scene c;
	size_t n;
	bool can;

	(void)state;
	begin(&c);
	c.answer = BOX;
	assert_int_equal(sbx_suspend(c.s, "b", &box, &c.e), 0);
	asked(&c, "POST /v1/sandboxes/b/suspend");
	assert_int_equal(sbx_resume(c.s, "b", NULL, &c.e), 0);
	asked(&c, "POST /v1/sandboxes/b/resume");
	assert_int_equal(sbx_schedule(c.s, "b", 300, 2, NULL, &c.e), 0);
	asked(&c, "PUT /v1/sandboxes/b/snapshot-schedule {\"every_secs\":300,\"keep\":2}");
	assert_int_equal(sbx_rename(c.s, "b", "c", &c.e), 0);
	asked(&c, "PATCH /v1/sandboxes/b {\"name\":\"c\"}");

	c.answer = SNAPSHOT;
	assert_int_equal(sbx_snapshot_take(c.s, "b", &snap, &c.e), 0);
	asked(&c, "POST /v1/sandboxes/b/snapshots");
	assert_string_equal(snap.kind, "disk");
	assert_true(snap.scheduled);
	c.answer = "{\"snapshots\":[" SNAPSHOT "," SNAPSHOT "]}";
	assert_int_equal(sbx_snapshot_list(c.s, &snaps, &n, &c.e), 0);
	asked(&c, "GET /v1/snapshots");
	assert_int_equal(n, 2);
	assert_int_equal(snaps[1].bytes, 4096);
	free(snaps);
	assert_int_equal(sbx_snapshot_delete(c.s, "snp_0", &c.e), 0);
	asked(&c, "DELETE /v1/snapshots/snp_0");

	c.answer = VOLUME;
	assert_int_equal(sbx_volume_create(c.s, "data", 64, &vol, &c.e), 0);
	asked(&c, "POST /v1/volumes {\"name\":\"data\",\"size_mb\":64}");
	assert_string_equal(vol.attached_to, "sbx_0123456789abcdef");
	assert_int_equal(sbx_volume_create(c.s, "data", 0, NULL, &c.e), 0);
	asked(&c, "POST /v1/volumes {\"name\":\"data\"}");
	c.answer = "{\"volumes\":[]}";
	assert_int_equal(sbx_volume_list(c.s, &vols, &n, &c.e), 0);
	asked(&c, "GET /v1/volumes");
	assert_int_equal(n, 0);
	assert_null(vols);
	assert_int_equal(sbx_volume_delete(c.s, "data", &c.e), 0);
	asked(&c, "DELETE /v1/volumes/data");

	c.answer = IMAGE;
	assert_int_equal(sbx_image_install(c.s, "a/b:3", &img, &c.e), 0);
	asked(&c, "POST /v1/images {\"image\":\"a/b:3\"}");
	assert_string_equal(img.phase, "pulling");
	assert_int_equal(img.total, 9);
	assert_true(img.is_default);
	c.answer = "{\"images\":[" IMAGE "]}";
	assert_int_equal(sbx_image_list(c.s, &imgs, &n, &c.e), 0);
	asked(&c, "GET /v1/images");
	assert_int_equal(n, 1);
	free(imgs);
	c.answer = "{\"image\":\"a\",\"freed_bytes\":17}";
	assert_int_equal(sbx_image_remove(c.s, "a/b:3", &n64, &c.e), 0);
	asked(&c, "DELETE /v1/images?image=a%2Fb%3A3");
	assert_int_equal(n64, 17);

	c.answer = "{\"interval_secs\":5,\"samples\":[" SAMPLE "]}";
	assert_int_equal(sbx_metrics(c.s, "b", &n64, &samples, &n, &c.e), 0);
	asked(&c, "GET /v1/sandboxes/b/metrics");
	assert_int_equal(n64, 5);
	assert_true(samples[0].cpu_percent == 12.5);
	assert_int_equal(samples[0].disk_write_bytes, 6);
	assert_int_equal(samples[0].processes, 0);
	free(samples);

	c.answer = NODE;
	assert_int_equal(sbx_node_get(c.s, &node, &c.e), 0);
	asked(&c, "GET /v1/node");
	assert_true(node.free.cpus == 0.5);
	assert_true(node.cordoned);
	assert_int_equal(node.running, 7);
	assert_int_equal(sbx_node_cordon(c.s, false, NULL, &c.e), 0);
	asked(&c, "POST /v1/node/cordon {\"cordoned\":false}");

	c.answer = "{\"capabilities\":{\"suspend\":true,\"gpu\":false}}";
	assert_int_equal(sbx_capability(c.s, "suspend", &can, &c.e), 0);
	assert_true(can);
	assert_int_equal(sbx_capability(c.s, "gpu", &can, &c.e), 0);
	assert_false(can);
	assert_int_equal(sbx_capability(c.s, "no_such", &can, &c.e), 0);
	assert_false(can);
	end(&c);
}

/* ---- answers ---- */

static int do_box(struct scene *c)
{
	struct sbx_sandbox b;

	return sbx_get(c->s, "b", &b, &c->e);
}
static int do_snapshots(struct scene *c)
{
	struct sbx_snapshot *v = NULL;
	size_t n;

	return sbx_snapshot_list(c->s, &v, &n, &c->e);
}
static int do_volume(struct scene *c)
{
	return sbx_volume_create(c->s, "v", 0, NULL, &c->e);
}
static int do_image(struct scene *c)
{
	return sbx_image_install(c->s, "v", NULL, &c->e);
}
static int do_metrics(struct scene *c)
{
	struct sbx_sample *v = NULL;
	size_t n;

	return sbx_metrics(c->s, "b", NULL, &v, &n, &c->e);
}
static int do_node(struct scene *c)
{
	return sbx_node_get(c->s, &(struct sbx_node){ .running = 0 }, &c->e);
}

static void an_answer_of_another_shape_is_refused(void **state)
{
	static const struct {
		int (*call)(struct scene *c);
		const char *answer;
	} rows[] = {
		{ do_box, "[]" },
		{ do_box, "{}" },
		{ do_box, "{\"id\":7,\"state\":\"running\",\"image\":\"i\",\"created_at\":\"t\"}" },
		{ do_box,
			"{\"id\":\"i\",\"state\":\"a state that is far too long\",\"image\":\"i\","
			"\"created_at\":\"t\"}" },
		{ do_box,
			"{\"id\":\"a\\u0000b\",\"state\":\"s\",\"image\":\"i\",\"created_at\":\"t\"}" },
		{ do_box, "{\"id\":\"i\",\"state\":\"s\",\"image\":\"i\",\"created_at\":\"t\","
			  "\"memory_mb\":1.5}" },
		{ do_box, "{\"id\":\"i\",\"state\":\"s\",\"image\":\"i\",\"created_at\":\"t\","
			  "\"network\":[]}" },
		{ do_snapshots, "{}" },
		{ do_snapshots, "{\"snapshots\":{}}" },
		{ do_snapshots, "{\"snapshots\":[" SNAPSHOT ",7]}" },
		{ do_volume, "{\"name\":\"v\"}" },
		{ do_image, "{\"image\":\"i\",\"state\":\"installed\",\"progress\":7}" },
		{ do_metrics, "{\"samples\":[]}" },
		{ do_metrics, "{\"interval_secs\":0,\"samples\":[]}" },
		{ do_metrics, "{\"interval_secs\":5,\"samples\":[{}]}" },
		{ do_node, "{\"version\":\"1\"}" },
	};
	struct scene c;

	(void)state;
	begin(&c);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		c.answer = rows[i].answer;
		if (rows[i].call(&c) != -1)
			fail_msg("believed: %s", rows[i].answer);
		assert_int_equal(c.e.sys, EPROTO);
		assert_string_equal(c.e.code, "protocol");
	}
	end(&c);
}

static void what_a_server_lacks_is_said(void **state)
{
	struct scene c;

	(void)state;
	begin(&c);
	c.status = 501;
	c.answer = "{\"error\":{\"code\":\"unsupported\",\"message\":\"no volumes here\"}}";
	assert_int_equal(do_volume(&c), -1);
	assert_int_equal(c.e.status, 501);
	assert_int_equal(c.e.sys, EOPNOTSUPP);
	assert_string_equal(c.e.code, "unsupported");
	end(&c);
}

static void text_that_is_no_utf8_is_not_sent(void **state)
{
	const char *bad[] = { "a=\xff", NULL }, *plain[] = { "no-value", NULL };
	struct sbx_spec specs[] = { { .env = bad }, { .labels = plain }, { .allow = bad } };
	struct sbx_sandbox b;
	struct scene c;

	(void)state;
	begin(&c);
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		assert_int_equal(sbx_create(c.s, &specs[i], &b, &c.e), -1);
		assert_int_equal(c.e.sys, EINVAL);
		assert_int_equal(peer_connections(c.peer), 0);
	}
	end(&c);
}

static void serve_tunnel(int fd, int nth, void *arg)
{
	char buf[4096];

	(void)nth;
	if (!peer_request(fd, buf, sizeof(buf)))
		return;
	snprintf(arg, 200, "%.*s", (int)strcspn(buf, "\r"), buf);
	peer_say(fd, "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: sbx-tunnel/1\r\n\r\nhello");
}

static void a_tunnel_is_a_socket(void **state)
{
	char first[200], buf[16];
	struct peer *p = peer_start(serve_tunnel, first);
	struct sbx_options opt = { .endpoint = peer_endpoint(p) };
	struct sbx_error e;
	struct sbx *s;
	int fd;

	(void)state;
	assert_int_equal(sbx_open(&opt, &s, &e), 0);
	assert_int_equal(sbx_tunnel(s, "b", 8080, &fd, &e), 0);
	assert_int_equal(recv(fd, buf, sizeof(buf), MSG_WAITALL), 5);
	assert_memory_equal(buf, "hello", 5);
	assert_string_equal(first, "GET /v1/sandboxes/b/tunnel?port=8080 HTTP/1.1");
	close(fd);
	sbx_close(s);
	peer_stop(p);
}

struct ends {
	int a, b;
};

static void *join_them(void *arg)
{
	struct ends *e = arg;

	sbx_join(e->a, e->b);
	return NULL;
}

/* left | a joined b | right */
static void joined_sockets_pass_each_end_on(void **state)
{
	int left[2], right[2];
	char buf[300000], got[300000];
	struct ends e;
	pthread_t t;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, left), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, right), 0);
	e = (struct ends){ left[1], right[1] };
	pthread_create(&t, NULL, join_them, &e);
	/* Its own end first: the answer still comes. */
	assert_int_equal(send(left[0], "ask", 3, 0), 3);
	shutdown(left[0], SHUT_WR);
	assert_int_equal(recv(right[0], got, sizeof(got), MSG_WAITALL), 3);
	memset(buf, 'x', sizeof(buf));
	for (size_t at = 0, n = 0; at < sizeof(buf); at += n) {
		n = sizeof(buf) - at < 50000 ? sizeof(buf) - at : 50000;
		assert_int_equal(send(right[0], buf + at, n, 0), n);
		assert_int_equal(recv(left[0], got, n, MSG_WAITALL), n);
	}
	shutdown(right[0], SHUT_WR);
	assert_int_equal(recv(left[0], got, 1, 0), 0);
	pthread_join(t, NULL);
	for (int i = 0; i < 2; i++) {
		close(left[i]);
		close(right[i]);
	}
}

static void a_join_ends_when_an_end_is_shut_down(void **state)
{
	int left[2], right[2];
	struct ends e;
	pthread_t t;
	char c;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, left), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, right), 0);
	e = (struct ends){ left[1], right[1] };
	pthread_create(&t, NULL, join_them, &e);
	shutdown(e.a, SHUT_RDWR);
	shutdown(e.b, SHUT_RDWR);
	assert_int_equal(recv(left[0], &c, 1, 0), 0);
	assert_int_equal(recv(right[0], &c, 1, 0), 0);
	pthread_join(t, NULL);
	for (int i = 0; i < 2; i++) {
		close(left[i]);
		close(right[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(create_sends_every_member),
		cmocka_unit_test(update_sends_what_is_given_only),
		cmocka_unit_test(each_call_is_one_request),
		cmocka_unit_test(an_answer_of_another_shape_is_refused),
		cmocka_unit_test(what_a_server_lacks_is_said),
		cmocka_unit_test(text_that_is_no_utf8_is_not_sent),
		cmocka_unit_test(a_tunnel_is_a_socket),
		cmocka_unit_test(joined_sockets_pass_each_end_on),
		cmocka_unit_test(a_join_ends_when_an_end_is_shut_down),
	};

	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
