/* SPDX-License-Identifier: MIT */
/* call METHOD PATH BODY: for each line of the input one such request on the one connection that is kept;
 * prints the seconds that it took. What the mount's control files are compared with. */
#include "client/include/sbx.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct sbx_options opt = { 0 };
	struct sbx_error e = { 0 };
	struct sbx_request q = { 0 };
	struct sbx *s;
	char line[16];

	if (argc != 4) {
		fprintf(stderr, "usage: call METHOD PATH BODY\n");
		return 2;
	}
	q = (struct sbx_request){ .method = argv[1], .path = argv[2], .body = argv[3],
		.body_len = strlen(argv[3]) };
	if (sbx_open(&opt, &s, &e) < 0) {
		fprintf(stderr, "call: %s\n", e.message);
		return 1;
	}
	while (fgets(line, sizeof(line), stdin)) {
		struct sbx_response r = { 0 };
		double t = now();
		if (sbx_call(s, &q, &r, &e) < 0) {
			fprintf(stderr, "call: %s\n", e.message);
			return 1;
		}
		printf("%.9f\n", now() - t);
		fflush(stdout);
		sbx_response_free(&r);
	}
	sbx_close(s);
	return 0;
}
