# SPDX-License-Identifier: Apache-2.0
"""A connection of the library, for any number of threads and event loops: one lock, and who waits for what."""

from __future__ import annotations

import asyncio
import collections
import os
import select
import threading
import time
import weakref
from collections.abc import Generator
from typing import Any

from . import errors
from ._library import ffi, library, new_error, raised, sized
from ._ticket import Ticket

_DROPS_AT_ONCE = 4096

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """Serialises the calls of the library by one lock, which no thread holds while it waits for a ticket.

    Whoever finds that tickets have completed completes them for all. Of the threads that wait, one polls the library's
    descriptor, and the others wait for it; an event loop watches the same descriptor.
    """

    def __init__(self, options: Any):
        self._lib = library()
        self._lock = threading.RLock()  # finalizers of the program may call anything, at any time
        self._progress = threading.Condition(self._lock)
        self._is_polling = False
        self._process = os.getpid()
        self._running: dict[int, Ticket[Any]] = {}
        self._loops: dict[asyncio.AbstractEventLoop, int] = {}
        self.to_drop: collections.deque[tuple[int, int]] = collections.deque()
        self.is_open = False
        handle, error = ffi.new("struct spillway **"), new_error()
        if self._lib.spillway_open(handle, options, error) < 0:
            raise raised(error)
        self._c = handle[0]
        self._fd = os.dup(self._lib.spillway_fd(self._c))  # stays valid while a thread polls it
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.is_open = True
        _sessions.add(self)

    def fileno(self) -> int:
        self._check_open()
        return int(self._lib.spillway_fd(self._c))

    def _check_open(self) -> None:
        if self.is_open:
            return
        if self._process != os.getpid():
            text = (
                f"the connection belongs to process {self._process}, which has forked this one: open another one here"
            )
            raise errors.EINVAL(text, "session")
        raise errors.ECONN("the connection is closed", "session")

    def start(self, function: Any, requests: Any, ticket: Ticket[Any]) -> None:
        """Calls spillway_spill() or spillway_restore()."""
        handle, error = ffi.new("struct spillway_ticket **"), new_error()
        with self._lock:
            self._check_open()
            self._drop_queued()
            if function(self._c, requests, len(requests), handle, error) < 0:
                raise raised(error)
            ticket._handle = handle[0]
            self._running[int(ffi.cast("uintptr_t", handle[0]))] = ticket
            if self._is_polling:
                os.eventfd_write(self._wake, 1)  # the thread that polls copies what this process has to copy

    def ask(self, function: Any, *arguments: Any) -> int:
        """Calls a function that waits for the service's answer, with the lock. Returns what it returns."""
        error = new_error()
        with self._lock:
            self._check_open()
            self._drop_queued()
            code = int(function(self._c, *arguments, error))
        if code < 0:
            raise raised(error)
        return code

    def _drop_queued(self) -> None:
        """Drops the regions that finalizers have queued. Under the lock."""
        if self.to_drop:
            ids = [self.to_drop.popleft() for _ in range(min(len(self.to_drop), _DROPS_AT_ONCE))]
            # Fails for those that are gone already, which need not be dropped.
            self._lib.spillway_drop(self._c, ffi.new("struct spillway_region[]", ids), len(ids), ffi.NULL)

    # ---- progress

    def _pump(self) -> None:
        """Takes in replies without waiting, and completes tickets. Under the lock."""
        error = new_error()
        self._lib.spillway_dispatch(self._c, error)
        n = 0
        # What a ticket lets go may call anything, also close().
        while self.is_open and (handle := self._lib.spillway_next_done(self._c)) != ffi.NULL:
            ticket = self._running.pop(int(ffi.cast("uintptr_t", handle)))
            results = sized("spillway_result", ticket._n)
            code = self._lib.spillway_wait(handle, 0, results, ticket._n, error)
            self._lib.spillway_ticket_free(handle)
            ticket._complete(results, None if code == 0 or ticket._each else raised(error))
            n += 1
        if n and self.is_open:
            self._announce()

    def _announce(self) -> None:
        """Wakes the threads that wait. Under the lock."""
        self._progress.notify_all()
        if self._is_polling:
            os.eventfd_write(self._wake, 1)

    def wait(self, ticket: Ticket[Any], timeout: float | None) -> bool:
        """Waits for a ticket; False: not in time. One of the threads that wait polls, the others wait for it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            mine = False
            try:
                with self._lock:
                    if not ticket._is_done:
                        self._check_open()
                        self._pump()
                    if ticket._is_done:
                        return True
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return False
                    if self._is_polling:
                        self._progress.wait(left)
                        continue
                    mine = self._is_polling = True
                self._poll(left)
            finally:
                if mine:
                    self._stop_polling()

    def _stop_polling(self) -> None:
        with self._lock:
            self._is_polling = False
            self._progress.notify()  # another thread polls now
            self._close_descriptors()

    def _poll(self, seconds: float | None) -> None:
        """Sleeps until the library or another thread has something to do. Without the lock."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        for fd, _ in poll.poll(None if seconds is None else seconds * 1000):
            if fd == self._wake:
                try:
                    os.eventfd_read(self._wake)
                except BlockingIOError:
                    pass

    def cancel(self, ticket: Ticket[Any]) -> None:
        with self._lock:
            if not ticket._is_done and self.is_open:
                error = new_error()
                if self._lib.spillway_cancel(ticket._handle, error) < 0:
                    raise raised(error)

    def dispatch(self) -> None:
        with self._lock:
            self._check_open()
            self._pump()

    # ---- asyncio

    def wait_in_loop(self, ticket: Ticket[Any]) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if not ticket._is_done:
                self._check_open()
                self._pump()
            if ticket._is_done:
                return
            ticket._futures.append((loop, future))
            if loop not in self._loops:
                loop.add_reader(self._fd, self._on_readable)
            self._loops[loop] = self._loops.get(loop, 0) + 1
        try:
            yield from future
        except asyncio.CancelledError:
            self.cancel(ticket)
            raise

    def _on_readable(self) -> None:
        with self._lock:
            if self.is_open:
                self._pump()

    def tell(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        """Ends one wait of an event loop. In the loop's thread."""
        with self._lock:
            self._loops[loop] -= 1
            if not self._loops[loop]:
                del self._loops[loop]
                loop.remove_reader(self._fd)
                self._close_descriptors()
        if not future.done():
            future.set_result(None)

    def forget(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop was closed before its call has completed. Under the lock."""
        self._loops.pop(loop, None)

    # ---- the end

    def close(self) -> None:
        """Ends the connection: cancels what runs, and drops regions without a name. Nothing if it has ended.

        If calls run, waits until the service no longer uses their memory, at most 10 s.
        """
        with self._lock:
            if not self.is_open:
                return
            self.is_open = False
            c, self._c = self._c, None
            self._lib.spillway_close(c)
            for ticket in self._running.values():
                ticket._complete(None, errors.ECONN("the connection was closed", "session"))
            self._running.clear()
            self._announce()
            self._close_descriptors()

    def _close_descriptors(self) -> None:
        """Closes the descriptors when no thread polls them any more. Needs the lock."""
        if not self.is_open and not self._is_polling and not self._loops and self._fd >= 0:
            os.close(self._fd)
            os.close(self._wake)
            self._fd = self._wake = -1

    def _die_in_child(self) -> None:
        """After fork(): the connection is the parent's, and so is the memory that its tickets hold.

        The child gives up its copies of the descriptors, or the service would not see the parent's end. The library
        does nothing else when it closes a connection in a child.
        """
        self._lock = threading.RLock()
        self._progress = threading.Condition(self._lock)
        self._is_polling = False
        self._loops = {}
        self.to_drop.clear()
        if self.is_open:
            self.is_open = False
            self._lib.spillway_close(self._c)
            self._c = None
            self._close_descriptors()
            for ticket in self._running.values():
                ticket._is_done = True
                ticket._error = errors.EINVAL("the call belongs to the process that forked this one", "session")


def _die_in_child() -> None:
    for session in list(_sessions):
        session._die_in_child()


def close_all() -> None:
    for session in list(_sessions):
        session.close()


os.register_at_fork(after_in_child=_die_in_child)
