# SPDX-License-Identifier: Apache-2.0
"""More memory than the GPU has, for cuDF: what it would spill to host memory goes to the service, compressed.

    import cudf, spillway.cudf

    spillway.cudf.install()                # before the first DataFrame, and last of all that changes RMM's resource
    frame = cudf.read_parquet("larger-than-the-gpu.parquet")

Needs cuDF 26.10: it builds on names that are private there.
"""

from __future__ import annotations

import functools
import gc
import importlib
import threading
import time
import warnings
from contextlib import ExitStack
from typing import Any

import cudf
import rmm

from ._connection import Connection
from ._ticket import Region, Ticket
from .errors import EBUSY, EINVAL, ERESTARTED, EVERSION, SpillwayError
from .rmm import FailureCallback, RmmPool

__all__ = ["SpillwayManager", "install", "uninstall"]

SERIES = "26.10"
PRIVATE = {
    "cudf.core.abc": ("Serializable._name_type_map",),
    "cudf.core.buffer.buffer": ("BufferOwner.from_device_memory", "host_memory_allocation"),
    "cudf.core.buffer.spill_manager": (
        "SpillManager.add",
        "SpillManager.buffers",
        "SpillManager.spill_device_memory",
        "SpillManager._out_of_memory_handle",
        "SpillStatistics.log_spill",
        "set_global_manager",
        "_global_manager",
        "_global_manager_uninitialized",
    ),
    "cudf.core.buffer.spillable_buffer": (
        "SpillableBuffer.copy",
        "SpillableBuffer.memory_info",
        "SpillableBufferOwner._finalize_init",
        "SpillableBufferOwner.is_spilled",
        "SpillableBufferOwner.memory_info",
        "SpillableBufferOwner.memoryview",
        "SpillableBufferOwner.spill",
        "SpillableBufferOwner.spillable",
    ),
    "cudf.core.buffer.utils": ("SpillableBuffer", "SpillableBufferOwner"),
    "cudf.core.column.column": ("_rebuild_column",),
}


def _private_modules() -> list[Any]:
    """Imports the modules of PRIVATE. Raises EVERSION if this cuDF is another one."""
    hint = f"install cudf-cu13=={SERIES}.*, or use cuDF's own spilling: cudf.set_option('spill', True)"
    if not cudf.__version__.startswith(SERIES + "."):
        raise EVERSION(f"spillway.cudf needs cuDF {SERIES}, and this is {cudf.__version__}", hint=hint)
    modules = []
    for module, names in PRIVATE.items():
        for name in names:
            try:
                functools.reduce(getattr, name.split("."), importlib.import_module(module))
            except (ImportError, AttributeError):
                raise EVERSION(f"cuDF {cudf.__version__} has no {module}.{name}", hint=hint) from None
        modules.append(importlib.import_module(module))
    return modules


_abc, _buffer, _spill_manager, _spillable, _utils, _column = _private_modules()

LEAST_BYTES = 1 << 20
_MOST_AT_ONCE = 64  # buffers of one call
_WAIT_S = 60  # for another thread that spills
# Of the values of libcudf's types, for the array interface; all others are bytes.
_TYPESTRS = {f"{name}{8 * n}": f"{letter}{n}" for name, letter in (("INT", "i"), ("UINT", "u")) for n in (1, 2, 4, 8)}
_TYPESTRS |= {"FLOAT32": "f4", "FLOAT64": "f8", "BOOL8": "u1", "DECIMAL32": "i4", "DECIMAL64": "i8"}
_TYPESTRS |= {"TIMESTAMP_DAYS": "i4", "DURATION_DAYS": "i4"}
_TYPESTRS |= {f"{k}_{u}SECONDS": "i8" for k in ("TIMESTAMP", "DURATION") for u in ("", "MILLI", "MICRO", "NANO")}
_classes = {name: getattr(_spillable, name) for name in ("SpillableBuffer", "SpillableBufferOwner")}  # cuDF's own


def _waited(call: Any) -> Any:
    """Waits for the ticket that call() returns; once more if the service was restarted meanwhile."""
    ticket: Ticket[Any] = call()
    try:
        return ticket.wait()
    except ERESTARTED as error:
        if error.scope != "request":
            raise
    return call().wait()


class _OnGpu:
    """The memory of an owner, for Connection.spill(). Keeps it while the service reads it."""

    def __init__(self, owner: SpillableBufferOwner):
        self._memory = owner._owner
        itemsize = int(owner.typestr[1:])
        typestr, itemsize = (owner.typestr, itemsize) if owner.size % itemsize == 0 else ("u1", 1)
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (owner._ptr, False),
            "shape": (owner.size // itemsize,),
            "typestr": "<" + typestr,
            "strides": None,
        }


class SpillableBufferOwner(_classes["SpillableBufferOwner"]):  # type: ignore[misc]
    """cuDF's owner of memory with one more state: "gpu", "cpu" or "spillway". Then a region has the bytes.

    The region may have several owners, because stored bytes never change. It is dropped with the last one.
    """

    _manager: SpillwayManager
    typestr = "V1"  # of the values, as far as a column has told it

    def spill(self, target: str = "spillway") -> None:
        """Moves the bytes. To "spillway": to host memory if the service cannot take them; no-op if they are there."""
        with self.lock:
            state = self._ptr_desc["type"]
            if state == "spillway" and target != state:
                self._restore(target)
            elif target == "spillway" and state == "gpu":
                if not self.spillable:
                    raise ValueError(f"Cannot in-place move an unspillable buffer: {self}")
                self._manager.store([self])
                if not self.is_spilled:
                    raise MemoryError(f"neither the service nor the host has room for {self.size} bytes")
            elif target != "spillway":
                host = self._ptr_desc.get("memoryview")
                try:
                    super().spill(target)
                except BaseException:
                    if host is not None:  # cuDF has let go of it before it had memory on the GPU
                        self._ptr_desc["memoryview"] = host
                    raise

    def _restore(self, target: str) -> None:
        begun = time.perf_counter()
        if target == "gpu":
            memory = rmm.DeviceBuffer(size=self.size)  # may ask for room, which does not touch a spilled buffer
            self._read(memory)
            self._ptr, self._owner, self._ptr_desc = memory.ptr, memory, {"type": "gpu"}
        elif target == "cpu":
            self._ptr_desc = {"type": "cpu", "memoryview": self._on_host()}
        else:
            raise ValueError(f"Unknown target: {target}")
        self._manager.statistics.log_spill("spillway", target, self.size, time.perf_counter() - begun)

    def _read(self, into: Any) -> None:
        """Reads the region, which stays: after an error it is all there is."""
        region = self._ptr_desc["region"]
        _waited(lambda: region.restore(into=into, keep=True))

    def _on_host(self) -> memoryview:
        host: memoryview = _buffer.host_memory_allocation(self.size)
        self._read(host)
        return host

    def share(self) -> SpillableBufferOwner:
        """Makes another owner of the region. Under the lock."""
        other = type(self)(ptr=0, size=self.size, owner=None)
        other.typestr = self.typestr
        other._finalize_init(ptr_desc=dict(self._ptr_desc))
        return other

    def memory_info(self) -> tuple[int, int, str]:
        """As cuDF's. In the third state there is no address: 0."""
        with self.lock:
            if self._ptr_desc["type"] == "spillway":
                return (0, self.size, "spillway")
            found: tuple[int, int, str] = super().memory_info()
            return found

    def memoryview(self, *, offset: int = 0, size: int | None = None) -> memoryview:
        """As cuDF's. In the third state a copy, and the buffer stays stored."""
        size = self.size if size is None else size
        with self.lock:
            if self._ptr_desc["type"] != "spillway":
                found: memoryview = super().memoryview(offset=offset, size=size)
                return found
            host = self._on_host()
        if size == len(host):
            return host
        part: memoryview = _buffer.host_memory_allocation(size)
        part[:] = host[offset : offset + size]
        return part


class SpillableBuffer(_classes["SpillableBuffer"]):  # type: ignore[misc]
    """A slice of an owner."""

    def memory_info(self) -> tuple[int, int, str]:
        address, size, state = super().memory_info()
        return (0 if state == "spillway" else address, size, state)

    def copy(self, deep: bool = True) -> Any:
        """As cuDF's. Of a whole owner in the third state the copy has the same region."""
        with self._owner.lock:
            if deep and self._owner._ptr_desc["type"] == "spillway" and self.size == self._owner.size:
                return self.__class__(owner=self._owner.share(), offset=0, size=self.size)
        return super().copy(deep=deep)


# The names are cuDF's, so that what is serialized can be read without Spillway. To define them has registered them.
_abc.Serializable._name_type_map.update(_classes)


def _to_host(owner: SpillableBufferOwner) -> int:
    """Spills as cuDF does. Returns the bytes that were freed: 0 if the host has no room."""
    try:
        owner.spill(target="cpu")
    except MemoryError:
        return 0
    return int(owner.size)


class SpillwayManager(_spill_manager.SpillManager):  # type: ignore[misc]
    """cuDF's manager of spillable buffers, over a connection. install() makes it.

    connection: the service's. resource: what is RMM's current resource. statistics: cuDF's, which print well.
    """

    def __init__(
        self,
        connection: Connection,
        device_memory_limit: int | None,
        statistic_level: int,
        pool: RmmPool | None,
        least_bytes: int,
    ):
        super().__init__(device_memory_limit=device_memory_limit, statistic_level=statistic_level)
        self.connection = connection
        self.resource: Any = None
        self._ask_pool = FailureCallback(pool) if pool is not None else None
        self._least_bytes = least_bytes
        self._room = threading.RLock()  # one thread spills at a time
        self._is_spilling = False
        self._spilled = 0  # bytes, so far

    def _out_of_memory_handle(self, nbytes: int, *, retry_once: bool = True) -> bool:
        """RMM's failure callback: cuDF's buffers leave first, least recently used first, then those of the pool."""
        if self.spill_device_memory(nbytes=nbytes) > 0 or (self._ask_pool is not None and self._ask_pool(nbytes)):
            return True  # RMM tries again, and calls this again if that was too little
        # cuDF's collects garbage, and calls this once more.
        return bool(super()._out_of_memory_handle(nbytes, retry_once=retry_once))

    def spill_device_memory(self, nbytes: int) -> int:
        """Spills buffers of cuDF that are not in use, least recently used first. Returns the number of bytes.

        Waits for no lock of a buffer, so that it may be called for room for another one.
        """
        if nbytes <= 0:
            return 0
        before = self._spilled
        if not self._room.acquire(timeout=_WAIT_S):
            return 0
        try:
            if self._is_spilling:  # what is called by a finalizer meanwhile finds nothing
                return 0
            self._is_spilling = True
            try:
                spilled = self._spill_some(nbytes)
            finally:
                self._is_spilling = False
            self._spilled += spilled
            return spilled or self._spilled - before  # what others have spilled while this thread waited
        finally:
            self._room.release()

    def _spill_some(self, nbytes: int) -> int:
        spilled = 0
        with ExitStack() as locked:
            large, chosen = [], 0
            for owner in self.buffers(order_by_access_time=True):
                if chosen >= nbytes:
                    break
                if not owner.lock.acquire(blocking=False):
                    continue
                locked.callback(owner.lock.release)
                if owner.is_spilled or not owner.spillable:
                    continue
                chosen += owner.size
                if owner.size >= self._least_bytes:
                    large.append(owner)
                else:
                    spilled += _to_host(owner)
            for i in range(0, len(large), _MOST_AT_ONCE):
                spilled += self.store(large[i : i + _MOST_AT_ONCE])
        return spilled

    def store(self, owners: list[SpillableBufferOwner]) -> int:
        """Stores owners that are on the GPU, locked and spillable, in one call. Returns the bytes that were freed.

        What the service cannot take goes to host memory, as cuDF does it. Without room there, it stays on the GPU.
        """
        begun = time.perf_counter()
        total, freed, failed = sum(owner.size for owner in owners), 0, None
        outcomes: list[Any]
        try:
            outcomes = _waited(lambda: self.connection.spill_batch([_OnGpu(owner) for owner in owners], each=True))
        except SpillwayError as error:
            outcomes = [error.with_traceback(None)] * len(owners)  # its frames hold the memory
        seconds = time.perf_counter() - begun
        for owner, outcome in zip(owners, outcomes):
            if isinstance(outcome, Region):
                owner._ptr, owner._owner, owner._ptr_desc = 0, None, {"type": "spillway", "region": outcome}
                self.statistics.log_spill("gpu", "spillway", owner.size, seconds * owner.size / total)
                freed += owner.size
            else:
                failed = outcome
                freed += _to_host(owner)
        if failed is not None:
            warnings.warn(
                f"cuDF spills to host memory, uncompressed: {failed.name}: {failed}", RuntimeWarning, stacklevel=2
            )
        return freed


_installed: SpillwayManager | None = None
_undo = ExitStack()


def _replace(module: Any, name: str, value: Any) -> None:
    _undo.callback(setattr, module, name, getattr(module, name))
    setattr(module, name, value)


def _typed(rebuild: Any) -> Any:
    """Has columns tell the owners of their values what these are: the service stores numbers better than bytes."""

    @functools.wraps(rebuild)
    def rebuild_and_tell(col: Any, *arguments: Any, **options: Any) -> Any:
        column = rebuild(col, *arguments, **options)
        data = column.data()
        owner = getattr(data, "owner", None)
        if isinstance(owner, SpillableBufferOwner) and data.size == owner.size:
            owner.typestr = _TYPESTRS.get(col.type().id().name, "V1")
        return column

    return rebuild_and_tell


def _living(cls: type) -> int:
    gc.collect()
    return sum(issubclass(type(obj), cls) for obj in gc.get_objects())


def _check_unused(upstream: Any) -> None:
    """Raises EINVAL unless cuDF has no buffers yet, and nothing else handles RMM's failures."""
    if _installed is not None:
        raise EINVAL("spillway.cudf is installed already")
    n = _living(_buffer.BufferOwner)
    if n:
        raise EINVAL(
            f"cuDF has {n} buffer(s) already, which could not be spilled",
            hint="call spillway.cudf.install() right after `import cudf`",
        )
    if _spill_manager._global_manager is not None:
        raise EINVAL("cuDF's own spilling is on", hint="do not set CUDF_SPILL, nor the option `spill`")
    while upstream is not None:
        if isinstance(upstream, rmm.mr.FailureCallbackResourceAdaptor):
            raise EINVAL(
                "RMM has a failure callback already",
                hint="after pool = spillway.rmm.install() call install(pool=pool), which replaces its callback",
            )
        upstream = upstream.get_upstream() if hasattr(upstream, "get_upstream") else None


def install(
    connection: Connection | None = None,
    *,
    device_memory_limit: int | None = None,
    pool: RmmPool | None = None,
    least_bytes: int = LEAST_BYTES,
    prepare: bool = True,
) -> SpillwayManager:
    """Turns cuDF's spilling on, with the service in the place of host memory. Call it before cuDF has a buffer.

    Where RMM has no room, buffers of cuDF that are not in use are spilled, and the allocation is tried again. The
    current GPU is the one that counts. The stored bytes are lost when the connection ends.

    connection: None: a new one, with all defaults. device_memory_limit: of the buffers of cuDF, in bytes: a soft limit,
    as cuDF's; None: as the option `spill_device_limit` says. pool: what spillway.rmm.install() has returned: its idle
    buffers leave when those of cuDF were not enough. There is one failure callback then. least_bytes: smaller buffers
    go to host memory, as before. prepare: take now what spills need on the GPU.
    """
    global _installed
    current = rmm.mr.get_current_device_resource()
    below = current.get_upstream() if pool is not None and current is pool.resource else current
    _check_unused(below)
    limit = cudf.get_option("spill_device_limit") if device_memory_limit is None else device_memory_limit
    if connection is None:
        connection = Connection()
        _undo.callback(connection.close)
    manager = SpillwayManager(connection, limit, max(1, int(cudf.get_option("spill_stats"))), pool, least_bytes)
    try:
        if prepare:
            connection.prepare(rmm.DeviceBuffer(size=LEAST_BYTES))
        _put_in_place(manager, below, current)
    except BaseException:
        _undo.close()
        raise
    _installed = manager
    return manager


def _put_in_place(manager: SpillwayManager, below: Any, current: Any) -> None:
    for name in ("_global_manager_uninitialized", "_global_manager"):
        _undo.callback(setattr, _spill_manager, name, getattr(_spill_manager, name))
    _spill_manager.set_global_manager(manager)
    _undo.callback(_abc.Serializable._name_type_map.update, _classes)
    for cls in (SpillableBuffer, SpillableBufferOwner):
        _replace(_utils, cls.__name__, cls)
        _abc.Serializable._name_type_map[cls.__name__] = cls
    _replace(_column, "_rebuild_column", _typed(_column._rebuild_column))
    manager.resource = rmm.mr.FailureCallbackResourceAdaptor(below, manager._out_of_memory_handle)
    rmm.mr.set_current_device_resource(manager.resource)
    _undo.callback(_put_back, manager.resource, current)


def _put_back(mine: Any, before: Any) -> None:
    if rmm.mr.get_current_device_resource() is mine:
        rmm.mr.set_current_device_resource(before)


def uninstall() -> None:
    """Makes cuDF as it was. EBUSY: buffers live, whose bytes may be stored. Nothing if it is not installed."""
    global _installed
    if _installed is None:
        return
    n = _living(SpillableBufferOwner)
    if n:
        raise EBUSY(f"{n} buffer(s) of cuDF live", hint="drop all DataFrames first")
    _installed = None
    _undo.close()
