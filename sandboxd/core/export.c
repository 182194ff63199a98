/* SPDX-License-Identifier: MIT */
/* The thread that pushes. Once a second it looks which sandboxes are due, and drives all pushes
 * under way with the transfer library. It sleeps, and the library is not loaded, while no sandbox
 * has a setting.
 *
 * Fairness: a push is cut after ten seconds, and a sandbox has one at a time. Those whose last push
 * went well have places of their own, so that however many collectors never answer, they take
 * places from each other only. */
#include "sandboxd/core/export.h"

#include "common/base/addr.h"
#include "common/curl/curl.h"
#include "common/json/json.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/core_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LANE_MOST    128 /* pushes under way, of each of the two kinds */
#define PUSH_MS      10000
#define LOOK_MS      1000
#define BODY_MOST    4096 /* of the answer */
#define HEAD_MOST    16384
#define CA_CACHE_SEC 3600

enum lane { LANE_PROVEN, LANE_OTHER, LANES };

struct push {
	struct push *next;
	struct exporter *exporter;
	struct sandbox *s; /* referenced */
	uint64_t serial;   /* of the setting it serves */
	enum lane lane;
	bool plain;
	CURL *easy;
	struct curl_slist *headers;
	char *url;
	void *body;
	size_t len;
	size_t got_head, got_body;
	bool refused; /* an address was not public */
};
struct exporter {
	struct core *core;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* under lock */
	bool stop, woken;
	CURLM *multi; /* made by the thread, once; others only wake it */
	/* the thread's own */
	struct push *pushes;
	unsigned under_way[LANES], turn;
	int64_t look_ms;
};

static void wake(struct exporter *x)
{
	if (!x)
		return;
	pthread_mutex_lock(&x->lock);
	x->woken = true;
	if (x->multi)
		K->multi_wakeup(x->multi);
	pthread_cond_signal(&x->cond);
	pthread_mutex_unlock(&x->lock);
}

void export_set(struct sandbox *s, struct export *x)
{
	export_free(s->metrics_export);
	s->metrics_export = x;
	if (x)
		x->sent = metrics_count(s);
	export_begin(s);
	wake(s->core->exporter); /* a push for the old one is cut */
}

void export_begin(struct sandbox *s)
{
	struct export *x = s->metrics_export;

	if (!x)
		return;
	x->due_ms = clock_mono_ms() + x->interval_secs * 1000;
	wake(s->core->exporter);
}

void export_end(struct sandbox *s)
{
	struct export *x = s->metrics_export;

	if (!x)
		return;
	for (size_t i = 0; i < x->headers.n; i++)
		explicit_bzero(x->headers.values[i], strlen(x->headers.values[i]));
	wake(s->core->exporter); /* a push under way is cut */
}

/* --- one push -------------------------------------------------------------------------------- */

bool export_may_connect(bool allow_private, bool plain, const struct sockaddr *sa)
{
	if (plain)
		return allow_private && addr_kind_of(sa) == ADDR_LOOPBACK;
	return allow_private || addr_dialable(sa);
}

/* The library asks for each address that it is about to connect to: no second look-up can come
 * between. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
	struct push *p = arg;

	(void)purpose;
	if (export_may_connect(p->s->core->export_private, p->plain, &a->addr))
		return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
	p->refused = true;
	return CURL_SOCKET_BAD;
}

static size_t on_head(char *data, size_t size, size_t n, void *arg)
{
	struct push *p = arg;

	(void)data;
	p->got_head += size * n;
	return p->got_head > HEAD_MOST ? 0 : size * n;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct push *p = arg;

	(void)data;
	p->got_body += size * n;
	return p->got_body > BODY_MOST ? 0 : size * n; /* cuts the transfer */
}

static void headers_free(struct curl_slist *list)
{
	for (struct curl_slist *i = list; i; i = i->next)
		explicit_bzero(i->data, strlen(i->data));
	if (list)
		K->slist_free_all(list);
}

static void push_free(struct push *p)
{
	if (p->easy)
		K->easy_cleanup(p->easy);
	headers_free(p->headers);
	sandbox_unref(p->s);
	free(p->url);
	free(p->body);
	free(p);
}

static bool add_header(struct push *p, const char *line)
{
	struct curl_slist *more = K->slist_append(p->headers, line);

	if (more)
		p->headers = more;
	return more != NULL;
}

/* A value of blanks only would mean "do not send" to the library; it has another form for that. */
static bool add_pair(struct push *p, const char *name, const char *value)
{
	bool blank = value[strspn(value, " \t")] == '\0', ok;
	char *line;

	if (asprintf(&line, blank ? "%s;" : "%s: %s", name, value) < 0)
		return false;
	ok = add_header(p, line);
	explicit_bzero(line, strlen(line));
	free(line);
	return ok;
}

static bool add_headers(struct push *p, const struct strmap *h)
{
	bool ok = add_header(p, "Content-Type: application/json") &&
		  add_header(p, "Content-Encoding: gzip") && add_header(p, "Expect:");

	for (size_t i = 0; ok && i < h->n; i++)
		ok = add_pair(p, h->keys[i], h->values[i]);
	return ok;
}

/* Where it may go; a library that does not know one of these is not used. */
static bool set_limits(struct push *p)
{
	CURL *h = p->easy;

	/* Nobody else's settings, and nowhere but where the endpoint says. */
	return K->easy_setopt(h, CURLOPT_PROTOCOLS_STR, p->plain ? "http" : "https") == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_PROXY, "") == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L) == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_OPENSOCKETDATA, p) == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)PUSH_MS) == CURLE_OK;
}

static bool set_options(struct push *p)
{
	CURL *h = p->easy;

	K->easy_setopt(h, CURLOPT_URL, p->url);
	K->easy_setopt(h, CURLOPT_PRIVATE, p);
	K->easy_setopt(h, CURLOPT_POSTFIELDS, p->body);
	K->easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)p->len);
	K->easy_setopt(h, CURLOPT_HTTPHEADER, p->headers);
	K->easy_setopt(h, CURLOPT_USERAGENT, "sandboxd/" SANDBOXD_VERSION);
	K->easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	K->easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)PUSH_MS);
	K->easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	K->easy_setopt(h, CURLOPT_QUICK_EXIT, 1L); /* a resolver that hangs is left behind */
	/* Each push asks and connects anew: an address that was good an hour ago is not one now. */
	K->easy_setopt(h, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
	K->easy_setopt(h, CURLOPT_FRESH_CONNECT, 1L);
	K->easy_setopt(h, CURLOPT_FORBID_REUSE, 1L);
	K->easy_setopt(h, CURLOPT_SSL_SESSIONID_CACHE, 0L);
	K->easy_setopt(h, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	/* One bundle, read once an hour; with a folder beside it the library would not keep it. */
	K->easy_setopt(h, CURLOPT_CAPATH, NULL);
	K->easy_setopt(h, CURLOPT_CA_CACHE_TIMEOUT, (long)CA_CACHE_SEC);
	K->easy_setopt(h, CURLOPT_HEADERFUNCTION, on_head);
	K->easy_setopt(h, CURLOPT_HEADERDATA, p);
	K->easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
	K->easy_setopt(h, CURLOPT_WRITEDATA, p);
	K->easy_setopt(h, CURLOPT_BUFFERSIZE, 2048L);
	K->easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, 16384L);
	return set_limits(p);
}

static void pack_body(struct push *p, const struct sample *m)
{
	_cleanup_json_ json_t *v = otlp_json(p->s, m);
	_cleanup_free_ char *text = v ? json_text(v) : NULL;

	if (text)
		p->body = otlp_gzip(text, strlen(text), &p->len);
}

/* Lock of the sandbox held; NULL: out of memory. */
static struct push *push_new(struct exporter *x, struct sandbox *s, enum lane lane)
{
	struct export *set = s->metrics_export;
	struct push *p = calloc(1, sizeof(*p));
	struct sample m;

	if (!p)
		return NULL;
	sandbox_ref(s);
	p->s = s;
	p->exporter = x;
	p->serial = set->serial;
	p->lane = lane;
	p->plain = !strncasecmp(set->endpoint, "http:", 5);
	p->url = strdup(set->endpoint);
	p->easy = K->easy_init();
	if (metrics_newest(s, &m))
		pack_body(p, &m);
	if (p->url && p->easy && p->body && add_headers(p, &set->headers))
		return p;
	push_free(p);
	return NULL;
}

/* --- its end --------------------------------------------------------------------------------- */

static const struct {
	CURLcode code;
	const char *text;
} reasons[] = {
	{ CURLE_COULDNT_RESOLVE_HOST, "the collector's name does not resolve" },
	{ CURLE_COULDNT_CONNECT, "the collector does not accept connections" },
	{ CURLE_OPERATION_TIMEDOUT, "the collector did not answer within 10 seconds" },
	{ CURLE_PEER_FAILED_VERIFICATION, "the collector's certificate is not valid for its name" },
	{ CURLE_SSL_CACERT_BADFILE, "the server has no certificates to check the collector with" },
	{ CURLE_SSL_CONNECT_ERROR, "the TLS handshake with the collector failed" },
	{ CURLE_GOT_NOTHING, "the collector closed the connection without an answer" },
	{ CURLE_RECV_ERROR, "the connection to the collector broke" },
	{ CURLE_SEND_ERROR, "the connection to the collector broke" },
};

static const char *reason_of(const struct push *p, CURLcode code)
{
	if (p->refused && code == CURLE_COULDNT_CONNECT)
		return "the collector's address is not a public one";
	for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
		if (reasons[i].code == code)
			return reasons[i].text;
	return "the collector's answer cannot be understood";
}

/* "" when it went well. Any 2xx is success, however long the answer is. */
static void judge(const struct push *p, CURLcode code, char *text, size_t size)
{
	long status = 0;

	text[0] = '\0';
	K->easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status);
	if (code != CURLE_OK && !(code == CURLE_WRITE_ERROR && p->got_body > BODY_MOST))
		snprintf(text, size, "%s", reason_of(p, code));
	else if (status >= 300 && status < 400)
		snprintf(text, size, "the collector answered %ld; redirects are not followed",
			status);
	else if (status < 200 || status >= 300)
		snprintf(text, size, "the collector answered %ld", status);
}

/* Lock held. */
static void note(struct export *set, const char *failure)
{
	int64_t now = clock_wall_ns();

	set->proven = !*failure;
	snprintf(set->last_error, sizeof(set->last_error), "%s", failure);
	if (*failure) {
		if (!set->failing_since_ns)
			set->failing_since_ns = now;
		return;
	}
	set->last_push_ns = now;
	set->failing_since_ns = 0;
}

/* failure NULL: it was cut, and says nothing about the collector. */
static void finish(struct push *p, const char *failure)
{
	struct sandbox *s = p->s;
	struct export *set;

	pthread_mutex_lock(&s->lock);
	set = s->metrics_export;
	if (set && set->serial == p->serial) {
		set->busy = false;
		if (failure && s->state != SBX_TERMINATED) {
			note(set, failure);
			sandbox_changed(s);
		}
	}
	pthread_mutex_unlock(&s->lock);
	p->exporter->under_way[p->lane]--;
	push_free(p);
}

static void unlink_push(struct exporter *x, struct push *p)
{
	struct push **at = &x->pushes;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	K->multi_remove_handle(x->multi, p->easy);
}

/* --- the thread ------------------------------------------------------------------------------ */

/* Lock held. Something new to send, and the time for it? */
static bool is_due(const struct sandbox *s)
{
	const struct export *set = s->metrics_export;

	return s->state == SBX_RUNNING && !set->busy && clock_mono_ms() >= set->due_ms &&
	       metrics_count(s) > set->sent;
}

/* Lock held. Returns the push that is to be started. */
static struct push *take_due(struct exporter *x, struct sandbox *s)
{
	struct export *set = s->metrics_export;
	enum lane lane = set->proven ? LANE_PROVEN : LANE_OTHER;
	struct push *p;

	if (!is_due(s) || x->under_way[lane] >= LANE_MOST)
		return NULL;
	p = x->multi ? push_new(x, s, lane) : NULL;
	set->sent = metrics_count(s); /* what fails is not sent again */
	set->due_ms += set->interval_secs * 1000;
	if (set->due_ms <= clock_mono_ms())
		set->due_ms = clock_mono_ms() + set->interval_secs * 1000;
	set->busy = p != NULL;
	if (p)
		return p;
	note(set, x->multi ? "the server is out of memory" : "the server has no libcurl.so.4");
	sandbox_changed(s);
	return NULL;
}

static void start(struct exporter *x, struct push *p)
{
	x->under_way[p->lane]++;
	if (!set_options(p)) {
		finish(p, "the server's libcurl.so.4 is too old");
		return;
	}
	p->next = x->pushes;
	x->pushes = p;
	if (K->multi_add_handle(x->multi, p->easy) == CURLM_OK)
		return;
	x->pushes = p->next;
	finish(p, "the server is out of memory");
}

/* True: it has a setting. */
static bool look_at(struct exporter *x, struct sandbox *s)
{
	struct push *p = NULL;
	bool set;

	pthread_mutex_lock(&s->lock);
	set = s->metrics_export && s->state != SBX_TERMINATED;
	if (set && (x->multi || !curl_lib()))
		p = take_due(x, s);
	pthread_mutex_unlock(&s->lock);
	if (p)
		start(x, p);
	return set;
}

/* Not always from the same end: places may be few. */
static bool look_at_all(struct exporter *x)
{
	struct sandbox **all;
	bool any = false;
	size_t n, first;

	if (registry_all(&x->core->reg, &all, &n) < 0)
		return true;
	first = n ? x->turn++ % n : 0;
	for (size_t i = 0; i < n; i++)
		any |= look_at(x, all[(first + i) % n]);
	for (size_t i = 0; i < n; i++)
		sandbox_unref(all[i]);
	free(all);
	return any;
}

/* Its setting was replaced, or its sandbox has ended. */
static bool outdated(const struct push *p)
{
	struct sandbox *s = p->s;
	bool old;

	pthread_mutex_lock(&s->lock);
	old = s->state == SBX_TERMINATED || !s->metrics_export ||
	      s->metrics_export->serial != p->serial;
	pthread_mutex_unlock(&s->lock);
	return old;
}

static void cut_pushes(struct exporter *x, bool all)
{
	struct push *next;

	for (struct push *p = x->pushes; p; p = next) {
		next = p->next;
		if (!all && !outdated(p))
			continue;
		unlink_push(x, p);
		finish(p, NULL);
	}
}

static void take_results(struct exporter *x)
{
	char failure[sizeof(((struct export *)0)->last_error)];
	struct push *p;
	CURLMsg *m;
	int left;

	while ((m = K->multi_info_read(x->multi, &left))) {
		if (m->msg != CURLMSG_DONE)
			continue;
		K->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &p);
		judge(p, m->data.result, failure, sizeof(failure));
		unlink_push(x, p);
		finish(p, failure);
	}
}

/* Until something moves, at most until the next look. */
static void drive(struct exporter *x)
{
	int64_t left = x->look_ms - clock_mono_ms();
	int running;

	K->multi_poll(x->multi, NULL, 0, left > 0 ? (int)left : 0, NULL);
	K->multi_perform(x->multi, &running);
	take_results(x);
}

/* Only with the first setting; without the library no push is made. */
static void make_multi(struct exporter *x)
{
	CURLM *multi = curl_lib() ? K->multi_init() : NULL;

	pthread_mutex_lock(&x->lock);
	x->multi = multi;
	pthread_mutex_unlock(&x->lock);
}

/* True: it is to stop. Sleeps while there is nothing to do at all. */
static bool rest(struct exporter *x, bool idle)
{
	struct timespec until;
	bool stop;

	pthread_mutex_lock(&x->lock);
	while (idle && !x->stop && !x->woken)
		pthread_cond_wait(&x->cond, &x->lock);
	if (!idle && !x->multi && !x->stop && !x->woken) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec++;
		(void)pthread_cond_timedwait(&x->cond, &x->lock, &until);
	}
	if (x->woken)
		x->look_ms = 0;
	x->woken = false;
	stop = x->stop;
	pthread_mutex_unlock(&x->lock);
	return stop;
}

static void *run(void *arg)
{
	struct exporter *x = arg;
	bool any = false;
	CURLM *multi;

	while (!rest(x, !any && !x->pushes)) {
		if (clock_mono_ms() >= x->look_ms) {
			x->look_ms = clock_mono_ms() + LOOK_MS;
			cut_pushes(x, false);
			any = look_at_all(x);
			if (any && !x->multi)
				make_multi(x);
		}
		if (x->multi)
			drive(x);
	}
	cut_pushes(x, true);
	multi = x->multi;
	pthread_mutex_lock(&x->lock);
	x->multi = NULL;
	pthread_mutex_unlock(&x->lock);
	if (multi)
		K->multi_cleanup(multi);
	return NULL;
}

int exporter_open(struct core *c, struct err *e)
{
	pthread_condattr_t a;
	struct exporter *x;
	int r;

	if (!core_cap(c, CAP_METRICS_EXPORT))
		return 0;
	x = calloc(1, sizeof(*x));
	if (!x)
		return err_set(e, ERR_UNAVAILABLE, "out of memory");
	x->core = c;
	x->woken = true; /* settings may have come with the records */
	pthread_mutex_init(&x->lock, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&x->cond, &a);
	pthread_condattr_destroy(&a);
	r = pthread_create(&x->thread, NULL, run, x);
	if (r != 0) {
		free(x);
		return err_sys(e, r, "start the thread that pushes metrics");
	}
	c->exporter = x;
	return 0;
}

void exporter_close(struct core *c)
{
	struct exporter *x = c->exporter;

	if (!x)
		return;
	pthread_mutex_lock(&x->lock);
	x->stop = true;
	pthread_mutex_unlock(&x->lock);
	wake(x);
	pthread_join(x->thread, NULL);
	c->exporter = NULL;
	pthread_cond_destroy(&x->cond);
	pthread_mutex_destroy(&x->lock);
	free(x);
}
