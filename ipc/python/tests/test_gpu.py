# SPDX-License-Identifier: Apache-2.0
"""Arrays on a GPU: CuPy, PyTorch, JAX, as far as they are installed. Skipped without a GPU.

tests/gpu/python.sh BUILD [PYTHON] runs this on a machine with a GPU.
"""

import gc
import os

import numpy
import pytest

import spillway
from spillway import _arrow

if not os.path.exists("/dev/nvidiactl"):
    pytest.skip("no NVIDIA GPU", allow_module_level=True)


@pytest.fixture(scope="module")
def gpu_connection():
    service = spillway.start()
    connection = spillway.Connection()
    if not connection.status().n_gpus:
        pytest.skip("the service uses no GPU: " + service.log()[-500:])
    yield connection
    connection.close()


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return module


@pytest.fixture
def jax():
    module = pytest.importorskip("jax")
    if module.default_backend() != "gpu":
        pytest.skip("this JAX has no CUDA")
    return module


@pytest.mark.parametrize("dtype", ["u1", "i4", "i8", "f4", "f8", "f2", "c8"])
def test_cupy(gpu_connection, cupy, dtype):
    a = cupy.arange(1_000_003).astype(dtype)
    expected = cupy.asnumpy(a)
    region = gpu_connection.spill(a).wait()
    del a
    b = region.restore(keep=True).wait()
    assert isinstance(b, cupy.ndarray) and b.dtype == dtype
    assert (cupy.asnumpy(b) == expected).all()
    b.fill(0)
    assert region.restore(into=b).wait() is b
    assert (cupy.asnumpy(b) == expected).all()
    with pytest.raises(spillway.EINVAL, match="ascontiguousarray"):
        gpu_connection.spill(b[::2])


def test_cupy_streams(gpu_connection, cupy):
    """What is queued before the spill is in it: on the current stream, a named one, and the default ones."""
    for stream in (
        cupy.cuda.Stream(non_blocking=True),
        cupy.cuda.Stream(),
        cupy.cuda.Stream.null,
        cupy.cuda.Stream.ptds,
    ):
        a = cupy.zeros(64 << 20, "u1")
        cupy.cuda.Device().synchronize()
        with stream:
            for i in range(200):
                a.fill(i)
            ticket = gpu_connection.spill(a)
        region = ticket.wait()
        b = region.restore(stream=stream).wait()
        with stream:
            assert int(b.min()) == int(b.max()) == 199


def test_cupy_table_and_memory_pools(gpu_connection, cupy):
    pools = [cupy.get_default_memory_pool().malloc, cupy.cuda.MemoryAsyncPool().malloc, cupy.cuda.malloc_managed]
    before = cupy.cuda.get_allocator()
    try:
        for malloc in pools:
            cupy.cuda.set_allocator(malloc)
            table = {"k": cupy.arange(500_000), "v": cupy.random.random(500_000), "host": numpy.arange(10)}
            expected = {name: cupy.asnumpy(column) for name, column in table.items()}
            region = gpu_connection.spill(table).wait()
            del table
            back = region.restore().wait()
            assert all((cupy.asnumpy(back[name]) == expected[name]).all() for name in expected)
            del back
    finally:
        cupy.cuda.set_allocator(before)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "bfloat16", "float16", "bool"])
def test_torch(gpu_connection, torch, dtype):
    a = torch.randint(0, 2, (1000, 1001), device="cuda").to(getattr(torch, dtype))
    expected = a.cpu()
    region = gpu_connection.spill(a).wait()
    del a
    b = region.restore(keep=True).wait()
    assert b.is_cuda and b.dtype == expected.dtype and torch.equal(b.cpu(), expected)
    b.zero_()
    region.restore(into=b).wait()
    assert torch.equal(b.cpu(), expected)
    with pytest.raises(spillway.EINVAL, match=r"x\.contiguous\(\)"):
        gpu_connection.spill(b.T)


def test_torch_streams_and_grad(gpu_connection, torch):
    a = torch.nn.Parameter(torch.zeros(16 << 20, device="cuda"))
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        with torch.no_grad():
            for i in range(200):
                a.fill_(i)
        region = gpu_connection.spill(a).wait()
    b = region.restore().wait()
    assert b.min().item() == b.max().item() == 199


def test_jax(gpu_connection, jax):
    a = jax.numpy.arange(1_000_000) * 3
    region = gpu_connection.spill(a).wait()
    with pytest.raises(spillway.EINVAL, match="like=x"):
        region.restore(into=a)
    assert (region.restore(like=a, keep=True).wait() == a).all()
    assert (region.restore().wait() == a).all()


def test_codec_in_this_process(gpu_connection, cupy):
    with spillway.Connection(codec="client") as connection:
        a = cupy.arange(8_000_000)
        region = connection.spill(a).wait()
        assert region.result.coder == "client"
        assert (region.restore().wait() == a).all()


def test_a_dropped_array_is_free(gpu_connection, cupy):
    pool = cupy.get_default_memory_pool()
    a = cupy.arange(32_000_000)
    used = pool.used_bytes()
    ticket = gpu_connection.spill(a)
    del a
    gc.collect()
    assert pool.used_bytes() == used  # the ticket holds it
    region = ticket.wait()
    gc.collect()
    assert pool.used_bytes() < used
    region.drop()


def test_arrow(gpu_connection, cupy):
    """An array that speaks the device interface only, with a validity, offsets and characters."""
    node = _arrow.Node(b"u", b"", b"", 2, 4, 1, 0, [1, 20, 9])
    a = _arrow.ArrowArray(node, _arrow._Place(2, 0))
    parts = [b"\x0b", numpy.array([0, 3, 6, 6, 9], "i4").tobytes(), b"onetwosix"]
    for buffer, part in zip(a._buffers, parts):
        device_bytes(cupy, buffer)[:] = cupy.asarray(numpy.frombuffer(part, "u1"))
    cupy.cuda.Device().synchronize()

    class Foreign:
        __arrow_c_device_array__ = staticmethod(a.__arrow_c_device_array__)

    region = gpu_connection.spill(Foreign()).wait()
    assert region.raw_bytes == 30
    back = region.restore().wait()
    assert [device_bytes(cupy, buffer).get().tobytes() for buffer in back._buffers] == parts
    again = gpu_connection.spill({"a": back}).wait()
    assert again.raw_bytes == 30


def device_bytes(cupy, buffer):
    memory = cupy.cuda.UnownedMemory(buffer.address, buffer.nbytes, buffer.keep)
    return cupy.ndarray(buffer.nbytes, "u1", cupy.cuda.MemoryPointer(memory, 0))
