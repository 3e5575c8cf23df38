#!/usr/bin/env bash
# Makes what README.md calls a state and a client, of the version that is checked out: make.sh VERSION FOLDER
# As root, since a state belongs to the user who made it; on x86-64, whose client it is.
set -euo pipefail
version=${1:?usage: make.sh VERSION FOLDER} to=$(realpath "${2:?usage: make.sh VERSION FOLDER}")
[ "$(id -u)" = 0 ] || { echo "make.sh: must be root" >&2; exit 1; }
cd "$(dirname "$0")/../.."
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
# Small, and without names of this machine's folders.
cmake -G Ninja -S . -B "$build" -DSW_WITH_CUDA=OFF -DCMAKE_BUILD_TYPE=MinSizeRel \
    -DCMAKE_C_FLAGS="-ffunction-sections -fdata-sections -ffile-prefix-map=$PWD/="
cmake --build "$build" --target golden_client e2e_left
strip -o "$to/v$version-client.x86_64" "$build/tests/e2e/golden_client"
(cd "$build/tests" && ./e2e_left --write "$version" "$to")
