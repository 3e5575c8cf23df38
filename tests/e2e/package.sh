#!/bin/sh
# Installs libspillway from a build into a temporary folder and uses it as an engine would: compiles the examples, of which
# the README and the GUIDE show the core, by pkg-config and by find_package, and runs them against a real daemon.
# package.sh SOURCE_DIR BUILD_DIR SPILLWAYD C_COMPILER [C_FLAGS]
# shellcheck disable=SC2046,SC2086 # flags are lists of words
set -eu
source=$1 build=$2 spillwayd=$3 cc=$4 flags=${5:-}
folder=$(mktemp -d)
daemon=
finish() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM
fail() {
    echo "package.sh: $*" >&2
    exit 1
}

# shows DOCUMENT EXAMPLE CALL...: the document shows lines of this very file, with these calls.
shows() {
    document=$1 example=$2
    shift 2
    shown=$(sed -n "/^<!-- $example begins -->\$/,/^<!-- $example ends -->\$/p" "$source/$document" | sed '1,2d;$d' | sed '$d')
    for call in "$@"; do
        case $shown in
        *"$call("*) ;;
        *) fail "$document shows no $call()" ;;
        esac
    done
    case $(cat "$source/tests/example/$example") in
    *"$shown"*) ;;
    *) fail "$document shows another $example than tests/example" ;;
    esac
    [ "$(wc -l <"$source/tests/example/$example")" -le 60 ] || fail "$example has more than 60 lines"
}
shows README.md example.c spillway_spill spillway_wait spillway_restore
shows ipc/GUIDE.md pool.c spillway_pool_create spillway_pool_new spillway_handle_pin spillway_handle_unpin

prefix=$folder/usr
cmake --install "$build" --prefix "$prefix" --component client >"$folder/install.log" || fail "cmake --install failed"
pc=$(dirname "$(find "$prefix" -name spillway.pc)")
lib=$(dirname "$pc")
for file in "$lib/libspillway.so" "$lib/libspillway.a" "$prefix/include/spillway/spillway.h" \
    "$prefix/include/spillway/spillway_pool.h" "$prefix/include/spillway/spillway_errors.h" "$prefix/include/spillway/spillway_packed.h" \
    "$prefix/include/spillway/spillway_device.cuh" "$prefix/include/spillway/spillway_rmm.hpp" "$lib/cmake/Spillway/SpillwayConfig.cmake"; do
    [ -e "$file" ] || fail "$file was not installed"
done

# A name outside the API would clash with an engine's own some day.
nm -D --defined-only "$lib/libspillway.so" | awk '{print $NF}' | sed 's/@.*//' >"$folder/exports"
grep -q '^spillway_open$' "$folder/exports" || fail "spillway_open is not exported"
if grep -v -e '^spillway_[a-z_]*$' -e '^SPILLWAY_[0-9.]*$' "$folder/exports"; then
    fail "libspillway.so exports more than spillway_*"
fi

# One version everywhere: a program must not load a library with another ABI than that of its header.
header_version=$(sed -n 's/^#define SPILLWAY_VERSION_M[AJINOR]* //p' "$prefix/include/spillway/spillway.h" | paste -sd .)
[ -e "$lib/libspillway.so.$header_version" ] || fail "spillway.h is of version $header_version, the library is not"
objdump -p "$lib/libspillway.so" | grep -q "SONAME *libspillway\.so\.$header_version\$" || fail "the soname is of another version"
grep -q "^SPILLWAY_$header_version\$" "$folder/exports" || fail "libspillway.map is of another version"

nm -g --defined-only "$lib/libspillway.a" | awk 'NF == 3 { print $3 }' >"$folder/globals"
grep -q '^spillway_open$' "$folder/globals" || fail "spillway_open is not in libspillway.a"
if [ -z "$flags" ] && grep -v '^spillway_[a-z_]*$' "$folder/globals"; then # sanitizers have names of their own
    fail "libspillway.a has more globals than spillway_*"
fi

strict="-Wall -Wextra -Wpedantic -Werror"
cat >"$folder/header.c" <<'END'
#include <spillway_pool.h>
void *next(struct spillway *connection);
void *next(struct spillway *connection) {
    struct spillway_ticket *ticket = spillway_next_done(connection);
    return ticket ? spillway_ticket_user(ticket) : NULL;
}
END
export PKG_CONFIG_PATH="$pc"
$cc -std=c99 $strict $(pkg-config --cflags spillway) -fsyntax-only "$folder/header.c" || fail "the headers are not C99"
$cc -xc++ $strict $(pkg-config --cflags spillway) -fsyntax-only "$folder/header.c" || fail "the headers are not C++"
rmm="-xc++ -std=c++17 $strict -I$source/tests/lib/fake_rmm" # RMM is not on every machine
echo '#include <spillway_rmm.hpp>' >"$folder/header.cpp"
$cc $rmm $(pkg-config --cflags spillway) -fsyntax-only "$folder/header.cpp" || fail "spillway_rmm.hpp does not compile"
$cc $flags $rmm "$source/tests/e2e/rmm.cpp" $(pkg-config --cflags --libs spillway) -lstdc++ -o "$folder/rmm" ||
    fail "rmm.cpp does not compile"
if command -v nvcc >/dev/null; then # needs nothing but what lies beside it
    echo '#include <spillway_device.cuh>' >"$folder/header.cu"
    nvcc -std=c++17 -arch=sm_90 -Werror all-warnings $(pkg-config --cflags spillway) -c "$folder/header.cu" \
        -o "$folder/header.o" || fail "spillway_device.cuh does not compile"
fi
$cc $flags -Wall -Wextra -Werror "$source/tests/example/example.c" $(pkg-config --cflags --libs spillway) \
    -o "$folder/by_pkg_config" || fail "the example does not compile by pkg-config"
$cc $flags -Wall -Wextra -Werror "$source/tests/example/pool.c" $(pkg-config --cflags --libs spillway) \
    -o "$folder/pool_by_pkg_config" || fail "pool.c does not compile by pkg-config"

mkdir "$folder/engine"
cat >"$folder/engine/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.20)
project(engine LANGUAGES C)
find_package(Spillway 0.2 REQUIRED)
foreach(kind spillway spillway_static)
  foreach(example example pool)
    add_executable(${example}_by_${kind} ${EXAMPLES}/${example}.c)
    target_link_libraries(${example}_by_${kind} PRIVATE Spillway::${kind})
  endforeach()
endforeach()
END
(cmake -S "$folder/engine" -B "$folder/engine/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_C_FLAGS="$flags" -DEXAMPLES="$source/tests/example" && cmake --build "$folder/engine/build") \
    >"$folder/engine.log" 2>&1 || { cat "$folder/engine.log"; fail "the examples do not build by find_package"; }

"$spillwayd" --set device=host --set log_level=debug --set data_socket="$folder/data.sock" --set "scratch_bytes=64 MiB" \
    --set "host_tier_bytes=64 MiB" --set "host_tier_slab_bytes=4 MiB" --set "host_tier_initial_bytes=4 MiB" \
    2>"$folder/log" &
daemon=$!
until grep -q '^[^"]*event=service.ready ' "$folder/log"; do
    kill -0 "$daemon" 2>/dev/null || { cat "$folder/log"; fail "spillwayd did not start"; }
    sleep 0.05
done
for program in "$folder/by_pkg_config" "$folder/pool_by_pkg_config" "$folder/rmm" "$folder/engine/build/"*_by_spillway \
    "$folder/engine/build/"*_by_spillway_static; do
    LD_LIBRARY_PATH=$lib "$program" "$folder/data.sock" >"$folder/said" || { cat "$folder/log"; fail "$program failed"; }
    grep -q '^every byte is back$' "$folder/said" || fail "$program did not get its bytes back"
done
[ "$(grep -c 'event=restore.done' "$folder/log")" -ge 6 ] || fail "the daemon did not serve six programs"
