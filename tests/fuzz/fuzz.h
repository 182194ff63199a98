/* SPDX-License-Identifier: MIT */
/* Fuzz targets: tests/fuzz/fuzz_NAME.c holds one function fuzz_NAME for one parser that meets
 * untrusted bytes. `make fuzz` runs each under libFuzzer (llvm.c is its entry); the replay programs
 * of tests/unit put the corpus and cut or changed copies of it through the same functions, with any
 * compiler. A target aborts when a promise is broken; the sanitizers see the rest. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int fuzz_target(const uint8_t *data, size_t size);
fuzz_target fuzz_agent, fuzz_control, fuzz_answer, fuzz_egress, fuzz_files, fuzz_frames, fuzz_images, fuzz_json, fuzz_mount, fuzz_names,
	fuzz_paths, fuzz_priv, fuzz_shim, fuzz_spool, fuzz_stream;

#define promise(cond)                                                                              \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                 \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* The input as a supply that runs dry quietly. */
struct supply {
	const uint8_t *p;
	size_t left;
};
static inline unsigned supply_byte(struct supply *s)
{
	if (!s->left)
		return 0;
	s->left--;
	return *s->p++;
}
/* At most `max` bytes, their number chosen by the input itself. */
static inline const uint8_t *supply_piece(struct supply *s, size_t max, size_t *ret_len)
{
	size_t n = supply_byte(s) | supply_byte(s) << 8;
	const uint8_t *p = s->p;

	n = n < max ? n : max;
	n = n < s->left ? n : s->left;
	if (n) /* an empty supply has no place to count from */
		s->p += n;
	s->left -= n;
	*ret_len = n;
	return p;
}
/* A NUL-terminated copy; caller frees. */
static inline char *supply_text(const uint8_t *p, size_t len)
{
	char *s = malloc(len + 1);

	promise(s);
	if (len)
		memcpy(s, p, len);
	s[len] = '\0';
	return s;
}

#endif
