# SPDX-License-Identifier: Apache-2.0
"""What spillway.rmm and spillway.cudf use of RMM 26.10, over memory of the host."""

import ctypes
import enum
import sys
import threading
import types


class CudaStreamFlags(enum.IntEnum):
    SYNC_DEFAULT = 0
    NON_BLOCKING = 1


class Stream:
    def __init__(self, obj=None, flags=None):
        assert obj is None or flags is None
        self.number = obj.__cuda_stream__()[1] if obj is not None else 99
        self.flags = flags


class HostResource:
    """Memory with a limit, as LimitingResourceAdaptor over a resource of the GPU. Any thread may use it."""

    def __init__(self, limit):
        self.limit = limit
        self.used = 0
        self.calls = []  # ("alloc" or "free", bytes, the stream's number)
        self._memory = {}
        self._lock = threading.Lock()

    def allocate(self, nbytes, stream):
        with self._lock:
            if self.used + nbytes > self.limit:
                raise MemoryError("std::bad_alloc: out_of_memory: exceeded memory limit")
            data = ctypes.create_string_buffer(nbytes)
            self._memory[ctypes.addressof(data)] = data
            self.used += nbytes
            self.calls.append(("alloc", nbytes, stream.number))
            return ctypes.addressof(data)

    def deallocate(self, address, nbytes, stream):
        with self._lock:
            assert len(self._memory.pop(address)) == nbytes
            self.used -= nbytes
            self.calls.append(("free", nbytes, stream.number))


class FailureCallbackResourceAdaptor:
    def __init__(self, upstream, callback):
        self._upstream = upstream
        self._callback = callback
        self.asked = []  # the bytes of each call of the callback

    def get_upstream(self):
        return self._upstream

    def allocate(self, nbytes, stream):
        while True:
            try:
                return self._upstream.allocate(nbytes, stream)
            except MemoryError:
                self.asked.append(nbytes)
                if not self._callback(nbytes):
                    raise

    def deallocate(self, address, nbytes, stream):
        self._upstream.deallocate(address, nbytes, stream)


class DeviceBuffer:
    def __init__(self, *, ptr=0, size=0):
        self._mr = sys.modules["rmm"].mr.get_current_device_resource()
        self.ptr, self.size = self._mr.allocate(size, Stream()), size
        if ptr:
            ctypes.memmove(self.ptr, ptr, size)

    @staticmethod
    def to_device(b):
        buffer = DeviceBuffer(size=len(b))
        ctypes.memmove(buffer.ptr, bytes(b), len(b))
        return buffer

    @property
    def __cuda_array_interface__(self):
        return {"data": (self.ptr, False), "shape": (self.size,), "strides": None, "typestr": "|u1", "version": 0}

    def __del__(self):
        if "ptr" in self.__dict__:
            self._mr.deallocate(self.ptr, self.size, Stream())


def copy_ptr_to_host(db, hb):
    memoryview(hb)[:] = ctypes.string_at(db, len(hb))


def install(monkeypatch, resource):
    """Puts the module in place of rmm, with a current resource."""
    names = ("rmm", "rmm.mr", "rmm.pylibrmm", "rmm.pylibrmm.stream", "rmm.pylibrmm.device_buffer")
    rmm, mr, inner, stream, device_buffer = modules = [types.ModuleType(name) for name in names]
    current = [resource]
    mr.get_current_device_resource = lambda: current[0]
    mr.set_current_device_resource = lambda resource: current.__setitem__(0, resource)
    mr.FailureCallbackResourceAdaptor = FailureCallbackResourceAdaptor
    stream.Stream, stream.CudaStreamFlags = Stream, CudaStreamFlags
    rmm.mr, rmm.pylibrmm, inner.stream, inner.device_buffer = mr, inner, stream, device_buffer
    rmm.DeviceBuffer, device_buffer.copy_ptr_to_host = DeviceBuffer, copy_ptr_to_host
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "spillway.rmm", raising=False)
    import spillway.rmm as module

    return module
