/* SPDX-License-Identifier: MIT */
/* libFuzzer's entry; TARGET names the function. */
#include "tests/fuzz/fuzz.h"

fuzz_target TARGET;
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return TARGET(data, size);
}
