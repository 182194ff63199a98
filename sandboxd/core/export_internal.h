/* SPDX-License-Identifier: MIT */
/* One push, shared by the thread (export.c) and what makes requests of it (export_push.c). */
#ifndef SANDBOXD_CORE_EXPORT_INTERNAL_H
#define SANDBOXD_CORE_EXPORT_INTERNAL_H

#include "common/curl/curl.h"
#include "sandboxd/core/export.h"

enum lane { LANE_PROVEN, LANE_OTHER, LANES };

struct push {
	struct push *next;
	struct exporter *exporter;
	struct sandbox *s; /* referenced */
	uint64_t serial;   /* of the setting it serves */
	enum lane lane;
	bool plain;
	CURL *easy;
	struct curl_slist *headers;
	char *url;
	void *body;
	size_t len;
	size_t got_head, got_body;
	bool refused; /* an address was not public */
};
/* The request for the newest sample of s, whose lock is held; NULL: out of memory. */
struct push *push_new(struct sandbox *s, enum lane lane);
/* False: the library cannot be held to the rules. */
bool push_set_options(struct push *p);
/* What is to be said of its end; "" when it went well. */
void push_judge(const struct push *p, CURLcode code, char *text, size_t size);
void push_free(struct push *p);

#endif
