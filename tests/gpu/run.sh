#!/usr/bin/env bash
# Runs everything that needs a GPU from a finished build: tests, sanitizers, benchmarks. Builds nothing, needs no network.
#
#   tests/gpu/run.sh BUILD OUT [PART...]    PART: test small sanitize mps demo codec roundtrip load coded busy nvme (default: all)
#
# PART       what is run
# test       gpu_packed         a query's kernels on packed regions
#            gpu_codec          frames of every codec: host and GPU read each other's, damaged ones are refused
#            gpu_batch          the same of many frames in one launch; hashes of ranges, copies of runs
#            gpu_numbers        frames of codecs of numbers and tables
#            gpu_learn          a GPU learns the same dictionaries as the host, and how long it takes
#            gpu_device         the CUDA device by its contract: groups, raw frames, damage
#            gpu_faults         the same while calls of the CUDA runtime fail: named, and no device memory stays
#            gpu_roundtrip      every kind of memory through a real spillwayd, and back
#            gpu_orders         streams of every kind, captures, neighbours whose work never ends
#            gpu_contexts       an engine with several contexts, on two GPUs if there are as many
#            gpu_pool           the buffer manager: streams, a full GPU, stream-ordered memory
#            gpu_restart        the same memory over kills and orderly stops of spillwayd, which a manager starts again
#            gpu_client_death   clients with GPU memory killed in all they do; $DEATHS of them (default: 96)
#            ..._coded          roundtrip, orders, contexts, restart and client_death with the codec in the client
#            gpu_worker_death   the same of processes without CUDA, in memory of one that lives; $WORKER_DEATHS (default: 10000)
# small      gpu_codec, gpu_batch, gpu_learn, gpu_device, gpu_roundtrip as on GPUs whose blocks have 64 and 99 KiB of
#            shared memory
# sanitize   gpu_codec, gpu_batch, gpu_learn, gpu_numbers (each codec and type), gpu_packed, gpu_device, gpu_roundtrip
#            under memcheck and racecheck, on small inputs
# mps        mps.sh: engines under NVIDIA's MPS
# demo       what `make demo` shows
# codec      bench_codec: rates of 2 GB, of numbers, of lz, of batches, of the files in $COLUMNS_DIR; bench_fused, bench_packed_query
# roundtrip  bench_roundtrip: rates of spill and restore, 2 GB to 60 GB, and of pack and unpack
# load       bench_latency, and spillway-bench: all of lineitem, regions of 1 MiB to 1 GiB, both ways at once, 32 sessions for
#            $LOAD_SECONDS (default: 300)
# coded      spillway-bench with the service's codec and with the client's: 32 sessions, 8 processes, and kinds of memory
#            that cannot be shared, next to registered memory; for $LOAD_SECONDS and a tenth of it
# busy       spillway-bench beside bench_busy_gpu, which keeps the GPU full of kernels
# nvme       bench_nvme, and spillway-bench with next to no host memory: the disk of $NVME_DIR (default: /tmp)
#
# What needs no GPU is not here: fault_cuda, in which each call into CUDA fails in turn, for good, too, runs on a fake.
#
# BUILD is a build folder (cmake --preset gpu-portable), possibly copied whole from another machine: programs find
# codec/libspillway-kernels.so.0 relative to their own folder. Logs and tables go to OUT.
set -uo pipefail

build=${1:?usage: run.sh BUILD OUT [PART...]}
out=${2:?usage: run.sh BUILD OUT [PART...]}
shift 2
parts=${*:-test small sanitize mps demo codec roundtrip load coded busy nvme}
columns=${COLUMNS_DIR:+$(ls "$COLUMNS_DIR"/*)}
daemon=$build/daemon/spillwayd
mkdir -p "$out"
# shellcheck source=tests/gpu/steps.sh
. "$(dirname "$0")/steps.sh"

wants() { [[ " $parts " == *" $1 "* ]]; }

if wants test; then
    step gpu_codec "$build/tests/gpu_codec"
    step gpu_batch "$build/tests/gpu_batch"
    step gpu_numbers "$build/tests/gpu_numbers"
    LINES_SHOWN=20 step gpu_learn "$build/tests/gpu_learn"
    step gpu_packed "$build/tests/gpu_packed" "$daemon"
    step gpu_device "$build/tests/gpu_device"
    step gpu_faults "$build/tests/gpu_faults"
    step gpu_roundtrip "$build/tests/gpu_roundtrip" "$daemon"
    LINES_SHOWN=8 step gpu_orders "$build/tests/gpu_orders" "$daemon"
    step gpu_contexts "$build/tests/gpu_contexts" "$daemon"
    step gpu_pool "$build/tests/gpu_pool" "$daemon"
    step gpu_restart "$build/tests/gpu_restart" "$daemon"
    step gpu_client_death "$build/tests/gpu_client_death" "${DEATHS:-96}" "$daemon"
    SPILLWAY_CODEC=client step gpu_roundtrip_coded "$build/tests/gpu_roundtrip" "$daemon"
    SPILLWAY_CODEC=client step gpu_packed_coded "$build/tests/gpu_packed" "$daemon"
    SPILLWAY_CODEC=client step gpu_orders_coded "$build/tests/gpu_orders" "$daemon"
    SPILLWAY_CODEC=client step gpu_contexts_coded "$build/tests/gpu_contexts" "$daemon"
    SPILLWAY_CODEC=client step gpu_restart_coded "$build/tests/gpu_restart" "$daemon"
    SPILLWAY_CODEC=client step gpu_client_death_coded "$build/tests/gpu_client_death" "${DEATHS:-96}" "$daemon"
    step gpu_worker_death "$build/tests/gpu_worker_death" "${WORKER_DEATHS:-10000}" "$daemon"
fi
if wants small; then
    for kib in 64 99; do
        export SPILLWAY_TEST_SHARED_KIB=$kib
        for name in codec batch learn device; do
            step "gpu_${name}_$kib" "$build/tests/gpu_$name"
        done
        step "gpu_roundtrip_$kib" "$build/tests/gpu_roundtrip" "$daemon"
    done
    unset SPILLWAY_TEST_SHARED_KIB
fi
if wants sanitize; then
    export SW_TEST_SMALL=1
    # The tests hand wrong handles to the driver on purpose: its refusals are no errors.
    for tool in "memcheck --report-api-errors no" racecheck; do
        # shellcheck disable=SC2206 # the options of the tool are words
        sanitizer=(compute-sanitizer --error-exitcode 9 --target-processes all --tool $tool)
        for part in content shapes damage pools training; do
            CK_RUN_CASE=$part step "codec_${part}_${tool%% *}" "${sanitizer[@]}" "$build/tests/gpu_codec"
        done
        step "batch_${tool%% *}" "${sanitizer[@]}" "$build/tests/gpu_batch"
        step "learn_${tool%% *}" "${sanitizer[@]}" "$build/tests/gpu_learn"
        CK_RUN_CASE=alignments step "numbers_${tool%% *}" "${sanitizer[@]}" "$build/tests/gpu_numbers"
        step "packed_${tool%% *}" "${sanitizer[@]}" "$build/tests/gpu_packed" "$daemon"
        step "device_${tool%% *}" "${sanitizer[@]}" "$build/tests/gpu_device"
        step "roundtrip_${tool%% *}" "${sanitizer[@]}" "$build/tests/gpu_roundtrip" "$daemon"
    done
    unset SW_TEST_SMALL
fi
if wants mps; then
    LINES_SHOWN=60 step mps "$(dirname "$0")/mps.sh" "$build" "$out/mps"
fi
if wants demo; then
    LINES_SHOWN=10 step demo tests/demo/demo.sh "$daemon" "$build/tests/demo/spillway-demo" --tpch 268435456 --usr-paths
fi
if wants codec; then
    LINES_SHOWN=100
    step codec_2gb "$build/tests/bench/bench_codec" -s 2000000000 -r 11 -j "$out/codec_2gb.json" tpch random
    while read -r codec numbers; do
        # shellcheck disable=SC2086 # one word per column
        step "codec_$codec" "$build/tests/bench/bench_codec" -s 2000000000 -r 7 -c "$codec" \
            -j "$out/codec_$codec.json" $numbers
    done <<<"for u32:uniform:16 u32:uniform:8
dfor u32:sorted:4
rfor u32:runs:12
alp f64:rare:16 f64:often:16 f32:rare:16
alprd f64:reals:16
dict u32:few:6
radix i64:odd:3 i32:odd:5 i32:equal:0
dradix u32:orders:0 i64:orders:0
sfor u32:steps:8
pfor i32:outlier:12 i32:rare:9 i64:multiples:12 u32:multiples:17
pdfor i32:sentinel:8 u64:sentinel:8
huffman bf16:weights:0 f32:weights:0 f8:weights:0 dec128:uniform:24"
    step codec_lz "$build/tests/bench/bench_codec" -s 2000000000 -r 7 -j "$out/codec_lz.json" lz:4:32:u32:orders:1 \
        lz:1:255:u32:orders:1 lz:1:255:tpch
    step fused "$build/tests/bench/bench_fused"
    begin_service
    step packed_query "$build/tests/bench/bench_packed_query" 10
    end_service
    step codec_batch "$build/tests/bench/bench_codec" -b 256 -s 65536 -g 8 -r 51 -j "$out/codec_batch.json" tpch
    # shellcheck disable=SC2086 # one word per column
    [[ -z $columns ]] || step codec_columns "$build/tests/bench/bench_codec" -s 500000000 -r 11 \
        -j "$out/codec_columns.json" $columns
fi
if wants roundtrip; then
    LINES_SHOWN=100
    bench=("$build/tests/bench/bench_roundtrip" -d "$daemon")
    step roundtrip_2gb "${bench[@]}" -s 2000000000 -r 7 -j "$out/roundtrip_2gb.json"
    step roundtrip_vmm "${bench[@]}" -s 2000000000 -r 5 -k VMM -j "$out/roundtrip_vmm.json"
    step in_place_cudamalloc "${bench[@]}" -s 2000000000 -r 15 -k cudaMalloc -m in-place \
        -j "$out/in_place_cudamalloc.json"
    step roundtrip_8gb "${bench[@]}" -s 8000000000 -r 5 -k VMM -m registered -b -j "$out/roundtrip_8gb.json"
    step roundtrip_random "${bench[@]}" -s 2000000000 -c random -k cudaMalloc -m registered \
        -j "$out/roundtrip_random.json"
    # 60 GB fail on a GPU of less than 80 GB.
    step roundtrip_60gb "${bench[@]}" -s 60000000000 -r 3 -k VMM -m registered -b -t 23000000000 \
        -j "$out/roundtrip_60gb.json"
    step in_place_60gb "${bench[@]}" -s 60000000000 -r 9 -k VMM -m in-place -b -j "$out/in_place_60gb.json"
fi
if wants load; then
    LINES_SHOWN=40
    begin_service
    load table --table lineitem --scale 10 --count 8
    step latency "$build/tests/bench/bench_latency" 65536 1048576
    step latency_batch "$build/tests/bench/bench_latency" -b 256 65536
    for size in 1M 16M 64M 256M 1G; do
        load "text_$size" --no-verify --size $size --count 65 --column l_comment
    done
    for size in 16M 64M 256M 1G 4G; do
        load "random_$size" --no-verify --size $size --count 17 --column random
    done
    load both_ways --no-verify --size 4G --count 12 --sessions 2 --stagger-ms 28
    load sessions --size 64K..64M --sessions 32 --duration "${LOAD_SECONDS:-300}" --column l_comment --column random
    end_service
fi
if wants coded; then
    LINES_SHOWN=40
    seconds=${LOAD_SECONDS:-300}
    mixed=(--size 64K..64M --column l_comment --column random)
    kinds=(--size 1G --column l_comment --no-verify --duration "$((seconds / 10))" --sessions 1)
    for SPILLWAY_CODEC in service client; do
        export SPILLWAY_CODEC
        begin_service
        load "sessions_$SPILLWAY_CODEC" "${mixed[@]}" --sessions 32 --duration "$seconds"
        step "processes_$SPILLWAY_CODEC" "$(dirname "$0")/processes.py" "$build/tests/bench/spillway-bench" 8 \
            "$out/load_sessions_$SPILLWAY_CODEC.json" "${mixed[@]}" --registered --sessions 4 --duration "$seconds"
        load "kind_registered_$SPILLWAY_CODEC" "${kinds[@]}"
        for kind in cudamalloc async managed segments; do
            step "kind_${kind}_$SPILLWAY_CODEC" "$build/tests/bench/spillway-bench" "${kinds[@]}" --kind $kind
        done
        end_service
    done
    unset SPILLWAY_CODEC
fi
if wants busy; then
    LINES_SHOWN=40
    begin_service
    begin_busy
    for size in 16M 64M 256M 512M 1G 4G; do
        count=33
        [[ $size != 4G ]] || count=13
        load "busy_random_$size" --no-verify --size $size --count $count --column random
        load "busy_text_$size" --no-verify --size $size --count $count --column l_comment
    done
    load busy_verified --size 1G --count 7 --column random --column l_comment
    load busy_table --table lineitem --scale 10 --count 9
    end_busy
    end_service
fi
if wants nvme; then
    disk=$(mktemp -d "${NVME_DIR:-/tmp}/spillway-nvme.XXXXXX") || exit 1
    step nvme "$build/tests/bench/bench_nvme" -r 3 -n 2600000000 "$disk"
    mkdir "$disk/tier"
    HOST_TIER=256MiB begin_service -s "nvme_tier_directory=$disk/tier" -s nvme_tier_bytes=12GiB
    load nvme --size 8000000000 --count 3 --column l_comment
    end_service
    step nvme_after "$build/tests/bench/bench_nvme" -r 3 -n 2600000000 "$disk"
    rm -rf "$disk"
fi
exit $failed
