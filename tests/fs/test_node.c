/* SPDX-License-Identifier: MIT */
/* Network, sleep, snapshots, volumes, images, usage and ports in the tree: which request a write or a
 * mkdir becomes, what is shown of an answer, and what is dropped of one that lies. No kernel is needed. */
#include "sbxfs/belief.h"
#include "sbxfs/box.h"
#include "sbxfs/draft.h"
#include "sbxfs/errlog.h"
#include "sbxfs/inode.h"
#include "sbxfs/nodes.h"
#include "sbxfs/ports.h"
#include "sbxfs/proc.h"
#include "sbxfs/remote.h"
#include "sbxfs/snaps.h"
#include "sbxfs/watch.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/peer.h"

#define BOX "sbx_0123456789abcdef"
#define OTHER "sbx_ffffffffffffffff"
#define SNP "snp_0123456789abcdef"
#define SNP2 "snp_1111111111111111"
#define BOX_JSON(state, more) "{\"id\":\"" BOX "\",\"name\":\"box\",\"state\":\"" state "\",\"image\":\"base\"," \
	"\"network\":{\"mode\":\"allowlist\",\"allow\":[\"a.b\"],\"deny\":[\"x.y\"]}" more "}"
#define SNP_JSON(id, box) "{\"id\":\"" id "\",\"sandbox\":\"" box "\",\"image\":\"base\",\"kind\":\"disk\"," \
	"\"bytes\":7,\"created_at\":\"2026-01-01T00:00:00Z\"}"
#define REFUSED(text) "{\"error\":{\"code\":\"conflict\",\"message\":\"" text "\"}}"

/* What the peer answers, the first row that a request's line begins with. */
struct answer {
	const char *begins;
	int status;
	const char *body;
};
struct rig {
	struct peer *peer;
	struct sbx *sbx;
	struct mount m;
	struct req q;
	const struct answer *answers;
	const char *news; /* comes before the answer of a change */
	unsigned pause_ms; /* before all but a PATCH is answered */
	pthread_mutex_t lock;
	char log[65536]; /* "METHOD path body" lines but for the capabilities' */
};

static void serve_one(struct rig *r, int fd, const char *line, const char *body)
{
	static const char caps[] = "{\"capabilities\":{\"network_policy_update\":true,\"suspend\":true,"
		"\"disk_snapshot\":true,\"tunnel\":true,\"volumes\":true,\"metrics\":true,\"images\":true,"
		"\"metrics_export\":true,\"list_watch\":true}}";
	static const struct answer can = { "", 200, caps }, none = { "", 404,
		"{\"error\":{\"code\":\"not_found\",\"message\":\"nothing there\"}}" };
	const struct answer *a = r->answers;
	char head[160];

	if (!strncmp(line, "GET /v1/capabilities", 20)) {
		a = &can;
	} else {
		pthread_mutex_lock(&r->lock);
		(void)snprintf(r->log + strlen(r->log), sizeof(r->log) - strlen(r->log), "%s%s%s\n", line,
			body[0] ? " " : "", body);
		pthread_mutex_unlock(&r->lock);
		while (a->begins && strncmp(line, a->begins, strlen(a->begins)))
			a++;
		if (!a->begins)
			a = &none;
	}
	if (r->news && strncmp(line, "GET ", 4) != 0)
		watch_line(&r->m, r->news, strlen(r->news));
	if (r->pause_ms && strncmp(line, "PATCH ", 6) != 0)
		(void)poll(NULL, 0, (int)r->pause_ms);
	(void)snprintf(head, sizeof(head), "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n", a->status,
		strlen(a->body));
	peer_say(fd, head);
	peer_say(fd, a->body);
}

static void serve(int fd, int nth, void *arg)
{
	char buf[16384];

	(void)nth;
	while (peer_request(fd, buf, sizeof(buf))) {
		char *end = strstr(buf, " HTTP/1.1"), *body = strstr(buf, "\r\n\r\n") + 4;

		if (strstr(buf, "Upgrade: sbx-tunnel/1")) {
			if (strstr(buf, "port=8080")) {
				char got[64];
				ssize_t n;

				peer_say(fd, "HTTP/1.1 101 X\r\nConnection: Upgrade\r\n"
					"Upgrade: sbx-tunnel/1\r\n\r\n");
				while ((n = recv(fd, got, sizeof(got), 0)) > 0)
					if (send(fd, got, (size_t)n, MSG_NOSIGNAL) != n)
						break;
				return;
			}
		}
		*end = '\0';
		serve_one(arg, fd, buf, body);
	}
}

static void begin(struct rig *r, const struct answer *answers)
{
	struct options o = { .max_threads = 1, .owner = getuid(), .gid = getgid() };
	struct sbx_options so = { 0 };
	struct sbx_error e;

	memset(r, 0, sizeof(*r));
	r->answers = answers;
	pthread_mutex_init(&r->lock, NULL);
	r->peer = peer_start(serve, r);
	so.endpoint = peer_endpoint(r->peer);
	assert_int_equal(sbx_open(&so, &r->sbx, &e), 0);
	assert_int_equal(mount_init(&r->m, &o, r->sbx), 0);
	r->q = (struct req){ .m = &r->m, .op = "test", .uid = getuid(), .start_ms = now_ms() };
}

static void end(struct rig *r)
{
	mount_fini(&r->m);
	sbx_close(r->sbx);
	peer_stop(r->peer);
	pthread_mutex_destroy(&r->lock);
}

/* Exactly these requests came since the last time. */
static void asked(struct rig *r, const char *want)
{
	pthread_mutex_lock(&r->lock);
	assert_string_equal(r->log, want);
	r->log[0] = '\0';
	pthread_mutex_unlock(&r->lock);
}

static int put(struct rig *r, enum node_id id, const char *arg, const char *value, bool append)
{
	struct spot s = { .node = node_by_id(id), .box = BOX, .arg = arg };

	memset(&r->q.err, 0, sizeof(r->q.err));
	r->q.acts = false;
	return s.node->apply(&r->q, &s, value, strlen(value), append);
}

static void shows(struct rig *r, enum node_id id, const char *box, const char *arg, const char *want)
{
	struct spot s = { .node = node_by_id(id), .box = box, .arg = arg };
	_cleanup_text_ struct text t = TEXT_NULL;

	r->q.acts = false;
	assert_int_equal(s.node->read(&r->q, &s, &t), 0);
	assert_string_equal(t.p ? t.p : "", want);
}

/* Names in a directory, as "a|b|". */
static void lists(struct rig *r, enum node_id id, const char *box, const char *arg, const char *want)
{
	struct spot d = { .node = node_by_id(id), .box = box, .arg = arg };
	struct lister l = { 0 };
	char got[4096] = "";

	r->q.acts = false;
	assert_int_equal(node_dir(id)->list(&r->q, &d, &l), 0);
	for (size_t n = 0; n < l.n; n++) {
		strcat(got, l.v[n].name);
		strcat(got, "|");
	}
	lister_fini(&l);
	assert_string_equal(got, want);
}

static int find(struct rig *r, enum node_id id, const char *box, const char *name, struct found *ret)
{
	struct spot d = { .node = node_by_id(id), .box = box, .arg = "" };

	r->q.acts = false;
	return node_find(&r->q, &d, name, ret);
}

typedef int change_fn(struct req *q, const struct spot *d, const char *name);
static int change(struct rig *r, change_fn *fn, enum node_id id, const char *box, const char *arg,
	const char *name)
{
	struct spot d = { .node = node_by_id(id), .box = box, .arg = arg };

	memset(&r->q.err, 0, sizeof(r->q.err));
	return fn(&r->q, &d, name);
}

static void network_is_one_patch(void **state)
{
	static const struct answer answers[] = {
		{ "GET /v1/sandboxes/" BOX, 200, BOX_JSON("running", "") },
		{ "PATCH /v1/sandboxes/" BOX, 200, BOX_JSON("running", "") }, { NULL, 0, NULL } };
	static const struct {
		enum node_id id;
		const char *value;
		bool append;
		const char *want;
	} rows[] = {
		{ N_BOX_NET_ALLOW, "c.d\n*.e.f\n", false,
			"{\"mode\":\"allowlist\",\"allow\":[\"c.d\",\"*.e.f\"],\"deny\":[\"x.y\"]}" },
		{ N_BOX_NET_ALLOW, "c.d", true,
			"{\"mode\":\"allowlist\",\"allow\":[\"a.b\",\"c.d\"],\"deny\":[\"x.y\"]}" },
		{ N_BOX_NET_DENY, "q.r\n", false,
			"{\"mode\":\"allowlist\",\"allow\":[\"a.b\"],\"deny\":[\"q.r\"]}" },
		{ N_BOX_NET_MODE, "none\n", false, "{\"mode\":\"none\",\"deny\":[\"x.y\"]}" },
		{ N_BOX_NET_POLICY, "{\"mode\":\"open\"}", false, "{\"mode\":\"open\"}" },
	};
	struct rig r;

	(void)state;
	begin(&r, answers);
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		char want[512];

		(void)snprintf(want, sizeof(want), "%sPATCH /v1/sandboxes/" BOX " {\"network\":%s}\n",
			rows[n].id == N_BOX_NET_POLICY ? "" : "GET /v1/sandboxes/" BOX "\n", rows[n].want);
		assert_int_equal(put(&r, rows[n].id, "", rows[n].value, rows[n].append), 0);
		asked(&r, want);
	}
	end(&r);
}

/* A write in a thread of its own. */
struct writer {
	struct rig *r;
	pthread_t thread;
	enum node_id id;
	const char *arg, *value;
	unsigned keys; /* labels of a draft that it sets */
	int rc;
};

static void *write_one(void *arg)
{
	struct writer *w = arg;
	struct spot s = { .node = node_by_id(w->id), .box = BOX, .arg = w->arg };
	struct req q = { .m = &w->r->m, .op = "test", .uid = getuid(), .start_ms = now_ms() };

	w->rc = s.node->apply(&q, &s, w->value, strlen(w->value), true);
	return NULL;
}

static bool was_asked(struct rig *r, const char *want)
{
	bool is;

	pthread_mutex_lock(&r->lock);
	is = strstr(r->log, want) != NULL;
	pthread_mutex_unlock(&r->lock);
	return is;
}

/* The server takes all labels, and the whole policy, at once: who begins while another stands between reading and
 * sending them would send back what that one has changed. */
static void two_changes_of_a_part_are_one_after_the_other(void **state)
{
	static const struct answer answers[] = {
		{ "GET /v1/sandboxes/" BOX, 200, BOX_JSON("running", ",\"labels\":{\"k\":\"v\"}") },
		{ "PATCH /v1/sandboxes/" BOX, 200, BOX_JSON("running", "") }, { NULL, 0, NULL } };
#define GETS "GET /v1/sandboxes/" BOX "\n"
#define PATCHES(body) "PATCH /v1/sandboxes/" BOX " " body "\n"
#define ALLOWS PATCHES("{\"network\":{\"mode\":\"allowlist\",\"allow\":[\"a.b\",\"c.d\"],\"deny\":[\"x.y\"]}}")
#define LABELS PATCHES("{\"labels\":{\"k\":\"v\",\"a\":\"1\"}}")
	static const struct {
		enum node_id id;
		const char *arg, *value;
		enum node_id id2;
		const char *arg2, *value2, *want;
	} rows[] = {
		{ N_BOX_LABEL, "a", "1", N_BOX_LABEL, "b", "2",
			GETS LABELS GETS PATCHES("{\"labels\":{\"k\":\"v\",\"b\":\"2\"}}") },
		{ N_BOX_NET_ALLOW, "", "c.d", N_BOX_NET_MODE, "", "none",
			GETS ALLOWS GETS PATCHES("{\"network\":{\"mode\":\"none\",\"deny\":[\"x.y\"]}}") },
		{ N_BOX_NET_ALLOW, "", "c.d", N_BOX_NET_POLICY, "", "{\"mode\":\"open\"}",
			GETS ALLOWS PATCHES("{\"network\":{\"mode\":\"open\"}}") },
	};
	const atomic_bool stop = true;

	(void)state;
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		struct writer w = { .id = rows[n].id, .arg = rows[n].arg, .value = rows[n].value };
		struct rig r;

		begin(&r, answers);
		assert_int_equal(remote_caps(&r.q, NULL), 0);
		r.pause_ms = 300;
		w.r = &r;
		assert_int_equal(pthread_create(&w.thread, NULL, write_one, &w), 0);
		while (!was_asked(&r, GETS))
			(void)poll(NULL, 0, 1);
		r.q.stop = &stop; /* who waits for its turn can be interrupted */
		assert_int_equal(put(&r, rows[n].id2, rows[n].arg2, rows[n].value2, true), -EINTR);
		r.q.stop = NULL;
		assert_int_equal(put(&r, rows[n].id2, rows[n].arg2, rows[n].value2, true), 0);
		assert_int_equal(pthread_join(w.thread, NULL), 0);
		assert_int_equal(w.rc, 0);
		asked(&r, rows[n].want);
		end(&r);
	}
}

#define DRAFT_KEYS 200u

static void *write_keys(void *arg)
{
	struct writer *w = arg;
	struct req q = { .m = &w->r->m, .op = "test", .uid = getuid(), .start_ms = now_ms() };

	for (unsigned n = 0; n < DRAFT_KEYS && w->rc == 0; n++) {
		struct spot s = { .node = node_by_id(N_DRAFT_LABEL), .box = "" };
		char key[64];

		(void)snprintf(key, sizeof(key), "d/k%u", w->keys + n);
		s.arg = key;
		w->rc = s.node->apply(&q, &s, "v", 1, false);
	}
	return NULL;
}

static void a_draft_loses_nothing_that_is_written_at_once(void **state)
{
	static const struct answer none[] = { { NULL, 0, NULL } };
	struct writer w[4] = { { .rc = 0 } };
	struct rig r;
	json_t *spec;

	(void)state;
	begin(&r, none);
	assert_int_equal(draft_make(&r.q, "d"), 0);
	for (unsigned n = 0; n < 4; n++) {
		w[n] = (struct writer){ .r = &r, .keys = n * DRAFT_KEYS };
		assert_int_equal(pthread_create(&w[n].thread, NULL, write_keys, &w[n]), 0);
	}
	for (unsigned n = 0; n < 4; n++) {
		assert_int_equal(pthread_join(w[n].thread, NULL), 0);
		assert_int_equal(w[n].rc, 0);
	}
	spec = draft_spec(&r.m, "d");
	assert_int_equal(json_object_size(json_object_get(spec, "labels")), 4 * DRAFT_KEYS);
	json_decref(spec);
	end(&r);
}

static void settings_are_checked_before_they_are_sent(void **state)
{
	static const struct answer answers[] = { { NULL, 0, NULL } };
	static const struct {
		enum node_id id;
		const char *value;
	} rows[] = { { N_BOX_SNAPS_PLAN, "x" }, { N_BOX_SNAPS_PLAN, "1 2 3" }, { N_BOX_SNAPS_PLAN, "-1" },
		{ N_BOX_SNAPS_PLAN, "300  2" }, { N_BOX_EXPORT, "{]" }, { N_BOX_EXPORT, "[]" },
		{ N_SNAP_FORK, "Not_A_Name" }, { N_SNAP_FORK, "images" }, { N_PORT_CTL, "udp" },
		{ N_PORT_CTL, "tcp 0" }, { N_PORT_CTL, "tcp 1 2" }, { N_IMAGE_CTL, "remove" },
		{ N_BOX_CTL, "fork" }, { N_BOX_CTL, "fork A" }, { N_BOX_CTL, "snapshot ../x" } };
	struct rig r;

	(void)state;
	begin(&r, answers);
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		int rc = put(&r, rows[n].id, "80", rows[n].value, false);

		if (rc != -EINVAL)
			fail_msg("%s: %d", rows[n].value, rc);
		assert_true(r.q.err.message[0] != '\0');
		asked(&r, "");
	}
	end(&r);
}

static void sleep_and_schedule_are_requests_of_their_own(void **state)
{
	static const struct answer answers[] = {
		{ "GET /v1/sandboxes/" BOX, 200, BOX_JSON("running",
			",\"snapshot_every_secs\":300,\"snapshot_keep\":2,\"snapshotting\":{\"bytes\":5}") },
		{ "P", 200, BOX_JSON("suspended", "") }, { NULL, 0, NULL } };
	struct rig r;

	(void)state;
	begin(&r, answers);
	assert_int_equal(put(&r, N_BOX_CTL, "", "suspend", false), 0);
	assert_int_equal(put(&r, N_BOX_CTL, "", "resume", false), 0);
	asked(&r, "POST /v1/sandboxes/" BOX "/suspend\nPOST /v1/sandboxes/" BOX "/resume\n");
	assert_int_equal(put(&r, N_BOX_SNAPS_PLAN, "", "600 3\n", false), 0);
	assert_int_equal(put(&r, N_BOX_SNAPS_PLAN, "", "0\n", false), 0);
	asked(&r, "PUT /v1/sandboxes/" BOX "/snapshot-schedule {\"every_secs\":600,\"keep\":3}\n"
		"PUT /v1/sandboxes/" BOX "/snapshot-schedule {\"every_secs\":0,\"keep\":0}\n");
	shows(&r, N_BOX_SNAPS_PLAN, BOX, "", "300 2\n");
	shows(&r, N_BOX_SNAPS_NOW, BOX, "", "{\n  \"bytes\": 5\n}\n");
	assert_int_equal(put(&r, N_BOX_EXPORT, "", "{\"endpoint\":\"https://x\"}", false), 0);
	asked(&r, "GET /v1/sandboxes/" BOX "\nPATCH /v1/sandboxes/" BOX
		" {\"metrics_export\":{\"endpoint\":\"https://x\"}}\n");
	end(&r);
}

static void snapshots_are_directories(void **state)
{
	static const struct answer answers[] = {
		{ "GET /v1/snapshots", 200, "{\"snapshots\":[" SNP_JSON(SNP, BOX) "," SNP_JSON(SNP2, OTHER) ","
			"{\"id\":\"snp_../../etc\",\"sandbox\":\"" BOX "\"},{\"id\":7},8]}" },
		{ "POST /v1/sandboxes/" BOX "/snapshots", 201, SNP_JSON(SNP, BOX) },
		{ "DELETE /v1/snapshots/", 204, "" },
		{ "POST /v1/sandboxes", 201, BOX_JSON("running", "") }, { NULL, 0, NULL } };
	struct found f;
	struct rig r;

	(void)state;
	begin(&r, answers);
	lists(&r, N_SNAPSHOTS, "", "", SNP "|" SNP2 "|");
	lists(&r, N_BOX_SNAPS, BOX, "", SNP "|");
	assert_int_equal(find(&r, N_BOX_SNAPS, BOX, SNP2, &f), -ENOENT);
	assert_int_equal(find(&r, N_SNAPSHOTS, "", SNP2, &f), 0);
	assert_int_equal(find(&r, N_SNAPSHOTS, "", "../x", &f), -ENOENT);
	asked(&r, "GET /v1/snapshots\n"); /* one answer serves what comes close together */
	/* A name of this mount; the id is then a link to it. */
	assert_int_equal(change(&r, node_dir(N_BOX_SNAPS)->mkdir, N_BOX_SNAPS, BOX, "", "before"), 0);
	asked(&r, "POST /v1/sandboxes/" BOX "/snapshots\n");
	lists(&r, N_BOX_SNAPS, BOX, "", SNP "|before|");
	assert_int_equal(find(&r, N_BOX_SNAPS, BOX, "before", &f), 0);
	assert_int_equal(f.node->id, N_SNAP);
	assert_string_equal(f.arg, SNP);
	assert_int_equal(find(&r, N_BOX_SNAPS, BOX, SNP, &f), 0);
	assert_int_equal(f.node->id, N_SNAP_LINK);
	shows(&r, N_SNAP_LINK, BOX, SNP, "before");
	shows(&r, N_SNAP_BYTES, "", SNP, "7\n");
	shows(&r, N_SNAP_PLANNED, "", SNP, "0\n");
	asked(&r, "GET /v1/snapshots\n");
	assert_int_equal(put(&r, N_SNAP_FORK, SNP, "copy", false), 0);
	asked(&r, "POST /v1/sandboxes {\"snapshot_id\":\"" SNP "\",\"name\":\"copy\"}\n");
	assert_int_equal(change(&r, node_dir(N_BOX_SNAPS)->rmdir, N_BOX_SNAPS, BOX, "", "before"), 0);
	asked(&r, "GET /v1/snapshots\nDELETE /v1/snapshots/" SNP "\n");
	lists(&r, N_BOX_SNAPS, BOX, "", SNP "|"); /* the name is gone with it */
	end(&r);
}

static void the_name_of_a_snapshot_that_was_deleted_elsewhere_is_free(void **state)
{
	static const struct answer with[] = { { "GET /v1/snapshots", 200, "{\"snapshots\":[" SNP_JSON(SNP, BOX) "]}" },
		{ "POST /v1/sandboxes/" BOX "/snapshots", 201, SNP_JSON(SNP, BOX) }, { NULL, 0, NULL } };
	static const struct answer without[] = { { "GET /v1/snapshots", 200, "{\"snapshots\":[]}" },
		{ "POST /v1/sandboxes/" BOX "/snapshots", 201, SNP_JSON(SNP2, BOX) }, { NULL, 0, NULL } };
	static const struct answer broken[] = { { "GET /v1/snapshots", 500,
		"{\"error\":{\"code\":\"internal\",\"message\":\"no\"}}" }, { NULL, 0, NULL } };
	char id[SBX_ID_MAX];
	struct found f;
	struct rig r;

	(void)state;
	begin(&r, with);
	assert_int_equal(put(&r, N_BOX_CTL, "", "snapshot before", false), 0);
	assert_int_equal(put(&r, N_BOX_CTL, "", "snapshot before", false), -EEXIST);
	r.answers = broken;
	mount_touch(&r.m);
	assert_int_equal(put(&r, N_BOX_CTL, "", "snapshot before", false), -EIO); /* nobody knows */
	r.answers = without;
	mount_touch(&r.m);
	assert_int_equal(put(&r, N_BOX_CTL, "", "snapshot before", false), 0);
	assert_true(snap_by_name(&r.m, BOX, "before", id));
	assert_string_equal(id, SNP2);
	assert_int_equal(find(&r, N_BOX_SNAPS, BOX, "before", &f), -ENOENT); /* this one is gone as well */
	assert_false(snap_by_name(&r.m, BOX, "before", id));
	end(&r);
}

static void a_fork_of_now_leaves_no_snapshot(void **state)
{
	static const struct answer good[] = {
		{ "POST /v1/sandboxes/" BOX "/snapshots", 201, SNP_JSON(SNP, BOX) },
		{ "POST /v1/sandboxes ", 201, BOX_JSON("running", "") },
		{ "POST /v1/sandboxes", 201, BOX_JSON("running", "") },
		{ "DELETE /v1/snapshots/", 204, "" }, { NULL, 0, NULL } };
	static const struct answer taken[] = {
		{ "POST /v1/sandboxes/" BOX "/snapshots", 201, SNP_JSON(SNP, BOX) },
		{ "POST /v1/sandboxes", 409, REFUSED("name in use") },
		{ "DELETE /v1/snapshots/", 204, "" }, { NULL, 0, NULL } };
	static const char want[] = "POST /v1/sandboxes/" BOX "/snapshots\n"
		"POST /v1/sandboxes {\"snapshot_id\":\"" SNP "\",\"name\":\"copy\"}\n"
		"DELETE /v1/snapshots/" SNP "\n";
	struct rig r;

	(void)state;
	begin(&r, good);
	assert_int_equal(put(&r, N_BOX_CTL, "", "fork copy", false), 0);
	asked(&r, want);
	end(&r);
	begin(&r, taken);
	assert_int_equal(put(&r, N_BOX_CTL, "", "fork copy", false), -EEXIST);
	assert_string_equal(r.q.err.message, "name in use");
	asked(&r, want);
	end(&r);
}

static void a_view_is_a_sandbox_that_mkdir_makes(void **state)
{
	static const struct answer answers[] = {
		{ "GET /v1/snapshots", 200, "{\"snapshots\":[" SNP_JSON(SNP, OTHER) "]}" },
		{ "POST /v1/sandboxes", 201, BOX_JSON("running", "") },
		{ "GET /v1/sandboxes/" BOX, 200, BOX_JSON("running", "") },
		{ "DELETE /v1/sandboxes/" BOX, 204, "" }, { NULL, 0, NULL } };
	struct spot d = { .node = node_by_id(N_SNAP), .box = "", .arg = SNP };
	struct found f;
	struct rig r;

	(void)state;
	begin(&r, answers);
	/* Looking makes nothing. */
	lists(&r, N_SNAP, "", SNP, "");
	assert_int_equal(node_find(&r.q, &d, "fs", &f), -ENOENT);
	asked(&r, "");
	assert_int_equal(change(&r, node_dir(N_SNAP)->mkdir, N_SNAP, "", SNP, "other"), -EPERM);
	assert_int_equal(change(&r, node_dir(N_SNAP)->mkdir, N_SNAP, "", SNP, "fs"), 0);
	asked(&r, "POST /v1/sandboxes {\"snapshot_id\":\"" SNP "\",\"network\":{\"mode\":\"none\"},"
		"\"labels\":{\"sbxfs.view\":\"" SNP "\"}}\n");
	assert_int_equal(node_find(&r.q, &d, "fs", &f), 0);
	assert_int_equal(f.node->id, N_SNAP_FS);
	assert_string_equal(f.box, BOX);
	assert_int_equal(change(&r, node_dir(N_SNAPSHOTS)->rmdir, N_SNAPSHOTS, "", "", SNP), -EBUSY);
	asked(&r, "GET /v1/sandboxes/" BOX "\n");
	/* The end of the mount ends it. */
	mount_stop(&r.m);
	pthread_mutex_lock(&r.lock);
	assert_non_null(strstr(r.log, "DELETE /v1/sandboxes/" BOX "\n"));
	pthread_mutex_unlock(&r.lock);
	end(&r);
}

static void a_volume_has_a_size_from_a_draft(void **state)
{
	static const struct answer answers[] = {
		{ "GET /v1/volumes", 200, "{\"volumes\":[{\"name\":\"data\",\"size_mb\":64},{\"name\":\"../x\"},"
			"{\"name\":\"busy\",\"size_mb\":1,\"attached_to\":\"" BOX "\"}]}" },
		{ "POST /v1/volumes", 201, "{}" }, { "DELETE /v1/volumes/busy", 409, REFUSED("mounted") },
		{ "DELETE /v1/volumes/", 204, "" }, { NULL, 0, NULL } };
	struct spot from = { .node = node_by_id(N_NEW), .box = "", .arg = "" };
	struct spot volumes = { .node = node_by_id(N_VOLUMES), .box = "", .arg = "" };
	struct spot root = { .node = node_by_id(N_ROOT), .box = "", .arg = "" };
	struct rig r;

	(void)state;
	begin(&r, answers);
	lists(&r, N_VOLUMES, "", "", "data|busy|");
	shows(&r, N_VOLUME_SIZE, "", "data", "64\n");
	shows(&r, N_VOLUME_USER, "", "data", "");
	shows(&r, N_VOLUME_USER, "", "busy", BOX "\n");
	asked(&r, "GET /v1/volumes\n");
	assert_int_equal(change(&r, node_dir(N_VOLUMES)->mkdir, N_VOLUMES, "", "", "plain"), 0);
	asked(&r, "POST /v1/volumes {\"name\":\"plain\"}\n");
	assert_int_equal(change(&r, node_dir(N_VOLUMES)->rmdir, N_VOLUMES, "", "", "busy"), -EBUSY);
	assert_int_equal(change(&r, node_dir(N_VOLUMES)->rmdir, N_VOLUMES, "", "", "data"), 0);
	asked(&r, "DELETE /v1/volumes/busy\nDELETE /v1/volumes/data\n");
	assert_int_equal(draft_make(&r.q, "d"), 0);
	assert_int_equal(put(&r, N_DRAFT_SIZE, "d", "128\n", false), 0);
	assert_int_equal(node_dir(N_NEW)->rename(&r.q, &from, "d", &root, "d"), -EINVAL);
	assert_int_equal(node_dir(N_NEW)->rename(&r.q, &from, "d", &volumes, "big"), 0);
	asked(&r, "POST /v1/volumes {\"name\":\"big\",\"size_mb\":128}\n");
	assert_int_equal(draft_make(&r.q, "d"), 0);
	assert_int_equal(put(&r, N_DRAFT_IMAGE, "d", "base\n", false), 0);
	assert_int_equal(node_dir(N_NEW)->rename(&r.q, &from, "d", &volumes, "big"), -EINVAL);
	asked(&r, "");
	end(&r);
}

static void a_draft_carries_volumes_snapshot_and_schedule(void **state)
{
	static const struct answer answers[] = { { "POST /v1/sandboxes", 201, BOX_JSON("running", "") },
		{ NULL, 0, NULL } };
	struct spot from = { .node = node_by_id(N_NEW), .box = "", .arg = "" };
	struct spot root = { .node = node_by_id(N_ROOT), .box = "", .arg = "" };
	struct rig r;

	(void)state;
	begin(&r, answers);
	assert_int_equal(draft_make(&r.q, "d"), 0);
	assert_int_equal(put(&r, N_DRAFT_VOLUMES, "d", "data /data\n", false), 0);
	assert_int_equal(put(&r, N_DRAFT_VOLUMES, "d", "lib /srv/lib ro\n", true), 0);
	assert_int_equal(put(&r, N_DRAFT_VOLUMES, "d", "lib relative", true), -EINVAL);
	assert_int_equal(put(&r, N_DRAFT_VOLUMES, "d", "lib /a rx", true), -EINVAL);
	assert_int_equal(put(&r, N_DRAFT_PLAN, "d", "300 2", false), 0);
	assert_int_equal(put(&r, N_DRAFT_SNAPSHOT, "d", SNP "\n", false), 0);
	shows(&r, N_DRAFT_VOLUMES, "", "d", "data /data rw\nlib /srv/lib ro\n");
	shows(&r, N_DRAFT_PLAN, "", "d", "300 2\n");
	shows(&r, N_DRAFT_SNAPSHOT, "", "d", SNP "\n");
	assert_int_equal(node_dir(N_NEW)->rename(&r.q, &from, "d", &root, "d"), 0);
	asked(&r, "POST /v1/sandboxes {\"volumes\":[{\"name\":\"data\",\"path\":\"/data\"},{\"name\":\"lib\","
		"\"path\":\"/srv/lib\",\"read_only\":true}],\"snapshot_every_secs\":300,\"snapshot_keep\":2,"
		"\"snapshot_id\":\"" SNP "\",\"name\":\"d\"}\n");
	end(&r);
}

static void images_are_named_by_their_reference(void **state)
{
	static const struct answer answers[] = {
		{ "GET /v1/images", 200, "{\"images\":[{\"image\":\"docker.io/library/alpine:3\",\"state\":"
			"\"installing\",\"in_use\":0,\"progress\":{\"phase\":\"pulling\",\"done\":1}},"
			"{\"image\":\"base\",\"state\":\"failed\",\"error\":\"no \\u001b[31mroute\"},"
			"{\"image\":\"-x\",\"state\":\"installed\"},{\"image\":7}]}" },
		{ "POST /v1/images", 202, "{}" }, { "DELETE /v1/images", 200, "{}" }, { NULL, 0, NULL } };
	struct found f;
	struct rig r;

	(void)state;
	begin(&r, answers);
	lists(&r, N_IMAGES, "", "", "docker.io%2Flibrary%2Falpine:3|base|");
	assert_int_equal(find(&r, N_IMAGES, "", "docker.io%2Flibrary%2Falpine:3", &f), 0);
	assert_int_equal(find(&r, N_IMAGES, "", "docker.io%2flibrary%2falpine:3", &f), -ENOENT);
	assert_int_equal(find(&r, N_IMAGES, "", ".git", &f), -ENOENT);
	shows(&r, N_IMAGE_STATE, "", "base", "failed\n");
	shows(&r, N_IMAGE_ERROR, "", "base", "no \\x1b[31mroute\n");
	shows(&r, N_IMAGE_PROGRESS, "", "base", "");
	asked(&r, "GET /v1/images\n");
	assert_int_equal(change(&r, node_dir(N_IMAGES)->mkdir, N_IMAGES, "", "", "a%2Fb:1"), 0);
	assert_int_equal(put(&r, N_IMAGE_CTL, "a%2Fb:1", "install", false), 0);
	assert_int_equal(change(&r, node_dir(N_IMAGES)->rmdir, N_IMAGES, "", "", "a%2Fb:1"), 0);
	asked(&r, "POST /v1/images {\"image\":\"a/b:1\"}\nPOST /v1/images {\"image\":\"a/b:1\"}\n"
		"DELETE /v1/images?image=a%2Fb%3A1\n");
	assert_int_equal(change(&r, node_dir(N_IMAGES)->mkdir, N_IMAGES, "", "", "-x"), -EINVAL);
	asked(&r, "");
	end(&r);
}

static void figures_of_one_moment_belong_together(void **state)
{
	static const struct answer answers[] = {
		{ "GET /v1/sandboxes/" BOX "/metrics", 200, "{\"interval_secs\":5,\"samples\":["
			"{\"time\":\"t1\",\"cpu_percent\":1.5,\"memory_bytes\":1},"
			"{\"time\":\"t2\",\"cpu_percent\":0.07,\"memory_bytes\":2,\"processes\":3}]}" },
		{ "GET /v1/sandboxes/" OTHER "/metrics", 200, "{\"interval_secs\":5,\"samples\":[]}" },
		{ NULL, 0, NULL } };
	struct rig r;

	(void)state;
	begin(&r, answers);
	shows(&r, N_METRIC_CPU, BOX, "", "0.07\n");
	shows(&r, N_METRIC_MEMORY, BOX, "", "2\n");
	shows(&r, N_METRIC_PROCS, BOX, "", "3\n");
	shows(&r, N_METRIC_LATEST, BOX, "", "{\n  \"time\": \"t2\",\n  \"cpu_percent\": 0.07,\n"
		"  \"memory_bytes\": 2,\n  \"processes\": 3\n}\n");
	shows(&r, N_METRIC_HISTORY, BOX, "", "{\"time\":\"t1\",\"cpu_percent\":1.5,\"memory_bytes\":1}\n"
		"{\"time\":\"t2\",\"cpu_percent\":0.07,\"memory_bytes\":2,\"processes\":3}\n");
	asked(&r, "GET /v1/sandboxes/" BOX "/metrics\n");
	/* Before the first sample there is nothing, and that is no error. */
	shows(&r, N_METRIC_CPU, OTHER, "", "");
	shows(&r, N_METRIC_LATEST, OTHER, "", "");
	end(&r);
}

/* ---- ports ---- */

static int dial(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	close(fd);
	return -1;
}

static const struct answer living[] = { { "GET /v1/sandboxes/" BOX "/tunnel", 404,
	"{\"error\":{\"code\":\"not_found\",\"message\":\"nothing listens\"}}" },
	{ "GET /v1/sandboxes/" BOX, 200, BOX_JSON("running", "") }, { NULL, 0, NULL } };

static void a_port_is_a_private_socket_until_rmdir(void **state)
{
	struct port_view v;
	struct stat st;
	char got[8];
	struct rig r;
	int fd;

	(void)state;
	begin(&r, living);
	assert_int_equal(change(&r, node_dir(N_BOX_PORTS)->mkdir, N_BOX_PORTS, BOX, "", "8080"), 0);
	assert_int_equal(change(&r, node_dir(N_BOX_PORTS)->mkdir, N_BOX_PORTS, BOX, "", "8080"), -EEXIST);
	lists(&r, N_BOX_PORTS, BOX, "", "8080|");
	lists(&r, N_BOX_PORTS, OTHER, "", "");
	assert_int_equal(port_view(&r.m, BOX, 8080, &v), 0);
	assert_int_equal(lstat(v.path, &st), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0600);
	fd = dial(v.path);
	assert_true(fd >= 0);
	assert_int_equal(send(fd, "ping", 4, 0), 4);
	assert_int_equal(recv(fd, got, 4, MSG_WAITALL), 4);
	assert_memory_equal(got, "ping", 4);
	assert_int_equal(port_view(&r.m, BOX, 8080, &v), 0);
	assert_int_equal(v.open, 1);
	/* Open connections end with it. */
	assert_int_equal(change(&r, node_dir(N_BOX_PORTS)->rmdir, N_BOX_PORTS, BOX, "", "8080"), 0);
	assert_int_equal(recv(fd, got, 1, 0), 0);
	close(fd);
	assert_int_equal(lstat(v.path, &st), -1);
	assert_int_equal(dial(v.path), -1);
	lists(&r, N_BOX_PORTS, BOX, "", "");
	end(&r);
}

static void nothing_that_listens_is_said(void **state)
{
	_cleanup_text_ struct text t = TEXT_NULL;
	struct port_view v;
	struct rig r;
	char c;
	int fd;

	(void)state;
	begin(&r, living);
	assert_int_equal(port_make(&r.q, BOX, 99), 0);
	assert_int_equal(port_view(&r.m, BOX, 99, &v), 0);
	fd = dial(v.path);
	assert_int_equal(recv(fd, &c, 1, 0), 0);
	close(fd);
	assert_int_equal(port_view(&r.m, BOX, 99, &v), 0);
	assert_string_equal(v.error, "nothing listens");
	errlog_last(r.m.errors, getuid(), BOX, NULL, &t);
	assert_non_null(strstr(t.p, "connect "));
	assert_non_null(strstr(t.p, "ports/99: 404 not_found: nothing listens\n"));
	end(&r);
}

static void ports_are_plain_numbers(void **state)
{
	static const struct {
		const char *word;
		int want;
	} rows[] = { { "1", 1 }, { "65535", 65535 }, { "65536", 0 }, { "0", 0 }, { "080", 0 }, { "", 0 },
		{ "8080x", 0 }, { "+80", 0 }, { "-1", 0 }, { "99999999999999", 0 } };
	struct rig r;

	(void)state;
	begin(&r, living);
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		assert_int_equal(port_of_word(rows[n].word), rows[n].want);
		if (!rows[n].want)
			assert_int_equal(change(&r, node_dir(N_BOX_PORTS)->mkdir, N_BOX_PORTS, BOX, "",
				rows[n].word), -EINVAL);
	}
	end(&r);
}

static bool has_process(struct rig *r, const char *box, const char *name)
{
	int64_t pid;

	return process_pid(&r->q, box, name, &pid) == 0;
}

static void named_processes_of_an_ended_sandbox_go(void **state)
{
	static const char gone[] = "{\"op\":\"gone\",\"id\":\"" BOX "\"}";
	static const struct answer answers[] = {
		{ "GET /v1/sandboxes", 200, "{\"sandboxes\":[" BOX_JSON("running", "") "]}" }, { NULL, 0, NULL } };
	struct rig r;
	char name[32];

	(void)state;
	begin(&r, answers);
	assert_int_equal(process_make(&r.q, BOX, "p"), 0);
	process_set_last(&r.m, BOX, 1, 7);
	watch_line(&r.m, gone, strlen(gone));
	assert_false(has_process(&r, BOX, "p"));
	assert_int_equal(process_last(&r.m, BOX, 1), 0);
	/* Where no end is heard of it is asked for when there is no room for more. */
	assert_int_equal(process_make(&r.q, BOX, "stays"), 0);
	for (unsigned n = 0; n < 4095; n++) {
		(void)snprintf(name, sizeof(name), "p%u", n);
		assert_int_equal(process_make(&r.q, OTHER, name), 0);
	}
	asked(&r, "");
	assert_int_equal(process_make(&r.q, BOX, "more"), 0);
	asked(&r, "GET /v1/sandboxes\n");
	assert_true(has_process(&r, BOX, "stays"));
	assert_false(has_process(&r, OTHER, "p0"));
	for (unsigned n = 0; n < 4094; n++) {
		(void)snprintf(name, sizeof(name), "p%u", n);
		assert_int_equal(process_make(&r.q, BOX, name), 0);
	}
	assert_int_equal(process_make(&r.q, BOX, "last"), -ENOSPC);
	end(&r);
}

static int set_cmd(struct req *q, struct draft_proc *d, const char *value, size_t len)
{
	(void)q;
	d->cmd = strndup(value, len);
	return 0;
}

static void *start_one(void *arg)
{
	struct writer *w = arg;
	struct req q = { .m = &w->r->m, .op = "test", .uid = getuid(), .start_ms = now_ms() };

	w->rc = process_start_draft(&q, BOX, w->arg);
	return NULL;
}

/* A name changes hands while its draft starts: the command is that of the draft, wherever it is now. */
static void a_process_that_starts_is_not_taken_for_another(void **state)
{
#define POST_PROC "POST /v1/sandboxes/" BOX "/processes"
	static const struct answer answers[] = { { POST_PROC "/7/signal", 204, "" }, { POST_PROC, 201, "{\"pid\":7}" },
		{ NULL, 0, NULL } };
	int64_t pid;

	(void)state;
	for (unsigned n = 0; n < 2; n++) {
		struct writer w = { .arg = "a" };
		struct rig r;

		begin(&r, answers);
		w.r = &r;
		assert_int_equal(process_make(&r.q, BOX, "a"), 0);
		assert_int_equal(process_edit(&r.q, BOX, "a", set_cmd, "true", 4), 0);
		r.pause_ms = 300;
		assert_int_equal(pthread_create(&w.thread, NULL, start_one, &w), 0);
		while (!was_asked(&r, POST_PROC))
			(void)poll(NULL, 0, 1);
		if (n == 0)
			assert_int_equal(process_rename(&r.q, BOX, "a", "b"), 0);
		else
			assert_int_equal(process_remove(&r.q, BOX, "a"), 0);
		assert_int_equal(process_make(&r.q, BOX, "a"), 0);
		assert_int_equal(pthread_join(w.thread, NULL), 0);
		assert_int_equal(w.rc, 0);
		assert_int_equal(process_pid(&r.q, BOX, "a", &pid), 0);
		assert_int_equal(pid, 0);
		if (n == 0)
			assert_int_equal(process_pid(&r.q, BOX, "b", &pid), 0);
		assert_int_equal(pid, n == 0 ? 7 : 0);
		assert_int_equal(was_asked(&r, "/7/signal"), n == 1); /* who was removed does not run */
		end(&r);
	}
}

static void a_port_of_an_ended_sandbox_goes(void **state)
{
	static const char gone[] = "{\"op\":\"gone\",\"id\":\"" BOX "\"}";
	static const char put_line[] = "{\"op\":\"put\",\"sandbox\":" BOX_JSON("terminated", "") "}";
	static const char alive[] = "{\"op\":\"put\",\"sandbox\":" BOX_JSON("suspended", "") "}";
	const char *lines[] = { put_line, gone };
	struct port_view v;
	struct rig r;

	(void)state;
	begin(&r, living);
	for (size_t n = 0; n < 2; n++) {
		assert_int_equal(port_make(&r.q, BOX, 8080), 0);
		watch_line(&r.m, alive, strlen(alive));
		assert_int_equal(port_view(&r.m, BOX, 8080, &v), 0);
		watch_line(&r.m, lines[n], strlen(lines[n]));
		assert_int_equal(port_view(&r.m, BOX, 8080, &v), -ENOENT);
	}
	end(&r);
}

static void sockets_are_gone_with_the_mount(void **state)
{
	struct port_view v;
	struct stat st;
	struct rig r;
	char dir[108];
	int fd;

	(void)state;
	begin(&r, living);
	assert_int_equal(port_make(&r.q, BOX, 8080), 0);
	assert_int_equal(port_tcp(&r.q, BOX, 8080, 0), 0);
	assert_int_equal(port_tcp(&r.q, BOX, 8080, 0), -EBUSY);
	assert_int_equal(port_view(&r.m, BOX, 8080, &v), 0);
	assert_true(v.tcp > 0);
	fd = dial(v.path);
	(void)snprintf(dir, sizeof(dir), "%s", v.path);
	*strrchr(dir, '/') = '\0';
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	end(&r);
	close(fd);
	assert_int_equal(stat(dir, &st), -1);
}

/* ---- the watched list ---- */

static void news_make_a_record_old(void **state)
{
	static const struct answer answers[] = {
		{ "GET /v1/sandboxes/" BOX, 200, BOX_JSON("running", "") },
		{ "GET /v1/sandboxes", 200, "{\"sandboxes\":[" BOX_JSON("running", "") "]}" }, { NULL, 0, NULL } };
	static const char synced[] = "{\"op\":\"synced\"}", ping[] = "{\"op\":\"ping\"}";
	static const char news[] = "{\"op\":\"put\",\"sandbox\":" BOX_JSON("suspended", "") "}";
	static const char *const noise[] = { "", "{", "[]", "7", "{\"op\":7}", "{\"op\":\"put\"}",
		"{\"op\":\"put\",\"sandbox\":[]}", "{\"op\":\"gone\",\"id\":7}" };
	struct rig r;
	json_t *o;

	(void)state;
	begin(&r, answers);
	watch_line(&r.m, synced, strlen(synced));
	assert_true(atomic_load(&r.m.watched));
	assert_int_equal(box_all(&r.q, &o), 0);
	json_decref(o);
	asked(&r, "GET /v1/sandboxes\n");
	/* The listing has told about each by name and by id; a ping is no news. */
	watch_line(&r.m, ping, strlen(ping));
	const struct timespec longer = { .tv_nsec = 150 * 1000000 };
	nanosleep(&longer, NULL);
	assert_int_equal(box_get(&r.q, BOX, &o), 0);
	json_decref(o);
	assert_int_equal(box_get(&r.q, "box", &o), 0);
	json_decref(o);
	asked(&r, "");
	watch_line(&r.m, news, strlen(news));
	assert_int_equal(box_get(&r.q, BOX, &o), 0);
	json_decref(o);
	asked(&r, "GET /v1/sandboxes/" BOX "\n");
	for (size_t n = 0; n < sizeof(noise) / sizeof(noise[0]); n++)
		watch_line(&r.m, noise[n], strlen(noise[n]));
	end(&r);
}

/* The news of a change may come before its answer, behind it, or among news of others; a record is believed
 * for a second only, which a slow machine may need for a row. */
static void our_own_change_makes_no_record_old(void **state)
{
#define CHANGED BOX_JSON("running", ",\"labels\":{\"k\":\"x\"}")
#define CHANGE "PATCH /v1/sandboxes/" BOX " {\"labels\":{\"k\":\"x\"}}\n"
#define PUT(o) "{\"op\":\"put\",\"sandbox\":" o "}"
	static const struct answer answers[] = { { "GET /v1/sandboxes/" BOX, 200, BOX_JSON("running", "") },
		{ "PATCH ", 200, CHANGED }, { NULL, 0, NULL } };
	static const char synced[] = "{\"op\":\"synced\"}", own[] = PUT(CHANGED);
	static const char foreign[] = PUT(BOX_JSON("suspended", ""));
	static const struct {
		const char *before, *after, *want;
	} rows[] = {
		{ NULL, NULL, CHANGE },
		{ own, NULL, CHANGE },
		{ NULL, own, CHANGE },
		{ foreign, NULL, CHANGE "GET /v1/sandboxes/" BOX "\n" },
		{ NULL, foreign, CHANGE "GET /v1/sandboxes/" BOX "\n" },
		{ own, foreign, CHANGE "GET /v1/sandboxes/" BOX "\n" },
	};

	(void)state;
	for (size_t n = 0, tries = 0; n < sizeof(rows) / sizeof(rows[0]);) {
		uint64_t start;
		struct rig r;
		json_t *o;

		begin(&r, answers);
		watch_line(&r.m, synced, strlen(synced));
		assert_int_equal(box_get(&r.q, BOX, &o), 0);
		json_decref(o);
		asked(&r, "GET /v1/sandboxes/" BOX "\n");
		start = now_ms();
		r.news = rows[n].before;
		assert_int_equal(put(&r, N_BOX_LABEL, "k", "x\n", false), 0);
		if (rows[n].after)
			watch_line(&r.m, rows[n].after, strlen(rows[n].after));
		assert_int_equal(box_get(&r.q, BOX, &o), 0);
		json_decref(o);
		if (now_ms() - start < 900 || ++tries == 20) {
			asked(&r, rows[n].want);
			n++;
		}
		end(&r);
	}
}

/* What the kernel may believe: the root's `box` and `other`, and `fs` in the first; bits in this order. */
static unsigned believed(struct rig *r, bool first)
{
	static const struct {
		const char *dir, *name, *box;
	} names[] = { { NULL, "box", BOX }, { NULL, "other", OTHER }, { BOX, "fs", BOX } };
	unsigned is = 0;

	for (size_t n = 0; n < 3; n++) {
		struct inode *dir = NULL;

		if (names[n].dir)
			assert_int_equal(inode_virtual(&r->m, node_by_id(N_BOX), names[n].dir, "", 0, &dir), 0);
		if (first)
			assert_true(belief_secs(&r->m, dir ? dir : inode_root(&r->m), names[n].name, names[n].box,
				belief_now(&r->m)) > 0);
		is |= r->m.beliefs[n].until_ms ? 1u << n : 0;
		inode_looked(&r->m, dir ? dir : inode_root(&r->m)); /* stays the same one until the end */
		inode_unref(&r->m, dir);
	}
	return is;
}

static void news_end_only_what_they_speak_against(void **state)
{
#define NAMED(id, name, state) "{\"op\":\"put\",\"sandbox\":{\"id\":\"" id "\",\"name\":\"" name "\"," \
	"\"state\":\"" state "\"}}"
	static const char synced[] = "{\"op\":\"synced\"}";
	static const struct {
		const char *line;
		unsigned left;
	} rows[] = {
		{ NAMED(BOX, "box", "running"), 7 },
		{ NAMED(BOX, "box", "suspended"), 7 },
		{ NAMED(BOX, "new", "running"), 6 },
		{ NAMED(BOX, "other", "running"), 4 },
		{ NAMED(BOX, "box", "terminated"), 2 },
		{ NAMED("sbx_1111111111111111", "third", "running"), 7 },
		{ NAMED("sbx_1111111111111111", "box", "running"), 6 },
		{ "{\"op\":\"gone\",\"id\":\"" BOX "\"}", 2 },
		{ "{\"op\":\"gone\",\"id\":\"" OTHER "\"}", 5 },
		{ "{\"op\":\"gone\"}", 0 },
		{ "{\"op\":\"put\"}", 0 },
		{ synced, 0 },
	};

	(void)state;
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		struct rig r;

		begin(&r, living);
		watch_line(&r.m, synced, strlen(synced));
		assert_int_equal(believed(&r, true), 7);
		watch_line(&r.m, rows[n].line, strlen(rows[n].line));
		assert_int_equal(believed(&r, false), rows[n].left);
		end(&r);
	}
}

static void looking_is_sent_as_background(void **state)
{
	(void)state;
	for (int n = 1; n < N_COUNT; n++) {
		const struct node *x = node_by_id((enum node_id)n);

		/* No reading function may set what makes a request count as use. */
		struct spot s = { .node = x, .box = BOX, .arg = SNP };
		static const struct answer nothing[] = { { NULL, 0, NULL } };
		_cleanup_text_ struct text t = TEXT_NULL;
		struct rig r;

		if (!x->read || n == N_README)
			continue;
		begin(&r, nothing);
		(void)x->read(&r.q, &s, &t);
		assert_false(r.q.acts);
		end(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(network_is_one_patch),
		cmocka_unit_test(two_changes_of_a_part_are_one_after_the_other),
		cmocka_unit_test(a_draft_loses_nothing_that_is_written_at_once),
		cmocka_unit_test(settings_are_checked_before_they_are_sent),
		cmocka_unit_test(sleep_and_schedule_are_requests_of_their_own),
		cmocka_unit_test(snapshots_are_directories),
		cmocka_unit_test(the_name_of_a_snapshot_that_was_deleted_elsewhere_is_free),
		cmocka_unit_test(a_fork_of_now_leaves_no_snapshot),
		cmocka_unit_test(a_view_is_a_sandbox_that_mkdir_makes),
		cmocka_unit_test(a_volume_has_a_size_from_a_draft),
		cmocka_unit_test(a_draft_carries_volumes_snapshot_and_schedule),
		cmocka_unit_test(images_are_named_by_their_reference),
		cmocka_unit_test(figures_of_one_moment_belong_together),
		cmocka_unit_test(a_port_is_a_private_socket_until_rmdir),
		cmocka_unit_test(nothing_that_listens_is_said),
		cmocka_unit_test(ports_are_plain_numbers),
		cmocka_unit_test(named_processes_of_an_ended_sandbox_go),
		cmocka_unit_test(a_process_that_starts_is_not_taken_for_another),
		cmocka_unit_test(a_port_of_an_ended_sandbox_goes),
		cmocka_unit_test(sockets_are_gone_with_the_mount),
		cmocka_unit_test(news_make_a_record_old),
		cmocka_unit_test(our_own_change_makes_no_record_old),
		cmocka_unit_test(news_end_only_what_they_speak_against),
		cmocka_unit_test(looking_is_sent_as_background),
	};

	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
