#!/usr/bin/env bash
# Compares two builds on one machine: the rows of run.sh that decide, by turns, at most 8 minutes.
#
#   tests/gpu/compare.sh OLD NEW [OUT]
#
# OLD, NEW   build folders, as run.sh takes them, possibly copied from another machine. What a build has no program for
#            is left out; without a GPU these are the codec, packing in place, and the busy GPU.
# OUT        logs and JSON of every round, in place of those that are there (default: a new folder, named at the end)
#
# Five rounds: OLD and NEW, then NEW and OLD, and so on; fewer when the time would not do. The table has medians: GB/s of
# regions from 256 MiB on, of packing and of the codec, microseconds of smaller regions. NEW/OLD is of speed: above 1 NEW
# is faster. Spread is how far the rounds of one side lie apart, of the worse one: with a spread above the limit run it
# again before you believe a row. Marked is what is slower by more than 3 % (from 256 MiB on) or 10 % (below), or missing
# on one side; exit status 1 if anything is, or has failed, 2 for wrong use.
#
# SW_TEST_SMALL=1: two rounds of short rows, which show no more than that the script works.
set -uo pipefail

[[ $# = 2 || $# = 3 ]] || { sed -n '/compare.sh OLD/s/^# *//p' "$0" >&2; exit 2; }
declare -A builds=([old]=$1 [new]=$2)
results=${3:-$(mktemp -d)}
build='' out=''
here=$(dirname "$0")
# shellcheck source=tests/gpu/steps.sh
. "$here/steps.sh"
export LIMIT_S=60 LINES_SHOWN=0 HOST_TIER=4GiB
rounds=5 most_s=480
small=(64K:301 1M:301 16M:101) batches=51 large=(256M:33 1G:17 2G:9) busy_rows=(random:256M:17 l_comment:1G:9)
if [[ ${SW_TEST_SMALL:-} ]]; then
    HOST_TIER=512MiB rounds=2 small=(64K:21 1M:11) batches=3 large=(256M:1) busy_rows=()
fi

has() { [[ -x $build/tests/bench/$1 ]] || { echo "-- $build has no $1: left out"; false; }; }

# measure NAME COLUMN:SIZE:COUNT
measure() {
    local column size count
    IFS=: read -r column size count <<<"$2"
    load "$1" --no-verify --column "$column" --size "$size" --count "$count"
}

rows_of_the_service() {
    local row
    # shellcheck disable=SC2119 # no options
    begin_service
    for row in "${small[@]}"; do measure "l_comment_${row%:*}" "l_comment:$row"; done
    load l_comment_256x64K --no-verify --column l_comment --batch 256 --size 64K --count "$batches"
    for row in "${large[@]}"; do
        measure "l_comment_${row%:*}" "l_comment:$row"
        measure "random_${row%:*}" "random:$row"
    done
    if [[ ${busy_rows[*]} ]] && has bench_busy_gpu; then
        begin_busy
        for row in "${busy_rows[@]}"; do measure "busy_${row%:*}" "$row"; done
        end_busy
    fi
    end_service
}

rows_of_programs() {
    has bench_roundtrip && step in_place "$build/tests/bench/bench_roundtrip" -d "$build/daemon/spillwayd" \
        -s 1000000000 -r 5 -k cudaMalloc -m in-place -j "$out/in_place.json"
    has bench_codec && step codec "$build/tests/bench/bench_codec" -s 1000000000 -r 5 -c dfor -j "$out/codec.json" \
        tpch u32:sorted:4
}

# one_side old|new ROUND
one_side() {
    build=${builds[$1]} out=$results/$1.$2
    echo "== round $2, $1: $build"
    mkdir -p "$out"
    rows_of_the_service
    rows_of_programs
}

rm -rf "$results"/{old,new}.*
longest_s=0
for ((round = 1; round <= rounds && SECONDS + longest_s <= most_s; round++)); do
    began=$SECONDS
    sides=(old new)
    ((round % 2)) || sides=(new old)
    for side in "${sides[@]}"; do one_side "$side" "$round"; done
    ((SECONDS - began <= longest_s)) || longest_s=$((SECONDS - began))
done
echo "== $((round - 1)) rounds in $SECONDS s; all of it is in $results"
python3 "$here/compare.py" "$results" || failed=1
exit "$failed"
