/* SPDX-License-Identifier: MIT */
/* Refusals in words, kept for the uid they were given to: what `error` and `errors` show. */
#ifndef SBXFS_ERRLOG_H
#define SBXFS_ERRLOG_H

#include "sbxfs/mount.h"
#include "sbxfs/text.h"

int errlog_new(struct errlog **ret);
void errlog_free(struct errlog *l);
/* Keeps q->err with q's operation and path; `sys` is the errno the caller gets. Nothing to say:
 * nothing is kept. */
void errlog_note(struct errlog *l, const struct req *q, int sys);
/* The last one of that uid, about that sandbox or path when given (NULL: any); adds nothing when
 * there is none. */
void errlog_last(struct errlog *l, uid_t uid, const char *box, const char *path, struct text *t);
/* All kept ones, one JSON object a line. */
void errlog_all(struct errlog *l, uid_t uid, const char *box, struct text *t);

/* Name of an errno for people: "EBUSY". */
const char *errno_word(int sys);

#endif
