/* SPDX-License-Identifier: MIT */
/* Finds the command and its options by the two tables. Options may stand anywhere before a command
 * line that is passed on. */
#include "client/cli/cli.h"

#include "common/sys/mem.h"

#include <string.h>

const struct option_row option_rows[OPT_COUNT] = {
#define O(id, long, letter, value, help) [OPT_##id] = { long, letter, value, help },
#include "client/cli/options.def"
#undef O
};

bool opt_has(const struct cli *c, enum opt id)
{
	return opt_get(c, id) != NULL;
}

const char *opt_get(const struct cli *c, enum opt id)
{
	for (int i = c->n_given - 1; i >= 0; i--)
		if (c->given[i].id == id)
			return c->given[i].value;
	return NULL;
}

const char *opt_next(const struct cli *c, enum opt id, int *at)
{
	while (*at < c->n_given) {
		int i = (*at)++;
		if (c->given[i].id == id)
			return c->given[i].value;
	}
	return NULL;
}

long long number_of(const char *text, long long max, const char *what)
{
	char *end;
	long long n = strtoll(text, &end, 10);

	if (*text >= '0' && *text <= '9' && !*end && n <= max)
		return n;
	complain(EXIT_USAGE, "%s: a whole number from 0 to %lld is expected, not %s", what, max,
		text);
	return -1;
}

void usage_of(FILE *f, const struct command *cmd)
{
	if (cmd->brief && cmd->verb)
		fprintf(f, "usage: sbx %s [OPTION...] %s\n       sbx %s %s ...\n", cmd->brief,
			cmd->args, cmd->noun, cmd->verb);
	else
		fprintf(f, "usage: sbx %s%s%s [OPTION...] %s\n",
			cmd->verb || !cmd->brief ? cmd->noun : cmd->brief, cmd->verb ? " " : "",
			cmd->verb ? cmd->verb : "", cmd->args);
}

static const struct command *find_brief(const char *word)
{
	for (size_t i = 0; i < n_commands; i++)
		if (commands[i].brief && !strcmp(commands[i].brief, word))
			return &commands[i];
	return NULL;
}

/* The command that word and next name; *used: how many words that took. */
static const struct command *find_command(const char *word, const char *next, int *used)
{
	*used = 1;
	for (size_t i = 0; i < n_commands; i++) {
		const struct command *k = &commands[i];
		if (strcmp(k->noun, word) != 0)
			continue;
		if (k->verb && next && !strcmp(k->verb, next)) {
			*used = 2;
			return k;
		}
	}
	for (size_t i = 0; i < n_commands; i++)
		if (!commands[i].verb && !strcmp(commands[i].noun, word))
			return &commands[i];
	return find_brief(word);
}

static void complain_command(const char *word)
{
	bool noun = false;

	for (size_t i = 0; i < n_commands; i++) {
		if (strcmp(commands[i].noun, word) != 0 || !commands[i].verb)
			continue;
		if (!noun)
			fprintf(stderr, "sbx: %s needs a verb:", word);
		fprintf(stderr, " %s", commands[i].verb);
		noun = true;
	}
	if (noun)
		fputc('\n', stderr);
	else
		complain(EXIT_USAGE, "no command %s; `sbx help` lists them", word);
}

static bool allowed(const struct cli *c, int id)
{
	unsigned long long ok = OPTS_EVERYWHERE | (c->cmd ? c->cmd->opts : 0);

	return id >= 0 && (ok >> id & 1);
}

static int find_option(const char *word, size_t len)
{
	for (int i = 0; i < OPT_COUNT; i++)
		if (strlen(option_rows[i].name) == len && !strncmp(option_rows[i].name, word, len))
			return i;
	return -1;
}

/* A letter may mean different things to different commands. */
static int find_letter(const struct cli *c, char letter)
{
	for (int i = 0; i < OPT_COUNT; i++)
		if (option_rows[i].letter == letter && allowed(c, i))
			return i;
	return -1;
}

/* One word may hold any number of letters. */
static int make_room(struct cli *c)
{
	int room = c->n_given * 2;
	void *more;

	if (c->n_given & (c->n_given - 1)) /* there is room up to the next power of two */
		return 0;
	more = reallocarray(c->given, (size_t)(room ? room : 1), sizeof(*c->given));
	if (!more)
		return complain(-1, "out of memory");
	c->given = more;
	return 0;
}

static int take(struct cli *c, int id, const char *shown, const char *value)
{
	if (make_room(c) < 0)
		return -1;
	if (!allowed(c, id)) {
		complain(EXIT_USAGE, "%s: no such option here", shown);
		if (c->cmd)
			usage_of(stderr, c->cmd);
		return -1;
	}
	c->given[c->n_given].id = (enum opt)id;
	c->given[c->n_given++].value = value;
	return 0;
}

/* argv[*i] is an option; moves *i to the last word it used. */
static int take_long(struct cli *c, int argc, char **argv, int *i)
{
	const char *word = argv[*i] + 2, *eq = strchr(word, '='), *value = eq ? eq + 1 : NULL;
	int id = find_option(word, eq ? (size_t)(eq - word) : strlen(word));

	if (id >= 0 && !option_rows[id].value && eq)
		return complain(-1, "--%s takes no value", option_rows[id].name);
	if (id >= 0 && option_rows[id].value && !value) {
		if (*i + 1 >= argc)
			return complain(
				-1, "--%s needs %s", option_rows[id].name, option_rows[id].value);
		value = argv[++*i];
	}
	return take(c, id, argv[*i - (value && !eq)], value ? value : "");
}

static int take_letters(struct cli *c, int argc, char **argv, int *i)
{
	for (const char *p = argv[*i] + 1; *p; p++) {
		char shown[3] = { '-', *p, '\0' };
		int id = find_letter(c, *p);
		if (id < 0 || !option_rows[id].value) {
			if (take(c, id, shown, "") < 0)
				return -1;
			continue;
		}
		if (p[1])
			return take(c, id, shown, p + 1);
		if (*i + 1 >= argc)
			return complain(-1, "%s needs %s", shown, option_rows[id].value);
		return take(c, id, shown, argv[++*i]);
	}
	return 0;
}

/* An empty BOX, as an unset variable of a script gives it, would be a hole in the request's path. */
static int check_refs(const struct cli *c)
{
	static const char *const refs[] = { "BOX", "SNAP", "SNAP|BOX", "VOLUME", "IMAGE", "PID" };
	const char *word = c->cmd->args, *next = word;

	for (int i = 0; i < c->n_pos && *next; i++) {
		size_t len;

		word = next + strspn(next, "[ ");
		len = strcspn(word, " ].");
		/* The last word stands for all that follow when it has dots behind it. */
		next = strncmp(word + len, "...", 3) == 0 ? word : word + strcspn(word, " ");
		for (size_t k = 0; k < ARRAY_LEN(refs) && !c->pos[i][0]; k++)
			if (len == strlen(refs[k]) && !strncmp(word, refs[k], len))
				return complain(-1, "%s is empty", refs[k]);
	}
	return 0;
}

static int check_count(struct cli *c)
{
	if (opt_has(c, OPT_HELP))
		return 0;
	if (!c->cmd)
		return complain(-1, "a command is needed; `sbx help` lists them");
	if (c->n_pos >= c->cmd->min && (c->cmd->max < 0 || c->n_pos <= c->cmd->max))
		return check_refs(c);
	usage_of(stderr, c->cmd);
	return -1;
}

int args_parse(struct cli *c, int argc, char **argv)
{
	bool plain = false;

	c->pos = calloc((size_t)argc + 1, sizeof(*c->pos));
	if (!c->pos)
		return complain(-1, "out of memory");
	for (int i = 1; i < argc; i++) {
		const char *w = argv[i];
		/* Behind BOX, a command line is not ours to read. */
		bool passed_on = c->cmd && c->cmd->raw && c->n_pos > c->cmd->raw;
		if (plain || passed_on || w[0] != '-' || !w[1]) {
			if (c->cmd) {
				c->pos[c->n_pos++] = w;
				continue;
			}
			int used;
			c->cmd = find_command(w, i + 1 < argc ? argv[i + 1] : NULL, &used);
			if (!c->cmd) {
				complain_command(w);
				return -1;
			}
			i += used - 1;
		} else if (!strcmp(w, "--")) {
			plain = true;
		} else if ((w[1] == '-' ? take_long : take_letters)(c, argc, argv, &i) < 0) {
			return -1;
		}
	}
	c->json = opt_has(c, OPT_JSON);
	return check_count(c);
}

void args_free(struct cli *c)
{
	free(c->pos);
	free(c->given);
}
