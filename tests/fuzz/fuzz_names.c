/* SPDX-License-Identifier: MIT */
/* Host names of network policies and the other names of section 7. */
#include "tests/fuzz/fuzz.h"

#include "common/api/ids.h"
#include "common/base/log.h"

static void host(const char *text)
{
	char *clean = NULL, *again = NULL;

	if (host_name_clean(text, &clean, NULL) < 0)
		return;
	promise(clean[0] && strlen(clean) <= 253);
	for (const char *p = clean; *p; p++)
		promise((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || strchr("-.*", *p));
	promise(host_name_clean(clean, &again, NULL) == 0 && !strcmp(clean, again));
	promise(host_pattern_covers(clean, clean) && host_pattern_covers("*", clean));
	free(clean);
	free(again);
}

static void one_kind_only(const char *text)
{
	/* Ids and names must never be mistaken for each other. */
	promise(!(id_is_sandbox(text) && name_ok(text)));
	promise(!env_name_ok(text) || !strpbrk(text, "= -./"));
	promise(!label_key_ok(text) || strlen(text) <= 63);
	promise(!image_ref_ok(text) || (text[0] != '-' && strlen(text) <= 255));
	promise(!process_name_ok(text) || (text[0] >= 'a' && text[0] <= 'z'));
	promise(!label_value_ok(text) || utf8_ok(text, strlen(text)));
	(void)node_name_ok(text);
	(void)env_name_reserved(text);
}

static void quoted_is_printable(const char *text)
{
	char buf[100];

	for (const char *p = log_quote(text, buf, sizeof(buf)); *p; p++)
		promise((unsigned char)*p >= 0x20 && *p != 0x7f);
}

int fuzz_names(const uint8_t *data, size_t size)
{
	char *text = supply_text(data, size);

	host(text);
	one_kind_only(text);
	quoted_is_printable(text);
	free(text);
	return 0;
}
