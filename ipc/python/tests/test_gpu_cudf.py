# SPDX-License-Identifier: Apache-2.0
"""spillway.cudf with cuDF itself on a GPU, in twice the memory that RMM may use. Skipped without a GPU or cuDF.

tests/gpu/python.sh BUILD [PYTHON] runs this on a machine with a GPU.
"""

import os
import pickle

import pytest

import spillway

if not os.path.exists("/dev/nvidiactl"):
    pytest.skip("no NVIDIA GPU", allow_module_level=True)
cudf = pytest.importorskip("cudf")
cupy = pytest.importorskip("cupy")
rmm = pytest.importorskip("rmm")

MIB = 1 << 20
ROWS = 2 * MIB


@pytest.fixture(scope="module", autouse=True)
def service():
    service = spillway.start()
    with spillway.Connection() as connection:
        if not connection.status().n_gpus:
            pytest.skip("the service uses no GPU: " + service.log()[-500:])


@pytest.fixture(params=["service", "client"])
def manager(request):
    import spillway.cudf

    before = rmm.mr.get_current_device_resource()
    below = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 384 * MIB, 384 * MIB)
    rmm.mr.set_current_device_resource(rmm.mr.LimitingResourceAdaptor(below, 256 * MIB))
    with spillway.Connection(codec=request.param) as connection:
        yield spillway.cudf.install(connection)
        spillway.cudf.uninstall()
    rmm.mr.set_current_device_resource(before)


def frame(i):
    numbers = cupy.arange(ROWS, dtype="i8") * (i + 3) % 1009
    names = "name#" + cudf.Series(numbers % 97).astype("str")
    return cudf.DataFrame({"key": numbers, "price": numbers.astype("f8") / 4, "name": names})


def sums(table):
    return table.groupby("name").agg({"key": "sum", "price": "max"}).sort_index().to_pandas()


def test_more_than_fits(manager):
    """Joins and groups, twice; the results are those of the same frames alone."""
    # Where a join finds all rows in their order, cuDF copies the columns, and they can never be spilled again.
    other = cudf.DataFrame({"key": cupy.arange(900), "weight": cupy.arange(900) * 3})
    alone = []
    for i in range(8):
        table = frame(i)
        alone.append((sums(table), int(table.merge(other, on="key")["weight"].sum())))
        del table
    frames = [frame(i) for i in range(8)]
    for _ in range(2):
        for table, (grouped, weight) in zip(frames, alone):
            assert sums(table).equals(grouped)
            assert int(table.merge(other, on="key")["weight"].sum()) == weight
    totals = manager.statistics.spill_totals
    assert totals["gpu", "spillway"][0] > 256 * MIB and totals["spillway", "gpu"][0] > 256 * MIB


def test_copies_and_pickles(manager):
    table, fresh = frame(1), frame(1).to_pandas()
    for owner in manager.buffers():
        owner.spill()
    assert [owner.memory_info()[2] for owner in manager.buffers()].count("spillway") >= 4
    again, copy = pickle.loads(pickle.dumps(table)), table.copy(deep=True)
    del table, owner
    for found in (again, copy):
        assert found.to_pandas().equals(fresh)


def test_a_pool_leaves_as_well(manager):
    import spillway.cudf
    import spillway.rmm

    connection = manager.connection
    spillway.cudf.uninstall()
    with spillway.rmm.install() as pool:
        spillway.cudf.install(connection, pool=pool)
        handle = pool.new(64 * MIB)
        with handle.pin() as array:
            cupy.asarray(array)[:] = 5
        tables = [frame(i) for i in range(4)]
        big = cupy.empty(200 * MIB, "u1")
        assert handle.info().state == "spilled"
        del big
        with handle.pin() as array:
            assert bool((cupy.asarray(array) == 5).all())
        assert [int(table["key"].max()) for table in tables] == [1008] * 4
        del tables
        handle.close()
        spillway.cudf.uninstall()
