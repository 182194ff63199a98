/* SPDX-License-Identifier: MIT */
/* sbx cp. A guest's listing is untrusted: on this side every name is one element below a folder
 * that was opened without following links, so that nothing is written outside the target. */
#include "client/cli/cmds.h"

#include "common/sys/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define DEPTH_MAX 256

/* "box:/path" is a sandbox's side; "./a:b" and "/a:b" are ours. */
static bool split_remote(const char *arg, char **ret_ref, const char **ret_path)
{
	const char *colon = strchr(arg, ':');

	if (!colon || colon == arg || memchr(arg, '/', (size_t)(colon - arg)))
		return false;
	*ret_ref = strndup(arg, (size_t)(colon - arg));
	*ret_path = colon[1] ? colon + 1 : "/sandbox/home";
	return *ret_ref != NULL;
}

static int local_error(const char *what)
{
	return complain(1, "%s: %s", what, strerrordesc_np(errno));
}

static const char *last_element(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Without the slashes that completion puts behind a folder: as with cp(1), they do not mean its
 * content. */
static char *trimmed(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	return strndup(path, n);
}

/* Copying onto a folder means into it, as with cp(1). */
static bool is_remote_folder(struct cli *c, const char *ref, const char *path)
{
	struct sbx_error e;

	return ask(c, "GET", sbx_path("/v1/sandboxes/%s/dirs?path=%S", ref, path), NULL, NULL,
		       &e) == 0;
}

/* ---- out of the sandbox ---- */

static bool name_safe(const char *name)
{
	return name && *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
	       !strchr(name, '/');
}

/* The bits that chmod takes, from a number or an octal string; -1: not told. */
static int mode_of(json_t *v)
{
	json_t *m = json_object_get(v, "mode");

	if (json_is_integer(m))
		return (int)(json_integer_value(m) & 0777);
	return json_is_string(m) ? (int)(strtol(json_string_value(m), NULL, 8) & 0777) : -1;
}

static int fetch_tree(
	struct cli *c, const char *ref, const char *path, int dir, const char *name, int depth);

static int fetch_entry(
	struct cli *c, const char *ref, const char *path, int dir, json_t *v, int depth)
{
	const char *type = json_string_value(json_object_get(v, "type"));
	_cleanup_free_ char *name = entry_bytes(v, "name"), *target = entry_bytes(v, "target"),
			    *below = NULL;

	if (!name_safe(name) || !type ||
		asprintf(&below, "%s/%s", strcmp(path, "/") ? path : "", name) < 0)
		return complain(
			1, "%s: an entry was left out, its name cannot be a file's here", path);
	if (!strcmp(type, "dir"))
		return fetch_tree(c, ref, below, dir, name, depth + 1);
	if (!strcmp(type, "file"))
		return fetch_file(c, ref, below, dir, name, mode_of(v));
	if (!strcmp(type, "link") && target) {
		unlinkat(dir, name, 0);
		return symlinkat(target, dir, name) < 0 ? local_error(name) : 0;
	}
	return complain(1, "%s: left out, it is neither file, folder nor link", below);
}

static int fetch_tree(
	struct cli *c, const char *ref, const char *path, int dir, const char *name, int depth)
{
	_cleanup_json_ json_t *list = NULL;
	_cleanup_close_ int fd = -1;
	struct sbx_error e;
	json_t *v;
	size_t i;
	int code = 0;

	if (depth > DEPTH_MAX)
		return complain(1, "%s: nested too deeply", path);
	if (dir_entries(c, ref, path, &list, &e) < 0)
		return fail(&e);
	if (mkdirat(dir, name, 0777) < 0 && errno != EEXIST)
		return local_error(name);
	/* The user's own choice of a target may be a link; what the guest names may not. */
	fd = openat(dir, name, O_DIRECTORY | O_CLOEXEC | (depth ? O_NOFOLLOW : 0));
	if (fd < 0)
		return local_error(name);
	json_array_foreach (list, i, v)
		code |= fetch_entry(c, ref, path, fd, v, depth);
	return code;
}

/* -1: not told; then the file arrives without execute bits. */
static int mode_at(struct cli *c, const char *ref, const char *path)
{
	_cleanup_json_ json_t *v = NULL;
	struct sbx_response r;
	struct sbx_error e;

	if (ask(c, "GET", sbx_path("/v1/sandboxes/%s/fs/stat?path=%S", ref, path), NULL, &r, &e) < 0)
		return -1;
	if (json_parse_any(r.body, r.len, 1 << 20, &v, NULL) < 0)
		v = NULL;
	sbx_response_free(&r);
	return mode_of(v);
}

static int copy_out(struct cli *c, const char *ref, const char *path, const char *local)
{
	_cleanup_free_ char *target = NULL;
	struct stat st;

	if (!strcmp(local, "-"))
		return fetch_out(c, ref, path, STDOUT_FILENO);
	if (stat(local, &st) == 0 && S_ISDIR(st.st_mode) && *last_element(path))
		target = asprintf(&target, "%s/%s", local, last_element(path)) < 0 ? NULL : target;
	else
		target = strdup(local);
	if (!target)
		return complain(1, "out of memory");
	if (opt_has(c, OPT_RECURSE) && is_remote_folder(c, ref, path))
		return fetch_tree(c, ref, path, AT_FDCWD, target, 0);
	return fetch_to(c, ref, path, target, opt_has(c, OPT_RECURSE) ? mode_at(c, ref, path) : -1);
}

/* ---- into the sandbox ---- */

/* Modes and links need the batch call; without it files arrive with the server's mode. */
static int set_mode(struct cli *c, const char *ref, const char *path, mode_t mode)
{
	struct sbx_error e;
	char octal[8];
	json_t *op;

	if ((mode & 0777) == 0644)
		return 0;
	snprintf(octal, sizeof(octal), "%04o", (unsigned)(mode & 0777));
	op = path_op("chmod", path);
	json_object_set_new(op, "mode", json_string(octal));
	if (file_op(c, ref, op, &e) < 0)
		return e.status == 501 ? 0 : fail(&e);
	return 0;
}

static int send_file(
	struct cli *c, const char *ref, int dir, const char *name, const char *path, bool follow)
{
	/* What was a file a moment ago may be a pipe by now, where somebody else may write in the folder. */
	_cleanup_close_ int fd =
		openat(dir, name, O_RDONLY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW | O_NONBLOCK));
	struct stat st;
	struct sbx_error e;

	if (fd < 0 || fstat(fd, &st) < 0)
		return local_error(name);
	if (!follow && !S_ISREG(st.st_mode))
		return complain(1, "%s: left out, it is neither file, folder nor link", name);
	if (file_upload(c, ref, path, fd, &e) < 0)
		return fail(&e);
	return S_ISREG(st.st_mode) ? set_mode(c, ref, path, st.st_mode) : 0;
}

static int make_link(
	struct cli *c, const char *ref, const char *path, const char *target, struct sbx_error *e)
{
	json_t *op = path_op("symlink", path);

	(void)put_bytes(op, "target", target);
	return file_op(c, ref, op, e);
}

static int send_link(struct cli *c, const char *ref, int dir, const char *name, const char *path)
{
	char target[4096];
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
	struct sbx_error e;

	if (n < 0)
		return local_error(name);
	target[n] = '\0';
	/* What has the name already is replaced, as a file is; a folder is not. */
	if (make_link(c, ref, path, target, &e) == 0)
		return 0;
	if (e.sys != EEXIST)
		return fail(&e);
	if (file_op(c, ref, path_op("unlink", path), &e) < 0 ||
		make_link(c, ref, path, target, &e) < 0)
		return fail(&e);
	return 0;
}

static int make_folder(struct cli *c, const char *ref, const char *path)
{
	json_t *op = path_op("mkdir", path);
	struct sbx_error e;

	json_object_set_new(op, "mode", json_string("0755"));
	if (file_op(c, ref, op, &e) == 0 || e.sys == EEXIST)
		return 0;
	/* A plain write makes the folders above a file by itself; only empty ones are lost. */
	return e.status == 501 ? 0 : fail(&e);
}

static int send_tree(
	struct cli *c, const char *ref, int dir, const char *name, const char *path, int depth);

static int send_entry(
	struct cli *c, const char *ref, int dir, const char *name, const char *path, int depth)
{
	_cleanup_free_ char *below = NULL;
	struct stat st;

	if (asprintf(&below, "%s/%s", path, name) < 0)
		return complain(1, "out of memory");
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return local_error(name);
	if (S_ISDIR(st.st_mode))
		return send_tree(c, ref, dir, name, below, depth + 1);
	if (S_ISREG(st.st_mode))
		return send_file(c, ref, dir, name, below, false);
	if (S_ISLNK(st.st_mode))
		return send_link(c, ref, dir, name, below);
	return complain(1, "%s: left out, it is neither file, folder nor link", name);
}

static void closedir_p(DIR **d)
{
	if (*d)
		closedir(*d);
}

static int send_tree(
	struct cli *c, const char *ref, int dir, const char *name, const char *path, int depth)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (depth ? O_NOFOLLOW : 0)),
	    code;
	_cleanup_(closedir_p) DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d || depth > DEPTH_MAX)
		return local_error(name);
	code = make_folder(c, ref, path);
	for (struct dirent *de; (errno = 0, de = readdir(d));)
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			code |= send_entry(c, ref, dirfd(d), de->d_name, path, depth);
	return errno ? local_error(name) : code; /* not all of it was read */
}

static int copy_in(struct cli *c, const char *local, const char *ref, const char *path)
{
	_cleanup_free_ char *target = NULL;
	bool in = !strcmp(local, "-"), slash = path[strlen(path) - 1] == '/';
	struct sbx_error e;
	struct stat st;

	if (!in && (slash || is_remote_folder(c, ref, path)))
		target =
			asprintf(&target, "%s%s%s", path, slash ? "" : "/", last_element(local)) < 0
				? NULL
				: target;
	else
		target = strdup(path);
	if (!target)
		return complain(1, "out of memory");
	if (in)
		return file_upload(c, ref, target, STDIN_FILENO, &e) < 0 ? fail(&e) : 0;
	if (stat(local, &st) < 0)
		return local_error(local);
	if (!S_ISDIR(st.st_mode))
		return send_file(c, ref, AT_FDCWD, local, target, true);
	if (!opt_has(c, OPT_RECURSE))
		return complain(1, "%s is a folder; -r copies it", local);
	return send_tree(c, ref, AT_FDCWD, local, target, 0);
}

int cmd_cp(struct cli *c)
{
	_cleanup_free_ char *from_ref = NULL, *to_ref = NULL, *source = NULL;
	const char *from = c->pos[0], *to = c->pos[1];
	bool out = split_remote(c->pos[0], &from_ref, &from),
	     in = split_remote(c->pos[1], &to_ref, &to);

	if (out && in)
		return complain(
			EXIT_USAGE, "copy to this side first; one of FROM and TO must be here");
	if (!out && !in)
		return complain(EXIT_USAGE, "one of FROM and TO must be BOX:/PATH");
	source = opt_has(c, OPT_RECURSE) ? trimmed(from) : strdup(from);
	if (!source)
		return complain(1, "out of memory");
	return out ? copy_out(c, from_ref, source, c->pos[1]) : copy_in(c, source, to_ref, to);
}
