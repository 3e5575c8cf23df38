#!/usr/bin/env python3
"""Moves text out of the GPU and back while PyTorch trains: by pinned copies on a stream of their own, and by Spillway.

    SPILLWAYD=BUILD/daemon/spillwayd SPILLWAY_LIBRARY=BUILD/ipc/libspillway.so PYTHONPATH=ipc/python/src \\
        python3 tests/bench/torch_training.py [--gib GIB] [--rounds N] TEXT

TEXT is a file, repeated to GIB (default: 8), in tensors of 256 MiB. A step of the training is sixteen products of
8192 x 8192 matrices in bfloat16. Printed are medians: GB/s each way, and the time of a step meanwhile and alone. The
first round is not counted. Every tensor that has come back is compared. Exit code 1 if a byte was wrong, 77 without a
GPU.
"""

import argparse
import os
import statistics
import sys
import threading
import time

if not os.path.exists("/dev/nvidiactl"):
    print("torch_training.py: skipped, no NVIDIA GPU")
    sys.exit(77)

import numpy
import torch

import spillway

PIECE_BYTES = 256 << 20


class Training:
    """Trains in a thread of its own, and remembers when each step ended."""

    def __init__(self):
        self._stops = False
        self._ends = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        time.sleep(1)

    def _run(self):
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        with torch.cuda.stream(torch.cuda.Stream()):
            while not self._stops:
                for _ in range(16):
                    torch.mm(a, b)
                torch.cuda.current_stream().synchronize()
                self._ends.append(time.monotonic())

    def step_ms(self, begun, ended):
        """The median time of the steps that lie in this interval."""
        ends = [t for t in self._ends if begun <= t <= ended]
        return statistics.median(b - a for a, b in zip(ends, ends[1:])) * 1e3 if len(ends) > 1 else float("nan")

    def stop(self):
        self._stops = True
        self._thread.join()


class PinnedCopies:
    def __init__(self, n):
        self._pinned = torch.empty(n, PIECE_BYTES, dtype=torch.uint8, pin_memory=True)
        self._stream = torch.cuda.Stream()

    def out(self, pieces):
        with torch.cuda.stream(self._stream):
            for pinned, piece in zip(self._pinned, pieces):
                pinned.copy_(piece, non_blocking=True)
        self._stream.synchronize()
        return self._pinned

    def back(self, stored):
        with torch.cuda.stream(self._stream):
            pieces = [piece.to("cuda", non_blocking=True) for piece in stored]
        self._stream.synchronize()
        return pieces

    def close(self):
        pass


class Spillway:
    def __init__(self, codec):
        self._connection = spillway.Connection(codec=codec)

    def out(self, pieces):
        return [ticket.wait() for ticket in [self._connection.spill(piece) for piece in pieces]]

    def back(self, stored):
        return [ticket.wait() for ticket in [region.restore() for region in stored]]

    def close(self):
        self._connection.close()


def measure(way, training, content, rounds):
    """Returns medians: GB/s out, GB/s back, ms for a step out, ms for a step back."""
    figures = []
    for _ in range(rounds + 1):
        pieces = [piece.clone() for piece in content]
        torch.cuda.current_stream().synchronize()
        times = [time.monotonic()]
        stored = way.out(pieces)
        times.append(time.monotonic())
        del pieces
        torch.cuda.empty_cache()
        begun_back = time.monotonic()
        pieces = way.back(stored)
        times.append(time.monotonic())
        if not all(torch.equal(a, b) for a, b in zip(pieces, content)):
            training.stop()
            sys.exit("torch_training.py: FAILED: bytes differ")
        del pieces, stored
        out_s, back_s = times[1] - times[0], times[2] - begun_back
        figures.append([content.nbytes / out_s / 1e9, content.nbytes / back_s / 1e9,
                        training.step_ms(times[0], times[1]), training.step_ms(begun_back, times[2])])
    return [statistics.median(column) for column in zip(*figures[1:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("text")
    options = parser.parse_args()
    text = torch.from_numpy(numpy.fromfile(options.text, dtype="u1")).cuda()
    n = options.gib * 4
    content = text.repeat(-(-n * PIECE_BYTES // text.numel()))[: n * PIECE_BYTES].reshape(n, PIECE_BYTES).clone()
    spillway.start(host_tier_bytes=f"{options.gib + 2}GiB", host_tier_initial_bytes=f"{options.gib + 2}GiB")
    training = Training()
    begun = time.monotonic()
    time.sleep(3)
    alone_ms = training.step_ms(begun, time.monotonic())
    print(f"a step alone: {alone_ms:.1f} ms")
    print("| way | out, GB/s | back, GB/s | step, out, ms | back, ms |\n|---|---|---|---|---|")
    ways = (("pinned copies", lambda: PinnedCopies(n)), ("Spillway, codec in the service", lambda: Spillway("service")),
            ("Spillway, codec in the client", lambda: Spillway("client")))
    for name, make in ways:
        way = make()
        figures = measure(way, training, content, options.rounds)
        print(f"| {name} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |", flush=True)
        way.close()
    training.stop()


main()
