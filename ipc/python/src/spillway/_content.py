# SPDX-License-Identifier: Apache-2.0
"""What one region holds: one array, or all arrays of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from . import _arrow
from . import _memory as memory
from ._memory import Content
from .errors import EINVAL


def content_of(obj: Any, find: Callable[[Any], memory.Memory] = memory.memory_of) -> Content:
    """Finds the content of an object; dicts, lists and tuples hold their values' content."""
    if isinstance(obj, Mapping):
        keys = list(obj)
        return _joined(obj, [content_of(obj[key], find) for key in keys], lambda values: dict(zip(keys, values)))
    if isinstance(obj, (list, tuple)):
        return _joined(obj, [content_of(value, find) for value in obj], list if isinstance(obj, list) else tuple)
    if _arrow.speaks_arrow(obj):
        if find is memory.writable and not isinstance(obj, _arrow.ArrowArray):
            raise EINVAL("an Arrow array cannot be written to", hint="restore into a new one: restore(region, like=x)")
        return _arrow.content_of(obj)
    found = find(obj)
    return Content([found], found.make)


def _joined(obj: Any, parts: list[Content], join: Callable[[Any], Any]) -> Content:
    buffers = [buffer for part in parts for buffer in part.buffers]
    if not buffers:
        raise EINVAL(f"an empty {type(obj).__name__} has nothing to spill")
    makes = [part.make for part in parts if part.make is not None]
    knows_all = len(makes) == len(parts)
    return Content(buffers, (lambda: join(make() for make in makes)) if knows_all else None)
