#!/bin/sh
# as_user.sh PROGRAM [ARGUMENT...] - runs a test program as a user without rights, in a folder of that user's own. Root
# becomes user 61184, which systemd gives to no account; any other user has none already. Exits with the program's
# exit code, or with 77 (skipped) where the user cannot reach the program.
uid=61184
[ "$(id -u)" -eq 0 ] || exec "$@"
as_user="setpriv --reuid $uid --regid $uid --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs"
$as_user test -x "$1" || { echo "user $uid cannot run $1"; exit 77; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
chown "$uid:$uid" "$folder" && cd "$folder" || exit 1
HOME=$folder $as_user "$@"
