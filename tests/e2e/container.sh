#!/bin/bash
# Containers without a runtime: spillwayd in namespaces, a root folder and a limited control group of its own, and two
# engines of two users in others. They share only the socket's folder. container.sh BUILD_DIR
# shellcheck disable=SC2317 # what the traps call
set -euo pipefail
build=$(realpath "$1")
skip() {
    echo "skipped: $*"
    exit 77
}
[ "$(id -u)" = 0 ] || skip "not root"
for tool in unshare nsenter setpriv chroot ldd; do
    command -v $tool >/dev/null || skip "no $tool"
done
unshare --mount --pid --ipc --uts --net --fork true 2>/dev/null || skip "no namespaces here"
readonly UID_OF_SERVICE=990 LIMIT_MIB=256 SHARE=40
folder=$(mktemp -d)
group=
service=
finish() {
    # Its child, which has another user, does not end with unshare.
    [ -z "$service" ] || pkill -9 -P "$service" || kill -9 "$service" 2>/dev/null || true
    wait 2>/dev/null || true
    for ((i = 0; i < 50; i++)); do # the killed processes leave it in the end
        if [ -z "$group" ] || rmdir "$group" 2>/dev/null; then break; fi
        sleep 0.1
    done
    rm -rf --one-file-system "$folder"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM
fail() {
    echo "container.sh: $*" >&2
    cat "$folder"/log* "$folder"/engine* >&2 2>/dev/null || true
    exit 1
}

# A group with a memory limit, of version 2 or 1, and where a container sees it.
for kind in /sys/fs/cgroup:memory.max: /sys/fs/cgroup/unified:memory.max: \
    /sys/fs/cgroup/memory:memory.limit_in_bytes:/memory; do
    IFS=: read -r mount limit below <<<"$kind"
    grep -q "^[^ ]* $mount cgroup" /proc/mounts || continue # a plain folder has no limits
    echo +memory 2>/dev/null >"$mount/cgroup.subtree_control" || true
    group=$mount/spillway-container-$$
    mkdir "$group" 2>/dev/null || { group= && continue; }
    echo $((LIMIT_MIB << 20)) 2>/dev/null >"$group/$limit" && break
    rmdir "$group"
    group=
done
[ -n "$group" ] || skip "no control group with a memory limit can be made"

# Root folders as of images: the program, and the libraries that it needs.
image() { # ROOT PROGRAM...
    local root=$1 file
    shift
    mkdir -p "$root"/{proc,tmp,dev/shm,run/spillway,sys/fs/cgroup/memory,usr/bin,etc}
    for file in "$@" $(ldd "$@" | grep -oE '/[^ :]+' | grep -v ':$' | sort -u); do
        case $file in
        "$build"/*) cp "$file" "$root/usr/bin" ;;
        *) cp -L --parents "$file" "$root" ;;
        esac
    done
    cp "$(command -v setpriv)" "$root/usr/bin"
    for file in $(ldd "$root/usr/bin/setpriv" | grep -oE '/[^ :]+\.so[^ ]*'); do cp -L --parents -n "$file" "$root"; done
    chmod 755 "$root"
}
image "$folder/service" "$build/daemon/spillwayd"
image "$folder/engine1" "$build/tests/bench/spillway-bench"
cp -r "$folder/engine1" "$folder/engine2"
chmod 755 "$folder"
socket=$folder/socket
install -d -o $UID_OF_SERVICE -g $UID_OF_SERVICE "$socket"

# contain ROOT UID COMMAND...: in namespaces of its own; only the socket's folder is shared.
contain() {
    export root=$1 uid=$2 gid=${gid:-$UID_OF_SERVICE} socket group below
    shift 2
    # shellcheck disable=SC2016 # for the inner shell
    exec unshare --mount --pid --ipc --uts --net --cgroup --fork --kill-child --propagation private bash -c '
        set -e
        mount -t proc proc "$root/proc"
        mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
        for device in null zero urandom; do : >"$root/dev/$device" && mount --bind /dev/$device "$root/dev/$device"; done
        mount --bind "$socket" "$root/run/spillway"
        mount --bind "$group" "$root/sys/fs/cgroup$below"
        { ip link set lo up || busybox ip link set lo up; } 2>/dev/null || true
        exec chroot "$root" /usr/bin/setpriv --reuid "$uid" --regid "$gid" --clear-groups --bounding-set=-all \
            --no-new-privs "$@"' bash "$@"
}

# start_service [COMMAND]...: COMMAND is run by the process that becomes the service.
start_service() {
    : >"$folder/log"
    ("$@"
        contain "$folder/service" $UID_OF_SERVICE /usr/bin/spillwayd --set device=host --set "scratch_bytes=64 MiB" \
            --set host_tier_bytes=$SHARE% --set "host_tier_initial_bytes=4 MiB" --set metrics_port=9464 \
            --set metrics_address=0.0.0.0) 2>"$folder/log" &
    service=$!
    for ((i = 0; i < 200; i++)); do
        grep -q 'event=service.ready ' "$folder/log" && return
        kill -0 "$service" 2>/dev/null || fail "it does not start"
        sleep 0.1
    done
}

# check_share LIMIT_MIB: the tier is the share of the group's limit, not of the machine.
check_share() {
    local tier most
    tier=$(SPILLWAY_SERVICE_UID=$UID_OF_SERVICE "$build/daemon/ctl/spillwayctl" -s "$socket/control.sock" --json status |
        grep -oE '"host_capacity_bytes":[0-9]+')
    most=$((($1 << 20) * SHARE / 100))
    if [ "${tier#*:}" -gt $most ] || [ "${tier#*:}" -le $((most - (4 << 20))) ]; then
        fail "$tier, not $SHARE % of $1 MiB"
    fi
}

join_group() { echo "$BASHPID" >"$group/cgroup.procs"; }
start_service join_group
grep -q 'event=metrics.exposed ' "$folder/log" || fail "nothing warns of the address"

check_share $LIMIT_MIB

# A probe comes from outside of the root folder, but to the same network.
inner=$(pgrep -x -P "$service" spillwayd || pgrep -x -P "$service" '.*')
# shellcheck disable=SC2016 # for the inner shell
nsenter -t "$inner" -n bash -c 'exec 3<>/dev/tcp/127.0.0.1/9464 || exit 77
    printf "GET /healthz HTTP/1.0\r\n\r\n" >&3 && grep -q "^ok" <&3' || [ $? = 77 ] || fail "/healthz does not answer"

pids=()
for engine in 1 2; do
    (contain "$folder/engine$engine" 100$engine /usr/bin/spillway-bench --column l_comment --size 64K..1M --parked 5 \
        --count 60) >"$folder/engine$engine.out" 2>&1 &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || fail "an engine failed"; done
for engine in 1 2; do
    grep -q '^verified  every byte' "$folder/engine$engine.out" || fail "engine $engine has other bytes"
    grep -q "event=session.open .*uid=100$engine " "$folder/log" || fail "uid 100$engine is taken for another user"
done

# A user who is not of the socket's group is refused.
(gid=1003 contain "$folder/engine1" 1003 /usr/bin/spillway-bench --count 1) >"$folder/engine3.out" 2>&1 &&
    fail "a user of no group is served"
grep -q EACCES "$folder/engine3.out" || fail "a user of no group is refused otherwise"

# A kernel that has its memory controller in version 1 cannot have it in version 2 as well. There a container of version
# 2 sees a file that limits nothing; what the service reads is the same.
if [ "$below" = /memory ]; then
    kill "$inner"
    wait "$service" || fail "it does not stop"
    service=
    mkdir "$folder/v2"
    echo $((LIMIT_MIB << 21)) >"$folder/v2/memory.max"
    see_version_2() { group=$folder/v2 below=; }
    start_service see_version_2
    check_share $((LIMIT_MIB * 2))
fi
