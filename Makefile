# SPDX-License-Identifier: MIT
# `make help` lists the targets. Everything is built into $(O).
O       ?= build
PREFIX  ?= /usr/local
prefix  ?= $(PREFIX)
include mk/flags.mk
# V=1 shows whole commands.
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $@)
.DEFAULT_GOAL := all

srcs     = $(foreach d,$(1),$(wildcard $(d)/*.c))
objs     = $(patsubst %.c,$(O)/obj/%.o,$(call srcs,$(1)))
gobjs    = $(patsubst %.c,$(O)/guest/%.o,$(call srcs,$(1)))

COMMON    := common/sys common/base common/json common/api common/curl
SERVERLIB := common/http common/db sandboxd/store sandboxd/proto sandboxd/backend sandboxd/backend/linux sandboxd/backend/fake sandboxd/core sandboxd/api
CLIENTLIB := client/lib

LIBS_sandboxd := -lmicrohttpd -lgnutls -lz -ljansson -lsqlite3 -lcrypto -lssl -lm -lpthread
LIBS_priv     := -lseccomp
# libcurl is loaded at run time, for TCP and TLS endpoints only: common/curl/curl.h.
LIBS_client   := -ljansson -lpthread
LIBS_sbxfs    := $(shell pkg-config --libs fuse3 2>/dev/null || echo -lfuse3) $(LIBS_client)
FUSE_CFLAGS   := $(shell pkg-config --cflags fuse3 2>/dev/null || echo -I/usr/include/fuse3)
$(O)/obj/sbxfs/%.o: CFLAGS += $(FUSE_CFLAGS)
$(O)/obj/tests/%.o: CFLAGS += $(FUSE_CFLAGS) -Wno-missing-prototypes

BINS := $(addprefix $(O)/bin/,sandboxd sbx-priv sbx-shim sbx-init sbx-worker sbx-egress sbx-pull sbxfs sbx)
all: $(BINS) $(O)/lib/libsbx.so.1 $(O)/lib/libsbx.a $(O)/images/base.tar ## build everything

$(O)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<
$(O)/guest/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(MUSL) $(GUEST_CFLAGS) -c -o $@ $<

$(O)/bin/sandboxd: $(call objs,sandboxd $(SERVERLIB) $(COMMON))
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_sandboxd)
$(O)/bin/sbx-priv: $(call objs,sandboxd/priv common/sys)
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_priv)
$(O)/bin/sbx-pull: $(call objs,sandboxd/pull common/sys) $(O)/obj/common/base/addr.o
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -lpthread
define guest_prog
$(O)/bin/sbx-$(1): $(call gobjs,sandboxd/$(1) common/sys $(2))
	@mkdir -p $$(@D)
	$$(call say,LD)
	$$(Q)$(MUSL) $(GUEST_LDFLAGS) -o $$@ $$^
endef
$(eval $(call guest_prog,shim))
$(eval $(call guest_prog,init))
$(eval $(call guest_prog,worker,common/fs))
# It reads what the network says: loaded at an address of its own each time, with guarded stacks.
$(O)/bin/sbx-egress: $(call gobjs,sandboxd/egress common/sys) $(O)/guest/common/base/addr.o
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(MUSL) -static -nostartfiles -Wl,-pie,--no-dynamic-linker,-z,text,-z,relro,-z,now,--gc-sections \
		-o $@ $(MUSL_LIB)/rcrt1.o $(MUSL_LIB)/crti.o $^ $(MUSL_LIB)/crtn.o
$(O)/guest/sandboxd/egress/%.o: GUEST_CFLAGS += -fPIE -fstack-protector-strong
$(O)/lib/libsbx.a: $(call objs,$(CLIENTLIB) $(COMMON))
	@mkdir -p $(@D)
	$(call say,AR)
	$(Q)rm -f $@ && ar qcs $@ $^
$(O)/lib/libsbx.so.1: $(call objs,$(CLIENTLIB) $(COMMON)) client/lib/sbx.map
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) -shared -Wl,-soname,libsbx.so.1 -Wl,--version-script=client/lib/sbx.map -Wl,-z,relro,-z,now $(LDSAN) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBS_client)
	@ln -sf libsbx.so.1 $(O)/lib/libsbx.so
$(O)/bin/sbx: $(call objs,client/cli) $(O)/lib/libsbx.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_client)
$(O)/bin/sbxfs: $(call objs,sbxfs) $(O)/lib/libsbx.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_sbxfs)
$(O)/images/base.tar: scripts/image-base
	@mkdir -p $(@D)
	$(call say,IMAGE)
	$(Q)scripts/image-base $@

include mk/tests.mk
include mk/fuzz.mk
include mk/targets.mk
-include $(shell find $(O) -name '*.d' 2>/dev/null)
