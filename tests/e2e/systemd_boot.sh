#!/bin/bash
# Boots systemd in namespaces of its own, on an overlay of this machine's files, runs a command there and ends it:
# systemd_boot.sh COMMAND [ARGUMENT...]. The command sees the source tree, and arguments that are folders, also below
# /tmp. Nothing of it is left, and the machine is not changed: processes, mounts, network, control groups, kernel
# settings and devices are private, read-only or not there. Exit code 77: not possible here.
set -euo pipefail

skip() {
    echo "skipped: $*"
    exit 77
}

# Inside of the namespaces: makes a root of its own and becomes its first process.
become_init() {
    local root=$1
    shift
    mount -t tmpfs tmpfs "$root"
    mkdir "$root/upper" "$root/work" "$root/new"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/new"
    cd "$root/new"
    mount -t proc proc proc
    mount --bind proc/sys proc/sys
    mount -o remount,bind,ro proc/sys
    mount -t sysfs sysfs sys -o ro
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    local folder
    for folder in run tmp dev; do
        mount -t tmpfs tmpfs "$folder" -o mode=755
    done
    chmod 1777 tmp
    local shown # what lies in one of those folders is shown there, too, but read-only
    for shown in "$(realpath "$(dirname "$0")/../..")" "$@"; do
        if [ ! -d "$shown" ] || [ -e ".$shown" ]; then continue; fi
        mkdir -p ".$shown"
        mount --bind "$shown" ".$shown"
        mount -o remount,bind,ro ".$shown"
    done
    mount -t tmpfs tmpfs etc/systemd/system -o mode=755 # no unit of the machine's but those that come with systemd
    mount -t tmpfs tmpfs usr/local -o mode=755          # nor a program that somebody has installed there
    rm -f usr/sbin/policy-rc.d                          # images for containers have it: it forbids to start services
    mkdir dev/shm
    mount -t tmpfs tmpfs dev/shm -o mode=1777
    local device
    for device in null zero full random urandom tty; do
        : >"dev/$device"
        mount --bind "/dev/$device" "dev/$device"
    done
    ln -s /proc/self/fd dev/fd
    ip link set lo up 2>/dev/null || true
    printf '[Unit]\nRequires=sysinit.target\nAfter=sysinit.target\nAllowIsolate=yes\n' >etc/systemd/system/spillbox.target
    pivot_root . mnt
    umount -l /mnt
    mount --make-rshared / # else the mounts in which systemd hands over credentials do not reach the services
    exec setpriv --bounding-set=-sys_module,-sys_boot,-sys_time,-sys_rawio,-mknod env -i container=other \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=spillbox.target
}

if [ "${1:-}" = --become-init ]; then
    shift
    become_init "$@"
fi

[ "$(id -u)" = 0 ] || skip "not root"
[ -x /lib/systemd/systemd ] || skip "no systemd"
for tool in unshare nsenter setpriv; do
    command -v "$tool" >/dev/null || skip "no $tool"
done
hierarchy=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
[ -n "$hierarchy" ] || skip "no hierarchy of control groups, version 2"
group=$hierarchy$(sed -n 's/^0:://p' /proc/self/cgroup)/spillbox-$$
mkdir "$group" 2>/dev/null || skip "no control group can be made"
root=$(mktemp -d)
log=$(mktemp)
first=
# shellcheck disable=SC2317 # the trap's
clean() {
    [ -z "$first" ] || kill -9 "$first" 2>/dev/null || true
    wait 2>/dev/null || true
    find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
    rmdir "$root" 2>/dev/null || true
    rm -f "$log"
}
trap clean EXIT

# The shell joins the group, and becomes unshare, whose one child is the first process.
sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$group" \
    unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child --propagation private \
    "$(realpath "$0")" --become-init "$root" "$@" >"$log" 2>&1 </dev/null &
outer=$!
for _ in $(seq 100); do
    read -r first _ <"/proc/$outer/task/$outer/children" || true
    [ -n "$first" ] && [ "$(cat "/proc/$first/comm" 2>/dev/null)" = systemd ] && break
    kill -0 "$outer" 2>/dev/null || { cat "$log"; skip "systemd cannot be booted here"; }
    sleep 0.1
done
inside() {
    # The command's processes are in a group of their own there, as after a login.
    sh -c 'mkdir -p "$1" && echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$group/operator.slice" \
        nsenter -t "$first" -m -p -n -u -i -C -r -w -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LANG=C.UTF-8 SYSTEMD_PAGER= DEBIAN_FRONTEND=noninteractive "$@"
}
for _ in $(seq 300); do
    state=$(inside systemctl is-active spillbox.target 2>/dev/null) || true
    [ "$state" = active ] && break
    sleep 0.1
done
[ "$state" = active ] || { cat "$log"; skip "systemd does not come up here"; }
inside "$@"
