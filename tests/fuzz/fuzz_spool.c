/* SPDX-License-Identifier: MIT */
/* A spool file as a broken shim might leave it: head, order table and record from the input. Every
 * reader must end, and read no more than is kept. */
#include "tests/fuzz/fuzz.h"

#include "sandboxd/core/proc_internal.h"

#include <fcntl.h>
#include <unistd.h>

struct spool_box {
	struct sandbox s;
	char dir[64];
};

static struct spool_box *the_box;

static void remove_box(void)
{
	(void)unlinkat(the_box->s.run_dirfd, "spool0", 0);
	close(the_box->s.run_dirfd);
	(void)rmdir(the_box->dir);
	free(the_box);
}

static struct spool_box *spool_box(void)
{
	struct spool_box *b = the_box;

	if (b)
		return b;
	b = the_box = calloc(1, sizeof(*b));
	promise(b);
	strcpy(b->dir, "/tmp/sbx-fuzz-XXXXXX");
	promise(mkdtemp(b->dir));
	b->s.run_dirfd = open(b->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	promise(b->s.run_dirfd >= 0);
	(void)atexit(remove_box);
	b->s.state = SBX_RUNNING;
	pthread_mutex_init(&b->s.lock, NULL);
	pthread_cond_init(&b->s.changed, NULL);
	return b;
}

static void write_spool(const struct spool_box *b, struct supply *in)
{
	int fd = openat(b->s.run_dirfd, "spool0", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct spool_head h = { .magic = SPOOL_MAGIC };
	static const struct {
		uint64_t at;
		size_t max;
	} parts[] = {
		{ 4, sizeof(h) - 4 },
		{ SPOOL_ORDER, 256 },
		{ SPOOL_META, 1024 },
		{ SPOOL_OUT, 64 },
		{ SPOOL_ERR, 64 },
	};

	promise(fd >= 0 && pwrite(fd, &h, sizeof(h), spool_at(1)) == sizeof(h));
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		size_t n;
		const uint8_t *p = supply_piece(in, parts[i].max, &n);
		promise(pwrite(fd, p, n, spool_at(1) + (off_t)parts[i].at) == (ssize_t)n);
	}
	close(fd);
}

static void read_all(struct proc *p)
{
	static char buf[1 << 20];
	uint64_t total[2] = { 0 };
	struct proc_reader r;
	struct proc_result result;
	enum proc_read got;
	int stream, code;
	size_t n;
	bool end;

	proc_reader_init(&r, p);
	while ((got = proc_reader_next(&r, 0, &stream, buf, sizeof(buf), &n, &code)) ==
		PROC_READ_DATA) {
		promise(n > 0 && n <= sizeof(buf) && (stream == 0 || stream == 1));
		total[stream] += n;
		promise(total[stream] <= SPOOL_CAP);
	}
	promise(got == PROC_READ_END);
	promise(total[0] == proc_output_size(p, 0, &end) &&
		total[1] == proc_output_size(p, 1, &end));
	proc_reader_fini(&r);
	proc_result_of(&result, proc_ref(p));
	promise(proc_result_read(&result, 0, buf, sizeof(buf)) > 0);
	promise(proc_result_read(&result, result.text_len, buf, sizeof(buf)) == 0);
	proc_result_fini(&result);
}

int fuzz_spool(const uint8_t *data, size_t size)
{
	struct supply in = { data, size };
	struct spool_box *b = spool_box();
	struct proc *p;

	write_spool(b, &in);
	promise(proc_restore(&b->s, false, NULL) == 0);
	promise(b->s.running_procs == 0);
	if (proc_find(&b->s, "1", &p, NULL) == 0) {
		json_t *o = proc_json(p);
		(void)proc_spool(p);
		read_all(p);
		json_decref(o);
		proc_unref(p);
	}
	proc_free_all(&b->s);
	b->s.next_num = 1;
	(void)unlinkat(b->s.run_dirfd, "spool0", 0);
	return 0;
}
