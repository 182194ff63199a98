/* SPDX-License-Identifier: MIT */
/* Options. Everything that libfuse or the kernel knows is passed on to them. */
#include "sbxfs/options.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 256 /* as many callers may wait for sandboxes that do not answer */

#define OPT(text, member) { text, offsetof(struct options, member), 0 }
#define FLAG(text, member) { text, offsetof(struct options, member), 1 }

static const struct fuse_opt table[] = {
	OPT("--endpoint=%s", endpoint),
	OPT("--endpoint %s", endpoint),
	OPT("endpoint=%s", endpoint),
	OPT("--token-file=%s", token_file),
	OPT("--token-file %s", token_file),
	OPT("token_file=%s", token_file),
	OPT("--ca=%s", ca_file),
	OPT("--ca %s", ca_file),
	OPT("ca=%s", ca_file),
	OPT("sbx=%s", sbx),
	OPT("ids=%s", ids_word),
	OPT("links=%s", links_word),
	OPT("gid=%s", gid_word),
	OPT("use=%s", use_word),
	OPT("proto=%s", proto_word),
	OPT("cache=%s", cache_word),
	OPT("locks=%s", locks_word),
	OPT("max_threads=%d", max_threads),
	OPT("timeout=%d", timeout),
	FLAG("allow_other", allow_other),
	FLAG("ro", read_only),
	FUSE_OPT_KEY("ro", FUSE_OPT_KEY_KEEP), /* and on to the kernel */
	FLAG("-f", foreground),
	FLAG("-d", debug),
	FLAG("debug", debug),
	FLAG("-h", show_help),
	FLAG("--help", show_help),
	FLAG("-V", show_version),
	FLAG("--version", show_version),
	FUSE_OPT_END,
};

/* Words of fstab that are for mount(8) itself. */
static bool is_for_mount(const char *arg)
{
	static const char *const words[] = { "rw", "auto", "noauto", "user", "nouser", "users", "_netdev",
		"nofail", "defaults", "suid", "dev", "exec" };

	for (size_t n = 0; n < sizeof(words) / sizeof(words[0]); n++)
		if (!strcmp(words[n], arg))
			return true;
	return !strncmp(arg, "x-", 2) || !strncmp(arg, "comment=", 8);
}

static bool is_endpoint(const char *s)
{
	return !strncmp(s, "unix:", 5) || !strncmp(s, "http://", 7) || !strncmp(s, "https://", 8);
}

/* The last plain word is the mount point; one before it is the source of an fstab line. */
static int on_word(struct options *o, const char *arg)
{
	if (o->source) {
		fprintf(stderr, "sbxfs: one mount point, please: %s\n", arg);
		return -1;
	}
	if (o->mountpoint)
		o->source = o->mountpoint;
	o->mountpoint = strdup(arg);
	return o->mountpoint ? 0 : -1;
}

static int on_arg(void *data, const char *arg, int key, struct fuse_args *out)
{
	(void)out;
	if (key == FUSE_OPT_KEY_NONOPT)
		return on_word(data, arg);
	if (key == FUSE_OPT_KEY_OPT && is_for_mount(arg))
		return 0;
	return 1;
}

static int word_of(const char *what, const char *word, const char *const *words)
{
	for (int n = 0; words[n]; n++)
		if (!word || !strcmp(words[n], word))
			return n;
	fprintf(stderr, "sbxfs: %s=%s is not known (", what, word);
	for (int n = 0; words[n]; n++)
		fprintf(stderr, "%s%s", n ? ", " : "", words[n]);
	fprintf(stderr, ")\n");
	return -1;
}

static int cache_of(struct options *o)
{
	static const char *const cache[] = { "watch", "strict", "fixed:N", NULL };
	char *end;
	int n;

	if (o->cache_word && !strncmp(o->cache_word, "fixed:", 6)) {
		o->cache = CACHE_FIXED;
		o->cache_secs = strtod(o->cache_word + 6, &end);
		if (isdigit((unsigned char)o->cache_word[6]) && !*end && o->cache_secs <= 86400)
			return 0;
		fprintf(stderr, "sbxfs: cache=fixed:N needs a number of seconds, at most 86400\n");
		return -1;
	}
	n = word_of("cache", o->cache_word, cache);
	o->cache = (enum cache_mode)n;
	return n < 0 ? -1 : 0;
}

static int words(struct options *o)
{
	static const char *const ids[] = { "raw", "map", NULL };
	static const char *const links[] = { "confine", "refuse", "exact", NULL };
	static const char *const use[] = { "write", "all", NULL };
	static const char *const proto[] = { "auto", "http", NULL };
	static const char *const locks[] = { "auto", "local", NULL };
	int i = word_of("ids", o->ids_word, ids), l = word_of("links", o->links_word, links);
	int u = word_of("use", o->use_word, use), p = word_of("proto", o->proto_word, proto);
	int k = word_of("locks", o->locks_word, locks);

	if (i < 0 || l < 0 || u < 0 || p < 0 || k < 0 || cache_of(o) < 0)
		return -1;
	o->locks_local = k == 1;
	o->proto = p ? PROTO_HTTP : PROTO_AUTO;
	o->ids = (enum ids_mode)i;
	o->links = (enum links_mode)l;
	o->use_all = u == 1;
	return 0;
}

static int group(struct options *o)
{
	struct group *g;
	unsigned long number;
	char *end;

	o->owner = getuid();
	o->gid = getgid();
	/* Root's mount is for root and the group that it names; others' is their own. Without a group the
	 * kernel keeps everybody else out by itself. */
	if (!o->gid_word)
		return 0;
	o->has_gid = true;
	if (o->owner == 0)
		o->allow_other = 1;
	number = strtoul(o->gid_word, &end, 10);
	o->gid = (gid_t)number;
	if (isdigit((unsigned char)o->gid_word[0]) && !*end && number < (gid_t)-1)
		return 0;
	g = getgrnam(o->gid_word);
	if (!g) {
		fprintf(stderr, "sbxfs: there is no group %s\n", o->gid_word);
		return -1;
	}
	o->gid = g->gr_gid;
	return 0;
}

/* The program that bin/PROGRAM starts: beside us, by default. */
static int sbx_path_default(struct options *o)
{
	char exe[PATH_MAX], *full;
	ssize_t n;

	if (o->sbx && o->sbx[0] == '/')
		return 0;
	if (o->sbx) {
		fprintf(stderr, "sbxfs: sbx=PATH must be absolute\n");
		return -1;
	}
	n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	if (n < 0)
		n = 0;
	exe[n] = '\0';
	if (asprintf(&full, "%s/sbx", n ? dirname(exe) : "/usr/bin") < 0)
		return -1;
	o->sbx = full;
	return 0;
}

/* We leave the current directory. */
static int absolute(char **path)
{
	char *full;

	if (!*path)
		return 0;
	full = realpath(*path, NULL);
	if (!full) {
		fprintf(stderr, "sbxfs: %s: %s\n", *path, strerror(errno));
		return -1;
	}
	free(*path);
	*path = full;
	return 0;
}

/* The same for the mount point, which may be a dead mount that nothing can be asked about. */
static int absolute_mountpoint(char **path)
{
	char *full = realpath(*path, NULL), cwd[PATH_MAX];

	if (!full && (errno != ENOTCONN && errno != ECONNABORTED))
		return absolute(path); /* says why */
	if (!full && (*path)[0] == '/')
		return 0;
	if (!full && (!getcwd(cwd, sizeof(cwd)) || asprintf(&full, "%s/%s", cwd, *path) < 0))
		return -1;
	free(*path);
	*path = full;
	return 0;
}

int fsopt_parse(struct fuse_args *args, struct options *o)
{
	if (fuse_opt_parse(args, o, table, on_arg) < 0)
		return -1;
	if (o->show_help || o->show_version)
		return 0;
	if (!o->mountpoint) {
		fprintf(stderr, "sbxfs: where? See sbxfs --help\n");
		return -1;
	}
	if (o->source && !o->endpoint && is_endpoint(o->source))
		o->endpoint = strdup(o->source);
	if (o->max_threads < 0 || o->max_threads > THREADS) {
		fprintf(stderr, "sbxfs: max_threads=N needs a number from 1 to %d\n", THREADS);
		return -1;
	}
	if (!o->max_threads)
		o->max_threads = THREADS;
	if (o->timeout < 0 || o->timeout > 3600) {
		fprintf(stderr, "sbxfs: timeout=N needs a number of seconds, at most 3600\n");
		return -1;
	}
	if (o->debug)
		o->foreground = 1;
	if (words(o) < 0 || group(o) < 0 || sbx_path_default(o) < 0)
		return -1;
	if (absolute_mountpoint(&o->mountpoint) < 0)
		return -1;
	return absolute(&o->token_file) < 0 || absolute(&o->ca_file) < 0 ? -1 : 0;
}

void fsopt_fini(struct options *o)
{
	char *all[] = { o->endpoint, o->token_file, o->ca_file, o->mountpoint, o->source, o->sbx,
		o->ids_word, o->links_word, o->gid_word, o->use_word, o->proto_word,
		o->cache_word, o->locks_word };

	for (size_t n = 0; n < sizeof(all) / sizeof(all[0]); n++)
		free(all[n]);
	memset(o, 0, sizeof(*o));
}

void fsopt_usage(const char *program)
{
	printf("usage: %s [--endpoint URL] [--token-file F] [--ca F] [-f] [-o OPTIONS] MOUNTPOINT\n"
	       "\n"
	       "  --endpoint URL     unix:///path, https://host:port or http://127.0.0.1:port\n"
	       "  --token-file F     file with the token, readable by its owner only\n"
	       "  --ca F             certificates that the server's is checked against\n"
	       "  -f                 stay in the foreground\n"
	       "\n"
	       "Options for -o:\n"
	       "  gid=GROUP          the group that may use a mount made by root\n"
	       "  ids=raw|map        raw: guest numbers (default); map: the sandbox's user is you\n"
	       "  links=confine|refuse|exact   links that lead out of a sandbox\n"
	       "  sbx=PATH           program that bin/PROGRAM starts\n"
	       "  use=write|all      all: reading keeps a sandbox awake, too\n"
	       "  proto=auto|http    auto: one connection a sandbox for its files, where the server can\n"
	       "  cache=watch|strict|fixed:N   what is believed about a sandbox's files, and how long\n"
	       "  locks=auto|local   auto: locks hold inside and in other mounts, where the server can\n"
	       "  timeout=N          seconds that a request may take, data three times as long (10)\n"
	       "  max_threads=N      threads that answer the kernel (256)\n"
	       "  ro, noexec ...     as for any mount; nosuid and nodev are always on\n",
		program);
}
