/* SPDX-License-Identifier: MIT */
/* How many requests each sandbox has under way, so that one of them cannot take every connection.
 */
#ifndef SANDBOXD_API_TALLY_H
#define SANDBOXD_API_TALLY_H

#include <stdbool.h>

struct tally;
struct tally *tally_new(unsigned most); /* NULL: out of memory */
void tally_free(struct tally *t);
/* Counts a request for `ref`, an id; false when it is one too many.
 * Each true is undone by one tally_leave. Thread-safe. */
bool tally_enter(struct tally *t, const char *ref);
void tally_leave(struct tally *t, const char *ref);

#endif
