/* SPDX-License-Identifier: MIT */
/* Linked into the programs that run beside a test under ThreadSanitizer. A connection that one thread
 * has armed in the epoll set is another's when its event comes: the kernel orders the two, which the
 * sanitizer does not see. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:end_connection\n";
}
