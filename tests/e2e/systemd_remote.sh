#!/bin/bash
# The unit with the drop-in for a remote tier, under a real systemd that systemd_boot.sh has booted: its credentials, its
# filters, and an object store that is not on the loopback. systemd_remote.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
[ -z "${1:-}" ] || source=$(realpath "$1") build=$(realpath "$2")
if [ "${3:-}" != booted ]; then
    for tool in python3 useradd ip; do
        command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
    done
    exec "$(dirname "$0")/systemd_boot.sh" "$(realpath "$0")" "$source" "$build" booted
fi

fail() {
    echo "systemd_remote.sh: $*" >&2
    journalctl -u spillwayd --no-pager -o cat -n 20 >&2 || true
    exit 1
}
trap 'fail "line $LINENO"' ERR
systemctl -q is-active spillbox.target || { echo "systemd_remote.sh: only under systemd_boot.sh" >&2; exit 1; }
ctl=$build/daemon/ctl/spillwayctl
drop_in=/etc/systemd/system/spillwayd.service.d/remote.conf

# The service, as `make install` lays it out.
getent passwd spillway >/dev/null || useradd --system --user-group --no-create-home spillway
program=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$build/systemd/spillwayd.service")
config=$(sed -n 's/^ExecStart=.* --config //p' "$build/systemd/spillwayd.service")
install -D "$build/daemon/spillwayd" "$program"
install -D -m 0644 "$source/config/spillwayd.json" "$config"
install -m 0644 "$build/systemd/spillwayd.service" "$source/systemd/spillwayd.socket" /etc/systemd/system
install -D -m 0644 "$source/systemd/spillwayd-remote.conf" $drop_in
mkdir -p /etc/spillway
(
    umask 077
    head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >/etc/spillway/remote-keys
    printf 'aws_access_key_id = test-id\naws_secret_access_key = test-secret\n' >/etc/spillway/remote-credentials
)

# The store: at an address that the unit forbids without the drop-in.
ip address add 10.99.99.99/32 dev lo
mkfifo /tmp/commands
python3 "$source/tests/lib/object_store/store.py" "" 10.99.99.99 </tmp/commands >/tmp/answers &
exec 3>/tmp/commands
until [ -s /tmp/answers ]; do sleep 0.1; done
read -r port </tmp/answers

sed -i -e "s|\"remote_tier_endpoint\": \"none\"|\"remote_tier_endpoint\": \"http://10.99.99.99:$port\"|" \
    -e 's|"remote_tier_bucket": "spillway"|"remote_tier_bucket": "bucket"|' \
    -e 's|"remote_tier_host": "auto"|"remote_tier_host": "unit"|' -e 's|"device": "[a-z]*"|"device": "host"|' \
    -e 's|"host_tier_bytes": "8 GiB"|"host_tier_bytes": "64 MiB"|' -e 's|_slab_bytes": "auto"|_slab_bytes": "8 MiB"|' \
    -e 's|initial_bytes": "auto"|initial_bytes": "0"|' "$config"
"$program" --config "$config" --check-config
systemctl daemon-reload
systemctl start spillwayd.socket spillwayd.service
grep -q '^remote  *no  *several' < <("$ctl" tiers) || fail "no remote tier: $("$ctl" tiers)"

client=(setpriv --reuid 65534 --regid 65534 --groups "$(getent group spillway | cut -d : -f 3)" --
    "$build/tests/e2e_remote" client /run/spillway/data.sock)
"${client[@]}" keep orders
systemctl stop spillwayd.socket spillwayd.service # which gives up all that systemd keeps
systemctl start spillwayd.socket spillwayd.service
"${client[@]}" find orders
kill -KILL "$(systemctl show -P MainPID spillwayd.service)"
"${client[@]}" find orders
"$ctl" drain --to remote

# Without the drop-in there are no credentials: the service keeps what it has, and says what is missing.
rm $drop_in
systemctl daemon-reload
systemctl restart spillwayd.service
journalctl --sync
grep -q '^tier.unreadable .*credential spillway-remote-ke' < <(journalctl -u spillwayd --no-pager -o cat)
