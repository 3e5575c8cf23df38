#!/usr/bin/env python3
"""Makes the table of compare.sh from what the benchmarks wrote: compare.py OUT, with OUT/old.N/*.json, OUT/new.N/*.json.

Exit status 1: a row is slower by more than its limit, or missing on one side.
"""
import glob
import json
import os
import statistics
import sys

LARGE_BYTES = 256 << 20
LIMIT, SMALL_LIMIT = 0.03, 0.10


def rows_of(name, data):
    """Yields (row, bytes, seconds) of what a benchmark wrote: spillway-bench an object, the others lists."""
    if isinstance(data, dict):
        setting = data["setting"]
        size = setting["max_bytes"] * max(setting["batch"], 1)
        for way in ("spill", "restore"):
            yield f"{name.removeprefix('load_')} {way}", size, data[way]["latency_us"]["p50"] / 1e6
        return
    for row in data:
        if "what" in row:  # bench_codec
            yield f"{row['column']} {row['what']}", row["bytes"], row["bytes"] / row["gbps"] / 1e9
        else:  # bench_roundtrip
            for way in ("away", "back"):
                yield f"{name} {row['kind']} {way}", row["bytes"], row["bytes"] / row[f"{way}_gbps"] / 1e9


def read_side(out, side):
    """Returns {row: (bytes, [seconds, one for each round])}."""
    rows = {}
    for path in sorted(glob.glob(os.path.join(out, side + ".*", "*.json")), key=os.path.getmtime):
        with open(path) as file:
            data = json.load(file)
        for row, size, seconds in rows_of(os.path.splitext(os.path.basename(path))[0], data):
            rows.setdefault(row, (size, []))[1].append(seconds)
    return rows


def figure(size, seconds):
    return f"{size / seconds / 1e9:.1f} GB/s" if size >= LARGE_BYTES else f"{seconds * 1e6:.0f} us"


def spread(seconds):
    return (max(seconds) - min(seconds)) / statistics.median(seconds)


def compare(row, old, new):
    """Prints a line of the table; returns whether it is marked."""
    if not old or not new:
        print(f"{row:34} missing on the side of {'NEW' if old else 'OLD'}")
        return True
    size, limit = old[0], LIMIT if old[0] >= LARGE_BYTES else SMALL_LIMIT
    before, after = statistics.median(old[1]), statistics.median(new[1])
    is_slower = before / after < 1 - limit
    print(f"{row:34} {figure(size, before):>12} {figure(size, after):>12} {before / after:8.3f} "
          f"{100 * max(spread(old[1]), spread(new[1])):7.1f} % {'  SLOWER' if is_slower else ''}".rstrip())
    return is_slower


def main():
    old, new = (read_side(sys.argv[1], side) for side in ("old", "new"))
    if not old and not new:
        print("compare: nothing was measured", file=sys.stderr)
        return 1
    print(f"{'':34} {'OLD':>12} {'NEW':>12} {'NEW/OLD':>8} {'spread':>9}")
    marked = [row for row in dict.fromkeys([*old, *new]) if compare(row, old.get(row), new.get(row))]
    print(f"{len(marked)} of {len({*old, *new})} rows are marked")
    return 1 if marked else 0


sys.exit(main())
