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

# search KIND OPTIMIZATION DEFINE... : searches all states; the result is in the file `out`. KIND: SAFETY (assertions,
# states where all wait), or NP (runs that never end).
search() {
    local kind=$1 optimization=$2 options=()
    shift 2
    [ "$kind" = SAFETY ] || options=(-l)
    spin -a "$@" "$model" >out 2>&1 || return 1
    ${CC:-cc} "$optimization" -D"$kind" -DCOLLAPSE -DVECTORSZ=512 -DMEMLIM=4000 -o pan pan.c || return 1
    ./pan -w25 -m200000 "${options[@]}" >out 2>&1
}

is_complete() {
    grep -q 'errors: 0$' out && ! grep -qE 'Search not completed|out of memory|max search depth too small' out
}

# holds KIND CRASHES DEATHS FAILURES PLACES: all properties hold within these bounds.
holds() {
    local begun=$SECONDS bounds="$1, $2 crashes, $3 deaths, $4 failures, $5 places"
    if search "$1" -O1 -DMAX_CRASHES="$2" -DMAX_DEATHS="$3" -DMAX_BAD="$4" -DPLACES="$5" && is_complete; then
        echo "model: $bounds: $(grep -oE '[0-9.e+]+ states, stored' out | sed 's/,//')," \
            "depth $(grep -oE 'depth reached [0-9]+' out | cut -d ' ' -f 3)," \
            "$(grep -oE '[0-9.]+.total actual memory' out | cut -f 1) MB, $((SECONDS - begun)) s: holds"
    else
        grep -E 'assertion violated|invalid end state |cycle|errors:|not completed|memory|error' out >&2 || true
        echo "model: $bounds: DOES NOT HOLD, or was not checked in full" >&2
        status=1
    fi
}

# finds FAULT: the model with this fault breaks a property.
finds() {
    search SAFETY -O0 -DMAX_DEATHS=0 -D"$1" || true # pan says nothing by its exit status
    if grep -qE 'assertion violated|invalid end state \(' out; then
        echo "model: $1 is found after $(grep -oE '[0-9.e+]+ states, stored' out | cut -d ' ' -f 1) states"
    else
        echo "model: $1 is NOT FOUND" >&2
        status=1
    fi
}

# Crashes of the daemon, deaths of clients, steps of the mover that fail (or builds and reads that expire), places.
holds SAFETY 1 1 1 3
holds SAFETY 2 1 0 3
holds SAFETY 1 1 1 2
holds NP 1 0 0 3
mapfile -t faults < <(grep -oE 'FAULT_[A-Z_]+' "$model" | sort -u)
for fault in "${faults[@]}"; do
    finds "$fault"
done
exit "$status"
