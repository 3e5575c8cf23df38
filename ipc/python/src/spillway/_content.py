# SPDX-License-Identifier: Apache-2.0
"""What one region holds: one array, or all arrays of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

from . import _memory as memory
from .errors import EINVAL


@dataclass
class Content:
    """The buffers of a region. make: makes an object of the same shape with memory of its own; None: not known how."""

    buffers: list[memory.Memory]
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


def content_of(obj: Any, find: Callable[[Any], memory.Memory] = memory.memory_of) -> Content:
    """Finds the content of an object; dicts, lists and tuples hold the content of their values."""
    if isinstance(obj, Mapping):
        keys = list(obj)
        return _joined(obj, [content_of(obj[key], find) for key in keys], lambda values: dict(zip(keys, values)))
    if isinstance(obj, (list, tuple)):
        return _joined(obj, [content_of(value, find) for value in obj], list if isinstance(obj, list) else tuple)
    found = find(obj)
    return Content([found], found.make)


def _joined(obj: Any, parts: list[Content], join: Callable[[Any], Any]) -> Content:
    buffers = [buffer for part in parts for buffer in part.buffers]
    if not buffers:
        raise EINVAL(f"an empty {type(obj).__name__} has nothing to spill")
    makes = [part.make for part in parts if part.make is not None]
    knows_all = len(makes) == len(parts)
    return Content(buffers, (lambda: join(make() for make in makes)) if knows_all else None)
