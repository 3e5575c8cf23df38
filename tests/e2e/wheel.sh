#!/bin/sh
# Builds the wheel for host memory, installs it in a fresh virtual environment, and runs its README's program as a user
# without rights. Skipped where pip has no index of packages, or python3 no module venv.
# wheel.sh SOURCE_DIR BUILD_DIR
set -eu
source=$1 build=$2/wheel
unset SPILLWAY_SOCKET SPILLWAY_LIBRARY SPILLWAYD SPILLWAYCTL PYTHONPATH
skip() {
    echo "wheel.sh: $*: skipped"
    exit 77
}
fail() {
    echo "wheel.sh: $*" >&2
    exit 1
}
mkdir -p "$build"
rm -rf "$build/fresh"
/usr/bin/python3 -m venv "$build/fresh" >/dev/null 2>&1 || skip "no /usr/bin/python3, which every user can run, with the module venv"
pip() {
    "$build/fresh/bin/pip" -q --disable-pip-version-check --retries 1 --timeout 20 "$@"
}
pip install cffi numpy hatchling >"$build/log" 2>&1 || skip "no index of packages answers"

# Not optimized: it is not for use. By the pip that was tried, not by one that comes first in the path.
wheel=$(PATH="$build/fresh/bin:$PATH" "$source/.ci/wheel" "$build" -DSW_WITH_CUDA=OFF -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O0 2>"$build/log") || {
    cat "$build/log"
    fail "not built"
}
grep '^wheel: ' "$build/log"
case $wheel in
*/spillway_gpu-*-py3-none-manylinux_2_3[0-9]_*.whl) ;;
*) fail "its name is $wheel" ;;
esac
pip install --no-index "$wheel"
"$build/fresh/bin/python" -c 'import importlib.metadata as m; f = m.files("spillway-gpu")
names = " ".join(str(p) for p in f)
for name in "py.typed", "bin/spillwayd", "bin/spillwayctl", "lib/libspillway.so.0.2", "licenses/LICENSE", "libuv1-dev":
    assert name in names, name'

# shellcheck disable=SC2016 # as it is
sed -n '/^```python$/,/^```$/p' "$source/ipc/python/README.md" | sed '1d;$d' >"$build/ten_lines.py"
echo 'print(f"every byte is back, ratio {region.ratio:.0f}")' >>"$build/ten_lines.py"
# shellcheck disable=SC2016 # for the user's shell, whose folder is the current one
as_user() {
    "$source/tests/lib/as_user.sh" /bin/sh -c 'export XDG_RUNTIME_DIR="$PWD"; exec "$@"' sh "$@"
}
as_user test -x "$build/fresh/bin/python" || skip "the user cannot reach $build"
as_user "$build/fresh/bin/python" "$build/ten_lines.py"
# A service of this machine, or what one has left, is not the test's.
as_user env SPILLWAY_SOCKET="$build/none.sock" "$build/fresh/bin/python" -m spillway doctor
[ "$(as_user "$build/fresh/bin/spillwayd" --version)" = "$(as_user "$build/fresh/bin/spillwayctl" --version | sed s/ctl/d/)" ] ||
    fail "the programs do not run"

# What is linked statically has no libcurl: a service that shall use an object store says so and does not start.
# shellcheck disable=SC2016 # for the user's shell
said=$(as_user /bin/sh -c 'umask 077 && od -An -v -tx1 -N 32 /dev/urandom | tr -d " \n" >keys &&
    exec timeout 20 "$1" --set "data_socket=$PWD/remote.sock" --set remote_tier_endpoint=http://localhost:1 \
        --set "remote_tier_keys=$PWD/keys" 2>&1' sh "$build/fresh/bin/spillwayd") && fail "a remote tier without libcurl"
case $said in
*"built without libcurl"*) ;;
*) fail "the remote tier's absence is not named: $said" ;;
esac
