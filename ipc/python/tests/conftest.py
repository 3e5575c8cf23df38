# SPDX-License-Identifier: Apache-2.0
"""The tests use the library and the service that $SPILLWAY_LIBRARY and $SPILLWAYD name, else the installed ones."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import spillway

os.environ.pop("SPILLWAY_SOCKET", None)


@pytest.fixture(scope="session")
def service():
    """A private service on the host device, small enough to be filled."""
    options = {"host_tier_bytes": "256MiB", "scratch_bytes": "64MiB", "slots": 2, "log_level": "debug"}
    with spillway.start(device="host", **options) as s:
        yield s


@pytest.fixture
def connection(service):
    with spillway.Connection() as c:
        yield c


@pytest.fixture
def alone(connection):
    """A connection when the service has no other: those of earlier tests are closed some time after their end."""
    deadline = time.monotonic() + 20
    while connection.status().sessions > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert connection.status().sessions == 1
    return connection


@pytest.fixture
def python(service):
    """Runs a program in a process of its own, and returns what it has printed."""

    def run(code, check=True, **environment):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **environment},
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout if check else done

    return run


@pytest.fixture
def six_threads():
    """Runs work(0) to work(5) at once, each in a thread of its own. What one raises fails the test."""

    def run(work):
        errors = []

        def guarded(number):
            try:
                work(number)
            except BaseException as error:  # noqa: BLE001 - shown by the test
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not errors, errors

    return run
