/* SPDX-License-Identifier: MIT */
/* Files of the image folder. The name of an image is the name of a file here only when it could not
 * be anything else: one lower-case word, no registry, no folder, no tag. */
#include "sandboxd/core/images_internal.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 72

static const struct {
	const char *suffix;
	enum image_format format;
} kinds[] = {
	{ ".tar", IMAGE_ROOTFS_TAR },
	{ ".oci.tar", IMAGE_OCI_TAR },
	{ ".docker.tar", IMAGE_DOCKER_TAR },
	{ ".oci", IMAGE_OCI_DIR },
};

bool image_local_word(const char *s)
{
	size_t n = strlen(s);

	return n > 0 && n < WORD_MAX && s[0] != '.' && s[0] != '_' && s[0] != '-' &&
	       strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

static void stamp_of(const struct stat *st, struct image_stamp *ret)
{
	*ret = (struct image_stamp){ .dev = st->st_dev,
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec };
}

/* A layout is replaced when its index is. */
static int look(int dirfd, const char *file, enum image_format format, struct image_stamp *stamp)
{
	char index[WORD_MAX + 32];
	struct stat st;

	if (format == IMAGE_OCI_DIR) {
		snprintf(index, sizeof(index), "%s/index.json", file);
		file = index;
	}
	if (fstatat(dirfd, file, &st, 0) < 0 || !S_ISREG(st.st_mode))
		return -1;
	stamp_of(&st, stamp);
	return 0;
}

static int find(const struct images *s, const char *ref, char file[WORD_MAX + 16],
	struct image_stamp *stamp)
{
	if (s->dirfd < 0 || !image_local_word(ref))
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		snprintf(file, WORD_MAX + 16, "%s%s", ref, kinds[i].suffix);
		if (look(s->dirfd, file, kinds[i].format, stamp) == 0)
			return (int)i;
	}
	return -1;
}

bool image_local_find(const struct images *s, const char *ref, struct image_stamp *stamp)
{
	char file[WORD_MAX + 16];

	return find(s, ref, file, stamp) >= 0;
}

int image_local_open(const struct images *s, const char *ref, enum image_format *format,
	int *ret_fd, struct image_stamp *stamp, struct err *e)
{
	char file[WORD_MAX + 16];
	int i = find(s, ref, file, stamp), fd;
	bool dir = i >= 0 && kinds[i].format == IMAGE_OCI_DIR;

	if (i < 0)
		return image_local_missing(s, ref, e);
	fd = openat(s->dirfd, file, O_RDONLY | O_CLOEXEC | O_NOCTTY | (dir ? O_DIRECTORY : 0));
	if (fd < 0)
		return err_sys(e, errno, "open image %.80s", file);
	*format = kinds[i].format;
	*ret_fd = fd;
	return 0;
}

int image_local_missing(const struct images *s, const char *ref, struct err *e)
{
	return err_set(e, ERR_NOT_FOUND,
		"image \"%.80s\" is not installed: put %.60s.tar into %.100s, or make it with "
		"`sbx image build`",
		ref, image_local_word(ref) ? ref : "NAME", s->dir[0] ? s->dir : "the image folder");
}

char **image_default_env(void)
{
	static const char *const usual[] = {
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/sandbox/home",
		"USER=sandbox",
		"LANG=C.UTF-8",
	};
	char **env = calloc(ARRAY_LEN(usual) + 1, sizeof(*env));

	for (size_t i = 0; env && i < ARRAY_LEN(usual); i++)
		if (!(env[i] = strdup(usual[i]))) {
			image_env_free(env);
			env = NULL;
		}
	return env;
}
