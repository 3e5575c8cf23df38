# SPDX-License-Identifier: Apache-2.0
"""Pools, in memory of the host."""

import array
import ctypes
import gc
import os
import signal
import threading
import time
import types
import weakref

import numpy
import pytest
from pausing import pause

import spillway
from spillway import _cdef, _pool, _pool_memory
from spillway._library import ffi, library
from spillway._pool_cdef import CONSTANTS

KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture
def pool(service):
    with spillway.Pool() as pool:
        yield pool


class Library:
    """The library, with functions of the test in the place of some."""

    def __init__(self, **functions):
        self.__dict__.update(functions)

    def __getattr__(self, name):
        return getattr(library(), name)


class Host:
    """An allocator of the host with a limit."""

    def __init__(self, limit=1 << 40):
        self.limit = limit
        self.memory = {}
        self.log = []

    @property
    def used(self):
        return sum(map(len, self.memory.values()))

    def alloc(self, nbytes, stream):
        self.log.append(("alloc", nbytes, stream))
        if self.used + nbytes > self.limit:
            return None
        data = ctypes.create_string_buffer(nbytes)
        self.memory[ctypes.addressof(data)] = data
        return ctypes.addressof(data)

    def free(self, address, nbytes):
        self.log.append(("free", nbytes))
        assert len(self.memory.pop(address)) == nbytes


def fill(handle, seed):
    with handle.pin() as a:
        numpy.asarray(a)[...] = content(seed, handle)


def content(seed, handle):
    return numpy.random.default_rng(seed).integers(0, 100, handle.shape).astype(handle.dtype)


def is_right(handle, seed):
    with handle.pin() as a:
        return bool((numpy.asarray(a) == content(seed, handle)).all())


@pytest.mark.parametrize("dtype", ["u1", "<i2", "i4", numpy.dtype("u8"), numpy.float32, "f8"])
def test_bytes_come_back(pool, dtype):
    handle = pool.new((100, 1000), dtype)
    assert handle.info().state == "empty" and handle.shape == (100, 1000)
    fill(handle, 1)
    handle.spill()
    info = handle.info()
    assert info.state == "spilled" and 0 < info.stored_bytes < info.nbytes == handle.nbytes and info.codec
    with handle.pin() as a:
        assert a.shape == (100, 1000) and numpy.asarray(a).dtype == numpy.dtype(dtype)
        assert handle.info().pins == 1
    assert is_right(handle, 1)


def test_forms_that_python_has_not(pool):
    """They come as bytes."""
    for dtype in ("f2", ">i4", "c8"):
        with pool.new(8, dtype).pin() as a:
            assert a.format == "B" and a.nbytes == 8 * numpy.dtype(dtype).itemsize
    with pool.new(8, "b1").pin() as a:
        assert a.format == "?"
    for bad in ("O", "f", "x4x"):
        with pytest.raises(spillway.EINVAL):
            pool.new(8, bad)
    for shape, options in ((0, {}), (8, {"keep_priority": 256}), (8, {"keep_priority": -1})):
        with pytest.raises(spillway.EINVAL):
            pool.new(shape, **options)


def test_the_view_ends_with_the_pin(pool):
    handle = pool.new(8)
    pin = handle.pin()
    with pin as a:
        a[0] = 7
        with pytest.raises(spillway.EINVAL, match="pins nest"):
            pin.__enter__()
        with handle.pin() as b:
            assert b[0] == 7
        with pytest.raises(spillway.EBUSY):
            handle.spill()
        with pytest.raises(spillway.EBUSY):
            handle.close()
        assert a[0] == 7
    with pytest.raises(ValueError, match="released"):
        a[0]
    with handle.pin() as a:
        kept = numpy.asarray(a)  # is no error, though it must not be used
    assert handle.info().pins == 0 and kept is not None


def test_the_interface_on_a_gpu_ends_with_the_pin(pool, monkeypatch):
    monkeypatch.setattr(_pool_memory, "is_on_gpu", lambda address: True)
    with pool.new((2, 3), "f4").pin() as a:
        interface = a.__cuda_array_interface__
        assert interface["shape"] == (2, 3) and interface["typestr"] == "<f4" and interface["data"] == (a.ptr, False)
        assert interface["stream"] is None  # nothing has to be waited for
        assert a.nbytes == 24
    with pytest.raises(spillway.EINVAL, match="not pinned any more"):
        a.__cuda_array_interface__


def test_budget(pool):
    pool.set_budget(4 * MIB)
    handles = [pool.new(MIB) for _ in range(8)]
    for i, handle in enumerate(handles):
        fill(handle, i)
    stats = pool.stats()
    assert (stats.handles, stats.held_bytes) == (8, 4 * MIB)
    assert stats.evictions >= 4 and stats.stored_bytes < stats.spilled_bytes
    assert all(is_right(handle, i) for i, handle in enumerate(handles))
    with pytest.raises(MemoryError, match="budget"):
        with pool.new(5 * MIB).pin():
            pass
    pool.set_budget(None)
    with pool.new(5 * MIB).pin():
        pass


def test_priority_and_flags(pool):
    low, high, stays = pool.new(MIB), pool.new(MIB, keep_priority=9), pool.new(MIB, stays=True)
    for i, handle in enumerate((low, high, stays)):
        fill(handle, i)
    assert pool.make_room(1) == MIB and low.info().state == "spilled"
    assert pool.make_room(10 * MIB) == MIB and high.info().state == "spilled"
    assert pool.make_room(1) == 0 and stays.info().state == "live"
    constant = pool.new(MIB, constant=True)
    fill(constant, 7)
    constant.spill()
    assert is_right(constant, 7) and constant.info().stored_bytes > 0  # the service has kept it


def test_prefetch(pool):
    handle = pool.new(MIB)
    fill(handle, 3)
    handle.spill()
    handle.prefetch()
    assert is_right(handle, 3)
    assert pool.stats().restores == 1
    pool.set_budget(MIB)
    handle.spill()
    other = pool.new(MIB)
    fill(other, 4)
    with pytest.raises(spillway.ENOMEM):
        handle.prefetch()  # evicts nothing


def test_options_reach_the_library(service, monkeypatch):
    asked = []

    def create(ret, options, error):
        o = options[0]
        asked.append((o.wait_ms, o.n_connections, o.flags, o.budget_bytes, o.connection.server_uid))
        return -1

    monkeypatch.setattr(_pool, "library", lambda: Library(spillway_pool_create=create))
    for options in ({}, {"wait": 0.25, "connections": 3, "prepare": False, "budget": 7, "server_uid": 8}, {"wait": 0}):
        with pytest.raises(spillway.SpillwayError):
            spillway.Pool(allocator=Host(), **options)
    unprepared = CONSTANTS["POOL_UNPREPARED"]
    assert asked == [(1000, 1, 0, 0, 0), (250, 3, unprepared, 7, 8), (-1, 1, 0, 0, 0)]
    assert not _pool_memory._owners  # nothing stays of those that failed


def test_a_pool_that_goes_is_closed(alone):
    pool = spillway.Pool(connections=3)
    assert alone.status().sessions == 1 + 3
    del pool
    gc.collect()
    deadline = time.monotonic() + 20
    while alone.status().sessions > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert alone.status().sessions == 1


def test_streams_and_types_reach_the_library(pool):
    """The ones of adopted memory, pins and prefetches; a refill gets the stream, too."""
    real, seen = pool._lib, []

    def number(stream):
        return int(ffi.cast("uintptr_t", stream))

    def adopt(c, data, options, ret, error):
        seen.append((number(options[0].stream), options[0].type))
        return real.spillway_pool_adopt(c, data, options, ret, error)

    def noting(name):
        def call(c, stream, *rest):
            seen.append((name, number(stream)))
            return getattr(real, f"spillway_handle_{name}")(c, stream, *rest)

        return call

    pool._lib = Library(
        spillway_pool_adopt=adopt, spillway_handle_unpin=noting("unpin"), spillway_handle_prefetch=noting("prefetch")
    )
    a = numpy.zeros(1000, "u2")
    named = types.SimpleNamespace(__array_interface__={**a.__array_interface__, "typestr": "|V2"}, dtype="bfloat16")
    handle = pool.adopt(named, stream=6)
    with handle.pin(stream=5):
        pass
    handle.prefetch(stream=7)
    assert seen == [(6, _cdef.CONSTANTS["BF16"]), ("unpin", 5), ("prefetch", 7)]
    streams = []

    def refill(stream):
        streams.append(stream)
        return bytearray(10)

    watched = pool.watch(bytearray(10), lambda: None, refill=refill)
    watched.spill()
    with watched.pin(stream=9):
        assert streams == [9]


@pytest.mark.parametrize("nbytes", [9, 11])
def test_a_refill_of_another_length_is_refused(pool, nbytes):
    watched = pool.watch(bytearray(10), lambda: None, refill=lambda stream: bytearray(nbytes))
    watched.spill()
    with pytest.raises(spillway.ENOMEM) as found:
        with watched.pin():
            pass
    assert f"{nbytes} bytes, the buffer has 10" in str(found.value.__cause__)


def test_memory_of_a_refill_is_held(pool):
    refilled = []

    def refill(stream):
        a = numpy.zeros(1000, "u1")
        refilled.append(weakref.ref(a))
        return a

    handle = pool.watch(numpy.ones(1000, "u1"), lambda: None, refill=refill)
    handle.spill()
    with handle.pin() as a:
        gc.collect()
        assert refilled[0]() is not None and bytes(a) == bytes(b"\x01" * 1000)
    handle.spill()
    gc.collect()
    assert refilled[0]() is None


def test_a_failed_adoption_keeps_nothing(pool):
    a = numpy.zeros(0, "u1")
    gone = weakref.ref(a)
    with pytest.raises(spillway.EINVAL, match="0 bytes"):
        pool.adopt(a)
    del a
    gc.collect()
    assert gone() is None and not _pool_memory._owners


def test_room_that_was_found_before_an_error_counts(pool):
    def make_room(c, nbytes, ret, error):
        ret[0] = 5
        return -1000

    pool._lib = Library(spillway_pool_make_room=make_room)
    assert pool.make_room(9) == 5


def test_a_dropped_handle_is_freed(pool):
    handle = pool.new(MIB)
    fill(handle, 1)
    del handle
    gc.collect()
    assert pool._stats(frees=False).held_bytes == MIB  # not by the finalizer, which may run anywhere
    assert pool.make_room(MIB) == MIB
    assert pool.stats().handles == 0
    stays, handle = pool.new(MIB), pool.new(2 * MIB)
    fill(stays, 1)
    fill(handle, 1)
    del handle
    gc.collect()
    assert pool.make_room(MIB) == 2 * MIB  # which was enough
    assert stays.info().state == "live"
    handle = pool.new(MIB)
    handle.close()
    handle.close()
    with pytest.raises(spillway.EINVAL, match="closed"):
        handle.info()


def test_adopt(pool):
    a = numpy.arange(100_000)
    gone = weakref.ref(a)
    handle = pool.adopt(a)
    del a
    gc.collect()
    assert gone() is not None and handle.dtype == "<i8"
    handle.spill()
    assert gone() is None
    with handle.pin() as b:
        assert (numpy.asarray(b) == numpy.arange(100_000)).all()
    kept = array.array("i", range(1000))
    closed = pool.adopt(kept)
    closed.close()
    assert kept[999] == 999 and len(_pool_memory._owners) == 0
    with pytest.raises(spillway.EINVAL, match="read-only"):
        pool.adopt(b"abc")


def test_watch(pool):
    """Memory of an owner, who frees it and gives other memory."""
    memory, log = [bytearray(b"x" * MIB)], []

    def evicted():
        log.append("evicted")
        memory.clear()

    def refill(stream):
        log.append("refill")
        memory.append(bytearray(MIB))
        return memory[0]

    handle = pool.watch(memory[0], evicted, refill=refill)
    for _ in range(2):
        handle.spill()
        assert not memory
        with handle.pin() as a:
            assert a == memory[0] == b"x" * MIB
    assert log == ["evicted", "refill"] * 2
    handle.close()
    assert log[4:] == [] and memory[0] == b"x" * MIB
    small = pool.watch(bytearray(10), lambda: None, refill=lambda stream: bytearray(9))
    small.spill()
    with pytest.raises(spillway.ENOMEM) as raised:
        with small.pin():
            pass
    assert "9 bytes" in str(raised.value.__cause__)


def test_allocator(service):
    host = Host()
    with spillway.Pool(allocator=host, prepare=False) as pool:
        handle = pool.new(MIB)
        with handle.pin(stream=5):
            pass
        handle.spill()
        assert host.log == [("alloc", MIB, 5), ("free", MIB)]
        fill(handle, 1)
        assert host.used == MIB
    assert host.used == 0 and not _pool_memory._owners


def test_an_allocator_that_is_full(service):
    host = Host(3 * MIB)
    with spillway.Pool(allocator=host) as pool:
        handles = [pool.new(MIB) for _ in range(6)]
        for i, handle in enumerate(handles):
            fill(handle, i)
        assert host.used <= 3 * MIB
        assert all(is_right(handle, i) for i, handle in enumerate(handles))


def test_an_allocator_that_fails(service, monkeypatch):
    """What it raises is the cause of the error, and the pool goes on."""
    host = Host()
    with spillway.Pool(allocator=host) as pool:
        handle = pool.new(MIB)
        monkeypatch.setattr(host, "alloc", lambda nbytes, stream: 1 // 0)
        with pytest.raises(spillway.ENOMEM) as raised:
            with handle.pin():
                pass
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        monkeypatch.undo()
        fill(handle, 1)
        with pytest.raises(spillway.EINVAL) as raised:
            pool.new(0)
        assert raised.value.__cause__ is None  # of this error
        failures = [ZeroDivisionError()]

        def fail_once(nbytes, stream):
            if failures:
                raise failures.pop()
            return Host.alloc(host, nbytes, stream)

        monkeypatch.setattr(host, "alloc", fail_once)
        fill(pool.new(MIB), 2)  # in the place of the other one
        with pytest.raises(spillway.EINVAL) as raised:
            pool.new(0)
        assert raised.value.__cause__ is None
        monkeypatch.undo()
        monkeypatch.setattr(host, "alloc", lambda nbytes, stream: pool.close())
        with pytest.raises(spillway.ENOMEM) as raised:
            with pool.new(8).pin():
                pass
        assert "cannot be closed" in str(raised.value.__cause__)
        monkeypatch.undo()
        assert is_right(handle, 1)


def test_make_room_inside_an_allocator(service, six_threads):
    """An allocator that evicts by itself, while other threads do the same."""

    class Evicting(Host):
        pool = None

        def alloc(self, nbytes, stream):
            while (address := super().alloc(nbytes, stream)) is None and self.pool.make_room(nbytes) > 0:
                pass
            return address

    host = Evicting(3 * MIB)
    with spillway.Pool(allocator=host, prepare=False) as host.pool:
        handles = [host.pool.new(MIB // 2) for _ in range(18)]

        def work(number):
            for turn in range(4):
                for i in range(number, 18, 6):
                    if turn == 0:
                        fill(handles[i], i)
                    assert is_right(handles[i], i)

        six_threads(work)
        assert host.pool.stats().evictions >= 12


def test_nobody_holds_a_lock_while_a_spill_waits(pool, service):
    """A stopped service answers nothing: other threads run, and use other buffers."""
    slow, other = pool.new(MIB), pool.new(KIB)
    fill(slow, 1)
    fill(other, 2)
    pause(service)
    try:
        spilling = threading.Thread(target=slow.spill)
        spilling.start()
        time.sleep(0.1)
        begun = time.monotonic()
        for _ in range(100):
            assert is_right(other, 2)
        assert pool.stats().live == 2 and slow.info().state == "spilling"
        with pytest.raises(spillway.EBUSY):
            slow.close()
        assert time.monotonic() - begun < 5 and spilling.is_alive()
    finally:
        os.kill(service.pid, signal.SIGCONT)
    spilling.join(10)
    assert not spilling.is_alive() and is_right(slow, 1)


def test_close_waits_for_calls(pool, service):
    handle = pool.new(MIB)
    fill(handle, 1)
    pause(service)
    try:
        spilling = threading.Thread(target=handle.spill)
        spilling.start()
        time.sleep(0.1)
        closing = threading.Thread(target=pool.close)
        closing.start()
        time.sleep(0.1)
        assert closing.is_alive()
        with pytest.raises(spillway.EINVAL, match="closed"):
            pool.new(1)
    finally:
        os.kill(service.pid, signal.SIGCONT)
    spilling.join(10)
    closing.join(10)
    assert not spilling.is_alive() and not closing.is_alive()
    with pytest.raises(spillway.EINVAL, match="closed"):
        handle.spill()


def test_fork(python):
    out = python("""
        import os, spillway
        pool = spillway.Pool()
        handle = pool.new(1000)
        with handle.pin() as a:
            a[0] = 7
        n_open = len(os.listdir("/proc/self/fd"))
        child = os.fork()
        if child == 0:
            assert len(os.listdir("/proc/self/fd")) < n_open  # or the service would not see the parent's end
            for call in (handle.spill, lambda: pool.new(1), lambda: handle.pin().__enter__()):
                try:
                    call()
                except spillway.EINVAL as error:
                    assert "has forked this one" in str(error)
                else:
                    os._exit(1)
            handle.close()
            pool.close()
            with spillway.Pool() as own, own.new(8).pin() as a:
                a[0] = 1
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        handle.spill()
        with handle.pin() as a:
            print(a[0])
    """)
    assert out.strip() == "7"


def test_no_service(tmp_path):
    with pytest.raises(spillway.ENOSERVICE, match="start"):
        spillway.Pool(tmp_path / "none.sock")
    with pytest.raises(spillway.EINVAL, match="codec"):
        spillway.Pool(codec="other")
    if not os.path.exists("/dev/nvidiactl"):
        with pytest.raises(spillway.EINVAL, match="gpu="):
            spillway.Pool(gpu=0)


def test_streams_of_frameworks(monkeypatch):
    class Framework:
        def __init__(self, number, is_used=True):
            self.cuda = self
            self.is_used = is_used
            self.number = self.ptr = self.cuda_stream = number

        def is_initialized(self):
            return self.is_used

        def get_current_stream(self):
            return self

        current_stream = get_current_stream

    import sys

    monkeypatch.setitem(sys.modules, "cupy", Framework(7))
    assert _pool_memory.stream_of(None) == 0 or _pool_memory.driver()
    monkeypatch.setattr(_pool_memory, "driver", lambda: object())
    assert _pool_memory.stream_of(None) == 7 and _pool_memory.stream_of(3) == 3
    monkeypatch.setitem(sys.modules, "torch", Framework(7))
    assert _pool_memory.stream_of(None) == 7
    monkeypatch.setitem(sys.modules, "torch", Framework(8, is_used=False))
    assert _pool_memory.stream_of(None) == 7
    monkeypatch.setitem(sys.modules, "torch", Framework(8))
    with pytest.raises(spillway.EINVAL, match="cupy and torch differ.*stream="):
        _pool_memory.stream_of(None)
