#!/usr/bin/env python3
"""Moves an array of PyTorch, CuPy and JAX, and an RMM buffer, out of the GPU and back: as users do now, and by Spillway.

    SPILLWAYD=BUILD/daemon/spillwayd SPILLWAY_LIBRARY=BUILD/ipc/libspillway.so PYTHONPATH=ipc/python/src \\
        python3 tests/bench/python_rates.py [--mib MIB] [--rounds N]

The ways of now: `.cpu()` and `.cuda()`; a pinned copy; `asnumpy()` and `asarray()`; `device_get()` and `device_put()`;
`copy_to_host()` and `to_device()`. Spillway: `spill()` and `restore()`, with the codec in the service and in this
process. Values are random numbers below 1000, which shrink to 10 bits of 32. Each way is run on an idle GPU and beside a
thread that keeps it busy with matrix products. Every array that has come back is compared. Printed are medians in GB/s.
Exit code 1 if a value was wrong, 77 without a GPU. Frameworks that are not installed are left out.
"""

import argparse
import importlib
import os
import statistics
import sys
import threading
import time

if not os.path.exists("/dev/nvidiactl"):
    print("python_rates.py: skipped, no NVIDIA GPU")
    sys.exit(77)
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy
import torch

import spillway


class Busy:
    """Keeps the GPU busy with matrix products, as training does."""

    def __enter__(self):
        self._stops = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        time.sleep(0.5)

    def _run(self):
        stream = torch.cuda.Stream()
        a = torch.ones(4096, 4096, device="cuda", dtype=torch.bfloat16)
        with torch.cuda.stream(stream):
            while not self._stops:
                for _ in range(16):
                    torch.mm(a, a)
                stream.synchronize()

    def __exit__(self, *_):
        self._stops = True
        self._thread.join()


class Idle:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


def ways_of_torch(host):
    pinned = torch.empty(host.size, dtype=torch.int32, pin_memory=True)

    def out(a):
        pinned.copy_(a, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return pinned

    def back(stored):
        a = stored.to("cuda", non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return a

    make = lambda: torch.from_numpy(host).cuda()
    yield "PyTorch", "cpu(), cuda()", make, lambda a: a.cpu(), lambda a: a.cuda(), lambda a: a.cpu().numpy()
    yield "PyTorch", "a pinned copy", make, out, back, lambda a: a.cpu().numpy()
    yield "PyTorch", None, make, None, None, lambda a: a.cpu().numpy()


def ways_of_cupy(host):
    import cupy

    make = lambda: cupy.asarray(host)
    yield "CuPy", "asnumpy(), asarray()", make, cupy.asnumpy, cupy.asarray, cupy.asnumpy
    yield "CuPy", None, make, None, None, cupy.asnumpy


def ways_of_jax(host):
    import jax

    make = lambda: jax.device_put(host).block_until_ready()
    # device_get() keeps a copy with the array, so each round gets an array of its own.
    back = lambda stored: jax.device_put(stored).block_until_ready()
    yield "JAX", "device_get(), device_put()", make, jax.device_get, back, numpy.asarray
    yield "JAX", None, make, None, None, numpy.asarray


def ways_of_rmm(host):
    import rmm

    make = lambda: rmm.DeviceBuffer.to_device(host.view("u1"))
    values = lambda a: a.copy_to_host().view("i4")
    yield "RMM", "copy_to_host(), to_device()", make, lambda a: a.copy_to_host(), rmm.DeviceBuffer.to_device, values
    yield "RMM", None, make, None, None, values


def timed(call, *args):
    torch.cuda.synchronize()
    begun = time.monotonic()
    result = call(*args)
    return result, time.monotonic() - begun


def measure(options, host, make, out, back, values):
    """Returns the rates out and back."""
    seconds = [], []
    for _ in range(options.rounds + 1):
        stored, out_s = timed(out, make())
        array, back_s = timed(back, stored)
        if not (numpy.asarray(values(array)) == host).all():
            sys.exit("python_rates.py: FAILED: values differ")
        seconds[0].append(out_s)
        seconds[1].append(back_s)
    return [host.nbytes / statistics.median(s[1:]) / 1e9 for s in seconds]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024, help="of the array (default: 1024)")
    parser.add_argument("--rounds", type=int, default=5, help="that are counted (default: 5)")
    options = parser.parse_args()
    host = numpy.random.default_rng(1).integers(0, 1000, options.mib << 18, dtype="i4")
    spillway.start(host_tier_bytes="8GiB", host_tier_initial_bytes="8GiB")
    print("| array | way | idle: out | back | busy: out | back |\n|---|---|---|---|---|---|")
    for name in ("torch", "cupy", "jax", "rmm"):
        try:
            importlib.import_module(name)
        except ImportError:
            print(f"{name} is not installed", file=sys.stderr)
            continue
        for framework, way, make, out, back, values in globals()["ways_of_" + name](host):
            for codec in [None] if way else ["service", "client"]:
                with spillway.Connection(codec=codec) as connection:
                    outs = out or (lambda a: connection.spill(a).wait())
                    backs = back or (lambda region: region.restore().wait())
                    rates = []
                    for state in (Idle, Busy):
                        with state():
                            rates += measure(options, host, make, outs, backs, values)
                told = way or f"Spillway, codec in the {'service' if codec == 'service' else 'client'}"
                print(f"| {framework} | {told} | " + " | ".join(f"{rate:.1f}" for rate in rates) + " |", flush=True)


main()
