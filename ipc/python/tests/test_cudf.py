# SPDX-License-Identifier: Apache-2.0
"""spillway.cudf over memory of the host: with fakes of cuDF's private classes, and with these where cuDF is installed.
test_gpu_cudf.py has a GPU."""

import gc
import importlib.util
import pickle
import subprocess
import sys
import threading
import warnings

import fake_cudf
import fake_rmm
import numpy
import pytest

import spillway

MIB = 1 << 20
HAS_CUDF = importlib.util.find_spec("cudf") is not None


@pytest.fixture
def resource():
    return fake_rmm.HostResource(8 * MIB)


@pytest.fixture(params=["fake", pytest.param("cudf", marks=pytest.mark.skipif(not HAS_CUDF, reason="no cuDF"))])
def module(request, service, resource, monkeypatch):
    """spillway.cudf, not installed."""
    install = fake_cudf.install if request.param == "fake" else fake_cudf.install_over_real
    module = install(monkeypatch, resource)
    monkeypatch.setattr(spillway, "cudf", module, raising=False)
    yield module
    try:
        module.uninstall()
        assert resource.used == 0
    finally:
        module._undo.close()  # for the next test if this one has failed


@pytest.fixture
def manager(module):
    return module.install()


@pytest.fixture
def make(manager, module):
    """Makes a buffer of the GPU's memory, as cuDF does it."""

    def make_buffer(seed, nbytes=2 * MIB):
        memory = sys.modules["rmm"].DeviceBuffer.to_device(content(seed, nbytes))
        return sys.modules["cudf.core.buffer.utils"].as_buffer(memory)

    return make_buffer


def content(seed, nbytes=2 * MIB):
    return numpy.random.default_rng(seed).integers(0, 4, nbytes, "u1").data


def states(buffers):
    return [buffer.owner.memory_info()[2] for buffer in buffers]


def lock(buffer):
    """Makes it unspillable while the lock lives, and restores it for use."""
    spill_lock = sys.modules["cudf.core.buffer.spillable_buffer"].SpillLock()
    buffer.owner.spill_lock(spill_lock)
    assert buffer.owner.ptr
    return spill_lock


def bytes_of(buffer):
    """Reads it as a kernel would: on the GPU."""
    spill_lock = lock(buffer)
    address, nbytes, state = buffer.memory_info()
    assert state == "gpu"
    found = numpy.empty(nbytes, "u1")
    fake_rmm.copy_ptr_to_host(address, found)
    del spill_lock
    return found.data


def regions(manager):
    gc.collect()
    manager.connection.drop()  # what has gone is dropped with the next call
    return manager.connection.status().regions


def fill_service(monkeypatch, manager):
    """Has the service refuse everything from now on."""

    def refuse(objects, **_):
        raise spillway.ENOSPACE("full")

    monkeypatch.setattr(manager.connection, "spill_batch", refuse)


@pytest.mark.parametrize("prepare", [True, False])
def test_what_spills_need_is_taken_if_it_is_asked_for(module, connection, monkeypatch, prepare):
    asked = []
    monkeypatch.setattr(connection, "prepare", lambda memory: asked.append(memory.size))
    module.install(connection, prepare=prepare)
    assert asked == ([module.LEAST_BYTES] if prepare else [])


def test_spill_and_restore(manager, make, resource):
    buffer = make(1)
    owner = buffer.owner
    assert states([buffer]) == ["gpu"] and resource.used == 2 * MIB
    owner.spill()
    assert owner.is_spilled and owner.spillable and resource.used == 0
    assert owner.memory_info() == buffer[5:9].memory_info()[:1] + (2 * MIB, "spillway") == (0, 2 * MIB, "spillway")
    assert owner._owner is None and "spillway.Region" in str(owner)
    owner.spill()  # it is there already
    assert bytes_of(buffer) == content(1)
    assert not owner.is_spilled and resource.used == 2 * MIB
    totals = manager.statistics.spill_totals
    assert {key: n for key, (n, _) in totals.items()} == {
        ("gpu", "spillway"): 2 * MIB,
        ("spillway", "gpu"): 2 * MIB,
    }
    assert all(seconds > 0 for _, seconds in totals.values())
    assert regions(manager) == 0  # nothing is kept of it


def test_a_pointer_restores_and_exposes(manager, make):
    buffer = make(2)
    buffer.owner.spill()
    assert buffer.owner.ptr != 0 and buffer.owner.exposed
    with pytest.raises(ValueError, match="unspillable"):
        buffer.owner.spill()
    assert bytes_of(buffer) == content(2)


def test_a_lock_keeps_it(manager, make):
    buffer = make(3)
    spill_lock = lock(buffer)
    with pytest.raises(ValueError, match="unspillable"):
        buffer.owner.spill()
    assert manager.spill_device_memory(nbytes=1) == 0
    del spill_lock
    assert manager.spill_device_memory(nbytes=1) == 2 * MIB
    assert states([buffer]) == ["spillway"]


def test_host_memory(manager, make, resource):
    """By way of the third state, and as without Spillway."""
    buffer = make(4)
    buffer.owner.spill()
    buffer.owner.spill(target="cpu")
    assert states([buffer]) == ["cpu"] and resource.used == 0 and regions(manager) == 0
    assert buffer.memory_info()[0] != 0 and buffer.owner.memoryview() == content(4)
    buffer.owner.spill()
    assert states([buffer]) == ["cpu"]  # it frees nothing
    assert bytes_of(buffer) == content(4)
    buffer.owner.spill(target="cpu")
    assert bytes_of(buffer) == content(4)
    buffer.owner.spill()
    with pytest.raises(ValueError, match="Unknown target: disk"):
        buffer.owner.spill(target="disk")
    assert states([buffer]) == ["spillway"]


def test_memoryview_leaves_it_stored(manager, make, resource):
    buffer = make(5)
    buffer.owner.spill()
    assert buffer.memoryview() == content(5)
    part = buffer[1000:3000].memoryview()
    assert part == content(5)[1000:3000] and part.obj.nbytes == 2000
    assert states([buffer]) == ["spillway"] and resource.used == 0
    buffer.memoryview()[:] = bytes(2 * MIB)  # it is a copy
    assert bytes_of(buffer) == content(5)


def test_copies_share_the_region(manager, make):
    buffer = make(6)
    buffer.owner.spill()
    buffer.owner.typestr = "i8"  # a column has told it
    copy, slice_, shallow = buffer.copy(), buffer[100:200].copy(), buffer.copy(deep=False)
    assert shallow.owner is buffer.owner and copy.owner is not buffer.owner and copy.owner.typestr == "i8"
    assert states([buffer, copy, slice_]) == ["spillway", "spillway", "cpu"]
    assert copy.owner in manager.buffers() and regions(manager) == 1
    assert bytes_of(buffer) == content(6) and regions(manager) == 1
    del buffer, shallow
    assert bytes_of(copy) == content(6) and regions(manager) == 0
    assert slice_.memoryview() == content(6)[100:200]


def test_serialize(manager, make):
    """Under cuDF's own names, so that a process without Spillway can read it."""
    buffer = make(7)
    buffer.owner.spill()
    header, frames = buffer[10:].serialize()
    assert header["owner-type-serialized-name"] == "SpillableBufferOwner"
    assert frames == [content(7)[10:]] and states([buffer]) == ["spillway"]
    other = type(buffer).deserialize(header, [memoryview(bytearray(frames[0]))])
    assert type(other.owner) is type(buffer.owner) and states([other]) == ["cpu"]
    if hasattr(buffer, "host_serialize"):
        assert pickle.loads(pickle.dumps(buffer)).memoryview() == content(7)
    assert bytes_of(other) == content(7)[10:]


def test_room_is_made(manager, make, resource):
    """Least recently used first, in one call; every byte comes back, in more than one round."""
    buffers = [make(i) for i in range(12)]  # three times what there is
    assert resource.used <= 8 * MIB and manager.resource.asked
    for _ in range(2):
        for i, buffer in enumerate(buffers):
            assert bytes_of(buffer) == content(i)
    lock(buffers[8])  # restored; it was used last
    asked = states(buffers)
    assert asked.count("gpu") == 4 and asked[8] == "gpu"
    memory = sys.modules["rmm"].DeviceBuffer(size=6 * MIB)
    assert states(buffers) == ["spillway"] * 8 + ["gpu"] + ["spillway"] * 3
    del memory


def test_out_of_memory_stays_an_error(manager, make, resource, capsys):
    buffers = [make(i) for i in range(3)]
    locks = [lock(buffer) for buffer in buffers]
    with pytest.raises(MemoryError):
        make(9, 4 * MIB)
    del locks
    with pytest.raises(MemoryError):
        make(9, 9 * MIB)
    assert states(buffers) == ["spillway"] * 3


def test_a_restore_without_room_leaves_it(manager, make, resource, capsys):
    stored, on_host = make(1), make(2)
    stored.owner.spill()
    on_host.owner.spill(target="cpu")
    memory = sys.modules["rmm"].DeviceBuffer(size=7 * MIB)
    for buffer, state in ((stored, "spillway"), (on_host, "cpu")):
        with pytest.raises(MemoryError):
            lock(buffer)
        assert states([buffer]) == [state] and buffer.owner.spillable
    del memory
    assert bytes_of(stored) == content(1) and bytes_of(on_host) == content(2)


def test_a_failed_restore_leaves_the_region(manager, make, resource, monkeypatch):
    buffer = make(1)
    buffer.owner.spill()
    restore, calls = manager.connection.restore, []

    def fail(*arguments, **options):
        calls.append(options["keep"])
        raise spillway.EGPU("not now")

    monkeypatch.setattr(manager.connection, "restore", fail)
    for read in (lambda: lock(buffer), buffer.memoryview, lambda: buffer.owner.spill(target="cpu")):
        with pytest.raises(spillway.EGPU):
            read()
    assert states([buffer]) == ["spillway"] and resource.used == 0 and calls == [True] * 3
    monkeypatch.setattr(manager.connection, "restore", restore)
    assert bytes_of(buffer) == content(1)


def test_a_restart_is_tried_again(manager, make, monkeypatch):
    """Once, for spills and restores."""
    buffer = make(1)

    class Restarted:
        def wait(self):
            raise spillway.ERESTARTED("while you waited", "request")

    for name, run in (("spill_batch", buffer.owner.spill), ("restore", lambda: bytes_of(buffer))):
        real, tickets = getattr(manager.connection, name), [Restarted()]
        monkeypatch.setattr(
            manager.connection, name, lambda *a, real=real, t=tickets, **k: t.pop() if t else real(*a, **k)
        )
        run()
        assert not tickets
    assert bytes_of(buffer) == content(1)


def test_a_session_that_is_gone_is_not_tried_again(manager, make, monkeypatch):
    buffer, calls = make(1), []
    buffer.owner.spill()
    restore = manager.connection.restore

    class Gone:
        def wait(self):
            raise spillway.ERESTARTED("nothing of it is left", "session")

    def tried(*arguments, **options):
        calls.append(options["keep"])
        return Gone()

    monkeypatch.setattr(manager.connection, "restore", tried)
    with pytest.raises(spillway.ERESTARTED, match="nothing of it"):
        bytes_of(buffer)
    assert calls == [True]
    monkeypatch.setattr(manager.connection, "restore", restore)
    assert bytes_of(buffer) == content(1)


def test_a_full_service(manager, make, monkeypatch, resource):
    """Then buffers go to host memory as without Spillway."""
    buffers = [make(i) for i in range(4)]
    fill_service(monkeypatch, manager)
    with pytest.warns(RuntimeWarning, match="ENOSPACE: full"):
        buffers.append(make(4))
    assert states(buffers) == ["cpu"] + ["gpu"] * 4
    for i, buffer in enumerate(buffers):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert bytes_of(buffer) == content(i)


def test_neither_service_nor_host_has_room(manager, make, monkeypatch, resource, capsys):
    buffer = make(1, 6 * MIB)
    fill_service(monkeypatch, manager)

    def no_room(nbytes):
        raise MemoryError

    real = sys.modules["cudf.core.buffer.spillable_buffer"]
    monkeypatch.setattr(real, "host_memory_allocation", no_room, raising=False)
    monkeypatch.setattr(fake_cudf, "host_memory_allocation", no_room)
    with pytest.warns(RuntimeWarning, match="ENOSPACE"), pytest.raises(MemoryError):
        make(2, 4 * MIB)
    with pytest.warns(RuntimeWarning, match="ENOSPACE"), pytest.raises(MemoryError, match="neither the service"):
        buffer.owner.spill()
    assert states([buffer]) == ["gpu"]
    assert bytes_of(buffer) == content(1, 6 * MIB)


def test_each_by_itself(manager, make, monkeypatch):
    """Of several that leave in one call, one that the service cannot take goes to host memory."""
    buffers = [make(i) for i in range(3)]
    real = manager.connection.spill_batch

    def one_fails(objects, **options):
        ticket = real(objects, **options)
        outcomes = ticket.wait()
        assert len(outcomes) == 3
        outcomes[1] = spillway.ENOSPACE("full")
        return ticket

    monkeypatch.setattr(manager.connection, "spill_batch", one_fails)
    with pytest.warns(RuntimeWarning, match="ENOSPACE"):
        assert manager.spill_device_memory(nbytes=5 * MIB) == 6 * MIB
    assert states(buffers) == ["spillway", "cpu", "spillway"]
    assert [bytes_of(buffer) == content(i) for i, buffer in enumerate(buffers)] == [True] * 3


def test_small_buffers_go_to_host_memory(manager, make):
    buffers = [make(i, n) for i, n in enumerate((MIB - 1, MIB))]
    assert manager.spill_device_memory(nbytes=2 * MIB) == 2 * MIB - 1
    assert states(buffers) == ["cpu", "spillway"]


def test_the_device_limit(module, make, manager):
    module.uninstall()
    limited = module.install(device_memory_limit=4 * MIB)
    buffers = [make(i) for i in range(4)]
    assert states(buffers) == ["spillway"] * 2 + ["gpu"] * 2
    assert limited.spill_to_device_limit() == 0  # cuDF's own spills one below the limit as well
    assert limited.spill_to_device_limit(0) == 4 * MIB


def test_the_pool_is_asked(module, resource):
    """One failure callback: when cuDF's buffers were not enough, idle handles leave."""
    import spillway.rmm

    with spillway.rmm.install() as pool:
        manager = module.install(pool=pool)
        assert manager.resource.get_upstream() is resource
        handle = pool.new(4 * MIB)
        with handle.pin() as array:
            array[:] = content(1, 4 * MIB)
        as_buffer, rmm = sys.modules["cudf.core.buffer.utils"].as_buffer, sys.modules["rmm"]
        buffer = as_buffer(rmm.DeviceBuffer.to_device(content(2)))
        memory = rmm.DeviceBuffer(size=3 * MIB)  # the buffer of cuDF is enough
        assert states([buffer]) == ["spillway"] and handle.info().state == "live"
        other = rmm.DeviceBuffer(size=4 * MIB)
        assert handle.info().state == "spilled" and manager.resource.asked == [3 * MIB, 4 * MIB]  # once each
        del memory, other
        with handle.pin() as array:
            assert array == content(1, 4 * MIB)
        assert bytes_of(buffer) == content(2)
        del buffer
        module.uninstall()
        assert rmm.mr.get_current_device_resource() is pool.resource
        handle.close()
    assert rmm.mr.get_current_device_resource() is resource


def test_a_finalizer_does_not_spill_again(manager, make, monkeypatch):
    buffers = [make(i) for i in range(2)]
    real, found = manager.connection.spill_batch, []

    def nested(objects, **options):
        found.append(manager.spill_device_memory(nbytes=MIB))
        return real(objects, **options)

    monkeypatch.setattr(manager.connection, "spill_batch", nested)
    assert manager.spill_device_memory(nbytes=1) == 2 * MIB
    assert found == [0] and states(buffers) == ["spillway", "gpu"]


def test_what_others_spill_counts(manager, make, monkeypatch):
    """A thread that finds nothing to spill, while another one spills, has its memory."""
    buffer = make(1)
    real, begun, go_on, freed = manager.connection.spill_batch, threading.Event(), threading.Event(), []

    def slow(objects, **options):
        begun.set()
        assert go_on.wait(20)
        return real(objects, **options)

    monkeypatch.setattr(manager.connection, "spill_batch", slow)
    first = threading.Thread(target=lambda: freed.append(manager.spill_device_memory(nbytes=1)))
    second = threading.Thread(target=lambda: freed.append(manager.spill_device_memory(nbytes=1)))
    first.start()
    assert begun.wait(20)
    second.start()
    second.join(0.2)
    assert second.is_alive() and freed == []
    go_on.set()
    first.join(20)
    second.join(20)
    assert freed == [2 * MIB, 2 * MIB] and states([buffer]) == ["spillway"]


def test_threads(manager, make, six_threads):
    """Buffers are read and spilled by six threads, in memory for half of them."""
    buffers = [make(i, MIB) for i in range(14)]

    def work(number):
        for turn in range(20):
            i = (number * 5 + turn * 3) % len(buffers)
            if turn % 4 == number % 4:
                assert buffers[i].memoryview() == content(i, MIB)
            else:
                assert bytes_of(buffers[i]) == content(i, MIB)

    six_threads(work)


class FakeColumn:
    """A column of pylibcudf, as far as types go."""

    def __init__(self, name, buffer):
        self._name, self._buffer = name, buffer

    def type(self):
        return self

    id = type

    @property
    def name(self):
        return self._name

    def data(self):
        return self._buffer


def test_columns_tell_the_type(module, make, manager):
    """Numbers are stored as such, because that is denser."""
    numbers = numpy.random.default_rng(1).integers(0, 1 << 20, MIB, "i8")
    rmm, as_buffer = sys.modules["rmm"], sys.modules["cudf.core.buffer.utils"].as_buffer
    tell = module._typed(lambda col: col)
    stored = []
    for name, typestr in (("INT64", "i8"), ("TIMESTAMP_MICROSECONDS", "i8"), ("STRING", "V1"), ("FLOAT32", "f4")):
        buffer = as_buffer(rmm.DeviceBuffer.to_device(memoryview(numbers).cast("B")[: 4 * MIB]))
        tell(FakeColumn("INT8", buffer[:100]))
        assert buffer.owner.typestr == "V1"  # a part of it says nothing about the whole
        tell(FakeColumn(name, buffer))
        assert buffer.owner.typestr == typestr
        buffer.owner.spill()
        stored.append(buffer.owner._ptr_desc["region"].stored_bytes)
        assert bytes_of(buffer) == memoryview(numbers).cast("B")[: 4 * MIB]
    assert stored[0] == stored[1] < 0.9 * stored[2]
    buffer = make(1, MIB + 3)
    tell(FakeColumn("INT64", buffer))
    buffer.owner.spill()  # as bytes: it has no whole number of values
    assert bytes_of(buffer) == content(1, MIB + 3)


@pytest.mark.parametrize("module", ["cudf"], indirect=True)
@pytest.mark.skipif(not HAS_CUDF, reason="no cuDF")
def test_a_column_of_cudf(manager, make):
    """Its own columns over our buffers: types, accesses, copy-on-write and pickles, in the third state."""
    import pylibcudf as plc
    from cudf.core.column.column import ColumnBase

    buffer = make(1)
    whole = plc.Column(plc.DataType(plc.TypeId.INT64), MIB // 4, buffer, None, 0, 0, [], validate=False)
    column = ColumnBase.create(whole, numpy.dtype("i8"))
    owner = column.data.owner
    assert owner is buffer.owner and owner.typestr == "i8"
    owner.spill()
    with column.access(mode="read", scope="internal"):
        assert owner.is_spilled and not owner.spillable  # until the address is asked for
        assert column.plc_column.data().ptr == owner.memory_info()[0] != 0
    owner.spill()
    assert not owner.exposed
    with column.access(mode="write", scope="internal"):
        assert column.plc_column.data().ptr != 0  # its own: a copy shares the region until then
    assert column.data.owner is not owner and states([column.data, buffer]) == ["gpu", "spillway"]
    column.data.owner.spill()
    loaded = pickle.loads(pickle.dumps(column))
    assert states([column.data, loaded.data]) == ["spillway", "cpu"]
    assert loaded.data.memoryview() == column.data.memoryview() == content(1)
    assert bytes_of(buffer) == bytes_of(loaded.data) == content(1)


def test_columns_tell_it_in_place(module, manager, monkeypatch):
    column = sys.modules["cudf.core.column.column"]
    assert column._rebuild_column.__wrapped__ is not None
    module.uninstall()
    assert not hasattr(column._rebuild_column, "__wrapped__")


def test_install_is_refused(module, resource):
    utils, rmm = sys.modules["cudf.core.buffer.utils"], sys.modules["rmm"]
    spill_manager = sys.modules["cudf.core.buffer.spill_manager"]
    before = utils.SpillableBufferOwner
    own = spill_manager.SpillManager()
    spill_manager.set_global_manager(own)
    buffer = utils.as_buffer(rmm.DeviceBuffer.to_device(content(1)))
    with pytest.raises(spillway.EINVAL, match="1 buffer.s. already.*install.. right after"):
        module.install()
    del buffer
    with pytest.raises(spillway.EINVAL, match="own spilling is on"):
        module.install()
    spill_manager.set_global_manager(None)
    rmm.mr.set_current_device_resource(rmm.mr.FailureCallbackResourceAdaptor(resource, lambda nbytes: False))
    with pytest.raises(spillway.EINVAL, match="callback already.*pool=pool"):
        module.install()
    rmm.mr.set_current_device_resource(resource)
    with pytest.raises(spillway.ENOSERVICE):
        module.install(spillway.Connection("/nowhere/data.sock"))
    assert utils.SpillableBufferOwner is before and spill_manager._global_manager is None
    module.install()
    assert utils.SpillableBufferOwner is module.SpillableBufferOwner
    with pytest.raises(spillway.EINVAL, match="installed already"):
        module.install()


def test_a_failed_install_leaves_nothing(module, resource, monkeypatch):
    rmm = sys.modules["rmm"]

    def fail(*_):
        raise RuntimeError("no")

    monkeypatch.setattr(rmm.mr, "FailureCallbackResourceAdaptor", type("Adaptor", (), {"__init__": fail}))
    with pytest.raises(RuntimeError):
        module.install()
    utils, spill_manager = sys.modules["cudf.core.buffer.utils"], sys.modules["cudf.core.buffer.spill_manager"]
    assert spill_manager._global_manager is None and utils.SpillableBuffer is not module.SpillableBuffer
    assert rmm.mr.get_current_device_resource() is resource
    module.uninstall()


def test_uninstall(module, manager, make, resource):
    buffer = make(1)
    buffer.owner.spill()
    with pytest.raises(spillway.EBUSY, match="1 buffer"):
        module.uninstall()
    assert bytes_of(buffer) == content(1)
    del buffer
    module.uninstall()
    utils, spill_manager = sys.modules["cudf.core.buffer.utils"], sys.modules["cudf.core.buffer.spill_manager"]
    names = sys.modules["cudf.core.abc"].Serializable._name_type_map
    for name in ("SpillableBuffer", "SpillableBufferOwner"):
        assert getattr(utils, name) is names[name] is not getattr(module, name)
    assert spill_manager._global_manager is None
    assert sys.modules["rmm"].mr.get_current_device_resource() is resource
    assert "closed" in repr(manager.connection)


def test_a_connection_that_is_given_stays(module, connection):
    manager = module.install(connection, prepare=False)
    assert manager.connection is connection
    module.uninstall()
    assert connection.status().device == "host"


@pytest.mark.parametrize("version", ["26.08.00", "26.12.00", "27.10.01"])
def test_other_versions_are_refused(service, resource, monkeypatch, version):
    monkeypatch.setitem(fake_cudf.CONTENTS["cudf"], "__version__", version)
    with pytest.raises(spillway.EVERSION, match=f"needs cuDF 26.10, and this is {version}"):
        fake_cudf.install(monkeypatch, resource)


def test_missing_names_are_refused(service, resource, monkeypatch):
    monkeypatch.delattr(fake_cudf.SpillableBufferOwner, "_finalize_init")
    with pytest.raises(spillway.EVERSION, match="has no cudf.core.buffer.spillable_buffer.SpillableBufferOwner._fin"):
        fake_cudf.install(monkeypatch, resource)


COMPARE = """
import functools, importlib, inspect, json, sys
sys.path.insert(0, sys.argv[1])
import fake_cudf

def parameters(function):
    return [(p.name, str(p.kind), repr(p.default)) for p in inspect.signature(function).parameters.values()]

def members(cls):
    return {n: m for n, m in vars(cls).items() if not n.startswith("__") or n == "__init__"}

for module, contents in fake_cudf.CONTENTS.items():
    real = importlib.import_module(module)
    for name, fake in contents.items():
        there = getattr(real, name)
        if inspect.isclass(fake):
            assert inspect.isclass(there), name
            for member, m in members(fake).items():
                real_member = inspect.getattr_static(there, member)
                assert type(real_member) is type(m) or callable(m) and callable(real_member), (name, member)
                if inspect.isfunction(m):
                    assert parameters(m) == parameters(real_member), (name, member, parameters(real_member))
                elif isinstance(m, classmethod):
                    assert parameters(m.__func__) == parameters(real_member.__func__), (name, member)
        elif inspect.isfunction(fake):
            assert parameters(fake) == parameters(there), (name, parameters(there))
print("the same")
"""


@pytest.mark.skipif(not HAS_CUDF, reason="no cuDF")
def test_the_fakes_are_like_cudf():
    """Names, parameters and defaults. In a process of its own, where nothing is replaced."""
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, fake_cudf.__file__.rpartition("/")[0]], capture_output=True, text=True
    )
    assert done.stdout == "the same\n", done.stderr
