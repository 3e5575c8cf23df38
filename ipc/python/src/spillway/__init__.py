# SPDX-License-Identifier: Apache-2.0
"""Spillway parks memory of a GPU, or of the host, compressed in the service spillwayd, and gives back the same bytes.

    import numpy, spillway

    spillway.start()                          # a private service; or use the one that the system runs
    with spillway.Connection() as connection:
        a = numpy.arange(10_000_000)
        region = connection.spill(a).wait()   # the bytes are stored ...
        del a                                 # ... and now the memory is free
        b = region.restore().wait()           # every byte is back, in a new array

What is freed when: spill() frees nothing. Its ticket holds the object until it completes, then lets go. The memory is
free once you drop the object, too. A region without a name is dropped when its Region object goes, or the connection
ends.
"""

from . import errors
from ._arrow import ArrowArray
from ._connection import Connection, Named, Registration, Status
from ._library import library_version
from ._pool import Handle, HandleInfo, Pool, PoolStats
from ._pool_memory import Allocator
from ._service import Service, start
from ._ticket import Region, Result, Ticket
from .errors import *  # noqa: F403 - spillway.ENOSPACE, and all the others

__version__ = "0.2.0"

__all__ = [
    "Allocator",
    "ArrowArray",
    "Connection",
    "Handle",
    "HandleInfo",
    "Named",
    "Pool",
    "PoolStats",
    "Region",
    "Registration",
    "Result",
    "Service",
    "Status",
    "Ticket",
    "errors",
    "library_version",
    "start",
]
