#!/usr/bin/env python3
"""Trains a stack of transformer blocks whose activations do not fit, and says what compression and overlap are worth.

    PYTHONPATH=ipc/python/src SPILLWAYD=BUILD/daemon/spillwayd SPILLWAY_LIBRARY=BUILD/ipc/libspillway.so \\
        python tests/bench/torch_activations.py [--help]

Needs PyTorch with CUDA, one GPU, and 48 GiB of host memory. Takes less than 90 s. Steps without offloading measure what
the activations need. Then PyTorch gets half of that besides the weights, and a step without offloading must run out of
memory. Under this limit:

    save_on_cpu             torch.autograd.graph.save_on_cpu(pin_memory=True): copies on the compute stream
    pinned, side stream     the rules of spill_activations() over plain copies to page-locked memory: overlap, no ratio
    spillway                spill_activations()
    spillway, one by one    the same without overlap: each spill and each restore is waited for

Each is run on blocks with ReLU, whose activations are half zeros, and with GELU. Every loss and every gradient is
compared with those of the step without offloading. Exit code 1 if any is wrong, or if anything that has to fit does
not; 77 without a GPU. With --device cpu the blocks are small and nothing is limited: that only tries the program.
"""

import argparse
import statistics
import sys
import time
from contextlib import nullcontext

import torch
from torch.autograd.graph import save_on_cpu

import spillway.torch

GIB = 1 << 30
LEAST_STEPS, MOST_STEPS, SECONDS = 3, 7, 3.0


class Block(torch.nn.Module):
    def __init__(self, width, activation):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
        self.activation = activation

    def forward(self, x):
        heads = x.shape[-1] // 64
        q, k, v = (p.unflatten(-1, (heads, 64)).transpose(1, 2) for p in self.qkv(self.norms[0](x)).chunk(3, -1))
        attention = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        return x + self.down(self.activation(self.up(self.norms[1](x))))


class OneByOne(spillway.torch.spill_activations):
    """Without overlap: the program waits for each spill, and nothing is prefetched."""

    def _pack(self, tensor):
        packed = super()._pack(tensor)
        self.wait()
        return packed


class PinnedTicket:
    """A copy on a side stream. As a spill it is waited for, as a restore it only comes before what is queued later."""

    def __init__(self, stream, value, is_spill):
        self.event, self.value, self.is_spill = torch.cuda.Event(), value, is_spill
        self.event.record(stream)

    def done(self):
        return self.event.query()

    def cancel(self):
        pass

    def wait(self):
        if self.is_spill:
            self.event.synchronize()
        else:
            torch.cuda.current_stream().wait_event(self.event)
        return self.value


class PinnedRegion:
    def __init__(self, host):
        self.host = host
        self.raw_bytes = self.stored_bytes = host.nbytes

    def restore(self, into, keep, stream):
        with torch.cuda.stream(stream):
            into.copy_(self.host, non_blocking=True)
        return PinnedTicket(stream, into, is_spill=False)


class Pinned:
    """In place of a connection: spills are copies to page-locked memory, which PyTorch caches."""

    def spill(self, flat, stream):
        with torch.cuda.stream(stream):
            host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
            host.copy_(flat, non_blocking=True)
        return PinnedTicket(stream, PinnedRegion(host), is_spill=True)


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def step(model, x, context):
    """Returns the loss. Gradients stay where they are, as an optimizer would find them."""
    model.zero_grad(set_to_none=False)
    with context:
        loss = model(x).float().square().mean()
    loss.backward()
    return loss.detach()


class Run:
    """Some steps in one way, and what they took."""

    def __init__(self, name, arguments, model, x, context=None):
        self.name, device = name, arguments.device
        self.is_spill = isinstance(context, spillway.torch.spill_activations)
        context = context if context is not None else nullcontext()
        for _ in range(2):  # allocators and page-locked memory
            self.loss = step(model, x, context)
        synchronize(device)
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        times, begun = [], time.monotonic()
        if self.is_spill:
            context.statistics = spillway.torch.Statistics()
        while len(times) < LEAST_STEPS or (len(times) < MOST_STEPS and time.monotonic() - begun < SECONDS):
            synchronize(device)
            start = time.perf_counter()
            self.loss = step(model, x, context)
            synchronize(device)
            times.append((time.perf_counter() - start) * 1000)
        self.ms, self.least, self.most, self.n = statistics.median(times), min(times), max(times), len(times)
        self.peak = torch.cuda.max_memory_allocated() / GIB if device == "cuda" else 0
        self.reserved = torch.cuda.max_memory_reserved() / GIB if device == "cuda" else 0
        self.statistics = context.statistics if self.is_spill else None
        if self.is_spill and self.statistics.failed_bytes:
            sys.exit(f"{name}: {self.statistics.failed_bytes} bytes could not be stored: give the service more memory")

    def show(self, plain):
        line = f"  {self.name:22} {self.ms:8.1f} {self.least:8.1f} {self.most:8.1f} {self.n:3}"
        line += f" {self.ms / plain.ms:6.2f} {self.ms - plain.ms:8.1f} {self.peak:6.2f} {self.reserved:6.2f}"
        if self.is_spill:
            s = self.statistics
            line += f" {s.spilled_bytes / self.n / GIB:6.2f} {s.restored_bytes / self.n / GIB:6.2f} {s.ratio:6.3f}"
            line += f" {s.pack_wait_s / self.n * 1000:8.1f} {s.unpack_wait_s / self.n * 1000:8.1f}"
        print(line, flush=True)


def check(model, expected, run, loss):
    """Ends the program unless the loss and all gradients are right."""
    if not torch.allclose(run.loss, loss, rtol=1e-3):
        sys.exit(f"{run.name}: the loss is {run.loss.item()}, must be {loss.item()}")
    for (name, parameter), right in zip(model.named_parameters(), expected):
        error = (parameter.grad - right).abs().max() / right.abs().max().clamp(min=1e-20)
        if not error < 2e-2:  # not a number, too
            sys.exit(f"{run.name}: the gradient of {name} is wrong by {error.item():.3g} of its maximum")


def check_limit(model, x, limit):
    """Sets the limit, and ends the program if a step without offloading fits."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(limit * GIB / total)
    try:
        step(model, x, nullcontext())
    except torch.cuda.OutOfMemoryError:
        fits = False
    else:
        fits = True
    if fits:
        sys.exit("a step without offloading fits the limit: nothing would be shown")
    torch.cuda.empty_cache()


def compare(kind, arguments, connection):
    """Runs all ways on one kind of block."""
    activation = {"relu": torch.nn.ReLU, "gelu": torch.nn.GELU}[kind]()
    device, dtype = arguments.device, torch.bfloat16 if arguments.device == "cuda" else torch.float32
    torch.manual_seed(1)
    blocks = [Block(arguments.width, activation) for _ in range(arguments.blocks)]
    model = torch.nn.Sequential(*blocks).to(device, dtype)
    x = torch.randn(arguments.batch, arguments.length, arguments.width, device=device, dtype=dtype)
    step(model, x, nullcontext())
    base = torch.cuda.memory_allocated() / GIB if device == "cuda" else 0

    plain = Run("no offloading", arguments, model, x)
    expected = [p.grad.clone() for p in model.parameters()]
    limit = base + (plain.peak - base) / 2 + sum(g.nbytes for g in expected) / GIB
    print(f"\n{kind}: {arguments.blocks} blocks, activations {plain.peak - base:.2f} GiB, limit {limit:.2f} GiB")
    columns = "ms/step least most n x exposed peak resrvd out in ratio wait_out wait_in".split()
    print("  {:22} {:>8} {:>8} {:>8} {:>3} {:>6} {:>8} {:>6} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8}".format("", *columns))
    plain.show(plain)

    def spill(through):
        bounds = {"in_flight_bytes": arguments.bound, "prefetch_bytes": arguments.bound}
        return spillway.torch.spill_activations(through, **bounds)

    ways = {
        "spillway": lambda: spill(connection),
        "spillway, one by one": lambda: OneByOne(connection, prefetch_bytes=0),
    }
    if device == "cuda":
        check_limit(model, x, limit)
        pinned = {
            "save_on_cpu": lambda: save_on_cpu(pin_memory=True),
            "pinned, side stream": lambda: spill(Pinned()),
        }
        ways = {**pinned, **ways}
    runs = {}
    for name, make in ways.items():
        run = runs[name] = Run(name, arguments, model, x, make())
        run.show(plain)
        check(model, expected, run, plain.loss)
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(1.0)
    return plain, runs


def explain(kind, plain, runs):
    """Says what of the time is ratio and what is overlap."""
    spilled, alone = runs["spillway"], runs["spillway, one by one"]
    s = spilled.statistics
    exposed, transfers = spilled.ms - plain.ms, alone.ms - plain.ms
    print(f"{kind}:")
    print(f"  overlap: waited for one by one, the transfers add {transfers:.1f} ms; with overlap {exposed:.1f} ms:")
    print(f"           {100 * (1 - exposed / transfers):.0f} % of them is hidden")
    if "pinned, side stream" in runs:
        pinned, saved = runs["pinned, side stream"], runs["save_on_cpu"]
        print(f"  ratio:   {s.ratio:.3f}; with the same overlap, plain copies add {pinned.ms - plain.ms:.1f} ms")
        print(f"           and Spillway {exposed:.1f} ms: a step takes {spilled.ms / pinned.ms:.3f} of the time")
        print(f"  beside save_on_cpu(pin_memory=True): a step takes {spilled.ms / saved.ms:.3f} of the time")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--length", type=int, default=2048, help="of a sequence")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--bound", type=int, default=768 << 20, help="bytes in flight, and as many prefetched")
    parser.add_argument("--host", default="20GiB", help="host memory of the service")
    parser.add_argument("--codec", choices=("client", "service"), help="where the codec runs")
    arguments = parser.parse_args()
    begun = time.monotonic()
    if arguments.device == "cpu":
        arguments.blocks, arguments.width, arguments.length, arguments.batch = 3, 128, 256, 8
        arguments.bound, arguments.host = 4 << 20, "1GiB"
    elif not torch.cuda.is_available():
        print("torch_activations.py: skipped, this PyTorch has no GPU")
        return 77
    options = {"host_tier_bytes": arguments.host, "host_tier_initial_bytes": arguments.host, "device": "auto"}
    with spillway.start(**options), spillway.Connection(codec=arguments.codec) as connection:
        status = connection.status()
        if arguments.device == "cuda" and not status.n_gpus:
            sys.exit("the service uses no GPU: build it with CUDA")
        name = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
        print(f"{name}, PyTorch {torch.__version__}, Spillway {status.version}, whose service has")
        print(f"{status.scratch_bytes / GIB:.2f} GiB of scratch. GiB; ms; exposed: beyond a step without offloading")
        results = {kind: compare(kind, arguments, connection) for kind in ("relu", "gelu")}
        print()
        for kind, (plain, runs) in results.items():
            explain(kind, plain, runs)
    print(f"\nall losses and gradients are right; {time.monotonic() - begun:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
