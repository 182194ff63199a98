/* SPDX-License-Identifier: MIT */
#include "common/curl/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Written once, before anyone can see it. */
static struct curl_calls calls;
static bool loaded;

static void load(void)
{
	void *lib = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		return;
	loaded = true;
#define F(name)                                                                                    \
	*(void **)&calls.name = dlsym(lib, "curl_" #name);                                         \
	loaded = loaded && calls.name;
	CURL_CALLS(F)
#undef F
	*(void **)&calls.ssl_shutdown = dlsym(lib, "SSL_shutdown");
}

const struct curl_calls *curl_lib(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	return loaded ? &calls : NULL;
}
