/* SPDX-License-Identifier: MIT */
/* What image names mean, and what is taken from other people's manifests: rows of text and verdict. */
#include "tests/support/test.h"

#include "sandboxd/core/core_internal.h"
#include "sandboxd/core/oci.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define DIGEST "sha256:" HEX64

static const struct {
	const char *ref, *registry, *full; /* registry NULL: refused */
} refs[] = {
	{ "alpine", "docker.io", "docker.io/library/alpine:latest" },
	{ "alpine:3.19", "docker.io", "docker.io/library/alpine:3.19" },
	{ "user/app", "docker.io", "docker.io/user/app:latest" },
	{ "docker.io/alpine", "docker.io", "docker.io/library/alpine:latest" },
	{ "index.docker.io/user/app:1", "docker.io", "docker.io/user/app:1" },
	{ "quay.io/a/b/c:v1", "quay.io", "quay.io/a/b/c:v1" },
	{ "localhost/x", "localhost", "localhost/x:latest" },
	{ "localhost:5000/x:1", "localhost:5000", "localhost:5000/x:1" },
	{ "127.0.0.1:5000/x", "127.0.0.1:5000", "127.0.0.1:5000/x:latest" },
	{ "REG.example:5000/team/a_b-c.d", "REG.example:5000", "REG.example:5000/team/a_b-c.d:latest" },
	{ "q.io/x@" DIGEST, "q.io", "q.io/x@" DIGEST },
	{ "q.io/x:1@" DIGEST, "q.io", "q.io/x@" DIGEST }, /* the digest decides */
	{ "q.io/x@sha256:12", NULL, NULL },
	{ "q.io/x@md5:0123", NULL, NULL },
	{ "q.io/X", NULL, NULL },
	{ "q.io/x//y", NULL, NULL },
	{ "q.io/", NULL, NULL },
	{ "q.io/x:", NULL, NULL },
	{ "q.io/x:-t", NULL, NULL },
	{ "q.io:99999999/x", NULL, NULL },
	{ "q.io:p/x", NULL, NULL },
	{ ".q.io/x", NULL, NULL },
	{ "q.io/../x", NULL, NULL },
	{ "a b/x", NULL, NULL },
};

static void names_mean_one_thing(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(refs); i++) {
		struct oci_ref r;
		struct err e = ERR_NULL;
		int rc = oci_ref_parse(refs[i].ref, &r, &e);
		if ((rc == 0) != (refs[i].registry != NULL))
			fail_msg("%s: %d %s", refs[i].ref, rc, e.msg);
		if (rc < 0) {
			assert_int_equal(e.code, ERR_INVALID_REQUEST);
			continue;
		}
		assert_string_equal(r.registry, refs[i].registry);
		assert_string_equal(r.full, refs[i].full);
	}
}

/* --- index ------------------------------------------------------------------------------------ */

static void of_an_index_ours_is_taken(void **state)
{
	static const char index[] =
		"{\"manifests\":[{\"digest\":\"sha256:x\",\"platform\":{\"os\":\"linux\",\"architecture\":\"s390x\"}},"
		"{\"digest\":\"" DIGEST "\",\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"}},"
		"{\"digest\":\"sha256:y\",\"platform\":{\"os\":\"windows\",\"architecture\":\"arm64\"}}]}";
	static const struct {
		const char *text, *arch, *want; /* want NULL: refused, with code */
		enum err_code code;
	} rows[] = {
		{ index, "amd64", DIGEST, ERR_NONE },
		{ index, "arm64", NULL, ERR_NOT_FOUND },
		{ index, "s390x", NULL, ERR_INVALID_REQUEST }, /* no digest that we know */
		{ "{\"manifests\":[]}", "amd64", NULL, ERR_NOT_FOUND },
		{ "{\"manifests\":[{\"digest\":\"" DIGEST "\"}]}", "amd64", DIGEST, ERR_NONE },
		{ "{\"manifests\":[7]}", "amd64", NULL, ERR_INVALID_REQUEST },
		{ "{\"layers\":[]}", "amd64", "", ERR_NONE }, /* none */
		{ "[]", "amd64", "", ERR_NONE },
		{ "{", "amd64", NULL, ERR_INVALID_REQUEST },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char got[OCI_DIGEST_LEN] = "?";
		struct err e = ERR_NULL;
		int rc = oci_index_pick(rows[i].text, strlen(rows[i].text), rows[i].arch, got, &e);
		if ((rc == 0) != (rows[i].want != NULL))
			fail_msg("row %zu: %d %s", i, rc, e.msg);
		if (rc == 0)
			assert_string_equal(got, rows[i].want);
		else
			assert_int_equal(e.code, rows[i].code);
	}
}

/* --- manifest --------------------------------------------------------------------------------- */

#define TAR  "\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\","
#define BLOB "\"digest\":\"" DIGEST "\",\"size\":"
#define WITH(config, layers) "{\"schemaVersion\":2,\"config\":{" config "},\"layers\":[" layers "]}"

static const struct {
	const char *what, *text;
	bool ok;
} manifests[] = {
	{ "a good one", WITH(BLOB "7", "{" TAR BLOB "9},{" TAR BLOB "1}"), true },
	{ "zero bytes are a size", WITH(BLOB "0", "{" TAR BLOB "0}"), true },
	{ "no layers", WITH(BLOB "7", ""), false },
	{ "no config", WITH("", "{" TAR BLOB "9}"), false },
	{ "an old schema", "{\"schemaVersion\":1,\"config\":{" BLOB "7},\"layers\":[{" TAR BLOB "9}]}", false },
	{ "a size below zero", WITH(BLOB "7", "{" TAR BLOB "-1}"), false },
	{ "a size beyond all", WITH(BLOB "7", "{" TAR BLOB "9007199254740991}"), false },
	{ "a size that is text", WITH(BLOB "7", "{" TAR BLOB "\"9\"}"), false },
	{ "a size with a point", WITH(BLOB "7", "{" TAR BLOB "9.0}"), false },
	{ "a big config", WITH(BLOB "99999999", "{" TAR BLOB "9}"), false },
	{ "a digest with a path", WITH(BLOB "7", "{" TAR "\"digest\":\"sha256:../../../etc/passwd\",\"size\":9}"), false },
	{ "a digest of capitals", WITH(BLOB "7", "{" TAR "\"digest\":\"sha256:0123456789ABCDEF" HEX64 "\",\"size\":9}"), false },
	{ "another kind of layer", WITH(BLOB "7", "{\"mediaType\":\"application/x\"," BLOB "9}"), false },
	{ "layers that are no list", "{\"schemaVersion\":2,\"config\":{" BLOB "7},\"layers\":{}}", false },
	{ "layers that are no objects", WITH(BLOB "7", "1,2"), false },
	{ "no object", "[]", false },
	{ "two sizes that are too much together",
		WITH(BLOB "7", "{" TAR BLOB "60000000000},{" TAR BLOB "60000000000}"), false },
};

static void manifests_are_bounded(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(manifests); i++) {
		struct oci_manifest m;
		struct err e = ERR_NULL;
		int rc = oci_manifest_parse(manifests[i].text, strlen(manifests[i].text), &m, &e);
		if ((rc == 0) != manifests[i].ok)
			fail_msg("%s: %d %s", manifests[i].what, rc, e.msg);
	}
}

static void at_most_127_layers(void **state)
{
	static const char layer[] = "{" TAR BLOB "1}";

	(void)state;
	for (size_t n = OCI_LAYERS_MAX; n <= OCI_LAYERS_MAX + 1; n++) {
		_cleanup_free_ char *text = calloc(1, 200 + n * (sizeof(layer) + 1));
		struct oci_manifest m;
		struct err e = ERR_NULL;
		strcpy(text, "{\"schemaVersion\":2,\"config\":{" BLOB "7},\"layers\":[");
		for (size_t i = 0; i < n; i++)
			strcat(strcat(text, i ? "," : ""), layer);
		strcat(text, "]}");
		assert_int_equal(oci_manifest_parse(text, strlen(text), &m, &e), n == OCI_LAYERS_MAX ? 0 : -1);
		assert_true(m.nlayers <= OCI_LAYERS_MAX);
	}
}

/* --- configuration ---------------------------------------------------------------------------- */

#define USUAL "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "
#define OWN   "HOME=/sandbox/home USER=sandbox "

static const struct {
	const char *text, *want; /* want NULL: refused */
} configs[] = {
	{ "{}", USUAL OWN },
	{ "{\"config\":{\"Env\":[\"PATH=/x\",\"A=1\",\"B=\"]}}", "PATH=/x A=1 B= " OWN },
	{ "{\"config\":{\"Env\":[\"A=1\",\"A=2\",\"AB=3\"]}}", "A=2 AB=3 " USUAL OWN },
	{ "{\"config\":{\"Env\":[\"HOME=/root\",\"USER=root\",\"LD_PRELOAD=x\",\"IFS=x\",\"1A=x\",\"=x\",\"x\",7]}}", USUAL OWN },
	{ "{\"config\":{\"Env\":null}}", USUAL OWN },
	{ "{\"architecture\":\"amd64\",\"os\":\"linux\"}", USUAL OWN },
	{ "{\"architecture\":\"arm64\"}", NULL },
	{ "{\"os\":\"windows\"}", NULL },
	{ "\"text\"", NULL },
	{ "{\"config\":{\"Env\":[\"A=\\u0000\"]}}", USUAL OWN },
	{ "nothing", NULL },
};

static void environments_are_like_a_request_s(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
		char got[2048] = "", **env = NULL;
		struct err e = ERR_NULL;
		int rc = oci_config_env(configs[i].text, strlen(configs[i].text), "amd64", &env, &e);
		if ((rc == 0) != (configs[i].want != NULL))
			fail_msg("%s: %d %s", configs[i].text, rc, e.msg);
		for (size_t k = 0; rc == 0 && env[k]; k++)
			strcat(strcat(got, env[k]), " ");
		if (rc == 0)
			assert_string_equal(got, configs[i].want);
		image_env_free(env);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_mean_one_thing),
		cmocka_unit_test(of_an_index_ours_is_taken),
		cmocka_unit_test(manifests_are_bounded),
		cmocka_unit_test(at_most_127_layers),
		cmocka_unit_test(environments_are_like_a_request_s),
	};

	return run_table(tests);
}
