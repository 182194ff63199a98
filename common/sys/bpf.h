/* SPDX-License-Identifier: MIT */
/* Programs that the kernel asks about each system call (seccomp(2)): their statements in short, and the parts that all
 * of ours have. A program is an array; functions write at `f` and give the number of statements. Kernel headers
 * only. */
#ifndef COMMON_SYS_BPF_H
#define COMMON_SYS_BPF_H

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

#define LOAD(field)       BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define GIVE(action)      BPF_STMT(BPF_RET | BPF_K, (action))
#define REFUSE(e)         GIVE(SECCOMP_RET_ERRNO | (e))
#define IF_EQ(k, jt, jf)  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(k), (jt), (jf))
#define IF_GE(k, jt, jf)  BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (unsigned)(k), (jt), (jf))
#define IF_SET(k, jt, jf) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (unsigned)(k), (jt), (jf))

/* A call in another architecture's way ends the process; then the call's number is loaded. */
static inline size_t bpf_begin(struct sock_filter *f)
{
	size_t n = 0;

	f[n++] = (struct sock_filter)LOAD(arch);
	f[n++] = (struct sock_filter)IF_EQ(OUR_ARCH, 1, 0);
	f[n++] = (struct sock_filter)GIVE(SECCOMP_RET_KILL_PROCESS);
	f[n++] = (struct sock_filter)LOAD(nr);
	return n;
}

#ifdef __x86_64__
/* Calls of x32, doubles of all the others, get this answer. */
static inline size_t bpf_x32(struct sock_filter *f, uint32_t answer)
{
	f[0] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1);
	f[1] = (struct sock_filter)GIVE(answer);
	return 2;
}
#else
static inline size_t bpf_x32(struct sock_filter *f, uint32_t answer)
{
	(void)f;
	(void)answer;
	return 0;
}
#endif

/* Each of these calls gets this answer; two statements each. */
static inline size_t bpf_calls(struct sock_filter *f, const int *calls, size_t ncalls, uint32_t answer)
{
	size_t n = 0;

	for (size_t i = 0; i < ncalls; i++) {
		f[n++] = (struct sock_filter)IF_EQ(calls[i], 0, 1);
		f[n++] = (struct sock_filter)GIVE(answer);
	}
	return n;
}

/* A list of what is refused knows the calls up to a kernel's, and those of later ones do old things anew: they do not exist.
 * All machines have the same numbers for them; 462 is mseal(2), of Linux 6.10. */
#define BPF_CALLS_KNOWN 463
#define BPF_LATER       2
static inline size_t bpf_later(struct sock_filter *f)
{
	f[0] = (struct sock_filter)IF_GE(BPF_CALLS_KNOWN, 0, 1);
	f[1] = (struct sock_filter)REFUSE(ENOSYS);
	return BPF_LATER;
}

/* The limit of core files stays what it is (common/sys/core.h). Who lowers it hears that it was done, since programs do
 * that for their secrets' sake, and end when they cannot: there are no core files. */
#define BPF_CORE_LIMIT 14
static inline size_t bpf_core_limit(struct sock_filter *f)
{
	static const struct sock_filter rule[BPF_CORE_LIMIT] = {
		IF_EQ(SYS_prlimit64, 0, 8), LOAD(args[1]), IF_EQ(RLIMIT_CORE, 0, 5),
		/* without a new value it is a question */
		LOAD(args[2]), IF_EQ(0, 0, 2), BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]) + 4),
		IF_EQ(0, 1, 0), REFUSE(0), LOAD(nr),
		IF_EQ(SYS_setrlimit, 0, 4), LOAD(args[0]), IF_EQ(RLIMIT_CORE, 0, 1), REFUSE(0), LOAD(nr) };

	for (size_t i = 0; i < BPF_CORE_LIMIT; i++)
		f[i] = rule[i];
	return BPF_CORE_LIMIT;
}

#endif
