/* SPDX-License-Identifier: MIT */
/* Calls about what a server keeps beside sandboxes: snapshots, volumes, images, usage, its machine.
 */
#include "client/lib/values.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int sbx_capability(struct sbx *s, const char *name, bool *ret, struct sbx_error *e)
{
	_cleanup_json_ json_t *answer = NULL;
	json_t *all;

	if (values_call(s, "GET", sbx_path("/v1/capabilities"), NULL, 0, &answer, e) < 0)
		return -1;
	all = json_object_get(answer, "capabilities");
	if (!json_is_object(all))
		return sbx_fail_shape(e, "no capabilities");
	*ret = json_is_true(json_object_get(all, name));
	return 0;
}

/* ---- snapshots ---- */

static bool take_snapshot(json_t *o, void *out)
{
	static const struct member members[] = {
		MEMBER(sbx_snapshot, id, MEMBER_STR, true),
		MEMBER(sbx_snapshot, sandbox, MEMBER_STR, true),
		MEMBER(sbx_snapshot, image, MEMBER_STR, true),
		MEMBER(sbx_snapshot, kind, MEMBER_STR, true),
		MEMBER(sbx_snapshot, scheduled, MEMBER_BOOL, false),
		MEMBER(sbx_snapshot, bytes, MEMBER_INT, false),
		MEMBER(sbx_snapshot, created_at, MEMBER_STR, true),
	};

	return values_take(o, members, ARRAY_LEN(members), out);
}

int sbx_snapshot_take(struct sbx *s, const char *ref, struct sbx_snapshot *ret, struct sbx_error *e)
{
	_cleanup_json_ json_t *answer = NULL;
	struct sbx_snapshot v = { .bytes = 0 };

	if (values_call(s, "POST", sbx_path("/v1/sandboxes/%s/snapshots", ref), NULL, -1, &answer,
		    e) < 0)
		return -1;
	if (!take_snapshot(answer, &v))
		return sbx_fail_shape(e, "no snapshot");
	*ret = v;
	return 0;
}

int sbx_snapshot_list(struct sbx *s, struct sbx_snapshot **ret, size_t *ret_n, struct sbx_error *e)
{
	static const struct list_shape shape = { "snapshots", sizeof(struct sbx_snapshot),
		take_snapshot };

	return values_list(s, sbx_path("/v1/snapshots"), &shape, ret, ret_n, e);
}

int sbx_snapshot_delete(struct sbx *s, const char *id, struct sbx_error *e)
{
	return values_call(s, "DELETE", sbx_path("/v1/snapshots/%s", id), NULL, 0, NULL, e);
}

int sbx_schedule(struct sbx *s, const char *ref, int64_t every_secs, int64_t keep,
	struct sbx_sandbox *ret, struct sbx_error *e)
{
	return values_call_sandbox(s, "PUT", sbx_path("/v1/sandboxes/%s/snapshot-schedule", ref),
		json_pack("{s:I,s:I}", "every_secs", (json_int_t)every_secs, "keep",
			(json_int_t)keep),
		0, ret, e);
}

/* ---- volumes ---- */

static bool take_volume(json_t *o, void *out)
{
	static const struct member members[] = {
		MEMBER(sbx_volume, name, MEMBER_STR, true),
		MEMBER(sbx_volume, size_mb, MEMBER_INT, true),
		MEMBER(sbx_volume, created_at, MEMBER_STR, true),
		MEMBER(sbx_volume, attached_to, MEMBER_STR, false),
	};

	return values_take(o, members, ARRAY_LEN(members), out);
}

int sbx_volume_create(struct sbx *s, const char *name, int64_t size_mb, struct sbx_volume *ret,
	struct sbx_error *e)
{
	_cleanup_json_ json_t *answer = NULL, *body = json_object();
	struct sbx_volume v = { .size_mb = 0 };

	values_put_str(body, "name", name);
	values_put_int(body, "size_mb", size_mb);
	if (values_call(s, "POST", sbx_path("/v1/volumes"), steal(body), 0, &answer, e) < 0)
		return -1;
	if (!take_volume(answer, &v))
		return sbx_fail_shape(e, "no volume");
	if (ret)
		*ret = v;
	return 0;
}

int sbx_volume_list(struct sbx *s, struct sbx_volume **ret, size_t *ret_n, struct sbx_error *e)
{
	static const struct list_shape shape = { "volumes", sizeof(struct sbx_volume),
		take_volume };

	return values_list(s, sbx_path("/v1/volumes"), &shape, ret, ret_n, e);
}

int sbx_volume_delete(struct sbx *s, const char *name, struct sbx_error *e)
{
	return values_call(s, "DELETE", sbx_path("/v1/volumes/%s", name), NULL, 0, NULL, e);
}

/* ---- images ---- */

static bool take_image(json_t *o, void *out)
{
	static const struct member members[] = {
		MEMBER(sbx_image, image, MEMBER_STR, true),
		MEMBER(sbx_image, state, MEMBER_STR, true),
		MEMBER(sbx_image, digest, MEMBER_STR, false),
		MEMBER(sbx_image, bytes, MEMBER_INT, false),
		MEMBER(sbx_image, installed_at, MEMBER_STR, false),
		MEMBER(sbx_image, in_use, MEMBER_INT, false),
		MEMBER_AS(sbx_image, is_default, "default", MEMBER_BOOL, false),
		MEMBER(sbx_image, pooled, MEMBER_BOOL, false),
		MEMBER(sbx_image, error, MEMBER_STR, false),
	};
	static const struct member progress[] = {
		MEMBER(sbx_image, phase, MEMBER_STR, false),
		MEMBER(sbx_image, done, MEMBER_INT, false),
		MEMBER(sbx_image, total, MEMBER_INT, false),
	};
	json_t *p = json_object_get(o, "progress");

	return values_take(o, members, ARRAY_LEN(members), out) &&
	       (!p || json_is_null(p) || values_take(p, progress, ARRAY_LEN(progress), out));
}

int sbx_image_install(struct sbx *s, const char *image, struct sbx_image *ret, struct sbx_error *e)
{
	_cleanup_json_ json_t *answer = NULL, *body = json_object();
	struct sbx_image v = { .bytes = 0 };

	values_put_str(body, "image", image);
	if (values_call(s, "POST", sbx_path("/v1/images"), steal(body), 0, &answer, e) < 0)
		return -1;
	if (!take_image(answer, &v))
		return sbx_fail_shape(e, "no image");
	if (ret)
		*ret = v;
	return 0;
}

int sbx_image_list(struct sbx *s, struct sbx_image **ret, size_t *ret_n, struct sbx_error *e)
{
	static const struct list_shape shape = { "images", sizeof(struct sbx_image), take_image };

	return values_list(s, sbx_path("/v1/images"), &shape, ret, ret_n, e);
}

int sbx_image_remove(struct sbx *s, const char *image, int64_t *ret_freed, struct sbx_error *e)
{
	_cleanup_json_ json_t *answer = NULL;
	json_t *freed;

	if (values_call(s, "DELETE", sbx_path("/v1/images?image=%s", image), NULL, 0, &answer, e) <
		0)
		return -1;
	freed = json_object_get(answer, "freed_bytes");
	if (!json_is_integer(freed))
		return sbx_fail_shape(e, "no size of what was freed");
	if (ret_freed)
		*ret_freed = json_integer_value(freed);
	return 0;
}

/* ---- usage ---- */

static bool take_sample(json_t *o, void *out)
{
	static const struct member members[] = {
		MEMBER(sbx_sample, time, MEMBER_STR, true),
		MEMBER(sbx_sample, cpu_percent, MEMBER_NUM, true),
		MEMBER(sbx_sample, memory_bytes, MEMBER_INT, true),
		MEMBER(sbx_sample, memory_limit_bytes, MEMBER_INT, true),
		MEMBER(sbx_sample, net_rx_bytes, MEMBER_INT, true),
		MEMBER(sbx_sample, net_tx_bytes, MEMBER_INT, true),
		MEMBER(sbx_sample, disk_read_bytes, MEMBER_INT, true),
		MEMBER(sbx_sample, disk_write_bytes, MEMBER_INT, true),
		MEMBER(sbx_sample, processes, MEMBER_INT, false),
	};

	return values_take(o, members, ARRAY_LEN(members), out);
}

int sbx_metrics(struct sbx *s, const char *ref, int64_t *ret_interval_secs, struct sbx_sample **ret,
	size_t *ret_n, struct sbx_error *e)
{
	static const struct list_shape shape = { "samples", sizeof(struct sbx_sample),
		take_sample };
	_cleanup_json_ json_t *answer = NULL;
	json_t *interval;

	if (values_call(s, "GET", sbx_path("/v1/sandboxes/%s/metrics", ref), NULL, 0, &answer, e) <
		0)
		return -1;
	interval = json_object_get(answer, "interval_secs");
	if (!json_is_integer(interval) || json_integer_value(interval) < 1)
		return sbx_fail_shape(e, "no interval");
	if (ret_interval_secs)
		*ret_interval_secs = json_integer_value(interval);
	return values_of_list(json_object_get(answer, shape.key), &shape, ret, ret_n, e);
}

/* ---- the machine ---- */

static bool take_node(json_t *o, struct sbx_node *out)
{
	static const struct member members[] = {
		MEMBER(sbx_node, node, MEMBER_STR, false),
		MEMBER(sbx_node, version, MEMBER_STR, true),
		MEMBER(sbx_node, running, MEMBER_INT, false),
		MEMBER(sbx_node, cordoned, MEMBER_BOOL, false),
	};
	static const struct member resources[] = {
		MEMBER(sbx_resources, cpus, MEMBER_NUM, true),
		MEMBER(sbx_resources, memory_mb, MEMBER_INT, true),
		MEMBER(sbx_resources, disk_mb, MEMBER_INT, true),
	};

	return values_take(o, members, ARRAY_LEN(members), out) &&
	       values_take(json_object_get(o, "capacity"), resources, ARRAY_LEN(resources),
		       &out->capacity) &&
	       values_take(json_object_get(o, "free"), resources, ARRAY_LEN(resources), &out->free);
}

static int call_node(struct sbx *s, const char *method, const char *path, json_t *body,
	struct sbx_node *ret, struct sbx_error *e)
{
	_cleanup_json_ json_t *answer = NULL;
	struct sbx_node v = { .running = 0 };

	if (values_call(s, method, sbx_path(path), body, 0, &answer, e) < 0)
		return -1;
	if (!take_node(answer, &v))
		return sbx_fail_shape(e, "no node");
	if (ret)
		*ret = v;
	return 0;
}

int sbx_node_get(struct sbx *s, struct sbx_node *ret, struct sbx_error *e)
{
	return call_node(s, "GET", "/v1/node", NULL, ret, e);
}

int sbx_node_cordon(struct sbx *s, bool on, struct sbx_node *ret, struct sbx_error *e)
{
	return call_node(s, "POST", "/v1/node/cordon", json_pack("{s:b}", "cordoned", on), ret, e);
}

int sbx_tunnel(struct sbx *s, const char *ref, int port, int *ret_fd, struct sbx_error *e)
{
	_cleanup_free_ char *path = sbx_path("/v1/sandboxes/%s/tunnel?port=%d", ref, port);
	static const int room = 512 << 10;

	if (!path)
		return values_no_memory(e);
	if (sbx_upgrade(s, path, "sbx-tunnel/1", false, ret_fd, e) < 0)
		return -1;
	/* A unix socket would wait for its reader after each few bytes. */
	(void)setsockopt(*ret_fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	return 0;
}
