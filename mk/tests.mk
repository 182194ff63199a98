# SPDX-License-Identifier: MIT
# C tests: each tests/{unit,contract,api}/test_*.c is one cmocka program, linked with everything but
# the mains. tests/support/*.c is linked into each. Those of tests/fs hold the mount's parts instead of
# the server's: two programs may use one name for two things.
TEST_SRCS := $(sort $(wildcard tests/unit/test_*.c tests/contract/test_*.c tests/api/test_*.c tests/fs/test_*.c tests/cli/test_*.c))
TEST_BINS := $(patsubst tests/%.c,$(O)/tests/%,$(TEST_SRCS))
TEST_LIB  := $(filter-out $(O)/obj/sandboxd/main.o,$(call objs,tests/support sandboxd common/fs $(SERVERLIB) $(CLIENTLIB) $(COMMON))) \
	$(patsubst %,$(O)/obj/sandboxd/egress/%.o,policy names dnswire hello http)
$(O)/tests/libtest.a: $(TEST_LIB)
	@mkdir -p $(@D)
	@rm -f $@ && ar qcs $@ $^
FS_TEST_BINS := $(filter $(O)/tests/fs/%,$(TEST_BINS))
FS_TEST_LIB  := $(filter-out $(O)/obj/sbxfs/main.o,$(call objs,sbxfs $(CLIENTLIB) $(COMMON))) $(O)/obj/tests/support/peer.o
$(FS_TEST_BINS): $(O)/tests/%: $(O)/obj/tests/%.o $(FS_TEST_LIB)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -lcmocka $(LIBS_sbxfs)
$(filter-out $(FS_TEST_BINS),$(TEST_BINS)): $(O)/tests/%: $(O)/obj/tests/%.o $(O)/tests/libtest.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< $(O)/tests/libtest.a $(O)/tests/libtest.a -lcmocka $(LIBS_sandboxd) $(LIBS_client)
$(O)/bench/bench: $(O)/obj/tests/bench/bench.o $(O)/lib/libsbx.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_client)
$(O)/bench/node: $(O)/obj/tests/bench/node.o $(O)/lib/libsbx.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_client)
$(O)/bench/tunnel: $(O)/obj/tests/bench/tunnel.o $(O)/lib/libsbx.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_client)
$(O)/bench/call: $(O)/obj/tests/bench/call.o $(O)/lib/libsbx.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_client)
$(O)/obj/tests/bench/pass.o: CFLAGS += $(FUSE_CFLAGS)
$(O)/bench/pass: $(O)/obj/tests/bench/pass.o
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_sbxfs)
$(O)/bench/relay: $(O)/obj/tests/bench/relay.o
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^
$(O)/bench/peer: $(O)/guest/tests/bench/peer.o
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(MUSL) $(GUEST_LDFLAGS) -o $@ $^
$(O)/soak/soak: $(call objs,tests/soak) $(O)/lib/libsbx.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_client)
JAIL_PARTS := $(patsubst %,$(O)/obj/sandboxd/priv/%.o,child jail filter sys)
$(O)/tests/unit/test_jail: $(JAIL_PARTS)
$(O)/tests/unit/test_jail: LDFLAGS += $(JAIL_PARTS) -lseccomp
SUPER_PARTS := $(O)/obj/sandboxd/priv/btrfs_super.o
$(O)/tests/unit/test_btrfs_super: $(SUPER_PARTS)
$(O)/tests/unit/test_btrfs_super: LDFLAGS += $(SUPER_PARTS)
UNPACK_PARTS := $(patsubst %,$(O)/obj/sandboxd/priv/%.o,unpack_tar sys)
$(O)/tests/unit/test_unpack: $(UNPACK_PARTS)
$(O)/tests/unit/test_unpack: LDFLAGS += $(UNPACK_PARTS) -Wl,--no-as-needed -larchive -Wl,--as-needed
# Somebody takes the jails over when jail_drop has been called.
FOLDERS_PARTS := $(patsubst %,$(O)/obj/sandboxd/priv/%.o,child filter jail root root_overlay root_volumes seal_copy sys unpack unpack_fixup unpack_tar)
$(O)/tests/unit/test_jail_folders: $(FOLDERS_PARTS)
$(O)/tests/unit/test_jail_folders: LDFLAGS += $(FOLDERS_PARTS) -lseccomp -Wl,--wrap=jail_drop
# The attacks that run inside a sandbox, and a broker that starts guest processes as guest root.
$(O)/tests/linux/attack: $(O)/guest/tests/linux/attack.o
$(O)/tests/linux/poke: $(O)/guest/tests/linux/poke.o
$(O)/tests/linux/hand: $(O)/guest/tests/linux/hand.o
$(O)/tests/linux/attack $(O)/tests/linux/poke $(O)/tests/linux/hand:
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(MUSL) $(GUEST_LDFLAGS) -o $@ $^
$(O)/tests/linux/root/build.o: sandboxd/priv/build.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -DGUEST_UID=0 -c -o $@ $<
$(O)/tests/linux/bare/filter.o: sandboxd/priv/filter.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -DFILTER_USED=0 -c -o $@ $<
$(O)/tests/linux/redirect/catch.o: sandboxd/priv/catch.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -DCATCH_BY_LOOKUP=0 -c -o $@ $<
$(O)/tests/linux/moves/cg_find.o: sandboxd/priv/cg_find.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -DCHEAP_MOVES=true -c -o $@ $<
PRIV_OBJS := $(call objs,sandboxd/priv common/sys)
# root: guest processes are guest root; bare: and there is no system call filter.
$(O)/tests/linux/root/sbx-priv: $(O)/tests/linux/root/build.o $(filter-out %/priv/build.o,$(PRIV_OBJS))
$(O)/tests/linux/bare/sbx-priv: $(O)/tests/linux/root/build.o $(O)/tests/linux/bare/filter.o \
	$(filter-out %/priv/build.o %/priv/filter.o,$(PRIV_OBJS))
# redirect: as on a host that takes no socket lookup program.
$(O)/tests/linux/redirect/sbx-priv: $(O)/tests/linux/redirect/catch.o $(filter-out %/priv/catch.o,$(PRIV_OBJS))
# moves: as on a host whose cgroup2 has favordynmods.
$(O)/tests/linux/moves/sbx-priv: $(O)/tests/linux/moves/cg_find.o $(filter-out %/priv/cg_find.o,$(PRIV_OBJS))
$(addprefix $(O)/tests/linux/,root/sbx-priv bare/sbx-priv redirect/sbx-priv moves/sbx-priv):
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_priv)
	$(Q)for p in shim init worker egress; do ln -sf ../../../bin/sbx-$$p $(@D)/sbx-$$p; done
# The file worker with the sanitizers of this build (the product's is static and has none), for the
# tests that start a worker of their own.
SAN_BINS := $(if $(SAN),$(O)/tests/san/sbx-worker)
$(O)/tests/san/sbx-worker: $(call objs,sandboxd/worker common/sys common/fs tests/san)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -lpthread
tests-build: $(SAN_BINS) $(TEST_BINS) $(O)/tests/linux/attack $(O)/tests/linux/poke $(O)/tests/linux/hand $(O)/tests/linux/root/sbx-priv $(O)/tests/linux/bare/sbx-priv \
	$(O)/tests/linux/redirect/sbx-priv $(O)/tests/linux/moves/sbx-priv
.SECONDARY:
