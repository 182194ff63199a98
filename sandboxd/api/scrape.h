/* SPDX-License-Identifier: MIT */
/* The listener of --metrics-listen: GET /metrics for Prometheus and nothing else. It has no credential,
 * hence a loopback address and loopback names in Host. */
#ifndef SANDBOXD_API_SCRAPE_H
#define SANDBOXD_API_SCRAPE_H

#include "common/http/http.h"

struct core;
struct http_app scrape_app(struct core *core); /* core outlives it */

#endif
