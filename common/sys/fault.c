/* SPDX-License-Identifier: MIT */
#include "common/sys/fault.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fault_point(const char *name)
{
	const char *want = getenv("SBX_FAULT");
	int sig = SIGKILL;

	if (!want)
		return;
	if (!strncmp(want, "stop:", 5)) {
		want += 5;
		sig = SIGSTOP;
	}
	if (!strcmp(want, name))
		(void)kill(getpid(), sig);
}
