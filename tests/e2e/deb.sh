#!/bin/sh
# Builds the Debian package, looks at what is in it, and has dpkg unpack it into an empty root.
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
package=$("$source/.ci/deb" "$build" -DSW_WITH_CUDA=OFF | tail -n 1)
[ -f "$package" ] || fail "no package"

field() { dpkg-deb -f "$package" "$1"; }
[ "$(field Package)" = spillway ] || fail "the package has another name"
field Depends | grep -q libuv1 || fail "it does not depend on what spillwayd is linked with: $(field Depends)"
field Depends | grep -q init-system-helpers || fail "its scripts need init-system-helpers"

dpkg-deb -e "$package" "$folder/control"
for script in postinst prerm postrm; do
    [ -x "$folder/control/$script" ] || fail "$script is missing or cannot be run"
    sh -n "$folder/control/$script"
done
grep -qx /etc/spillway/spillwayd.json "$folder/control/conffiles" || fail "the configuration is no conffile"
grep -q ldconfig "$folder/control/triggers" || fail "ldconfig is not run"

root=$folder/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/triggers"
: >"$root/var/lib/dpkg/status"
as_root=
[ "$(id -u)" = 0 ] || as_root=--force-not-root
dpkg --root="$root" --force-depends --force-script-chrootless $as_root --unpack "$package" >"$folder/unpack.log" 2>&1 ||
    { cat "$folder/unpack.log"; fail "dpkg cannot unpack it"; }
for file in usr/sbin/spillwayd usr/lib/systemd/system/spillwayd.service usr/lib/systemd/system/spillwayd.socket \
    usr/lib/sysusers.d/spillwayd.conf usr/lib/tmpfiles.d/spillwayd.conf usr/include/spillway/spillway.h usr/include/spillway/spillway_pool.h usr/bin/spillway-bench \
    usr/share/doc/spillway/README.md usr/share/doc/spillway/GUIDE.md \
    usr/share/doc/spillway/OPERATING.md usr/share/doc/spillway/copyright \
    usr/share/doc/spillway/examples/example.c usr/share/doc/spillway/examples/pool.c usr/share/doc/spillway/examples/packed_filter.cu \
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
