/* SPDX-License-Identifier: MIT */
/* Rows about what system calls give on files. A row is a function that runs in an empty directory; T()
 * notes whether a call succeeded or which error it gave, IS() a number. The same rows run in two
 * directories, and what they noted is compared. */
#ifndef TESTS_MOUNT_POSIX_H
#define TESTS_MOUNT_POSIX_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

struct row {
	const char *name;
	void (*run)(void);
};
/* A text that no other directory has goes in as well, so that nothing is believed from the run before. */
void note(const char *what, long long rc, bool number);
#define T(expr) note(#expr, (long long)(expr), false)
#define IS(expr) note(#expr, (long long)(expr), true)

extern const struct row rows_names[], rows_attrs[], rows_io[], rows_more[], rows_paths[],
	rows_rules[];

/* Each opens, does one thing, closes; -1 with errno, or what it gave. */
int opened(const char *path, int flags, mode_t mode);
int made(const char *path);                    /* an empty file */
int holds(const char *path, const char *text); /* makes a file with that text */
int text_is(const char *path, const char *text); /* 1, 0, or -1 */
long long size_of(const char *path);
mode_t mode_of(const char *path); /* permissions */
long long links_of(const char *path);
int kind_of(const char *path); /* S_IFMT of the thing itself, >> 12 */
/* A name of n bytes. */
const char *name_of(size_t n);
/* Waits until the clock of file times has gone on. */
void tick(void);
/* Runs fn in a process of its own; its result, or -1 with its errno. */
int elsewhere(int (*fn)(void));

#endif
