#!/bin/bash
# Starts a spillwayd in a folder of its own, lets the demo's client work with it, stops it, and passes the client's exit
# code on. Nothing is left behind, also when it is interrupted.
# demo.sh SPILLWAYD CLIENT [CLIENT_OPTION]...
# shellcheck disable=SC2317 # what the traps call
set -euo pipefail
spillwayd=$1 client=$2
shift 2

readonly MIB=1048576 START_S=120 STOP_S=10
pids=()

# Ends a process of ours: in order, else by force.
stop() {
    local i
    kill -TERM "$1" 2>/dev/null || return 0
    for ((i = 0; i < STOP_S * 20; i++)); do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

finish() {
    trap '' INT TERM HUP # a second Ctrl-C must not stop the cleaning up
    local i
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
        stop "${pids[i]}"
    done
    rm -rf "$folder"
}

# Host memory for the largest column, if none of it shrinks, but no more than 60 % of the machine's.
tier_mib() {
    local need=$((256 * MIB)) size=0 total limit previous=
    for argument in "$@"; do
        case $previous in
        --tpch) [[ $argument =~ ^[0-9]{1,15}$ ]] && size=$argument ;;
        --file) size=$(stat -L -c %s -- "$argument" 2>/dev/null || echo 0) ;;
        esac
        ((size <= need)) || need=$size
        previous=$argument
    done
    total=$(($(getconf _PHYS_PAGES) * $(getconf PAGESIZE)))
    limit=$((total * 6 / 10))
    need=$((need + need / 64 + 64 * MIB))
    ((need <= limit)) || need=$limit
    echo $((need / MIB / 2 * 2)) # whole pages of 2 MiB
}

folder=
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
folder=$(mktemp -d "${TMPDIR:-/tmp}/spillway-demo.XXXXXX")
socket=$folder/data.sock
if ((${#socket} > 100)); then # a socket's path has room for 107 bytes
    rm -rf "$folder"
    folder=$(mktemp -d /tmp/spillway-demo.XXXXXX)
    socket=$folder/data.sock
fi

tier=$(tier_mib "$@")
: >"$folder/log"
# Half of it is taken at the start, so that the rates are not those of making memory.
setpriv --pdeathsig TERM "$spillwayd" --set data_socket="$socket" --set host_tier_bytes="$tier MiB" \
    --set host_tier_initial_bytes="$((tier / 2)) MiB" 2>"$folder/log" &
daemon=$!
pids+=("$daemon")
for ((i = 0; i < START_S * 20; i++)); do
    if grep -q 'event=service.ready ' "$folder/log" && grep -qE 'event=tier\.(ready|grow_failed) ' "$folder/log"; then
        break
    fi
    if ! kill -0 "$daemon" 2>/dev/null; then
        echo "demo.sh: spillwayd did not start:" >&2
        cat "$folder/log" >&2
        exit 1
    fi
    sleep 0.05
done
if ! grep -q 'event=service.ready ' "$folder/log"; then
    echo "demo.sh: spillwayd is not ready after $START_S seconds:" >&2
    cat "$folder/log" >&2
    exit 1
fi

# In the background, so that a signal is acted upon at once.
setpriv --pdeathsig TERM "$client" --socket "$socket" "$@" &
pids+=("$!")
status=0
wait "$!" || status=$?
if ((status != 0)) && grep -v 'level=info' "$folder/log" >"$folder/complaints"; then
    echo "demo.sh: spillwayd said:" >&2
    tail -n 20 "$folder/complaints" >&2
fi
exit "$status"
