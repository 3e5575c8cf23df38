#!/bin/sh
# Builds the Debian packages, looks at what is in them, and has dpkg unpack them into an empty root. Leaves the single
# package of before 0.2 beside them, for systemd_walk.sh.
# deb.sh SOURCE_DIR BUILD_FOLDER
set -eu
source=$1 build=$2
for tool in dpkg dpkg-deb dpkg-shlibdeps cpack; do
    command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
    echo "deb.sh: $*" >&2
    exit 1
}
# Not optimized: only the tests install it.
"$source/.ci/deb" "$build" -DSW_WITH_CUDA=OFF -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O0 >"$folder/packages"
packages=$(cat "$folder/packages")

file_of() { grep "/$1_" "$folder/packages" || fail "there is no package $1"; }
field() { dpkg-deb -f "$(file_of "$1")" "$2"; }
for name in spillwayd libspillway0.2 libspillway-dev spillway; do
    [ "$(field $name Package)" = $name ] || fail "$name has another name"
    [ $name = spillway ] || field $name Replaces | grep -q '^spillway (<< ' || fail "$name replaces nothing"
    dpkg-deb -e "$(file_of $name)" "$folder/$name"
done
field spillwayd Depends | grep -q libuv1 || fail "it does not depend on what spillwayd is linked with"
field spillwayd Depends | grep -q init-system-helpers || fail "its scripts need init-system-helpers"
for name in libspillway-dev spillway; do
    field $name Depends | grep -qF "libspillway0.2 (= $(field libspillway0.2 Version))" || fail "$name takes any library"
done
# The name of a library's package is that of its soname (Debian Policy 8.1).
library=$folder/libspillway0.2
grep -qx 'libspillway 0.2 libspillway0.2.*' "$library/shlibs" || fail "$(cat "$library/shlibs")"
grep -q ldconfig "$library/postinst" "$library/triggers" 2>/dev/null || fail "ldconfig is not run"
for script in postinst prerm postrm; do
    [ -x "$folder/spillwayd/$script" ] || fail "$script is missing or cannot be run"
    sh -n "$folder/spillwayd/$script"
    [ ! -e "$folder/spillway/$script" ] || fail "the empty package does something: $script"
done
grep -qx /etc/spillway/spillwayd.json "$folder/spillwayd/conffiles" || fail "the configuration is no conffile"
for package in $packages; do
    dpkg-deb -c "$package" | grep -v '/$' | sed 's/.* \.\//.\//'
done | sort | uniq -d >"$folder/twice"
[ ! -s "$folder/twice" ] || fail "two packages have $(cat "$folder/twice")"

root=$folder/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/triggers"
: >"$root/var/lib/dpkg/status"
as_root=
[ "$(id -u)" = 0 ] || as_root=--force-not-root
# shellcheck disable=SC2086 # one package a word
dpkg --root="$root" --force-depends --force-script-chrootless $as_root --unpack $packages >"$folder/unpack.log" 2>&1 ||
    { cat "$folder/unpack.log"; fail "dpkg cannot unpack it"; }
for file in usr/sbin/spillwayd usr/lib/systemd/system/spillwayd.service usr/lib/systemd/system/spillwayd.socket \
    usr/lib/sysusers.d/spillwayd.conf usr/lib/tmpfiles.d/spillwayd.conf usr/include/spillway/spillway.h \
    usr/include/spillway/spillway_pool.h usr/bin/spillway-bench \
    usr/share/doc/spillway/README.md usr/share/doc/spillway/GUIDE.md \
    usr/share/doc/spillway/OPERATING.md usr/share/doc/spillway/copyright usr/share/doc/spillwayd/copyright \
    usr/share/doc/libspillway0.2/copyright usr/share/doc/libspillway0.2/spillway.spdx.json \
    usr/share/man/man1/spillway-bench.1 usr/share/man/man1/swcodec.1 \
    usr/share/man/man3/spillway.3 usr/share/man/man3/spillway_pool.3 \
    usr/share/doc/spillway/examples/example.c usr/share/doc/spillway/examples/pool.c \
    usr/share/doc/spillway/examples/packed_filter.cu \
    usr/share/doc/spillway/examples/packed_filter.h; do
    [ -f "$root/$file" ] || fail "$file is not in it"
done
for document in README.md:README.md CHANGELOG.md:CHANGELOG.md GUIDE.md:ipc/GUIDE.md \
    OPERATING.md:systemd/OPERATING.md; do # whole, below the line on its links
    tail -n +3 "$root/usr/share/doc/spillway/${document%%:*}" | cmp - "$source/${document#*:}" ||
        fail "${document%%:*} in it is another one"
done
for name in libspillway.so.0.2 libspillway.so libspillway.a spillway.pc SpillwayConfig.cmake; do
    [ -n "$(find "$root/usr/lib" -name "$name")" ] || fail "$name is not in it"
done
grep -q '^ExecStart=/usr/sbin/spillwayd --config /etc/spillway/spillwayd.json$' \
    "$root/usr/lib/systemd/system/spillwayd.service" || fail "the unit starts something else"
# What the units refer to is there.
cat "$root"/usr/lib/systemd/system/spillwayd.* | sed -n 's/^Documentation=//p' | tr ' ' '\n' | while read -r reference; do
    case $reference in
    man:spillway*)
        page=${reference#man:}
        section=${page#*(}
        section=${section%)}
        file=usr/share/man/man$section/${page%(*}.$section
        ;;
    file:/*) file=${reference#file:/} ;;
    *) continue ;;
    esac
    [ -f "$root/$file" ] || fail "a unit refers to $reference, which is not in it"
done
# An unpacked conffile waits for its configuration under another name.
[ -f "$root/etc/spillway/spillwayd.json" ] || [ -f "$root/etc/spillway/spillwayd.json.dpkg-new" ] ||
    fail "there is no configuration"
if find "$root" -path "$root/var" -prune -o -path '*/usr/local*' -print | grep -q .; then
    fail "something lies in /usr/local"
fi
"$root/usr/sbin/spillwayd" --config "$root"/etc/spillway/spillwayd.json* --check-config || fail "its service does not run"
if command -v python3 >/dev/null; then
    python3 -m json.tool "$root/usr/share/doc/spillwayd/spillway.spdx.json" >/dev/null || fail "the SPDX file is no JSON"
fi

# The single package had all files, and these scripts.
old=$folder/old
mkdir -p "$old/DEBIAN" "$build/old"
for package in $packages; do dpkg-deb -x "$package" "$old"; done
cp "$folder"/spillwayd/* "$old/DEBIAN"
printf 'Package: spillway\nVersion: 0.1.9\nArchitecture: %s\nMaintainer: nobody <root@localhost>\nDescription: before\n' \
    "$(dpkg --print-architecture)" >"$old/DEBIAN/control"
dpkg-deb -b "$old" "$build/old" >/dev/null || fail "the single package cannot be made"
