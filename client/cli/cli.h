/* SPDX-License-Identifier: MIT */
/* What a command gets and what it may use: parsed arguments, the server, output. A command returns
 * the program's exit code. */
#ifndef CLIENT_CLI_CLI_H
#define CLIENT_CLI_CLI_H

#include "client/include/sbx.h"
#include "common/base/version.h"
#include "common/json/json.h"

#include <stdio.h>

#define EXIT_OURS   125 /* run: we or the server failed, not the command */
#define EXIT_USAGE  2

enum opt {
#define O(id, long, letter, value, help) OPT_##id,
#include "client/cli/options.def"
#undef O
	OPT_COUNT
};
struct option_row {
	const char *name;
	char letter;
	const char *value, *help;
};
extern const struct option_row option_rows[OPT_COUNT];
#define OPT_BIT(id) (1ULL << OPT_##id)
#define OPTS_EVERYWHERE                                                                            \
	(OPT_BIT(ENDPOINT) | OPT_BIT(TOKEN) | OPT_BIT(CA) | OPT_BIT(JSON) | OPT_BIT(HELP))

struct cli;
enum { OFFLINE = 1 };
struct command {
	const char *noun, *verb, *brief;
	int (*run)(struct cli *c);
	int min, max, raw;
	unsigned flags;
	unsigned long long opts;
	const char *args, *help;
};
extern const struct command commands[];
extern const size_t n_commands;

struct cli {
	const struct command *cmd;
	struct sbx *s; /* NULL for OFFLINE commands until cli_connect() */
	bool json;
	const char **pos; /* arguments, NULL-terminated */
	int n_pos;
	struct {
		enum opt id;
		const char *value;
	} * given; /* options in order */
	int n_given;
	/* Another way to run `argv`, tried when this user may not speak to the server; NULL: none.
	 * Returns only when it cannot be gone. */
	void (*detour)(const struct cli *c, const char *const *argv);
	const char *bin_file; /* `sbx --bin`: the file */
	/* Asked while a request waits; true gives it up. NULL: signals end the program as usual. */
	bool (*cancelled)(void *);
};

/* args.c */
/* Fills c from argv; -1 after a message: exit with EXIT_USAGE. */
int args_parse(struct cli *c, int argc, char **argv);
void args_free(struct cli *c);
bool opt_has(const struct cli *c, enum opt id);
const char *opt_get(const struct cli *c, enum opt id); /* the last one given; NULL: none */
/* The value after position *at (start with 0); NULL: no more. */
const char *opt_next(const struct cli *c, enum opt id, int *at);
/* A whole number within 0..max, or -1 after a message. */
long long number_of(const char *text, long long max, const char *what);
void usage_of(FILE *f, const struct command *cmd);

/* main.c */
int cli_connect(struct cli *c, struct sbx_error *e);

/* out.c */
int fail(const struct sbx_error *e); /* prints "sbx: ..."; 1 */
int fail_about(const char *ref, const struct sbx_error *e); /* the same, with what it is about */
int complain(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "sbx: " and text of others on standard error, made safe for a terminal. */
void put_complaint(const char *text);
/* As printf to standard output with every control byte of the text escaped but \n and \t. */
void put_text(const char *text);
void put_json(const char *text, size_t len); /* as it came, and a line end */
struct column {
	const char *title, *key;
	/* Owned text of a cell; NULL: the value itself. */
	char *(*show)(json_t *row, const char *key);
};
void put_table(json_t *rows, const struct column *cols, size_t n);
void put_members(json_t *object); /* "key  value" lines */
void put_ref(json_t *box);        /* its name, or its id when it has none */
/* One member of each object of an array, a line each. */
void put_names(json_t *rows, const char *key);
/* Text and then spaces up to `room` characters, at least one when room is given. */
void put_padded(const char *text, size_t room);
/* Replaces the line on standard error when that is a terminal; "" clears it. */
void put_progress(const char *text);
char *show_bytes(json_t *row, const char *key); /* "3.5M" */
char *show_value(json_t *row, const char *key);
char *show_age(json_t *row, const char *key); /* of a time: "3m" */
/* Flushes and closes; 1 when something could not be written. */
int finish_output(void);

/* ask.c: requests whose answer is JSON. All print their error and give -1. */
/* `path` and `body` are taken. *ret_text may be NULL. */
int ask(struct cli *c, const char *method, char *path, json_t *body, struct sbx_response *ret,
	struct sbx_error *e);
/* After a connection that broke: a server that is started again takes its sandboxes back. Waits for it. */
bool server_came_back(struct cli *c, const struct sbx_error *why);
int ask_json(struct cli *c, const char *method, char *path, json_t *body, json_t **ret);
/* Prints the JSON itself with --json, else gives it to `show`. An exit code. */
int ask_show(struct cli *c, const char *method, char *path, json_t *body, void (*show)(json_t *v));
/* One request for each argument, which takes the place of %s in `fmt`; a refusal names which it was. */
int ask_each(struct cli *c, const char *method, const char *fmt, void (*show)(json_t *v));
bool server_can(struct cli *c, const char *capability);
/* Sleeps in between two questions about something that takes its time. */
void ask_pause(int ms);
/* Reads NDJSON lines; each goes to line(arg, text, len); false ends it well. */
struct lines {
	bool (*line)(void *arg, const char *text, size_t len);
	void *arg;
	char *buf;
	size_t len, room;
	bool broken;
};
int ask_lines(struct cli *c, char *path, struct lines *l, struct sbx_error *e);

/* spec.c: what the options say about a sandbox, as the body of a create or a change; NULL after a
 * message. */
json_t *spec_request(struct cli *c);
/* Its name; -1 after a message, and then the request is freed. */
int spec_name(json_t *request, const char *name);
/* A network policy of --allow, --deny and `mode`; --allow alone means the mode allowlist. *ret is
 * NULL when nothing was given; -1 after a message. */
int spec_network(struct cli *c, const char *mode, json_t **ret);
/* secret.c: the text of a private file, or of standard input (path NULL or "-"), which is asked for
 * as `what` at a terminal; one line end is taken off. NULL after a message. */
char *secret_read(const char *path, const char *what);
void secret_free(char *text); /* wipes it; NULL is fine */

/* run.c, stream.c, tty.c */
struct stream_conf {
	const char *ref;
	long long pid;
	bool tty;          /* the process has a terminal: raw mode here, window size */
	bool interactive;  /* forward standard input */
	int timeout_secs;  /* 0: none */
	bool kill_on_stop; /* the process is ours: pass signals on, end it when nobody reads */
};
/* Copies until the process ends; the exit code. Takes sock. */
int stream_process(struct cli *c, int sock, const struct stream_conf *conf);
int run_command(struct cli *c, const char *ref, const char *const *argv, const char *cwd, bool tty,
	bool detach);
/* `sbx --bin FILE ARG...`: the program FILE names, in the sandbox whose mount holds it. */
int exec_bin(int argc, char **argv);

bool tty_raw(void); /* standard input; false when it is no terminal */
void tty_again(void); /* the same once more, after a stop: a shell has had the terminal meanwhile */
void tty_restore(void);
bool tty_size(int *rows, int *cols);

/* arrive.c: a file that takes its name here when it is whole. Exit codes. */
int fetch_file(
	struct cli *c, const char *ref, const char *path, int dir, const char *name, int mode);
int fetch_out(struct cli *c, const char *ref, const char *path, int fd);
int fetch_to(struct cli *c, const char *ref, const char *path, const char *local, int mode);
/* Where the disk is somewhere else, a close can report a failed write; -1: it did, errno. */
int close_whole(int *fd);

/* As read(2), but goes on when interrupted, and waits where somebody has set the file not to. */
ssize_t read_waiting(int fd, void *buf, size_t max);
/* The same as a request's on_read; arg: int *, the descriptor. */
ssize_t body_from_fd(void *arg, void *buf, size_t max);
/* transfer.c: whole files of any size. `fd` is read or written from where it stands. */
int file_download(struct cli *c, const char *ref, const char *path, int fd, struct sbx_error *e);
int file_upload(struct cli *c, const char *ref, const char *path, int fd, struct sbx_error *e);
/* An entry's name or link text as the bytes that it is; NULL when it is none. Caller frees. */
char *entry_bytes(const json_t *v, const char *key);
/* The other way round: sets key, or key_b64 for bytes that are no text. */
int put_bytes(json_t *o, const char *key, const char *bytes);
/* The beginning of an operation of the batch call; NULL: out of memory. */
json_t *path_op(const char *op, const char *path);
/* One operation of the batch call; `op` is taken. */
int file_op(struct cli *c, const char *ref, json_t *op, struct sbx_error *e);
/* Entries of a folder as an array of objects with name, type and what more the server tells. */
int dir_entries(
	struct cli *c, const char *ref, const char *path, json_t **ret, struct sbx_error *e);

#endif
