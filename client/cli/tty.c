/* SPDX-License-Identifier: MIT */
/* The terminal of standard input: raw while a remote terminal is shown, and always put back. */
#include "client/cli/cli.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* The setting to go back to; one terminal a program, hence the one variable. */
static struct termios before, raw;
static bool changed;

bool tty_raw(void)
{
	if (tcgetattr(STDIN_FILENO, &before) < 0)
		return false;
	raw = before;
	cfmakeraw(&raw);
	/* DRAIN, not FLUSH: what was typed ahead is for the command. */
	changed = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
	return changed;
}

void tty_again(void)
{
	/* In the background it is not ours to change. */
	if (changed && tcgetpgrp(STDIN_FILENO) == getpgrp())
		tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

void tty_restore(void)
{
	if (changed)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
	changed = false;
}

bool tty_size(int *rows, int *cols)
{
	struct winsize w;

	for (int fd = 0; fd < 3; fd++)
		if (ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_row && w.ws_col) {
			*rows = w.ws_row;
			*cols = w.ws_col;
			return true;
		}
	return false;
}
