# SPDX-License-Identifier: Apache-2.0
"""Arrow arrays of other libraries: by nanoarrow, and by pyarrow where that is installed."""

import gc

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


def test_refused(connection):
    region = connection.spill(ARRAYS[0]).wait()
    with pytest.raises(spillway.EINVAL, match="cannot be written to.*like=x"):
        region.restore(into=ARRAYS[0])
    with pytest.raises(spillway.EINVAL, match="'vu' are not known"):
        connection.spill(nanoarrow.c_array(["a"], nanoarrow.string_view()))
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
