# SPDX-License-Identifier: Apache-2.0
"""What spillway.cudf uses of cuDF 26.10: its private classes of spillable buffers, over memory of the host.

test_cudf.py runs its tests over cuDF's own classes as well where cuDF is installed, and compares names and parameters.
"""

import sys
import threading
import time
import types
import weakref
from collections import defaultdict

import fake_rmm
import numpy

OPTIONS = {"spill_device_limit": None, "spill_stats": 0}


def host_memory_allocation(nbytes):
    return numpy.empty((nbytes,), dtype="u1").data


class Serializable:
    _name_type_map = {}

    def __init_subclass__(cls, /, **kwargs):
        super().__init_subclass__(**kwargs)
        cls._name_type_map[cls.__name__] = cls


class BufferOwner(Serializable):
    def __init__(self, *, ptr, size, owner):
        self._ptr, self._size, self._owner = ptr, size, owner
        self._slices = weakref.WeakSet()

    @classmethod
    def from_device_memory(cls, data):
        return cls(ptr=data.ptr, size=data.size, owner=data)

    @property
    def size(self):
        return self._size


class SpillLock:
    pass


class SpillableBufferOwner(BufferOwner):
    def _finalize_init(self, ptr_desc):
        self.lock = threading.RLock()
        self._spill_locks = weakref.WeakSet()
        self._last_accessed = time.monotonic()
        self._ptr_desc = ptr_desc
        self._exposed = False
        self._manager = sys.modules["cudf.core.buffer.spill_manager"]._global_manager
        self._manager.add(self)

    @classmethod
    def from_device_memory(cls, data):
        ret = super().from_device_memory(data)
        ret._finalize_init(ptr_desc={"type": "gpu"})
        return ret

    @classmethod
    def from_host_memory(cls, data):
        ret = cls(ptr=0, size=data.nbytes, owner=None)
        ret._finalize_init(ptr_desc={"type": "cpu", "memoryview": data.cast("B")})
        return ret

    @property
    def is_spilled(self):
        return self._ptr_desc["type"] != "gpu"

    def spill(self, target="cpu"):
        begun = time.perf_counter()
        with self.lock:
            state = self._ptr_desc["type"]
            if state == target:
                return
            if not self.spillable and (target == "cpu" or self.exposed):
                raise ValueError(f"Cannot in-place move an unspillable buffer: {self}")
            if (state, target) == ("gpu", "cpu"):
                host = host_memory_allocation(self.size)
                sys.modules["rmm"].pylibrmm.device_buffer.copy_ptr_to_host(self._ptr, host)
                self._ptr_desc["memoryview"], self._ptr, self._owner = host, 0, None
            elif (state, target) == ("cpu", "gpu"):
                memory = sys.modules["rmm"].DeviceBuffer.to_device(self._ptr_desc.pop("memoryview"))
                self._ptr, self._owner = memory.ptr, memory
            else:
                raise ValueError(f"Unknown target: {target}")
            self._ptr_desc["type"] = target
        self._manager.statistics.log_spill(src=state, dst=target, nbytes=self.size, time=time.perf_counter() - begun)

    def mark_exposed(self):
        self._manager.spill_to_device_limit()
        with self.lock:
            self.spill(target="gpu")
            self._exposed = True
            self._last_accessed = time.monotonic()

    def spill_lock(self, spill_lock):
        with self.lock:
            self.spill(target="gpu")
            self._spill_locks.add(spill_lock)

    @property
    def ptr(self):
        if not self._spill_locks:
            self.mark_exposed()
        elif self.is_spilled:
            self.spill(target="gpu")
        self._last_accessed = time.monotonic()
        return self._ptr

    def memory_info(self):
        address = self._ptr
        if self._ptr_desc["type"] == "cpu":
            address = numpy.asarray(self._ptr_desc["memoryview"]).__array_interface__["data"][0]
        return (address, self.size, self._ptr_desc["type"])

    @property
    def exposed(self):
        return self._exposed

    @property
    def spillable(self):
        return not self.exposed and not self._spill_locks

    @property
    def last_accessed(self):
        return self._last_accessed

    def memoryview(self, *, offset=0, size=None):
        size = self._size if size is None else size
        with self.lock:
            if self.spillable:
                self.spill(target="cpu")
            if self.is_spilled:
                return self._ptr_desc["memoryview"][offset : offset + size]
            ret = host_memory_allocation(size)
            sys.modules["rmm"].pylibrmm.device_buffer.copy_ptr_to_host(self._ptr + offset, ret)
            return ret

    def __str__(self):
        return f"<{self.__class__.__name__} spillable={self.spillable} ptr={self._ptr_desc}>"


class SpillableBuffer(Serializable):
    def __init__(self, *, owner, offset=0, size=None):
        self._owner, self._offset, self._size = owner, offset, owner.size if size is None else size
        owner._slices.add(self)

    @property
    def size(self):
        return self._size

    @property
    def owner(self):
        return self._owner

    def __getitem__(self, key):
        start, stop, _ = key.indices(self.size)
        return self.__class__(owner=self._owner, offset=self._offset + start, size=stop - start)

    def memoryview(self):
        return self._owner.memoryview(offset=self._offset, size=self._size)

    def memory_info(self):
        address, _, state = self._owner.memory_info()
        return (address + self._offset, self.size, state)

    def serialize(self):
        header = {"owner-type-serialized-name": type(self._owner).__name__, "frame_count": 1}
        with self._owner.lock:
            assert self._owner.is_spilled
            return header, [self.memoryview()]

    @classmethod
    def deserialize(cls, header, frames):
        owner = Serializable._name_type_map[header["owner-type-serialized-name"]].from_host_memory(frames[0])
        return cls(owner=owner, offset=0, size=owner.size)

    def copy(self, deep=True):
        if not (deep or self._owner.exposed):
            return self.__class__(owner=self._owner, offset=self._offset, size=self._size)
        assert self._owner.is_spilled
        owner = self._owner.from_host_memory(self.memoryview())
        return self.__class__(owner=owner, offset=0, size=owner.size)


class SpillStatistics:
    def __init__(self, level):
        self.level = level
        self.spill_totals = defaultdict(lambda: (0, 0))

    def log_spill(self, src, dst, nbytes, time):
        n, seconds = self.spill_totals[(src, dst)]
        self.spill_totals[(src, dst)] = (n + nbytes, seconds + time)


class SpillManager:
    def __init__(self, *, device_memory_limit=None, statistic_level=0):
        self._lock = threading.Lock()
        self._buffers = weakref.WeakValueDictionary()
        self._id_counter = 0
        self._device_memory_limit = device_memory_limit
        self.statistics = SpillStatistics(statistic_level)

    def _out_of_memory_handle(self, nbytes, *, retry_once=True):
        if self.spill_device_memory(nbytes=nbytes) > 0:
            return True
        return retry_once and self._out_of_memory_handle(nbytes, retry_once=False)

    def add(self, buffer):
        if buffer.size > 0 and not buffer.exposed:
            with self._lock:
                self._buffers[self._id_counter] = buffer
                self._id_counter += 1
        self.spill_to_device_limit()

    def buffers(self, order_by_access_time=False):
        with self._lock:
            ret = tuple(self._buffers.values())
        return tuple(sorted(ret, key=lambda b: b.last_accessed)) if order_by_access_time else ret

    def spill_device_memory(self, nbytes):
        raise AssertionError("spillway.cudf has its own")

    def spill_to_device_limit(self, device_limit=None):
        limit = self._device_memory_limit if device_limit is None else device_limit
        if limit is None:
            return 0
        return self.spill_device_memory(nbytes=sum(b.size for b in self.buffers() if not b.is_spilled) - limit)


def _rebuild_column(col, children, *, wrap_buffers):
    return col


def as_buffer(data):
    utils = sys.modules["cudf.core.buffer.utils"]
    make = utils.SpillableBufferOwner.from_host_memory if isinstance(data, memoryview) else (
        utils.SpillableBufferOwner.from_device_memory
    )
    return utils.SpillableBuffer(owner=make(data))


def set_global_manager(manager):
    module = sys.modules["cudf.core.buffer.spill_manager"]
    module._global_manager, module._global_manager_uninitialized = manager, False


CONTENTS = {
    "cudf": {"__version__": "26.10.02", "get_option": OPTIONS.get},
    "cudf.core": {},
    "cudf.core.abc": {"Serializable": Serializable},
    "cudf.core.buffer": {},
    "cudf.core.buffer.buffer": {"BufferOwner": BufferOwner, "host_memory_allocation": host_memory_allocation},
    "cudf.core.buffer.spill_manager": {
        "SpillManager": SpillManager,
        "SpillStatistics": SpillStatistics,
        "set_global_manager": set_global_manager,
        "_global_manager": None,
        "_global_manager_uninitialized": True,
    },
    "cudf.core.buffer.spillable_buffer": {
        "SpillLock": SpillLock,
        "SpillableBuffer": SpillableBuffer,
        "SpillableBufferOwner": SpillableBufferOwner,
    },
    "cudf.core.buffer.utils": {
        "SpillableBuffer": SpillableBuffer,
        "SpillableBufferOwner": SpillableBufferOwner,
        "as_buffer": as_buffer,
    },
    "cudf.core.column": {},
    "cudf.core.column.column": {"_rebuild_column": _rebuild_column},
}


def install(monkeypatch, resource):
    """Puts the modules in place of cudf and rmm. Returns a fresh spillway.cudf over them."""
    fake_rmm.install(monkeypatch, resource)
    modules = {}
    for name, contents in CONTENTS.items():
        module = modules[name] = types.ModuleType(name)
        module.__dict__.update(contents)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
        monkeypatch.setitem(sys.modules, name, module)
    return fresh(monkeypatch)


def install_over_real(monkeypatch, resource):
    """The same over the real cudf, with memory of the host."""
    import cudf.core.buffer.buffer as buffer
    import cudf.core.buffer.spill_manager as spill_manager
    import cudf.core.buffer.spillable_buffer as spillable_buffer

    fake_rmm.install(monkeypatch, resource)
    for module in (buffer, spill_manager, spillable_buffer):
        monkeypatch.setattr(module, "rmm", sys.modules["rmm"])
    return fresh(monkeypatch)


def fresh(monkeypatch):
    monkeypatch.delitem(sys.modules, "spillway.cudf", raising=False)
    import spillway.cudf as module

    return module
