/* SPDX-License-Identifier: MIT */
/* Readers of other people's JSON. What they do not use they ignore, as the format grows. */
#include "sandboxd/core/oci.h"

#include "common/api/ids.h"
#include "common/json/json.h"
#include "common/sys/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

static int bad(struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID_REQUEST, "%s", what);
}

/* --- references ------------------------------------------------------------------------------ */

bool oci_digest_ok(const char *s)
{
	return s && strncmp(s, "sha256:", 7) == 0 && strspn(s + 7, "0123456789abcdef") == 64 &&
	       s[71] == '\0';
}

/* The first part is a registry when it looks like a host. */
static bool is_registry(const char *s, size_t n)
{
	return memchr(s, '.', n) || memchr(s, ':', n) || (n == 9 && !memcmp(s, "localhost", 9));
}

static bool repo_ok(const char *s)
{
	bool start = true;

	for (; *s; s++) {
		bool word = (*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9');
		if (!word && (start || !strchr("._-/", *s)))
			return false;
		start = *s == '/';
	}
	return !start;
}

static bool host_ok(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-");

	if (n == 0 || s[0] == '-' || s[0] == '.')
		return false;
	if (s[n] == '\0')
		return true;
	return s[n] == ':' && s[n + 1] && strlen(s + n + 1) <= 5 &&
	       strspn(s + n + 1, "0123456789") == strlen(s + n + 1);
}

static bool tag_ok(const char *s)
{
	size_t n = strlen(s);

	return n > 0 && n <= 128 && s[0] != '.' && s[0] != '-' &&
	       strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

int oci_ref_parse(const char *ref, struct oci_ref *ret, struct err *e)
{
	char name[256];
	const char *slash = strchr(ref, '/'), *tag = "latest", *path = ref;
	char *at, *colon;

	*ret = (struct oci_ref){ .digest = "" };
	snprintf(ret->registry, sizeof(ret->registry), "docker.io");
	if (slash && is_registry(ref, (size_t)(slash - ref))) {
		snprintf(ret->registry, sizeof(ret->registry), "%.*s", (int)(slash - ref), ref);
		path = slash + 1;
	}
	if (!strcmp(ret->registry, "index.docker.io"))
		snprintf(ret->registry, sizeof(ret->registry), "docker.io");
	if (snprintf(name, sizeof(name), "%s%s",
		    !strcmp(ret->registry, "docker.io") && !strchr(path, '/') ? "library/" : "",
		    path) >= (int)sizeof(name))
		return bad(e, "the image's name is too long");
	at = strchr(name, '@');
	if (at)
		*at++ = '\0';
	colon = strrchr(name, ':');
	if (colon) {
		*colon = '\0';
		tag = colon + 1;
	}
	if (!host_ok(ret->registry) || !repo_ok(name) || !tag_ok(tag) || (at && !oci_digest_ok(at)))
		return err_set(e, ERR_INVALID_REQUEST,
			"image \"%.100s\" does not name an image of a registry", ref);
	if (at) /* then the tag says nothing */
		memcpy(ret->digest, at, OCI_DIGEST_LEN);
	if (snprintf(ret->repo, sizeof(ret->repo), "%s/%s", ret->registry, name) >=
		(int)sizeof(ret->repo))
		return bad(e, "the image's name is too long");
	snprintf(ret->full, sizeof(ret->full), "%s%s%s", ret->repo, at ? "@" : ":",
		at ? ret->digest : tag);
	return 0;
}

const char *oci_arch(void)
{
	static const char *const words[][2] = { { "x86_64", "amd64" }, { "aarch64", "arm64" },
		{ "armv7l", "arm" }, { "i686", "386" }, { "ppc64le", "ppc64le" },
		{ "riscv64", "riscv64" }, { "s390x", "s390x" } };
	struct utsname u;

	if (uname(&u) == 0)
		for (size_t i = 0; i < ARRAY_LEN(words); i++)
			if (!strcmp(u.machine, words[i][0]))
				return words[i][1];
	return "unknown";
}

/* --- index ----------------------------------------------------------------------------------- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static bool is_ours(const json_t *m, const char *arch)
{
	const json_t *p = json_object_get(m, "platform");

	return !strcmp(text_of(p, "os"), "linux") && !strcmp(text_of(p, "architecture"), arch);
}

int oci_index_pick(
	const char *text, size_t len, const char *arch, char ret[OCI_DIGEST_LEN], struct err *e)
{
	_cleanup_json_ json_t *o = NULL;
	const json_t *list, *m = NULL;

	ret[0] = '\0';
	if (json_parse_any(text, len, OCI_CONFIG_MAX, &o, e) < 0)
		return err_prefix(e, "the image's manifest: ");
	list = json_object_get(o, "manifests");
	if (!json_is_array(list))
		return 0;
	/* one alone need not say for what it is; its configuration does */
	if (json_array_size(list) == 1 && !json_object_get(json_array_get(list, 0), "platform"))
		m = json_array_get(list, 0);
	for (size_t i = 0; i < json_array_size(list) && !m; i++)
		if (is_ours(json_array_get(list, i), arch))
			m = json_array_get(list, i);
	if (!m)
		return err_set(e, ERR_NOT_FOUND, "the image does not exist for linux on %s", arch);
	if (!oci_digest_ok(text_of(m, "digest")))
		return bad(e, "the image's list of manifests names one without a sha256 digest");
	memcpy(ret, text_of(m, "digest"), OCI_DIGEST_LEN);
	return 0;
}

/* --- manifest -------------------------------------------------------------------------------- */

static int read_blob(const json_t *d, int64_t max, struct oci_blob *ret, struct err *e)
{
	const char *digest = text_of(d, "digest");
	const json_t *size = json_object_get(d, "size");

	if (!oci_digest_ok(digest))
		return bad(e, "the image's manifest names a blob without a sha256 digest");
	if (!json_is_integer(size) || json_integer_value(size) < 0 ||
		json_integer_value(size) > max)
		return bad(e, "the image's manifest names a blob whose size is missing or too big");
	memcpy(ret->digest, digest, OCI_DIGEST_LEN);
	ret->size = json_integer_value(size);
	return 0;
}

static bool layer_type_ok(const char *type)
{
	static const char *const known[] = { "application/vnd.oci.image.layer.v1.tar",
		"application/vnd.oci.image.layer.v1.tar+gzip",
		"application/vnd.oci.image.layer.v1.tar+zstd",
		"application/vnd.docker.image.rootfs.diff.tar",
		"application/vnd.docker.image.rootfs.diff.tar.gzip",
		"application/vnd.docker.image.rootfs.diff.tar.zstd" };

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (!strcmp(type, known[i]))
			return true;
	return false;
}

static int read_layers(const json_t *list, struct oci_manifest *ret, struct err *e)
{
	if (!json_is_array(list) || json_array_size(list) == 0)
		return bad(e, "the image has no layers");
	if (json_array_size(list) > OCI_LAYERS_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "the image has %zu layers; at most %d",
			json_array_size(list), OCI_LAYERS_MAX);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *d = json_array_get(list, i);
		if (!layer_type_ok(text_of(d, "mediaType")))
			return err_set(e, ERR_INVALID_REQUEST,
				"the image has a layer of a kind that cannot be unpacked: %.60s",
				text_of(d, "mediaType"));
		if (read_blob(d, OCI_BYTES_MAX, &ret->layers[i], e) < 0)
			return -1;
		ret->total += ret->layers[i].size;
		ret->nlayers++;
	}
	return ret->total > OCI_BYTES_MAX ? bad(e, "the image is too big") : 0;
}

int oci_manifest_parse(const char *text, size_t len, struct oci_manifest *ret, struct err *e)
{
	_cleanup_json_ json_t *o = NULL;

	*ret = (struct oci_manifest){ .nlayers = 0 };
	if (json_parse_any(text, len, OCI_CONFIG_MAX, &o, e) < 0)
		return err_prefix(e, "the image's manifest: ");
	if (json_integer_value(json_object_get(o, "schemaVersion")) != 2)
		return bad(e, "the image's manifest is of a version that is not understood");
	if (read_blob(json_object_get(o, "config"), OCI_CONFIG_MAX, &ret->config, e) < 0)
		return -1;
	return read_layers(json_object_get(o, "layers"), ret, e);
}

/* --- configuration --------------------------------------------------------------------------- */

struct env {
	char **v;
	size_t n, bytes;
	bool path;
};

static int env_add(struct env *env, const char *kv, struct err *e)
{
	env->v[env->n] = strdup(kv);
	if (!env->v[env->n])
		return err_oom(e);
	env->n++;
	env->bytes += strlen(kv) + 1;
	if (env->bytes > OCI_ENV_BYTES)
		return bad(e, "the image's environment is too big");
	return 0;
}

/* A later value of a name replaces the earlier one, as a shell's does. */
static void env_drop(struct env *env, const char *kv, size_t name_len)
{
	for (size_t i = 0; i < env->n; i++)
		if (!strncmp(env->v[i], kv, name_len + 1)) {
			free(env->v[i]);
			memmove(&env->v[i], &env->v[i + 1], (env->n - i) * sizeof(*env->v));
			env->n--;
			return;
		}
}

/* What a request may not set an image may not either; it is left out. */
static int env_take(struct env *env, const char *kv, struct err *e)
{
	const char *eq = strchr(kv, '=');
	char name[256];
	size_t n = eq ? (size_t)(eq - kv) : 0;

	if (n == 0 || n >= sizeof(name))
		return 0;
	memcpy(name, kv, n);
	name[n] = '\0';
	if (!env_name_ok(name) || env_name_reserved(name) || !strcmp(name, "HOME") ||
		!strcmp(name, "USER"))
		return 0;
	env->path |= !strcmp(name, "PATH");
	env_drop(env, kv, n);
	return env_add(env, kv, e);
}

static int env_fill(struct env *env, const json_t *list, struct err *e)
{
	if (json_array_size(list) > OCI_ENV_MAX)
		return bad(e, "the image's environment is too big");
	env->v = calloc(json_array_size(list) + 4, sizeof(*env->v));
	if (!env->v)
		return err_oom(e);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *kv = json_array_get(list, i);
		if (json_is_string(kv) && json_string_length(kv) == strlen(json_string_value(kv)) &&
			env_take(env, json_string_value(kv), e) < 0)
			return -1;
	}
	if (!env->path &&
		env_add(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			e) < 0)
		return -1;
	if (env_add(env, "HOME=/sandbox/home", e) < 0)
		return -1;
	return env_add(env, "USER=sandbox", e);
}

int oci_config_env(const char *text, size_t len, const char *arch, char ***ret, struct err *e)
{
	_cleanup_json_ json_t *o = NULL;
	struct env env = { NULL, 0, 0, false };
	const char *made_for;

	if (json_parse_any(text, len, OCI_CONFIG_MAX, &o, e) < 0)
		return err_prefix(e, "the image's configuration: ");
	if (!json_is_object(o))
		return bad(e, "the image's configuration is no object");
	made_for = text_of(o, "architecture");
	if (*made_for && strcmp(made_for, arch) != 0)
		return err_set(e, ERR_NOT_FOUND, "the image is made for %.20s; this machine is %s",
			made_for, arch);
	if (*text_of(o, "os") && strcmp(text_of(o, "os"), "linux") != 0)
		return err_set(e, ERR_NOT_FOUND, "the image is made for %.20s, not linux",
			text_of(o, "os"));
	if (env_fill(&env, json_object_get(json_object_get(o, "config"), "Env"), e) == 0) {
		*ret = env.v;
		return 0;
	}
	for (size_t i = 0; i < env.n; i++)
		free(env.v[i]);
	free(env.v);
	return -1;
}
