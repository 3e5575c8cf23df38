#!/bin/sh
# Compares libspillway.so and its headers with what a program of this soname was linked with: no symbol may vanish, no
# length or value may change. Structs that begin with `size` may grow. Every exported symbol is in an installed header.
# abi.sh SOURCE_DIR LIBRARY C_COMPILER
set -eu
source=$1 library=$2 cc=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
    echo "abi.sh: $*" >&2
    exit 1
}
version=$(sed -n 's/^#define SPILLWAY_VERSION_M[AJINOR]* //p' "$source/ipc/spillway.h" | paste -sd .)
golden=$source/tests/golden/abi-$version
[ -f "$golden" ] || fail "there is no $golden: copy the one before, and change it as CHANGELOG.md says"

nm -D --defined-only "$library" | awk '{ print $3 }' | sed 's/@.*//' | grep '^spillway_' | sort >"$folder/exported"
sed -n 's/^symbol //p' "$golden" | sort >"$folder/promised"
gone=$(comm -13 "$folder/exported" "$folder/promised")
[ -z "$gone" ] || fail "no longer exported: $gone"
while read -r symbol; do
    grep -qE "\b$symbol\(" "$source"/ipc/spillway*.h || fail "$symbol is exported, but in no header"
done <"$folder/exported"

awk 'BEGIN { print "#include <spillway_pool.h>" }
    $1 == "struct" { printf "_Static_assert(sizeof(struct %s) %s %s, \"length of struct %s\");\n", $2, \
        $3 == "grows" ? ">=" : "==", $4, $2 }
    $1 == "constant" { printf "_Static_assert(%s == %s, \"value of %s\");\n", $2, $3, $2 }' "$golden" >"$folder/lengths.c"
$cc -std=c11 -I "$source/ipc" -I "$source/base/public" -I "$source/codec/public" -fsyntax-only "$folder/lengths.c" ||
    fail "programs of version $version would read other bytes"
grep -hoE '^struct spillway_[a-z_]+ \{' "$source"/ipc/spillway*.h | cut -d ' ' -f 2 >"$folder/structs"
while read -r struct; do
    grep -q "^struct $struct " "$golden" || fail "struct $struct is not in $golden"
done <"$folder/structs"
