# SPDX-License-Identifier: Apache-2.0
"""Arrow arrays, by the C data interface and the C device data interface, of any library that speaks them.

An array is a tree of nodes, each with buffers. Their lengths follow from the format, for strings from the last offset.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from dataclasses import dataclass, field
from typing import Any

import cffi

from ._memory import Content, Memory, type_number
from .errors import EINVAL

ffi = cffi.FFI()
ffi.cdef("""
struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
struct ArrowDeviceArray {
    struct ArrowArray array;
    int64_t device_id;
    int32_t device_type;
    void *sync_event;
    int64_t reserved[3];
};
""")

_HOST, _CUDA = (1, 3), (2, 13)  # ARROW_DEVICE_CPU, CUDA_HOST; CUDA, CUDA_MANAGED
_ALIGN = 64
_FIXED = {  # format: type, bytes
    "c": ("i8", 1), "C": ("u8", 1), "s": ("i16", 2), "S": ("u16", 2), "i": ("i32", 4), "I": ("u32", 4), "l": ("i64", 8),
    "L": ("u64", 8), "e": ("f16", 2), "f": ("f32", 4), "g": ("f64", 8), "tdD": ("i32", 4), "tdm": ("i64", 8),
    "tts": ("i32", 4), "ttm": ("i32", 4), "ttu": ("i64", 8), "ttn": ("i64", 8), "tiM": ("i32", 4), "tiD": ("i32", 8),
    "tin": ("bytes", 16),
}  # fmt: skip
_OFFSETS = {"u": 4, "z": 4, "U": 8, "Z": 8, "+l": 4, "+m": 4, "+L": 8}


@dataclass
class Node:
    """One array of a tree, without its memory. sizes: of its buffers; None: there is none."""

    format: bytes
    name: bytes
    metadata: bytes
    flags: int
    length: int
    null_count: int
    offset: int
    sizes: list[int | None] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    dictionary: Node | None = None


class _Place:
    """Where the memory of an array is: reads from it what the lengths depend on."""

    def __init__(self, device_type: int, device_id: int):
        self.is_gpu, self.device_id = device_type in _CUDA, device_id
        if not self.is_gpu and device_type not in _HOST:
            raise EINVAL(f"an Arrow array on a device of type {device_type}: neither the host nor CUDA")

    def read(self, address: int, size: int) -> int:
        if not self.is_gpu:
            return int.from_bytes(ffi.buffer(ffi.cast("char *", address), size), "little")
        data = ctypes.create_string_buffer(size)
        code = ctypes.CDLL("libcuda.so.1").cuMemcpyDtoH_v2(data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        if code:
            raise EINVAL(f"an offset of the Arrow array cannot be read: cuMemcpyDtoH: {code}")
        return int.from_bytes(data.raw, "little")


def _fixed(form: str) -> tuple[str, int] | None:
    """Returns type and length of the values of a format, if all values have one length."""
    if form.startswith(("ts", "tD")):
        return "i64", 8
    if form.startswith("w:"):
        return "bytes", int(form[2:])
    if form.startswith("d:"):
        parts = form[2:].split(",")
        size = int(parts[2]) // 8 if len(parts) > 2 else 16
        return {4: "i32", 8: "i64", 16: "dec128"}.get(size, "bytes"), size
    return _FIXED.get(form)


def _buffers(form: str, n: int, addresses: list[int], place: _Place) -> list[tuple[str, int]]:
    """Returns type and length of each buffer of an array with n values, the ones before its offset included."""
    fixed, validity = _fixed(form), ("bytes", (n + 7) // 8)
    if form == "n":
        return []
    if fixed:
        return [validity, (fixed[0], n * fixed[1])]
    if form == "b":
        return [validity, validity]
    if form == "+s" or form.startswith("+w:"):
        return [validity]
    if form not in _OFFSETS:
        raise EINVAL(f"Arrow arrays of format {form!r} are not known", hint="cast it to a type without views or unions")
    width = _OFFSETS[form]
    offsets = (f"i{width * 8}", (n + 1) * width if n else 0)
    if form.startswith("+"):
        return [validity, offsets]
    return [validity, offsets, ("bytes", place.read(addresses[1] + n * width, width) if n else 0)]


def _metadata(pointer: Any) -> bytes:
    """Copies the metadata of a schema: a number of pairs, each text with its length in front."""
    if pointer == ffi.NULL:
        return b""
    end = 4
    for _ in range(2 * int.from_bytes(ffi.buffer(pointer, 4), sys.byteorder)):
        end += 4 + int.from_bytes(ffi.buffer(pointer + end, 4), sys.byteorder)
    return bytes(ffi.buffer(pointer, end))


def _look(schema: Any, a: Any, place: _Place, found: list[Memory]) -> Node:
    """Describes an array, and adds its buffers to `found`."""
    form: Any = ffi.string(schema.format)
    name: Any = ffi.string(schema.name) if schema.name != ffi.NULL else b""
    node = Node(form, name, _metadata(schema.metadata), schema.flags, a.length, a.null_count, a.offset)
    addresses = [int(ffi.cast("uintptr_t", a.buffers[i])) for i in range(a.n_buffers)]
    for address, (type_, size) in zip(addresses, _buffers(form.decode(), a.length + a.offset, addresses, place)):
        node.sizes.append(size if address else None)
        if address:
            found.append(Memory(address, size, type_number(type_) or 0, keep=None, readonly=True))
    node.children = [_look(schema.children[i], a.children[i], place, found) for i in range(a.n_children)]
    if a.dictionary != ffi.NULL:
        node.dictionary = _look(schema.dictionary, a.dictionary, place, found)
    return node


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _opened(capsule: Any, name: str, struct: str) -> Any:
    return ffi.cast(f"struct {struct} *", _capsule_pointer(capsule, name.encode()))


def speaks_arrow(obj: Any) -> bool:
    return hasattr(obj, "__arrow_c_device_array__") or hasattr(obj, "__arrow_c_array__")


def content_of(obj: Any) -> Content:
    """Finds the buffers of an Arrow array. Its producer's work on a GPU is waited for."""
    if isinstance(obj, ArrowArray):
        return Content(obj._buffers, lambda: ArrowArray(obj._node, obj._place))
    if hasattr(obj, "__arrow_c_device_array__"):
        capsules = obj.__arrow_c_device_array__()
        device = _opened(capsules[1], "arrow_device_array", "ArrowDeviceArray")
        a, place = device.array, _Place(device.device_type, device.device_id)
        if device.sync_event != ffi.NULL:
            event = ffi.cast("void **", device.sync_event)[0]
            ctypes.CDLL("libcuda.so.1").cuEventSynchronize(ctypes.c_void_p(int(ffi.cast("uintptr_t", event))))
    else:
        capsules = obj.__arrow_c_array__()
        a, place = _opened(capsules[1], "arrow_array", "ArrowArray"), _Place(_HOST[0], -1)
    found: list[Memory] = []
    node = _look(_opened(capsules[0], "arrow_schema", "ArrowSchema"), a, place, found)
    if not found:
        raise EINVAL("the Arrow array has no buffers, so there is nothing to spill")
    for memory in found:
        memory.keep = capsules  # they give the array back
    return Content(found, lambda: ArrowArray(node, place))


def _allocate(size: int, place: _Place) -> tuple[int, Any]:
    """Returns the address of new memory, and what holds it."""
    if not place.is_gpu:
        data = ffi.new("char[]", size + _ALIGN)
        return (int(ffi.cast("uintptr_t", data)) + _ALIGN - 1) // _ALIGN * _ALIGN, data
    if "cupy" in sys.modules:
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(place.device_id):
            memory = cupy.cuda.alloc(max(size, 1))
        return int(memory.ptr), memory
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        tensor = torch.empty(max(size, 1), dtype=torch.uint8, device=f"cuda:{place.device_id}")
        return int(tensor.data_ptr()), tensor
    raise EINVAL("there is nothing to allocate GPU memory with", hint="import cupy or torch")


class ArrowArray:
    """A restored Arrow array. Any library that knows Arrow takes it, such as pyarrow.array() or polars.Series().

    It has `__arrow_c_array__` in host memory, or `__arrow_c_device_array__` on a GPU.
    """

    def __init__(self, node: Node, place: _Place):
        self._node, self._place = node, place
        self._buffers: list[Memory] = []
        self._reserve(node)

    def _reserve(self, node: Node) -> None:
        for size in node.sizes:
            if size is not None:
                address, keep = _allocate(size, self._place)
                self._buffers.append(Memory(address, size, 0, keep=keep))
        for child in [*node.children, *([node.dictionary] if node.dictionary else [])]:
            self._reserve(child)

    def __len__(self) -> int:
        return self._node.length

    def __getattr__(self, name: str) -> Any:
        if name == ("__arrow_c_device_array__" if self._place.is_gpu else "__arrow_c_array__"):
            return self._export_device if self._place.is_gpu else self._export
        raise AttributeError(name)

    def _export(self, requested_schema: Any = None) -> tuple[Any, Any]:
        a = ffi.new("struct ArrowArray *")
        _fill_array(a, self._node, iter(self._buffers))
        return self._schema(), _capsule(a, "arrow_array", a)

    def _export_device(self, requested_schema: Any = None, **_: Any) -> tuple[Any, Any]:
        device: Any = ffi.new("struct ArrowDeviceArray *")
        _fill_array(device.array, self._node, iter(self._buffers))
        device.device_type, device.device_id = _CUDA[0], self._place.device_id
        return self._schema(), _capsule(device, "arrow_device_array", ffi.addressof(device[0], "array"))

    def _schema(self) -> Any:
        schema = ffi.new("struct ArrowSchema *")
        _fill_schema(schema, self._node)
        return _capsule(schema, "arrow_schema", schema)


# ---- export: what a struct points to stays until its release is called, wherever the struct has been moved

_numbers = itertools.count(1)
_kept: dict[int, Any] = {}


def _release(struct: Any) -> None:
    children = [struct.children[i] for i in range(struct.n_children)]
    for child in [*children, *([struct.dictionary] if struct.dictionary != ffi.NULL else [])]:
        if child.release != ffi.NULL:
            child.release(child)
    _kept.pop(int(ffi.cast("uintptr_t", struct.private_data)), None)
    struct.release = ffi.NULL


_release_array = ffi.callback("void(struct ArrowArray *)", _release)
_release_schema = ffi.callback("void(struct ArrowSchema *)", _release)


def _adopt(struct: Any, release: Any, kind: str, parts: list[Any], dictionary: Any, *keep: Any) -> None:
    """Fills in what arrays and schemas have in common, and keeps what they point to."""
    children = ffi.new(f"struct {kind} *[]", parts)
    struct.n_children, struct.children = len(parts), children
    struct.dictionary = dictionary or ffi.NULL
    number = next(_numbers)
    _kept[number] = (children, parts, dictionary, keep)
    struct.private_data, struct.release = ffi.cast("void *", number), release


def _fill_array(a: Any, node: Node, buffers: Any) -> None:
    mine = [None if size is None else next(buffers) for size in node.sizes]
    pointers = ffi.new("const void *[]", [ffi.cast("void *", m.address if m else 0) for m in mine])
    parts = [ffi.new("struct ArrowArray *") for _ in node.children]
    for part, child in zip(parts, node.children):
        _fill_array(part, child, buffers)
    dictionary = ffi.new("struct ArrowArray *") if node.dictionary else None
    if node.dictionary:
        _fill_array(dictionary, node.dictionary, buffers)
    a.length, a.null_count, a.offset = node.length, node.null_count, node.offset
    a.n_buffers, a.buffers = len(mine), pointers
    _adopt(a, _release_array, "ArrowArray", parts, dictionary, pointers, mine)


def _fill_schema(schema: Any, node: Node) -> None:
    form, name, metadata = (ffi.new("char[]", text) for text in (node.format, node.name, node.metadata))
    parts = [ffi.new("struct ArrowSchema *") for _ in node.children]
    for part, child in zip(parts, node.children):
        _fill_schema(part, child)
    dictionary = ffi.new("struct ArrowSchema *") if node.dictionary else None
    if node.dictionary:
        _fill_schema(dictionary, node.dictionary)
    schema.format, schema.name, schema.flags = form, name, node.flags
    schema.metadata = metadata if node.metadata else ffi.NULL
    _adopt(schema, _release_schema, "ArrowSchema", parts, dictionary, form, name, metadata)


_capsules: dict[int, tuple[Any, Any]] = {}  # by the address of the struct


def _forget(capsule: int) -> None:
    """The destructor of a capsule: if the struct still has its release, no consumer has moved it."""
    name = _name_of_dying(capsule)
    _, base = _capsules.pop(_pointer_of_dying(capsule, name))
    if base.release != ffi.NULL:
        base.release(base)


_destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_forget)
_name_of_dying = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer_of_dying = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_NAMES = {
    name: ctypes.create_string_buffer(name.encode()) for name in ("arrow_schema", "arrow_array", "arrow_device_array")
}


def _capsule(struct: Any, name: str, base: Any) -> Any:
    address = int(ffi.cast("uintptr_t", struct))
    _capsules[address] = (struct, base)
    return _new_capsule(address, ctypes.cast(_NAMES[name], ctypes.c_char_p), ctypes.cast(_destructor, ctypes.c_void_p))
