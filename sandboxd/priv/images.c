/* SPDX-License-Identifier: MIT */
/* Layers of images: each is unpacked by a child, and has its name only once it is whole. */
#include "sandboxd/priv/broker.h"

#include "common/sys/mem.h"
#include "sandboxd/priv/child.h"
#include "sandboxd/priv/layers.h"
#include "sandboxd/priv/unpack.h"

#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

bool images_has(const struct broker *b, uint32_t num)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_IMPORT && !j->done && j->num == num)
			return true;
	return false;
}

static void answer(struct broker *b, uint64_t tag, const struct unpack_result *r)
{
	struct priv_ans a = { .n = { r->bytes, r->covers } };

	broker_answer(b, PRIV_LAYER_IMPORT, tag, &r->fail, &a);
}

static void import(struct broker *b, const struct unpack_job *job, int out, pid_t broker)
{
	struct unpack_env env = { b->env.priv, b->env.layers, &b->env.jail_filter };
	struct unpack_result r = { 0 };

	broker_leave(b, -1);
	child_bind(broker);
	unpack_import(&env, job, &r);
	(void)send(out, &r, sizeof(r), MSG_NOSIGNAL);
	_exit(0);
}

/* NULL: no memory, no descriptors. */
static struct job *start_import(struct broker *b, const struct unpack_job *job, uint64_t tag)
{
	pid_t me = getpid();
	struct job *j;
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return NULL;
	j = broker_job(b, JOB_IMPORT);
	if (!j) {
		close(sv[0]);
		close(sv[1]);
		return NULL;
	}
	j->op = PRIV_LAYER_IMPORT;
	j->tag = tag;
	j->fd = sv[0];
	j->pid = fork();
	if (j->pid == 0)
		import(b, job, sv[1], me);
	close(sv[1]);
	j->pidfd = child_watch(j->pid);
	return j; /* a fork that failed shows as the end of the socket */
}

void images_event(struct broker *b, struct job *j)
{
	struct unpack_result r = { 0 };
	ssize_t n = recv(j->fd, &r, sizeof(r), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != sizeof(r)) {
		memset(&r, 0, sizeof(r));
		fail_set(&r.fail, ECHILD, "the unpacker ended early");
	}
	r.fail.text[sizeof(r.fail.text) - 1] = 0;
	answer(b, j->tag, &r);
	j->done = true;
	if (n != sizeof(r))
		works_unmade(b, j->num);
}

/* Something to read from: no mere name of a file, and none whose content may depend on who reads. */
static bool is_archive(int fd)
{
	static const unsigned int made_up[] = { PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC,
		CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC, SECURITYFS_MAGIC };
	int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
	struct statfs fs;
	struct stat st;

	if (flags < 0 || (flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY || fstat(fd, &st) < 0 ||
		!S_ISREG(st.st_mode) || fstatfs(fd, &fs) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(made_up); i++)
		if ((unsigned int)fs.f_type == made_up[i])
			return false;
	return true;
}

static int running(const struct broker *b)
{
	int n = 0;

	for (const struct job *j = b->jobs; j; j = j->next)
		n += j->kind == JOB_IMPORT && !j->done;
	return n;
}

static int check(struct broker *b, const struct priv_req *q, int fd, struct fail *f)
{
	char name[LAYER_NAME_MAX];

	if (q->num == 0 || q->kind >= UNPACK_KINDS || q->nchain > PRIV_CHAIN_MAX)
		return fail_set(f, EINVAL, "layer");
	if (q->kind == UNPACK_FINISH) {
		if (fd >= 0 || q->nchain == 0)
			return fail_set(f, EINVAL, "layers below");
		for (uint32_t i = 0; i < q->nchain; i++) {
			layer_name(name, q->chain[i]);
			if (faccessat(b->env.layers, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
				return fail_set(f, errno, "layer %u", q->chain[i]);
		}
	} else if (!is_archive(fd)) {
		return fail_set(f, EINVAL, "archive");
	}
	layer_name(name, q->num);
	if (running(b) >= BROKER_IMPORTS_MAX)
		return fail_set(f, EAGAIN, "too many layers at a time");
	if (images_has(b, q->num) || works_layer(b, q->num) ||
		faccessat(b->env.layers, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return fail_set(f, EEXIST, "layer %u", q->num);
	return 0;
}

void op_layer_import(struct broker *b, const struct priv_req *q, int fd)
{
	char name[LAYER_NAME_MAX];
	struct unpack_job job = { .kind = (enum unpack_kind)q->kind,
		.in = fd,
		.name = name,
		.nchain = q->nchain,
		.chain = q->chain };
	struct unpack_result r = { 0 };
	struct job *j = NULL;

	layer_name(name, q->num);
	if (check(b, q, fd, &r.fail) == 0) {
		j = start_import(b, &job, q->tag);
		if (!j)
			fail_set(&r.fail, ENOMEM, "unpack a layer");
	}
	if (j)
		j->num = q->num;
	else
		answer(b, q->tag, &r);
}

/* The child's own child dies with it. What they have left goes when its socket has ended; its name is one that the
 * next sweep knows. */
static void stop_import(struct broker *b, struct job *j)
{
	struct unpack_result r = { 0 };

	child_kill(j->pidfd);
	fail_set(&r.fail, ECANCELED, "unpack a layer");
	answer(b, j->tag, &r);
	j->tag = 0;
}

void images_stop(struct broker *b, uint32_t num)
{
	for (struct job *j = b->jobs; j; j = j->next) {
		if (j->kind != JOB_IMPORT || j->done || (num && j->num != num))
			continue;
		stop_import(b, j);
		j->done = num == 0; /* the broker ends */
	}
}
