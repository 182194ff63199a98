/* SPDX-License-Identifier: MIT */
/* Puts the parts together and checks every reason not to start. The only file that names a concrete
 * backend. */
#include "sandboxd/daemon.h"

#include "common/base/log.h"
#include "common/http/http.h"
#include "common/sys/mem.h"
#include "common/sys/prompt.h"
#include "sandboxd/api/scrape.h"
#include "sandboxd/api/server.h"
#include "sandboxd/api/upgrade.h"
#include "sandboxd/broker.h"
#include "sandboxd/core/core.h"
#include "sandboxd/core/egress.h"
#include "sandboxd/drop.h"
#include "sandboxd/keeper.h"
#include "sandboxd/listen.h"
#include "sandboxd/paths.h"
#include "sandboxd/pull/pull.h"
#include "sandboxd/puller.h"
#include "sandboxd/records.h"
#include "sandboxd/secrets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_CONNECTIONS   1024
#define CONNECTIONS_MOST  1000000
#define MB_MOST           ((int64_t)1 << 40) /* as of a policy's limits */
#define CPUS_MOST         1000000
#define METRICS_CONNECTIONS 16
#define HEADER_TIMEOUT_MS 10000
#define IDLE_TIMEOUT_MS   60000
#define BODY_TIMEOUT_MS   30000
#define PULL_STALL_SECS   120
#define FRONT_BEFORE      10 /* steps of niceness that the front stands before what the host runs */

struct daemon {
	const struct options *opt;
	const struct backend_ops *ops;
	struct listen_addr addr, metrics_addr;
	char address[300];
	char *state_dir, *libexec_dir, *image_dir;
	char *token, *cert, *key, *client_ca;
	struct strmap node_labels;
	struct server_policy policy;
	struct egress_resolvers resolvers;
	bool has_policy;
	/* What to hand on: the path or, where a folder above lets only root pass,
	 * "/proc/self/fd/N". */
	char *state_way, *image_way;
	uid_t uid; /* to become, linux only */
	gid_t gid;
	int state_dirfd, image_dirfd, lock_fd, listen_fd, metrics_fd, broker_fd, keeper_fd, pull_fd;
	pid_t broker;
	struct backend *backend;
	struct core *core;
	struct api *api;
	struct http_server *http, *metrics_http;
};

static bool is_linux(const struct daemon *d)
{
	return d->ops == &linux_backend;
}

/* --- reasons not to start, cheapest first --- */

static int check_not_built(const struct options *o, struct err *e)
{
	if (o->egress_proxy_port || o->egress_dns_port)
		return err_set(e, ERR_UNSUPPORTED,
			"--egress-proxy-port, --egress-dns-port: sandboxes are served inside their own network; no port of the host is used, leave these away");
	return 0;
}

static int check_metrics_listen(struct daemon *d, struct err *e)
{
	if (!d->opt->metrics_listen)
		return 0;
	if (listen_parse(d->opt->metrics_listen, &d->metrics_addr, e) < 0)
		return err_prefix(e, "--metrics-listen: ");
	if (d->metrics_addr.is_unix || !d->metrics_addr.is_loopback)
		return err_set(e, ERR_INVALID_REQUEST,
			"--metrics-listen: it has no credential, so it must be HOST:PORT on loopback");
	return 0;
}

static int check_listen(struct daemon *d, struct err *e)
{
	const struct options *o = d->opt;

	if (listen_parse(o->listen, &d->addr, e) < 0)
		return -1;
	if (!o->tls_cert != !o->tls_key)
		return err_set(e, ERR_INVALID_REQUEST, "--tls-cert and --tls-key go together");
	if (o->client_ca && !o->tls_cert)
		return err_set(e, ERR_INVALID_REQUEST,
			"--client-ca needs --tls-cert and --tls-key: there would be no handshake to check it in");
	if (d->addr.is_unix && o->tls_cert)
		return err_set(e, ERR_INVALID_REQUEST, "--tls-cert: a unix socket carries no TLS");
	if (!d->addr.is_unix && !o->token_file)
		return err_set(e, ERR_INVALID_REQUEST,
			"--listen: TCP needs --token-file: every local user can reach a port");
	if (!d->addr.is_unix && !d->addr.is_loopback && !o->tls_cert)
		return err_set(e, ERR_INVALID_REQUEST,
			"--listen: an address others can reach needs --tls-cert and --tls-key");
	return 0;
}

static int choose_backend(struct daemon *d, struct err *e)
{
	static const struct backend_ops *const all[] = { &linux_backend, &fake_backend };
	const char *name = d->opt->backend ? d->opt->backend : "linux";

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (!strcmp(all[i]->name, name))
			d->ops = all[i];
	if (!d->ops)
		return err_set(e, ERR_INVALID_REQUEST, "--backend: linux or fake");
	if (!is_linux(d) && !d->addr.is_unix)
		return err_set(e, ERR_INVALID_REQUEST,
			"--listen: the fake backend has no isolation and listens on a unix socket only");
	if (is_linux(d) && geteuid() != 0)
		return err_set(e, ERR_INVALID_REQUEST,
			"the linux backend needs root; start as root, or say --backend fake to try the API "
			"without any isolation");
	return 0;
}

static int load_files(struct daemon *d, struct err *e)
{
	const struct options *o = d->opt;

	if (o->token_file && token_load(o->token_file, &d->token, e) < 0)
		return -1;
	if (o->tls_cert && text_load(o->tls_cert, &d->cert, e) < 0)
		return err_prefix(e, "--tls-cert: ");
	if (o->tls_key && text_load(o->tls_key, &d->key, e) < 0)
		return err_prefix(e, "--tls-key: ");
	if (o->client_ca && text_load(o->client_ca, &d->client_ca, e) < 0)
		return err_prefix(e, "--client-ca: ");
	return 0;
}

static bool listed(const struct strlist *l, const char *s)
{
	for (size_t i = 0; i < l->n; i++)
		if (!strcmp(l->v[i], s))
			return true;
	return false;
}

static int load_policy(struct daemon *d, struct err *e)
{
	const char *image = d->opt->default_image;

	if (server_policy_load(d->opt->policy, &d->policy, e) < 0)
		return err_prefix(e, "policy: ");
	d->has_policy = true;
	if (d->policy.npools && !d->ops->pool)
		return err_set(e, ERR_INVALID_REQUEST,
			"policy: pools: the backend %s keeps no sandboxes ready", d->ops->name);
	if (!image)
		return 0;
	if (!image_ref_ok(image))
		return err_set(e, ERR_INVALID_REQUEST, "--default-image: not an image reference");
	if (d->policy.has_images && !listed(&d->policy.images, image))
		return err_set(e, ERR_INVALID_REQUEST,
			"--default-image: not on the policy's list of images");
	free(d->policy.default_image);
	d->policy.default_image = strdup(image);
	return d->policy.default_image ? 0 : err_sys(e, ENOMEM, "policy");
}

static int add_label(struct strmap *m, const char *text, struct err *e)
{
	const char *eq = strchr(text, '=');
	char **keys = realloc(m->keys, (m->n + 1) * sizeof(*keys));
	char **values = realloc(m->values, (m->n + 1) * sizeof(*values));

	m->keys = keys ? keys : m->keys;
	m->values = values ? values : m->values;
	if (!keys || !values)
		return err_sys(e, ENOMEM, "labels");
	if (!eq)
		return err_set(e, ERR_INVALID_REQUEST, "--node-label: K=V is needed");
	keys[m->n] = strndup(text, (size_t)(eq - text));
	values[m->n] = strdup(eq + 1);
	m->n++;
	if (!keys[m->n - 1] || !values[m->n - 1])
		return err_sys(e, ENOMEM, "labels");
	if (!label_key_ok(keys[m->n - 1]) || !label_value_ok(values[m->n - 1]))
		return err_set(e, ERR_INVALID_REQUEST, "--node-label: not a label");
	return 0;
}

static int check_node(struct daemon *d, struct err *e)
{
	const struct options *o = d->opt;

	if (o->node_id && !node_name_ok(o->node_id))
		return err_set(e, ERR_INVALID_REQUEST,
			"--node-id: lower-case letters, digits and dashes, at most 31");
	for (size_t i = 0; i < o->node_label.n; i++)
		if (add_label(&d->node_labels, o->node_label.v[i], e) < 0)
			return -1;
	return 0;
}

/* Its place among them, or -1. */
static int word_among(const char *flag, const char *word, const char *const *words, struct err *e)
{
	char all[80] = "";
	size_t n = 0;

	for (int i = 0; words[i]; i++) {
		if (!strcmp(words[i], word))
			return i;
		n += (size_t)snprintf(all + n, sizeof(all) - n, " %s", words[i]);
	}
	return err_set(e, ERR_INVALID_REQUEST, "%s: one of%s", flag, all);
}

/* What a browser sends: a scheme and a host, nothing behind them. Another text would never match. */
static bool is_origin(const char *text)
{
	const char *host = strstr(text, "://");

	return host && host > text && host[3] && !strchr(host + 3, '/');
}

static int check_words(const struct options *o, struct err *e)
{
	static const char *const disks[] = { "btrfs", "xfs", "ext4", "loop", "tmpfs", NULL };

	if (o->disk_provider && word_among("--disk-provider", o->disk_provider, disks, e) < 0)
		return -1;
	for (size_t i = 0; i < o->allowed_origin.n; i++)
		if (!is_origin(o->allowed_origin.v[i]))
			return err_set(e, ERR_INVALID_REQUEST,
				"--allowed-origin: https://NAME[:PORT] as browsers send it");
	for (size_t i = 0; i < o->allowed_host.n; i++)
		if (!*o->allowed_host.v[i] || strchr(o->allowed_host.v[i], '/'))
			return err_set(e, ERR_INVALID_REQUEST, "--allowed-host: a host's name");
	return 0;
}

/* Numbers above would be cut off on their way, or refused by who gets them in the end. */
static int check_numbers(const struct options *o, struct err *e)
{
	const struct {
		const char *flag;
		int64_t value, most;
	} rows[] = {
		{ "max-connections", o->max_connections, CONNECTIONS_MOST },
		{ "pull-stall-secs", o->pull_stall_secs, PULL_STALL_MAX },
		{ "capacity-memory-mb", o->capacity_memory_mb, MB_MOST },
		{ "capacity-disk-mb", o->capacity_disk_mb, MB_MOST },
		{ "capacity-cpus", o->capacity_cpus > CPUS_MOST ? CPUS_MOST + 1 : 0, CPUS_MOST },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].value > rows[i].most)
			return err_set(e, ERR_INVALID_REQUEST, "--%s: at most %lld", rows[i].flag,
				(long long)rows[i].most);
	return 0;
}

static int check_levels(const struct options *o, struct err *e)
{
	static const char *const words[] = { "error", "warn", "info", "debug", NULL };
	int level;

	if (o->keep_sandboxes && o->no_keep_sandboxes)
		return err_set(e, ERR_INVALID_REQUEST,
			"--keep-sandboxes and --no-keep-sandboxes exclude each other");
	if (!o->log_level)
		return 0;
	level = word_among("--log-level", o->log_level, words, e);
	if (level < 0)
		return -1;
	log_set_level((enum log_level)level);
	return 0;
}

/* --- the state directory --- */

/* Opened while everything can be, for the time when not. */
static int way_to(
	const struct daemon *d, const char *dir, int dirfd, int mode, char **ret, struct err *e)
{
	bool reachable = true;
	int rc;

	if (is_linux(d) && drop_can_reach(dir, mode, d->uid, d->gid, &reachable, e) < 0)
		return -1;
	rc = reachable ? asprintf(ret, "%s", dir) : asprintf(ret, "/proc/self/fd/%d", dirfd);
	if (rc < 0) {
		*ret = NULL;
		return err_sys(e, ENOMEM, "\"%s\"", dir);
	}
	return 0;
}

/* Who owned the state before a user `sandboxd` was made stays its owner. */
static int find_user(struct daemon *d, uid_t owner, struct err *e)
{
	if (drop_find_user(d->opt->user, &d->uid, &d->gid, e) < 0)
		return -1;
	if (!d->opt->user && owner == DROP_OWN_ID)
		d->uid = d->gid = DROP_OWN_ID;
	return 0;
}

static int give_to_user(struct daemon *d, const struct stat *st, struct err *e)
{
	uid_t owner;

	if (is_linux(d) && find_user(d, st->st_uid, e) < 0)
		return -1;
	owner = is_linux(d) ? d->uid : geteuid();
	if (st->st_uid != owner && !(is_linux(d) && st->st_uid == 0))
		return err_set(e, ERR_INVALID_REQUEST,
			"state directory \"%s\" belongs to uid %u, the server runs as uid %u",
			d->state_dir, st->st_uid, owner);
	if (is_linux(d) && (fchown(d->state_dirfd, d->uid, d->gid) < 0 ||
				   fchown(d->lock_fd, d->uid, d->gid) < 0))
		return err_sys(e, errno, "state directory \"%s\"", d->state_dir);
	if (is_linux(d) && records_ready(d->state_dirfd, d->state_dir, d->uid, d->gid, e) < 0)
		return -1;
	return way_to(d, d->state_dir, d->state_dirfd, R_OK | W_OK | X_OK, &d->state_way, e);
}

/* The server's user becomes the owner of what root names: never of a folder that has been used for
 * something else, be it by a slip or by a link that somebody has put in its place. */
static bool may_take(int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	bool other = !dir, records = false;

	for (const struct dirent *de; dir && (de = readdir(dir));) {
		const char *n = de->d_name;
		records |= strcmp(n, "records.db") == 0;
		other |= strcmp(n, ".") && strcmp(n, "..") && strcmp(n, "lock") && strcmp(n, "lost+found");
	}
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	return records || !other;
}

static int open_state(struct daemon *d, struct err *e)
{
	struct stat st;

	if (path_state(d->opt->state_dir, &d->state_dir, e) < 0)
		return -1;
	d->state_dirfd = open(d->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->state_dirfd < 0 || fstat(d->state_dirfd, &st) < 0)
		return err_sys(e, errno, "state directory \"%s\"", d->state_dir);
	if (st.st_mode & 077)
		return err_set(e, ERR_INVALID_REQUEST,
			"state directory \"%s\" is open to others; it holds secrets: chmod 700 it",
			d->state_dir);
	if (is_linux(d) && st.st_uid == 0 && !may_take(d->state_dirfd))
		return err_set(e, ERR_INVALID_REQUEST,
			"\"%s\" is neither empty nor a state directory: name one that is either",
			d->state_dir);
	d->lock_fd =
		openat(d->state_dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock_fd < 0)
		return err_sys(e, errno, "lock in \"%s\"", d->state_dir);
	if (flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(e, ERR_CONFLICT, "another sandboxd uses the state directory \"%s\"",
			d->state_dir);
	return give_to_user(d, &st, e);
}

/* Where a TCP listener was bound to, as text. */
static void name_listener(const struct listen_addr *a, int fd, char *out, size_t size)
{
	snprintf(out, size, strchr(a->host, ':') ? "[%s]:%u" : "%s:%u", a->host, listen_port(fd));
}

static int open_metrics_listener(struct daemon *d, struct err *e)
{
	if (!d->opt->metrics_listen)
		return 0;
	if (listen_open(&d->metrics_addr, &d->metrics_fd, e) < 0)
		return err_prefix(e, "--metrics-listen: ");
	return 0;
}

static int open_listener(struct daemon *d, struct err *e)
{
	if (listen_open(&d->addr, &d->listen_fd, e) < 0)
		return -1;
	if (d->addr.is_unix)
		snprintf(d->address, sizeof(d->address), "unix://%s", d->addr.path);
	else
		name_listener(&d->addr, d->listen_fd, d->address, sizeof(d->address));
	return open_metrics_listener(d, e);
}

static int find_dirs(struct daemon *d, struct err *e)
{
	if (path_libexec(d->opt->libexec_dir, &d->libexec_dir, e) < 0)
		return -1;
	if (!is_linux(d) && !d->opt->image_dir)
		return 0;
	if (path_images(d->opt->image_dir, &d->image_dir, e) < 0)
		return -1;
	d->image_dirfd = open(d->image_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (d->image_dirfd < 0)
		return err_sys(e, errno, "image directory \"%s\"", d->image_dir);
	return way_to(d, d->image_dir, d->image_dirfd, R_OK | X_OK, &d->image_way, e);
}

static int prepare(struct daemon *d, struct err *e)
{
	const struct options *o = d->opt;

	if (check_levels(o, e) < 0 || check_words(o, e) < 0 || check_numbers(o, e) < 0 ||
		check_not_built(o, e) < 0 || check_listen(d, e) < 0 || check_metrics_listen(d, e) < 0 ||
		choose_backend(d, e) < 0 || load_files(d, e) < 0 || load_policy(d, e) < 0 ||
		check_node(d, e) < 0 ||
		egress_resolvers_load(&o->egress_resolver, &d->resolvers, e) < 0)
		return -1;
	if (open_state(d, e) < 0 || find_dirs(d, e) < 0)
		return -1;
	return open_listener(d, e);
}

int daemon_prepare(const struct options *o, struct daemon **ret, struct err *e)
{
	struct daemon *d = calloc(1, sizeof(*d));

	if (!d)
		return err_sys(e, ENOMEM, "daemon");
	d->opt = o;
	d->state_dirfd = d->image_dirfd = d->lock_fd = d->listen_fd = d->metrics_fd = d->broker_fd =
		d->keeper_fd = d->pull_fd = -1;
	if (prepare(d, e) < 0) {
		daemon_stop(d, 0);
		return -1;
	}
	*ret = d;
	return 0;
}

static void start_puller(struct daemon *d)
{
	const struct options *o = d->opt;
	const struct puller_conf conf = {
		.libexec_dir = d->libexec_dir,
		.state_dir = d->state_dir,
		.state_dirfd = d->state_dirfd,
		.uid = d->uid,
		.gid = d->gid,
		.allow_private = o->registry_allow_private,
		.stall_secs = o->pull_stall_secs ? (int)o->pull_stall_secs : PULL_STALL_SECS,
	};

	puller_start(&conf, &d->pull_fd);
}

/* Each request passes the front, so it shall not wait behind what guests do. Its threads are like it; the broker,
 * the guests' ancestor, has been started before and is not. An operator's own value stays the middle. */
static void go_first(void)
{
	errno = 0;
	int nice = getpriority(PRIO_PROCESS, 0);

	if (errno == 0)
		(void)setpriority(PRIO_PROCESS, 0, nice - FRONT_BEFORE);
	prompt_self(false);
}

int daemon_drop(struct daemon *d, struct err *e)
{
	struct broker_conf conf = {
		.libexec_dir = d->libexec_dir,
		.state_dir = d->state_dir,
		.disk_provider = d->opt->disk_provider,
		.state_dirfd = d->state_dirfd,
		.uid = d->uid,
		.gid = d->gid,
	};

	if (!is_linux(d))
		return 0;
	if (d->opt->token_file && keeper_start(d->opt->token_file, &d->keeper_fd, e) < 0)
		return -1;
	start_puller(d);
	if (broker_start(&conf, &d->broker_fd, &d->broker, e) < 0)
		return -1;
	go_first();
	return drop_privileges(d->uid, d->gid, e);
}

/* --- running --- */

static int start_backend(struct daemon *d, bool caps[CAP_COUNT], struct err *e)
{
	struct backend_conf conf = {
		.state_dirfd = d->state_dirfd,
		.state_dir = d->state_dir,
		.libexec_dir = d->libexec_dir,
		.broker_fd = d->broker_fd,
		.disk_provider = d->opt->disk_provider,
	};

	if (d->ops->open(&conf, &d->backend, e) < 0)
		return err_prefix(e, "backend %s: ", d->ops->name);
	d->broker_fd = -1; /* the backend's from here on */
	if (d->ops->probe(d->backend, caps, e) < 0)
		return err_prefix(e, "backend %s: ", d->ops->name);
	return 0;
}

/* Open is what the host can do and the operator wants. */
static void fit_network(struct daemon *d, bool caps[CAP_COUNT])
{
	if (d->opt->egress_open && !caps[CAP_EGRESS_OPEN])
		log_warn("--egress-open: this host cannot give sandboxes a network");
	caps[CAP_EGRESS_OPEN] = caps[CAP_EGRESS_OPEN] && d->opt->egress_open;
	if (caps[CAP_EGRESS_ALLOWLIST] && !d->resolvers.n)
		log_warn(
			"there is no resolver in resolv.conf and no --egress-resolver: sandboxes reach nothing");
	server_policy_fit(&d->policy, caps[CAP_EGRESS_ALLOWLIST], caps[CAP_EGRESS_OPEN]);
}

static int start_core(struct daemon *d, bool caps[CAP_COUNT], struct err *e)
{
	const struct options *o = d->opt;
	struct core_conf conf = {
		.resolvers = &d->resolvers,
		.state_dir = d->state_way,
		.state_dirfd = d->state_dirfd,
		.node_id = o->node_id ? o->node_id : "",
		.node_labels = d->node_labels,
		.image_dir = d->image_way,
		.image_dir_name = d->image_dir,
		.pull_fd = d->pull_fd,
		.audit_log = o->audit_log,
		.capacity_cpus = o->capacity_cpus,
		.capacity_memory_mb = o->capacity_memory_mb,
		.capacity_disk_mb = o->capacity_disk_mb,
		.keep_sandboxes = !o->no_keep_sandboxes,
		.export_allow_private = o->metrics_export_allow_private,
		.policy = &d->policy,
	};

	fit_network(d, caps);
	return core_open(&conf, d->ops, d->backend, caps, &d->core, e);
}

static int start_api(struct daemon *d, struct err *e)
{
	struct api_conf conf = {
		.core = d->core,
		.allowed_hosts = d->opt->allowed_host,
		.allowed_origins = d->opt->allowed_origin,
	};

	if (api_new(&conf, &d->api, e) < 0)
		return -1;
	return api_set_token(d->api, d->token, e);
}

static int start_http(struct daemon *d, struct err *e)
{
	struct http_app app = api_app(d->api);
	struct http_conf conf = {
		.listen_fd = d->listen_fd,
		.tls_cert_pem = d->cert,
		.tls_key_pem = d->key,
		.client_ca_pem = d->client_ca,
		.max_connections = d->opt->max_connections ? (unsigned)d->opt->max_connections
							   : MAX_CONNECTIONS,
		.header_timeout_ms = HEADER_TIMEOUT_MS,
		.idle_timeout_ms = IDLE_TIMEOUT_MS,
		.body_timeout_ms = BODY_TIMEOUT_MS,
		.gone_timeout_ms = (unsigned)upgrade_patience_ms,
	};

	if (http_server_start(&conf, &app, &d->http, e) < 0)
		return -1;
	d->listen_fd = -1;
	return 0;
}

static int start_metrics_http(struct daemon *d, struct err *e)
{
	struct http_app app = scrape_app(d->core);
	struct http_conf conf = {
		.listen_fd = d->metrics_fd,
		.max_connections = METRICS_CONNECTIONS,
		.header_timeout_ms = HEADER_TIMEOUT_MS,
		.idle_timeout_ms = IDLE_TIMEOUT_MS,
		.body_timeout_ms = BODY_TIMEOUT_MS,
	};
	char address[300];

	if (d->metrics_fd < 0)
		return 0;
	name_listener(&d->metrics_addr, d->metrics_fd, address, sizeof(address));
	if (http_server_start(&conf, &app, &d->metrics_http, e) < 0)
		return -1;
	d->metrics_fd = -1;
	log_info("figures for Prometheus url=http://%s/metrics", address);
	return 0;
}

int daemon_start(struct daemon *d, struct err *e)
{
	bool caps[CAP_COUNT] = { false };

	if (start_backend(d, caps, e) < 0 || start_core(d, caps, e) < 0 || start_api(d, e) < 0 ||
		start_http(d, e) < 0 || start_metrics_http(d, e) < 0)
		return -1;
	log_info("started listen=%s backend=%s state=%s", d->address, d->ops->name, d->state_dir);
	if (!is_linux(d))
		log_warn(
			"the fake backend has no isolation: commands run as this user on this machine");
	return 0;
}

static void free_conf(struct daemon *d)
{
	if (d->has_policy)
		server_policy_free(&d->policy);
	for (size_t i = 0; i < d->node_labels.n; i++) {
		free(d->node_labels.keys[i]);
		free(d->node_labels.values[i]);
	}
	free(d->node_labels.keys);
	free(d->node_labels.values);
	wipe_free(d->token);
	wipe_free(d->key);
	free(d->cert);
	free(d->client_ca);
	free(d->state_dir);
	free(d->libexec_dir);
	free(d->image_dir);
	free(d->state_way);
	free(d->image_way);
}

void daemon_stop(struct daemon *d, unsigned grace_ms)
{
	bool listening;

	if (!d)
		return;
	listening = d->http || d->listen_fd >= 0;
	if (d->core)
		core_stop_streams(d->core); /* followers would use up the grace */
	http_server_stop(d->metrics_http, 0);
	http_server_stop(d->http, grace_ms);
	/* After the drop the socket may lie in a folder of root's: then the next start replaces it.
	 */
	if (listening && d->addr.is_unix)
		(void)unlink(d->addr.path);
	if (d->core)
		core_close(d->core);
	if (d->backend)
		d->ops->close(d->backend);
	api_free(d->api);
	close_p(&d->listen_fd);
	close_p(&d->metrics_fd);
	close_p(&d->broker_fd);
	close_p(&d->keeper_fd);
	close_p(&d->pull_fd);
	close_p(&d->lock_fd);
	close_p(&d->state_dirfd);
	close_p(&d->image_dirfd);
	free_conf(d);
	free(d);
}

int daemon_reload_resolvers(struct daemon *d, struct err *e)
{
	if (egress_resolvers_load(&d->opt->egress_resolver, &d->resolvers, e) < 0)
		return -1;
	core_set_resolvers(d->core, &d->resolvers);
	return 0;
}

int daemon_reload_token(struct daemon *d, struct err *e)
{
	char *token = NULL;
	int rc;

	if (!d->opt->token_file)
		return 0;
	rc = d->keeper_fd >= 0 ? keeper_ask(d->keeper_fd, &token, e)
			       : token_load(d->opt->token_file, &token, e);
	if (rc < 0)
		return -1;
	rc = api_set_token(d->api, token, e);
	wipe_free(token);
	return rc;
}

pid_t daemon_broker(const struct daemon *d)
{
	return d->broker;
}

struct core *daemon_core(struct daemon *d)
{
	return d->core;
}

const char *daemon_address(const struct daemon *d)
{
	return d->address;
}
