/* SPDX-License-Identifier: MIT */
#include "sbxfs/fs1_priv.h"
#include <stdlib.h>
struct watches { int n; };
int watches_new(struct mount *m, struct watches **ret) { (void)m; *ret = calloc(1, sizeof(**ret)); return 0; }
void watches_free(struct watches *w) { free(w); }
void watches_push(struct fs1_conn *c, const char *buf, size_t len) { (void)c; (void)buf; (void)len; }
void watches_answer(struct fs1_conn *c, uint64_t arg, int64_t value) { (void)c; (void)arg; (void)value; }
void watches_end(struct fs1_conn *c) { (void)c; }
unsigned watches_count(struct watches *w) { return (unsigned)w->n; }
void watches_tidy(struct mount *m) { (void)m; }
