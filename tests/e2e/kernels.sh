#!/bin/sh
# Checks libspillway-kernels.so as it was built and as it is installed: what it exports, whether spillwayd finds it, and
# how large both are. The kernels themselves need a GPU and are not run.
# kernels.sh SOURCE_DIR BUILD_DIR SPILLWAYD KERNELS MOST_BYTES
# shellcheck disable=SC2016 # $ORIGIN is the dynamic linker's
set -eu
source=$1 build=$2 spillwayd=$3 kernels=$4 most_bytes=$5
name=libspillway-kernels.so.0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
    echo "kernels.sh: $*" >&2
    exit 1
}

# It exports every call of codec/gpu.h, with the project's version, and nothing else.
version=SPILLWAY_KERNELS_$("$spillwayd" --version | awk '{print $NF}')
sed -n '/^static/d; s/^[a-z].*[ *]\(sw_gpu_[a-z_]*\)(.*/\1/p' "$source/codec/gpu.h" | sort >"$folder/declared"
[ -s "$folder/declared" ] || fail "codec/gpu.h declares nothing"
nm -D --defined-only "$kernels" | awk '$2 != "A" { print $NF }' | sort >"$folder/exported"
sed "s/\$/@@$version/" "$folder/declared" | diff - "$folder/exported" || fail "it does not export just what codec/gpu.h declares"

# spillwayd finds it by a RUNPATH that is relative to its own folder, and does not need it to start.
finds() {
    readelf -d "$1" >"$folder/dynamic"
    if grep -q "NEEDED.*$name" "$folder/dynamic"; then
        fail "$1 needs $name to start"
    fi
    sed -n 's/.*(RUNPATH).*\[\(.*\)\]/\1/p' "$folder/dynamic" | tr : '\n' >"$folder/paths"
    while read -r path; do
        case $path in
        '$ORIGIN'*) [ ! -f "$(dirname "$1")/${path#'$ORIGIN'}/$name" ] || return 0 ;;
        *) fail "$1 looks for libraries in $path, which is not relative to it" ;;
        esac
    done <"$folder/paths"
    fail "$1 does not find $name"
}
finds "$spillwayd"
DESTDIR=$folder/root cmake --install "$build" --strip >"$folder/install.log" || fail "cmake --install failed"
installed=$(find "$folder/root" -name spillwayd -path '*/sbin/*')
finds "$installed"

bytes=$(($(stat -c %s "$installed") + $(stat -Lc %s "$(find "$folder/root" -name "$name")")))
echo "spillwayd and its kernels: $bytes bytes"
[ "$bytes" -le "$most_bytes" ] || fail "more than $most_bytes bytes are installed"
