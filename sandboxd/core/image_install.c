/* SPDX-License-Identifier: MIT */
/* One install: a file of the image folder, or what image_fetch.c brings, becomes layers. Nothing
 * that was made counts until image_save; what is left of a failure has no owner and goes. */
#include "sandboxd/core/images_internal.h"

#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (1024 * 1024)

int install_check(const struct install *in, struct err *e)
{
	if (__atomic_load_n(&in->cancel, __ATOMIC_ACQUIRE))
		return err_set(e, ERR_CONFLICT, "the install was cancelled");
	if (clock_mono_ms() >= in->deadline_ms)
		return err_set(e, ERR_UNAVAILABLE, "the install took longer than an hour");
	return 0;
}

void install_phase(struct install *in, enum image_phase phase, int64_t total)
{
	__atomic_store_n(&in->done, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&in->total, total, __ATOMIC_RELAXED);
	__atomic_store_n(&in->phase, (int)phase, __ATOMIC_RELAXED);
}

/* --- digests --------------------------------------------------------------------------------- */

static void hex_digest(const unsigned char *md, unsigned n, char ret[OCI_DIGEST_LEN])
{
	size_t at = (size_t)snprintf(ret, OCI_DIGEST_LEN, "sha256:");

	for (unsigned i = 0; i < n && at + 2 < OCI_DIGEST_LEN; i++)
		at += (size_t)snprintf(ret + at, OCI_DIGEST_LEN - at, "%02x", md[i]);
}

int install_digest(struct install *in, int fd, char ret[OCI_DIGEST_LEN], struct err *e)
{
	_cleanup_free_ char *buf = malloc(CHUNK);
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned char md[EVP_MAX_MD_SIZE];
	unsigned len = 0;
	off_t at = 0;
	ssize_t n = -1;
	int rc = 0;

	if (buf && ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1)
		while (rc == 0 && (n = pread(fd, buf, CHUNK, at)) > 0) {
			(void)EVP_DigestUpdate(ctx, buf, (size_t)n);
			at += n;
			rc = install_check(in, e);
		}
	if (rc == 0 && (n < 0 || EVP_DigestFinal_ex(ctx, md, &len) != 1))
		rc = err_sys(e, errno ? errno : ENOMEM, "read what belongs to the image");
	EVP_MD_CTX_free(ctx);
	if (rc == 0)
		hex_digest(md, len, ret);
	return rc;
}

void text_digest(const void *text, size_t len, char ret[OCI_DIGEST_LEN])
{
	unsigned char md[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	(void)EVP_Digest(text, len, md, &n, EVP_sha256(), NULL);
	hex_digest(md, n, ret);
}

/* --- layers ---------------------------------------------------------------------------------- */

static void set_importing(struct install *in, uint32_t num, int fd)
{
	struct images *s = in->core->images;

	pthread_mutex_lock(&s->lock);
	in->importing = num;
	in->archive_fd = fd;
	pthread_mutex_unlock(&s->lock);
}

static int import(struct install *in, uint32_t num, enum backend_layer_kind kind,
	const struct backend_chain *below, int fd, struct err *e)
{
	struct core *c = in->core;
	int64_t bytes = 0;
	bool covers = false;
	int rc;

	set_importing(in, num, fd);
	rc = install_check(in, e);
	if (rc == 0)
		rc = c->ops->layer_import(c->backend, num, kind, below, fd, &bytes, &covers, e);
	set_importing(in, 0, -1);
	if (rc == 0)
		rc = layers_ready(c, num, bytes, covers, e);
	return rc;
}

static int push(struct core *c, struct backend_chain *chain, uint32_t num, struct err *e)
{
	if (layers_covers(c, num)) {
		layers_unref(c, chain);
		chain->n = 0;
	}
	if (chain->n == BACKEND_CHAIN_MAX) {
		layers_unref_one(c, num);
		return err_set(e, ERR_INVALID_REQUEST, "the image has too many layers");
	}
	memmove(chain->layers + 1, chain->layers, chain->n * sizeof(chain->layers[0]));
	chain->layers[0] = num;
	chain->n++;
	return 0;
}

int install_layer(struct install *in, enum backend_layer_kind kind, const char *key, int fd,
	struct backend_chain *chain, struct err *e)
{
	struct core *c = in->core;
	uint32_t num;

	if (install_check(in, e) < 0)
		return -1;
	if (key && layers_find(c, key, &num))
		return push(c, chain, num, e);
	if (layers_new(c, LAYER_OF_IMAGE, key, &num, e) < 0)
		return -1;
	if (import(in, num, kind, chain, fd, e) == 0)
		return push(c, chain, num, e);
	layers_unref_one(c, num);
	return -1;
}

/* --- a whole root ---------------------------------------------------------------------------- */

int install_done(struct install *in, const char *digest, char **env, struct err *e)
{
	struct image_data *d = &in->data;

	d->env = env;
	d->digest = strdup(digest);
	d->bytes = layers_bytes(in->core, &d->chain);
	d->installed_ns = clock_wall_ns();
	return d->env && d->digest ? 0 : err_oom(e);
}

static int install_rootfs(struct install *in, int fd, struct err *e)
{
	char digest[OCI_DIGEST_LEN], key[OCI_DIGEST_LEN + 8];

	install_phase(in, IMAGE_BUILDING, (int64_t)in->data.stamp.size);
	if (install_digest(in, fd, digest, e) < 0)
		return -1;
	snprintf(key, sizeof(key), "rootfs:%s", digest); /* unlike a layer it holds the fixup */
	if (install_layer(in, LAYER_ROOTFS, key, fd, &in->data.chain, e) < 0)
		return -1;
	return install_done(in, digest, image_default_env(), e);
}

int install_run(struct install *in, struct err *e)
{
	struct images *s = in->core->images;
	enum image_format format;
	int fd = -1, rc;

	if (!image_local_find(s, in->ref, &in->data.stamp)) {
		in->same = in->known_local; /* its file has gone: there is nothing newer */
		return in->same ? 0 : fetch_remote(in, e);
	}
	if (image_local_open(s, in->ref, &format, &fd, &in->data.stamp, e) < 0)
		return -1;
	rc = format == IMAGE_ROOTFS_TAR ? install_rootfs(in, fd, e)
					: fetch_local(in, format, fd, e);
	close(fd);
	return rc < 0 ? err_prefix(e, "image \"%.80s\": ", in->ref) : 0;
}
