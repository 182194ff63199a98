/* SPDX-License-Identifier: MIT */
/* The parts of sbx-pull:
 *   main.c   sets up the small world in which everything happens, then gives up all rights
 *   jobs.c   requests from the front; one thread and one run of the tool each
 *   tool.c   the tool's command line, environment and last words
 *   proxy.c  the only way out of the tool's network namespace, and the rule for addresses
 * The tool (skopeo) talks to strangers. It has its own network namespace with nothing in it but the proxy,
 * its own process ids, an empty /tmp, no state directory but its folder, and no configuration but ours. */
#ifndef SANDBOXD_PULL_PARTS_H
#define SANDBOXD_PULL_PARTS_H

#include "sandboxd/pull/pull.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#define PULL_ROOT "/tmp/pull" /* as the tool sees STATE_DIR/pull */
#define PULL_CONF "/tmp/conf" /* policy.json, registries.conf, empty folders; root's */

struct pull_conf {
	bool allow_private;
	int stall_secs;
	int dirfd;      /* pull/ */
	int proxy_port; /* in the tool's namespace */
};

/* proxy.c. All descriptors are taken over. */
/* Before the network namespace is changed: its threads dial from the host's. */
int proxy_start(const struct pull_conf *conf);
/* Connections to this listener say CONNECT first. */
int proxy_add(int listener);
/* Connections to this one go to `to` on the host. */
int proxy_forward(int listener, const struct sockaddr_in *to);

/* jobs.c: returns when the front has gone */
void jobs_serve(const struct pull_conf *conf);

/* tool.c */
struct tool {
	char args[24][640];
	const char *argv[25];
	char env_text[12][128];
	const char *env[13];
};
struct tool_run {
	enum pull_op op;
	enum pull_source source;
	uint32_t tag;
	const char *ref;
	bool verify_tls;
};
void tool_command(const struct pull_conf *conf, const struct tool_run *r, struct tool *ret);
/* What the tool's standard error means; text for people. */
enum pull_result tool_verdict(const char *stderr_text, bool had_login, char text[PULL_TEXT_MAX]);
/* Is the registry of this reference a loopback address, and which? Port 0: none was named. */
bool tool_loopback(const char *ref, struct sockaddr_in *ret);

#endif
