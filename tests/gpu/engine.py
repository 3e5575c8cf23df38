"""An engine of somebody's own: memory of PyTorch, CuPy or JAX goes out and comes back through a running spillwayd.

    engine.py LIBSPILLWAY SOCKET FRAMEWORK [BYTES]      FRAMEWORK: torch, cupy, jax

For each kind of stream the bytes are brought into the framework's memory by work that is still queued on that stream
when the spill is asked for. The memory is freed, other memory taken, the region restored into that, and every byte
compared. Prints a line for each; exit code 1 if any went wrong, 77 if the framework is not there.
"""

import ctypes
import os
import sys
import time


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("scope", ctypes.c_int), ("cuda", ctypes.c_int),
                ("name", ctypes.c_char * 16), ("text", ctypes.c_char * 256)]


class Region(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_uint32), ("generation", ctypes.c_uint32)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("socket_path", ctypes.c_char_p), ("connect_ms", ctypes.c_int),
                ("call_ms", ctypes.c_int), ("reconnect_ms", ctypes.c_int), ("flags", ctypes.c_uint32),
                ("server_uid", ctypes.c_uint32)]


class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("type", ctypes.c_uint16),
                ("source", ctypes.c_uint16), ("stride", ctypes.c_uint32), ("source_offset", ctypes.c_uint64),
                ("reserved", ctypes.c_uint64 * 2)]


class Request(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("buffers", ctypes.POINTER(Buffer)), ("n_buffers", ctypes.c_uint32),
                ("flags", ctypes.c_uint32), ("region", Region), ("name", ctypes.c_char_p), ("stream", ctypes.c_void_p),
                ("timeout_ms", ctypes.c_uint32), ("urgency", ctypes.c_uint8), ("keep_priority", ctypes.c_uint8),
                ("reserved", ctypes.c_uint16), ("user", ctypes.c_void_p)]


class Result(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("code", ctypes.c_int), ("region", Region), ("raw_bytes", ctypes.c_uint64),
                ("stored_bytes", ctypes.c_uint64), ("service_us", ctypes.c_uint64), ("codec", ctypes.c_char * 16),
                ("tier", ctypes.c_char * 16), ("reason", ctypes.c_char * 32), ("coder", ctypes.c_char * 8)]


class Torch:
    def __init__(self):
        import torch
        self.torch = torch
        torch.cuda.init()
        allocator = torch.cuda.get_allocator_backend()
        expandable = "expandable" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
        self.name = "PyTorch, " + ("expandable segments" if expandable else
                                   "cudaMallocAsync" if allocator == "cudaMallocAsync" else "its own allocator")

    def take(self, n):
        memory = self.torch.full((n,), 0xEE, dtype=self.torch.uint8, device="cuda")
        self.torch.cuda.synchronize()
        return memory, memory.data_ptr()

    def forget(self):
        self.torch.cuda.empty_cache()


class Cupy:
    name = "CuPy"

    def __init__(self):
        import cupy
        self.cupy = cupy

    def take(self, n):
        memory = self.cupy.full(n, 0xEE, dtype=self.cupy.uint8)
        self.cupy.cuda.Device().synchronize()
        return memory, memory.data.ptr

    def forget(self):
        self.cupy.get_default_memory_pool().free_all_blocks()


class Jax:
    name = "JAX"

    def __init__(self):
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax
        self.jax = jax
        if not any(d.platform == "gpu" for d in jax.devices()):
            raise ImportError("JAX without a GPU")

    def take(self, n):
        memory = self.jax.numpy.full((n,), 0xEE, dtype=self.jax.numpy.uint8).block_until_ready()
        return memory, memory.unsafe_buffer_pointer()

    def forget(self):
        pass


class Driver:
    """The few calls of the CUDA driver that queue work on a stream."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.stream_kinds = [("default", 0), ("per-thread default", 2), ("non-blocking", self.new_stream())]

    def check(self, rc, call):
        if rc:
            raise RuntimeError(f"{call}: CUDA error {rc}")

    def new_stream(self):
        stream = ctypes.c_void_p()
        self.check(self.lib.cuStreamCreate(ctypes.byref(stream), 1), "cuStreamCreate")
        return stream.value

    def copy(self, to, source, n, stream):
        self.check(self.lib.cuMemcpyAsync(ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(n),
                                          ctypes.c_void_p(stream)), "cuMemcpyAsync")

    def upload(self, to, data):
        self.check(self.lib.cuMemcpyHtoD_v2(ctypes.c_uint64(to), data, ctypes.c_size_t(len(data))), "cuMemcpyHtoD")

    def download(self, source, n):
        data = ctypes.create_string_buffer(n)
        self.check(self.lib.cuMemcpyDtoH_v2(data, ctypes.c_uint64(source), ctypes.c_size_t(n)), "cuMemcpyDtoH")
        return data.raw


class Spillway:
    def __init__(self, path, socket):
        self.lib = ctypes.CDLL(path)
        self.error = Error()
        self.connection = ctypes.c_void_p()
        options = Options(size=ctypes.sizeof(Options), socket_path=socket.encode())
        self.check(self.lib.spillway_open(ctypes.byref(self.connection), ctypes.byref(options),
                                          ctypes.byref(self.error)))

    def check(self, rc):
        if rc:
            raise RuntimeError(f"{self.error.name.decode()}: {self.error.text.decode()}")

    def wait(self, ticket):
        result = Result(size=ctypes.sizeof(Result))
        rc = self.lib.spillway_wait(ticket, -1, ctypes.byref(result), 1, ctypes.byref(self.error))
        self.lib.spillway_ticket_free(ticket)
        self.check(rc)
        return result

    def run(self, start, pointer, n, stream, region=Region()):
        """Waits for a call of one request with one buffer."""
        ticket = ctypes.c_void_p()
        buffer = Buffer(data=pointer, bytes=n)
        request = Request(size=ctypes.sizeof(Request), buffers=ctypes.pointer(buffer), n_buffers=1, region=region,
                          stream=stream)
        self.check(start(self.connection, ctypes.byref(request), 1, ctypes.byref(ticket), ctypes.byref(self.error)))
        return self.wait(ticket)

    def spill(self, pointer, n, stream):
        return self.run(self.lib.spillway_spill, pointer, n, stream)

    def restore(self, region, pointer, n, stream):
        return self.run(self.lib.spillway_restore, pointer, n, stream, region)

    def close(self):
        self.lib.spillway_close(self.connection)


def text(n):
    """English-like bytes, different for each process."""
    words = [b"the", b"quick", b"packages", b"sleep", b"furiously", b"about", b"regular", b"deposits", b"final"]
    state, out = os.getpid() | 1, []
    for _ in range(1 << 17):
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        out.append(words[(state >> 33) % len(words)])
    block = b" ".join(out)
    return (block * (n // len(block) + 1))[:n]


def round_trip(framework, driver, service, data, stream):
    n = len(data)
    source, d_source = framework.take(n)
    driver.upload(d_source, data)
    memory, d_memory = framework.take(n)
    other, d_other = framework.take(n)
    for _ in range(200):  # some milliseconds of work before that which counts
        driver.copy(d_other, d_source, n, stream)
    driver.copy(d_memory, d_other, n, stream)
    begun = time.monotonic()
    result = service.spill(d_memory, n, stream)
    out_s = time.monotonic() - begun
    del memory, other
    framework.forget()
    memory, d_memory = framework.take(n)
    begun = time.monotonic()
    service.restore(result.region, d_memory, n, stream)
    back_s = time.monotonic() - begun
    if driver.download(d_memory, n) != data:
        raise RuntimeError("bytes differ")
    del source, memory
    return out_s, back_s, n / result.stored_bytes


def main():
    library, socket, name = sys.argv[1:4]
    n = int(sys.argv[4]) if len(sys.argv) > 4 else 64 << 20
    try:
        framework = {"torch": Torch, "cupy": Cupy, "jax": Jax}[name]()
        _, _ = framework.take(1 << 20)
    except ImportError as missing:
        print(f"{name}: not there ({missing})")
        return 77
    driver, service, data, failed = Driver(), Spillway(library, socket), text(n), 0
    where = f"uid {os.getuid():5} {'own namespaces' if os.getpid() < 20 else 'host namespaces':15}"
    for kind, stream in driver.stream_kinds:
        row = f"{where}  {framework.name:29} {kind:19}"
        try:
            out_s, back_s, ratio = round_trip(framework, driver, service, data, stream)
            print(f"{row} same bytes  out {out_s * 1e3:7.1f} ms  back {back_s * 1e3:7.1f} ms  ratio {ratio:.2f}",
                  flush=True)
        except RuntimeError as error:
            failed = 1
            print(f"{row} FAILED: {error}", flush=True)
    service.close()
    return failed


sys.exit(main())
