# SPDX-License-Identifier: MIT
# Other kernels, in a virtual machine.
.PHONY: vm
vm: ## the tests of tests/vm/list under Debian's kernel in a virtual machine; slow
	@scripts/deps test
	@scripts/deps vm
	@$(MAKE) --no-print-directory all tests-build
	@O=$(O) scripts/vm
