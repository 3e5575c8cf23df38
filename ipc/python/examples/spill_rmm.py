# SPDX-License-Identifier: Apache-2.0
"""A CuPy program over RMM with more data than RMM may use of the GPU. Run it: python spill_rmm.py"""

import cupy
import rmm
from rmm.allocators.cupy import rmm_cupy_allocator

import spillway.rmm

LIMIT = 512 << 20
ROWS = 16 << 20  # of four bytes: 64 MiB


def values(i):
    return cupy.arange(ROWS, dtype="i4") % (i + 2)


if __name__ == "__main__":
    spillway.start(host_tier_bytes="2GiB")
    below = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), LIMIT, LIMIT)
    rmm.mr.set_current_device_resource(below)
    cupy.cuda.set_allocator(rmm_cupy_allocator)

    with spillway.rmm.install() as pool:  # above all other resources of RMM
        columns = [pool.new(ROWS, "i4") for _ in range(16)]
        for i, column in enumerate(columns):
            with column.pin() as array:  # restored if it was spilled; others leave if there is no room
                cupy.asarray(array)[:] = values(i)  # so do they for CuPy's own arrays
        for i, column in enumerate(columns):
            with column.pin() as array:
                assert (cupy.asarray(array) == values(i)).all()
        stats = pool.stats()
        print(f"{stats.live_bytes} bytes on the GPU, {stats.spilled_bytes} spilled to {stats.stored_bytes}")
        print(f"{stats.evictions} evictions, {stats.restores} restores: every byte is back")
