#!/bin/sh
# Checks the service unit with systemd's own tool: systemd_unit.sh UNIT SPILLWAYD
set -eu
unit=$1 program=$2
command -v systemd-analyze >/dev/null || { echo "skipped: no systemd-analyze"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Not installed while it is tested: the program is where it was built, the documentation nowhere.
sed -e "s|^ExecStart=[^ ]*|ExecStart=$program|" -e '/^Documentation=/d' "$unit" >"$folder/spillwayd.service"
grep -q "^ExecStart=$program --config " "$folder/spillwayd.service"
complaints=$(systemd-analyze verify "$folder/spillwayd.service" 2>&1 | grep -F "$folder/spillwayd.service" || true)
if [ -n "$complaints" ]; then
    echo "$complaints"
    exit 1
fi
systemd-analyze verify --recursive-errors=no "$folder/spillwayd.service"
