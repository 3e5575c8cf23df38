# SPDX-License-Identifier: Apache-2.0
"""Parks an array, and gets every byte back. Run it: python spill_array.py"""

import sys

import numpy

import spillway

if __name__ == "__main__":
    spillway.start(host_tier_bytes="1GiB")
    with spillway.Connection() as connection:
        a = numpy.cumsum(numpy.random.default_rng(1).integers(0, 50, 5_000_000))
        checksum = a.sum()

        region = connection.spill(a).wait()
        del a  # now its memory is free
        print(f"{region.raw_bytes} bytes parked in {region.stored_bytes}, by {region.result.codec}")

        try:
            b = region.restore().wait()
        except spillway.SpillwayError as error:
            sys.exit(f"{error.name}, scope {error.scope}: {error.text} {error.hint}")
        assert b.sum() == checksum and not region.is_stored
        print("every byte is back")
