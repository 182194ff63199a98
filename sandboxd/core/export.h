/* SPDX-License-Identifier: MIT */
/* Metrics pushed to a collector (node contract, 20): OTLP/HTTP JSON, from this process, never from the
 * sandbox. Where a push may go is decided by the address that is connected to, at that moment. The values
 * of headers are secrets: they are in the setting, in the sandbox's private record while it lives, and in
 * the request; nowhere else.
 * One thread drives every push. A collector that is slow costs its own push ten seconds and nobody else
 * anything, see LANE_MOST in export.c. */
#ifndef SANDBOXD_CORE_EXPORT_H
#define SANDBOXD_CORE_EXPORT_H

#include "sandboxd/core/metrics.h"

#include <jansson.h>
#include <sys/socket.h>

struct core;
struct exporter;

/* One sandbox's setting: sandbox.metrics_export, under its lock; NULL: none. */
struct export {
	uint64_t serial; /* no two settings have the same */
	char *endpoint;  /* completed */
	int64_t interval_secs;
	struct strmap headers; /* values: never shown */
	uint64_t sent;         /* the sample of this number is sent, or older than the setting */
	int64_t due_ms;
	bool busy;   /* a push is under way */
	bool proven; /* the last push went well */
	int64_t last_push_ns, failing_since_ns; /* 0: never; not failing */
	char last_error[128];                   /* "" when it is not failing */
};

/* 20.1. update: "" as endpoint stops. unsupported comes after every invalid_request. */
int check_metrics_export(const struct core *c, const struct metrics_export_body *b, bool update,
	struct err *e);
/* A checked body as a setting; *ret is NULL for one that stops. */
int export_new(
	struct core *c, const struct metrics_export_body *b, struct export **ret, struct err *e);
void export_free(struct export *x); /* overwrites the values first */
/* Lock held. Takes x (NULL: none) in place of what was there; a push of the old one is cut. */
void export_set(struct sandbox *s, struct export *x);
/* The sandbox runs from now on: until then the thread could not find it. Lock held. */
void export_begin(struct sandbox *s);
/* The sandbox has ended: nothing of the values stays. Lock held. */
void export_end(struct sandbox *s);
json_t *export_json(const struct export *x); /* as shown, 20.2 */
/* What an event and the open part of the record say: endpoint, interval, names. x NULL: a stop. */
json_t *export_plain_json(const struct export *x);
/* headers: an object of values, or NULL when they are gone. -1: not understood. */
int export_load(
	struct core *c, const json_t *plain, const json_t *headers, struct export **ret);

/* allow_private: any address, and http to loopback. */
int exporter_open(struct core *c, struct err *e);
void exporter_close(struct core *c);
/* May a push connect here? plain: http. */
bool export_may_connect(bool allow_private, bool plain, const struct sockaddr *sa);

/* The body of a push (otlp.c), for one sample; lock held. NULL: out of memory. */
json_t *otlp_json(const struct sandbox *s, const struct sample *m);
/* Compressed as gzip; caller frees. NULL: out of memory. */
void *otlp_gzip(const char *text, size_t len, size_t *ret_len);

#endif
