# SPDX-License-Identifier: Apache-2.0
"""More memory than the GPU has, for programs over RMM: where RMM fails, idle buffers of a pool are spilled.

    import cupy, rmm, spillway.rmm
    from rmm.allocators.cupy import rmm_cupy_allocator

    rmm.reinitialize(pool_allocator=True)           # any resource, or none
    pool = spillway.rmm.install()                   # last: it has to lie above RMM's own pool
    cupy.cuda.set_allocator(rmm_cupy_allocator)

    column = pool.new(1_000_000_000, "f4")          # its memory comes from RMM, too
    with column.pin() as array:
        cupy.asarray(array)[:] = 1
    x = cupy.empty(20 << 30, "u1")                  # RMM has no room: the column is spilled, and RMM tries again

Needs RMM 24.12 or later; tested with 26.10.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import rmm
from rmm.pylibrmm.stream import Stream

try:
    from rmm.pylibrmm.stream import CudaStreamFlags
except ImportError:  # before 26.02, streams of RMM had no flags
    CudaStreamFlags = None

from ._pool import Pool
from .errors import SpillwayError

__all__ = ["FailureCallback", "RmmAllocator", "RmmPool", "install"]


class _Stream:
    """The handle of a stream, for RMM."""

    def __init__(self, number: int):
        self._number = number

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._number)


class RmmAllocator:
    """Memory of a resource of RMM, for spillway.Pool(allocator=).

    Not a DeviceBuffer for each buffer: that one frees its memory on the stream it was allocated on, which the program
    may have destroyed by then. The pool frees memory that no stream uses any more, so it is freed on a stream without
    work, and other streams of the resource wait for nothing when they take it.
    """

    def __init__(self, resource: Any):
        self.resource = resource
        self._quiet = Stream(flags=CudaStreamFlags.NON_BLOCKING) if CudaStreamFlags else Stream()

    def alloc(self, nbytes: int, stream: int) -> int:
        return int(self.resource.allocate(nbytes, Stream(_Stream(stream))))

    def free(self, address: int, nbytes: int) -> None:
        self.resource.deallocate(address, nbytes, self._quiet)


class FailureCallback:
    """Spills idle buffers of a pool, least recently used first, for rmm.mr.FailureCallbackResourceAdaptor.

    Returns whether anything was freed: then RMM tries again, and calls it again if that was too little. Allocates no
    GPU memory. Does not keep the pool.
    """

    def __init__(self, pool: Pool):
        self._pool = weakref.ref(pool)

    def __call__(self, nbytes: int) -> bool:
        pool = self._pool()
        if pool is None:
            return False
        try:
            return pool.make_room(nbytes) > 0
        except SpillwayError as error:  # RMM says that it is out of memory; this says why that is so
            warnings.warn(f"no buffer could be spilled: {error.name}: {error}", RuntimeWarning, stacklevel=2)
            return False


class RmmPool(Pool):
    """A pool whose buffers have memory of RMM, and which makes room for all others that use RMM.

    resource: what install() has made the current resource of the device.
    """

    def __init__(self, upstream: Any = None, socket: Any = None, **options: Any):
        upstream = rmm.mr.get_current_device_resource() if upstream is None else upstream
        super().__init__(socket, allocator=RmmAllocator(upstream), **options)
        self._callback = FailureCallback(self)
        self.resource = rmm.mr.FailureCallbackResourceAdaptor(upstream, self._callback)

    def close(self) -> None:
        """Pool.close(), and makes the resource below the current one again, if install()'s is still the current one."""
        resource = self.__dict__.get("resource")  # not there if the creation has failed
        if resource is not None and rmm.mr.get_current_device_resource() is resource:
            rmm.mr.set_current_device_resource(resource.get_upstream())
        super().close()


def install(upstream: Any = None, **options: Any) -> RmmPool:
    """Makes a pool over a resource of RMM, and the failure callback above it the current device's resource.

    upstream: where all memory comes from; None: the current resource. Call it when RMM's own pool is installed: below
    that pool, freed memory would go to the pool, and the callback would spill everything without gain. Memory that is
    already allocated stays as it is. The pool belongs to the current GPU, which is to be the current one of threads
    that use it.
    options: those of spillway.Pool. What spills need on the GPU is taken now, unless prepare=False.
    """
    pool = RmmPool(upstream, **options)
    rmm.mr.set_current_device_resource(pool.resource)
    return pool
