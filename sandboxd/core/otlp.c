/* SPDX-License-Identifier: MIT */
/* The body of a push: one sample as OTLP/HTTP JSON. A table of series; 64-bit integers are decimal
 * text, as the mapping of protocol buffers to JSON has it. */
#include "sandboxd/core/export.h"

#include "common/sys/mem.h"
#include "sandboxd/core/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define CUMULATIVE  2 /* AGGREGATION_TEMPORALITY_CUMULATIVE */
#define GZIP_WINDOW (15 + 16)
#define GZIP_MEMORY 8

/* One data point each; those of one name stand one after the other and make one metric. */
enum kind { GAUGE_RATIO, GAUGE, SUM };
static const struct series {
	const char *name, *unit;
	enum kind kind;
	size_t offset;
	const char *key, *value; /* attribute, or NULL */
	bool optional;           /* left out when 0 */
} all[] = {
	{ "sandbox.cpu.utilization", "1", GAUGE_RATIO, offsetof(struct sample, cpu_percent), NULL,
		NULL, false },
	{ "sandbox.memory.usage", "By", GAUGE, offsetof(struct sample, memory_bytes), NULL, NULL,
		false },
	{ "sandbox.memory.limit", "By", GAUGE, offsetof(struct sample, memory_limit_bytes), NULL,
		NULL, false },
	{ "sandbox.network.io", "By", SUM, offsetof(struct sample, net_rx_bytes),
		"network.io.direction", "receive", false },
	{ "sandbox.network.io", "By", SUM, offsetof(struct sample, net_tx_bytes),
		"network.io.direction", "transmit", false },
	{ "sandbox.disk.io", "By", SUM, offsetof(struct sample, disk_read_bytes),
		"disk.io.direction", "read", false },
	{ "sandbox.disk.io", "By", SUM, offsetof(struct sample, disk_write_bytes),
		"disk.io.direction", "write", false },
	{ "sandbox.processes", "count", GAUGE, offsetof(struct sample, processes), NULL, NULL,
		true },
};

static json_t *int_text(int64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, v);
	return json_string(text);
}

static json_t *attribute(const char *key, const char *value)
{
	return json_pack("{s:s,s:{s:s}}", "key", key, "value", "stringValue", value);
}

static int64_t int_of(const struct series *d, const struct sample *m)
{
	return *(const int64_t *)(const void *)((const char *)m + d->offset);
}

static json_t *point(const struct series *d, const struct sandbox *s, const struct sample *m)
{
	json_t *o = json_object();

	if (d->key)
		json_object_set_new(o, "attributes", json_pack("[o]", attribute(d->key, d->value)));
	if (d->kind == SUM)
		json_object_set_new(o, "startTimeUnixNano", int_text(s->created_ns));
	json_object_set_new(o, "timeUnixNano", int_text(m->time_ns));
	if (d->kind == GAUGE_RATIO)
		json_object_set_new(o, "asDouble", json_real(m->cpu_percent / 100));
	else
		json_object_set_new(o, "asInt", int_text(int_of(d, m)));
	return o;
}

static json_t *metric(const struct series *d, json_t *points)
{
	json_t *o = json_pack("{s:s,s:s}", "name", d->name, "unit", d->unit);

	if (d->kind == SUM)
		json_object_set_new(o, "sum",
			json_pack("{s:i,s:b,s:o}", "aggregationTemporality", CUMULATIVE,
				"isMonotonic", 1, "dataPoints", points));
	else
		json_object_set_new(o, "gauge", json_pack("{s:o}", "dataPoints", points));
	return o;
}

static json_t *metrics(const struct sandbox *s, const struct sample *m)
{
	json_t *list = json_array(), *points = NULL;

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		if (all[i].optional && !int_of(&all[i], m))
			continue;
		if (!points || strcmp(all[i].name, all[i - 1].name) != 0) {
			points = json_array();
			json_array_append_new(list, metric(&all[i], points));
		}
		json_array_append_new(points, point(&all[i], s, m));
	}
	return list;
}

static json_t *resource(const struct sandbox *s)
{
	json_t *list = json_array();
	char key[16 + 64];

	json_array_append_new(list, attribute("service.name", "sandbox"));
	json_array_append_new(list, attribute("sandbox.id", s->id));
	if (s->name)
		json_array_append_new(list, attribute("sandbox.name", s->name));
	json_array_append_new(list, attribute("sandbox.image", s->image));
	for (size_t i = 0; i < s->labels.n; i++) {
		if (!strncmp(s->labels.keys[i], "gateway.", 8))
			continue;
		snprintf(key, sizeof(key), "sandbox.label.%s", s->labels.keys[i]);
		json_array_append_new(list, attribute(key, s->labels.values[i]));
	}
	return json_pack("{s:o}", "attributes", list);
}

json_t *otlp_json(const struct sandbox *s, const struct sample *m)
{
	json_t *scope = json_pack("{s:s,s:s}", "name", "sandboxd", "version", SANDBOXD_VERSION);

	return json_pack("{s:[{s:o,s:[{s:o,s:o}]}]}", "resourceMetrics", "resource", resource(s),
		"scopeMetrics", "scope", scope, "metrics", metrics(s, m));
}

void *otlp_gzip(const char *text, size_t len, size_t *ret_len)
{
	z_stream z = { 0 };
	uLong room;
	void *out;

	if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, GZIP_MEMORY,
		    Z_DEFAULT_STRATEGY) != Z_OK)
		return NULL;
	room = deflateBound(&z, len);
	out = malloc(room);
	z.next_in = (Bytef *)(uintptr_t)text;
	z.avail_in = (uInt)len;
	z.next_out = out;
	z.avail_out = (uInt)room;
	if (!out || deflate(&z, Z_FINISH) != Z_STREAM_END) {
		free(out);
		out = NULL;
	}
	*ret_len = z.total_out;
	deflateEnd(&z);
	return out;
}
