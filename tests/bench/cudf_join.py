#!/usr/bin/env python3
"""A join and group-bys of cuDF on twice the memory that RMM may use, with cuDF's own spilling and with spillway.cudf.

    SPILLWAYD=BUILD/daemon/spillwayd SPILLWAY_LIBRARY=BUILD/ipc/libspillway.so PYTHONPATH=ipc/python/src \\
        tests/bench/cudf_join.py [--gib N] [--ways fits,cudf,client,service] [--passes N] [--partitions N]

    fits       without a limit: what the work takes by itself
    cudf       cuDF's own spilling, on demand: copies to host memory
    service    spillway.cudf, codec in the service
    client     spillway.cudf, codec in this process

Each way runs in a process of its own. Orders of 16 partitions, twice --gib in all, are made on the GPU: numbers and two
columns of strings. Then each pass joins all partitions with the customers and groups the result by two columns of
strings, and groups the partitions by a third one. So most bytes leave and come back twice in a pass. One order in ten
has no customer: where a join finds all rows in their order, cuDF copies the columns, which then never leave the GPU, by
whatever way. Printed are the seconds of each step, and the bytes that cuDF's manager has counted. Exit code 1 if the
results of two ways differ, or if a way with a limit has spilled less than half of the orders; 77 without a GPU. Needs
cudf 26.10 and cffi.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import warnings

GIB = 1 << 30
WAYS = ("fits", "cudf", "client", "service")
BYTES_OF_A_ROW = 8 + 8 + 8 + 4 + (15 + 4) + (17 + 4)  # of orders
CUSTOMERS = 1_000_000
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")

# Value i is a hash of i and the column's number.
FILL = r"""
extern "C" __global__ void fill(long long *x, unsigned long long n, unsigned long long first, unsigned long long column,
                                unsigned long long below) {
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * (unsigned long long)blockDim.x) {
        unsigned long long v = 0x9e3779b97f4a7c15ULL * (first + i + 1) + column * 0xd1342543de82ef95ULL; // splitmix64
        v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ULL;
        v = (v ^ v >> 27) * 0x94d049bb133111ebULL;
        x[i] = (v ^ v >> 31) % below;
    }
}
"""


class Work:
    """The tables, and the queries on them."""

    def __init__(self, options):
        import cudf
        import cupy
        import numpy

        self.cudf, self.cupy, self.u8 = cudf, cupy, numpy.uint64
        self.kernel = cupy.RawKernel(FILL, "fill")
        self.rows = 2 * options.gib * GIB // options.partitions // BYTES_OF_A_ROW
        self.seconds = {}
        self.timed("make", lambda: self.make(options.partitions))

    def timed(self, name, run):
        self.cupy.cuda.Device().synchronize()
        begun = time.monotonic()
        result = run()
        self.cupy.cuda.Device().synchronize()
        self.seconds.setdefault(name, []).append(time.monotonic() - begun)
        return result

    def numbers(self, n, first, column, below):
        array = self.cupy.empty(n, "i8")
        arguments = [self.u8(number) for number in (n, first, column, below)]
        self.kernel((1024,), (256,), (array, *arguments))
        return self.cudf.Series(array)

    def names(self, prefix, numbers, digits):
        return prefix + numbers.astype("str").str.zfill(digits)

    def make(self, partitions):
        cudf = self.cudf
        keys = self.cudf.Series(self.cupy.arange(CUSTOMERS, dtype="i8"))
        segments = cudf.Series(list(SEGMENTS)).take(self.numbers(CUSTOMERS, 0, 1, len(SEGMENTS)))
        nations = self.names("Nation#", self.numbers(CUSTOMERS, 0, 2, 25), 2)
        segments.index = keys.index
        self.customers = cudf.DataFrame({"customer": keys, "segment": segments, "nation": nations})
        self.orders = [self.make_orders(i * self.rows) for i in range(partitions)]

    def make_orders(self, first):
        n = self.rows
        return self.cudf.DataFrame(
            {
                "customer": self.numbers(n, first, 3, CUSTOMERS * 10 // 9),
                "cents": self.numbers(n, first, 4, 10_000_000),
                "date": self.numbers(n, first, 5, 2556).astype("timedelta64[s]"),
                "quantity": self.numbers(n, first, 6, 50).astype("i4"),
                "clerk": self.names("Clerk#", self.numbers(n, first, 7, 1000), 9),
                "comment": self.names("order ", self.numbers(n, first, 8, 1 << 36), 11),
            }
        )

    def grouped(self, parts, by):
        """Groups the sums of all parts. Sums are of integers: the same in any order."""
        whole = self.cudf.concat(parts).groupby(by).agg({"cents": "sum", "quantity": "sum", "date": "max"})
        return whole.sort_index().to_pandas()

    def join(self):
        by, parts = ["segment", "nation"], []
        for orders in self.orders:
            joined = orders.merge(self.customers, on="customer")
            parts.append(self.sums(joined, by))
        return self.grouped(parts, by)

    def group(self):
        return self.grouped([self.sums(orders, ["clerk"]) for orders in self.orders], ["clerk"])

    def comments(self):
        """The lengths and the largest of the strings that no group has."""
        return [(int(o["comment"].str.len().sum()), str(o["comment"].max())) for o in self.orders]

    def sums(self, frame, by):
        return frame.groupby(by).agg({"cents": "sum", "quantity": "sum", "date": "max"}).reset_index()

    def run(self, passes):
        """Returns a hash of all results."""
        results = []
        for _ in range(passes):
            results.append(self.timed("join", self.join).to_csv() + self.timed("group", self.group).to_csv())
        results.append(str(self.timed("comments", self.comments)))
        if len(set(results[:-1])) != 1:
            sys.exit("cudf_join.py: FAILED: passes differ")
        return hashlib.sha256("".join(results[-2:]).encode()).hexdigest()


def pool(gib):
    import rmm

    return rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), gib * GIB, gib * GIB)


def run_way(options, way):
    """In a process of its own. Prints a line of JSON."""
    begun = time.monotonic()
    import cudf
    import rmm

    manager = None
    if way == "fits":
        rmm.mr.set_current_device_resource(pool(4 * options.gib))
    else:  # the pool has more than the limit, so that pieces of it that are too small do not matter
        above = pool(options.gib + max(1, options.gib // 4))
        rmm.mr.set_current_device_resource(rmm.mr.LimitingResourceAdaptor(above, options.gib * GIB))
    if way == "cudf":
        cudf.set_option("spill", True)
        cudf.set_option("spill_stats", 1)
        if options.device_limit:
            cudf.set_option("spill_device_limit", options.device_limit * GIB)
        from cudf.core.buffer.spill_manager import get_global_manager

        manager = get_global_manager()
    elif way != "fits":
        import spillway.cudf

        warnings.filterwarnings("error", message="cuDF spills to host memory")
        spillway.start(host_tier_bytes=f"{3 * options.gib}GiB")
        limit = options.device_limit * GIB if options.device_limit else None
        manager = spillway.cudf.install(spillway.Connection(codec=way), device_memory_limit=limit)
    started = time.monotonic() - begun
    work = Work(options)
    digest = work.run(options.passes)
    stored = None
    if manager is not None and way != "cudf":
        regions = [o._ptr_desc["region"] for o in manager.buffers() if o.memory_info()[2] == "spillway"]
        stored = [sum(r.raw_bytes for r in regions), sum(r.stored_bytes for r in regions)]
    moved = manager.statistics.spill_totals if manager is not None else {}
    found = {"start": started, "seconds": work.seconds, "stored": stored, "digest": digest}
    found["moved"] = {" to ".join(key): both for key, both in moved.items()}  # bytes and seconds
    print(json.dumps(found))


def show(way, found):
    steps = ", ".join(f"{name} " + " ".join(f"{s:.2f}" for s in each) for name, each in found["seconds"].items())
    total = sum(sum(each) for each in found["seconds"].values())
    print(f"{way:8} {total:6.2f} s: {steps}; start {found['start']:.1f}")
    for direction, (nbytes, seconds) in found["moved"].items():
        rate = f"{nbytes / seconds / 1e9:.1f} GB/s" if seconds else ""
        print(f"         {direction}: {nbytes / GIB:.2f} GiB in {seconds:.2f} s {rate}")
    if found["stored"] and found["stored"][1]:
        raw, stored = found["stored"]
        print(f"         {raw / GIB:.2f} GiB are stored in {stored / GIB:.2f}: ratio {raw / stored:.2f}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=int, default=8, help="GiB that RMM may use; the set is twice that")
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--device-limit", type=int, help="GiB: cuDF's limit of its buffers, besides")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--way", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        return run_way(options, options.way)
    if not os.path.exists("/dev/nvidiactl"):
        print("cudf_join.py: skipped, no NVIDIA GPU")
        sys.exit(77)
    digests, failed = {}, False
    print(f"{options.gib} GiB for RMM, {2 * options.gib} GiB of orders in {options.partitions} partitions", flush=True)
    for way in options.ways.split(","):
        done = subprocess.run([sys.executable, *sys.argv, "--way", way], stdout=subprocess.PIPE, text=True)
        lines = done.stdout.splitlines()
        if done.returncode:
            print("\n".join(lines[-20:]) + f"\n{way}: FAILED: exit code {done.returncode}", flush=True)
            failed = True
            continue
        found = json.loads(lines[-1])
        show(way, found)
        digests[way] = found["digest"]
        out = sum(n for direction, (n, _) in found["moved"].items() if direction.startswith("gpu to"))
        if way != "fits" and out < options.gib * GIB:
            print(f"{way}: FAILED: that was no work on more than fits")
            failed = True
    if len(set(digests.values())) > 1:
        print(f"FAILED: the results differ: {digests}")
        failed = True
    print("FAILED" if failed else f"all results are the same: {', '.join(digests)}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
