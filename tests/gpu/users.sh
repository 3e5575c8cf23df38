#!/usr/bin/env bash
# Engines of other users than the service's: PyTorch (each of its allocators), CuPy and JAX spill and restore on the
# default stream, the per-thread default and a non-blocking one with work queued, as two users at once; then each in pid,
# ipc, mount and net namespaces of its own, with its own /dev/shm. Last, without /proc in the pid namespace: a named error.
#
#   tests/gpu/users.sh BUILD [PYTHON]        as root, with a GPU; exit 77 without one
# shellcheck disable=SC2317 # what the traps call
set -uo pipefail
build=$(realpath "${1:?usage: users.sh BUILD [PYTHON]}")
python=${2:-python3}
here=$(realpath "$(dirname "$0")")
[ -e /dev/nvidiactl ] || { echo "users.sh: skipped, no NVIDIA GPU"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "users.sh: skipped, must be root to be several users"; exit 77; }
service_uid=20001 engine_uids=(20002 20003) failed=0

folder=$(mktemp -d) || exit 1
chmod 755 "$folder"
install -d -o $service_uid -g $service_uid "$folder/service"
install -m 755 "$build/daemon/spillwayd" "$build"/ipc/libspillway.so.0 "$here/engine.py" "$folder"
clean_up() {
    kill "$service" 2>/dev/null
    wait "$service"
    rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

as() { # as UID COMMAND...
    setpriv --reuid="$1" --regid="$1" --clear-groups env HOME=/tmp "${@:2}"
}

socket=$folder/service/data.sock
as $service_uid "$folder/spillwayd" -s "data_socket=$socket" -s data_socket_mode=0666 -s host_tier_bytes=4GiB \
    >"$folder/log" 2>&1 &
service=$!
for ((i = 0; i < 300; i++)); do
    grep -q 'event=ready ' "$folder/log" && break
    kill -0 "$service" 2>/dev/null || { cat "$folder/log"; exit 1; }
    sleep 0.1
done

# engines NAMESPACES FRAMEWORK [ALLOC_CONF]: two users at once.
engines() {
    local pids=() uid rc
    for uid in "${engine_uids[@]}"; do
        local command=(setpriv --reuid="$uid" --regid="$uid" --clear-groups
            env HOME=/tmp PYTHONUNBUFFERED=1 ${3:+PYTORCH_CUDA_ALLOC_CONF=$3} "$python" "$folder/engine.py" "$folder/libspillway.so.0" "$socket" "$2")
        if [ "$1" = own ]; then
            unshare --pid --ipc --mount --net --fork --mount-proc \
                sh -c 'mount -t tmpfs -o mode=1777 tmpfs /dev/shm && exec "$@"' sh "${command[@]}" &
        else
            "${command[@]}" &
        fi
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid"
        rc=$?
        [ $rc = 0 ] || [ $rc = 77 ] || failed=1
    done
}

for namespaces in host own; do
    engines $namespaces torch
    engines $namespaces torch expandable_segments:True
    engines $namespaces torch backend:cudaMallocAsync
    engines $namespaces cupy
    engines $namespaces jax
done
echo "-- in a pid namespace without a /proc of its own, cudaMalloc memory has a named error:"
unshare --pid --fork setpriv --reuid="${engine_uids[0]}" --regid="${engine_uids[0]}" --clear-groups \
    env HOME=/tmp "$python" "$folder/engine.py" "$folder/libspillway.so.0" "$socket" cupy
grep -E 'level=(error|warning)' "$folder/log" | sort | uniq -c | sort -rn | head
exit $failed
