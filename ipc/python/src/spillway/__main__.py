# SPDX-License-Identifier: Apache-2.0
"""python -m spillway: doctor, probe; and the wheel's programs spillwayd and spillwayctl."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator

from . import _doctor, _probe
from ._connection import Connection
from ._library import program
from ._service import start
from .errors import ENOSERVICE, SpillwayError


@contextlib.contextmanager
def connected(socket: str | None, size: int = 0) -> Iterator[Connection]:
    """Connects to the service that runs, else to a private one with room for `size` bytes."""
    try:
        connection = Connection(socket)
    except ENOSERVICE:
        if socket or os.environ.get("SPILLWAY_SOCKET"):
            raise
        with start(host_tier_bytes=_probe.tier_bytes(size)), Connection() as connection:
            yield connection
        return
    with connection:
        yield connection


def _execute(name: str) -> None:
    path = program(name)
    if path is None:
        sys.exit(f"{name} is not installed")
    os.execv(path, [name, *sys.argv[1:]])


def spillwayd() -> None:
    _execute("spillwayd")


def spillwayctl() -> None:
    _execute("spillwayctl")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m spillway", description="Parks memory compressed in spillwayd.")
    parser.add_argument("--socket", help="the service's socket (default: $SPILLWAY_SOCKET, else the system's)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="tell what works on this machine, and the next step")
    probe = commands.add_parser(
        "probe", help="spill a file, restore it, and tell how far it shrinks and how fast",
        description="Spills a file to the service (a private one if none runs), restores it, and compares every byte.",
    )  # fmt: skip
    probe.add_argument("file", help="raw values, text, or a NumPy file (.npy), whose dtype counts")
    probe.add_argument(
        "--type", help="of the values: bytes (default), u8 to u64, i8 to i64, f32, f64, bf16, f16, f8, dec128"
    )
    arguments = parser.parse_args()
    try:
        if arguments.command == "doctor":
            return _doctor.run(arguments.socket)
        values = _probe.read(arguments.file, arguments.type)
        with connected(arguments.socket, values.nbytes) as connection:
            return _probe.run(connection, arguments.file, values, arguments.type)
    except SpillwayError as error:
        print(f"spillway: {error.name}: {error}", file=sys.stderr)
    except OSError as error:
        print(f"spillway: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
