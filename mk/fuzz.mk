# SPDX-License-Identifier: MIT
# `make fuzz`: every target under libFuzzer with the sanitizers, FUZZ_SECS each (FUZZ=name: one of
# them). What it finds new is kept in $(O)-fuzz/corpus; a crash is written to $(O)-fuzz/found and ends
# the run. The tests replay tests/fuzz/corpus without a fuzzer.
FUZZ_SECS  ?= 20
FUZZ       ?=
FUZZ_NAMES := $(filter $(or $(FUZZ),%),$(patsubst tests/fuzz/fuzz_%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c))))
FUZZ_BINS  := $(addprefix $(O)/fuzz/,$(FUZZ_NAMES))

$(O)/obj/tests/fuzz/llvm_%.o: tests/fuzz/llvm.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -DTARGET=fuzz_$* -c -o $@ $<
$(FUZZ_BINS): $(O)/fuzz/%: $(O)/obj/tests/fuzz/fuzz_%.o $(O)/obj/tests/fuzz/llvm_%.o $(O)/tests/libtest.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(O)/tests/libtest.a $(O)/tests/libtest.a \
		-lcmocka $(LIBS_sandboxd) $(LIBS_client)
# The broker's own target: its files with everything replaced that would act (tests/fuzz/fuzz_priv.c).
# Without _FORTIFY_SOURCE, whose inline functions go past the replacement.
PRIV_DOUBLED := $(patsubst %,$(O)/obj/tests/fuzz/priv/%.o,broker creates pools usual freeze images meter works ends)
PRIV_FUZZED  := $(PRIV_DOUBLED) $(patsubst %,$(O)/obj/sandboxd/priv/%.o,box sys layers)
$(PRIV_DOUBLED): $(O)/obj/tests/fuzz/priv/%.o: sandboxd/priv/%.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -U_FORTIFY_SOURCE -Dfork=double_fork -Dkill=double_kill -Dpoll=double_poll \
		-Dsocketpair=double_socketpair -Dclock_gettime=double_clock_gettime -c -o $@ $<
$(O)/fuzz/priv $(O)/tests/unit/test_fuzz_priv: $(PRIV_FUZZED)
$(O)/tests/unit/test_fuzz_priv: LDFLAGS += $(PRIV_FUZZED)
fuzz-bins: $(FUZZ_BINS)
fuzz: ## fuzz every parser of untrusted bytes for FUZZ_SECS each (needs clang)
	@$(MAKE) --no-print-directory O=$(O)-fuzz CC='clang -fsanitize=fuzzer-no-link' SAN=asan fuzz-bins
	@for n in $(FUZZ_NAMES); do \
		mkdir -p $(O)-fuzz/corpus/$$n $(O)-fuzz/found; \
		echo "fuzz $$n"; \
		$(O)-fuzz/fuzz/$$n -max_total_time=$(FUZZ_SECS) -max_len=65536 -timeout=20 -print_final_stats=0 \
			-artifact_prefix=$(O)-fuzz/found/$$n- -verbosity=1 \
			$(O)-fuzz/corpus/$$n tests/fuzz/corpus/$$n 2>$(O)-fuzz/$$n.log || \
			{ tail -n 40 $(O)-fuzz/$$n.log; exit 1; }; \
		grep -h 'Done\|cov:' $(O)-fuzz/$$n.log | tail -n 2; \
	done
include mk/liars.mk
