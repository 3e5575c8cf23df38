#!/bin/bash
# What an operator does with the packages, under a real systemd that systemd_boot.sh has booted: systemd_walk.sh FOLDER
# with the packages in it, and in FOLDER/old the single package of before. Installs, spills, reloads, restarts, kills, hangs, upgrades and removes it.
set -euo pipefail
if [ "${2:-}" != booted ]; then
    [ "$(id -u)" = 0 ] || { echo "skipped: not root"; exit 77; }
    for tool in dpkg deb-systemd-invoke setpriv; do
        command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
    done
    if dpkg -s spillway >/dev/null 2>&1 || dpkg -s spillwayd >/dev/null 2>&1; then
        echo "skipped: a package is installed on this machine"
        exit 77
    fi
    exec "$(dirname "$0")/systemd_boot.sh" "$(realpath "$0")" "$(realpath "$1")" booted
fi

step() {
    echo "-- $SECONDS s: $*"
    what=$*
}
fail() {
    echo "systemd_walk.sh: $what: $*" >&2
    { cat /tmp/bench; journalctl -u spillwayd --no-pager -o cat -n 20; } >&2 || true
    exit 1
}
trap 'fail "line $LINENO"' ERR
load= # its process
says() { # TEXT COMMAND...: whatever it exits with
    local text=$1
    shift
    grep -q "$text" < <("$@" 2>&1) || fail "'$*' does not say '$text'"
}
service() { systemctl show -P "$1" spillwayd.service; }
await() { # until the command says yes, for a minute
    for _ in $(seq 600); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    fail "waited in vain for: $*"
}
stranger=(setpriv --reuid 65534 --regid 65534 --clear-groups --)
# Load, of which always something is stored; until it is told to end, and every byte has been compared.
begin_load() {
    "${client[@]}" spillway-bench --column l_comment --size 16K..256K --sessions 2 --parked 20 --think-ms 2 \
        --duration 3600 >/tmp/bench 2>&1 &
    load=$!
    await is_loaded
}
is_loaded() { grep -q ' out ' < <(spillwayctl regions --tier host); }
end_load() {
    kill -INT "$load"
    timeout 60 tail --pid="$load" -f /dev/null || fail "the load does not end"
    wait "$load" || fail "the load failed: $(cat /tmp/bench)"
    grep -q '^verified  every byte' /tmp/bench || fail "the load: $(cat /tmp/bench)"
}
# Whether it is up, and its client is back.
is_back() { systemctl -q is-active spillwayd && grep -q spillway-bench < <(spillwayctl sessions); }
is_restarted() { [ "$(service NRestarts)" -gt "$restarts" ] && is_back; }
config=/etc/spillway/spillwayd.json
package=$(realpath "$1")
tree=$(realpath "$(dirname "$0")/../..")
# Files of a Spillway, but those of the source tree and of its build.
spillway_files() {
    find /etc /usr /var /run -xdev \( -path /usr/src -o -path /usr/local -o -path "$tree" -o -path "$package" \) -prune \
        -o -name '*spillway*' -print 2>/dev/null || true
}

systemctl -q is-active spillbox.target || { echo "systemd_walk.sh: only under systemd_boot.sh" >&2; exit 1; }
step "forget what another Spillway has left on this machine: only in this overlay of its files"
spillway_files | xargs -r -d '\n' rm -rf

step "install the single package of before: the service is there, and starts"
dpkg --no-triggers -i "$1"/old/spillway_*.deb >/dev/null
[ "$(service ActiveState)" = active ] || fail "it is not started"
[ "$(service User)" = spillway ]
client=(setpriv --reuid 65534 --regid 65534 --groups "$(getent group spillway | cut -d : -f 3)" --)
[ "$(stat -c %U:%G:%a /run/spillway/data.sock)" = spillway:spillway:660 ]
[ "$(stat -c %U:%a /var/lib/spillway/nvme)" = spillway:700 ]
spillwayd --config $config --check-config
grep -q '^state  *serving' < <(spillwayctl status)

step "configure: less memory, a small disk, a watchdog that does not wait a minute"
mkdir -p /etc/systemd/system/spillwayd.service.d
printf '[Service]\nWatchdogSec=2s\n' >/etc/systemd/system/spillwayd.service.d/walk.conf
systemctl daemon-reload
sed -i -e 's|"host_tier_bytes": "8 GiB"|"host_tier_bytes": "64 MiB"|' -e 's|_slab_bytes": "auto"|_slab_bytes": "8 MiB"|' \
    -e 's|initial_bytes": "auto"|initial_bytes": "0"|' -e 's|"metrics_port": 0|"metrics_port": 9464|' \
    -e 's|"nvme_tier_directory": "none"|"nvme_tier_directory": "/var/lib/spillway/nvme"|' \
    -e 's|"nvme_tier_bytes": "64 GiB"|"nvme_tier_bytes": "16 MiB"|' $config
systemctl restart spillwayd
grep -q '^nvme  *16.0 MiB' < <(spillwayctl tiers) || fail "no NVMe tier: $(spillwayctl tiers)"

step "operators other than root: a group that the service gives the control socket to"
groupadd spillway-walk
usermod -aG spillway-walk spillway
sed -i 's|"control_group": "none"|"control_group": "spillway-walk"|' $config
systemctl restart spillwayd
says serving setpriv --reuid 65534 --regid "$(getent group spillway-walk | cut -d : -f 3)" --clear-groups -- spillwayctl status

step "upgrade to the packages that have replaced it: regions, connections and the configuration stay"
begin_load
pid=$(service MainPID)
cp $config /tmp/config
dpkg --auto-deconfigure --no-triggers -i "$1"/*.deb >/tmp/dpkg 2>&1 || fail "$(cat /tmp/dpkg)"
[ "$(service MainPID)" != "$pid" ] || fail "it was not restarted"
await is_back
cmp /tmp/config $config
dpkg --no-triggers -P spillway >/tmp/dpkg 2>&1 || fail "$(cat /tmp/dpkg)" # the empty one
cmp /tmp/config $config
[ "$(dpkg -S $config)" = "spillwayd: $config" ] || fail "the configuration belongs to $(dpkg -S $config)"
is_back
end_load
[ "$(systemctl is-enabled spillwayd.service spillwayd.socket | sort -u)" = enabled ]

step "reload: a good file is taken, a bad one fails the reload and changes nothing"
sed -i 's/"log_level": "info"/"log_level": "debug"/' $config
systemctl reload spillwayd
is_verbose() { grep -q debug < <(spillwayctl log level); }
await is_verbose
sed -i 's/"log_level": "debug"/"log_level": "loud"/' $config
! systemctl reload spillwayd 2>/dev/null || fail "a bad file was taken"
is_verbose
[ "$(service ActiveState)" = active ]

step "a restart with a bad file: clients wait, and find what they have stored when the file is mended"
begin_load
! systemctl restart spillwayd 2>/dev/null || fail "it has started"
sed -i 's/"log_level": "loud"/"log_level": "info"/' $config
await is_back

step "restart, kill -9 and a hang under load"
systemctl restart spillwayd
await is_back
for signal in KILL STOP; do
    restarts=$(service NRestarts)
    kill -$signal "$(service MainPID)"
    await is_restarted
done
end_load

step "tiers and disk full: refused by name, the rest goes on"
"${client[@]}" spillway-bench --column random --size 1M --sessions 2 --parked 100 --count 60 >/tmp/bench 2>&1 ||
    fail "$(cat /tmp/bench)"
grep -q '^errors    ENOSPACE' /tmp/bench || fail "it was not full: $(cat /tmp/bench)"
grep -q '^verified  every byte' /tmp/bench

step "who is not of the group is refused, and is told so"
says EACCES "${stranger[@]}" spillwayctl status
status=0
"${stranger[@]}" spillwayctl status 2>/dev/null || status=$?
[ $status = 1 ] || fail "spillwayctl exits with $status, as if no service answered"
says "EACCES.*in the socket's group" "${stranger[@]}" spillway-bench --duration 1
says EACCES "${client[@]}" spillwayctl status

step "fields of the journal"
journalctl --sync
grep -q '"DEVICES"' < <(journalctl EVENT=service.ready -o json --no-pager -n 1)
[ "$(journalctl NAME=ENOSPACE --no-pager -o cat | grep -c request.failed)" -gt 0 ]

step "metrics over HTTP"
if command -v curl >/dev/null; then
    curl -sf http://127.0.0.1:9464/metrics >/tmp/metrics
    grep -q '^spillway_errors_total{name="ENOSPACE"} [1-9]' /tmp/metrics
fi
if command -v promtool >/dev/null; then
    spillwayctl metrics | promtool check metrics
    promtool check rules /usr/share/spillway/alerts.yml >/dev/null
fi

step "a stopped service is started by the first who connects"
systemctl stop spillwayd.service 2>/dev/null
[ "$(service ActiveState)" = inactive ]
"${client[@]}" spillway-bench --size 64K --parked 1 --count 3 >/dev/null
[ "$(service ActiveState)" = active ]

step "upgrade with regions held"
begin_load
pid=$(service MainPID)
dpkg --no-triggers -i "$1"/spillwayd_*.deb "$1"/libspillway*.deb >/dev/null
[ "$(service MainPID)" != "$pid" ] || fail "it was not restarted"
await is_back
end_load

step "remove: nothing runs, nothing of clients is left"
touch /var/lib/spillway/nvme/names /var/lib/spillway/nvme/key-wrapped # as of durable regions on an encrypted tier
dpkg --no-triggers -r spillwayd libspillway-dev libspillway0.2 >/dev/null 2>&1
! pgrep -x spillwayd >/dev/null || fail "it still runs"
left=$(find /run/spillway /var/lib/spillway 2>/dev/null || true)
[ -z "$left" ] || fail "left: $left"
[ -f $config ] || fail "the configuration is gone"

step "purge: only the user is left"
dpkg --no-triggers -P spillwayd libspillway-dev libspillway0.2 >/dev/null 2>&1
rm -r /etc/systemd/system/spillwayd.service.d
left=$(spillway_files)
[ -z "$left" ] || fail "left: $left"
getent passwd spillway >/dev/null
