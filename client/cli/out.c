/* SPDX-License-Identifier: MIT */
/* What people read. Text that comes from a server or a guest never reaches a terminal with a
 * control byte in it, and never makes a line of its own. */
#include "client/cli/cli.h"

#include "common/api/ids.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void put_safe(FILE *f, const char *text)
{
	for (size_t n; *text; text += n ? n : 1) {
		n = printable_one(text, strnlen(text, 4));
		if (n == 0)
			fprintf(f, "\\x%02x", (unsigned char)*text);
		fwrite(text, 1, n, f);
	}
}

void put_text(const char *text)
{
	put_safe(stdout, text);
}

void put_complaint(const char *text)
{
	fflush(stdout);
	fputs("sbx: ", stderr);
	put_safe(stderr, text);
	fputc('\n', stderr);
}

/* Names in it may be a guest's. */
int complain(int code, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	put_complaint(text ? text : "out of memory");
	return code;
}

/* What a person can do about an error that its message does not say. */
static const struct {
	const char *code, *hint;
} hints[] = {
	{ "unauthorized", "name the server's token with --token-file or SBX_TOKEN_FILE" },
	{ "unsupported", "`sbx capability` lists what this server can do" },
	{ "forbidden_origin", "start sandboxd with --allowed-host for this name" },
};

static int fail_text(const char *ref, const struct sbx_error *e)
{
	const char *hint = NULL;

	for (size_t i = 0; i < ARRAY_LEN(hints); i++)
		if (!strcmp(hints[i].code, e->code))
			hint = hints[i].hint;
	return complain(1, "%s%s%s%s%s", ref ? ref : "", ref ? ": " : "", e->message,
		hint ? "; " : "", hint ? hint : "");
}

int fail(const struct sbx_error *e)
{
	return fail_text(NULL, e);
}

int fail_about(const char *ref, const struct sbx_error *e)
{
	return fail_text(ref, e);
}

/* In JSON, bytes from 0x7f to 0x9f are inside strings. */
void put_json(const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t from = 0;

	for (size_t i = 0; i < len; i++) {
		bool c1 = p[i] == 0xc2 && i + 1 < len && p[i + 1] >= 0x80 && p[i + 1] < 0xa0;
		if (p[i] != 0x7f && !c1)
			continue;
		fwrite(text + from, 1, i - from, stdout);
		printf("\\u%04x", c1 ? p[i + 1] : p[i]);
		i += c1;
		from = i + 1;
	}
	fwrite(text + from, 1, len - from, stdout);
	if (!len || text[len - 1] != '\n')
		putchar('\n');
}

/* errno may be that of another call by now. */
static bool is_reader_gone(void)
{
	struct pollfd f = { STDOUT_FILENO, POLLOUT, 0 };

	return poll(&f, 1, 0) == 1 && (f.revents & (POLLERR | POLLHUP));
}

int finish_output(void)
{
	bool bad = ferror(stdout), gone = is_reader_gone();

	errno = 0; /* of an earlier write nobody knows the reason any more */
	if (fclose(stdout) == 0 && !bad)
		return 0;
	if (gone) /* it has what it wanted: the end that SIGPIPE would have been */
		return 128 + SIGPIPE;
	fprintf(stderr, "sbx: standard output: %s\n", errno ? strerrordesc_np(errno) : "cannot be written");
	return 1;
}

static char *join_values(json_t *v)
{
	char *out = NULL;
	size_t len = 0, i;
	FILE *f = open_memstream(&out, &len);
	const char *key;
	json_t *item;

	if (!f)
		return NULL;
	json_array_foreach (v, i, item) {
		_cleanup_free_ char *text =
			json_is_string(item) ? strdup(json_string_value(item)) : json_text(item);
		fprintf(f, "%s%s", i ? " " : "", text ? text : "");
	}
	json_object_foreach (v, key, item) {
		_cleanup_free_ char *text =
			json_is_string(item) ? strdup(json_string_value(item)) : json_text(item);
		fprintf(f, "%s%s=%s", len || ftell(f) ? " " : "", key, text ? text : "");
	}
	fclose(f);
	return out;
}

char *show_value(json_t *row, const char *key)
{
	json_t *v = json_object_get(row, key);
	char *text;

	if (!v || json_is_null(v))
		return strdup("");
	if (json_is_string(v))
		return strdup(json_string_value(v));
	if (json_is_array(v) || json_is_object(v))
		return join_values(v);
	if (json_is_real(v))
		return asprintf(&text, "%g", json_real_value(v)) < 0 ? NULL : text;
	return json_dumps(v, JSON_ENCODE_ANY);
}

char *show_bytes(json_t *row, const char *key)
{
	static const char units[] = "BKMGTP";
	json_t *v = json_object_get(row, key);
	double n = json_number_value(v);
	size_t u = 0;
	char *out;

	if (!json_is_number(v))
		return strdup("");
	for (; n >= 1024 && u + 2 < sizeof(units); u++)
		n /= 1024;
	return asprintf(&out, u && n < 10 ? "%.1f%c" : "%.0f%c", n, units[u]) < 0 ? NULL : out;
}

char *show_age(json_t *row, const char *key)
{
	static const struct {
		long secs;
		char unit;
	} units[] = {
		{ 86400, 'd' },
		{ 3600, 'h' },
		{ 60, 'm' },
		{ 1, 's' },
	};
	const char *text = json_string_value(json_object_get(row, key));
	struct tm tm = { 0 };
	char *out;
	long age;

	if (!text || !strptime(text, "%Y-%m-%dT%H:%M:%S", &tm))
		return strdup("");
	age = (long)(time(NULL) - timegm(&tm));
	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (age >= units[i].secs)
			return asprintf(&out, "%ld%c", age / units[i].secs, units[i].unit) < 0
				       ? NULL
				       : out;
	return strdup("0s");
}

/* Characters, not bytes: names of files and labels may be UTF-8. */
static size_t width(const char *s)
{
	size_t wide = 0;

	for (size_t n; *s; s += n ? n : 1) {
		n = printable_one(s, strnlen(s, 4));
		wide += n ? 1 : 4;
	}
	return wide;
}

static void put_cell(const char *text, size_t room)
{
	put_text(text);
	for (size_t n = width(text); n < room; n++)
		putchar(' ');
}

void put_padded(const char *text, size_t room)
{
	size_t n = width(text);

	put_cell(text, n < room || !room ? room : n + 1);
}

void put_table(json_t *rows, const struct column *cols, size_t n)
{
	size_t n_rows = json_array_size(rows), wide[16] = { 0 };
	char **cell = calloc(n_rows * n + 1, sizeof(*cell));

	if (!cell || n > ARRAY_LEN(wide))
		return free(cell);
	for (size_t c = 0; c < n; c++)
		wide[c] = width(cols[c].title);
	for (size_t i = 0; i < n_rows * n; i++) {
		const struct column *k = &cols[i % n];
		cell[i] = (k->show ? k->show : show_value)(json_array_get(rows, i / n), k->key);
		if (cell[i] && width(cell[i]) > wide[i % n])
			wide[i % n] = width(cell[i]);
	}
	for (size_t c = 0; c < n; c++)
		put_cell(cols[c].title, c + 1 < n ? wide[c] + 2 : 0);
	putchar('\n');
	for (size_t i = 0; i < n_rows * n; i++) {
		put_cell(cell[i] && *cell[i] ? cell[i] : "-", i % n + 1 < n ? wide[i % n] + 2 : 0);
		if (i % n + 1 == n)
			putchar('\n');
		free(cell[i]);
	}
	free(cell);
}

void put_names(json_t *rows, const char *key)
{
	json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		const char *name = json_string_value(json_object_get(row, key));
		put_text(name ? name : "");
		putchar('\n');
	}
}

void put_progress(const char *text)
{
	if (!isatty(STDERR_FILENO))
		return;
	fputs("\r\033[K", stderr);
	put_safe(stderr, text);
	fflush(stderr);
}

void put_members(json_t *object)
{
	const char *key;
	size_t most = 0;
	json_t *v;

	json_object_foreach (object, key, v)
		if (width(key) > most)
			most = width(key);
	json_object_foreach (object, key, v) {
		_cleanup_free_ char *text = show_value(object, key);
		put_cell(key, most + 2);
		put_text(text ? text : "");
		putchar('\n');
	}
}
