# SPDX-License-Identifier: Apache-2.0
"""Arrow arrays of other libraries: by nanoarrow, and by pyarrow where that is installed."""

import contextlib
import ctypes
import gc
import sys
import types

import nanoarrow
import pytest

import spillway
from spillway import _arrow
from spillway._content import content_of
from spillway._memory import TYPES

ARRAYS = [
    nanoarrow.c_array([1, None, 3] * 1000, nanoarrow.int32()),
    nanoarrow.c_array([True, False, None] * 1000, nanoarrow.bool_()),
    nanoarrow.c_array(["one", None, "", "three"] * 1000, nanoarrow.string()),
    nanoarrow.c_array([b"x" * i for i in range(100)], nanoarrow.large_binary()),
    nanoarrow.c_array([1.5, 2.5], nanoarrow.float64()),
    nanoarrow.c_array([], nanoarrow.string()),
]


def values(obj):
    return nanoarrow.Array(obj).to_pylist()


@pytest.mark.parametrize("a", ARRAYS, ids=lambda a: a.schema.format)
def test_every_value_is_back(connection, a):
    region = connection.spill(a).wait()
    back = region.restore(keep=True).wait()
    assert len(back) == a.length and values(back) == values(a)
    assert values(back) == values(a)  # exported again
    assert values(region.restore(like=a).wait()) == values(a)


def test_types_of_buffers():
    types = [TYPES[b.type] for b in content_of(ARRAYS[2]).buffers]
    assert types == ["bytes", "i32", "bytes"]  # validity, offsets, characters
    assert [TYPES[b.type] for b in content_of(ARRAYS[0]).buffers] == ["bytes", "i32"]
    assert [b.nbytes for b in content_of(ARRAYS[5]).buffers] == [0] * 2  # it may have no first offset


@pytest.mark.parametrize(
    "schema, name, nbytes",
    [
        (nanoarrow.int8(), "i8", 1),
        (nanoarrow.uint8(), "u8", 1),
        (nanoarrow.int16(), "i16", 2),
        (nanoarrow.uint16(), "u16", 2),
        (nanoarrow.uint32(), "u32", 4),
        (nanoarrow.int64(), "i64", 8),
        (nanoarrow.uint64(), "u64", 8),
        (nanoarrow.float16(), "f16", 2),
        (nanoarrow.float32(), "f32", 4),
        (nanoarrow.date32(), "i32", 4),
        (nanoarrow.date64(), "i64", 8),
        (nanoarrow.time32("s"), "i32", 4),
        (nanoarrow.time32("ms"), "i32", 4),
        (nanoarrow.time64("us"), "i64", 8),
        (nanoarrow.time64("ns"), "i64", 8),
        (nanoarrow.timestamp("us", timezone="UTC"), "i64", 8),
        (nanoarrow.duration("ms"), "i64", 8),
        (nanoarrow.interval_months(), "i32", 4),
        (nanoarrow.interval_day_time(), "i32", 8),
        (nanoarrow.interval_month_day_nano(), "bytes", 16),
        (nanoarrow.decimal128(30, 2), "dec128", 16),
        (nanoarrow.decimal256(60, 2), "bytes", 32),
        (nanoarrow.fixed_size_binary(5), "bytes", 5),
    ],
    ids=lambda x: nanoarrow.c_schema(x).format if isinstance(x, nanoarrow.Schema) else None,
)
def test_values_of_one_length(schema, name, nbytes):
    """The first value is before the offset of a slice, and belongs to the buffer."""
    a = nanoarrow.c_array_from_buffers(schema, 10, [bytes(2), bytes(11 * nbytes)], null_count=10, offset=1)
    assert [(TYPES[b.type], b.nbytes) for b in content_of(a).buffers] == [("bytes", 2), (name, 11 * nbytes)]


def described(obj):
    """All that an array consists of."""
    a = nanoarrow.c_array(obj)
    schema = a.schema
    return {
        "schema": (schema.format, schema.name, schema.flags, dict(schema.metadata or {})),
        "array": (a.length, a.null_count, a.offset, [bytes(buffer) for buffer in a.view().buffers]),
        "children": [described(child) for child in a.children],
    }


def test_all_of_a_nested_array_is_back(connection):
    n = 1000
    validity = bytes([0x55] * (n // 8))
    numbers = nanoarrow.c_array(range(2 * n), nanoarrow.int64())
    strings = nanoarrow.c_array([str(i) for i in range(n)], nanoarrow.string())
    offsets = memoryview(b"".join((2 * i).to_bytes(4, "little") for i in range(n + 1)))
    fields = {
        "lists": nanoarrow.list_(nanoarrow.int64()),
        "pairs": nanoarrow.fixed_size_list(nanoarrow.int64(), 2),
        "strings": nanoarrow.string(nullable=False),
        "nothing": nanoarrow.null(),
    }
    schema = nanoarrow.c_schema(nanoarrow.struct(fields)).modify(
        name="outer", metadata={b"origin": b"a test", b"of": b"metadata" * 10}
    )
    columns = [
        nanoarrow.c_array_from_buffers(fields["lists"], n, [validity, offsets], children=[numbers]),
        nanoarrow.c_array_from_buffers(fields["pairs"], n, [None], null_count=0, children=[numbers]),
        strings,
        nanoarrow.c_array_from_buffers(fields["nothing"], n, [], null_count=n),
    ]
    a = nanoarrow.c_array_from_buffers(schema, n, [validity], null_count=n // 2, children=columns)
    back = connection.spill(a).wait().restore().wait()
    assert described(back) == described(a)
    assert [address % 64 for address in (m.address for m in content_of(back).buffers)] == [0] * 7


def node(form, sizes, **fields):
    length = fields.pop("length", 3)
    return _arrow.Node(form, b"", b"", 2, length, 0, 0, sizes, **fields)


class Exported:
    """An array of another library, as far as anybody can see."""

    def __init__(self, description, place=None):
        a = _arrow.ArrowArray(description, place or _arrow._Place(1, -1))
        name = "__arrow_c_device_array__" if place and place.is_gpu else "__arrow_c_array__"
        setattr(self, name, getattr(a, name))


def test_dictionaries_and_maps(connection):
    """Nothing of them stays, and the original stays until the spill has ended."""
    words = node(b"u", [None, 12, 9], length=2)
    entries = node(b"+s", [None], children=[node(b"i", [None, 12]), node(b"i", [None, 12])])
    gc.collect()
    before = len(_arrow._kept)
    exported = Exported(node(b"+s", [None], children=[
        node(b"c", [None, 3], dictionary=words), node(b"+m", [None, 16], children=[entries])
    ]))  # fmt: skip
    found = content_of(exported)
    place = [b for b in found.buffers if b.nbytes == 12][0].address
    ctypes.memmove(place, b"".join(i.to_bytes(4, "little") for i in (0, 4, 9)), 12)
    found = content_of(exported)  # now with the length of its characters
    del exported
    gc.collect()
    assert len(_arrow._kept) > before
    assert [b.nbytes for b in found.buffers] == [3, 12, 9, 16, 12, 12]
    made = found.make()
    assert [b.nbytes for b in content_of(made).buffers] == [3, 12, 9, 16, 12, 12]
    capsules = made.__arrow_c_array__()
    schema = _arrow._opened(capsules[0], "arrow_schema", "ArrowSchema")
    a = _arrow._opened(capsules[1], "arrow_array", "ArrowArray")
    assert _arrow.ffi.string(schema.children[0].dictionary.format) == b"u"
    assert a.children[0].dictionary.length == 2 and a.children[1].children[0].length == 3
    a.release(a)
    assert a.release == _arrow.ffi.NULL
    del made, found, schema, a, capsules
    gc.collect()
    assert len(_arrow._kept) == before


class FakeDriver:
    """The driver's functions that are called, for memory of the host."""

    def __init__(self):
        self.waited, self.code = [], 0

    def cuEventSynchronize(self, event):
        self.waited.append(event.value)

    def cuMemcpyDtoH_v2(self, data, address, size):
        ctypes.memmove(data, address.value, size.value)
        return self.code


def test_on_a_gpu(monkeypatch):
    """The producer's work is waited for, and new memory is on the device of the old."""
    current, taken = [], []

    @contextlib.contextmanager
    def device(number):
        current.append(number)
        yield
        current.pop()

    def alloc(nbytes):
        assert nbytes > 0
        taken.append((nbytes, current[-1]))
        memory = ctypes.create_string_buffer(nbytes)
        return types.SimpleNamespace(ptr=ctypes.addressof(memory), memory=memory)

    driver = FakeDriver()
    monkeypatch.setattr(_arrow.ctypes, "CDLL", lambda name: {"libcuda.so.1": driver}[name])
    monkeypatch.setitem(
        sys.modules, "cupy", types.SimpleNamespace(cuda=types.SimpleNamespace(Device=device, alloc=alloc))
    )
    exported = Exported(node(b"u", [None, 16, 0]), _arrow._Place(2, 5))
    assert taken == [(16, 5), (1, 5)]
    capsules = exported.__arrow_c_device_array__()
    exported.__arrow_c_device_array__ = lambda: capsules
    struct = _arrow._opened(capsules[1], "arrow_device_array", "ArrowDeviceArray")
    event = _arrow.ffi.new("void **", _arrow.ffi.cast("void *", 0x77))
    struct.sync_event = event
    ctypes.memmove(int(_arrow.ffi.cast("uintptr_t", struct.array.buffers[1])) + 12, b"\x02\0\0\0", 4)
    found = content_of(exported)
    assert driver.waited == [0x77] and [b.nbytes for b in found.buffers] == [16, 2]
    made = found.make()
    assert taken[2:] == [(16, 5), (2, 5)] and not hasattr(made, "__arrow_c_array__")
    again = _arrow._opened(made.__arrow_c_device_array__()[1], "arrow_device_array", "ArrowDeviceArray")
    assert (again.device_type, again.device_id) == (2, 5)
    driver.code = 700
    with pytest.raises(spillway.EINVAL, match="cannot be read: cuMemcpyDtoH: 700"):
        content_of(exported)
    struct.device_type = 8
    with pytest.raises(spillway.EINVAL, match="of type 8: neither the host nor CUDA"):
        content_of(exported)


def test_slices_keep_their_offset(connection):
    a = nanoarrow.Array(ARRAYS[2]).to_pylist()
    region = connection.spill(nanoarrow.c_array(ARRAYS[2])[1:1001]).wait()
    assert values(region.restore().wait()) == a[1:1001]


def test_in_a_table(connection):
    table = {"names": ARRAYS[2], "raw": bytearray(b"raw")}
    back = connection.spill(table).wait().restore().wait()
    assert values(back["names"]) == values(ARRAYS[2]) and back["raw"] == b"raw"


def test_nothing_stays_after_an_export(connection):
    gc.collect()
    before = len(_arrow._kept), len(_arrow._capsules)
    back = connection.spill(ARRAYS[2]).wait().restore().wait()
    assert values(back) == values(ARRAYS[2])
    unused = back.__arrow_c_array__()
    del unused
    gc.collect()
    assert (len(_arrow._kept), len(_arrow._capsules)) == before


def test_a_restored_array_can_be_written_to(connection):
    region = connection.spill(ARRAYS[2]).wait()
    back = region.restore(keep=True).wait()
    ctypes.memset(content_of(back).buffers[2].address, 0, 3)
    assert values(back)[0] == "\0\0\0"
    assert region.restore(into=back).wait() is back and values(back) == values(ARRAYS[2])


def test_refused(connection):
    region = connection.spill(ARRAYS[0]).wait()
    with pytest.raises(spillway.EINVAL, match="cannot be written to.*like=x"):
        region.restore(into=ARRAYS[0])
    with pytest.raises(spillway.EINVAL, match="'vu' are not known"):
        connection.spill(nanoarrow.c_array(["a"], nanoarrow.string_view()))
    with pytest.raises(spillway.EINVAL, match="no buffers"):
        connection.spill(nanoarrow.c_array_from_buffers(nanoarrow.null(), 2, []))
    with pytest.raises(TypeError, match="a list of them"):
        connection.spill(nanoarrow.ArrayStream(ARRAYS[0]))


def test_pyarrow(connection):
    pyarrow = pytest.importorskip("pyarrow")
    n = 10_000
    nested = pyarrow.array([[{"a": i, "b": str(i)}] * (i % 3) for i in range(n)])
    words = pyarrow.array(["yes", "no", None] * n).dictionary_encode()
    batch = pyarrow.record_batch({
        "nested": nested,
        "words": words[:n],
        "dates": pyarrow.array(range(n), pyarrow.date32()),
        "decimals": pyarrow.array(range(n)).cast(pyarrow.decimal128(30, 2)),
        "pairs": pyarrow.array([[i, i + 1] for i in range(n)], pyarrow.list_(pyarrow.int64(), 2)),
        "fixed": pyarrow.array([b"abcd"] * n, pyarrow.binary(4)),
    })  # fmt: skip
    batch = batch.replace_schema_metadata({"origin": "a test"})
    back = pyarrow.record_batch(connection.spill(batch.slice(100, 5000)).wait().restore().wait())
    back.validate(full=True)
    assert back.equals(batch.slice(100, 5000), check_metadata=True)
    gc.collect()
    assert back.column(1).to_pylist()[0] == batch.column(1).to_pylist()[100]
