/* SPDX-License-Identifier: MIT */
/* The transfer library, loaded when it is first needed: by a client when the first TCP or TLS endpoint
 * is opened, by the server when the first sandbox exports its metrics. With it come some thirty other
 * libraries, whose loading would be most of what a short command over a unix socket costs, and five
 * megabytes of an idle server. */
#ifndef COMMON_CURL_CURL_H
#define COMMON_CURL_CURL_H

#include <curl/curl.h>

#define CURL_CALLS(F)                                                                              \
	F(easy_init)                                                                               \
	F(easy_setopt) F(easy_getinfo) F(easy_perform) F(easy_cleanup) F(easy_send) F(easy_recv)   \
		F(easy_strerror) F(multi_init) F(multi_setopt) F(multi_add_handle)                 \
			F(multi_remove_handle) F(multi_perform) F(multi_poll) F(multi_wakeup)      \
				F(multi_info_read) F(multi_cleanup) F(slist_append)                \
					F(slist_free_all) F(url) F(url_set) F(url_get)             \
						F(url_cleanup) F(free)

struct curl_calls {
#define F(name) __typeof__(curl_##name) *name;
	CURL_CALLS(F)
#undef F
	int (*ssl_shutdown)(void *ssl); /* NULL: it does TLS with something else */
};
/* NULL: it is not installed. Who made a handle with it has checked that before. */
const struct curl_calls *curl_lib(void);
#define K curl_lib()

#endif
