# SPDX-License-Identifier: MIT
# Everything that is not compiling: running, checking, installing.
.PHONY: all up down check test bench soak fuzz install uninstall help lint format clean tests-build \
	check-asan check-tsan check-mount-asan check-mount-tsan deps

include mk/attack.mk
include mk/mount.mk
include mk/vm.mk
deps:
	@scripts/deps run
up: ## install what is missing, start sandboxd and the mount, make a first sandbox (IMAGE=debian)
	@scripts/deps run
	@$(MAKE) --no-print-directory all
	@O=$(O) IMAGE=$(IMAGE) scripts/up
down: ## end what `make up` started (ALL=1: the sandboxes too)
	@O=$(O) scripts/down
check: ## fast tests, no mount, no privilege (seconds); T=pattern selects
	@scripts/check-includes
	@tests/attack/mutants edits
	@$(MAKE) --no-print-directory all tests-build
	@O=$(O) scripts/run-tests fast
test: ## everything that decides whether a change lands
	@scripts/deps test
	@scripts/check-includes
	@tests/attack/mutants edits
	@$(MAKE) --no-print-directory all tests-build
	@O=$(O) scripts/run-tests all
check-asan: ## the C tests under AddressSanitizer and UBSan
	@$(MAKE) --no-print-directory O=$(O)-asan SAN=asan all tests-build
	@ASAN_OPTIONS=verify_asan_link_order=0 O=$(O)-asan scripts/run-tests fast
check-tsan: ## the C tests under ThreadSanitizer
	@$(MAKE) --no-print-directory O=$(O)-tsan SAN=tsan all tests-build
	@O=$(O)-tsan scripts/run-tests fast
check-mount-asan: all tests-build ## the mount's scenarios under AddressSanitizer and UBSan; S=word selects
	@scripts/deps test
	@$(MAKE) --no-print-directory O=$(O)-asan SAN=asan all $(O)-asan/tests/san/sbx-worker
	@O=$(O) scripts/check-mount asan
check-mount-tsan: all tests-build ## the same under ThreadSanitizer
	@scripts/deps test
	@$(MAKE) --no-print-directory O=$(O)-tsan SAN=tsan all $(O)-tsan/tests/san/sbx-worker
	@O=$(O) scripts/check-mount tsan
bench: all ## measure against bwrap, runc, sshfs and native, side by side
	@scripts/deps bench
	@O=$(O) tests/bench/run
	@O=$(O) tests/bench/run_node
	@O=$(O) tests/bench/run_tunnel
soak: all ## many clients doing everything for MINUTES=10, then look for what was left; FLOOD=1: beside a flood
	@scripts/deps test
	@O=$(O) tests/soak/run
lint: ## static analysis and format
	@scripts/deps lint
	@scripts/lint
format: ## rewrite the sources by .clang-format
	@git ls-files '*.c' '*.h' | xargs clang-format -i
clean: ## remove the build folder
	rm -rf $(O) $(O)-asan $(O)-tsan $(O)-fuzz
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort -u | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

INSTALL   ?= install
bindir     = $(DESTDIR)$(prefix)/bin
libexecdir = $(DESTDIR)$(prefix)/libexec/sandboxd
sharedir   = $(DESTDIR)$(prefix)/share
unitdir    = $(DESTDIR)$(prefix)/lib/systemd/system
install: all ## into $(DESTDIR)$(prefix)
	$(INSTALL) -d $(bindir) $(libexecdir) $(DESTDIR)$(prefix)/lib/pkgconfig $(DESTDIR)$(prefix)/include \
		$(DESTDIR)$(prefix)/sbin $(sharedir)/sandboxd/images $(unitdir) \
		$(DESTDIR)$(prefix)/lib/sysusers.d
	$(INSTALL) -m 755 $(addprefix $(O)/bin/,sandboxd sbxfs sbx) $(bindir)
	$(INSTALL) -m 755 $(addprefix $(O)/bin/,sbx-priv sbx-shim sbx-init sbx-worker sbx-egress sbx-pull) scripts/image-debian $(libexecdir)
	$(INSTALL) -m 644 $(O)/images/base.tar $(sharedir)/sandboxd/images
	$(INSTALL) -m 755 $(O)/lib/libsbx.so.1 $(DESTDIR)$(prefix)/lib
	ln -sf libsbx.so.1 $(DESTDIR)$(prefix)/lib/libsbx.so
	$(INSTALL) -m 644 $(O)/lib/libsbx.a $(DESTDIR)$(prefix)/lib
	$(INSTALL) -m 644 client/include/sbx.h $(DESTDIR)$(prefix)/include
	sed 's|@prefix@|$(prefix)|g' client/libsbx.pc.in > $(DESTDIR)$(prefix)/lib/pkgconfig/libsbx.pc
	ln -sf ../bin/sbxfs $(DESTDIR)$(prefix)/sbin/mount.fuse.sbxfs
	for u in scripts/systemd/*.service; do sed 's|@prefix@|$(prefix)|g' $$u > $(unitdir)/$${u##*/}; done
	$(INSTALL) -m 644 scripts/systemd/sandboxd.sysusers $(DESTDIR)$(prefix)/lib/sysusers.d/sandboxd.conf
	for m in doc/man/*.[1-8]; do s=$${m##*.}; $(INSTALL) -D -m 644 $$m $(sharedir)/man/man$$s/$${m##*/}; done
	$(INSTALL) -D -m 644 client/cli/completion/sbx.bash $(sharedir)/bash-completion/completions/sbx
	$(INSTALL) -D -m 644 client/cli/completion/_sbx $(sharedir)/zsh/site-functions/_sbx
uninstall: ## remove what install put there
	rm -f $(addprefix $(bindir)/,sandboxd sbxfs sbx) $(DESTDIR)$(prefix)/lib/libsbx.* \
		$(DESTDIR)$(prefix)/include/sbx.h $(DESTDIR)$(prefix)/lib/pkgconfig/libsbx.pc \
		$(DESTDIR)$(prefix)/sbin/mount.fuse.sbxfs $(unitdir)/sandboxd.service $(unitdir)/sbxfs@.service \
		$(DESTDIR)$(prefix)/lib/sysusers.d/sandboxd.conf
	rm -f $(sharedir)/bash-completion/completions/sbx $(sharedir)/zsh/site-functions/_sbx
	rm -rf $(libexecdir) $(sharedir)/sandboxd
	for m in doc/man/*.[1-8]; do rm -f $(sharedir)/man/man$${m##*.}/$${m##*/}; done
