/* SPDX-License-Identifier: MIT */
#include "common/api/ids.h"

#include "common/sys/mem.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* Character classes, so that every rule of section 7 is one line: first character, then the rest. */
enum {
	LOWER = 1, UPPER = 2, DIGIT = 4, DASH = 8, DOT = 16, UNDER = 32, SLASH = 64, COLON = 128, AT = 256,
	ALNUM = LOWER | DIGIT,
};

static unsigned class_of(unsigned char c)
{
	static const struct { char c; unsigned is; } marks[] = {
		{ '-', DASH }, { '.', DOT }, { '_', UNDER }, { '/', SLASH }, { ':', COLON }, { '@', AT },
	};

	if (c >= 'a' && c <= 'z')
		return LOWER;
	if (c >= 'A' && c <= 'Z')
		return UPPER;
	if (c >= '0' && c <= '9')
		return DIGIT;
	for (size_t i = 0; i < ARRAY_LEN(marks); i++)
		if ((unsigned char)marks[i].c == c)
			return marks[i].is;
	return 0;
}

static bool word_ok(const char *s, unsigned first, unsigned rest, size_t max)
{
	size_t n = 1;

	if (!s || !(class_of((unsigned char)s[0]) & first))
		return false;
	for (; s[n]; n++)
		if (n >= max || !(class_of((unsigned char)s[n]) & rest))
			return false;
	return true;
}

bool name_ok(const char *s)
{
	return word_ok(s, ALNUM, ALNUM | DASH, NAME_MAX_LEN);
}

bool node_name_ok(const char *s)
{
	return word_ok(s, ALNUM, ALNUM | DASH, 31);
}

bool process_name_ok(const char *s)
{
	return word_ok(s, LOWER, ALNUM | DOT | UNDER | DASH, 63);
}

bool label_key_ok(const char *s)
{
	return word_ok(s, ALNUM, ALNUM | DOT | UNDER | SLASH | DASH, 63);
}

bool image_ref_ok(const char *s)
{
	return word_ok(s, ALNUM | UPPER, ALNUM | UPPER | DOT | UNDER | SLASH | COLON | AT | DASH, 255);
}

bool env_name_ok(const char *s)
{
	return word_ok(s, LOWER | UPPER | UNDER, ALNUM | UPPER | UNDER, SIZE_MAX);
}

bool env_name_reserved(const char *s)
{
	/* They steer start-up code, the loader, the shell or a container client (section 7). */
	static const char *const reserved[] = {
		"SANDBOX_RUN_AS", "SANDBOX_EGRESS_ALLOW", "SANDBOX_INGRESS_PORTS", "SANDBOX_PROXY_PORT",
		"SANDBOX_UMASK", "BASH_ENV", "ENV", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT",
		"SHELLOPTS", "BASHOPTS", "PS4", "IFS", "GLOBIGNORE", "DOCKER_HOST", "DOCKER_CONFIG",
		"DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_CONTEXT",
	};

	for (size_t i = 0; i < ARRAY_LEN(reserved); i++)
		if (!strcmp(reserved[i], s))
			return true;
	return false;
}

/* Length of one well-formed UTF-8 sequence at p (no surrogates, nothing overlong), 0 when broken. */
static size_t utf8_one(const unsigned char *p, size_t left, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = p[0] < 0x80 ? 1 : p[0] >> 5 == 6 ? 2 : p[0] >> 4 == 14 ? 3 : p[0] >> 3 == 30 ? 4 : 0;
	uint32_t v;

	if (n == 0 || n > left)
		return 0;
	v = n == 1 ? p[0] : p[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if (p[i] >> 6 != 2)
			return 0;
		v = v << 6 | (p[i] & 0x3f);
	}
	if (v < least[n] || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
		return 0;
	*ret = v;
	return n;
}

bool utf8_ok(const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s;
	uint32_t v;

	for (size_t i = 0, n; i < len; i += n) {
		n = utf8_one(p + i, len - i, &v);
		if (n == 0)
			return false;
	}
	return true;
}

size_t printable_one(const char *s, size_t len)
{
	uint32_t v;
	size_t n = len ? utf8_one((const unsigned char *)s, len, &v) : 0;

	return n == 0 || v < 0x20 || (v >= 0x7f && v <= 0x9f) ? 0 : n;
}

bool label_value_ok(const char *s)
{
	size_t len = strlen(s);

	if (len > LABEL_VALUE_MAX)
		return false;
	for (size_t i = 0, n; i < len; i += n)
		if ((n = printable_one(s + i, len - i)) == 0)
			return false;
	return true;
}

static bool hex16(const char *s)
{
	for (size_t i = 0; i < 16; i++)
		if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
			return false;
	return s[16] == '\0';
}

bool id_is_sandbox(const char *s)
{
	char node[40];
	const char *end;

	if (!s || strncmp(s, "sbx_", 4))
		return false;
	s += 4;
	end = strchr(s, '_');
	if (!end)
		return strlen(s) == 16 && hex16(s);
	if ((size_t)(end - s) >= sizeof(node))
		return false;
	memcpy(node, s, (size_t)(end - s));
	node[end - s] = '\0';
	return node_name_ok(node) && strlen(end + 1) == 16 && hex16(end + 1);
}

bool id_is_snapshot(const char *s)
{
	return s && !strncmp(s, "snp_", 4) && strlen(s) == 20 && hex16(s + 4);
}

static unsigned long long random_number(void)
{
	uint64_t r = 0;

	/* Cannot fail for 8 bytes once the kernel's pool is up; a short read would repeat ids. */
	while (getrandom(&r, sizeof(r), 0) != sizeof(r))
		;
	return r;
}

void id_new_sandbox(const char *node, char out[SBX_ID_MAX])
{
	snprintf(out, SBX_ID_MAX, "sbx_%.31s%s%016llx", node, *node ? "_" : "", random_number());
}

void id_new_snapshot(char out[SNP_ID_MAX])
{
	snprintf(out, SNP_ID_MAX, "snp_%016llx", random_number());
}

int guest_path_clean(const char *path, size_t len, const char *what, char *out, struct err *e)
{
	size_t o = 0;

	if (len == 0 || path[0] != '/')
		return err_set(e, ERR_INVALID_REQUEST, "%s must be an absolute path (start with /)", what);
	if (memchr(path, 0, len))
		return err_set(e, ERR_INVALID_REQUEST, "%s must not hold a NUL byte", what);
	for (size_t i = 0; i < len;) {
		size_t start, n;
		while (i < len && path[i] == '/')
			i++;
		start = i;
		while (i < len && path[i] != '/')
			i++;
		n = i - start;
		if (n == 0 || (n == 1 && path[start] == '.'))
			continue;
		if (n == 2 && path[start] == '.' && path[start + 1] == '.')
			return err_set(e, ERR_INVALID_REQUEST, "%s must not hold a \"..\" element", what);
		if (o + n + 2 > GUEST_PATH_MAX)
			return err_set(e, ERR_INVALID_REQUEST, "%s is longer than %d bytes", what,
				GUEST_PATH_MAX - 1);
		out[o++] = '/';
		memcpy(out + o, path + start, n);
		o += n;
	}
	if (o == 0)
		out[o++] = '/';
	out[o] = '\0';
	return 0;
}

/* One label of a host name: 1-63 of [a-z0-9-], no dash at either end. Returns its length or 0. */
static size_t host_label(const char *s)
{
	size_t n = 0;

	while (class_of((unsigned char)s[n]) & (ALNUM | DASH))
		n++;
	return n > 63 || n == 0 || s[0] == '-' || s[n - 1] == '-' ? 0 : n;
}

static bool all_digits(const char *s)
{
	return *s && strspn(s, "0123456789") == strlen(s);
}

static bool host_ok(const char *s)
{
	const char *last = s;

	if (strlen(s) > 253)
		return false;
	if (!strncmp(s, "*.", 2))
		s += 2;
	for (;;) {
		size_t n = host_label(s);
		if (n == 0)
			return false;
		last = s;
		s += n;
		if (*s == '\0')
			break;
		if (*s++ != '.')
			return false;
	}
	return !all_digits(last); /* an address is not a name */
}

int host_name_clean(const char *in, char **ret, struct err *e)
{
	size_t len;

	in += strspn(in, " \t\r\n\v\f");
	len = strlen(in);
	while (len > 0 && strchr(" \t\r\n\v\f", in[len - 1]))
		len--;
	if (len > 0 && in[len - 1] == '.')
		len--;
	_cleanup_free_ char *s = strndup(in, len);
	if (!s)
		return err_oom(e);
	for (char *p = s; *p; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p | 0x20);
	if (!host_ok(s))
		return err_set(e, ERR_INVALID_REQUEST,
			"not a host name: give a name such as example.com or *.example.com, without scheme, "
			"port, path or address");
	*ret = steal(s);
	return 0;
}

bool host_pattern_covers(const char *pattern, const char *entry)
{
	size_t plen, elen;

	if (!strcmp(pattern, entry) || !strcmp(pattern, "*"))
		return true;
	if (strncmp(pattern, "*.", 2))
		return false;
	pattern++; /* ".example.com" must end the entry, with at least one label before it */
	plen = strlen(pattern);
	elen = strlen(entry);
	return elen > plen && !strcmp(entry + elen - plen, pattern);
}
