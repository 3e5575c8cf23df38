#!/usr/bin/env bash
# Checks the table that tests/gpu/compare.sh ends with, on made-up figures: compare.sh COMPARE.PY
set -euo pipefail
script=$(realpath "$1")
command -v python3 >/dev/null || exit 77
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out"

# load SIDE.ROUND NAME BYTES BATCH SPILL_US RESTORE_US: as spillway-bench writes it.
load() {
    mkdir -p "$1"
    printf '{"setting": {"max_bytes": %s, "batch": %s}, "spill": {"latency_us": {"p50": %s}},
             "restore": {"latency_us": {"p50": %s}}}' "$3" "$4" "$5" "$6" >"$1/load_$2.json"
}

# codec SIDE GBPS, in_place SIDE AWAY_GBPS: as the benchmarks of these names do.
codec() {
    printf '[{"column": "tpch", "what": "decode", "bytes": 2000000000, "gbps": %s}]' "$2" >"$1/codec.json"
}
in_place() {
    printf '[{"kind": "cudaMalloc", "bytes": 2000000000, "away_gbps": %s, "back_gbps": 100}]' "$2" >"$1/in_place.json"
}

# expect STATUS TEXT...: what it exits with, and lines that the table has, spaces apart.
expect() {
    local status=$1 rc=0
    shift
    python3 "$script" . >said 2>&1 || rc=$?
    tr -s ' ' <said >table
    [ "$rc" = "$status" ] || { echo "exit status $rc, not $status:"; cat said; exit 1; }
    for text in "$@"; do
        grep -qxF -- "$text" table || { echo "no line '$text':"; cat said; exit 1; }
    done
}

expect 1 "compare: nothing was measured"
for side in old new; do
    load "$side.1" small 65536 0 100 50
    load "$side.1" large 1000000000 0 10000 20000
    codec "$side.1" 800
    in_place "$side.1" 160
done
expect 0 "small spill 100 us 100 us 1.000 0.0 %" "large restore 50.0 GB/s 50.0 GB/s 1.000 0.0 %" \
    "tpch decode 800.0 GB/s 800.0 GB/s 1.000 0.0 %" "in_place cudaMalloc away 160.0 GB/s 160.0 GB/s 1.000 0.0 %" \
    "0 of 7 rows are marked"

# Within the limits, beyond them, and the limit of a batch counts all its bytes.
load new.1 small 65536 0 110 56
load new.1 large 1000000000 0 10300 20800
load old.1 batch 65536 4096 1000 1000
load new.1 batch 65536 4096 1050 1000
expect 1 "small spill 100 us 110 us 0.909 0.0 %" "small restore 50 us 56 us 0.893 0.0 % SLOWER" \
    "large spill 100.0 GB/s 97.1 GB/s 0.971 0.0 %" "large restore 50.0 GB/s 48.1 GB/s 0.962 0.0 % SLOWER" \
    "batch spill 268.4 GB/s 255.7 GB/s 0.952 0.0 % SLOWER" "3 of 9 rows are marked"

# Medians of the rounds, and how far these lie apart.
rm -f ./*/load_small.json ./*/load_batch.json ./*/load_large.json
for round in 1 2 3; do
    load "old.$round" small 65536 0 100 100
    load "new.$round" small 65536 0 $((round * round * 50)) 100 # 50, 200, 450
done
expect 1 "small spill 100 us 200 us 0.500 200.0 % SLOWER" "small restore 100 us 100 us 1.000 0.0 %"

# A row that only one side has.
rm new.1/codec.json ./*/load_small.json
expect 1 "tpch decode missing on the side of NEW" "1 of 3 rows are marked"
