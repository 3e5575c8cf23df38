# SPDX-License-Identifier: Apache-2.0
"""Parks a table under a name, and finds it again on another connection. Run it: python spill_table.py"""

import numpy

import spillway

ROWS = 1_000_000


def make_table():
    random = numpy.random.default_rng(1)
    return {
        "orderkey": numpy.cumsum(random.integers(1, 5, ROWS)),
        "price": random.integers(100, 100_000, ROWS) / 100,
        "shipdate": random.integers(9000, 11_000, ROWS).astype("datetime64[D]"),
        "flag": random.choice(numpy.frombuffer(b"ANR", "u1"), ROWS),
    }


if __name__ == "__main__":
    spillway.start(host_tier_bytes="1GiB")
    with spillway.Connection() as connection:
        region = connection.spill(make_table(), name="lineitem/part-1").wait()
        print(f"4 columns, {region.raw_bytes} bytes in {region.stored_bytes}, by {region.result.codec}")

    with spillway.Connection() as connection:
        print(connection.list())
        region = connection.adopt("lineitem/part-1")
        into = {name: numpy.empty_like(column) for name, column in make_table().items()}
        region.restore(into=into).wait()  # it has a name, so it stays stored ...
        region.drop()  # ... until it is dropped
        assert all((into[name] == column).all() for name, column in make_table().items())
        print("every byte is back")
