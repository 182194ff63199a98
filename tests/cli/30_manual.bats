#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The manual says what the programs do: generated parts are fresh, examples work.
load helper

setup_file() { cli_start; }
teardown_file() { cli_stop; }

@test "the generated parts are up to date" {
	scripts/gen-doc --check
}

@test "the pages are clean mdoc" {
	command -v mandoc >/dev/null || skip "mandoc is not installed"
	for page in doc/man/sbx.1 doc/man/libsbx.3 doc/man/sandbox-api.7; do
		run sh -c "mandoc -Tlint $page 2>&1 | grep -vE 'referenced manual not found|outdated mandoc.db'"
		[ -z "$output" ] || { echo "$output"; false; }
	done
}

@test "every exported function is declared, exported and in the manual" {
	names=$(sed -n 's/^SBX_API .*[ *]\(sbx_[a-z_]*\)(.*/\1/p' client/include/sbx.h | sort)
	[ "$(nm -D --defined-only "$O/lib/libsbx.so.1" | sed -n 's/.* T \(sbx_[a-z_]*\)@.*/\1/p' | sort)" = "$names" ]
	for n in $names; do grep -q "^\.Fn $n " doc/man/libsbx.3 || { echo "$n is not in libsbx(3)"; false; }; done
}

@test "the manual's example compiles and runs" {
	sed -n '/^#include <sbx.h>/,/^\.Ed/p' doc/man/libsbx.3 | sed '/^\.Ed/d; s/\\e/\\/g' >"$T/example.c"
	${CC:-cc} -Wall -Wextra -Werror -Iclient/include -o "$T/example" "$T/example.c" "$O/lib/libsbx.so.1"
	run env LD_LIBRARY_PATH="$O/lib" "$T/example"
	[ "$status" -eq 0 ] || { echo "$output"; false; }
	[[ ${lines[1]} == */sandbox/home ]]
	[ -z "$(sbx ls -q)" ]
}

@test "the header is C++ as well" {
	command -v g++ >/dev/null || skip "g++ is not installed"
	printf '#include <sbx.h>\nint main() { return SBX_FRAME_MAX == 0; }\n' >"$T/x.cc"
	g++ -Wall -Wextra -Werror -Iclient/include -c -o "$T/x.o" "$T/x.cc"
}

@test "the mount's manual names every verb and every option" {
	verbs=$(sed -n 's/^\t{ "\([a-zA-Z-]*\)", [0-9], [0-9], do_.*/\1/p' sbxfs/*.c)
	options=$(sed -n 's/^\t\(OPT\|FLAG\)("-*\([a-z_]\{2,\}\)[=% "].*/\2/p' sbxfs/options.c | tr -d _ | sort -u)
	[ "$(wc -w <<<"$verbs $options")" -ge 20 ]
	page=$(sed 's/\\-/-/g' doc/man/sbxfs.1)
	for w in $verbs; do grep -qw -- "$w" <<<"$page" || { echo "$w is not in sbxfs(1)"; false; }; done
	for w in $options; do tr -d _- <<<"$page" | grep -qw -- "$w" || { echo "$w is not in sbxfs(1)"; false; }; done
}
