# SPDX-License-Identifier: Apache-2.0
"""DataFrames of cuDF that are larger than what RMM may use of the GPU. Run it: python spill_cudf.py"""

import cudf
import cupy
import rmm

import spillway.cudf

LIMIT = 512 << 20
ROWS = 4 << 20


def orders(i):
    numbers = cupy.arange(i * ROWS, (i + 1) * ROWS)
    return cudf.DataFrame({"customer": numbers % 1000, "cents": numbers * 7919 % 100_000})


if __name__ == "__main__":
    spillway.start(host_tier_bytes="2GiB")
    below = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), LIMIT, LIMIT)
    rmm.mr.set_current_device_resource(below)
    manager = spillway.cudf.install()  # before the first DataFrame, above all other resources of RMM

    customers = cudf.DataFrame({"customer": cupy.arange(900), "nation": cupy.arange(900) % 25})
    parts = [orders(i) for i in range(16)]  # twice the limit; who has no room spills others
    total = 0
    for part in parts:  # restored when it is used
        joined = part.merge(customers, on="customer")
        total += int(joined.groupby("nation")["cents"].sum().sum())
    numbers = (cupy.arange(i * ROWS, (i + 1) * ROWS) for i in range(16))
    assert total == sum(int((n[n % 1000 < 900] * 7919 % 100_000).sum()) for n in numbers)
    print(f"{manager.statistics}\nevery byte is back")
