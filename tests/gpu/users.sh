#!/usr/bin/env bash
# Engines of other users than the service's: PyTorch (each of its allocators), CuPy and JAX spill and restore on the
# default stream, the per-thread default and a non-blocking one with work queued, as two users at once; then each in pid,
# ipc, mount and net namespaces of its own, with its own /dev/shm. $OWN=1: the service has such namespaces, too, but
# for the pid namespace, and a control group of version 2 that has 6 GiB of memory.
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
for uid in $service_uid "${engine_uids[@]}"; do install -d -o "$uid" "$folder/home$uid"; done
install -d -m 755 "$folder/daemon" "$folder/codec" # as in a build folder, so that spillwayd finds the kernels
install -m 755 "$build/daemon/spillwayd" "$folder/daemon"
install -m 755 "$build/codec/libspillway-kernels.so.0" "$folder/codec"
install -m 755 "$build"/ipc/libspillway.so.0.2 "$here/engine.py" "$folder"
group=''
clean_up() {
    kill "$service" 2>/dev/null
    wait "$service"
    [ -z "$group" ] || { cat "$group/memory.peak" && rmdir "$group"; }
    rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

as_user() { # as_user UID COMMAND...
    exec setpriv --reuid="$1" --regid="$1" --clear-groups env HOME="$folder/home$1" PYTHONUNBUFFERED=1 \
        SPILLWAY_SERVICE_UID=$service_uid "${@:2}" # the folder is below /tmp, which vouches for nobody
}

# apart OPTIONS COMMAND...: in namespaces of its own; the exported as_user() is there.
apart() {
    local options=$1
    shift
    export -f as_user
    export folder service_uid
    # shellcheck disable=SC2016,SC2086 # for the inner shell; options are words
    exec unshare --ipc --mount --net $options \
        bash -c 'mount -t tmpfs -o mode=1777 tmpfs /dev/shm && "$@"' bash "$@"
}

socket=$folder/service/data.sock
start=("$folder/daemon/spillwayd" -s "data_socket=$socket" -s data_socket_mode=0666
    -s host_tier_bytes=4GiB)
if [ "${OWN:-}" ]; then
    group=/sys/fs/cgroup/spillway-users
    mkdir $group && echo 6G >$group/memory.max || exit 1
    (echo $BASHPID >$group/cgroup.procs && apart '' as_user $service_uid "${start[@]}" >"$folder/log" 2>&1) &
else
    (as_user "$service_uid" "${start[@]}" >"$folder/log" 2>&1) &
fi
service=$!
for ((i = 0; i < 300; i++)); do
    grep -qs 'event=service.ready ' "$folder/log" && break
    kill -0 "$service" 2>/dev/null || { cat "$folder/log"; exit 1; }
    sleep 0.1
done

# engine NAMESPACES UID FRAMEWORK [ALLOC_CONF]
engine() {
    local command=("$python" "$folder/engine.py" "$folder/libspillway.so.0.2" "$socket" "$3")
    [ -z "${4:-}" ] || export PYTORCH_CUDA_ALLOC_CONF=$4
    [ "$1" = own ] || as_user "$2" "${command[@]}"
    apart "--pid --fork --mount-proc" as_user "$2" "${command[@]}"
}

# engines NAMESPACES FRAMEWORK [ALLOC_CONF]: of two users at once.
engines() {
    local pids=() uid pid rc
    for uid in "${engine_uids[@]}"; do
        engine "$1" "$uid" "${@:2}" &
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
grep -E 'level=(error|warning)' "$folder/log" | head
exit $failed
