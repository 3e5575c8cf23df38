#!/bin/sh
# Checks the units with systemd's own tool: systemd_unit.sh FOLDER_OF_SERVICE FOLDER_OF_SOCKET SPILLWAYD
set -eu
service=$1/spillwayd.service socket=$2/spillwayd.socket program=$3
command -v systemd-analyze >/dev/null || { echo "skipped: no systemd-analyze"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Not installed while they are tested: the program is where it was built, the documentation nowhere.
sed -e "s|^\(Exec[A-Za-z]*=\)[^ ]*/spillwayd |\1$program |" -e '/^Documentation=/d' "$service" >"$folder/spillwayd.service"
sed -e '/^Documentation=/d' "$socket" >"$folder/spillwayd.socket"
grep -q "^ExecStart=$program --config " "$folder/spillwayd.service"
# A reload first checks the file that the start uses.
[ "$(sed -n 's/^ExecReload=\(.*\) --check-config$/\1/p' "$service")" = "$(sed -n 's/^ExecStart=//p' "$service")" ]
for unit in service socket; do
    complaints=$(systemd-analyze verify "$folder/spillwayd.$unit" 2>&1 | grep -F "$folder/" || true)
    if [ -n "$complaints" ]; then
        echo "$complaints"
        exit 1
    fi
    systemd-analyze verify --recursive-errors=no "$folder/spillwayd.$unit"
done
# The drop-in of a remote tier adds what it says, and nothing that systemd does not know.
mkdir "$folder/spillwayd.service.d"
cp "$2/spillwayd-remote.conf" "$folder/spillwayd.service.d/remote.conf"
complaints=$(systemd-analyze verify "$folder/spillwayd.service" 2>&1 | grep -F "$folder/" || true)
[ -z "$complaints" ] || { echo "$complaints"; exit 1; }
rm -r "$folder/spillwayd.service.d"
# Paths of the socket unit are the defaults of the service.
path=$("$program" --print-config | sed -n 's/.*"data_socket": "\(.*\)".*/\1/p')
grep -qx "ListenSequentialPacket=$path" "$socket"
# How many descriptors are kept, the service has to know: it is not told by all versions of systemd.
kept=$(sed -n 's/^FileDescriptorStoreMax=//p' "$service")
grep -q "UNIT_LIMIT = $kept " "$2/../daemon/fdstore.c"
# In tenths: 4.0 is what systemd calls OK.
systemd-analyze security --offline=yes --threshold=40 --no-pager "$folder/spillwayd.service" >"$folder/security" || {
    status=$?
    cat "$folder/security"
    # Tools that cannot judge a file that is not loaded (systemd before 250) say nothing about it.
    grep -q 'Overall exposure level' "$folder/security" && exit "$status"
    exit 77
}
tail -n 1 "$folder/security"
if systemd-analyze --version | grep -q '^systemd 252 '; then # as README.md says
    level=$(sed -n 's/.*Overall exposure level for .*: \([0-9.]*\) .*/\1/p' "$folder/security")
    grep -qF "exposure: $level" "$2/README.md"
fi
