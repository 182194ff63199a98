# SPDX-License-Identifier: MIT
# Attacks (tests/attack). test_*.c is a cmocka program like any other; guest_*.c and the folder inside/
# are static programs that run in a sandbox. What ends in _long runs in `make attack` only.
ATTACK_TESTS := $(patsubst tests/%.c,$(O)/tests/%,$(wildcard tests/attack/test_*.c))
ATTACK_GUEST := $(patsubst tests/%.c,$(O)/tests/%,$(wildcard tests/attack/guest_*.c))
$(ATTACK_TESTS): $(O)/tests/%: $(O)/obj/tests/%.o $(O)/tests/libtest.a
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< $(O)/tests/libtest.a $(O)/tests/libtest.a -lcmocka $(LIBS_sandboxd) $(LIBS_client)
$(ATTACK_GUEST): $(O)/tests/%: $(O)/guest/tests/%.o
$(O)/tests/attack/inside: $(call gobjs,tests/attack/inside)
$(ATTACK_GUEST) $(O)/tests/attack/inside:
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(MUSL) $(GUEST_LDFLAGS) -o $@ $^
# The disk whose power is cut.
$(O)/tests/attack/powerdisk: $(O)/obj/tests/attack/powerdisk.o
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_sbxfs)
tests-build: $(O)/tests/attack/powerdisk $(ATTACK_TESTS) $(ATTACK_GUEST) $(O)/tests/attack/inside
.PHONY: attack attack-asan attack-tsan attack-mutants
attack: ## every attack that was ever tried, with the long floods
	@scripts/deps attack
	@$(MAKE) --no-print-directory all tests-build
	@O=$(O) scripts/run-tests attack
attack-mutants: ## take measures away one by one: each time a test must fail
	@scripts/deps attack
	@$(MAKE) --no-print-directory all tests-build
	@O=$(O) tests/attack/mutants
attack-asan: ## the attacks of every day under AddressSanitizer and UBSan; T=word selects
	@scripts/deps attack
	@$(MAKE) --no-print-directory O=$(O)-asan SAN=asan all tests-build
	@O=$(O) scripts/check-attack asan
attack-tsan: ## the same under ThreadSanitizer
	@scripts/deps attack
	@$(MAKE) --no-print-directory O=$(O)-tsan SAN=tsan all tests-build
	@O=$(O) scripts/check-attack tsan
