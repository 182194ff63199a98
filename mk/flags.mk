# SPDX-License-Identifier: MIT
# Compiler flags. SAN=asan, SAN=tsan or SAN= (release); CC=gcc or clang; O= the build folder.
CC      ?= gcc
SAN     ?=
# With a sanitizer gcc's flow warnings see things that are not there, so they do not end the build.
WERROR  ?= $(if $(SAN),,-Werror)
WARN    := -Wall -Wextra $(WERROR) -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wold-style-definition -Wwrite-strings -Wpointer-arith -Wvla -Wformat=2 -Wundef \
	-Wimplicit-fallthrough -Wno-format-nonliteral
ifeq ($(findstring clang,$(CC)),)
WARN    += -Wlogical-op -Wduplicated-cond
endif
BASE    := -std=gnu17 -D_GNU_SOURCE -I. -g -fvisibility=hidden -fno-strict-aliasing -MMD -MP
ifeq ($(SAN),asan)
OPT     := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
LDSAN   := -fsanitize=address,undefined
else ifeq ($(SAN),tsan)
OPT     := -O1 -fno-omit-frame-pointer -fsanitize=thread
LDSAN   := -fsanitize=thread
else
OPT     := -O2 -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection
ifeq ($(shell uname -m),x86_64)
OPT     += -fcf-protection
endif
LDSAN   :=
endif
CFLAGS  ?=
ALL_CFLAGS = $(BASE) $(WARN) $(OPT) -fPIC $(CFLAGS)
LDFLAGS ?=
ALL_LDFLAGS = -pie -Wl,-z,relro,-z,now $(LDSAN) $(LDFLAGS)
# Guest programs: static, no loader, no NSS; never with a sanitizer.
MUSL    ?= musl-gcc
MUSL_LIB ?= /usr/lib/$(shell uname -m)-linux-musl
GUEST_CFLAGS = -std=gnu17 -D_GNU_SOURCE -I. -idirafter /usr/include -idirafter /usr/include/$(shell gcc -print-multiarch) \
	-Os -g -MMD -MP $(WARN) -fno-strict-aliasing -ffunction-sections -fdata-sections
GUEST_LDFLAGS = -static -Wl,--gc-sections -Wl,-z,relro,-z,now
