# SPDX-License-Identifier: Apache-2.0
"""What counts as memory, and what is found out about it. No service is needed."""

import array
import gc
import mmap
import sys
import types
import weakref

import numpy
import pytest

import spillway
from spillway._content import content_of
from spillway._memory import TYPES, memory_of, writable


class OnGpu:
    """Memory of the host behind the interface of a GPU's."""

    def __init__(self, a, **fields):
        self.a = a
        self.__cuda_array_interface__ = {**a.__array_interface__, "version": 3, **fields}


class Dlpack:
    def __init__(self, a):
        self.a = a

    def __dlpack__(self, stream=None):
        return self.a.__dlpack__()

    def __dlpack_device__(self):
        return self.a.__dlpack_device__()


@pytest.mark.parametrize(
    "dtype, name",
    [
        ("u1", "u8"),
        ("u2", "u16"),
        ("u4", "u32"),
        ("u8", "u64"),
        ("i1", "i8"),
        ("i2", "i16"),
        ("i4", "i32"),
        ("i8", "i64"),
        ("f4", "f32"),
        ("f8", "f64"),
        ("?", "u8"),
        ("M8[ns]", "i64"),
        ("m8[s]", "i64"),
        ("c8", "f32"),
        ("c16", "f64"),
        ("f2", "f16"),
        (">f2", "bytes"),
        (">i4", "bytes"),
        (">i1", "i8"),
        ("S3", "bytes"),
        ("U2", "bytes"),
        ("i4,f8", "bytes"),
    ],
)
def test_type_of_dtype(dtype, name):
    a = numpy.zeros(8, dtype)
    found = memory_of(a)
    assert TYPES[found.type] == name
    assert (found.address, found.nbytes) == (a.ctypes.data, a.nbytes)
    if a.dtype.kind in "iuf" and a.dtype.isnative:
        assert memory_of(Dlpack(a)).type == found.type
        assert memory_of(Dlpack(a)).address == a.ctypes.data


@pytest.mark.parametrize(
    "obj, name, nbytes",
    [
        (bytearray(5), "bytes", 5),
        (b"abc", "bytes", 3),
        (array.array("b", [1]), "i8", 1),
        (memoryview(bytearray(8)).cast("i"), "i32", 8),
        (array.array("d", [1, 2]), "f64", 16),
        (array.array("Q", [1]), "u64", 8),
        (mmap.mmap(-1, 4096), "bytes", 4096),
    ],
)
def test_type_of_buffer(obj, name, nbytes):
    found = memory_of(obj)
    assert (TYPES[found.type], found.nbytes) == (name, nbytes)


def test_not_contiguous():
    a = numpy.zeros((4, 6))
    for bad in (a.T, a[:, ::2], a[::-1], memoryview(bytearray(8))[::2], Dlpack(a.T), OnGpu(a.T)):
        with pytest.raises(spillway.EINVAL, match="is not contiguous .*use "):
            memory_of(bad)
    with pytest.raises(ValueError, match=r"use numpy\.ascontiguousarray\(x\)"):
        memory_of(a.T)
    for good in (a[1:3], a[:1], a[:, :1][:1], a[2:2, ::2], numpy.zeros((5, 1)).T):
        assert memory_of(good).nbytes == good.nbytes


def test_refused():
    with pytest.raises(TypeError, match="int has no __cuda_array_interface__"):
        memory_of(7)
    with pytest.raises(spillway.EINVAL, match="pointers"):
        memory_of(numpy.array([{}, None]))
    with pytest.raises(spillway.EINVAL, match="mask"):
        memory_of(OnGpu(numpy.zeros(3), mask=object()))
    with pytest.raises(spillway.EINVAL, match="read-only.*like=x"):
        writable(b"abc")
    with pytest.raises(spillway.EINVAL, match="nothing to spill"):
        content_of({})


def test_streams():
    """The interface's stream counts, also the default ones, 1 and 2."""
    a = numpy.zeros(3)
    assert content_of(OnGpu(a)).stream() == 0
    for stream in (1, 2, 0x7F00):
        assert content_of(OnGpu(a, stream=stream)).stream() == stream
        assert content_of({"x": OnGpu(a, stream=stream), "y": a}).stream() == stream
    with pytest.raises(spillway.EINVAL, match="different streams.*stream="):
        content_of([OnGpu(a, stream=1), OnGpu(a, stream=2)]).stream()


def test_a_table_is_made_again_without_the_first():
    a = numpy.zeros((2, 3), "i2")
    content = content_of({"x": a, "y": [bytearray(3), array.array("f", [0, 0])]})
    gone = weakref.ref(a)
    make = content.make
    del a, content
    gc.collect()
    assert gone() is None
    made = make()
    assert made["x"].shape == (2, 3) and made["x"].dtype == "i2"
    assert len(made["y"][0]) == 3 and made["y"][1].typecode == "f" and len(made["y"][1]) == 2


class FakeTensor:
    """What is asked of a tensor of PyTorch, with memory of numpy."""

    layout, requires_grad = "strided", True

    def __init__(self, a, device):
        self.a, self.shape, self.dtype = a, a.shape, f"torch.{a.dtype}"
        self.device = types.SimpleNamespace(type=device)

    def __getattr__(self, name):
        values = {"detach": self, "is_conj": False, "is_neg": False, "is_contiguous": self.a.flags.c_contiguous}
        values |= {"stride": self.a.strides, "data_ptr": self.a.ctypes.data, "numel": self.a.size}
        values |= {"element_size": self.a.itemsize, "is_complex": False, "is_floating_point": self.a.dtype.kind == "f"}
        return lambda: values[name]


def test_torch_is_asked_but_not_imported(monkeypatch):
    """The current stream of a tensor's device counts, though it needs a gradient."""
    streams = []

    def current_stream(device):
        streams.append(device.type)
        return types.SimpleNamespace(cuda_stream=0x77)

    torch = types.SimpleNamespace(Tensor=FakeTensor, strided="strided", bool="torch.bool")
    torch.cuda = types.SimpleNamespace(current_stream=current_stream)
    monkeypatch.setitem(sys.modules, "torch", torch)
    for dtype, name in (("f4", "f32"), ("u1", "u8"), ("?", "u8"), ("i8", "i64"), ("f2", "f16")):
        a = numpy.zeros((3, 4), dtype)
        found = memory_of(FakeTensor(a, "cuda"))
        assert (found.address, found.nbytes, found.stream) == (a.ctypes.data, a.nbytes, 0x77)
        assert TYPES[found.type] == name
    for dtype, name in (("bfloat16", "bf16"), ("float8_e4m3fn", "f8"), ("float8_e5m2", "f8")):
        tensor = FakeTensor(a, "cpu")
        tensor.dtype = f"torch.{dtype}"
        assert TYPES[memory_of(tensor).type] == name
    assert memory_of(FakeTensor(a, "cpu")).stream == 0 and streams == ["cuda"] * 5
    with pytest.raises(spillway.EINVAL, match=r"is not contiguous"):
        memory_of(FakeTensor(a.T, "cuda"))
    with pytest.raises(spillway.EINVAL, match="cannot be spilled"):
        memory_of(FakeTensor(a, "meta"))
