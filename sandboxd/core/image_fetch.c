/* SPDX-License-Identifier: MIT */
/* Images in the form that others write: manifest, configuration, a blob a layer. They come from a
 * registry or an archive through sbx-pull, or from a layout that lies in the image folder; each
 * blob is checked against its digest here, whoever has done so before. */
#include "sandboxd/core/images_internal.h"

#include "common/sys/fault.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "common/sys/tree.h"
#include "sandboxd/core/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK    (1024 * 1024)
#define SLACK    ((int64_t)16 << 20) /* a fetch may be so much bigger than its manifest says */
#define SPACE_MB 256

struct fetch {
	struct install *in;
	struct pull *pull;
	struct pull_work work;
	int64_t total; /* packed bytes that may come; 0: not known */
};

static int look(void *arg, struct err *e)
{
	struct fetch *f = arg;
	int64_t size = tree_size(f->work.dirfd, ".", PULL_FILES_MAX);

	__atomic_store_n(&f->in->done, size, __ATOMIC_RELAXED);
	if (f->total && size > f->total + SLACK)
		return err_set(e, ERR_INTERNAL, "the registry sends more than its manifest says");
	return install_check(f->in, e);
}

/* *ret: NUL-terminated; caller frees. */
static int read_small(
	int dirfd, const char *name, size_t max, char **ret, size_t *ret_len, struct err *e)
{
	_cleanup_close_ int fd =
		openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	_cleanup_free_ char *buf = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "%.20s of the image", name);
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)max)
		return err_set(e, ERR_INVALID_REQUEST, "%.20s of the image is too big", name);
	buf = malloc((size_t)st.st_size + 1);
	if (!buf)
		return err_oom(e);
	n = pread(fd, buf, (size_t)st.st_size, 0);
	if (n != st.st_size)
		return err_sys(e, n < 0 ? errno : EIO, "%.20s of the image", name);
	buf[n] = '\0';
	*ret = steal(buf);
	*ret_len = (size_t)n;
	return 0;
}

/* Asks for a manifest and checks that it is the one of this digest ("": any; then it is filled). */
static int fetch_manifest(struct fetch *f, const char *ref, char digest[OCI_DIGEST_LEN],
	char **text, size_t *len, struct err *e)
{
	char got[OCI_DIGEST_LEN];

	if (pull_run(f->pull, &f->work, PULL_MANIFEST, PULL_REGISTRY, ref, look, f, e) < 0 ||
		read_small(f->work.dirfd, "manifest", PULL_MANIFEST_MAX, text, len, e) < 0)
		return -1;
	(void)unlinkat(f->work.dirfd, "manifest", 0);
	text_digest(*text, *len, got);
	if (digest[0] && strcmp(digest, got) != 0)
		return err_set(e, ERR_INTERNAL,
			"the registry lies: the manifest it sent is not the one of its digest");
	memcpy(digest, got, OCI_DIGEST_LEN);
	return 0;
}

static const char *blob_name(const struct oci_blob *b)
{
	return b->digest + strlen("sha256:");
}

static int check_space(struct install *in, int64_t bytes, struct err *e)
{
	struct core *c = in->core;

	if (c->ops->disk_free_mb(c->backend) >= (bytes >> 20) + SPACE_MB)
		return 0;
	return err_set(e, ERR_UNAVAILABLE, "the host's disk has no room for the image");
}

static int read_env(const struct oci_manifest *m, int dirfd, char ***env, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	char got[OCI_DIGEST_LEN];
	size_t len;

	if (read_small(dirfd, blob_name(&m->config), OCI_CONFIG_MAX, &text, &len, e) < 0)
		return -1;
	text_digest(text, len, got);
	if (strcmp(got, m->config.digest) != 0)
		return err_set(
			e, ERR_INTERNAL, "the image's configuration is not that of its digest");
	return oci_config_env(text, len, oci_arch(), env, e);
}

/* ours: the blob may go once it is unpacked. */
static int build_layer(
	struct install *in, const struct oci_blob *b, int dirfd, bool ours, struct err *e)
{
	char got[OCI_DIGEST_LEN];
	_cleanup_close_ int fd =
		openat(dirfd, blob_name(b), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "a layer of the image");
	if (!S_ISREG(st.st_mode) || st.st_size != b->size) /* before it is read to its end */
		return err_set(e, ERR_INTERNAL, "a layer of the image has not the size of its manifest");
	if (install_digest(in, fd, got, e) < 0)
		return -1;
	if (strcmp(got, b->digest) != 0)
		return err_set(e, ERR_INTERNAL, "a layer of the image is not that of its digest");
	rc = install_layer(in, LAYER_OCI, b->digest, fd, &in->data.chain, e);
	__atomic_add_fetch(&in->done, b->size, __ATOMIC_RELAXED);
	if (ours)
		(void)unlinkat(dirfd, blob_name(b), 0); /* room for the next */
	return rc;
}

/* dirfd: a folder with a file for each blob. */
static int build(struct install *in, const struct oci_manifest *m, const char *digest, int dirfd,
	bool ours, struct err *e)
{
	if (read_env(m, dirfd, &in->data.env, e) < 0)
		return -1;
	install_phase(in, IMAGE_BUILDING, m->total);
	for (size_t i = 0; i < m->nlayers; i++)
		if (build_layer(in, &m->layers[i], dirfd, ours, e) < 0)
			return -1;
	if (install_layer(in, LAYER_FINISH, NULL, -1, &in->data.chain, e) < 0)
		return -1;
	fault_point("image-layers");
	return install_done(in, digest, steal(in->data.env), e);
}

/* The folder that was fetched into, which may be anything. */
static int open_fetched(const struct fetch *f, struct err *e)
{
	int fd = openat(f->work.dirfd, "image", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? err_sys(e, errno, "the fetched image") : fd;
}

static int copy(struct fetch *f, enum pull_source source, const char *ref,
	const struct oci_manifest *m, struct err *e)
{
	f->total = m ? m->total + m->config.size : 0;
	install_phase(f->in, IMAGE_PULLING, f->total);
	if (m && check_space(f->in, f->total, e) < 0)
		return -1;
	return pull_run(f->pull, &f->work, PULL_COPY, source, ref, look, f, e);
}

/* The manifest that lies with the blobs; it must be that of `digest` when one is expected. */
static int read_copied(
	int dirfd, struct oci_manifest *m, char digest[OCI_DIGEST_LEN], struct err *e)
{
	_cleanup_free_ char *text = NULL;
	char got[OCI_DIGEST_LEN];
	size_t len;

	if (read_small(dirfd, "manifest.json", PULL_MANIFEST_MAX, &text, &len, e) < 0)
		return -1;
	text_digest(text, len, got);
	if (digest[0] && strcmp(digest, got) != 0)
		return err_set(e, ERR_INTERNAL, "the image that came is not the one asked for");
	memcpy(digest, got, OCI_DIGEST_LEN);
	return oci_manifest_parse(text, len, m, e);
}

/* --- from a registry ------------------------------------------------------------------------- */

/* of: what the tag says; one: the manifest for this machine, which may be the same. */
static int resolve(struct fetch *f, const struct oci_ref *ref, char of[OCI_DIGEST_LEN],
	char one[OCI_DIGEST_LEN], struct oci_manifest *m, struct err *e)
{
	_cleanup_free_ char *text = NULL, *own = NULL;
	char by_digest[sizeof(ref->full)];
	size_t len;

	memcpy(of, ref->digest, OCI_DIGEST_LEN);
	if (fetch_manifest(f, ref->full, of, &text, &len, e) < 0)
		return -1;
	if (f->in->known && !strcmp(f->in->known, of)) {
		f->in->same = true;
		return 0;
	}
	if (oci_index_pick(text, len, oci_arch(), one, e) < 0)
		return -1;
	if (!one[0]) {
		memcpy(one, of, OCI_DIGEST_LEN);
		return oci_manifest_parse(text, len, m, e);
	}
	snprintf(by_digest, sizeof(by_digest), "%s@%s", ref->repo, one);
	if (fetch_manifest(f, by_digest, one, &own, &len, e) < 0)
		return -1;
	return oci_manifest_parse(own, len, m, e);
}

static int login(struct fetch *f, const struct oci_ref *ref, struct err *e)
{
	const struct install *in = f->in;
	const char *to = in->login_registry;

	if (!to)
		return 0;
	if (!strcmp(to, "index.docker.io") || !strcmp(to, "registry-1.docker.io"))
		to = "docker.io";
	if (strcmp(to, ref->registry) != 0)
		return 0; /* it is for that registry only */
	return pull_login(&f->work, to, in->login_auth, e);
}

static int fetch_registry(struct fetch *f, const struct oci_ref *ref, struct err *e)
{
	char of[OCI_DIGEST_LEN] = "", one[OCI_DIGEST_LEN] = "", by_digest[sizeof(ref->full)];
	_cleanup_close_ int dirfd = -1;
	struct oci_manifest m;

	install_phase(f->in, IMAGE_PULLING, 0);
	if (login(f, ref, e) < 0 || resolve(f, ref, of, one, &m, e) < 0)
		return -1;
	if (f->in->same)
		return 0;
	snprintf(by_digest, sizeof(by_digest), "%s@%s", ref->repo, one);
	if (copy(f, PULL_REGISTRY, by_digest, &m, e) < 0 || (dirfd = open_fetched(f, e)) < 0 ||
		read_copied(dirfd, &m, one, e) < 0)
		return -1;
	fault_point("image-pulled");
	return build(f->in, &m, of, dirfd, true, e);
}

int fetch_remote(struct install *in, struct err *e)
{
	struct images *s = in->core->images;
	struct fetch f = { .in = in, .pull = s->pull };
	struct oci_ref ref;
	int rc;

	if (oci_ref_parse(in->ref, &ref, e) < 0)
		return -1;
	if (!s->pull) {
		image_local_missing(s, in->ref, e);
		return -1;
	}
	if (pull_begin(f.pull, &f.work, e) < 0)
		return -1;
	rc = fetch_registry(&f, &ref, e);
	pull_end(f.pull, &f.work);
	if (rc == 0)
		return 0;
	if (image_local_word(in->ref)) /* perhaps something else was meant */
		return err_prefix(e, "image \"%.80s\" is not in %.80s, and from %.60s: ", in->ref,
			s->dir[0] ? s->dir : "an image folder", ref.registry);
	return err_prefix(e, "image \"%.80s\" from %.60s: ", in->ref, ref.registry);
}

/* --- from an archive ------------------------------------------------------------------------- */

/* The tool sees nothing but its own folder. */
static int copy_source(struct fetch *f, int fd, struct err *e)
{
	_cleanup_close_ int to =
		openat(f->work.dirfd, "source.tar", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	_cleanup_free_ char *buf = malloc(CHUNK);
	struct stat st;
	off_t at = 0;
	ssize_t n;

	if (to < 0 || !buf || fstat(fd, &st) < 0)
		return err_sys(e, errno, "copy the archive");
	if (check_space(f->in, st.st_size, e) < 0)
		return -1;
	while ((n = pread(fd, buf, CHUNK, at)) > 0) {
		int r = fd_write_full(to, buf, (size_t)n);
		if (r < 0)
			return err_sys(e, -r, "copy the archive");
		at += n;
		if (install_check(f->in, e) < 0)
			return -1;
	}
	return n < 0 ? err_sys(e, errno, "copy the archive") : 0;
}

static int fetch_archive(struct fetch *f, enum pull_source source, int fd, struct err *e)
{
	char digest[OCI_DIGEST_LEN] = "";
	_cleanup_close_ int dirfd = -1;
	struct oci_manifest m;

	if (copy_source(f, fd, e) < 0 || copy(f, source, "", NULL, e) < 0 || (dirfd = open_fetched(f, e)) < 0 ||
		read_copied(dirfd, &m, digest, e) < 0)
		return -1;
	(void)unlinkat(f->work.dirfd, "source.tar", 0);
	return build(f->in, &m, digest, dirfd, true, e);
}

static int install_archive(struct install *in, enum image_format format, int fd, struct err *e)
{
	struct images *s = in->core->images;
	struct fetch f = { .in = in, .pull = s->pull };
	int rc;

	if (!s->pull)
		return err_set(e, ERR_UNSUPPORTED,
			"archives of images need the program skopeo (package skopeo)");
	if (pull_begin(f.pull, &f.work, e) < 0)
		return -1;
	rc = fetch_archive(&f, format == IMAGE_OCI_TAR ? PULL_OCI_TAR : PULL_DOCKER_TAR, fd, e);
	pull_end(f.pull, &f.work);
	return rc;
}

/* --- from a layout --------------------------------------------------------------------------- */

/* From the layout's index, through at most one more list, to the manifest for this machine. */
static int layout_manifest(
	int dirfd, int blobs, char digest[OCI_DIGEST_LEN], struct oci_manifest *m, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	char next[OCI_DIGEST_LEN], got[OCI_DIGEST_LEN];
	size_t len;

	if (read_small(dirfd, "index.json", PULL_MANIFEST_MAX, &text, &len, e) < 0 ||
		oci_index_pick(text, len, oci_arch(), next, e) < 0)
		return -1;
	for (int depth = 0; next[0] && depth < 3; depth++) {
		memcpy(digest, next, OCI_DIGEST_LEN);
		free(steal(text));
		if (read_small(blobs, digest + strlen("sha256:"), PULL_MANIFEST_MAX, &text, &len,
			    e) < 0)
			return -1;
		text_digest(text, len, got);
		if (strcmp(got, digest) != 0)
			return err_set(
				e, ERR_INTERNAL, "the image's manifest is not that of its digest");
		if (oci_index_pick(text, len, oci_arch(), next, e) < 0)
			return -1;
	}
	return oci_manifest_parse(text, len, m, e);
}

static int install_layout(struct install *in, int fd, struct err *e)
{
	_cleanup_close_ int blobs = openat(fd, "blobs/sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char digest[OCI_DIGEST_LEN] = "";
	struct oci_manifest m;

	if (blobs < 0)
		return err_sys(e, errno, "blobs/sha256");
	if (layout_manifest(fd, blobs, digest, &m, e) < 0)
		return -1;
	return build(in, &m, digest, blobs, false, e);
}

int fetch_local(struct install *in, enum image_format format, int fd, struct err *e)
{
	return format == IMAGE_OCI_DIR ? install_layout(in, fd, e)
				       : install_archive(in, format, fd, e);
}
