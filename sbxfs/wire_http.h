/* SPDX-License-Identifier: MIT */
/* What the files of the plain way share: a request that names this mount, and a batch of operations. */
#ifndef SBXFS_WIRE_HTTP_H
#define SBXFS_WIRE_HTTP_H

#include "sbxfs/remote.h"
#include "sbxfs/wire.h"

#define HTTP_DATA_MS 30000

/* `path` is owned. Every request about files names this mount, so that its handles live as long as it
 * does. */
int http_send(struct req *q, const char *method, char *path, struct sbx_request *r,
	struct sbx_response *ret);
int http_parse(struct req *q, const struct sbx_response *resp, json_t **ret);
/* `path` and `body` are owned; ret NULL: the answer does not matter. */
int http_json(struct req *q, const char *method, char *path, json_t *body, json_t **ret);
/* As text, or as KEY_b64 when it is no UTF-8. */
void http_add_path(json_t *o, const char *key, const char *path);
uint64_t http_count(const json_t *o, const char *key);

json_t *http_new_op(const char *word);
/* An error inside of a 200: the same words and errno as one of its own. */
int http_op_error(struct req *q, const json_t *error);
/* Several operations, or one; they are owned. ret NULL: their results do not matter. */
int http_send_ops(struct req *q, const char *box, json_t *ops, json_t **ret_results);
int http_send_op(struct req *q, const char *box, json_t *op, json_t **ret_result);

#endif
