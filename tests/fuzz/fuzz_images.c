/* SPDX-License-Identifier: MIT */
/* What registries and archives send: the first byte picks index, manifest, configuration or name. Whatever
 * is taken keeps to its bounds. */
#include "tests/fuzz/fuzz.h"

#include "sandboxd/core/oci.h"

static void fuzz_image_index(const char *text, size_t len)
{
	char digest[OCI_DIGEST_LEN] = "?";
	struct err e = ERR_NULL;

	if (oci_index_pick(text, len, "amd64", digest, &e) == 0)
		promise(!digest[0] || oci_digest_ok(digest));
	else
		promise(e.code != ERR_NONE && e.msg[0]);
}

static void fuzz_image_manifest(const char *text, size_t len)
{
	struct oci_manifest m;
	struct err e = ERR_NULL;

	if (oci_manifest_parse(text, len, &m, &e) < 0) {
		promise(e.code != ERR_NONE && e.msg[0]);
		return;
	}
	promise(m.nlayers > 0 && m.nlayers <= OCI_LAYERS_MAX);
	promise(m.total >= 0 && m.total <= OCI_BYTES_MAX);
	promise(m.config.size >= 0 && m.config.size <= OCI_CONFIG_MAX && oci_digest_ok(m.config.digest));
	for (size_t i = 0; i < m.nlayers; i++)
		promise(m.layers[i].size >= 0 && oci_digest_ok(m.layers[i].digest));
}

static void fuzz_image_config(const char *text, size_t len)
{
	struct err e = ERR_NULL;
	char **env = NULL;
	size_t n = 0;

	if (oci_config_env(text, len, "amd64", &env, &e) < 0) {
		promise(e.code != ERR_NONE && e.msg[0]);
		return;
	}
	while (env[n])
		promise(strchr(env[n++], '='));
	promise(n >= 3 && !strcmp(env[n - 2], "HOME=/sandbox/home") && !strcmp(env[n - 1], "USER=sandbox"));
	for (size_t i = 0; i < n; i++)
		free(env[i]);
	free(env);
}

static void fuzz_image_name(const char *text)
{
	struct oci_ref r;
	struct err e = ERR_NULL;

	if (oci_ref_parse(text, &r, &e) < 0)
		return;
	/* it becomes an argument of a program */
	promise(r.full[0] != '-' && !strpbrk(r.full, " \t\n'\"$\\") && strlen(r.full) < sizeof(r.full) - 1);
	promise(!strstr(r.full, "/../") && strchr(r.full, '/'));
}

int fuzz_images(const uint8_t *data, size_t size)
{
	char *text;

	if (size == 0)
		return 0;
	text = supply_text(data + 1, size - 1);
	switch (data[0] % 4) {
	case 0: fuzz_image_index(text, size - 1); break;
	case 1: fuzz_image_manifest(text, size - 1); break;
	case 2: fuzz_image_config(text, size - 1); break;
	default: fuzz_image_name(text); break;
	}
	free(text);
	return 0;
}
