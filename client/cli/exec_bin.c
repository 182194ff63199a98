/* SPDX-License-Identifier: MIT */
/* `#!/usr/bin/sbx --bin`: the file that the kernel hands over is MOUNT/BOX/bin/PROGRAM. Its second
 * line names the server and the sandbox:  # sbx ENDPOINT SANDBOX
 * The caller's directory, when it lies in MOUNT/BOX/fs, is the command's. */
#include "client/cli/cli.h"

#include "common/api/ids.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#define MARK "# sbx "

/* Cuts the second line into endpoint and id, in place. */
static int parse_lines(char *text, char **ret_endpoint, char **ret_id)
{
	char *line = strchr(text, '\n'), *space;

	if (!line || strncmp(line + 1, MARK, strlen(MARK)) != 0)
		return -1;
	line += 1 + strlen(MARK);
	line[strcspn(line, "\n")] = '\0';
	space = strrchr(line, ' ');
	if (!space || space == line)
		return -1;
	*space = '\0';
	*ret_endpoint = line;
	*ret_id = space + 1;
	return id_is_sandbox(*ret_id) ? 0 : -1;
}

static int read_file(const char *file, char *buf, size_t size)
{
	_cleanup_close_ int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	if (n < 0)
		return -1;
	buf[n] = '\0';
	return 0;
}

/* The caller's directory inside the guest, or NULL when it lies elsewhere. Both paths are physical.
 */
static char *guest_cwd(const char *file)
{
	_cleanup_free_ char *name = NULL, *root = NULL, *cwd = NULL;
	const char *slash = strrchr(file, '/');
	struct stat a, b;
	size_t n;

	if (asprintf(&name, "%.*s/../fs", slash ? (int)(slash - file) : 1, slash ? file : ".") < 0)
		name = NULL;
	root = name ? realpath(name, NULL) : NULL;
	cwd = getcwd(NULL, 0);
	if (!root || !cwd)
		return NULL;
	n = strlen(root);
	if (strncmp(cwd, root, n) != 0 || (cwd[n] && cwd[n] != '/'))
		return NULL;
	/* Same device: what else is mounted below fs/ is not the guest's. */
	if (stat(root, &a) < 0 || stat(".", &b) < 0 || a.st_dev != b.st_dev)
		return NULL;
	return strdup(cwd[n] ? cwd + n : "/");
}

static const char **command_line(const char *file, int argc, char **argv)
{
	const char *slash = strrchr(file, '/');
	const char **out = calloc((size_t)argc, sizeof(*out));

	if (!out)
		return NULL;
	out[0] = slash ? slash + 1 : file;
	for (int i = 3; i < argc; i++)
		out[i - 2] = argv[i];
	return out;
}

/* Who may use the mount but not the server's socket, or has no token, goes through the mount's own
 * files. */
static void through_mount(const struct cli *c, const char *const *argv)
{
	const char *slash = strrchr(c->bin_file, '/');
	_cleanup_free_ char *script = NULL;
	_cleanup_free_ const char **line = NULL;
	size_t n = 0;

	while (argv[n])
		n++;
	line = calloc(n + 2, sizeof(*line));
	if (!line || asprintf(&script, "%.*s/../exec", slash ? (int)(slash - c->bin_file) : 1,
			     slash ? c->bin_file : ".") < 0) {
		script = NULL;
		return;
	}
	line[0] = script;
	memcpy(line + 1, argv, n * sizeof(*line));
	signal(SIGPIPE, SIG_DFL);
	execv(script, (char *const *)(uintptr_t)line);
	signal(SIGPIPE, SIG_IGN);
}

int exec_bin(int argc, char **argv)
{
	char text[4096], *endpoint, *id;
	_cleanup_free_ const char **line = NULL;
	_cleanup_free_ char *cwd = NULL;
	struct cli c = { .detour = through_mount };
	struct sbx_options opt = { 0 };
	struct sbx_error e;
	int code;

	if (argc < 3 || read_file(argv[2], text, sizeof(text)) < 0 ||
		parse_lines(text, &endpoint, &id) < 0)
		return complain(
			EXIT_OURS, "--bin is for the files in the bin folder of a mounted sandbox");
	opt.endpoint = endpoint;
	c.bin_file = argv[2];
	line = command_line(argv[2], argc, argv);
	if (!line)
		return complain(EXIT_OURS, "out of memory");
	if (sbx_open(&opt, &c.s, &e) < 0) {
		fail(&e);
		return EXIT_OURS;
	}
	cwd = guest_cwd(argv[2]);
	code = run_command(&c, id, line, cwd, isatty(STDIN_FILENO) && isatty(STDOUT_FILENO), false);
	sbx_close(c.s);
	return code;
}
