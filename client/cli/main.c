/* SPDX-License-Identifier: MIT */
/* sbx: sandboxes from the command line. Finds the command in the table, opens the server, runs it.
 */
#include "client/cli/cli.h"

#include "client/cli/cmds.h"
#include "common/sys/mem.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <string.h>

#define B(id) OPT_BIT(id)
const struct command commands[] = {
#define C(noun, verb, brief, fn, min, max, raw, flags, opts, args, help)                           \
	{ noun, verb, brief, fn, min, max, raw, flags, opts, args, help },
#include "client/cli/commands.def"
#undef C
};
const size_t n_commands = ARRAY_LEN(commands);

int cli_connect(struct cli *c, struct sbx_error *e)
{
	struct sbx_options opt = {
		.endpoint = opt_get(c, OPT_ENDPOINT),
		.token_file = opt_get(c, OPT_TOKEN),
		.ca_file = opt_get(c, OPT_CA),
	};

	return c->s ? 0 : sbx_open(&opt, &c->s, e);
}

static int dispatch(struct cli *c)
{
	struct sbx_error e;

	if (opt_has(c, OPT_HELP) || !c->cmd)
		return cmd_help(c);
	if (!(c->cmd->flags & OFFLINE) && cli_connect(c, &e) < 0) {
		fail(&e);
		return c->cmd->raw ? EXIT_OURS : 1;
	}
	return c->cmd->run(c);
}

/* A descriptor that we open must never take the place of a missing standard stream. */
static void fill_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

int main(int argc, char **argv)
{
	struct cli c = { 0 };
	int code, bad;

	fill_streams();
	setlocale(LC_CTYPE, "");
	/* A closed pipe is met as a failed write, so that a remote command can be ended as well. */
	signal(SIGPIPE, SIG_IGN);
	if (argc > 1 && !strcmp(argv[1], "--bin"))
		return exec_bin(argc, argv);
	if (argc > 1 && !strcmp(argv[1], "--version")) {
		puts("sbx " SBX_VERSION);
		return 0;
	}
	code = args_parse(&c, argc, argv) < 0 ? EXIT_USAGE : dispatch(&c);
	if (code == EXIT_USAGE && c.cmd && c.cmd->raw)
		code = EXIT_OURS; /* 2 might be the command's own */
	sbx_close(c.s);
	args_free(&c);
	bad = finish_output();
	return bad > 1 || code == 0 ? bad : code;
}
