/* SPDX-License-Identifier: MIT */
/* Image references and the three kinds of JSON that make an image: index, manifest, configuration. All of
 * it comes from strangers; everything is bounded and nothing is believed that is not a digest of bytes we
 * have. Pure. */
#ifndef SANDBOXD_CORE_OCI_H
#define SANDBOXD_CORE_OCI_H

#include "common/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OCI_DIGEST_LEN   72 /* "sha256:" 64 hex, with NUL */
#define OCI_LAYERS_MAX   127
#define OCI_CONFIG_MAX   (4 * 1024 * 1024)
#define OCI_BYTES_MAX    ((int64_t)64 << 30) /* of all layers, packed */
#define OCI_ENV_MAX      1000
#define OCI_ENV_BYTES    (256 * 1024)
#define OCI_REGISTRY_LEN 256

/* What a reference means. `alpine` is docker.io/library/alpine:latest, as everybody expects; nothing is
 * ever searched for in several places. */
struct oci_ref {
	char registry[OCI_REGISTRY_LEN]; /* docker.io, localhost:5000 */
	char repo[OCI_REGISTRY_LEN];     /* registry/name */
	char full[2 * OCI_REGISTRY_LEN]; /* with :tag or @digest */
	char digest[OCI_DIGEST_LEN];     /* "": a tag */
};
int oci_ref_parse(const char *ref, struct oci_ref *ret, struct err *e);

bool oci_digest_ok(const char *s); /* sha256: and 64 lower-case hex digits */
const char *oci_arch(void);        /* of this machine, in the words of images */

struct oci_blob {
	char digest[OCI_DIGEST_LEN];
	int64_t size;
};
struct oci_manifest {
	struct oci_blob config;
	size_t nlayers;
	struct oci_blob layers[OCI_LAYERS_MAX]; /* the lowest first */
	int64_t total;                          /* bytes of all layers */
};
/* Is it a list of manifests for several machines? Then *ret is the digest of ours; "" when it is a single
 * manifest. not_found: it has none for this machine. */
int oci_index_pick(const char *text, size_t len, const char *arch, char ret[OCI_DIGEST_LEN],
	struct err *e);
int oci_manifest_parse(const char *text, size_t len, struct oci_manifest *ret, struct err *e);
/* The environment for processes: the image's without what is not allowed, HOME and USER replaced, a PATH
 * when it has none. Refuses a configuration for another machine. Caller frees each and all. */
int oci_config_env(const char *text, size_t len, const char *arch, char ***ret, struct err *e);

#endif
