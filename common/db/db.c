/* SPDX-License-Identifier: MIT */
/* Every SQLite result becomes an err here; SQLITE_FULL and the read-only codes get words of their
 * own because an operator can mend those. */
#include "common/db/db.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_HEADER 32            /* of the log file, as its format says */
#define LOG_KEPT   (1024 * 1024) /* room that the log keeps on the disk */

struct db {
	sqlite3 *sql;
	int durable; /* last setting, so that repeating it costs nothing */
	int frames;  /* pages in the log since it was settled */
};
struct db_stmt {
	struct db *db;
	sqlite3_stmt *st;
};

static int db_fail(int rc, const char *what, struct err *e)
{
	switch (rc & 0xff) {
	case SQLITE_FULL:
		return err_set(e, ERR_UNAVAILABLE,
			"the disk that holds the records is full; free some space");
	case SQLITE_READONLY:
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
		return err_set(e, ERR_INTERNAL,
			"records.db cannot be written: it and the files beside it have to be uid %u's, mode 600, "
			"on a disk that is not read-only",
			(unsigned)geteuid());
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return err_set(e, ERR_INTERNAL,
			"the records are damaged: put back a copy of records.db, or move the whole state directory away");
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return err_set(e, ERR_INTERNAL, "the records are in use by another program");
	default:
		return err_set(e, ERR_INTERNAL, "records: %s: %s", what, sqlite3_errstr(rc));
	}
}

int db_exec(struct db *db, const char *sql, struct err *e)
{
	int rc = sqlite3_exec(db->sql, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : db_fail(rc, "statement", e);
}

int db_set_durable(struct db *db, bool durable, struct err *e)
{
	if (db->durable == durable)
		return 0;
	if (db_exec(db, durable ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", e) < 0)
		return -1;
	db->durable = durable;
	return 0;
}

static int check_content(struct db *db, struct err *e)
{
	struct db_stmt *st;
	int rc, good = 0;

	if (db_prepare(db, "PRAGMA quick_check(1)", &st, e) < 0)
		return -1;
	rc = db_next(st, e);
	if (rc == 1 && db_text(st, 0))
		good = !strcmp(db_text(st, 0), "ok");
	db_stmt_free(st);
	if (rc < 0)
		return -1;
	return good ? 0 : db_fail(SQLITE_CORRUPT, "check", e);
}

/* The library makes every path absolute and resolves its links first. A server that has given up
 * its rights may hold its directory open and be unable to walk to it: its paths start with
 * /proc/self/fd/N and must be used as they are. */
static int path_as_given(sqlite3_vfs *vfs, const char *in, int size, char *out)
{
	(void)vfs;
	return snprintf(out, (size_t)size, "%s", in) < size ? SQLITE_OK : SQLITE_CANTOPEN;
}

static sqlite3_vfs own_vfs; /* the library links it into its list, once */
static void register_vfs(void)
{
	const sqlite3_vfs *standard = sqlite3_vfs_find("unix");

	if (!standard)
		return;
	own_vfs = *standard;
	own_vfs.zName = "as-given";
	own_vfs.xFullPathname = path_as_given;
	(void)sqlite3_vfs_register(&own_vfs, 0);
}

/* The file is made by us first: the library's default mode follows the umask. */
static int make_private(const char *path, struct err *e)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct stat st;

	if (fd < 0 && errno != EACCES)
		return err_sys(e, errno, "records.db");
	if (fd < 0 || fstat(fd, &st) < 0)
		return db_fail(SQLITE_CANTOPEN, "open", e);
	if (!S_ISREG(st.st_mode) || ((st.st_mode & 077) && fchmod(fd, 0600) < 0))
		return db_fail(SQLITE_PERM, "open", e);
	return 0;
}

static int count_frames(void *arg, sqlite3 *sql, const char *name, int frames)
{
	struct db *db = arg;

	(void)sql;
	(void)name;
	db->frames = frames;
	return SQLITE_OK;
}

int db_open(const char *path, struct db **ret, struct err *e)
{
	static const char setup[] = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL;"
				    "PRAGMA synchronous=FULL; PRAGMA secure_delete=ON;"
				    "PRAGMA temp_store=MEMORY; PRAGMA foreign_keys=ON;"
				    "PRAGMA wal_autocheckpoint=0;"; /* db_settle does it */
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct db *db;
	int rc;

	pthread_once(&once, register_vfs);
	if (make_private(path, e) < 0)
		return -1;
	db = calloc(1, sizeof(*db));
	if (!db)
		return err_oom(e);
	rc = sqlite3_open_v2(
		path, &db->sql, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, "as-given");
	if (rc != SQLITE_OK) {
		db_fail(rc, "open", e);
		goto fail;
	}
	sqlite3_busy_timeout(db->sql, 2000);
	db->durable = 1;
	if (db_exec(db, setup, e) < 0 || check_content(db, e) < 0)
		goto fail;
	sqlite3_wal_hook(db->sql, count_frames, db); /* the setup takes off what was there */
	*ret = db;
	return 0;
fail:
	db_close(db);
	return -1;
}

void db_close(struct db *db)
{
	if (!db)
		return;
	sqlite3_close(db->sql);
	free(db);
}

static int read_version(struct db *db, size_t *ret, struct err *e)
{
	struct db_stmt *st;
	int rc;

	if (db_exec(db,
		    "CREATE TABLE IF NOT EXISTS migrations(step INTEGER PRIMARY KEY,"
		    " applied TEXT NOT NULL DEFAULT (datetime('now')))",
		    e) < 0 ||
		db_prepare(db, "SELECT coalesce(max(step), 0) FROM migrations", &st, e) < 0)
		return -1;
	rc = db_next(st, e);
	*ret = rc == 1 ? (size_t)db_int(st, 0) : 0;
	db_stmt_free(st);
	return rc < 0 ? -1 : 0;
}

static int migrate_step(struct db *db, size_t step, const char *sql, struct err *e)
{
	char mark[96];

	snprintf(mark, sizeof(mark), "INSERT INTO migrations(step) VALUES(%zu)", step);
	if (db_exec(db, "BEGIN IMMEDIATE", e) < 0)
		return -1;
	if (db_exec(db, sql, e) == 0 && db_exec(db, mark, e) == 0 && db_exec(db, "COMMIT", e) == 0)
		return 0;
	db_exec(db, "ROLLBACK", NULL);
	return -1;
}

int db_migrate(struct db *db, const char *const *steps, size_t n, struct err *e)
{
	size_t at;

	if (read_version(db, &at, e) < 0)
		return -1;
	if (at > n)
		return err_set(e, ERR_INTERNAL,
			"the records were written by a later version (step %zu, this one knows %zu)",
			at, n);
	for (; at < n; at++)
		if (migrate_step(db, at + 1, steps[at], e) < 0)
			return -1;
	return 0;
}

/* Zeros over the log's first `size` bytes. The header goes first and alone: a log that has lost
 * some of its pages but not its header would be taken for one that was cut short, and an old state
 * replayed. */
static int blank(sqlite3_file *log, sqlite3_int64 size)
{
	static const char zeros[64 * 1024];
	int rc = log->pMethods->xWrite(log, zeros, LOG_HEADER, 0);

	if (rc == SQLITE_OK)
		rc = log->pMethods->xSync(log, SQLITE_SYNC_NORMAL);
	for (sqlite3_int64 at = 0; at < size && rc == SQLITE_OK; at += (int)sizeof(zeros))
		rc = log->pMethods->xWrite(log, zeros, (int)sizeof(zeros), at);
	return rc;
}

/* A log that grows makes every commit write the file's size as well, and one that begins anew is
 * synced twice by its next commit. So it keeps its room, and the first commit is one of our own. */
int db_settle(struct db *db)
{
	sqlite3_file *log = NULL;
	sqlite3_int64 size = 0;
	int in_log = 0, moved = 0;
	int rc = sqlite3_wal_checkpoint_v2(
		db->sql, NULL, SQLITE_CHECKPOINT_RESTART, &in_log, &moved);

	if (rc != SQLITE_OK || in_log != moved)
		return -1; /* nothing is lost: it stays in the log */
	rc = sqlite3_file_control(db->sql, NULL, SQLITE_FCNTL_JOURNAL_POINTER, &log);
	if (rc != SQLITE_OK || !log || !log->pMethods ||
		log->pMethods->xFileSize(log, &size) != SQLITE_OK)
		return -1;
	rc = blank(log, size > LOG_KEPT ? size : LOG_KEPT);
	if (rc == SQLITE_OK && size > LOG_KEPT)
		rc = log->pMethods->xTruncate(log, LOG_KEPT);
	if (db_set_durable(db, true, NULL) < 0 || db_exec(db, "PRAGMA user_version=1", NULL) < 0)
		return -1;
	return rc == SQLITE_OK ? 0 : -1;
}

int db_log_pages(const struct db *db)
{
	return db->frames;
}

int db_prepare(struct db *db, const char *sql, struct db_stmt **ret, struct err *e)
{
	struct db_stmt *st = calloc(1, sizeof(*st));
	int rc;

	if (!st)
		return err_oom(e);
	st->db = db;
	rc = sqlite3_prepare_v3(db->sql, sql, -1, SQLITE_PREPARE_PERSISTENT, &st->st, NULL);
	if (rc != SQLITE_OK) {
		free(st);
		return db_fail(rc, "statement", e);
	}
	*ret = st;
	return 0;
}

void db_stmt_free(struct db_stmt *st)
{
	if (!st)
		return;
	sqlite3_finalize(st->st);
	free(st);
}

void db_bind_text(struct db_stmt *st, int i, const char *v)
{
	sqlite3_bind_text(st->st, i, v, -1, SQLITE_STATIC);
}

void db_bind_int(struct db_stmt *st, int i, int64_t v)
{
	sqlite3_bind_int64(st->st, i, v);
}

void db_bind_blob(struct db_stmt *st, int i, const void *v, size_t len)
{
	sqlite3_bind_blob64(st->st, i, v, len, SQLITE_STATIC);
}

void db_reset(struct db_stmt *st)
{
	sqlite3_reset(st->st);
	sqlite3_clear_bindings(st->st);
}

int db_next(struct db_stmt *st, struct err *e)
{
	int rc = sqlite3_step(st->st);

	if (rc == SQLITE_ROW)
		return 1;
	db_reset(st);
	return rc == SQLITE_DONE ? 0 : db_fail(rc, "statement", e);
}

int db_run(struct db_stmt *st, struct err *e)
{
	int rc;

	while ((rc = db_next(st, e)) == 1)
		;
	return rc;
}

const char *db_text(struct db_stmt *st, int col)
{
	return (const char *)sqlite3_column_text(st->st, col);
}

int64_t db_int(struct db_stmt *st, int col)
{
	return sqlite3_column_int64(st->st, col);
}

const void *db_blob(struct db_stmt *st, int col, size_t *ret_len)
{
	const void *v = sqlite3_column_blob(st->st, col);

	*ret_len = (size_t)sqlite3_column_bytes(st->st, col);
	return v;
}
