/* SPDX-License-Identifier: MIT */
/* Events of processes, 23.2. Arguments are recorded as a hash only: they may hold secrets. */
#include "sandboxd/core/proc_internal.h"

#include "common/sys/mem.h"
#include "sandboxd/core/audit.h"
#include "sandboxd/core/core.h"
#include "sandboxd/core/strs.h"

#include <openssl/evp.h>
#include <string.h>

static struct audit *log_of(const struct proc *p)
{
	return p->sandbox->core ? core_audit(p->sandbox->core) : NULL;
}

/* Lower-case hex SHA-256 over each further argument and its NUL. */
static bool args_hash(char *const *args, char out[65])
{
	static const char hex[] = "0123456789abcdef";
	unsigned char md[32];
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);

	for (; ok && *args; args++)
		ok = EVP_DigestUpdate(ctx, *args, strlen(*args) + 1);
	ok = ok && EVP_DigestFinal_ex(ctx, md, NULL);
	EVP_MD_CTX_free(ctx);
	for (size_t i = 0; ok && i < sizeof(md); i++) {
		out[2 * i] = hex[md[i] >> 4];
		out[2 * i + 1] = hex[md[i] & 15];
	}
	out[64] = '\0';
	return ok;
}

void proc_log_started(struct proc *p, const struct process_body *body)
{
	struct audit *a = log_of(p);
	json_int_t nargs = 0;
	char hash[65];
	json_t *o;

	if (!a)
		return;
	while (p->argv[1 + nargs])
		nargs++;
	o = json_pack("{s:I, s:s}", "pid", (json_int_t)p->num, "program", p->argv[0]);
	if (nargs && args_hash(p->argv + 1, hash)) {
		json_object_set_new(o, "arg_count", json_integer(nargs));
		json_object_set_new(o, "args_sha256", json_string(hash));
	}
	if (body->cwd && *body->cwd)
		json_object_set_new(o, "cwd", json_string(body->cwd));
	if (body->env.n)
		json_object_set_new(o, "env_names", map_names_json(&body->env));
	audit_event(a, "process.started", p->sandbox->id, o);
}

void proc_log_exited(struct proc *p)
{
	struct audit *a = log_of(p);
	json_int_t ms = (p->ended_ns - p->started_ns) / 1000000;
	json_t *o;

	if (p->exit_logged)
		return;
	p->exit_logged = true;
	spool_note(p, 1u | (p->timed_out ? 2u : 0));
	if (!a)
		return;
	o = json_pack("{s:I, s:i}", "pid", (json_int_t)p->num, "exit_code", p->exit_code);
	if (ms > 0)
		json_object_set_new(o, "duration_ms", json_integer(ms));
	audit_event(a, "process.exited", p->sandbox->id, o);
}
