/* SPDX-License-Identifier: MIT */
/* Images: one unpacking, however many ask for it at the same time. */
#include "sandboxd/priv/broker.h"

#include "common/sys/mem.h"
#include "sandboxd/priv/unpack.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void answer(struct broker *b, uint64_t tag, const char *layer, const struct fail *f)
{
	struct priv_ans a = { 0 };

	memcpy(a.layer, layer, sizeof(a.layer));
	if (!f || !f->sys)
		creates_expect(b, layer);
	broker_answer(b, PRIV_IMAGE, tag, f, &a);
}

static struct job *find_import(struct broker *b, const char *layer)
{
	for (struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_IMPORT && !j->done && strcmp(j->layer, layer) == 0)
			return j;
	return NULL;
}

static void import(struct broker *b, int tar, const char *layer, int out)
{
	struct unpack_env env = { b->env.priv, b->env.layers, &b->env.filter };
	struct fail f = { 0 };

	unpack_import(&env, tar, layer, &f);
	(void)send(out, &f, sizeof(f), MSG_NOSIGNAL);
	_exit(0);
}

static int start_import(struct broker *b, int tar, const char *layer, uint64_t tag)
{
	struct job *j;
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return -errno;
	j = broker_job(b, JOB_IMPORT);
	if (!j) {
		close(sv[0]);
		close(sv[1]);
		return -ENOMEM;
	}
	snprintf(j->layer, sizeof(j->layer), "%s", layer);
	j->op = PRIV_IMAGE;
	j->tag = tag;
	j->fd = sv[0];
	j->pid = fork();
	if (j->pid == 0) {
		char name[PRIV_LAYER_MAX];
		memcpy(name, j->layer, sizeof(name));
		broker_leave(b, -1);
		import(b, tar, name, sv[1]);
	}
	close(sv[1]);
	return 0;
}

void images_event(struct broker *b, struct job *j)
{
	struct fail f = { 0 };
	ssize_t n = recv(j->fd, &f, sizeof(f), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != sizeof(f)) {
		memset(&f, 0, sizeof(f));
		fail_set(&f, ECHILD, "the unpacker ended early");
	}
	f.text[sizeof(f.text) - 1] = 0;
	answer(b, j->tag, j->layer, &f);
	for (struct waiter *w = j->more; w; w = w->next)
		answer(b, w->tag, j->layer, &f);
	j->done = true;
}

static int join_import(struct job *j, uint64_t tag)
{
	struct waiter *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->tag = tag;
	w->next = j->more;
	j->more = w;
	return 0;
}

void op_image(struct broker *b, const struct priv_req *q, int tar)
{
	char layer[PRIV_LAYER_MAX] = "";
	struct fail f = { 0 };
	struct stat st;
	struct job *j;
	int r;

	if (!name_is_image(q->layer, PRIV_IMAGE_MAX) || tar < 0 || fstat(tar, &st) < 0 ||
		!S_ISREG(st.st_mode)) {
		fail_set(&f, EINVAL, "image");
		answer(b, q->tag, layer, &f);
		return;
	}
	unpack_layer_name(layer, sizeof(layer), q->layer, &st);
	if (faccessat(b->env.layers, layer, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
		answer(b, q->tag, layer, NULL);
		return;
	}
	j = find_import(b, layer);
	r = j ? join_import(j, q->tag) : start_import(b, tar, layer, q->tag);
	if (r < 0) {
		fail_set(&f, r, "unpack the image");
		answer(b, q->tag, layer, &f);
	}
}

/* --- old layers ------------------------------------------------------------------------------ */

struct used {
	struct broker *b;
	const char *layer;
	bool yes;
};

static void note_use(void *arg, const char *id)
{
	struct used *u = arg;
	struct record box;

	if (record_read(u->b->env.boxes, id, &box) == 0 && strcmp(box.layer, u->layer) == 0)
		u->yes = true;
}

static bool has_newer(int layers, const char *layer)
{
	const char *dot = strrchr(layer, '.');
	size_t stem = dot ? (size_t)(dot - layer) + 1 : 0;
	int fd = openat(layers, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct stat mine, other;
	struct dirent *de;
	bool newer = false;

	if (fstatat(layers, layer, &mine, AT_SYMLINK_NOFOLLOW) < 0)
		stem = 0;
	while (d && stem && (de = readdir(d)))
		if (strncmp(de->d_name, layer, stem) == 0 && !strchr(de->d_name + stem, '.') &&
			fstatat(layers, de->d_name, &other, AT_SYMLINK_NOFOLLOW) == 0 &&
			(other.st_ctim.tv_sec > mine.st_ctim.tv_sec ||
				(other.st_ctim.tv_sec == mine.st_ctim.tv_sec &&
					other.st_ctim.tv_nsec > mine.st_ctim.tv_nsec)))
			newer = true;
	if (d)
		closedir(d);
	return newer;
}

/* At start only, when nothing is being made: halves of an unpacking, and layers that a newer import
 * of the same image has replaced and no sandbox uses. */
void images_clean(struct broker *b)
{
	int fd = openat(b->env.layers, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	while (d && (de = readdir(d))) {
		struct used u = { .b = b, .layer = de->d_name };
		size_t n = strlen(de->d_name);
		if (de->d_name[0] == '.') {
			if (n > 4 && strcmp(de->d_name + n - 4, ".tmp") == 0)
				(void)fake_tree_remove(b->env.layers, de->d_name);
			continue;
		}
		if (!has_newer(b->env.layers, de->d_name))
			continue;
		box_each(b->env.boxes, note_use, &u);
		if (!u.yes)
			(void)fake_tree_remove(b->env.layers, de->d_name);
	}
	if (d)
		closedir(d);
}
