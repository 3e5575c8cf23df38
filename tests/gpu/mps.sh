#!/usr/bin/env bash
# Engines under NVIDIA's MPS: kinds of memory, streams and contexts, once with the service in MPS, too, once with the
# service outside of it; each with the service's and with the client's codec. Neighbours that are killed while their
# kernels run are left out: MPS itself ends all other clients then.
#
#   tests/gpu/mps.sh BUILD OUT       with a GPU and nvidia-cuda-mps-control; exit 77 without them
# shellcheck disable=SC2317 # what the traps call
set -uo pipefail
build=$(realpath "${1:?usage: mps.sh BUILD OUT}")
out=${2:?usage: mps.sh BUILD OUT}
command -v nvidia-cuda-mps-control >/dev/null || { echo "mps.sh: skipped, no nvidia-cuda-mps-control"; exit 77; }
[ -e /dev/nvidiactl ] || { echo "mps.sh: skipped, no NVIDIA GPU"; exit 77; }
mkdir -p "$out"
# shellcheck source=tests/gpu/steps.sh
. "$(dirname "$0")/steps.sh"

folder=$(mktemp -d) || exit 1
export CUDA_MPS_PIPE_DIRECTORY=$folder/pipe CUDA_MPS_LOG_DIRECTORY=$folder/log
mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
nvidia-cuda-mps-control -d || exit 1
end_mps() {
    echo quit | timeout 20 nvidia-cuda-mps-control >/dev/null 2>&1
    clean_up # of steps.sh: $folder goes, too
}
trap end_mps EXIT

# A service that looks for MPS where there is none works without it.
cat >"$folder/outside" <<END
#!/bin/sh
CUDA_MPS_PIPE_DIRECTORY=$folder/none exec '$build/daemon/spillwayd' "\$@"
END
chmod +x "$folder/outside"

for where in inside outside; do
    daemon=$build/daemon/spillwayd
    [ $where = inside ] || daemon=$folder/outside
    for SPILLWAY_CODEC in service client; do
        export SPILLWAY_CODEC
        for test in roundtrip contexts; do
            step "mps_${where}_${test}_$SPILLWAY_CODEC" "$build/tests/gpu_$test" "$daemon"
        done
        CK_RUN_CASE=streams step "mps_${where}_orders_$SPILLWAY_CODEC" "$build/tests/gpu_orders" "$daemon"
    done
done
grep -h -i error "$CUDA_MPS_LOG_DIRECTORY"/* | head -5
exit $failed
