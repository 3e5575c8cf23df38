#!/bin/bash
# Checks the model of the protocol (builds.pml) in all states that its bounds allow, and that the check can fail: each
# fault that builds.pml can plant must be found. Needs spin, a C compiler and 4 GB of memory, and takes some minutes.
# The exhaustive checks differ in their bounds: see the end of this file.
set -euo pipefail
model=$(cd "$(dirname "$0")" && pwd)/builds.pml
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
status=0

if ! command -v spin >/dev/null; then
    echo "check.sh: spin is not installed (Debian: apt-get install spin), so the model is not checked" >&2
    exit 1
fi

# verify OPTIMIZATION DEFINE... : searches all states; the result is in the file `out`.
verify() {
    local optimization=$1
    shift
    spin -a "$@" "$model" >out 2>&1 || return 1
    ${CC:-cc} "$optimization" -DSAFETY -DCOLLAPSE -DVECTORSZ=512 -DMEMLIM=4000 -o pan pan.c || return 1
    ./pan -w25 -m100000 >out 2>&1
}

is_complete() {
    grep -q 'errors: 0$' out && ! grep -qE 'Search not completed|out of memory|max search depth too small' out
}

# holds CRASHES DEATHS FAILURES PLACES: all properties hold within these bounds.
holds() {
    local begun=$SECONDS bounds="$1 crashes, $2 deaths, $3 failures, $4 places"
    if verify -O1 -DMAX_CRASHES="$1" -DMAX_DEATHS="$2" -DMAX_BAD="$3" -DPLACES="$4" && is_complete; then
        echo "model: $bounds:$(grep -E 'states, stored' out | sed 's/  */ /g')," \
            "depth $(grep -oE 'depth reached [0-9]+' out | cut -d ' ' -f 3)," \
            "$(grep -oE '[0-9.]+.total actual memory' out | cut -f 1) MB, $((SECONDS - begun)) s: holds"
    else
        grep -E 'assertion violated|invalid end state |errors:|not completed|memory|error' out >&2 || true
        echo "model: $bounds: DOES NOT HOLD, or was not checked in full" >&2
        status=1
    fi
}

# finds FAULT: the model with this fault breaks a property.
finds() {
    if verify -O0 -D"$1"; then :; fi
    if grep -qE 'assertion violated|invalid end state \(' out; then
        echo "model: $1 is found after $(grep -oE '[0-9.e+]+ states, stored' out | cut -d ' ' -f 1) states"
    else
        echo "model: $1 is NOT FOUND" >&2
        status=1
    fi
}

# Crashes of the daemon, deaths of clients, steps of the mover that fail (or builds and reads that expire), places.
holds 1 1 1 3
holds 2 1 0 3
holds 1 1 1 2
mapfile -t faults < <(grep -oE 'FAULT_[A-Z_]+' "$model" | sort -u)
for fault in "${faults[@]}"; do
    finds "$fault"
done
exit "$status"
