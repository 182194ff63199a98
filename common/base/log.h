/* SPDX-License-Identifier: MIT */
/* Log lines to stderr: "<level> message key=value". Secrets, command text and file contents never
 * appear. Values from a guest go through %s of log_quote. */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

#include <stddef.h>

enum log_level { LOG_LVL_ERROR, LOG_LVL_WARN, LOG_LVL_INFO, LOG_LVL_DEBUG };

void log_set_level(enum log_level l); /* before the first thread */
void log_write(enum log_level l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_write(LOG_LVL_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_LVL_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_LVL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LVL_DEBUG, __VA_ARGS__)
/* Makes text safe for a terminal: C0, C1, DEL, quotes and backslash become escapes; cuts at size. */
const char *log_quote(const char *s, char *buf, size_t size);

#endif
