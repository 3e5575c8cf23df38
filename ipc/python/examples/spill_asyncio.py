# SPDX-License-Identifier: Apache-2.0
"""Tasks that wait for their arrays at the same time. Run it: python spill_asyncio.py"""

import asyncio

import numpy

import spillway


async def query(connection, number):
    column = numpy.random.default_rng(number).integers(0, 1000, 500_000)
    total = column.sum()
    region = await connection.spill(column)
    del column
    await asyncio.sleep(0.01)  # other tasks have the memory
    column = await region.restore()
    assert column.sum() == total
    return region.ratio


async def main():
    with spillway.Connection() as connection:
        ratios = await asyncio.gather(*(query(connection, number) for number in range(20)))
        try:
            await asyncio.wait_for(query(connection, 20), timeout=0.001)
        except asyncio.TimeoutError:
            print("too late: the call was canceled")
    print(f"{len(ratios)} columns, ratio {min(ratios):.2f} to {max(ratios):.2f}: every byte is back")


if __name__ == "__main__":
    spillway.start(host_tier_bytes="1GiB")
    asyncio.run(main())
