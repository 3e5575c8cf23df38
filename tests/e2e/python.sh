#!/bin/sh
# Runs the tests of the Python package against a build, in a virtual environment that the build folder keeps. Skipped
# where that cannot be made: without python3 3.10, its module venv, or an index of packages.
# python.sh SOURCE_DIR BUILD_DIR SPILLWAYD SPILLWAYCTL LIBSPILLWAY [PYTEST_ARGUMENT...]
set -eu
source=$1 build=$2
export SPILLWAYD="$3" SPILLWAYCTL="$4" SPILLWAY_LIBRARY="$5"
shift 5
skip() {
    echo "python.sh: $*: skipped"
    exit 77
}
python=${SPILLWAY_PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || skip "no $python of 3.10 or later"

venv=$build/python-venv
if ! "$venv/bin/python" -c 'import cffi, nanoarrow, numpy, pytest' 2>/dev/null; then
    rm -rf "$venv"
    "$python" -m venv "$venv" >/dev/null 2>&1 || skip "no module venv (python3-venv)"
    "$venv/bin/pip" -q --disable-pip-version-check --retries 1 --timeout 20 install cffi nanoarrow numpy pytest \
        >"$build/python-venv.log" 2>&1 || { tail -n 3 "$build/python-venv.log"; skip "no index of packages answers"; }
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
export PYTHONPATH="$source/ipc/python/src" PYTHONDONTWRITEBYTECODE=1 XDG_RUNTIME_DIR="$folder"
"$venv/bin/python" -m pytest -q --no-header -p no:cacheprovider --basetemp="$folder/pytest" "$@" "$source/ipc/python/tests"
