/* SPDX-License-Identifier: MIT */
#include "sandboxd/api/upgrade.h"

#include <string.h>
#include <strings.h>

/* Is the word an element of a comma-separated header value? */
static bool has_word(const char *value, const char *word)
{
	size_t len = strlen(word);

	while (value && *value) {
		value += strspn(value, " \t,");
		size_t n = strcspn(value, " \t,");
		if (n == len && !strncasecmp(value, word, len))
			return true;
		value += n;
	}
	return false;
}

int upgrade_check(struct call *c, const char *protocol, struct err *e)
{
	if (!has_word(http_header(c->req, "Upgrade"), protocol) ||
		!has_word(http_header(c->req, "Connection"), "upgrade"))
		return err_set(e, ERR_INVALID_REQUEST,
			"this request needs the headers Connection: Upgrade and Upgrade: %s",
			protocol);
	return 0;
}
