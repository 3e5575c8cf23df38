# SPDX-License-Identifier: Apache-2.0
"""Pools on a GPU: memory of the pool's own, of CuPy, and of RMM. Skipped without a GPU, CuPy or RMM.

tests/gpu/python.sh BUILD [PYTHON] runs this on a machine with a GPU.
"""

import os

import pytest

import spillway

if not os.path.exists("/dev/nvidiactl"):
    pytest.skip("no NVIDIA GPU", allow_module_level=True)
cupy = pytest.importorskip("cupy")

MIB = 1 << 20
ROWS = 4 * MIB  # of f8: 32 MiB


@pytest.fixture(scope="module", autouse=True)
def service():
    service = spillway.start()
    with spillway.Connection() as connection:
        if not connection.status().n_gpus:
            pytest.skip("the service uses no GPU: " + service.log()[-500:])


def column(i):
    return cupy.arange(ROWS, dtype="f8") % (i + 2)


def fill_and_check(pool, n):
    """More buffers than fit: each is written and read on a stream of its own, without waiting for it."""
    handles = [pool.new(ROWS, "f8") for _ in range(n)]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    for i, handle in enumerate(handles):
        with streams[i % 3], handle.pin(streams[i % 3]) as array:
            cupy.asarray(array)[:] = column(i)
    for i, handle in enumerate(handles):
        with streams[i % 3], handle.pin(streams[i % 3]) as array:
            assert bool((cupy.asarray(array) == column(i)).all()), i
    with pytest.raises(spillway.EINVAL, match="not pinned any more"):
        array.ptr
    stats = pool.stats()
    assert stats.live_bytes + stats.spilled_bytes == n * ROWS * 8
    assert stats.restores >= n // 2 and stats.failed_restores == stats.failed_spills == 0


def test_memory_of_the_pool():
    with spillway.Pool(gpu=0, budget=256 * MIB) as pool:
        fill_and_check(pool, 16)


def test_memory_of_cupy():
    with spillway.Pool(gpu=0) as pool:
        a = column(5)
        handle = pool.adopt(a, stream=cupy.cuda.get_current_stream())
        del a
        handle.spill()
        assert handle.info().state == "spilled"
        with handle.pin() as array:
            assert bool((cupy.asarray(array) == column(5)).all())


@pytest.mark.parametrize("kind", ["pool", "cuda", "async"])
def test_memory_of_rmm(kind):
    """A limit of 256 MiB, and a working set of 512 MiB; CuPy's temporaries ask the callback."""
    rmm = pytest.importorskip("rmm")
    import spillway.rmm
    from rmm.allocators.cupy import rmm_cupy_allocator

    before = rmm.mr.get_current_device_resource()
    plain = rmm.mr.CudaAsyncMemoryResource() if kind == "async" else rmm.mr.CudaMemoryResource()
    below = rmm.mr.PoolMemoryResource(plain, 512 * MIB, 512 * MIB) if kind == "pool" else plain
    rmm.mr.set_current_device_resource(rmm.mr.LimitingResourceAdaptor(below, 256 * MIB))
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    try:
        with spillway.rmm.install() as pool:
            fill_and_check(pool, 16)
            big = cupy.empty(200 * MIB, "u1")
            assert pool.stats().live_bytes <= 56 * MIB
            del big
            with pytest.raises(MemoryError):
                cupy.empty(257 * MIB, "u1")
        assert rmm.mr.get_current_device_resource() is not pool.resource
    finally:
        cupy.cuda.set_allocator(None)
        rmm.mr.set_current_device_resource(before)


def test_a_buffer_of_rmm_comes_back_as_one():
    rmm = pytest.importorskip("rmm")
    data = column(7).get().tobytes()
    with spillway.Connection() as connection:
        region = connection.spill(rmm.DeviceBuffer.to_device(data)).wait()
        buffer = region.restore().wait()
    assert isinstance(buffer, rmm.DeviceBuffer)
    assert buffer.tobytes() == data
