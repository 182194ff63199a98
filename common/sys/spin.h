/* SPDX-License-Identifier: MIT */
/* Looking before sleeping. Where answers come within some microseconds, waking a processor that sleeps costs
 * several times as much as they do. So who waits looks again and again for about as long as the last ones took,
 * at most SPIN_US, and only then sleeps. It lets others run at each look; when somebody kept the processor
 * meanwhile it is theirs, and nobody in this process looks for a while. A struct belongs to one thread at a time. */
#ifndef COMMON_SYS_SPIN_H
#define COMMON_SYS_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#define SPIN_US 80 /* a wait's longest */

struct spin {
	int64_t window_us;           /* so long the next wait looks */
	int64_t began_us, looked_us; /* of the wait that is under way */
};

/* A wait begins. */
void spin_begin(struct spin *s);
/* Lets others run. False: sleep now. */
bool spin_goes_on(struct spin *s);
/* What was waited for is here, or will not come; the next wait goes by how long it took. */
void spin_end(struct spin *s);

#endif
