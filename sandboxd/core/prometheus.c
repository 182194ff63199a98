/* SPDX-License-Identifier: MIT */
/* Debian has no library in C that writes this format, and what it asks for is small: a help and a
 * type line, then samples; backslash, quote and line feed escaped in labels; histograms cumulative.
 */
#include "sandboxd/core/prometheus.h"

#include "common/sys/mem.h"
#include "sandboxd/core/core_internal.h"
#include "sandboxd/core/pools.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STATES (SBX_TERMINATED + 1)

static const double bounds[] = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60 };
#define BOUNDS ARRAY_LEN(bounds)

struct create_counts {
	pthread_mutex_t lock;
	/* under lock */
	uint64_t by_code[ERR_COUNT];
	uint64_t bucket[BOUNDS + 1]; /* not cumulative; the last is above all bounds */
	double seconds;
};

struct create_counts *create_counts_new(void)
{
	struct create_counts *n = calloc(1, sizeof(*n));

	if (n)
		pthread_mutex_init(&n->lock, NULL);
	return n;
}

void create_counts_free(struct create_counts *n)
{
	if (!n)
		return;
	pthread_mutex_destroy(&n->lock);
	free(n);
}

void create_counted(struct core *c, enum err_code code, int64_t ns)
{
	struct create_counts *n = c->creates;
	double seconds = (double)ns / 1e9;
	size_t i = 0;

	pthread_mutex_lock(&n->lock);
	n->by_code[code]++;
	if (code == ERR_NONE) {
		while (i < BOUNDS && seconds > bounds[i])
			i++;
		n->bucket[i]++;
		n->seconds += seconds;
	}
	pthread_mutex_unlock(&n->lock);
}

/* --- what is looked at for one page ---------------------------------------------------------- */

struct page {
	FILE *f;
	const char *name; /* of the metric being printed */
	struct core *core;
	bool cordoned;
	double free_cpus;
	int64_t free_memory_mb, free_disk_mb;
	unsigned states[STATES];
	uint64_t processes;
	struct create_counts creates; /* a copy; its lock is not used */
};

static int look(struct page *p)
{
	struct core *c = p->core;
	struct registry_figures f;
	struct sandbox **all;
	size_t n;

	registry_figures(&c->reg, &f);
	p->cordoned = f.cordoned;
	core_free_amounts(c, &p->free_cpus, &p->free_memory_mb, &p->free_disk_mb);
	pthread_mutex_lock(&c->creates->lock);
	memcpy(p->creates.by_code, c->creates->by_code, sizeof(p->creates.by_code));
	memcpy(p->creates.bucket, c->creates->bucket, sizeof(p->creates.bucket));
	p->creates.seconds = c->creates->seconds;
	pthread_mutex_unlock(&c->creates->lock);
	if (registry_all(&c->reg, &all, &n) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		pthread_mutex_lock(&all[i]->lock);
		p->states[all[i]->state]++;
		p->processes += all[i]->running_procs;
		pthread_mutex_unlock(&all[i]->lock);
		sandbox_unref(all[i]);
	}
	free(all);
	return 0;
}

/* --- samples --------------------------------------------------------------------------------- */

static void print_label(FILE *f, const char *key, const char *value)
{
	fprintf(f, "{%s=\"", key);
	for (; *value; value++) {
		if (*value == '\n') {
			fputs("\\n", f);
			continue;
		}
		if (*value == '"' || *value == '\\')
			fputc('\\', f);
		fputc(*value, f);
	}
	fputs("\"}", f);
}

static void plain(const struct page *p, double value)
{
	fprintf(p->f, "%s %.17g\n", p->name, value);
}

static void labelled(const struct page *p, const char *key, const char *label, double value)
{
	fputs(p->name, p->f);
	print_label(p->f, key, label);
	fprintf(p->f, " %.17g\n", value);
}

static void print_sandboxes(const struct page *p)
{
	for (int i = 0; i < STATES; i++)
		labelled(p, "state", sandbox_state_words[i], p->states[i]);
}

static void print_processes(const struct page *p)
{
	plain(p, (double)p->processes);
}

/* which: offset of the figure */
static void print_pools(const struct page *p, size_t which)
{
	struct pool_figures f;

	for (size_t i = 0; pools_figures(p->core, i, &f); i++)
		labelled(
			p, "image", f.image, *(const unsigned *)(const void *)((char *)&f + which));
}

static void print_pool_ready(const struct page *p)
{
	print_pools(p, offsetof(struct pool_figures, ready));
}

static void print_pool_booting(const struct page *p)
{
	print_pools(p, offsetof(struct pool_figures, making));
}

static void print_pool_target(const struct page *p)
{
	print_pools(p, offsetof(struct pool_figures, target));
}

static void print_cordoned(const struct page *p)
{
	plain(p, p->cordoned);
}

static void print_capacity_cpus(const struct page *p)
{
	plain(p, p->core->capacity_cpus);
}

static void print_capacity_memory(const struct page *p)
{
	plain(p, (double)p->core->capacity_memory_mb);
}

static void print_capacity_disk(const struct page *p)
{
	plain(p, (double)p->core->capacity_disk_mb);
}

static void print_free_cpus(const struct page *p)
{
	plain(p, p->free_cpus);
}

static void print_free_memory(const struct page *p)
{
	plain(p, (double)p->free_memory_mb);
}

static void print_free_disk(const struct page *p)
{
	plain(p, (double)p->free_disk_mb);
}

static void print_creates(const struct page *p)
{
	for (int i = 0; i < ERR_COUNT; i++)
		if (i == ERR_NONE || p->creates.by_code[i])
			labelled(p, "code", i == ERR_NONE ? "ok" : err_word((enum err_code)i),
				(double)p->creates.by_code[i]);
}

static void print_create_seconds(const struct page *p)
{
	uint64_t sum = 0;
	char le[32];

	for (size_t i = 0; i <= BOUNDS; i++) {
		sum += p->creates.bucket[i];
		if (i < BOUNDS)
			snprintf(le, sizeof(le), "%g", bounds[i]);
		fprintf(p->f, "%s_bucket{le=\"%s\"} %" PRIu64 "\n", p->name,
			i < BOUNDS ? le : "+Inf", sum);
	}
	fprintf(p->f, "%s_sum %.9g\n%s_count %" PRIu64 "\n", p->name, p->creates.seconds, p->name,
		sum);
}

static const struct {
	const char *name, *type, *help;
	void (*print)(const struct page *p);
} metrics[] = {
	{ "sandboxd_sandboxes", "gauge", "Sandboxes by state; ended ones until they are forgotten.",
		print_sandboxes },
	{ "sandboxd_processes_running", "gauge", "Processes started over the API that run now.",
		print_processes },
	{ "sandboxd_pool_ready", "gauge", "Sandboxes made ahead that wait for a create.",
		print_pool_ready },
	{ "sandboxd_pool_booting", "gauge", "Sandboxes being made ahead.", print_pool_booting },
	{ "sandboxd_pool_target", "gauge", "Sandboxes that the policy wants made ahead.",
		print_pool_target },
	{ "sandboxd_cordoned", "gauge", "1: no new sandboxes are taken.", print_cordoned },
	{ "sandboxd_capacity_cpus", "gauge", "Processors to give out.", print_capacity_cpus },
	{ "sandboxd_capacity_memory_mb", "gauge", "Memory to give out, in MiB.",
		print_capacity_memory },
	{ "sandboxd_capacity_disk_mb", "gauge", "Disk to give out, in MiB.", print_capacity_disk },
	{ "sandboxd_free_cpus", "gauge", "Processors not given out.", print_free_cpus },
	{ "sandboxd_free_memory_mb", "gauge", "Memory not given out, in MiB.", print_free_memory },
	{ "sandboxd_free_disk_mb", "gauge", "Disk not given out, in MiB.", print_free_disk },
	{ "sandboxd_creates_total", "counter",
		"Creates by outcome: ok, or the code of the error that was answered.",
		print_creates },
	{ "sandboxd_create_seconds", "histogram", "How long creates took that went well.",
		print_create_seconds },
};

char *prometheus_text(struct core *c)
{
	struct page p = { .core = c };
	char *text = NULL;
	size_t len;

	if (look(&p) < 0 || !(p.f = open_memstream(&text, &len)))
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(metrics); i++) {
		p.name = metrics[i].name;
		fprintf(p.f, "# HELP %s %s\n# TYPE %s %s\n", p.name, metrics[i].help, p.name,
			metrics[i].type);
		metrics[i].print(&p);
	}
	if (fclose(p.f) == 0)
		return text;
	free(text);
	return NULL;
}
