#!/bin/sh
# Runs the Python package's tests of arrays and pools on a GPU, with CuPy, PyTorch, JAX, RMM and cuDF as far as PYTHON
# has them. PYTHON also needs cffi, numpy and pytest.
#
#   tests/gpu/python.sh BUILD [PYTHON]       with a GPU; exit 77 without one
set -eu
build=$(realpath "${1:?usage: python.sh BUILD [PYTHON]}")
source=$(realpath "$(dirname "$0")/../..")
[ -e /dev/nvidiactl ] || { echo "python.sh: skipped, no NVIDIA GPU"; exit 77; }
export SPILLWAYD="$build/daemon/spillwayd" SPILLWAY_LIBRARY="$build/ipc/libspillway.so"
export PYTHONPATH="$source/ipc/python/src" PYTHONDONTWRITEBYTECODE=1
cd "$source/ipc/python/tests"
exec "${2:-python3}" -m pytest -q -rs -p no:cacheprovider test_gpu.py test_gpu_rmm.py test_gpu_cudf.py test_torch.py
