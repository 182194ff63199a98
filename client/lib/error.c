/* SPDX-License-Identifier: MIT */
/* Every failure becomes one struct sbx_error. The errno comes from the server's error.errno when it
 * is on the allow-list of common/base, else from the contract's code, else from the HTTP status. */
#include "client/lib/internal.h"


#include "common/curl/curl.h"
#include "common/api/ids.h"
#include "common/base/err.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sbx_printable(const char *in, size_t len, char *out, size_t size)
{
	size_t o = 0;

	for (size_t i = 0; i < len;) {
		size_t n = printable_one(in + i, len - i);
		if (n == 0) {
			if (o + 5 > size)
				break;
			o += (size_t)snprintf(
				out + o, size - o, "\\x%02x", (unsigned char)in[i++]);
			continue;
		}
		if (o + n >= size)
			break;
		memcpy(out + o, in + i, n);
		o += n;
		i += n;
	}
	out[o] = '\0';
}

int sbx_fail(struct sbx_error *e, const char *code, int sys, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (!e)
		return -1;
	*e = (struct sbx_error){ .sys = sys };
	snprintf(e->code, sizeof(e->code), "%s", code);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	sbx_printable(text, strlen(text), e->message, sizeof(e->message));
	return -1;
}

int sbx_fail_shape(struct sbx_error *e, const char *what)
{
	return sbx_fail(
		e, "protocol", EPROTO, "the server's answer is not the Sandbox API's: %s", what);
}

/* Statuses whose errno says more than the code's, and those that come without a code. */
static const struct {
	int status, sys;
} statuses[] = {
	{ 400, EINVAL },
	{ 401, EACCES },
	{ 403, EPERM },
	{ 404, ENOENT },
	{ 409, EBUSY },
	{ 413, EFBIG },
	{ 415, EPROTO },
	{ 500, EIO },
	{ 501, EOPNOTSUPP },
	{ 502, EHOSTDOWN },
	{ 503, EAGAIN },
	{ 504, ETIMEDOUT },
};

static int errno_of_status(int status)
{
	for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
		if (statuses[i].status == status)
			return statuses[i].sys;
	return status / 100 == 4 ? EINVAL : status / 100 == 5 ? EIO : EPROTO;
}

static int errno_of_answer(int status, const char *code, const char *name, const char *message)
{
	enum err_code c = err_code_of_word(code);
	int sys = name ? err_errno_of_name(name) : 0;

	if (sys)
		return sys;
	if (status == 413 || status == 415)
		return errno_of_status(status);
	if (c == ERR_CONFLICT && strstr(message, "read-only"))
		return EROFS;
	if (c == ERR_INTERNAL && strcmp(code, "internal") != 0)
		return errno_of_status(status); /* a code from a later version */
	return err_errno(c);
}

int sbx_fail_answer(struct sbx_error *e, int status, const char *body, size_t len)
{
	_cleanup_json_ json_t *v = NULL;
	const char *code = NULL, *message = NULL, *name = NULL;
	json_t *error;

	if (!e)
		return -1;
	if (len && json_parse_any(body, len, SBX_ERROR_BODY_MAX, &v, NULL) < 0)
		v = NULL;
	error = json_object_get(v, "error");
	code = json_string_value(json_object_get(error, "code"));
	message = json_string_value(json_object_get(error, "message"));
	name = json_string_value(json_object_get(error, "errno"));
	if (status / 100 == 3) {
		sbx_fail(e, "protocol", EPROTO,
			"the server answered with a redirect (%d); "
			"name its real address as the endpoint",
			status);
	} else if (!code || !message) {
		sbx_fail(e, "internal", errno_of_status(status),
			"HTTP status %d without an error of the Sandbox API", status);
	} else {
		sbx_fail(e, "", errno_of_answer(status, code, name, message), "%s", message);
		sbx_printable(code, strlen(code), e->code, sizeof(e->code));
	}
	e->status = status;
	return -1;
}

static int fail_connect(struct sbx_error *e, const struct sbx *s, long os_errno)
{
	const char *what = os_errno ? strerrordesc_np((int)os_errno) : "no connection";

	if (os_errno == EACCES || os_errno == EPERM)
		return sbx_fail(e, "unreachable", EACCES,
			"cannot use %s: permission denied; it belongs to another user",
			s->endpoint);
	return sbx_fail(e, "unreachable", EHOSTDOWN,
		"cannot reach sandboxd at %s: %s; is it running? (SBX_ENDPOINT says where)",
		s->endpoint, what ? what : "no connection");
}

int sbx_fail_curl(struct sbx_error *e, const struct sbx *s, CURLcode rc, long os_errno, bool sent)
{
	switch (rc) {
	case CURLE_COULDNT_CONNECT:
	case CURLE_COULDNT_RESOLVE_HOST:
		if (sent) /* a dead kept-alive connection under a request that is never repeated */
			sbx_fail(e, "unreachable", EHOSTDOWN,
				"%s closed the connection; the request may have been carried out",
				s->endpoint);
		else
			fail_connect(e, s, os_errno);
		break;
	case CURLE_OPERATION_TIMEDOUT:
		sbx_fail(e, sent ? "timeout" : "unreachable", ETIMEDOUT,
			"%s did not answer in time%s", s->endpoint,
			sent ? "; the request may have been carried out" : "");
		break;
	case CURLE_ABORTED_BY_CALLBACK:
		sbx_fail(e, "interrupted", EINTR, "interrupted");
		break;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_CACERT_BADFILE:
		sbx_fail(e, "unreachable", EHOSTDOWN,
			"no trusted TLS connection to %s: %s "
			"(SBX_CA names the file of its certificate authority)",
			s->endpoint, K->easy_strerror(rc));
		break;
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
	case CURLE_GOT_NOTHING:
	case CURLE_PARTIAL_FILE:
		sbx_fail(e, "unreachable", EHOSTDOWN,
			"the connection to %s broke before its answer was "
			"complete",
			s->endpoint);
		break;
	case CURLE_OUT_OF_MEMORY:
		sbx_fail(e, "internal", ENOMEM, "out of memory");
		break;
	default:
		sbx_fail_shape(e, s->socket_path ? "it is malformed" : K->easy_strerror(rc));
	}
	if (e)
		e->sent = sent;
	return -1;
}
