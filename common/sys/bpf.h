/* SPDX-License-Identifier: MIT */
/* Programs that the kernel asks about each system call (seccomp(2)): their statements in short, and the parts that all
 * of ours have. A program is an array; functions write at `f` and give the number of statements. Kernel headers
 * only. */
#ifndef COMMON_SYS_BPF_H
#define COMMON_SYS_BPF_H

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

#define LOAD(field)       BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define GIVE(action)      BPF_STMT(BPF_RET | BPF_K, (action))
#define REFUSE(e)         GIVE(SECCOMP_RET_ERRNO | (e))
#define IF_EQ(k, jt, jf)  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(k), (jt), (jf))
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

#endif
