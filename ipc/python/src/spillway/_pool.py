# SPDX-License-Identifier: Apache-2.0
"""The buffer manager: idle buffers leave the GPU for others, and come back when they are pinned."""

from __future__ import annotations

import collections
import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _memory as memory
from . import _pool_memory as pool_memory
from ._connection import open_error, open_options
from ._library import ffi, library, new_error, raised, sized, text
from ._pool_cdef import CONSTANTS
from ._pool_memory import Allocator, Form
from .errors import EBUSY, EINVAL, SpillwayError

_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


@dataclass(frozen=True)
class PoolStats:
    """Counts of a pool: now (handles to held_bytes), and so far. spillway_pool.h says what each is."""

    handles: int
    live: int
    spilled: int
    pinned: int
    live_bytes: int
    spilled_bytes: int
    stored_bytes: int
    held_bytes: int
    hits: int
    waits: int
    restores: int
    evictions: int
    failed_restores: int
    failed_spills: int


@dataclass(frozen=True)
class HandleInfo:
    """state: "empty", "live", "spilling", "spilled", "restoring" or "lost". stored_bytes: 0: the service has none."""

    nbytes: int
    stored_bytes: int
    pins: int
    state: str
    codec: str


class Pool:
    """Buffers that share the memory of a GPU, or of the host. Any thread may use it, and it is a context manager.

        with spillway.Pool(budget=8 << 30) as pool:
            column = pool.new(1_000_000, "f4")
            with column.pin() as array:          # its memory is there, with its bytes
                cupy.asarray(array)[:] = 1
                                                 # from here on the pool may spill it

    A buffer is idle when it has no pins, and the work has ended that was queued on its pins' streams before these
    ended. Idle buffers are spilled and their memory is freed when others need it: those of lower keep_priority first,
    then those that were used longest ago. What cannot be spilled stays.

    budget: limit of the buffers' memory in bytes; None: none, and buffers leave only when the allocator fails or
    make_room() is called. allocator: gives memory. None: the pool's own, on a GPU if this process has loaded the CUDA
    driver, else on the host. gpu: its number for this; loads the driver. wait: for how long calls that need room wait
    for streams and for pins of others, in seconds. prepare: take now what spills need on the GPU, so that they work
    when it is full. connections: at most 16; one is enough unless this process copies the memory. The others are as in
    Connection.

    No call holds the interpreter's lock or the pool's while it waits or allocates.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        budget: int | None = None,
        allocator: Allocator | None = None,
        gpu: int | None = None,
        wait: float = 1,
        prepare: bool = True,
        connections: int = 1,
        codec: str | None = None,
        connect_timeout: float | None = 10,
        server_uid: int | None = None,
    ):
        self._c: Any = None
        self._lib = library()
        self._process = os.getpid()
        self._lock = threading.RLock()  # finalizers of the program may call anything, at any time
        self._quiet = threading.Condition(self._lock)
        self._users = 0  # calls that run
        self._dropped: collections.deque[Any] = collections.deque()
        self._numbers: set[int] = set()
        if gpu is not None:
            pool_memory.load_driver()
        connection = open_options(socket, codec, connect_timeout, server_uid=server_uid)
        options, ret, error = sized("spillway_pool_options"), ffi.new("struct spillway_pool **"), new_error()
        o = options[0]
        o.connection, o.n_connections = connection, connections
        o.flags = 0 if prepare else CONSTANTS["POOL_UNPREPARED"]
        o.budget_bytes, o.gpu = budget or 0, gpu or 0
        o.wait_ms = max(1, round(wait * 1000)) if wait > 0 else -1
        if allocator is not None:
            self._numbers.add(pool_memory.set_allocator(o.allocator, allocator, True))
        if self._lib.spillway_pool_create(ret, options, error) < 0:
            pool_memory.forget(self._numbers)
            path = os.fsdecode(ffi.string(connection[0].socket_path))
            raise open_error(raised(error), path) from pool_memory.take_error()
        self._c = ret[0]
        _pools.add(self)

    # ---- calls

    def _check_open(self) -> None:
        if self._c is None:
            raise EINVAL("the pool is closed", "session")
        if self._process != os.getpid():
            raise EINVAL(
                f"the pool belongs to process {self._process}, which has forked this one: make another one here",
                "session",
            )

    def _call(self, owner: Any, function: Any, *arguments: Any, c: Any = None, frees: bool = True) -> None:
        """Calls a function of the library on the pool or one of its handles, or on `c`, which belonged to one.

        frees: first frees what finalizers have queued.
        """
        error = new_error()
        with self._lock:
            self._check_open()
            if owner._c is None and c is None:
                raise EINVAL("the handle is closed")
            self._users += 1
            if owner is not self:
                owner._users += 1
        try:
            if frees:
                self._free_dropped()
            pool_memory.take_error()  # that of an earlier call
            code = function(owner._c if c is None else c, *arguments, error)
        finally:
            with self._lock:
                self._users -= 1
                if owner is not self:
                    owner._users -= 1
                self._quiet.notify_all()
        if code < 0:
            raise raised(error) from pool_memory.take_error()

    def _free_dropped(self) -> None:
        """Frees the handles that finalizers have queued. In a call."""
        while self._dropped:
            try:
                c = self._dropped.popleft()
            except IndexError:  # another thread has taken it
                return
            self._lib.spillway_handle_free(c, ffi.NULL)  # one that is still pinned stays until the pool ends

    # ---- buffers

    def new(
        self,
        shape: int | tuple[int, ...],
        dtype: Any = "u1",
        *,
        keep_priority: int = 0,
        stays: bool = False,
        constant: bool = False,
    ) -> Handle:
        """Makes a new buffer without memory: the first pin allocates it, of undefined content.

        dtype: "f4", "<i8", or a dtype of numpy. keep_priority: 0 to 255; lower ones leave first. stays: it is never
        spilled. constant: the bytes do not change after the first pin, so a second eviction moves nothing.
        """
        form = pool_memory.form_of_dtype(dtype, shape)
        options = _handle_options(form, keep_priority, stays, constant)
        return self._make(self._lib.spillway_pool_new, form, options)

    def adopt(
        self,
        obj: Any,
        *,
        stream: Any = None,
        keep_priority: int = 0,
        stays: bool = False,
        constant: bool = False,
    ) -> Handle:
        """Makes a buffer of an array's memory and bytes.

        The pool holds the array, and lets go when it evicts the buffer: the memory is free if you have dropped it, too.
        After that the buffer's memory is the pool's allocator's. stream: the bytes are there after its work so far;
        None: the one that the array names, else its framework's current one.
        """
        return self._adopt(self._lib.spillway_pool_adopt, obj, stream, (keep_priority, stays, constant), None)

    def watch(
        self,
        obj: Any,
        evicted: Callable[[], Any],
        *,
        refill: Callable[[int], Any] | None = None,
        stream: Any = None,
        keep_priority: int = 0,
        stays: bool = False,
        constant: bool = False,
    ) -> Handle:
        """Makes a buffer of memory that you free yourself, as adopt().

        evicted: is called when the bytes are stored and nothing uses the memory: free it there. The pool has let go of
        obj then. refill: returns an object with memory for a restore, or None if there is none; it gets the stream's
        handle. Without it the memory comes from the pool's allocator. Both are called in the thread that needs the
        room or the bytes. When the handle is closed, the memory is yours again, without a call of evicted.
        """
        return self._adopt(
            self._lib.spillway_pool_watch, obj, stream, (keep_priority, stays, constant), (evicted, refill)
        )

    def _adopt(self, function: Any, obj: Any, stream: Any, flags: tuple[int, bool, bool], owner: Any) -> Handle:
        found = memory.writable(obj)
        form = pool_memory.form_of(obj, found.nbytes)
        options = _handle_options(form, *flags)
        options[0].type = found.type
        number = (found.stream or 0) if stream is None else pool_memory.stream_of(stream)
        options[0].stream = ffi.cast("struct CUstream_st *", number)
        holder: Any = pool_memory.Watched(found.keep, found.nbytes, *owner) if owner else pool_memory.Held(found.keep)
        allocates = owner is not None and owner[1] is not None
        mine = pool_memory.set_allocator(options[0].allocator, holder, allocates)
        try:
            handle = self._make(function, form, options, ffi.cast("void *", found.address))
        except BaseException:
            pool_memory.forget({mine})
            raise
        with self._lock:
            self._numbers.add(mine)
        return handle

    def _make(self, function: Any, form: Form, options: Any, *arguments: Any) -> Handle:
        ret = ffi.new("struct spillway_handle **")
        self._call(self, function, *arguments, options, ret)
        return Handle(self, ret[0], form)

    # ---- room

    def make_room(self, nbytes: int) -> int:
        """Spills idle buffers until at least nbytes were freed. Returns the bytes that were freed: fewer, perhaps 0, if
        no more are idle.

        For handlers of out-of-memory errors. Allocates no GPU memory, and may be called inside an allocator. If nothing
        could be freed because spills fail, raises the first one's error.
        """
        before = self._stats(frees=False).held_bytes if self._dropped else 0
        freed = max(0, before - self.stats().held_bytes) if before else 0  # of handles that the program has dropped
        ret = ffi.new("uint64_t *")
        try:
            if freed < nbytes:
                self._call(self, self._lib.spillway_pool_make_room, nbytes - freed, ret)
        except SpillwayError as error:
            if freed + ret[0] == 0 and not isinstance(error, MemoryError):
                raise
        return freed + int(ret[0])

    def set_budget(self, nbytes: int | None) -> None:
        """Changes the budget; None: none. The next pin that needs memory keeps to it."""
        self._call(self, self._lib.spillway_pool_set_budget, nbytes or 0)

    def prepare(self, obj: Any) -> None:
        """Takes now what spills of this kind of memory need on the GPU. For memory that is adopted or watched."""
        self._call(self, self._lib.spillway_pool_prepare, ffi.cast("void *", memory.memory_of(obj).address))

    def stats(self) -> PoolStats:
        return self._stats(frees=True)

    def _stats(self, frees: bool) -> PoolStats:
        stats = sized("spillway_pool_stats")
        self._call(self, self._lib.spillway_pool_stats, stats, frees=frees)
        return PoolStats(*(getattr(stats[0], name) for name in PoolStats.__dataclass_fields__))

    # ---- the end

    def close(self) -> None:
        """Frees all buffers, whose bytes are gone, and closes the connections. Nothing if the pool is closed.

        Waits for calls of other threads and for the streams of pins. Arrays that are still pinned must not be used.
        """
        if self._process != os.getpid():
            return
        if pool_memory.is_in_callback():
            raise EINVAL("a pool cannot be closed by a callback of an allocator")
        with self._lock:
            c, self._c = self._c, None
            while c is not None and self._users > 0:
                self._quiet.wait()
        if c is None:
            return
        self._lib.spillway_pool_close(c)
        pool_memory.forget(self._numbers)

    def _die_in_child(self) -> None:
        """After fork(): the pool is the parent's. The library only closes this process's copies of descriptors."""
        self._lock = threading.RLock()
        self._quiet = threading.Condition(self._lock)
        if self._c is not None:
            self._lib.spillway_pool_close(self._c)
            # The handles' finalizers go on queueing; the queue is no longer read.

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self.__dict__.get("_c") is not None and self._process == os.getpid() and not sys.is_finalizing():
            self.close()

    def __repr__(self) -> str:
        return f"<spillway.Pool{'' if self._c is not None else ', closed'}>"


def _handle_options(form: Form, keep_priority: int, stays: bool, constant: bool) -> Any:
    if not 0 <= keep_priority <= 255:
        raise EINVAL(f"keep_priority={keep_priority}, must be 0 to 255")
    options = sized("spillway_handle_options")
    o = options[0]
    o.bytes, o.type, o.keep_priority = form.nbytes, form.type, keep_priority
    o.flags = (CONSTANTS["HANDLE_STAYS"] if stays else 0) | (CONSTANTS["HANDLE_CONSTANT"] if constant else 0)
    return options


class Handle:
    """One buffer of a pool. It is freed when this object goes, or by close().

    nbytes, shape, dtype (as in numpy's array interface).
    """

    def __init__(self, pool: Pool, c: Any, form: Form):
        self._pool = pool
        self._c = c
        self._form = form
        self._users = 0  # calls that run
        self.nbytes = form.nbytes
        self.shape = form.shape
        self.dtype = form.typestr

    def pin(self, stream: Any = None) -> Pin:
        """Keeps the buffer's memory in its place during a `with`, and restores its bytes first if they are spilled.

            with handle.pin(stream) as array:
                cupy.asarray(array)[:] = 1

        The array has __cuda_array_interface__, and nothing has to be waited for. On the host it is a memoryview. It
        must not be used after the `with`, nor what is made of it: CuPy does not notice, and reads memory of others.
        stream: where the work on it is queued: the pool waits for what is queued there when the `with` ends. None: the
        current stream of CuPy or PyTorch. Pins nest, also of several threads; order their streams yourself.
        """
        return Pin(self, pool_memory.stream_of(stream))

    def prefetch(self, stream: Any = None) -> None:
        """Starts to restore the buffer if it is spilled, and does not wait. Evicts nothing: ENOMEM if there is no room."""
        number = ffi.cast("struct CUstream_st *", pool_memory.stream_of(stream))
        self._pool._call(self, self._pool._lib.spillway_handle_prefetch, number)

    def spill(self) -> None:
        """Stores the bytes and frees the memory now. EBUSY: it is pinned, or its streams still work on it."""
        self._pool._call(self, self._pool._lib.spillway_handle_spill)

    def info(self) -> HandleInfo:
        info = sized("spillway_handle_info")
        self._pool._call(self, self._pool._lib.spillway_handle_query, info)
        i = info[0]
        return HandleInfo(i.bytes, i.stored_bytes, i.pins, text(i.state), text(i.codec))

    def close(self) -> None:
        """Frees the buffer, whose bytes are gone. EBUSY: it is pinned, or another thread uses it."""
        pool = self._pool
        with pool._lock:
            if self._c is None or pool._c is None or pool._process != os.getpid():
                return
            if self._users > 0:
                raise EBUSY("another thread uses the handle")
            c, self._c = self._c, None
        try:
            pool._call(self, pool._lib.spillway_handle_free, c=c)
        except SpillwayError:
            self._c = c
            raise

    def __del__(self) -> None:
        if self.__dict__.get("_c") is not None:
            self._pool._dropped.append(self._c)

    def __repr__(self) -> str:
        return f"<spillway.Handle of {self.nbytes} bytes>"


class Pin:
    """What Handle.pin() returns: pinned inside of `with`."""

    def __init__(self, handle: Handle, stream: int):
        self._handle = handle
        self._stream = ffi.cast("struct CUstream_st *", stream)
        self._array: Any = None

    def __enter__(self) -> Any:
        if self._array is not None:
            raise EINVAL("one pin() is for one `with`", hint="call pin() again: pins nest")
        handle, ret = self._handle, ffi.new("void **")
        handle._pool._call(handle, handle._pool._lib.spillway_handle_pin, self._stream, ret)
        address = int(ffi.cast("uintptr_t", ret[0]))
        on_gpu = pool_memory.is_on_gpu(address)
        make: Any = pool_memory.GpuArray if on_gpu else pool_memory.host_array
        self._array = make(address, handle._form)
        return self._array

    def __exit__(self, *_: object) -> None:
        array, self._array = self._array, None
        handle = self._handle
        try:
            array.release()
        except BufferError:  # a numpy array of it lives, and the program does not use it any more
            pass
        handle._pool._call(handle, handle._pool._lib.spillway_handle_unpin, self._stream)


def _die_in_child() -> None:
    for pool in list(_pools):
        pool._die_in_child()


os.register_at_fork(after_in_child=_die_in_child)
