#!/bin/bash
# Runs the demo as a user would, and checks what it says, how it ends, and that nothing is left of it.
# check.sh SPILLWAYD CLIENT
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
spillwayd=$1 client=$2
folder=$(mktemp -d /tmp/spillway-check.XXXXXX)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
export TMPDIR=$folder/tmp # where the demo puts its own folder
mkdir "$TMPDIR"

fail() {
    echo "check.sh: $*" >&2
    cat "$folder/out" >&2
    exit 1
}

demo() {
    exec "$here/demo.sh" "$spillwayd" "$client" "$@"
}

# Runs the demo to its end; expects this exit code and nothing left.
expect() {
    local want=$1 got=0
    shift
    (demo "$@") >"$folder/out" 2>&1 || got=$?
    [ "$got" = "$want" ] || fail "exit code $got instead of $want: $*"
    check_clean
}

check_clean() {
    [ -z "$(ls -A "$TMPDIR")" ] || fail "files are left: $(find "$TMPDIR")"
    if pgrep -f -- "$TMPDIR" >"$folder/left"; then
        fail "processes are left: $(cat "$folder/left")"
    fi
}

: >"$folder/empty"
head -c 1000003 /dev/urandom >"$folder/random"
expect 0 --tpch 3000001 --file "$folder/empty" --file "$folder/random"
grep -q '^Using the ' "$folder/out" || fail "the device is not named"
[ "$(grep -c ' yes$' "$folder/out")" = 3 ] || fail "not every column is verified"
grep -qE '^l_comment +3000001 +[0-9]+ +[23]\.[0-9]{3} ' "$folder/out" || fail "l_comment does not shrink as it should"

expect 1 --file "$folder/missing" --tpch 4096
grep -q 'missing.*ENOENT' "$folder/out" || fail "a missing file is not named"
grep -q '^missing .* NO$' "$folder/out" || fail "a missing file counts as verified"
expect 2 --tpch 12x
expect 2

(exec "$here/demo.sh" /bin/false "$client" --tpch 1) >"$folder/out" 2>&1 && fail "a daemon that does not start goes unseen"
check_clean

# A signal at any moment: while the daemon starts, while the client works.
for signal in TERM HUP; do
    for delay in 0.02 1; do
        (demo --tpch 2000000000) >"$folder/out" 2>&1 &
        sleep "$delay"
        kill -"$signal" "$!"
        wait "$!" && fail "SIG$signal did not stop the demo"
        check_clean
    done
done
