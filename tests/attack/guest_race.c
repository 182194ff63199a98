/* SPDX-License-Identifier: MIT */
/* Changes what others are looking at, as fast as the kernel lets it.
 *   guest_race swap A B [SECONDS]   exchanges the two names again and again
 *   guest_race stop [SECONDS]       stops every other process that it may, a start half done
 * included Prints how often, when the time is over. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

static int over(time_t end)
{
	return time(NULL) >= end;
}

static int swap(const char *a, const char *b, int secs)
{
	time_t end = time(NULL) + secs;
	long n = 0;

	while (n % 256 || !over(end)) {
		if (syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) < 0) {
			perror("exchange");
			return 1;
		}
		n++;
	}
	printf("swapped %ld\n", n);
	return 0;
}

/* Pids count up, so the next one is known before it is there. */
static int stop(int secs)
{
	time_t end = time(NULL) + secs;
	int self = getpid(), parent = getppid(), last = self;
	long n = 0, turns = 0;

	while (turns++ % 4096 || !over(end)) {
		for (int p = last - 8; p < last + 24; p++) {
			if (p <= 1 || p == self || p == parent || kill(p, SIGSTOP) < 0)
				continue;
			n++;
			last = p;
		}
	}
	printf("stopped %ld\n", n);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc >= 4 && strcmp(argv[1], "swap") == 0)
		return swap(argv[2], argv[3], argc > 4 ? atoi(argv[4]) : 3);
	if (argc >= 2 && strcmp(argv[1], "stop") == 0)
		return stop(argc > 2 ? atoi(argv[2]) : 3);
	return 2;
}
