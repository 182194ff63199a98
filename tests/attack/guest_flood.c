/* SPDX-License-Identifier: MIT */
/* Floods that do not end by themselves.
 *   guest_flood again TEXT   the shell text, again and again: whatever becomes of the shell
 *   guest_flood bomb         processes of which each goes on making more
 *   guest_flood storm        processes of which each makes two and goes
 * A shell that cannot fork gives up; the first process here waits a moment and tries again, and no
 * signal of its own sandbox's `kill -1` but KILL ends it.
 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAUSE_US 1000

static void again(const char *text)
{
	execl("/bin/sh", "sh", "-c", text, (char *)0);
	_exit(127);
}

static void bomb(const char *text)
{
	(void)text;
	for (;;)
		(void)fork();
}

static void storm(const char *text)
{
	(void)text;
	for (int made = 0; made < 2;)
		if (fork() == 0)
			made = 0;
		else
			made++;
	_exit(0);
}

static const struct {
	const char *kind;
	void (*flood)(const char *text); /* in a process of its own; does not come back */
} kinds[] = {
	{ "again", again },
	{ "bomb", bomb },
	{ "storm", storm },
};

static void one_round(void (*flood)(const char *), const char *text)
{
	pid_t p = fork();

	if (p == 0) {
		signal(SIGTERM, SIG_DFL);
		flood(text);
	}
	if (p > 0)
		waitpid(p, NULL, 0);
	usleep(PAUSE_US);
}

int main(int argc, char **argv)
{
	signal(SIGTERM, SIG_IGN);
	for (size_t i = 0; argc > 1 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		while (strcmp(kinds[i].kind, argv[1]) == 0)
			one_round(kinds[i].flood, argc > 2 ? argv[2] : "");
	return 2;
}
