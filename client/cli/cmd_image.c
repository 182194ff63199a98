/* SPDX-License-Identifier: MIT */
/* Images: those of the server, and archives in the image folder of this host. */
#include "client/cli/cmds.h"

#include "common/api/ids.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PULL_LOOK_MS 250
#define DIGEST_SHOWN 19 /* "sha256:" and the first dozen digits */

static char *show_digest(json_t *row, const char *key)
{
	const char *text = json_string_value(json_object_get(row, key));

	return strndup(text ? text : "", DIGEST_SHOWN);
}

static void show_images(json_t *v)
{
	static const struct column cols[] = {
		{ "IMAGE", "image", NULL },
		{ "STATE", "state", NULL },
		{ "SIZE", "bytes", show_bytes },
		{ "IN USE", "in_use", NULL },
		{ "DEFAULT", "default", NULL },
		{ "AGE", "installed_at", show_age },
		{ "DIGEST", "digest", show_digest },
	};

	put_table(json_object_get(v, "images"), cols, ARRAY_LEN(cols));
}

/* A server without image management still says on its node page which images are ready. */
static void show_node_images(json_t *v)
{
	json_t *name;
	size_t i;

	json_array_foreach (json_object_get(v, "images"), i, name) {
		put_text(json_string_value(name) ? json_string_value(name) : "");
		putchar('\n');
	}
}

static void show_names(json_t *v)
{
	put_names(json_object_get(v, "images"), "image");
}

int cmd_image_ls(struct cli *c)
{
	if (!c->json && !server_can(c, "images"))
		return ask_show(c, "GET", strdup("/v1/node"), NULL, show_node_images);
	return ask_show(c, "GET", strdup("/v1/images"), NULL,
		opt_has(c, OPT_QUIET) ? show_names : show_images);
}

/* How far an install is, for a terminal. */
static void show_install(const struct sbx_image *v)
{
	_cleanup_json_ json_t *o = json_pack("{s:I,s:I}", "done", (json_int_t)v->done, "total",
		(json_int_t)v->total);
	_cleanup_free_ char *done = show_bytes(o, "done"), *total = show_bytes(o, "total");
	char line[400];

	snprintf(line, sizeof(line), "%s: %s %s%s%s", v->image,
		v->phase[0] ? v->phase : "installing", v->done && done ? done : "",
		v->total ? " of " : "", v->total && total ? total : "");
	put_progress(line);
}

static int find_image(struct cli *c, const char *ref, struct sbx_image *ret, struct sbx_error *e)
{
	struct sbx_image *all = NULL;
	size_t n, i;

	if (sbx_image_list(c->s, &all, &n, e) < 0)
		return -1;
	for (i = 0; i < n && strcmp(all[i].image, ref) != 0; i++)
		;
	if (i < n)
		*ret = all[i];
	free(all);
	if (i < n)
		return 0;
	*e = (struct sbx_error){ .status = 404, .code = "not_found" };
	snprintf(e->message, sizeof(e->message),
		"the server no longer lists the image; it was removed meanwhile");
	return -1;
}

/* Its record once more as the API has it. */
static int print_image(struct cli *c, const char *ref)
{
	_cleanup_json_ json_t *v = NULL;
	json_t *row;
	size_t i;

	if (!c->json) {
		put_text(ref);
		putchar('\n');
		return 0;
	}
	if (ask_json(c, "GET", strdup("/v1/images"), NULL, &v) < 0)
		return 1;
	json_array_foreach (json_object_get(v, "images"), i, row) {
		const char *name = json_string_value(json_object_get(row, "image"));
		_cleanup_free_ char *text = name && !strcmp(name, ref) ? json_text(row) : NULL;
		if (text)
			puts(text);
	}
	return 0;
}

/* An install goes on without us: an interrupted sbx cancels nothing. */
int cmd_image_pull(struct cli *c)
{
	const char *ref = c->pos[0];
	struct sbx_image v;
	struct sbx_error e;
	int bad = sbx_image_install(c->s, ref, &v, &e);

	while (bad == 0 && !strcmp(v.state, "installing") && !opt_has(c, OPT_DETACH)) {
		show_install(&v);
		ask_pause(PULL_LOOK_MS);
		bad = find_image(c, ref, &v, &e);
	}
	put_progress("");
	if (bad < 0)
		return fail(&e);
	if (!strcmp(v.state, "failed")) {
		complain(0, "%s was not installed:", ref);
		put_complaint(v.error[0] ? v.error : "the server does not say why");
		return 1;
	}
	return print_image(c, ref);
}

static void show_freed(json_t *v)
{
	_cleanup_free_ char *freed = show_bytes(v, "freed_bytes");

	printf("freed %s\n", freed ? freed : "?");
}

int cmd_image_rm(struct cli *c)
{
	int code = 0;

	for (int i = 0; i < c->n_pos; i++)
		code |= ask_show(c, "DELETE", sbx_path("/v1/images?image=%s", c->pos[i]), NULL,
			show_freed);
	return code;
}

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

/* Copies into a new file beside the target, which then takes its name: a server that looks meanwhile
 * sees the old archive or the whole new one. */
static int copy_into(const char *from, const char *target)
{
	_cleanup_free_ char *part = NULL;
	_cleanup_close_ int in = open(from, O_RDONLY | O_CLOEXEC), out = -1;
	int n;

	if (in < 0)
		return complain(1, "%s: %s", from, strerrordesc_np(errno));
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

int cmd_image_import(struct cli *c)
{
	const char *from = c->pos[0], *name = c->pos[1];
	_cleanup_free_ char *dir = image_folder(c), *target = NULL;
	int code;

	if (!name_ok(name))
		return complain(EXIT_USAGE, "NAME has a-z, 0-9 and -, at most 63: %s", name);
	if (!dir || asprintf(&target, "%s/%s.tar", dir, name) < 0)
		return complain(1, "no image folder that you may write; name it with --image-dir");
	code = copy_into(from, target);
	if (code == 0)
		printf("%s\n", target);
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

