/* SPDX-License-Identifier: MIT */
/* Replays tests/fuzz/corpus/NAME through a target, with a few hundred deterministic changes a file.
 */
#ifndef TESTS_UNIT_FUZZ_REPLAY_H
#define TESTS_UNIT_FUZZ_REPLAY_H

#include "tests/fuzz/fuzz.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

static inline uint32_t replay_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static inline void replay_bytes(
	fuzz_target *target, const uint8_t *data, size_t size, unsigned changes)
{
	uint8_t *copy = malloc(size + 1);
	uint32_t seed = (uint32_t)size;

	target(data, size);
	for (size_t n = 0; n < size; n += size / 32 + 1)
		target(data, n);
	for (unsigned i = 0; i < changes && size; i++) {
		memcpy(copy, data, size);
		for (unsigned k = 0; k <= i % 4; k++)
			copy[replay_random(&seed) % size] = (uint8_t)replay_random(&seed);
		target(copy, size);
	}
	free(copy);
}

/* Run from the root of the project. */
static inline void replay(const char *name, fuzz_target *target, unsigned changes)
{
	static uint8_t data[65536];
	char path[128];
	struct dirent *de;
	unsigned files = 0;
	DIR *d;

	snprintf(path, sizeof(path), "tests/fuzz/corpus/%s", name);
	d = opendir(path);
	if (!d)
		fail_msg("no corpus in %s", path);
	while ((de = readdir(d))) {
		int fd = de->d_name[0] == '.' ? -1
					      : openat(dirfd(d), de->d_name, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? -1 : read(fd, data, sizeof(data));
		if (fd >= 0)
			close(fd);
		if (n < 0)
			continue;
		replay_bytes(target, data, (size_t)n, changes);
		files++;
	}
	closedir(d);
	assert_true(files > 0);
}

#endif
