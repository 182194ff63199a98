/* SPDX-License-Identifier: MIT */
/* Options that describe a sandbox, as the body of a create or a change. */
#include "client/cli/cli.h"

#include "common/sys/mem.h"

#include <math.h>
#include <string.h>

/* Options that become a member of the request as they are. */
static const struct {
	enum opt id;
	const char *key;
	enum { TEXT, WHOLE, DECIMAL } kind;
} members[] = {
	{ OPT_NAME, "name", TEXT },
	{ OPT_IMAGE, "image", TEXT },
	{ OPT_CPUS, "cpus", DECIMAL },
	{ OPT_MEMORY, "memory_mb", WHOLE },
	{ OPT_DISK, "disk_mb", WHOLE },
	{ OPT_IDLE, "idle_timeout_secs", WHOLE },
	{ OPT_IDLEACTION, "idle_action", TEXT },
	{ OPT_LIFETIME, "lifetime_secs", WHOLE },
	{ OPT_SNAPSHOT, "snapshot_id", TEXT },
	{ OPT_EVERY, "snapshot_every_secs", WHOLE },
	{ OPT_KEEP, "snapshot_keep", WHOLE },
	{ OPT_GPUS, "gpus", WHOLE },
};

static int add_member(json_t *o, size_t i, const char *v)
{
	json_t *j;
	char *end;

	if (members[i].kind == WHOLE) {
		char what[32];

		(void)snprintf(what, sizeof(what), "--%s", option_rows[members[i].id].name);
		long long n = number_of(v, INT64_MAX / 2, what);
		if (n < 0)
			return -1;
		j = json_integer(n);
	} else if (members[i].kind == DECIMAL) {
		double d = strtod(v, &end);
		if (end == v || *end || !isfinite(d))
			return complain(-1, "--cpus: a number is expected, not %s", v);
		j = json_real(d);
	} else {
		j = json_string(v);
	}
	return json_object_set_new(o, members[i].key, j) < 0
		       ? complain(-1, "--%s is not UTF-8 text", option_rows[members[i].id].name)
		       : 0;
}

static int add_pairs(struct cli *c, json_t *o, enum opt id, const char *key)
{
	json_t *map = json_object();
	int at = 0, n = 0;

	for (const char *v; (v = opt_next(c, id, &at)); n++) {
		const char *eq = strchrnul(v, '='), *value = *eq             ? eq + 1
							     : id == OPT_ENV ? getenv(v)
									     : "";
		_cleanup_free_ char *name = strndup(v, (size_t)(eq - v));
		/* A variable that is not set here is left out. An empty label word clears the set.
		 */
		if (*v && value &&
			json_object_set_new(map, name ? name : "", json_string(value)) < 0) {
			json_decref(map);
			return complain(-1, "--%s %s is not UTF-8 text", option_rows[id].name, v);
		}
	}
	if (n)
		json_object_set(o, key, map);
	json_decref(map);
	return 0;
}

/* "a,b" and repeats, as one list; an empty word adds nothing, so that `--deny ''` clears. */
static json_t *words(struct cli *c, enum opt id)
{
	json_t *list = json_array();
	int at = 0;

	for (const char *v; (v = opt_next(c, id, &at));)
		while (*v) {
			size_t n = strcspn(v, ",");
			if (n && json_array_append_new(list, json_stringn(v, n)) < 0) {
				json_decref(list);
				complain(-1, "--%s is not UTF-8 text", option_rows[id].name);
				return NULL;
			}
			v += n + (v[n] == ',');
		}
	return list;
}

int spec_network(struct cli *c, const char *mode, json_t **ret)
{
	static const struct {
		enum opt id;
		const char *key;
	} lists[] = { { OPT_ALLOW, "allow" }, { OPT_DENY, "deny" } };
	_cleanup_json_ json_t *net = json_object();

	*ret = NULL;
	if (!mode && opt_has(c, OPT_ALLOW))
		mode = "allowlist";
	if (mode && json_object_set_new(net, "mode", json_string(mode)) < 0)
		return complain(-1, "the network's mode is not UTF-8 text");
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		json_t *list = opt_has(c, lists[i].id) ? words(c, lists[i].id) : NULL;
		if (!list && opt_has(c, lists[i].id))
			return -1;
		if (list)
			json_object_set_new(net, lists[i].key, list);
	}
	if (json_object_size(net))
		*ret = steal(net);
	return 0;
}

/* NAME:/PATH[:ro] */
static json_t *volume_of(const char *v)
{
	const char *path = strchr(v, ':'), *mode = path ? strchr(path + 1, ':') : NULL;
	json_t *o;

	if (!path || path == v || path[1] != '/' ||
		(mode && strcmp(mode, ":ro") != 0 && strcmp(mode, ":rw") != 0)) {
		complain(-1, "--volume: NAME:/PATH or NAME:/PATH:ro is expected, not %s", v);
		return NULL;
	}
	o = json_object();
	json_object_set_new(o, "name", json_stringn(v, (size_t)(path - v)));
	json_object_set_new(o, "path",
		json_stringn(path + 1, mode ? (size_t)(mode - path - 1) : strlen(path + 1)));
	if (mode && mode[2] == 'o')
		json_object_set_new(o, "read_only", json_true());
	if (json_object_size(o) >= 2)
		return o;
	json_decref(o);
	complain(-1, "--volume is not UTF-8 text");
	return NULL;
}

static int add_volumes(struct cli *c, json_t *o)
{
	_cleanup_json_ json_t *list = json_array();
	int at = 0;

	for (const char *v; (v = opt_next(c, OPT_VOLUME, &at));) {
		json_t *mount = volume_of(v);
		if (!mount)
			return -1;
		json_array_append_new(list, mount);
	}
	if (json_array_size(list))
		json_object_set(o, "volumes", list);
	return 0;
}

/* "Name: value" lines. The text is a secret: a message names the line, not its content. */
static json_t *headers_of(char *text)
{
	json_t *map = json_object();
	int nth = 0;

	for (char *line; (line = strsep(&text, "\n"));) {
		char *colon = strchr(line, ':'), *end = line + strlen(line);
		nth++;
		while (end > line && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
			*--end = '\0';
		if (!*line)
			continue;
		if (colon && colon > line) {
			*colon++ = '\0';
			colon += strspn(colon, " \t");
		}
		if (!colon || json_object_set_new(map, line, json_string(colon)) < 0) {
			json_decref(map);
			complain(-1, "--metrics-headers: line %d is not \"Name: value\"", nth);
			return NULL;
		}
	}
	return map;
}

static int add_export(struct cli *c, json_t *o)
{
	const char *endpoint = opt_get(c, OPT_EXPORT), *file = opt_get(c, OPT_EXPORTHEAD);
	const char *every = opt_get(c, OPT_EXPORTEVERY);
	_cleanup_json_ json_t *x = json_object();

	if (!endpoint && (file || every))
		return complain(-1, "--metrics-every and --metrics-headers need --metrics-export");
	if (!endpoint)
		return 0;
	if (json_object_set_new(x, "endpoint", json_string(endpoint)) < 0)
		return complain(-1, "--metrics-export is not UTF-8 text");
	if (every) {
		long long n = number_of(every, INT32_MAX, "--metrics-every");
		if (n < 0)
			return -1;
		json_object_set_new(x, "interval_secs", json_integer(n));
	}
	if (file) {
		char *text = secret_read(file, "Headers");
		json_t *headers = text ? headers_of(text) : NULL;
		secret_free(text);
		if (!headers)
			return -1;
		json_object_set_new(x, "headers", headers);
	}
	json_object_set(o, "metrics_export", x);
	return 0;
}

static bool is_stdin(const char *file)
{
	return !file || !strcmp(file, "-");
}

static int add_login(struct cli *c, json_t *o)
{
	const char *registry = opt_get(c, OPT_LOGIN), *user = opt_get(c, OPT_LOGINUSER);
	const char *file = opt_get(c, OPT_LOGINPASS), *head = opt_get(c, OPT_EXPORTHEAD);
	char *password;
	json_t *v;

	if (!registry && !user && !file)
		return 0;
	if (!registry || !user)
		return complain(-1, "--login-registry and --login-user go together");
	if (is_stdin(file) && head && is_stdin(head))
		return complain(-1, "the password and the headers cannot both be standard input");
	password = secret_read(file, "Password");
	if (!password)
		return -1;
	v = json_pack(
		"{s:s,s:s,s:s}", "registry", registry, "username", user, "password", password);
	secret_free(password);
	if (!v)
		return complain(-1, "the registry login is not UTF-8 text");
	json_object_set_new(o, "registry_login", v);
	return 0;
}

int spec_name(json_t *request, const char *name)
{
	if (json_object_set_new(request, "name", json_string(name)) == 0)
		return 0;
	json_decref(request);
	return complain(-1, "%s is not UTF-8 text, and no name", name);
}

json_t *spec_request(struct cli *c)
{
	_cleanup_json_ json_t *o = json_object();
	json_t *net;

	for (size_t i = 0; i < ARRAY_LEN(members); i++) {
		const char *v = opt_get(c, members[i].id);
		if (v && add_member(o, i, v) < 0)
			return NULL;
	}
	if (add_pairs(c, o, OPT_ENV, "env") < 0 || add_pairs(c, o, OPT_LABEL, "labels") < 0 ||
		add_volumes(c, o) < 0 || spec_network(c, opt_get(c, OPT_NETWORK), &net) < 0)
		return NULL;
	if (net)
		json_object_set_new(o, "network", net);
	if (add_export(c, o) < 0 || add_login(c, o) < 0)
		return NULL;
	return steal(o);
}
