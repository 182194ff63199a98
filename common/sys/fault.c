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
	if (!strncmp(want, "stop:", 5) || !strncmp(want, "wait:", 5)) {
		sig = *want == 's' ? SIGSTOP : 0;
		want += 5;
	}
	if (strcmp(want, name) != 0)
		return;
	if (sig)
		(void)kill(getpid(), sig);
	while (!sig)
		(void)pause();
}
