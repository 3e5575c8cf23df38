#!/usr/bin/env python3
"""A CuPy program over RMM whose data are twice what RMM may use, by four ways of working on more than fits:

    pool         spillway.rmm: each buffer is pinned, used, and leaves when others need its memory
    pool, ahead  the same, which makes room and prefetches two buffers ahead
    pinned       the program's own double-buffered copies to page-locked memory, three buffers on the GPU
    copy_to_host RMM's copies, to memory that is not page-locked

    SPILLWAYD=BUILD/daemon/spillwayd SPILLWAY_LIBRARY=BUILD/ipc/libspillway.so PYTHONPATH=ipc/python/src \\
        tests/bench/rmm_pool.py [--limit GIB] [--set GIB] [--buffer MIB] [--passes N]

Each pass reads every value, compares it with what the pass before has written, and writes another one. So all bytes
go out and come back in each pass, and all are compared. Printed is the bytes of the set over the time of a pass: of the
passes the slowest and the fastest. Exit code 1 if a value was wrong, 77 without a GPU. Needs cupy, cffi, rmm (26.10).
"""

import argparse
import os
import sys
import time
import warnings

if not os.path.exists("/dev/nvidiactl"):
    print("rmm_pool.py: skipped, no NVIDIA GPU")
    sys.exit(77)

import cupy
import cupyx
import numpy
import rmm
from rmm.allocators.cupy import rmm_cupy_allocator

import spillway
import spillway.rmm

GIB = 1 << 30
TO_GPU, TO_HOST = 1, 2  # cudaMemcpyKind
AHEAD = 2
CONTENTS = ("random numbers below 1000", "random bits")

# Value i of a buffer is a content that depends on i and the buffer, plus the number of passes so far.
TOUCH = cupy.RawKernel(
    r"""
extern "C" __global__ void touch(unsigned long long *x, unsigned long long n, unsigned long long first,
                                 unsigned long long turn, int is_random, unsigned long long *wrong) {
    unsigned long long bad = 0;
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (unsigned long long)blockDim.x) {
        unsigned long long v = 0x9e3779b97f4a7c15ULL * (first + i + 1); // splitmix64
        v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ULL;
        v = (v ^ v >> 27) * 0x94d049bb133111ebULL;
        v ^= v >> 31;
        if (!is_random)
            v %= 1000;
        bad += turn > 0 && x[i] != v + turn - 1;
        x[i] = v + turn;
    }
    if (bad)
        atomicAdd(wrong, bad);
}
""",
    "touch",
)


class Data:
    """What is in the buffers, and whether it was there in every pass."""

    def __init__(self, options, content):
        self.n = options.set * GIB // (options.buffer << 20)
        self.nbytes = options.buffer << 20
        self.is_random = CONTENTS.index(content)
        self.turn = 0
        self.wrong = cupy.zeros(1, "u8")

    def touch(self, array, i):
        """Queues the work on buffer i on the current stream."""
        values = self.nbytes // 8
        numbers = [numpy.uint64(number) for number in (values, i * values, self.turn)]
        TOUCH((1024,), (256,), (array, *numbers, numpy.int32(self.is_random), self.wrong))

    def timed(self, run, n=None):
        """Runs one pass. Returns its bytes over its seconds."""
        cupy.cuda.Device().synchronize()
        begun = time.monotonic()
        run()
        cupy.cuda.Device().synchronize()
        seconds = time.monotonic() - begun
        wrong = int(self.wrong.get()[0])
        if wrong:
            sys.exit(f"rmm_pool.py: FAILED: {wrong} values are wrong in pass {self.turn}")
        self.turn += 1
        return (n or self.n) * self.nbytes / seconds


def row(content, way, fill, rates, note=""):
    low, high = min(rates) / 1e9, max(rates) / 1e9
    print(f"| {content} | {way} | {fill / 1e9:.1f} | {low:.1f} – {high:.1f} | {note} |", flush=True)


def by_pool(options, codec, content):
    stream = cupy.cuda.Stream(non_blocking=True)
    with spillway.rmm.install(codec=codec) as pool, stream:
        data = Data(options, content)
        stream.synchronize()
        handles = [pool.new(data.nbytes // 8, "u8") for _ in range(data.n)]
        missed = 0

        def plain(ahead=0):
            nonlocal missed
            for i, handle in enumerate(handles):
                with handle.pin(stream) as array:
                    data.touch(cupy.asarray(array), i)
                if ahead:
                    pool.make_room(data.nbytes)
                    try:
                        handles[(i + ahead) % data.n].prefetch(stream)
                    except spillway.ENOMEM:
                        missed += 1

        fill = data.timed(plain)
        data.timed(plain)  # the service's memory has grown by then
        rates = [data.timed(plain) for _ in range(options.passes)]
        stats = pool.stats()
        if stats.live_bytes > options.limit * GIB or stats.restores < data.n or stats.failed_spills:
            sys.exit(f"rmm_pool.py: FAILED: that was no work on more than fits: {stats}")
        note = f"ratio {stats.spilled_bytes / stats.stored_bytes:.2f}"
        row(content, f"pool, codec in the {codec}", fill, rates, note)
        data.timed(lambda: plain(AHEAD))
        missed = 0
        rates = [data.timed(lambda: plain(AHEAD)) for _ in range(options.passes)]
        row(content, f"pool, ahead, codec in the {codec}", fill, rates, f"{missed} prefetches had no room")


def by_pinned(options, content):
    """Up, work and down on three streams: the copies of one buffer overlap with those of its neighbours."""
    data = Data(options, content)
    hosts = [cupyx.empty_pinned(data.nbytes // 8, "u8") for _ in range(data.n)]
    arrays = [cupy.empty(data.nbytes // 8, "u8") for _ in range(3)]
    up, work, down = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))
    copy = cupy.cuda.runtime.memcpyAsync

    def run():
        done = [None] * len(arrays)
        for i, host in enumerate(hosts):
            array = arrays[i % len(arrays)]
            if done[i % len(arrays)]:
                up.wait_event(done[i % len(arrays)])
            if data.turn > 0:
                copy(array.data.ptr, host.ctypes.data, data.nbytes, TO_GPU, up.ptr)
            work.wait_event(up.record())
            with work:
                data.touch(array, i)
            down.wait_event(work.record())
            copy(host.ctypes.data, array.data.ptr, data.nbytes, TO_HOST, down.ptr)
            done[i % len(arrays)] = down.record()

    fill = data.timed(run)
    row("any", "pinned", fill, [data.timed(run) for _ in range(options.passes)])


def by_copy_to_host(options, content):
    """An eighth of the set, because it is slow."""
    data = Data(options, content)
    hosts = [numpy.empty(data.nbytes, "u1") for _ in range(max(1, data.n // 8))]

    def run():
        for i, host in enumerate(hosts):
            buffer = rmm.DeviceBuffer(size=data.nbytes)
            if data.turn > 0:
                buffer.copy_from_host(host)
            data.touch(cupy.asarray(buffer), i)
            buffer.copy_to_host(host)

    fill = data.timed(run, len(hosts))
    rates = [data.timed(run, len(hosts)) for _ in range(options.passes)]
    row("any", "copy_to_host", fill, rates, f"{len(hosts)} of {data.n} buffers")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, default=8, help="GiB that RMM may use")
    parser.add_argument("--set", type=int, default=16, help="GiB of data")
    parser.add_argument("--buffer", type=int, default=256, help="MiB of each buffer")
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args()
    warnings.filterwarnings("error", message="no buffer could be spilled")
    begun = time.monotonic()
    spillway.start(host_tier_bytes=f"{options.set}GiB")
    arena = (options.limit + 1) * GIB  # more than the limit, so that pieces of it that are too small do not matter
    below = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), arena, arena)
    rmm.mr.set_current_device_resource(rmm.mr.LimitingResourceAdaptor(below, options.limit * GIB))
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"{name}, RMM {rmm.__version__}, which has {options.limit} GiB; {options.set} GiB of {options.buffer} MiB each")
    print("\n| content | way | fill, GB/s | pass, GB/s | |\n|---|---|---|---|---|")
    for codec in ("service", "client"):
        for content in CONTENTS:
            by_pool(options, codec, content)
    by_pinned(options, CONTENTS[1])
    by_copy_to_host(options, CONTENTS[1])
    print(f"\nevery byte is back, in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
