/* SPDX-License-Identifier: MIT */
/* Help and shell completion, both written from the command table. */
#include "client/cli/cmds.h"

#include "common/sys/mem.h"

#include <string.h>

static void put_options(unsigned long long set)
{
	for (int i = 0; i < OPT_COUNT; i++) {
		const struct option_row *o = &option_rows[i];
		char left[64];
		if (!(set >> i & 1))
			continue;
		snprintf(left, sizeof(left), "--%s%s%s", o->name, o->value ? " " : "",
			o->value ? o->value : "");
		if (o->letter)
			printf("  -%c, %-20s %s\n", o->letter, left, o->help);
		else
			printf("      %-20s %s\n", left, o->help);
	}
}

static void help_command(const struct command *k)
{
	usage_of(stdout, k);
	printf("%s\n", k->help);
	if (k->opts)
		puts("options:");
	put_options(k->opts);
	puts("everywhere:");
	put_options(OPTS_EVERYWHERE);
}

static void help_all(void)
{
	puts("usage: sbx COMMAND [OPTION...] [ARG...]\n\neveryday commands:");
	for (size_t i = 0; i < n_commands; i++)
		if (commands[i].brief)
			printf("  %-11s %-30s %s\n", commands[i].brief, commands[i].args,
				commands[i].help);
	puts("\nall by noun and verb:");
	for (size_t i = 0; i < n_commands; i++) {
		char name[64];
		if (!commands[i].verb && commands[i].brief)
			continue;
		snprintf(name, sizeof(name), "%s %s", commands[i].noun,
			commands[i].verb ? commands[i].verb : "");
		printf("  %-20s %s\n", name, commands[i].help);
	}
	puts("\n`sbx COMMAND --help` explains one. The server is SBX_ENDPOINT, else the local default.");
}

int cmd_help(struct cli *c)
{
	bool asked = c->cmd && c->cmd->run != cmd_help, found = false;

	if (asked) {
		help_command(c->cmd);
		return 0;
	}
	if (c->n_pos == 0) {
		help_all();
		return 0;
	}
	for (size_t i = 0; i < n_commands; i++) {
		const struct command *k = &commands[i];
		bool brief = k->brief && !strcmp(k->brief, c->pos[0]) && c->n_pos == 1;
		bool full = !strcmp(k->noun, c->pos[0]) &&
			    (c->n_pos == 1 || (k->verb && !strcmp(k->verb, c->pos[1])));
		if (!brief && !full)
			continue;
		if (found)
			putchar('\n');
		help_command(k);
		found = true;
	}
	return found ? 0 : complain(EXIT_USAGE, "no command %s; `sbx help` lists them", c->pos[0]);
}

/* Words a command line may go on with: "NAME)" patterns of a shell `case`. */
static void put_words(void)
{
	const char *last = "";

	fputs("found='", stdout);
	for (size_t i = 0; i < n_commands; i++) {
		if (commands[i].brief && strcmp(commands[i].brief, commands[i].noun) != 0)
			printf("%s ", commands[i].brief);
		if (strcmp(commands[i].noun, last) != 0)
			printf("%s ", commands[i].noun);
		last = commands[i].noun;
	}
	puts("'");
}

static void put_verbs(void)
{
	const char *last = "";

	puts("\tcase $noun in");
	for (size_t i = 0; i < n_commands; i++) {
		if (!commands[i].verb)
			continue;
		if (strcmp(commands[i].noun, last) != 0)
			printf("%s\t%s) found='", *last ? "' ;;\n" : "", commands[i].noun);
		printf("%s ", commands[i].verb);
		last = commands[i].noun;
	}
	puts("' ;;\n\t*) found= ;;\n\tesac");
}

/* What the arguments of a command name: nouns whose `ls -q` lists them. */
static const char *lists_of(const char *args)
{
	static const struct {
		const char *word, *nouns;
	} rows[] = {
		{ "SNAP|BOX", "snapshot sandbox" },
		{ "BOX", "sandbox" },
		{ "FROM", "sandbox" },
		{ "SNAP", "snapshot" },
		{ "VOLUME", "volume" },
		{ "IMAGE", "image" },
	};

	args += *args == '[';
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (!strncmp(args, rows[i].word, strlen(rows[i].word)))
			return rows[i].nouns;
	return "";
}

static void put_option_cases(void)
{
	puts("\tcase $cmd in");
	for (size_t i = 0; i < n_commands; i++) {
		const struct command *k = &commands[i];
		if (k->verb)
			printf("\t'%s %s'", k->noun, k->verb);
		if (k->brief)
			printf("%s%s", k->verb ? "|" : "\t", k->brief);
		if (!k->verb && !k->brief)
			printf("\t%s", k->noun);
		fputs(") found='", stdout);
		for (int o = 0; o < OPT_COUNT; o++)
			if ((k->opts | OPTS_EVERYWHERE) >> o & 1)
				printf("--%s ", option_rows[o].name);
		printf("'; lists='%s' ;;\n", lists_of(k->args));
	}
	puts("\t*) found=; lists= ;;\n\tesac");
}

/* The function both shells share; it sets $found from $noun and $cmd. */
static void put_common(void)
{
	puts("_sbx_words() {\n\tlocal noun=$1 verb=$2 cur=$3 cmd lists l\n\tfound=");
	puts("\tif [ -z \"$noun\" ]; then");
	fputs("\t\t", stdout);
	put_words();
	puts("\t\treturn\n\tfi");
	put_verbs();
	puts("\tif [ -n \"$found\" ]; then\n\t\tcase \" $found \" in\n\t\t*\" $verb \"*) [ -n \"$verb\" ] || return ;;"
	     "\n\t\t*) return ;;\n\t\tesac\n\t\tcmd=\"$noun $verb\"\n\telse\n\t\tcmd=$noun\n\tfi");
	put_option_cases();
	puts("\tcase $cur in\n\t-*) return ;;\n\tesac\n\tfound=");
	/* No loop over words: zsh does not split them. */
	puts("\tfor l in sandbox snapshot volume image; do\n\t\tcase \" $lists \" in\n"
	     "\t\t*\" $l \"*) found=\"$found $(sbx $l ls -q 2>/dev/null)\" ;;\n\t\tesac\n\tdone\n}");
}

static void bash_script(void)
{
	put_common();
	puts("_sbx() {\n"
	     "\tlocal cur=${COMP_WORDS[COMP_CWORD]} found i noun= verb=\n"
	     "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	     "\t\tcase ${COMP_WORDS[i]} in -*) continue ;; esac\n"
	     "\t\tif [ -z \"$noun\" ]; then noun=${COMP_WORDS[i]}; elif [ -z \"$verb\" ]; then verb=${COMP_WORDS[i]}; fi\n"
	     "\tdone\n"
	     "\t_sbx_words \"$noun\" \"$verb\" \"$cur\"\n"
	     /* Quoted: compgen evaluates its words, and these are a server's. */
	     "\tCOMPREPLY=($(compgen -W '$found' -- \"$cur\"))\n"
	     "}\n"
	     "complete -o default -F _sbx sbx");
}

static void zsh_script(void)
{
	puts("#compdef sbx");
	put_common();
	puts("_sbx() {\n"
	     "\tlocal cur=${words[CURRENT]} noun= verb= w\n"
	     "\tlocal -a before; before=(${words[2,CURRENT-1]})\n"
	     "\tfor w in $before; do\n"
	     "\t\tcase $w in -*) continue ;; esac\n"
	     "\t\tif [ -z \"$noun\" ]; then noun=$w; elif [ -z \"$verb\" ]; then verb=$w; fi\n"
	     "\tdone\n"
	     "\tlocal found\n"
	     "\t_sbx_words \"$noun\" \"$verb\" \"$cur\"\n"
	     "\tif [ -n \"$found\" ]; then compadd -- ${=found}; else _files; fi\n"
	     "}\n"
	     "compdef _sbx sbx");
}

int cmd_completion(struct cli *c)
{
	if (!strcmp(c->pos[0], "bash"))
		bash_script();
	else if (!strcmp(c->pos[0], "zsh"))
		zsh_script();
	else
		return complain(EXIT_USAGE, "completion is there for bash and zsh");
	return 0;
}
