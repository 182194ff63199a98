/* SPDX-License-Identifier: MIT */
/* What the two halves of conform.h share: the client, and what the test that runs was given. */
#ifndef TESTS_SUPPORT_CONFORM_INTERNAL_H
#define TESTS_SUPPORT_CONFORM_INTERNAL_H

#include "client/include/sbx.h"
#include "tests/support/conform.h"
#include "tests/support/patience.h"

#define CONFORM_CALL_MS patience_ms(60000)

struct sbx *conform_api(void);
/* Freed when the test ends; NULL fails the test. */
void *conform_keep(void *block);
json_t *conform_keep_json(json_t *v); /* NULL stays NULL */
/* Percent-encodes to *at, which moves behind it. */
void conform_escape(char **at, const char *text, size_t len);

#endif
