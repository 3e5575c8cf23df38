# SPDX-License-Identifier: Apache-2.0
"""Finds the memory of any object that offers it: address, length, type of its values, stream, and how to make another
object of this shape."""

from __future__ import annotations

import array
import ctypes
import math
import re
import sys
from dataclasses import dataclass
from typing import Any, Callable

from . import _frameworks as frameworks
from ._cdef import CONSTANTS
from ._library import ffi
from .errors import EINVAL

TYPES = ("bytes", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f32", "f64", "bf16", "f16", "f8", "dec128")


@dataclass
class Memory:
    """A contiguous range of memory.

    keep: holds the memory. make: makes an object of the same kind and shape with memory of its own, or None if that is
    not known. stream: None if the interface does not say it and the default stream will do.
    """

    address: int
    nbytes: int
    type: int
    keep: Any
    readonly: bool = False
    stream: int | None = None
    make: Callable[[], Any] | None = None


@dataclass
class Content:
    """The buffers of a region. make: makes an object of the same shape with memory of its own; None: not known how."""

    buffers: list[Memory]
    make: Callable[[], Any] | None = None

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers)

    def stream(self) -> int:
        """Returns the stream that all buffers can be ordered behind."""
        streams = {buffer.stream for buffer in self.buffers if buffer.stream is not None}
        if len(streams) > 1:
            raise EINVAL(
                "the arrays were used on different streams", hint="synchronise them, and name one of them: stream="
            )
        return streams.pop() if streams else 0


def type_number(name: str | None) -> int | None:
    """Returns the number of a type that the caller has named."""
    if name is None:
        return None
    if name not in TYPES:
        raise EINVAL(f"type={name!r} is none of {', '.join(TYPES)}")
    return CONSTANTS[name.upper()]


def _type(kind: str, itemsize: int, byteorder: str = "<", name: str = "") -> int:
    """Returns the type for a kind of numpy's array interface; what is no number counts as bytes. name: the dtype's, for
    those that numpy does not have."""
    if name.endswith("bfloat16"):
        return CONSTANTS["BF16"]
    if "float8" in name:
        return CONSTANTS["F8"]
    if kind in "Mm":  # dates and durations are counted in 64 bits
        kind = "i"
    elif kind == "c":
        kind, itemsize = "f", itemsize // 2
    elif kind == "b":
        kind = "u"
    if kind not in "iuf" or (byteorder == ">" and itemsize > 1):
        return CONSTANTS["BYTES"]
    return CONSTANTS.get(f"{kind.upper()}{itemsize * 8}", CONSTANTS["BYTES"])


def _not_contiguous(obj: Any, shape: Any, strides: Any) -> EINVAL:
    framework = type(obj).__module__.partition(".")[0]
    fix = frameworks.CONTIGUOUS.get(framework, "a contiguous copy")
    return EINVAL(
        f"{type(obj).__name__} of shape {tuple(shape)} and strides {tuple(strides)} is not contiguous",
        hint=f"use {fix}",
    )


def _check_contiguous(obj: Any, shape: Any, strides: Any, itemsize: int) -> None:
    if strides is None or 0 in shape:
        return
    expected = itemsize
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != expected:
            raise _not_contiguous(obj, shape, strides)
        expected *= length


def _of_interface(obj: Any, interface: dict[str, Any]) -> Memory:
    """__cuda_array_interface__ and __array_interface__ have the same fields."""
    if interface.get("mask") is not None:
        raise EINVAL(f"{type(obj).__name__} has a mask", hint="spill the values and the mask, as a dict of two arrays")
    typestr = interface["typestr"]
    shape = tuple(interface["shape"])
    kind, digits = typestr[1], re.match(r"\d+", typestr[2:])
    if kind == "O" or not digits:
        raise EINVAL("an array of Python objects holds pointers, which cannot be stored")
    itemsize = int(digits[0]) * (4 if kind == "U" else 1)
    _check_contiguous(obj, shape, interface.get("strides"), itemsize)
    data = interface.get("data")
    if data is None:
        raise EINVAL(f"{type(obj).__name__}: its interface has no pointer")
    stream = interface.get("stream")
    return Memory(
        address=data[0] or 0,
        nbytes=math.prod(shape) * itemsize,
        readonly=bool(data[1]),
        keep=obj,
        type=_type(kind, itemsize, typestr[0], str(getattr(obj, "dtype", ""))),
        stream=None if stream is None else int(stream),
    )


def _of_cuda_array(obj: Any) -> Memory:
    memory = _of_interface(obj, obj.__cuda_array_interface__)
    if memory.stream is None:
        memory.stream = frameworks.current_stream(obj)
    if frameworks.is_cupy(obj):
        cupy, device, shape, dtype = sys.modules["cupy"], obj.device.id, obj.shape, obj.dtype

        def make() -> Any:
            with cupy.cuda.Device(device):
                return cupy.empty(shape, dtype)

        memory.make = make
    elif frameworks.isinstance_of(obj, "rmm", "DeviceBuffer"):
        rmm, nbytes = sys.modules["rmm"], memory.nbytes
        memory.make = lambda: rmm.DeviceBuffer(size=nbytes)
    return memory


def _of_numpy(obj: Any) -> Memory:
    memory = _of_interface(obj, obj.__array_interface__)
    if frameworks.isinstance_of(obj, "numpy", "ndarray"):
        empty, shape, dtype = sys.modules["numpy"].empty, obj.shape, obj.dtype
        if dtype.hasobject:
            raise EINVAL("an array of Python objects holds pointers, which cannot be stored")
        memory.make = lambda: empty(shape, dtype)
    return memory


def _of_torch(obj: Any) -> Memory:
    torch, t = sys.modules["torch"], obj.detach()
    if t.layout != torch.strided or t.is_conj() or t.is_neg():
        raise EINVAL(f"a tensor of layout {t.layout} is no plain memory", hint="use x.to_dense().resolve_conj()")
    if not t.is_contiguous():
        raise _not_contiguous(obj, t.shape, t.stride())
    if t.device.type not in ("cuda", "cpu"):
        raise EINVAL(f"a tensor on {t.device} cannot be spilled")
    is_unsigned = t.dtype == torch.bool or str(t.dtype).startswith("torch.uint")
    kind = "f" if t.is_floating_point() else "c" if t.is_complex() else "u" if is_unsigned else "i"
    shape, dtype, device = t.shape, t.dtype, t.device
    return Memory(
        address=t.data_ptr(),
        nbytes=t.numel() * t.element_size(),
        keep=obj,
        type=_type(kind, t.element_size(), name=str(t.dtype)),
        stream=frameworks.current_stream(t) if device.type == "cuda" else 0,
        make=lambda: torch.empty(shape, dtype=dtype, device=device),
    )


def _of_jax(obj: Any) -> Memory:
    """JAX has no streams for others, so its work is waited for. Its arrays never change, so they count as read-only."""
    obj.block_until_ready()
    if len(obj.devices()) != 1:
        raise EINVAL("the array lies on several devices", hint="spill its addressable_shards one by one: x.data")
    numpy_, shape, dtype, (device,) = sys.modules["jax"].numpy, obj.shape, obj.dtype, obj.devices()

    def make() -> Any:
        return numpy_.empty(shape, dtype, device=device).block_until_ready()

    return Memory(
        address=obj.unsafe_buffer_pointer(),
        nbytes=obj.nbytes,
        type=_type(dtype.kind, dtype.itemsize, name=str(dtype)),
        keep=obj,
        readonly=True,
        make=make,
    )


def _of_buffer(obj: Any) -> Memory:
    view = memoryview(obj)
    if not view.c_contiguous:
        raise _not_contiguous(obj, view.shape, view.strides)
    # Bytes without a type are text more often than numbers.
    order, letter = (view.format[0], view.format[1:]) if view.format[0] in "@=<>!" else ("=", view.format)
    kind = "i" if letter in set("bhilqn") else "u" if letter in set("HILQN?") else "f" if letter in set("efd") else "V"
    nbytes, form, shape = view.nbytes, view.format, view.shape or ()

    def make() -> Any:
        if isinstance(obj_type, type) and issubclass(obj_type, array.array):
            return array.array(form, bytes(nbytes))
        if obj_type is memoryview:
            return memoryview(bytearray(nbytes)).cast(form, shape) if nbytes else memoryview(b"")  # type: ignore
        return bytearray(nbytes)

    obj_type = type(obj)
    data = ffi.from_buffer(view)
    return Memory(
        address=int(ffi.cast("uintptr_t", data)),
        nbytes=nbytes,
        keep=(obj, data),
        readonly=view.readonly,
        type=_type(kind, view.itemsize, ">" if order in ">!" else "<"),
        make=make,
    )


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DL_HOST = (1, 3)  # kDLCPU, kDLCUDAHost
_DL_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged
_DL_KINDS = {0: "i", 1: "u", 2: "f", 4: "bfloat", 5: "c", 6: "u"}  # 7 to 14: floats of 8 bits
_DEFAULT_STREAM = 1  # for DLPack, which has no name for "not said"


def _of_dlpack(obj: Any) -> Memory:
    kind, _ = obj.__dlpack_device__()
    if kind not in _DL_HOST + _DL_CUDA:
        raise EINVAL(f"{type(obj).__name__} is on a DLPack device of type {int(kind)}: neither the host nor CUDA")
    stream = (frameworks.current_stream(obj) or _DEFAULT_STREAM) if kind in _DL_CUDA else None
    capsule = obj.__dlpack__() if stream is None else obj.__dlpack__(stream=stream)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    if tensor.bits * tensor.lanes % 8:
        raise EINVAL(f"values of {tensor.bits * tensor.lanes} bits cannot be spilled")
    itemsize = tensor.bits * tensor.lanes // 8
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(s * itemsize for s in tensor.strides[: tensor.ndim]) if tensor.strides else None
    _check_contiguous(obj, shape, strides, itemsize)
    kind_of_code = "V" if tensor.lanes > 1 else "f" if 7 <= tensor.code <= 14 else _DL_KINDS.get(tensor.code, "V")
    name = "bfloat16" if kind_of_code == "bfloat" else ""
    return Memory(
        address=(tensor.data or 0) + tensor.byte_offset,
        nbytes=math.prod(shape) * itemsize,
        stream=stream,
        type=_type(kind_of_code[0], itemsize, name=name),
        keep=(obj, capsule),
    )  # the capsule gives the memory back


def memory_of(obj: Any) -> Memory:
    """Finds the memory of an object. Raises TypeError if it has none, and EINVAL if it is not contiguous."""
    if frameworks.is_torch(obj):
        return _of_torch(obj)
    if frameworks.is_jax(obj):
        return _of_jax(obj)
    if getattr(obj, "__cuda_array_interface__", None) is not None:
        return _of_cuda_array(obj)
    if getattr(obj, "__array_interface__", None) is not None:
        return _of_numpy(obj)
    if hasattr(obj, "__arrow_c_stream__"):
        raise TypeError(
            f"{type(obj).__name__} is a stream of Arrow batches: spill a list of them, or a dict of columns"
        )
    try:
        memoryview(obj)
    except TypeError:
        pass
    else:
        return _of_buffer(obj)
    if hasattr(obj, "__dlpack__"):
        return _of_dlpack(obj)
    raise TypeError(f"{type(obj).__name__} has no __cuda_array_interface__, no __dlpack__ and no buffer protocol")


def writable(obj: Any) -> Memory:
    """As memory_of(), for memory that a restore will fill."""
    memory = memory_of(obj)
    if memory.readonly and frameworks.is_jax(obj):
        raise EINVAL("a JAX array cannot be written to", hint="restore into a new one: restore(region, like=x)")
    if memory.readonly:
        raise EINVAL(f"{type(obj).__name__} is read-only", hint="restore into a new one: restore(region, like=x)")
    return memory
