# SPDX-License-Identifier: MIT
# Long forms of the mount's tests: the model of a file, published suites, large trees. tests/mount has both
# the rows and the scenarios' small numbers.
.PHONY: model suites large
MOUNT_BINS := $(O)/mount/model $(O)/mount/posix
# Runs in the guest as well.
$(O)/mount/model: $(O)/guest/tests/mount/model.o $(O)/guest/tests/mount/actor.o
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(MUSL) $(GUEST_LDFLAGS) -o $@ $^
POSIX_ROWS := posix_names posix_attrs posix_io posix_more posix_paths posix_rules
$(O)/mount/posix: $(patsubst %,$(O)/obj/tests/mount/%.o,posix $(POSIX_ROWS))
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^
tests-build: $(MOUNT_BINS)
model: all $(MOUNT_BINS) ## random operations on the mount against a model for MINUTES=10; SEED=
	@scripts/deps test
	@O=$(O) tests/mount/run model
suites: all $(MOUNT_BINS) ## published file-system suites on the mount, in full
	@scripts/deps test
	@O=$(O) tests/mount/run suites
large: all $(MOUNT_BINS) ## a million files, large directories and files on the mount, with its memory
	@scripts/deps test
	@O=$(O) tests/mount/run large
