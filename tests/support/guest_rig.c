/* SPDX-License-Identifier: MIT */
#include "tests/support/guest_rig.h"

#include "common/sys/deadline.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int64_t mono_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

const char *guest_rig_libexec(void)
{
	static char dir[PATH_MAX + 16];
	char exe[PATH_MAX];
	const char *set = getenv("SBX_LIBEXEC");
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (set)
		return set;
	assert_true(n > 0);
	exe[n] = 0;
	snprintf(dir, sizeof(dir), "%s/bin", dirname(dirname(dirname(exe))));
	return dir;
}

void guest_rig_prepare(struct guest_rig *r)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(r->state_dir, sizeof(r->state_dir), "%s/sbx-guest-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(r->state_dir));
	r->state_dirfd = open(r->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(r->state_dirfd >= 0);
	(void)mkdirat(r->state_dirfd, "run", 0700);
}

bool guest_rig_open(struct guest_rig *r, const struct backend_ops *ops, struct backend_conf *conf)
{
	struct err e = ERR_NULL;

	if (!r->state_dir[0])
		guest_rig_prepare(r);
	conf->state_dirfd = r->state_dirfd;
	conf->state_dir = r->state_dir;
	r->ops = ops;
	if (ops->open(conf, &r->backend, &e) < 0 || guest_hub_new(&r->hub, &e) < 0 ||
	    ops->sweep(r->backend, NULL, 0, &e) < 0)
		fprintf(stderr, "backend %s: %s\n", ops->name, e.msg);
	if (e.code)
		guest_rig_close(r);
	return !e.code;
}

static void remove_tree(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, "..") &&
		    unlinkat(fd, de->d_name, 0) < 0)
			remove_tree(fd, de->d_name);
	if (d)
		closedir(d);
	(void)unlinkat(at, name, AT_REMOVEDIR);
}

void guest_rig_close(struct guest_rig *r)
{
	struct err e = ERR_NULL;

	if (r->backend)
		(void)r->ops->sweep(r->backend, NULL, 0, &e);
	guest_hub_free(r->hub);
	if (r->backend)
		r->ops->close(r->backend);
	close(r->state_dirfd);
	remove_tree(AT_FDCWD, r->state_dir);
}

static void on_output(void *arg, uint32_t num)
{
	struct box *b = arg;

	pthread_mutex_lock(&b->lock);
	if (num < BOX_NUMS)
		b->outputs[num]++;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

static void on_exited(void *arg, uint32_t num)
{
	struct box *b = arg;

	pthread_mutex_lock(&b->lock);
	if (num < BOX_NUMS)
		b->exits[num]++;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

static void on_gone(void *arg)
{
	struct box *b = arg;

	pthread_mutex_lock(&b->lock);
	b->gone = true;
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
}

static const struct guest_watch watch = { on_output, on_exited, on_gone };

int box_connect(struct box *b, struct err *e)
{
	return guest_connect(b->rig->hub, b->run_dirfd, b->secret, b->generation, &watch, b, &b->guest,
		e);
}

/* What images_use would find. */
static int plain_env(struct backend_image *ret)
{
	static const char *const env[] = { "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/sandbox/home",
		"USER=sandbox" };

	ret->env = calloc(ARRAY_LEN(env) + 1, sizeof(char *));
	assert_non_null(ret->env);
	for (size_t i = 0; i < ARRAY_LEN(env); i++)
		ret->env[i] = strdup(env[i]);
	return 0;
}

struct box *box_new(struct guest_rig *r)
{
	struct backend_spec like = { .disk_mb = 64 };

	return box_like(r, &like);
}

const struct backend_chain guest_rig_base = { .n = 1, .layers = { 4000000000u } };

void guest_rig_import_base(struct guest_rig *r)
{
	char path[4200];
	struct err e = ERR_NULL;
	int64_t bytes;
	bool covers;

	if (getenv("SBX_IMAGES"))
		snprintf(path, sizeof(path), "%s/base.tar", getenv("SBX_IMAGES"));
	else
		snprintf(path, sizeof(path), "%s/../images/base.tar", guest_rig_libexec());
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail_msg("%s", path);
	if (r->ops->layer_import(r->backend, guest_rig_base.layers[0], LAYER_ROOTFS, NULL, fd, &bytes,
		    &covers, &e) < 0)
		fail_msg("%s", e.msg);
	r->base = &guest_rig_base;
}

struct box *box_like(struct guest_rig *r, const struct backend_spec *like)
{
	struct box *b = calloc(1, sizeof(*b));
	struct backend_spec spec = { .image = "base", .hostname = "box", .cpus = 1, .memory_mb = 256,
		.disk_mb = like->disk_mb, .chain = like->chain ? like->chain : r->base, .volumes = like->volumes,
		.nvolumes = like->nvolumes };
	struct err e = ERR_NULL;
	char path[128];

	b->rig = r;
	b->next_num = 1;
	b->generation = 7;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->changed, NULL);
	assert_int_equal(getrandom(b->secret, sizeof(b->secret), 0), sizeof(b->secret));
	snprintf(b->id, sizeof(b->id), "sbx_%08x%08x", (unsigned)getpid(), ++r->made);
	snprintf(path, sizeof(path), "run/%s", b->id);
	assert_int_equal(mkdirat(r->state_dirfd, path, 0700), 0);
	b->run_dirfd = openat(r->state_dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	memcpy(spec.id, b->id, sizeof(spec.id));
	memcpy(spec.secret, b->secret, sizeof(spec.secret));
	spec.generation = b->generation;
	if ((spec.chain ? plain_env(&b->image)
			 : r->ops->image_ensure(r->backend, "base", &b->image, &e)) < 0 ||
	    r->ops->create(r->backend, &spec, NULL, &e) < 0 || box_connect(b, &e) < 0)
		fail_msg("%s", e.msg);
	return b;
}

void box_free(struct box *b)
{
	struct err e = ERR_NULL;

	if (b->guest)
		guest_free(b->guest);
	if (b->rig->ops->destroy(b->rig->backend, b->id, &e) < 0)
		fail_msg("%s", e.msg);
	close(b->run_dirfd);
	backend_image_free(&b->image);
	pthread_mutex_destroy(&b->lock);
	pthread_cond_destroy(&b->changed);
	free(b);
}

struct guest_start box_cmd(struct box *b, const char *const *argv)
{
	return (struct guest_start){ .argv = argv, .env = (const char *const *)b->image.env,
		.cwd = "/sandbox/home", .spool_fd = -1 };
}

static int spool_of(struct box *b, uint32_t num, int flags)
{
	char name[32];

	snprintf(name, sizeof(name), "p%u", num);
	return openat(b->run_dirfd, name, flags | O_CLOEXEC, 0600);
}

uint32_t box_start(struct box *b, struct guest_start *s, struct err *e)
{
	uint32_t num;

	pthread_mutex_lock(&b->lock);
	num = b->next_num++;
	pthread_mutex_unlock(&b->lock);
	_cleanup_close_ int fd = spool_of(b, num, O_RDWR | O_CREAT | O_EXCL);
	assert_true(fd >= 0);
	s->num = num;
	s->spool_fd = fd;
	return guest_start(b->guest, s, e) < 0 ? 0 : num;
}

uint32_t box_sh(struct box *b, const char *script)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	struct guest_start s = box_cmd(b, argv);
	struct err e = ERR_NULL;
	uint32_t num = box_start(b, &s, &e);

	if (!num)
		fail_msg("%s", e.msg);
	return num;
}

bool box_wait_exit(struct box *b, uint32_t num, int ms)
{
	struct timespec t = deadline_ms(patience_ms(ms));

	pthread_mutex_lock(&b->lock);
	while (!b->exits[num])
		if (!cond_wait_until(&b->changed, &b->lock, &t))
			break;
	bool r = b->exits[num] > 0;
	pthread_mutex_unlock(&b->lock);
	return r;
}

bool box_wait_gone(struct box *b, int ms)
{
	struct timespec t = deadline_ms(patience_ms(ms));

	pthread_mutex_lock(&b->lock);
	while (!b->gone)
		if (!cond_wait_until(&b->changed, &b->lock, &t))
			break;
	bool r = b->gone;
	pthread_mutex_unlock(&b->lock);
	return r;
}

static void *part(int fd, size_t len, off_t at)
{
	char *p = calloc(1, len + 1);

	assert_non_null(p);
	assert_int_equal(pread(fd, p, len, at), (ssize_t)len);
	return p;
}

void box_read(struct box *b, uint32_t num, struct spooled *ret)
{
	_cleanup_close_ int fd = spool_of(b, num, O_RDONLY);
	struct spool_head *h = mmap(NULL, SPOOL_OUT, PROT_READ, MAP_SHARED, fd, 0);

	assert_true(h != MAP_FAILED);
	*ret = (struct spooled){ .state = __atomic_load_n(&h->state, __ATOMIC_ACQUIRE),
		.exit_code = h->exit_code, .flags = h->flags };
	for (int i = 0; i < 2; i++) {
		ret->len[i] = (size_t)__atomic_load_n(&h->kept[i], __ATOMIC_ACQUIRE);
		ret->dropped[i] = __atomic_load_n(&h->dropped[i], __ATOMIC_ACQUIRE);
		assert_true(ret->len[i] <= SPOOL_CAP);
		ret->out[i] = part(fd, ret->len[i], i ? SPOOL_ERR : SPOOL_OUT);
	}
	ret->runs = __atomic_load_n(&h->runs, __ATOMIC_ACQUIRE);
	ret->order = part(fd, ret->runs * sizeof(uint32_t), SPOOL_ORDER);
	munmap(h, SPOOL_OUT);
}

void spooled_free(struct spooled *o)
{
	free(steal(o->out[0]));
	free(steal(o->out[1]));
	free(steal(o->order));
}

void box_run(struct box *b, const char *script, struct spooled *ret)
{
	uint32_t num = box_sh(b, script);

	assert_true(box_wait_exit(b, num, 30000));
	box_read(b, num, ret);
	assert_int_equal(ret->state, SPOOL_EXITED);
}

static bool holds(struct box *b, uint32_t num, const char *text)
{
	_cleanup_(spooled_free_p) struct spooled o;

	box_read(b, num, &o);
	return strstr(o.out[0], text) != NULL;
}

bool box_wait_output(struct box *b, uint32_t num, const char *text, int ms)
{
	struct timespec t = deadline_ms(patience_ms(ms));
	unsigned seen;

	for (;;) {
		pthread_mutex_lock(&b->lock);
		seen = b->outputs[num];
		pthread_mutex_unlock(&b->lock);
		if (holds(b, num, text))
			return true;
		pthread_mutex_lock(&b->lock);
		bool over = false;
		while (seen == b->outputs[num] && !over)
			over = !cond_wait_until(&b->changed, &b->lock, &t);
		pthread_mutex_unlock(&b->lock);
		if (over)
			return holds(b, num, text);
	}
}

static bool has_text(const char *pid, const char *text)
{
	char path[300], buf[4096];

	snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, buf, sizeof(buf) - 1);
	if (n <= 0)
		return false;
	for (ssize_t i = 0; i < n; i++)
		if (!buf[i])
			buf[i] = ' ';
	buf[n] = 0;
	return strstr(buf, text) != NULL;
}

unsigned host_count(const char *text)
{
	DIR *d = opendir("/proc");
	struct dirent *de;
	unsigned n = 0;

	while ((de = readdir(d)))
		if (de->d_name[0] >= '1' && de->d_name[0] <= '9')
			n += has_text(de->d_name, text);
	closedir(d);
	return n;
}

bool wait_some(const char *text, int ms)
{
	const struct timespec pause = { .tv_nsec = 5000000 };
	int64_t end = mono_ms() + patience_ms(ms);

	while (host_count(text) == 0) {
		if (mono_ms() > end)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

bool wait_count(const char *text, unsigned want, int ms)
{
	const struct timespec pause = { .tv_nsec = 5000000 };
	int64_t end = mono_ms() + patience_ms(ms);

	while (host_count(text) != want) {
		if (mono_ms() > end)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}
