#!/usr/bin/env bash
# Shared by run.sh and compare.sh: steps that are logged, a service, a busy GPU. Sourced with $build, a build folder, and
# $out, where logs go; $failed is 1 when something has failed.
# shellcheck disable=SC2034,SC2154 # variables that the sourcing script reads, and sets
# shellcheck disable=SC2317 # what the traps call
failed=0
service='' busy='' folder='' disk=''

# However this ends, nothing goes on, and nothing is left but $out.
clean_up() {
    for pid in $busy $service; do
        kill "$pid" 2>/dev/null
        wait "$pid"
    done
    rm -rf "${folder:-}" "${disk:-}"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

note_failure() {
    echo "-- $1: FAILED"
    failed=1
}

# step NAME COMMAND...: runs for at most $LIMIT_S seconds, if set; logs, notes a failure; 77 is "skipped".
step() {
    local name=$1 rc
    shift
    echo "== $name"
    ${LIMIT_S:+timeout "$LIMIT_S"} "$@" >"$out/$name.log" 2>&1
    rc=$?
    tail -n "${LINES_SHOWN:-4}" "$out/$name.log"
    case $rc in
    0) ;;
    77) echo "-- $name: skipped" ;;
    *) note_failure "$name ($rc)" ;;
    esac
}

# begin_service [OPTION]...: one that has all of its host memory, on $SPILLWAY_SOCKET.
begin_service() {
    folder=$(mktemp -d) || exit 1
    export SPILLWAY_SOCKET=$folder/data.sock
    "$build/daemon/spillwayd" -s "data_socket=$SPILLWAY_SOCKET" -s "host_tier_bytes=${HOST_TIER:-12GiB}" \
        -s "host_tier_initial_bytes=${HOST_TIER:-12GiB}" "$@" >"$folder/log" 2>&1 &
    service=$!
    for ((i = 0; i < 600; i++)); do
        [[ -S $SPILLWAY_SOCKET ]] && grep -qE 'event=tier\.(ready tier=host|grow_failed) ' "$folder/log" && return
        kill -0 "$service" 2>/dev/null || break
        sleep 0.2
    done
    echo "-- spillwayd: not ready" # what comes next fails for it
}

end_service() {
    kill "$service"
    wait "$service" || note_failure "spillwayd ($?)"
    service=
    cat "$folder/log" >>"$out/spillwayd.log"
    rm -rf "$folder"
    unset SPILLWAY_SOCKET
}

# load NAME OPTION...: spillway-bench in registered memory.
load() {
    local name=$1
    shift
    step "load_$name" "$build/tests/bench/spillway-bench" --registered --json "$out/load_$name.json" "$@"
}

# begin_busy: the GPU is full of kernels of 1 ms until end_busy.
begin_busy() {
    "$build/tests/bench/bench_busy_gpu" 86400 1000 >"$out/busy_gpu.log" 2>&1 &
    busy=$!
}

end_busy() {
    kill "$busy" 2>/dev/null || note_failure "bench_busy_gpu: it has ended early"
    wait "$busy"
    busy=
}
