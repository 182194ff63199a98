#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A holder of the token who does not keep to his own: requests that race for one name, numbers of another sandbox,
# names that are paths, commands or nothing at all.

load door

setup() { door_setup; }
teardown() { door_teardown; }
api_py() {
	door "unix://$D/sock"
	python3 tests/attack/api.py "$1" "$D/sock"
}

@test "api: many race for one name: one has it, and what is written arrives whole or not at all" { api_py races; }

@test "api: processes and handles of one sandbox mean nothing in another" { api_py others; }

@test "api: what is no name is refused, whatever it names" { api_py names; }
