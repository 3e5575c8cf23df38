# SPDX-License-Identifier: Apache-2.0
"""Spills and restores of host memory against a real service."""

import array
import gc
import os
import signal
import time
import weakref

import numpy
import pytest

import spillway
from pausing import pause
from spillway import _session
from spillway._cdef import CONSTANTS
from spillway._library import sized
from spillway._ticket import sum_of

RANDOM = numpy.random.default_rng(1)


def objects():
    yield RANDOM.integers(0, 1000, (300, 400))
    yield RANDOM.random(100_000, "f4")
    yield numpy.arange(50_000).astype("M8[s]")
    yield numpy.zeros((3, 0, 2))
    yield bytearray(os.urandom(3_000_000))
    yield array.array("d", RANDOM.random(1000))
    yield memoryview(bytearray(b"hello, world" * 1000)).cast("i", (60, 50))


def same(a, b):
    return (
        type(a) is type(b) and memoryview(a).tobytes() == memoryview(b).tobytes()
        if not hasattr(a, "dtype")
        else (a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    )


def test_results_of_parts_are_added_up():
    """The parts of a region go side by side, so the slowest one's time is the region's. Empty parts have no say."""
    parts = sized("spillway_result", 3)
    for part, raw_bytes, stored_bytes, us, codec in zip(
        parts, (100, 300, 0), (10, 20, 1), (2_000_000, 5_000_000, 1), (b"v5t", b"v5t", b"raw"), strict=True
    ):
        part.raw_bytes, part.stored_bytes, part.service_us, part.codec = raw_bytes, stored_bytes, us, codec
    parts[0].tier, parts[1].tier = b"host", b"nvme"
    for part in parts:
        part.reason, part.coder = b"pays", b"daemon"
    result = sum_of(list(parts))
    assert (result.raw_bytes, result.stored_bytes, result.service_seconds) == (400, 31, 5)
    assert (result.codec, result.tier) == ("v5t", "mixed")
    assert (result.reason, result.coder) == ("pays", "daemon")


def test_options_reach_the_library(monkeypatch):
    asked = []

    class Library:
        def spillway_open(self, ret, options, error):
            o = options[0]
            asked.append((o.connect_ms, o.call_ms, o.reconnect_ms, o.flags, o.server_uid))
            return -1

    monkeypatch.setattr(_session, "library", Library)
    some = {"connect_timeout": 2, "call_timeout": None, "reconnect_timeout": 0.0001, "codec": "client", "server_uid": 8}
    for options in ({}, some, {"server_uid": 0}):
        with pytest.raises(spillway.SpillwayError):
            spillway.Connection(**options)
    served_by = CONSTANTS["SERVED_BY"]
    assert asked == [
        (10_000, 30_000, -1, 0, 0),
        (2000, -1, 1, CONSTANTS["CODEC_CLIENT"] | served_by, 8),
        (10_000, 30_000, -1, served_by, 0),
    ]


@pytest.mark.parametrize("obj", list(objects()), ids=lambda o: type(o).__name__)
def test_every_byte_is_back(connection, obj):
    region = connection.spill(obj).wait()
    assert region.raw_bytes == (obj.nbytes if hasattr(obj, "nbytes") else memoryview(obj).nbytes)
    assert same(region.restore(keep=True).wait(), obj)
    assert same(region.restore(like=obj, keep=True).wait(), obj)
    into = region._make()
    assert region.restore(into=into).wait() is into
    assert same(into, obj)
    assert not region.is_stored
    with pytest.raises(spillway.ESTALE):
        region.restore()


def test_bytes_come_back_as_a_bytearray(connection):
    assert connection.spill(b"abc" * 1000).wait().restore().wait() == b"abc" * 1000


def test_types_choose_codecs(connection):
    a = numpy.arange(1_000_000)
    as_numbers = connection.spill(a).wait()
    as_bytes = connection.spill(a, type="bytes").wait()
    assert as_numbers.ratio > 10 * as_bytes.ratio
    assert as_numbers.result.codec != as_bytes.result.codec
    with pytest.raises(spillway.EINVAL, match="none of bytes, u8"):
        connection.spill(a, type="i128")


def test_table(connection):
    table = {f"c{i}": RANDOM.integers(0, 9, 1000 + i) for i in range(150)}  # more than one region holds
    region = connection.spill(table).wait()
    assert region.raw_bytes == sum(a.nbytes for a in table.values())
    new = region.restore(keep=True).wait()
    assert list(new) == list(table)
    assert all((new[name] == table[name]).all() for name in table)
    into = {name: numpy.zeros_like(a) for name, a in table.items()}
    region.restore(into=into).wait()
    assert all((into[name] == table[name]).all() for name in table)


def test_a_type_is_that_of_all_arrays(connection):
    a = numpy.arange(100_000)
    one, two = (connection.spill(obj, type="bytes").wait() for obj in (a, [a, a]))
    assert two.ratio < 1.5 * one.ratio


def test_numbers_that_do_not_fit(connection):
    many = [bytearray(10)] * 65
    with pytest.raises(spillway.EINVAL, match="1 names for 2 objects"):
        connection.spill_batch([b"a", b"b"], names=["a"])
    with pytest.raises(spillway.EINVAL, match="2 names for 1 objects"):
        connection.spill_batch([b"a"], names=["a", "b"])
    with pytest.raises(spillway.EINVAL, match="at most 64 buffers, not 65"):
        connection.spill(many, name="many")
    with pytest.raises(spillway.EINVAL, match="at most 64 arrays"):
        connection.spill_batch([many], each=True)
    region = connection.spill(many).wait()
    with pytest.raises(spillway.EINVAL, match="at most 64 arrays"):
        connection.restore_batch([region], each=True)
    with pytest.raises(spillway.EINVAL, match="2 objects for 1 regions"):
        connection.restore_batch([region], into=[many, many])
    assert region.restore().wait() == many


def test_a_restore_that_fails_leaves_its_region(connection):
    good, bad = connection.spill_batch([bytearray(100), bytearray(100)]).wait()
    first, error = connection.restore_batch([good, bad], into=[bytearray(100), bytearray(10)], each=True).wait()
    assert first == bytes(100) and not good.is_stored
    assert isinstance(error, spillway.ETOOSMALL) and error.text and bad.is_stored
    other = connection.spill(b"other").wait()
    connection.drop(other, bad)
    assert not bad.is_stored and not other.is_stored
    with pytest.raises(spillway.ESTALE):
        connection.drop(bad)


def test_table_without_rows(connection):
    table = {"k": numpy.zeros(0, "i8"), "v": numpy.zeros(0, "f4")}
    back = connection.spill(table).wait().restore().wait()
    assert back["k"].dtype == "i8" and len(back["v"]) == 0


def test_batch(connection):
    batch = [RANDOM.integers(0, 100, 5000) for _ in range(300)]
    regions = connection.spill_batch(batch).wait()
    back = connection.restore_batch(regions).wait()
    assert all((a == b).all() for a, b in zip(batch, back))
    assert not any(region.is_stored for region in regions)
    with pytest.raises(spillway.EINVAL, match="no objects"):
        connection.spill_batch([])


def test_batch_of_which_one_fails(connection):
    first = connection.spill(b"first", name="taken").wait()
    with pytest.raises(spillway.EEXIST, match="drop the region"):
        connection.spill_batch([b"a", b"b"], names=["new", "taken"]).wait()
    assert [r.name for r in connection.list()] == ["taken"]
    good, bad = connection.spill_batch([b"a", b"b"], names=["new", "taken"], each=True).wait()
    assert good.is_stored and good.name == "new"
    assert isinstance(bad, spillway.EEXIST)
    connection.drop(good, first)
    assert connection.list() == []


def test_destinations_that_do_not_fit(connection):
    region = connection.spill(bytearray(1000)).wait()
    with pytest.raises(spillway.ETOOSMALL):
        region.restore(into=bytearray(10)).wait()
    with pytest.raises(spillway.EINVAL, match="1 buffers, the destination 2"):
        region.restore(into=[bytearray(500), bytearray(500)])
    with pytest.raises(spillway.EINVAL, match="not both"):
        region.restore(into=bytearray(1000), like=b"")
    with spillway.Connection() as other:
        for call in (other.restore, other.drop):
            with pytest.raises(spillway.EINVAL, match="another connection"):
                call(region)
    assert region.restore().wait() == bytes(1000)


def test_the_ticket_holds_the_memory_and_lets_go(connection):
    a = RANDOM.random(4_000_000)
    gone = weakref.ref(a)
    ticket = connection.spill(a)
    del a
    gc.collect()
    assert gone() is not None
    region = ticket.wait()
    gc.collect()
    assert gone() is None
    ticket = region.restore()
    del region
    gc.collect()
    assert len(ticket.wait()) == 4_000_000


def test_a_region_that_goes_is_dropped(connection):
    region = connection.spill(bytearray(1000)).wait()
    before = connection.status().regions
    del region
    gc.collect()
    assert connection.status().regions == before - 1
    connection.spill(bytearray(1000))  # nobody takes its region
    while connection._session._running:
        connection.dispatch()
    assert connection.status().regions == before - 1


def test_all_that_went_are_dropped_with_the_next_call(connection):
    before = connection.status().regions
    regions = connection.spill_batch([bytearray(1000)] * 10).wait()
    assert connection.status().regions == before + 10
    del regions
    gc.collect()
    assert connection.status().regions == before


def test_a_connection_that_goes_is_closed(alone):
    def n_open():
        return len(os.listdir("/proc/self/fd"))

    before = n_open()
    other = spillway.Connection()
    assert alone.status().sessions == 1 + 1
    del other
    gc.collect()
    assert n_open() == before


def test_full(connection):
    kept = []
    with pytest.raises(spillway.ENOSPACE, match="host_tier_bytes") as raised:
        while True:
            kept.append(connection.spill(numpy.frombuffer(os.urandom(32 << 20), "u1")).wait())
    assert (raised.value.name, raised.value.scope, raised.value.code) == ("ENOSPACE", "request", 1000)
    connection.drop(*kept)
    assert connection.status().tier_used_bytes < 32 << 20


def test_timeouts_and_cancel(connection):
    a = RANDOM.integers(0, 1 << 60, 8_000_000)
    ticket = connection.spill(a)
    with pytest.raises(TimeoutError) as raised:
        ticket.wait(timeout=0)
    assert raised.type is spillway.EAGAIN
    ticket.cancel()
    with pytest.raises(spillway.ECANCELED):
        ticket.wait()
    with pytest.raises(spillway.ETIMEDOUT) as raised:
        ticket = connection.spill(a, timeout=0.001)
        time.sleep(0.05)
        ticket.wait()
    assert isinstance(raised.value, TimeoutError)


def test_each_call_may_have_a_time_limit(connection, service):
    region = connection.spill(b"one" * 1000).wait()
    regions = connection.spill_batch([b"two" * 1000, b"three" * 1000]).wait()
    calls = (
        lambda: connection.spill(bytearray(1000), timeout=0.05),
        lambda: connection.spill_batch([bytearray(1000), bytearray(1000)], timeout=0.05),
        lambda: connection.restore(region, timeout=0.05),
        lambda: connection.restore_batch(regions, timeout=0.05),
    )
    for call in calls:
        pause(service)
        try:
            ticket = call()
            time.sleep(0.1)
            ticket.done()  # the library looks at the time
        finally:
            os.kill(service.pid, signal.SIGCONT)
        with pytest.raises(spillway.ETIMEDOUT):
            ticket.wait()
    assert region.is_stored and all(r.is_stored for r in regions)


def test_durable(service):
    a = numpy.arange(1000)
    with spillway.Connection() as c:
        c.spill({"k": a, "v": a * 2}, name="cache/part-17").wait()
        with spillway.Connection() as other, pytest.raises(spillway.EBUSY):
            other.adopt("cache/part-17")
    with spillway.Connection() as c:
        (named,) = c.list()
        assert (named.name, named.raw_bytes, named.tier) == ("cache/part-17", 16000, "host")
        region = c.adopt("cache/part-17")
        assert region.raw_bytes == 16000 and region.stored_bytes == named.stored_bytes
        with pytest.raises(spillway.EINVAL, match="into=x"):
            region.restore()
        back = region.restore(like={"k": a, "v": a}).wait()
        assert (back["v"] == a * 2).all()
        assert region.is_stored  # it has a name
        c.drop("cache/part-17")
        assert c.list() == [] and not c.list()
        with pytest.raises(spillway.ENOENT):
            c.adopt("cache/part-17")
        names = [f"n{i:03}" for i in range(300)]
        c.spill_batch([b"x"] * 200, names=names[:200]).wait()
        c.spill_batch([b"x"] * 100, names=names[200:]).wait()
        assert [n.name for n in c.list()] == names
        c.drop(*names)


def test_prefer(python):
    program = """
        import numpy, pytest, spillway
        words = numpy.random.default_rng(1).integers(0, 2000, 1_000_000)
        text = " ".join(f"word{w * w}" for w in words).encode()
        with spillway.start(device="host", host_tier_bytes="64MiB", scratch_bytes="64MiB", slots=2):
            with spillway.Connection() as c:
                usual, dense = (c.spill(text, prefer=p).wait() for p in (None, "room"))
                assert dense.result.codec == "onpair" and dense.stored_bytes < usual.stored_bytes
                assert usual.restore().wait() == dense.restore().wait() == text
                for region in c.spill_batch([text, text], prefer="room").wait():
                    assert region.result.codec == "onpair"
                with pytest.raises(spillway.EINVAL, match="prefer='speed', must be one of none, time, room"):
                    c.spill(text, prefer="speed")
    """
    python(program)


def test_durability(python, tmp_path):
    program = f"""
        import numpy, pytest, spillway
        a = numpy.arange(100000)
        disk = {{"nvme_tier_directory": "{tmp_path}/disk", "nvme_tier_bytes": "64MiB"}}
        for life in range(2):  # the second service finds it on the disk
            with spillway.start(device="host", host_tier_bytes="64MiB", scratch_bytes="64MiB", slots=2, **disk):
                with spillway.Connection() as c:
                    if life == 0:
                        c.spill(a, name="a", durability="host").wait()
                        c.spill_batch([b"x", b"y"], names=["b", "c"], durability="host").wait()
                        with pytest.raises(spillway.EDURABILITY, match="remote_tier_endpoint"):
                            c.spill(a, name="d", durability="remote").wait()
                        with pytest.raises(spillway.EINVAL, match="durability='disk'"):
                            c.spill(a, name="d", durability="disk")
                        with pytest.raises(spillway.EINVAL, match="needs a name"):
                            c.spill(a, durability="host").wait()
                    assert [(n.name, n.durability) for n in c.list()] == [(n, "host") for n in "abc"]
                    assert (c.adopt("a").restore(like=a).wait() == a).all()
        print("found")
    """
    assert python(program) == "found\n"


def test_status_has_each_number_in_its_place(connection):
    numbers = ["n_gpus", "sessions", "regions", "tier_capacity_bytes", "tier_used_bytes", "nvme_capacity_bytes"]
    numbers += ["nvme_used_bytes", "scratch_bytes"]

    class Library:
        def spillway_status(self, c, status, error):
            status[0].version, status[0].device = b"1.2.3", b"a GPU"
            for i, name in enumerate(numbers):
                setattr(status[0], name, i + 1)
            return 0

    connection._lib = Library()
    status = connection.status()
    assert [getattr(status, name) for name in numbers] == list(range(1, len(numbers) + 1))
    assert (status.version, status.device) == ("1.2.3", "a GPU")


def test_empty_arrays_behind_many(connection):
    """A region of the service has 64 buffers, and one that holds nothing has one."""
    arrays = [numpy.full(i % 5 + 1, i) for i in range(64)] + [numpy.zeros(0), numpy.zeros(0)]
    back = connection.spill(arrays).wait().restore().wait()
    assert len(back) == 66 and all((a == b).all() for a, b in zip(arrays, back))


def test_register(connection):
    import mmap

    fd = os.memfd_create("pool", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 1 << 20)
    pool = mmap.mmap(fd, 1 << 20)
    a = numpy.frombuffer(pool, "i8")
    a[:] = numpy.arange(len(a))
    with connection.register(a):
        region = connection.spill(a[1000:2000]).wait()
        a[1000:2000] = 0
        region.restore(into=a[1000:2000]).wait()
    assert (a == numpy.arange(len(a))).all()
    again = connection.register(a)  # it is no longer registered
    again.close()
    again.close()
    with pytest.raises(spillway.EMEMKIND):
        connection.register(bytearray(1000))
    connection.prepare(a)
    last = connection.register(a)
    connection.close()
    last.close()
    with pytest.raises(spillway.ECONN):
        connection.prepare(a)
    os.close(fd)


def test_closed(service):
    c = spillway.Connection()
    region = c.spill(bytearray(10)).wait()
    ticket = c.spill(RANDOM.random(4_000_000))
    c.close()
    c.close()
    for call in (lambda: c.spill(b"x"), region.restore, c.status, c.list, c.fileno, ticket.wait):
        with pytest.raises(spillway.ECONN):
            call()
    assert not region.is_stored and "closed" in repr(c)
