# SPDX-License-Identifier: Apache-2.0
"""spillway.rmm, over a fake of RMM. test_gpu_rmm.py has RMM itself."""

import weakref

import fake_rmm
import numpy
import pytest

import spillway

MIB = 1 << 20


@pytest.fixture
def resource():
    return fake_rmm.HostResource(8 * MIB)


@pytest.fixture
def rmm(service, resource, monkeypatch):
    module = fake_rmm.install(monkeypatch, resource)
    monkeypatch.setattr(spillway, "rmm", module, raising=False)
    return module


@pytest.fixture
def pool(rmm):
    with rmm.install() as pool:
        yield pool


def filled(pool, seed, nbytes=2 * MIB):
    handle = pool.new(nbytes)
    with handle.pin() as array:
        array[:] = content(seed, nbytes)
    return handle


def content(seed, nbytes=2 * MIB):
    return memoryview(numpy.random.default_rng(seed).integers(0, 4, nbytes, "u1"))


def states(handles):
    return [handle.info().state for handle in handles]


def test_rmm_takes_what_is_idle(pool, resource):
    """Least recently used first, as much as is missing, and every byte comes back."""
    handles = [filled(pool, i) for i in range(4)]
    with handles[0].pin():
        pass  # now the second is the one that was used longest ago
    assert resource.used == 8 * MIB
    address = pool.resource.allocate(3 * MIB, fake_rmm.Stream())
    assert pool.resource.asked == [3 * MIB]
    assert states(handles) == ["live", "spilled", "spilled", "live"]
    pool.resource.deallocate(address, 3 * MIB, fake_rmm.Stream())
    for i, handle in enumerate(handles):
        with handle.pin() as array:
            assert array == content(i)
    assert pool.resource.asked == [3 * MIB]


def test_a_pin_takes_from_others(pool, resource):
    """More buffers than memory: pins evict by themselves, and do not ask the callback."""
    handles = [filled(pool, i) for i in range(8)]
    for _ in range(2):
        for i, handle in enumerate(handles):
            with handle.pin() as array:
                assert array == content(i)
    assert resource.used <= 8 * MIB and pool.resource.asked == []
    assert pool.stats().restores >= 8


def test_out_of_memory_stays_an_error(pool, resource):
    handles = [filled(pool, i) for i in range(2)]
    with handles[0].pin():
        with pytest.raises(MemoryError):
            pool.resource.allocate(7 * MIB, fake_rmm.Stream())
        assert states(handles) == ["live", "spilled"]  # pinned ones stay
    with pytest.raises(MemoryError):
        pool.resource.allocate(9 * MIB, fake_rmm.Stream())
    assert resource.used == 0


def test_streams(pool, resource):
    """Memory comes on the pin's stream, and goes on one that never has work."""
    resource.calls.clear()
    handle = pool.new(MIB)
    with handle.pin(stream=7):
        pass
    handle.spill()
    assert resource.calls == [("alloc", MIB, 7), ("free", MIB, 99)]
    assert pool._numbers and spillway._pool_memory._owners[min(pool._numbers)]._quiet.flags == 1


def test_the_resource_is_put_back(rmm, resource):
    import rmm as library

    pool = rmm.install()
    assert library.mr.get_current_device_resource() is pool.resource
    handle = filled(pool, 1)
    pool.close()
    assert library.mr.get_current_device_resource() is resource
    assert resource.used == 0
    with pytest.raises(spillway.EINVAL, match="closed"):
        handle.info()
    with pytest.warns(RuntimeWarning, match="closed"), pytest.raises(MemoryError):
        pool.resource.allocate(9 * MIB, fake_rmm.Stream())


def test_a_resource_above_stays(rmm, resource):
    """It was installed later, and is not the pool's to remove."""
    import rmm as library

    pool = rmm.install()
    above = library.mr.FailureCallbackResourceAdaptor(pool.resource, lambda nbytes: False)
    library.mr.set_current_device_resource(above)
    pool.close()
    assert library.mr.get_current_device_resource() is above


def test_the_callback_does_not_keep_the_pool(rmm, resource):
    pool = rmm.install()
    filled(pool, 1)
    adaptor, gone = pool.resource, weakref.ref(pool)
    del pool
    assert gone() is None and resource.used == 0
    with pytest.raises(MemoryError):
        adaptor.allocate(9 * MIB, fake_rmm.Stream())


def test_a_failed_spill_is_said(pool, service):
    """The service has 256 MiB, and nothing else of the pool can leave."""
    with spillway.Connection() as connection:
        taken = []
        try:
            for size in (32 * MIB, MIB, 64 << 10):
                try:
                    while True:
                        block = numpy.random.default_rng(len(taken)).integers(0, 256, size, "u1")
                        taken.append(connection.spill(block).wait())
                except spillway.ENOSPACE:
                    pass
            handle = pool.new(4 * MIB)
            with handle.pin() as array:
                array[:] = memoryview(numpy.random.default_rng(1).integers(0, 256, 4 * MIB, "u1"))
            with pytest.warns(RuntimeWarning, match="ENOSPACE"), pytest.raises(MemoryError):
                pool.resource.allocate(6 * MIB, fake_rmm.Stream())
            assert handle.info().state == "live"
        finally:
            for region in taken:
                region.drop()


def test_threads(pool, resource, six_threads):
    """Allocations of RMM and pins of six threads, in memory for half of their buffers."""
    handles = [filled(pool, i, MIB) for i in range(12)]

    def work(number):
        for turn in range(12):
            i = (number * 5 + turn * 7) % 12
            with handles[i].pin() as array:
                assert array == content(i, MIB)
            address = pool.resource.allocate(MIB // 2, fake_rmm.Stream())
            pool.resource.deallocate(address, MIB // 2, fake_rmm.Stream())

    six_threads(work)
