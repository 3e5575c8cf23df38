# SPDX-License-Identifier: Apache-2.0
"""What counts as memory, and what is found out about it. No service is needed."""

import array
import ctypes
import gc
import mmap
import sys
import types
import weakref

import numpy
import pytest

import spillway
from spillway._content import content_of
from spillway._frameworks import stream_pointer
from spillway._memory import TYPES, _DLTensor, memory_of, writable

HOST, PINNED, CUDA, MANAGED, METAL = 1, 3, 2, 13, 8  # devices of DLPack


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


class Tensor:
    """Three values of any DLPack type, in memory of numpy."""

    def __init__(self, code=2, bits=32, lanes=1, offset=0, device=HOST):
        self.a = numpy.zeros(1024, "u1")
        self.device, self.asked, self.given_back = device, [], []
        self._shape = (ctypes.c_int64 * 1)(3)
        self._struct = _DLTensor(self.a.ctypes.data, device, 0, 1, code, bits, lanes, self._shape, None, offset)
        self._destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self.given_back.append)

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **options):
        self.asked.append(options)
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
            ("PyCapsule_New", ctypes.pythonapi)
        )
        return new(ctypes.addressof(self._struct), b"dltensor", ctypes.cast(self._destructor, ctypes.c_void_p))


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
        (memoryview(numpy.zeros(2, ">i4")), "bytes", 8),
        (memoryview(numpy.zeros(2, "f2")), "f16", 4),
        (memoryview(numpy.zeros(2, "?")), "u8", 2),
        ((ctypes.c_int32 * 2)(), "i32", 8),  # its format begins with <
    ],
)
def test_type_of_buffer(obj, name, nbytes):
    found = memory_of(obj)
    assert (TYPES[found.type], found.nbytes) == (name, nbytes)


@pytest.mark.parametrize(
    "code, bits, lanes, name",
    [
        (0, 8, 1, "i8"),
        (1, 16, 1, "u16"),
        (2, 32, 1, "f32"),
        (2, 32, 2, "bytes"),
        (4, 16, 1, "bf16"),
        (5, 64, 1, "f32"),  # complex
        (6, 8, 1, "u8"),  # bool
        (7, 8, 1, "f8"),
        (14, 8, 1, "f8"),
        (15, 3, 8, "bytes"),
    ],
)
def test_type_of_dlpack(code, bits, lanes, name):
    tensor = Tensor(code, bits, lanes, offset=8)
    found = memory_of(tensor)
    assert TYPES[found.type] == name
    assert (found.address, found.nbytes) == (tensor.a.ctypes.data + 8, 3 * bits * lanes // 8)


def test_devices_of_dlpack():
    """Work on a GPU is ordered behind the default stream, and the tensor is given back when nobody needs it."""
    for device, stream, options in (
        (HOST, None, {}),
        (PINNED, None, {}),
        (CUDA, 1, {"stream": 1}),
        (MANAGED, 1, {"stream": 1}),
    ):
        tensor = Tensor(device=device)
        found = memory_of(tensor)
        assert (found.stream, tensor.asked, tensor.given_back) == (stream, [options], [])
        del found
        assert len(tensor.given_back) == 1
    with pytest.raises(spillway.EINVAL, match="type 8: neither the host nor CUDA"):
        memory_of(Tensor(device=METAL))
    with pytest.raises(spillway.EINVAL, match="values of 4 bits"):
        memory_of(Tensor(bits=4))


def test_a_buffer_stays_where_it_is():
    data = bytearray(b"abc")
    found = memory_of(data)
    with pytest.raises(BufferError):
        data.extend(bytes(1000))
    del found
    data.extend(bytes(1000))


def test_a_view_is_made_again():
    made = memory_of(memoryview(bytearray(24)).cast("i", (2, 3))).make()
    assert (type(made), made.format, made.shape) == (memoryview, "i", (2, 3))
    assert memory_of(memoryview(b"")).make().nbytes == 0


def test_not_contiguous():
    a = numpy.zeros((4, 6))
    for bad in (a.T, a[:, ::2], a[::-1], memoryview(bytearray(8))[::2], Dlpack(a.T), OnGpu(a.T)):
        with pytest.raises(spillway.EINVAL, match="is not contiguous .*use "):
            memory_of(bad)
    with pytest.raises(ValueError, match=r"use numpy\.ascontiguousarray\(x\)"):
        memory_of(a.T)
    for good in (a[1:3], a[:1], a[:, :1][:1], a[2:2, ::2], numpy.zeros((5, 1)).T):
        assert memory_of(good).nbytes == good.nbytes
    # The strides of a single value, and those of no values, do not matter.
    assert memory_of(OnGpu(numpy.zeros((4, 1)), strides=(8, 999))).nbytes == 32
    assert memory_of(OnGpu(a[2:2], strides=(999, 999))).nbytes == 0


def test_refused():
    with pytest.raises(TypeError, match="int has no __cuda_array_interface__"):
        memory_of(7)
    with pytest.raises(spillway.EINVAL, match="pointers"):
        memory_of(numpy.array([{}, None]))
    with pytest.raises(spillway.EINVAL, match="mask"):
        memory_of(OnGpu(numpy.zeros(3), mask=object()))
    with pytest.raises(spillway.EINVAL, match="read-only.*like=x"):
        writable(b"abc")
    with pytest.raises(spillway.EINVAL, match="pointers"):
        memory_of(numpy.zeros(3, [("number", "i8"), ("object", "O")]))
    with pytest.raises(spillway.EINVAL, match="no pointer"):
        memory_of(OnGpu(numpy.zeros(3), data=None))
    a = numpy.zeros(3)
    a.flags.writeable = False
    with pytest.raises(spillway.EINVAL, match="read-only.*like=x"):
        writable(a)
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


def test_handles_of_streams():
    """A number, or what a framework's stream has: CuPy, PyTorch, Numba, CUDA Python. None in it: the default stream."""
    assert stream_pointer(5) == 5
    for name in ("ptr", "cuda_stream", "handle"):
        assert stream_pointer(types.SimpleNamespace(**{name: 6})) == 6
        assert stream_pointer(types.SimpleNamespace(**{name: ctypes.c_void_p(7)})) == 7
        assert stream_pointer(types.SimpleNamespace(**{name: ctypes.c_void_p()})) == 0
    assert stream_pointer(types.SimpleNamespace(__cuda_stream__=lambda: (0, 8))) == 8
    with pytest.raises(TypeError, match="its handle"):
        stream_pointer("8")


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


def test_lists_and_tuples_are_made_again_as_such():
    a = numpy.zeros(3)
    assert type(content_of([a]).make()) is list and type(content_of((a,)).make()) is tuple
    assert content_of((a, OnGpu(a))).make is None  # it is not known how to make the second


class FakeTensor:
    """What is asked of a tensor of PyTorch, with memory of numpy."""

    layout, requires_grad = "strided", True

    def __init__(self, a, device):
        self.a, self.shape, self.dtype = a, a.shape, f"torch.{a.dtype}"
        self.device = types.SimpleNamespace(type=device)
        self.answers = {}  # other than usual

    def __getattr__(self, name):
        values = {"detach": self, "is_conj": False, "is_neg": False, "is_contiguous": self.a.flags.c_contiguous}
        values |= {"stride": self.a.strides, "data_ptr": self.a.ctypes.data, "numel": self.a.size}
        values |= {"element_size": self.a.itemsize, "is_complex": self.a.dtype.kind == "c"}
        values |= {"is_floating_point": self.a.dtype.kind == "f"}
        return lambda: (values | self.answers)[name]


def test_torch_is_asked_but_not_imported(monkeypatch):
    """The current stream of a tensor's device counts, though it needs a gradient."""
    streams = []

    def current_stream(device):
        streams.append(device.type)
        return types.SimpleNamespace(cuda_stream=0x77)

    torch = types.SimpleNamespace(Tensor=FakeTensor, strided="strided", bool="torch.bool")
    torch.empty = lambda shape, dtype, device: (shape, dtype, device.type)
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
    assert memory_of(FakeTensor(a, "cpu")).make() == ((3, 4), "torch.float16", "cpu")
    tensor = FakeTensor(numpy.zeros(3, "c8"), "cpu")
    assert TYPES[memory_of(tensor).type] == "f32"
    for answers, layout in (({"is_conj": True}, "strided"), ({"is_neg": True}, "strided"), ({}, "sparse_coo")):
        tensor = FakeTensor(a, "cpu")
        tensor.answers, tensor.layout = answers, layout
        with pytest.raises(spillway.EINVAL, match="no plain memory.*to_dense"):
            memory_of(tensor)


class FakeJaxArray:
    """What is asked of an array of JAX, with memory of numpy."""

    def __init__(self, a, devices=("gpu 1",), is_ready=False):
        self.a, self.shape, self.dtype, self.nbytes, self.is_ready = a, a.shape, a.dtype, a.nbytes, is_ready
        self.devices = lambda: set(devices)

    def block_until_ready(self):
        self.is_ready = True
        return self

    def unsafe_buffer_pointer(self):
        assert self.is_ready
        return self.a.ctypes.data


def test_jax_is_waited_for(monkeypatch):
    a = numpy.zeros((3, 4), "f4")
    jax = types.SimpleNamespace(Array=FakeJaxArray)
    jax.numpy = types.SimpleNamespace(
        empty=lambda shape, dtype, device=None: FakeJaxArray(numpy.empty(shape, dtype), (device,))
    )
    monkeypatch.setitem(sys.modules, "jax", jax)
    found = memory_of(FakeJaxArray(a))
    assert (found.address, found.nbytes, TYPES[found.type]) == (a.ctypes.data, a.nbytes, "f32")
    made = found.make()
    assert made.is_ready and made.shape == (3, 4) and made.devices() == {"gpu 1"}
    with pytest.raises(spillway.EINVAL, match="several devices"):
        memory_of(FakeJaxArray(a, ("gpu 0", "gpu 1")))
    with pytest.raises(spillway.EINVAL, match="JAX array cannot be written to"):
        writable(FakeJaxArray(a))


def test_cupy_is_asked_for_its_stream_and_its_device(monkeypatch):
    """Both are those of the array's device, which need not be the current one."""
    current = []

    class Device:
        def __init__(self, number):
            self.id = number

        def __enter__(self):
            current.append(self.id)

        def __exit__(self, *_):
            current.pop()

    class FakeCupyArray(OnGpu):
        shape, dtype, device = (3,), numpy.dtype("f8"), Device(5)

    cupy = types.SimpleNamespace(ndarray=FakeCupyArray, empty=lambda shape, dtype: (shape, dtype, list(current)))
    cupy.cuda = types.SimpleNamespace(
        Device=Device, get_current_stream=lambda: types.SimpleNamespace(ptr=0x70 + current[-1])
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    a = numpy.zeros(3)
    found = memory_of(FakeCupyArray(a))
    assert found.stream == 0x75 and found.make() == ((3,), numpy.dtype("f8"), [5])
    assert memory_of(FakeCupyArray(a, stream=2)).stream == 2


def test_a_device_buffer_is_made_again(monkeypatch):
    class FakeDeviceBuffer(OnGpu):
        def __init__(self, size):
            super().__init__(numpy.zeros(size, "u1"))

    monkeypatch.setitem(sys.modules, "rmm", types.SimpleNamespace(DeviceBuffer=FakeDeviceBuffer))
    assert memory_of(FakeDeviceBuffer(7)).make().a.nbytes == 7
