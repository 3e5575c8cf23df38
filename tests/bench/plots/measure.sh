#!/usr/bin/env bash
# Measures what the pictures show, with a finished build: latency and rate over size, and beside kernels that fill the
# GPU, next to plain copies of the same memory in the same run. `make plots` calls it, and then draw.py.
#
#   tests/bench/plots/measure.sh BUILD OUT
#
# Writes OUT/size_*.json (spillway-bench) and, with a GPU, OUT/beside_*.txt (bench_beside). About 5 minutes on a GPU.
# Without one it takes fewer sizes. $SIZES and $ROUNDS say otherwise.
set -uo pipefail

build=${1:?usage: measure.sh BUILD OUT}
out=${2:?usage: measure.sh BUILD OUT}
mkdir -p "$out"
# shellcheck source=tests/gpu/steps.sh
. "$(dirname "$0")/../../gpu/steps.sh"

gpu=
[[ ! -e /dev/nvidiactl ]] || gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
echo "${gpu:-host device}" >"$out/device"
date -u +%F >"$out/date"
if [[ -n $gpu ]]; then
    sizes=${SIZES:-64K 256K 1M 4M 16M 64M 256M 1G 4G}
else
    sizes=${SIZES:-64K 256K 1M 4M 16M}
    HOST_TIER=${HOST_TIER:-1GiB}
fi
# shellcheck disable=SC2119 # options are optional
begin_service
for size in $sizes; do
    count=${ROUNDS:-31}
    [[ $size != *G ]] || count=${ROUNDS:-9}
    for column in l_comment random; do
        step "size_${column}_$size" "$build/tests/bench/spillway-bench" --registered --no-verify --size "$size" \
            --count "$count" --column "$column" --json "$out/size_${column}_$size.json"
    done
done
if [[ -n $gpu && -x $build/tests/bench/bench_beside ]]; then
    for engine in none "kernel 100" "kernel 300" "kernel 1000" scan; do
        options=()
        # shellcheck disable=SC2206 # the kernels' length is a word of its own
        [[ $engine == none ]] || options=(--$engine)
        step "beside_${engine// /_}" "$build/tests/bench/bench_beside" "${options[@]}" --rounds "${ROUNDS:-5}" 64 256 4096
        mv "$out/beside_${engine// /_}.log" "$out/beside_${engine// /_}.txt"
    done
fi
end_service
# shellcheck disable=SC2154 # steps.sh sets it
exit "$failed"
