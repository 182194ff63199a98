# SPDX-License-Identifier: MIT
# Guest programs that somebody has taken over (tests/attack/liar), in a folder that a server can have as its
# libexec folder: init and worker are the real ones with one function replaced.
LIARS := $(addprefix $(O)/tests/attack/liars/,sbx-init sbx-worker sbx-egress)
LIAR  := $(O)/guest/tests/attack/liar
$(LIAR)/spawn.o: sandboxd/init/spawn.c
$(LIAR)/spawn.o: GUEST_CFLAGS += -Dspawn=real_spawn
$(LIAR)/wire.o: sandboxd/worker/wire.c
$(LIAR)/wire.o: GUEST_CFLAGS += -Dwire_answer=real_wire_answer
$(LIAR)/spawn.o $(LIAR)/wire.o:
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(MUSL) $(GUEST_CFLAGS) -c -o $@ $<
$(O)/tests/attack/liars/sbx-init: $(LIAR)/init.o $(LIAR)/spawn.o $(O)/guest/sandboxd/init/main.o $(call gobjs,common/sys)
$(O)/tests/attack/liars/sbx-worker: $(LIAR)/worker.o $(LIAR)/wire.o \
	$(filter-out %/wire.o,$(call gobjs,sandboxd/worker)) $(call gobjs,common/sys common/fs)
$(O)/tests/attack/liars/sbx-egress: $(LIAR)/egress.o $(call gobjs,common/sys)
$(LIARS):
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(MUSL) $(GUEST_LDFLAGS) -o $@ $^
	$(Q)for p in priv shim; do ln -sf ../../../bin/sbx-$$p $(@D)/sbx-$$p; done
$(O)/tests/attack/liars/sbx-pull: tests/attack/liar/pull.py
	@mkdir -p $(@D)
	$(Q)rm -f $@ && cp $< $@
tests-build: $(LIARS) $(O)/tests/attack/liars/sbx-pull
