/* SPDX-License-Identifier: MIT */
#include "sandboxd/paths.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int program_dir(char out[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);

	if (n <= 0)
		return -1;
	out[n] = '\0';
	*strrchr(out, '/') = '\0';
	return 0;
}

static int absolute(const char *path, const char *what, char **ret, struct err *e)
{
	*ret = realpath(path, NULL);
	return *ret ? 0 : err_sys(e, errno, "%s \"%s\"", what, path);
}

/* The first of the candidates (below the program's folder) in which `mark` is. */
static int find(const char *const *candidates, const char *mark, const char *what, char **ret,
	struct err *e)
{
	char dir[PATH_MAX], path[2 * PATH_MAX];

	if (program_dir(dir) < 0)
		return err_sys(e, errno, "own program");
	for (; *candidates; candidates++) {
		snprintf(path, sizeof(path), "%s/%s/%s", dir, *candidates, mark);
		if (access(path, F_OK) < 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, *candidates);
		return absolute(path, what, ret, e);
	}
	return err_set(e, ERR_NOT_FOUND, "%s not found near \"%s\"", what, dir);
}

int path_libexec(const char *given, char **ret, struct err *e)
{
	static const char *const near[] = { ".", "../libexec/sandboxd", NULL };

	return given ? absolute(given, "--libexec-dir", ret, e)
		     : find(near, "sbx-shim", "sbx-shim (see --libexec-dir)", ret, e);
}

int path_images(const char *given, char **ret, struct err *e)
{
	static const char *const near[] = { "../share/sandboxd/images", "../images", NULL };

	return given ? absolute(given, "--image-dir", ret, e)
		     : find(near, ".", "image directory (see --image-dir)", ret, e);
}

static int default_state(char *out, size_t size, struct err *e)
{
	const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");

	if (geteuid() == 0)
		snprintf(out, size, "/var/lib/sandboxd");
	else if (data && *data)
		snprintf(out, size, "%s/sandboxd", data);
	else if (home && *home)
		snprintf(out, size, "%s/.local/share/sandboxd", home);
	else
		return err_set(e, ERR_INVALID_REQUEST, "HOME is not set: say --state-dir");
	return 0;
}

static int make_dirs(char *path, struct err *e)
{
	for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			return err_sys(e, errno, "folder \"%s\"", path);
		*p = '/';
	}
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "state directory \"%s\"", path);
	return 0;
}

int path_state(const char *given, char **ret, struct err *e)
{
	char path[PATH_MAX];

	if (!given && default_state(path, sizeof(path), e) < 0)
		return -1;
	if (given && (size_t)snprintf(path, sizeof(path), "%s", given) >= sizeof(path))
		return err_sys(e, ENAMETOOLONG, "--state-dir");
	if (!*path)
		return err_set(e, ERR_INVALID_REQUEST, "--state-dir is empty");
	if (make_dirs(path, e) < 0)
		return -1;
	return absolute(path, "state directory", ret, e);
}
