# SPDX-License-Identifier: Apache-2.0
"""Regions, and the tickets of calls that are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ._library import library, make_error, text
from .errors import EAGAIN, SpillwayError

if TYPE_CHECKING:
    from ._connection import Connection

T = TypeVar("T")


@dataclass(frozen=True)
class Result:
    """How a call went. codec, tier, reason, coder: as in spillway.h, "mixed" if parts of it differ."""

    raw_bytes: int
    stored_bytes: int
    service_seconds: float
    codec: str
    tier: str
    reason: str
    coder: str


class Region:
    """Stored bytes. Without a name it is dropped when this object goes; with a name it stays until drop().

    raw_bytes, stored_bytes: before and after compression; their quotient is ratio. name: None if it is not durable.
    """

    def __init__(
        self,
        connection: Connection,
        ids: list[tuple[int, int]],
        lengths: list[int],
        make: Callable[[], Any] | None,
        name: str | None,
        result: Result | None,
    ):
        self._connection = connection
        self._ids = ids
        self._lengths = lengths
        self._make = make
        self._stored = True
        self.name = name
        self.result = result
        self.raw_bytes = sum(lengths)
        self.stored_bytes = result.stored_bytes if result else 0

    @property
    def ratio(self) -> float:
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0

    @property
    def is_stored(self) -> bool:
        """False after a restore without keep=True, after drop(), and when the connection has ended."""
        return self._stored and self._connection._session.is_open

    def restore(self, **options: Any) -> Ticket[Any]:
        """Connection.restore() of this region."""
        return self._connection.restore(self, **options)

    def drop(self) -> None:
        """Connection.drop() of this region."""
        self._connection.drop(self)

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        state = f"{self.raw_bytes} bytes in {self.stored_bytes}" if self.is_stored else "not stored"
        return f"<spillway.Region{name}: {state}>"

    def __del__(self) -> None:
        # The interpreter may be anywhere, so nothing is called here.
        if self.__dict__.get("_stored") and self.name is None:
            self._connection._session.to_drop.extend(self._ids)


class Ticket(Generic[T]):
    """A spill or a restore that is under way. It holds the memory until it completes, then lets go.

    Wait for it by wait(), or by `await` under asyncio. A ticket that is not kept goes on, too, but then a region
    without a name is dropped, unless its result was taken.
    """

    def __init__(self, connection: Connection, held: Any, finish: Callable[[Any], T], n: int, each: bool):
        self._connection = connection  # not closed while a thread waits
        self._session = connection._session
        self._each = each  # requests fail by themselves
        self._held: Any = held
        self._finish: Callable[[Any], T] | None = finish
        self._n = n
        self._handle: Any = None
        self._value: T
        self._error: SpillwayError | None = None
        self._is_done = False
        self._futures: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.results: list[Result | SpillwayError] = []

    def wait(self, timeout: float | None = None) -> T:
        """Waits until it completes, and returns the region, or the object that was restored into.

        timeout: in seconds; then EAGAIN (a TimeoutError), and the call goes on. Raises the call's error. Other threads
        may use the connection meanwhile, and may wait for the same ticket.
        """
        if not self._session.wait(self, timeout):
            raise EAGAIN(f"still running after {timeout} s")
        return self._outcome()

    def done(self) -> bool:
        """Returns whether it has completed. Does not wait."""
        return self._is_done or self._session.wait(self, 0)

    def cancel(self) -> None:
        """Asks to end it early. It still completes, with ECANCELED or as it would have: wait for that."""
        self._session.cancel(self)

    def __await__(self) -> Generator[Any, None, T]:
        yield from self._session.wait_in_loop(self)
        return self._outcome()

    def __repr__(self) -> str:
        state = "running" if not self._is_done else "done" if self._error is None else f"failed: {self._error.name}"
        return f"<spillway.Ticket: {state}>"

    def _outcome(self) -> T:
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._value

    def _complete(self, results: Any, error: SpillwayError | None) -> None:
        self._is_done = True
        self._error = error
        self.results = [result_of(results[i]) for i in range(self._n)] if results is not None else []
        if error is None and self._finish is not None:
            self._value = self._finish(results)
        self._held = self._finish = self._handle = None
        for loop, future in self._futures:
            try:
                loop.call_soon_threadsafe(self._session.tell, loop, future)
            except RuntimeError:  # the loop was closed
                self._session.forget(loop)
        self._futures = []


def result_of(r: Any) -> Result | SpillwayError:
    if r.code:
        return make_error("", r.code, text(library().spillway_error_text(r.code)))
    return Result(
        r.raw_bytes, r.stored_bytes, r.service_us / 1e6, text(r.codec), text(r.tier), text(r.reason), text(r.coder)
    )


def sum_of(results: Sequence[Any]) -> Result:
    """Adds up the results of a region's parts."""
    parts = [result_of(r) for r in results]
    good = [p for p in parts if isinstance(p, Result)]

    def one(name: str) -> str:
        values = {getattr(p, name) for p in good if p.raw_bytes}
        return values.pop() if len(values) == 1 else "mixed" if values else getattr(good[0], name)

    return Result(
        sum(p.raw_bytes for p in good),
        sum(p.stored_bytes for p in good),
        max(p.service_seconds for p in good),
        one("codec"),
        one("tier"),
        one("reason"),
        one("coder"),
    )
