/* SPDX-License-Identifier: MIT */
/* Records of sandboxes and their id blocks. A record is not synced: it has to survive the broker,
 * not the host; after a reboot nothing that it names is running. */
#include "sandboxd/priv/box.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* The file of a record that was dropped, which the next one takes over: ext4 walks over every inode that was
 * freed in the last seconds before it gives out a new one, which sandboxes that come and go pay for. */
#define SPARE ".spare"

void box_group(char name[BOX_NAME_MAX], uint32_t block)
{
	snprintf(name, BOX_NAME_MAX, "n%u", block);
}

void box_pool(char name[BOX_NAME_MAX], uint32_t block)
{
	snprintf(name, BOX_NAME_MAX, "pool-%u", block);
}

int record_read(int boxes, const char *id, struct record *ret)
{
	_cleanup_close_ int fd = open_below(boxes, id, O_RDONLY, 0);
	int r;

	if (fd < 0)
		return fd;
	r = fd_read_full(fd, ret, sizeof(*ret));
	if (r < 0 || ret->magic != BOX_MAGIC || ret->block >= BOX_BLOCKS)
		return r < 0 ? r : -EBADMSG;
	ret->boot[sizeof(ret->boot) - 1] = 0;
	return 0;
}

int record_write(int boxes, const char *id, const struct record *b)
{
	char tmp[PRIV_ID_MAX + 8];
	int r;

	snprintf(tmp, sizeof(tmp), ".%s", id);
	(void)renameat(boxes, SPARE, boxes, tmp);
	_cleanup_close_ int fd = openat(boxes, tmp, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = fd_write_full(fd, b, sizeof(*b));
	if (r == 0 && ftruncate(fd, sizeof(*b)) < 0)
		r = -errno;
	if (r == 0 && renameat(boxes, tmp, boxes, id) < 0)
		r = -errno;
	if (r < 0)
		(void)unlinkat(boxes, tmp, 0);
	return r;
}

static void sealed_name(char name[PRIV_ID_MAX + 8], const char *id)
{
	snprintf(name, PRIV_ID_MAX + 8, ".held-%s", id);
}

int64_t record_sealed(int boxes, const char *id)
{
	char name[PRIV_ID_MAX + 8], buf[24];
	int r;

	sealed_name(name, id);
	r = file_read(boxes, name, buf, sizeof(buf));
	return r < 0 ? r : strtoll(buf, NULL, 10);
}

int record_note_sealed(int boxes, const char *id, int64_t bytes)
{
	char name[PRIV_ID_MAX + 8];

	sealed_name(name, id);
	_cleanup_close_ int fd = openat(boxes, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	/* always as long, so that no moment shows a part of two numbers */
	return fd < 0 || dprintf(fd, "%020lld\n", (long long)bytes) < 0 ? -errno : 0;
}

int record_drop(int boxes, const char *id)
{
	char name[PRIV_ID_MAX + 8];

	sealed_name(name, id);
	(void)unlinkat(boxes, name, 0);
	/* it names a block that others get now: on a disk where nothing can be renamed it is just removed */
	return renameat(boxes, id, boxes, SPARE) < 0 && unlinkat(boxes, id, 0) < 0 && errno != ENOENT ? -errno : 0;
}

bool record_alive(const struct record *b, const char *boot)
{
	return b->shim_pid > 0 && strcmp(b->boot, boot) == 0 &&
	       pid_start_time(b->shim_pid) == b->shim_start;
}

int box_boot_id(char boot[40])
{
	return file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, 40);
}

int box_each(int boxes, void (*fn)(void *arg, const char *id), void *arg)
{
	_cleanup_dir_ DIR *d = dir_read(boxes, ".");
	struct dirent *de;

	if (!d)
		return -errno;
	while ((de = readdir(d)))
		if (name_is_id(de->d_name, PRIV_ID_MAX))
			fn(arg, de->d_name);
	return 0;
}

int box_block_take(struct box_blocks *b, uint32_t *ret)
{
	for (uint32_t tried = 0; tried < BOX_BLOCKS; tried++) {
		uint32_t n = b->next;
		b->next = (n + 1) % BOX_BLOCKS;
		if (b->used[n / 8] & (1u << n % 8))
			continue;
		box_block_mark(b, n);
		*ret = n;
		return 0;
	}
	return -EAGAIN;
}

void box_block_mark(struct box_blocks *b, uint32_t n)
{
	b->used[n / 8] = (uint8_t)(b->used[n / 8] | 1u << n % 8);
}

void box_block_free(struct box_blocks *b, uint32_t n)
{
	b->used[n / 8] = (uint8_t)(b->used[n / 8] & ~(1u << n % 8));
}
