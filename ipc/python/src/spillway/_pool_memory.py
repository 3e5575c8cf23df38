# SPDX-License-Identifier: Apache-2.0
"""Where a pool's memory comes from, and how a program sees it: allocators in Python, and arrays over pinned memory."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

from . import _frameworks as frameworks
from . import _memory as memory
from . import _pool_cdef
from ._library import ffi
from .errors import EINVAL

ffi.cdef(_pool_cdef.OPAQUE + _pool_cdef.STRUCTS + _pool_cdef.FUNCTIONS)

# ---- allocators


class Allocator(Protocol):
    """Gives memory to a pool. Its methods may be called in any thread that calls the pool.

    They hold none of the pool's locks, and may call Pool.make_room().
    """

    def alloc(self, nbytes: int, stream: int) -> int | None:
        """Returns the address of memory that may be used now, or after the work of the stream. None or a MemoryError:
        out of memory."""

    def free(self, address: int, nbytes: int) -> None:
        """Frees memory that nothing uses any more: neither the service, nor a stream on which it was pinned."""


class Held:
    """Memory of an object that the pool has adopted: let go when the pool frees it."""

    def __init__(self, obj: Any):
        self.obj = obj

    def free(self, address: int, nbytes: int) -> None:
        self.obj = None


class Watched:
    """Memory of an owner, who frees it when told, and may give other memory for a restore."""

    def __init__(self, obj: Any, nbytes: int, evicted: Callable[[], Any], refill: Callable[[int], Any] | None):
        self.obj = obj
        self._nbytes = nbytes
        self._evicted = evicted
        self._refill = refill

    def alloc(self, nbytes: int, stream: int) -> int | None:
        obj = self._refill(stream) if self._refill else None
        if obj is None:
            return None
        found = memory.writable(obj)
        if found.nbytes != nbytes:
            raise EINVAL(f"refill() has returned {found.nbytes} bytes, the buffer has {nbytes}")
        self.obj = obj
        return found.address

    def free(self, address: int, nbytes: int) -> None:
        self.obj = None
        self._evicted()


_numbers = itertools.count(1)
_owners: dict[int, Any] = {}  # by what C gets as `user`: it may call when the object is gone already
_thread = threading.local()


@ffi.callback("void *(void *, uint64_t, struct CUstream_st *)", error=ffi.NULL)  # type: ignore[untyped-decorator]
def _alloc(user: Any, nbytes: int, stream: Any) -> Any:
    _thread.depth = getattr(_thread, "depth", 0) + 1
    try:
        owner = _owners.get(int(ffi.cast("uintptr_t", user)))
        address = owner.alloc(nbytes, int(ffi.cast("uintptr_t", stream))) if owner is not None else None
    except MemoryError:
        return ffi.NULL
    except BaseException as error:  # noqa: BLE001 - raised by the call that needed the memory
        _thread.error = error
        return ffi.NULL
    finally:
        _thread.depth -= 1
    return ffi.cast("void *", address or 0)


@ffi.callback("void(void *, void *, uint64_t)")  # type: ignore[untyped-decorator]
def _free(user: Any, data: Any, nbytes: int) -> None:
    number = int(ffi.cast("uintptr_t", user))
    owner = _owners.get(number)
    if owner is None:
        return
    if isinstance(owner, Held):
        del _owners[number]
    _thread.depth = getattr(_thread, "depth", 0) + 1
    try:
        owner.free(int(ffi.cast("uintptr_t", data)), nbytes)
    finally:
        _thread.depth -= 1


def is_in_callback() -> bool:
    """Returns whether this thread runs a callback of an allocator."""
    return getattr(_thread, "depth", 0) > 0


def take_error() -> BaseException | None:
    """Returns what a callback of this thread has raised, once."""
    error: BaseException | None = getattr(_thread, "error", None)
    _thread.error = None
    return error


def set_allocator(struct: Any, owner: Any, allocates: bool) -> int:
    """Fills a struct spillway_allocator. Returns the number for forget()."""
    number = next(_numbers)
    _owners[number] = owner
    struct.alloc = _alloc if allocates else ffi.NULL
    struct.free = _free
    struct.user = ffi.cast("void *", number)
    return number


def forget(numbers: set[int]) -> None:
    for number in numbers:
        _owners.pop(number, None)


# ---- the GPU


@functools.lru_cache(maxsize=None)
def _loaded_driver() -> Any:
    cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    cuda.cuPointerGetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
    return cuda


def driver() -> Any:
    """Returns the CUDA driver if this process has loaded it, else None."""
    try:
        return _loaded_driver()
    except OSError:
        return None


def load_driver() -> None:
    """Loads the CUDA driver, which a pool uses if it is there."""
    try:
        code = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError as error:
        raise EINVAL(f"gpu= was given, and there is no CUDA driver: {error}") from None
    if code:
        raise EINVAL(f"gpu= was given, and cuInit() returns {code}")


_MEMORY_TYPE, _DEVICE = 2, 2  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_DEVICE


def is_on_gpu(address: int) -> bool:
    """Returns whether an address is memory of a GPU."""
    cuda = driver()
    kind = ctypes.c_uint(0)
    return (
        cuda is not None
        and cuda.cuPointerGetAttribute(ctypes.byref(kind), _MEMORY_TYPE, address) == 0
        and kind.value == _DEVICE
    )


def stream_of(stream: Any) -> int:
    """Returns the handle of a stream; None: the current one of the frameworks that the program uses."""
    if stream is not None:
        return frameworks.stream_pointer(stream)
    if driver() is None:
        return 0
    streams = {}
    if "cupy" in sys.modules:
        streams["cupy"] = int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        streams["torch"] = int(torch.cuda.current_stream().cuda_stream)
    if len(set(streams.values())) > 1:
        raise EINVAL(
            f"the current streams of {' and '.join(streams)} differ", hint="say on which one it is used: stream="
        )
    return next(iter(streams.values()), 0)


# ---- arrays


class Form:
    """Shape and type of a buffer's values, as in numpy's array interface."""

    def __init__(self, typestr: str, shape: tuple[int, ...]):
        match = re.fullmatch(r"([<>|=]?)([a-zA-Z])(\d+)", typestr)
        if not match:
            raise EINVAL(f"dtype {typestr!r} has no fixed length", hint='write it as "f4" or "<i8"')
        order, self.kind, digits = match.groups()
        self.itemsize = int(digits)
        self.order = "|" if self.itemsize == 1 else ">" if order == ">" else "<"
        self.typestr = f"{self.order}{self.kind}{digits}"
        self.shape = shape
        self.nbytes = math.prod(shape) * self.itemsize

    @property
    def type(self) -> int:
        """enum spillway_value_type"""
        return memory._type(self.kind, self.itemsize, self.order)


def form_of_dtype(dtype: Any, shape: int | tuple[int, ...]) -> Form:
    """dtype: a text as "f4", a dtype of numpy, or what numpy makes one of."""
    if not isinstance(dtype, str) and not isinstance(getattr(dtype, "str", None), str):
        if "numpy" not in sys.modules:
            raise EINVAL(f"dtype={dtype!r}", hint='write it as "f4" or "<i8"')
        dtype = sys.modules["numpy"].dtype(dtype)
    return Form(dtype if isinstance(dtype, str) else dtype.str, (shape,) if isinstance(shape, int) else tuple(shape))


def form_of(obj: Any, nbytes: int) -> Form:
    """Returns the form of an object's values; bytes if its interface does not say it."""
    for name in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(obj, name, None)
        if interface is not None:
            return Form(interface["typestr"], tuple(interface["shape"]))
    return Form("|u1", (nbytes,))


_FORMATS = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q"}
_FORMATS |= {"b1": "?", "f4": "f", "f8": "d"}


def host_array(address: int, form: Form) -> memoryview:
    """Makes a view that can be written to; of bytes where Python has no format for the values."""
    view = memoryview(ffi.buffer(ffi.cast("void *", address), form.nbytes)).cast("B")
    letter = _FORMATS.get(f"{form.kind}{form.itemsize}") if form.order != ">" else None
    return view.cast(letter, form.shape) if letter else view  # type: ignore[call-overload]


class GpuArray:
    """Pinned memory of a GPU, for cupy.asarray(), torch.as_tensor(device="cuda") and others, until its `with` ends.

    Its bytes are there: the interface names no stream. Arrays that are made of it must not be used after the `with`.
    """

    def __init__(self, address: int, form: Form):
        self._address = address
        self._form = form

    @property
    def ptr(self) -> int:
        """The address."""
        if not self._address:
            raise EINVAL("the buffer is not pinned any more", hint="use the array inside of `with handle.pin()` only")
        return self._address

    @property
    def nbytes(self) -> int:
        return self._form.nbytes

    @property
    def shape(self) -> tuple[int, ...]:
        return self._form.shape

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        form = self._form
        return {
            "version": 3,
            "data": (self.ptr, False),
            "shape": form.shape,
            "typestr": form.typestr,
            "strides": None,
            "stream": None,
        }

    def release(self) -> None:
        self._address = 0
