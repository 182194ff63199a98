# SPDX-License-Identifier: MIT
# C tests: each tests/{unit,contract,api}/test_*.c is one cmocka program, linked with everything but
# the mains. tests/support/*.c is linked into each.
TEST_SRCS := $(sort $(wildcard tests/unit/test_*.c tests/contract/test_*.c tests/api/test_*.c tests/fs/test_*.c tests/cli/test_*.c))
TEST_BINS := $(patsubst tests/%.c,$(O)/tests/%,$(TEST_SRCS))
TEST_LIB  := $(filter-out $(O)/obj/sandboxd/main.o $(O)/obj/sbxfs/main.o,$(call objs,tests/support sandboxd sbxfs $(SERVERLIB) $(CLIENTLIB) $(COMMON)))
$(O)/tests/libtest.a: $(TEST_LIB)
	@mkdir -p $(@D)
	@rm -f $@ && ar rcs $@ $^
$(TEST_BINS): $(O)/tests/%: $(O)/obj/tests/%.o $(O)/tests/libtest.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< $(O)/tests/libtest.a $(O)/tests/libtest.a -lcmocka $(LIBS_sandboxd) $(LIBS_sbxfs)
$(O)/bench/bench: $(O)/obj/tests/bench/bench.o $(O)/lib/libsbx.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_client)
tests-build: $(TEST_BINS)
.SECONDARY:
