# SPDX-License-Identifier: MIT
"""Runs the rows of mount_rows.py over all ways in turn, so that a busy moment hits all of them alike, and
prints medians of their times, and of the ratios inside a round beside what is to be reached."""
import os
import re
import statistics
import sys
import time

import mount_rows

COLUMNS = ["native", "pass", "unix", "http", "tls", "sshfs", "sftp"]


def setting(name, default):
    return int(os.environ.get(name) or default)


def selected(rows):
    want = os.environ.get("ROWS")
    return [r for r in rows if not want or re.search(want, r.name)]


def ways_of(row, bench):
    only = os.environ.get("WAYS", "").split()
    mine = row.ways or COLUMNS + (["keep"] if row.base == "keep" else [])
    return [w for w in mine if w in bench.ways and (not only or w in only)]


def column(row, way):
    """Which way stands in a column of this row: the delayed ones, and the caching pass-through, have none."""
    names = {"pass": row.base or "pass", "unix": row.ours, "sshfs": row.ssh}
    return names.get(way, way)


def measure(bench, rows, rounds, heavy):
    times = {}
    for r in range(max(rounds, heavy)):
        for n, row in enumerate(rows):
            if r >= (heavy if row.heavy else rounds):
                continue
            ways = ways_of(row, bench)
            for w in ways[r % len(ways):] + ways[:r % len(ways)] if ways else []:
                if r and row.once and w in row.once:
                    continue
                row.before(bench, w)
                start = time.perf_counter()
                told = row.run(bench, w)
                took = time.perf_counter() - start
                times.setdefault((n, w), {})[r] = took if told is None else told
                row.after(bench, w)
        print(f"round {r + 1}", file=sys.stderr, flush=True)
    return times


def ratio(a, b):
    both = [a[r] / b[r] for r in a if r in b]
    return statistics.median(both) if both else None


def verdict(times, n, ours, other, goal):
    if goal is None:
        return f"{'':16}"
    a, b = times.get((n, ours)), times.get((n, other))
    x = ratio(a, b) if a and b else None
    if x is None:
        return f"{'?':>6} ({goal:.2f})   "
    return f"{x:6.2f} ({goal:.2f}) {'ok' if x <= goal else 'NO'}"


def shown(seconds):
    ms = seconds * 1000
    return f"{ms:.2f}" if ms < 100 else f"{ms:.0f}"


def table(times, rows):
    print(f"{'milliseconds':34}" + "".join(f"{w:>9}" for w in COLUMNS) +
          "  unix/sshfs (goal)  unix/pass (goal)")
    reached = missed = 0
    for n, row in enumerate(rows):
        line = f"{row.name:34}"
        for w in COLUMNS:
            t = times.get((n, column(row, w)))
            line += f"{shown(statistics.median(t.values())) if t else '':>9}"
        v = [verdict(times, n, row.ours, row.ssh, row.goal_ssh),
             verdict(times, n, row.ours, row.base, row.goal_base)]
        reached += sum("ok" in x for x in v)
        missed += sum("NO" in x for x in v)
        print((line + "  " + "   ".join(v)).rstrip())
    print(f"\n{reached} goals reached, {missed} missed. Ratios are medians of ratios of one round. In rows of"
          " what has not changed the\npass-through keeps its caches; in the last ones `unix` and `sshfs` are"
          " behind the relay, and `pass` of the control\nfile is one API call.")


def main():
    bench = mount_rows.Bench(dict(w.split("=", 1) for w in sys.argv[1:]))
    bench.files, bench.tree = setting("FILES", 10000), setting("TREE", 5000)
    bench.mib, bench.far_mib = setting("MIB", 1024), setting("FAR_MIB", 64)
    rows = selected(mount_rows.rows(bench))
    mount_rows.prepare(bench, rows)
    rounds = setting("ROUNDS", 7)
    table(measure(bench, rows, rounds, setting("HEAVY", min(rounds, 3))), rows)


main()
