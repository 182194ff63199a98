/* SPDX-License-Identifier: MIT */
/* metrics/: one file a figure, all of the newest sample; the samples themselves; and each new one as it
 * comes. Figures that are read together come from one answer of the server. */
#include "sbxfs/box.h"
#include "sbxfs/feed_priv.h"
#include "sbxfs/nodes_fn.h"
#include "sbxfs/remote.h"
#include "sbxfs/value.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int samples_get(struct req *q, const char *box, json_t **ret)
{
	json_t *body;
	int rc = record_get(q, sbx_path("/v1/sandboxes/%s/metrics", box), &body);

	if (rc < 0)
		return rc;
	*ret = json_incref(json_object_get(body, "samples"));
	json_decref(body);
	if (json_is_array(*ret))
		return 0;
	json_decref(*ret);
	return refuse(q, EPROTO, "the server's samples cannot be read");
}

static void put_all(struct text *t, json_t *samples)
{
	json_t *v;
	size_t n;

	json_array_foreach (samples, n, v)
		txt_json_line(t, v);
}

int read_metrics(struct req *q, const struct spot *s, struct text *t)
{
	json_t *samples, *last;
	int rc = samples_get(q, s->box, &samples);

	if (rc < 0)
		return rc;
	last = json_array_get(samples, json_array_size(samples) - 1);
	if (s->node->id == N_METRIC_HISTORY || s->node->id == N_ENDED_METRICS)
		put_all(t, samples);
	else if (s->node->key)
		value_text(t, json_object_get(last, s->node->key));
	else if (last)
		txt_json(t, last);
	json_decref(samples);
	return 0;
}

/* Samples behind the time `last`, which moves on: times of one server compare as text. */
static void put_new(struct feed *f, json_t *samples, char *last, size_t size, bool show)
{
	json_t *v;
	size_t n;

	json_array_foreach (samples, n, v) {
		const char *time = json_string_value(json_object_get(v, "time"));
		_cleanup_text_ struct text t = TEXT_NULL;

		if (!time || strcmp(time, last) <= 0)
			continue;
		(void)snprintf(last, size, "%s", time);
		txt_json_line(&t, v);
		if (show && t.p)
			feed_add(f, t.p, t.len);
	}
}

int follow_metrics(struct req *q, struct feed *f)
{
	char last[64] = "";
	bool begun = false, ended = false;

	while (!atomic_load(&f->stop) && !ended) {
		json_t *o, *samples;
		int rc;

		q->start_ms = now_ms();
		/* Its state first: what came just before its end is shown, too. */
		rc = box_live(q, f->box, &o);
		ended = rc == -ESTALE;
		if (rc == 0)
			json_decref(o);
		else if (!ended)
			return rc;
		rc = samples_get(q, f->box, &samples);
		if (rc < 0)
			return rc;
		put_new(f, samples, last, sizeof(last), begun);
		begun = true;
		json_decref(samples);
		for (int n = 0; n < 5 && !ended; n++)
			feed_rest(f);
	}
	return 0;
}
