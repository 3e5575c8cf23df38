# SPDX-License-Identifier: Apache-2.0
"""python -m spillway probe FILE."""

from __future__ import annotations

import ast
import mmap
import os
import time
from typing import Any

from . import _memory
from ._connection import Connection
from ._ticket import Region
from .errors import EINVAL

_ROUNDS = 3
_TYPES = {f"{kind}{size}": f"{kind}{size * 8}" for kind in "iuf" for size in (1, 2, 4, 8)}


class Values:
    """The values of a file, mapped into memory. type: from the header of a NumPy file, or None."""

    def __init__(self, data: memoryview, type_: str | None):
        self.data, self.type, self.nbytes = data, type_, data.nbytes


def read(path: str, type_: str | None) -> Values:
    _memory.type_number(type_)
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise EINVAL(f"{path} is empty")
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))  # copied if it is written to: never
    if bytes(data[:6]) != b"\x93NUMPY":
        return Values(data, None)
    wide = data[6] > 1
    begin = 12 if wide else 10
    end = begin + int.from_bytes(data[8:begin], "little")
    descr = ast.literal_eval(bytes(data[begin:end]).decode("latin1").strip())["descr"]
    return Values(data[end:], _TYPES.get(descr[1:]) if isinstance(descr, str) and descr[0] in "<|" else None)


def tier_bytes(size: int) -> int:
    """Room for the file even if it does not shrink, but no more than half of the machine's memory."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    need = max(256 << 20, size + size // 16 + (64 << 20))
    return min(need, most) >> 21 << 21


def _timed(call: Any) -> tuple[float, Any]:
    """Calls it, and returns how many seconds it took, with its outcome."""
    begun = time.perf_counter()
    outcome = call()
    return time.perf_counter() - begun, outcome


def run(connection: Connection, path: str, values: Values, type_: str | None) -> int:
    """Prints ratio, codec and rates; the best of three rounds, since the first one takes memory."""
    type_ = type_ or values.type
    source, target = bytearray(values.data), bytearray(values.nbytes)
    outs, backs = [], []
    region: Region
    for _ in range(_ROUNDS):
        seconds, region = _timed(lambda: connection.spill(source, type=type_).wait())
        outs.append(seconds)
        backs.append(_timed(lambda: region.restore(into=target).wait())[0])
    result = region.result
    assert result is not None
    status = connection.status()
    same = source == target
    print(f"file      {path}: {values.nbytes} bytes, as {type_ or 'bytes'}")
    print(f"service   spillwayd {status.version} on {status.device}, by {connection.socket}")
    where = f"{result.codec} in {result.tier} ({result.reason})"
    print(f"stored    {region.stored_bytes} bytes, ratio {region.ratio:.3f}, {where}")
    for name, times in (("spill", outs), ("restore", backs)):
        rate = f"{values.nbytes / min(times) / 1e9:.2f} GB/s ({min(times) * 1e3:.1f} ms)"
        print(f"{name:9} {rate}, of host memory")
    print(f"verified  {'every byte is back' if same else 'THE BYTES DIFFER'}")
    return 0 if same else 1
