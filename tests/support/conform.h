/* SPDX-License-Identifier: MIT */
/* What a conformance test knows: a client of the API and an endpoint. SANDBOX_CONFORMANCE_ENDPOINT,
 * _TOKEN and _CA name a server; without them a whole one is started here on the linux backend.
 * Values and strings given out live until the test that asked for them ends; so do its sandboxes,
 * snapshots and volumes. */
#ifndef TESTS_SUPPORT_CONFORM_H
#define TESTS_SUPPORT_CONFORM_H

#include "tests/support/test.h"

#include <jansson.h>

/* The servers that the group of tests runs against: one that is named by the environment, else one
 * with built-in settings and one whose limits make every row count. Returns what main returns. */
int conform_run(const char *name, const struct CMUnitTest *tests, size_t n);
int conform_each_begins(void **state);
int conform_each_ends(void **state);
#define conform_test(f) cmocka_unit_test_setup_teardown(f, conform_each_begins, conform_each_ends)

json_t *conform_caps(void); /* the answer of /v1/capabilities */
bool conform_can(const char *capability);
long conform_limit(const char *name);

/* JSON as json_pack writes it. */
json_t *J(const char *fmt, ...);
/* {"argv": [...]}; ends with NULL. */
json_t *argv_of(const char *first, ...) __attribute__((sentinel));
/* Sets a key of an object; both are given away, the object comes back. */
json_t *with(json_t *object, const char *key, json_t *value);
const char *str(const json_t *object, const char *key); /* "" when it is absent */
long num(const json_t *object, const char *key);

/* One call; the body is given away, NULL: none. It must succeed. NULL for an empty answer. */
json_t *ask(const char *method, const char *path, json_t *body);
/* It must fail with this code ("": any). Returns the message. */
const char *refused(const char *code, const char *method, const char *path, json_t *body);
/* A raw body of bytes instead. */
void refused_bytes(const char *code, const char *method, const char *path, const char *text);
/* A path; %s is percent-encoded, %ld a number. */
const char *at(const char *fmt, ...);

/* Sandboxes: `spec` is given away; NULL: {}. */
json_t *box_made(json_t *spec); /* the answer */
const char *box(json_t *spec);  /* its id */
json_t *box_get(const char *ref);
void box_end(const char *ref);
/* Looks at it every `ms` until it is terminated; fails after 30 s. */
void box_wait_ended(const char *ref, int ms, bool in_listing);

struct ran {
	long code;
	const char *out; /* a NUL stands behind it */
	size_t len;
	bool truncated, timed_out;
};
struct ran run_in(const char *ref, json_t *body);
struct ran sh_in(const char *ref, const char *text);
long start_in(const char *ref, json_t *body); /* pid */
/* Follows the output to its end; *ret_code the exit code. */
const char *follow(const char *ref, long pid, long *ret_code);
void stdin_to(const char *ref, long pid, const char *text, bool end);

/* Files: paths may hold any byte. */
void file_put_in(const char *ref, const char *path, const void *buf, size_t len);
const char *file_get_in(const char *ref, const char *path, size_t *ret_len);
const char *path_in(const char *ref, const char *what, const char *path, size_t len);

struct conform_stream {
	const char *out;
	long code;
};
/* Attaches, sends frames (type and text), and either leaves at once or reads to the exit frame. */
struct conform_stream attach(const char *ref, long pid, const char *text, bool end, bool stay);
int tunnel(const char *ref, int port); /* descriptor, or -1 */

/* Remembered for the end of the test. */
void later_delete(const char *path);
const char *unused_name(void); /* a new one with every call */
void pause_ms(int ms);

#endif
