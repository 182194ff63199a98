/* SPDX-License-Identifier: MIT */
#include "tests/attack/inside/inside.h"

#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What a set-id copy of this program has gained. */
static int gained(void)
{
	printf("euid=%d\n", (int)geteuid());
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "gained") == 0)
		return gained();
	try_first_process();
	try_procfs();
	try_mounts();
	try_kernel();
	try_network();
	say("end", "OK");
	return 0;
}
