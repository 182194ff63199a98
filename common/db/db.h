/* SPDX-License-Identifier: MIT */
/* A thin face of SQLite, so that nothing above names it: open with the settings that records need,
 * ordered migrations, prepared statements, errors that say what to do.
 * A struct db is used by one thread at a time; the caller sees to that. */
#ifndef COMMON_DB_DB_H
#define COMMON_DB_DB_H

#include "common/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct db;
struct db_stmt;

/* Opens or makes the file (0600, its folder must exist): WAL, synchronous=FULL, deleted content is
 * overwritten, one process at a time. Refuses a damaged file. The message names no other path. */
int db_open(const char *path, struct db **ret, struct err *e);
void db_close(struct db *db); /* NULL is fine; finishes the log file */
/* Brings the schema to steps[n - 1]; each step once, in order, in its own transaction. Refuses a file
 * that a later version wrote. */
int db_migrate(struct db *db, const char *const *steps, size_t n, struct err *e);
int db_exec(struct db *db, const char *sql, struct err *e);
/* FULL (true): a commit is on the disk when it returns. false: it survives this process, not a power
 * cut, until the next full commit. Outside transactions only. */
int db_set_durable(struct db *db, bool durable, struct err *e);
/* Moves the log into the file and writes zeros over it, so that overwritten content is gone there
 * too, and prepares it for commits that cost one write and one sync. Costs some milliseconds itself;
 * nobody else does it, so it has to be called now and then. -1: not all could be done, nothing is
 * lost. */
int db_settle(struct db *db);
int db_log_pages(const struct db *db); /* in the log; up to 250 cost no more than one */

int db_prepare(struct db *db, const char *sql, struct db_stmt **ret, struct err *e);
void db_stmt_free(struct db_stmt *st);
/* Parameters count from 1; text and blobs are borrowed until db_run or db_reset. NULL binds NULL. */
void db_bind_text(struct db_stmt *st, int i, const char *v);
void db_bind_int(struct db_stmt *st, int i, int64_t v);
void db_bind_blob(struct db_stmt *st, int i, const void *v, size_t len);
int db_run(struct db_stmt *st, struct err *e);  /* executes to the end and resets */
int db_next(struct db_stmt *st, struct err *e); /* 1 a row, 0 no more (then reset), -1 */
void db_reset(struct db_stmt *st);
const char *db_text(struct db_stmt *st, int col); /* columns count from 0; NULL for NULL */
int64_t db_int(struct db_stmt *st, int col);
const void *db_blob(struct db_stmt *st, int col, size_t *ret_len);

#endif
