/* SPDX-License-Identifier: MIT */
/* Archives in the image folder of this host, from where a server takes them when they are first
 * used. The end of a file's name says what it is: NAME.tar holds a root file system, NAME.oci.tar
 * and NAME.docker.tar an image as other tools write it. */
#include "client/cli/cmds.h"

#include "common/api/ids.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The folder of this program, which tells the installed tree from the build tree. */
static char *own_folder(void)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n <= 0)
		return NULL;
	path[n] = '\0';
	*strrchr(path, '/') = '\0';
	return strdup(path);
}

/* The first of the places, seen from this program's folder, that is there. Caller frees. */
static char *find_place(const char *const *places, const char *name, int mode)
{
	_cleanup_free_ char *own = own_folder();

	for (; own && *places; places++) {
		char *path;
		if (asprintf(&path, "%s/%s/%s", own, *places, name) < 0)
			return NULL;
		if (access(path, mode) == 0)
			return path;
		free(path);
	}
	return NULL;
}

static char *image_folder(struct cli *c)
{
	static const char *const places[] = { "../share/sandboxd", "..", NULL };

	return opt_has(c, OPT_IMAGEDIR) ? strdup(opt_get(c, OPT_IMAGEDIR))
					: find_place(places, "images", W_OK);
}

/* ---- import ---- */

static const char *const suffixes[] = { ".tar", ".oci.tar", ".docker.tar", ".oci" };
enum { ROOTFS, OCI, DOCKER };

#define TAR_BLOCK   512
#define TAR_ENTRIES 100000 /* after so many it is a root file system, or something stranger */

/* An octal number of a header; -1: it is none. */
static off_t tar_number(const char *p, size_t n)
{
	off_t v = 0;

	for (; n && *p == ' '; n--)
		p++;
	for (; n && *p >= '0' && *p <= '7'; p++, n--)
		v = v * 8 + (*p - '0');
	return n && *p && *p != ' ' ? -1 : v;
}

/* What an archive holds, told by the names of its entries. A compressed one is taken for a root
 * file system; so is what cannot be read, of which the server then says what is wrong. */
static int kind_of(int fd)
{
	int kind = ROOTFS;
	char h[TAR_BLOCK];
	off_t at = 0;

	for (int i = 0; i < TAR_ENTRIES; i++) {
		const char *name = h;
		off_t size;
		if (pread(fd, h, sizeof(h), at) != sizeof(h) || memcmp(h + 257, "ustar", 5) != 0)
			break;
		size = tar_number(h + 124, 12);
		if (size < 0)
			break;
		name += !strncmp(name, "./", 2) ? 2 : 0;
		if (!strcmp(name, "oci-layout"))
			return OCI; /* newer tools write both */
		if (!strcmp(name, "manifest.json"))
			kind = DOCKER;
		at += TAR_BLOCK + (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
	}
	return kind;
}

/* 1: more may come, 0: the end, -1 with errno. */
static int copy_piece(int in, int out)
{
	char buf[65536];
	ssize_t n;

	do
		n = read(in, buf, sizeof(buf));
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return (int)n;
	n = fd_write_full(out, buf, (size_t)n);
	if (n < 0)
		errno = (int)-n;
	return n < 0 ? -1 : 1;
}

/* Copies into a new file beside the target, which then takes its name: a server that looks
 * meanwhile sees the old archive or the whole new one. */
static int copy_into(int in, const char *target)
{
	_cleanup_free_ char *part = NULL;
	_cleanup_close_ int out = -1;
	int n;

	if (asprintf(&part, "%s.part-%d", target, (int)getpid()) < 0)
		return complain(1, "out of memory");
	out = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (out < 0)
		return complain(1, "%s: %s", part, strerrordesc_np(errno));
	do
		n = copy_piece(in, out);
	while (n > 0);
	if (n == 0 && fsync(out) == 0 && rename(part, target) == 0)
		return 0;
	complain(1, "%s: %s", target, strerrordesc_np(errno));
	unlink(part);
	return 1;
}

/* The image of that name in its other forms, of which the server would take one. */
static void drop_others(const char *dir, const char *name, const char *suffix)
{
	for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
		_cleanup_free_ char *other = NULL;
		struct stat st;
		if (!strcmp(suffixes[i], suffix) ||
			asprintf(&other, "%s/%s%s", dir, name, suffixes[i]) < 0)
			continue;
		if (unlink(other) < 0 && lstat(other, &st) == 0)
			complain(
				0, "%s is there as well; remove the one that is not wanted", other);
	}
}

int cmd_image_import(struct cli *c)
{
	const char *from = c->pos[0], *name = c->pos[1], *suffix;
	_cleanup_free_ char *dir = image_folder(c), *target = NULL;
	_cleanup_close_ int in = -1;
	struct stat st;
	int code;

	if (!name_ok(name))
		return complain(EXIT_USAGE, "NAME has a-z, 0-9 and -, at most 63: %s", name);
	in = open(from, O_RDONLY | O_CLOEXEC);
	if (in < 0 || fstat(in, &st) < 0)
		return complain(1, "%s: %s", from, strerrordesc_np(errno));
	if (!S_ISREG(st.st_mode))
		return complain(
			1, "%s is not an archive; an OCI layout is copied to NAME.oci", from);
	suffix = suffixes[kind_of(in)];
	if (!dir || asprintf(&target, "%s/%s%s", dir, name, suffix) < 0)
		return complain(1, "no image folder that you may write; name it with --image-dir");
	code = copy_into(in, target);
	if (code == 0) {
		drop_others(dir, name, suffix);
		printf("%s\n", target);
	}
	return code;
}

int cmd_image_build(struct cli *c)
{
	static const char *const tool_places[] = { "../libexec/sandboxd", "../../scripts", NULL };
	_cleanup_free_ char *script = NULL, *tool = NULL, *dir = NULL, *target = NULL;
	int status;
	pid_t pid;

	if (strcmp(c->pos[0], "debian") != 0)
		return complain(1,
			"there is a recipe for the image `debian` only; put other root file "
			"systems as NAME.tar into the image folder");
	if (asprintf(&script, "image-%s", c->pos[0]) < 0)
		return complain(1, "out of memory");
	tool = find_place(tool_places, script, X_OK);
	dir = image_folder(c);
	if (!tool)
		return complain(1, "%s is not installed beside sbx (libexec/sandboxd)", script);
	if (!dir || asprintf(&target, "%s/%s.tar", dir, c->pos[0]) < 0)
		return complain(1, "no image folder that you may write; name it with --image-dir");
	pid = fork();
	if (pid == 0) {
		execl(tool, tool, target, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return complain(1, "%s: %s", tool, strerrordesc_np(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return complain(1, "%s did not make the image", tool);
	printf("%s\n", target);
	return 0;
}
