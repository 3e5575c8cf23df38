# SPDX-License-Identifier: Apache-2.0
"""What has to be known about frameworks. None of them is imported here: only what the program has imported counts."""

from __future__ import annotations

import sys
from typing import Any

CONTIGUOUS = {
    "torch": "x.contiguous()",
    "cupy": "cupy.ascontiguousarray(x)",
    "numpy": "numpy.ascontiguousarray(x)",
    "builtins": "bytes(x)",
}


def isinstance_of(obj: Any, module: str, name: str) -> bool:
    """Returns whether obj is an instance of module.name, without importing the module."""
    cls = getattr(sys.modules.get(module), name, None)
    return cls is not None and isinstance(obj, cls)


def is_torch(obj: Any) -> bool:
    return isinstance_of(obj, "torch", "Tensor")


def is_cupy(obj: Any) -> bool:
    return isinstance_of(obj, "cupy", "ndarray")


def is_jax(obj: Any) -> bool:
    return isinstance_of(obj, "jax", "Array")


def current_stream(obj: Any) -> int:
    """Returns the stream on which the object's framework would queue work now; 0: the default stream."""
    if is_torch(obj):
        return int(sys.modules["torch"].cuda.current_stream(obj.device).cuda_stream)
    if is_cupy(obj):
        cupy = sys.modules["cupy"]
        with obj.device:
            return int(cupy.cuda.get_current_stream().ptr)
    return 0


def stream_pointer(stream: Any) -> int:
    """Returns the handle of a stream: a number, or an object of CuPy, PyTorch, Numba or CUDA Python."""
    if isinstance(stream, int):
        return stream
    for name in ("ptr", "cuda_stream", "handle"):
        value = getattr(stream, name, None)
        if value is not None:
            return int(getattr(value, "value", value) or 0)
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise TypeError(f"{type(stream).__name__} is no stream: give its handle, a number")
