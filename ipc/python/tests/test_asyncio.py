# SPDX-License-Identifier: Apache-2.0
"""Tickets under asyncio."""

import asyncio
import os
import signal
import threading

import numpy
import pytest
from pausing import pause

import spillway


def array(i):
    return numpy.random.default_rng(i).integers(0, 1000, 200_000)


async def round_trip(connection, i):
    region = await connection.spill(array(i))
    return ((await region.restore()) == array(i)).all()


def test_many_at_once(connection):
    async def main():
        assert all(await asyncio.gather(*(round_trip(connection, i) for i in range(40))))

    asyncio.run(main())
    assert connection._session._loops == {}
    asyncio.run(main())  # in another loop


def test_a_loop_watches_only_while_it_waits(connection):
    async def main():
        assert await round_trip(connection, 1)
        assert not asyncio.get_running_loop().remove_reader(connection._session._fd)

    asyncio.run(main())


def test_two_loops_and_threads_share_a_connection(connection):
    def loop():
        asyncio.run(round_trips())

    async def round_trips():
        for i in range(10):
            assert await round_trip(connection, i)
        done.append(True)

    def blocking():
        for i in range(10):
            assert (connection.spill(array(i)).wait().restore().wait() == array(i)).all()
        done.append(True)

    done = []
    threads = [threading.Thread(target=f) for f in (loop, loop, blocking, blocking)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert done == [True] * 4


def test_an_error_is_raised_where_it_is_awaited(connection):
    async def main():
        region = await connection.spill(bytearray(1000))
        with pytest.raises(spillway.ETOOSMALL):
            await region.restore(into=bytearray(10))
        ticket = region.restore()
        assert await ticket == bytes(1000)
        assert await ticket == bytes(1000)  # at once

    asyncio.run(main())


def test_cancel_and_timeout(connection, service):
    """The loop goes on while the service is silent, and a canceled wait cancels the call."""

    async def main():
        ticket = connection.spill(array(1))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ticket, 0.05)
        os.kill(service.pid, signal.SIGCONT)
        with pytest.raises(spillway.ECANCELED):
            await ticket

    pause(service)
    try:
        asyncio.run(main())
    finally:
        os.kill(service.pid, signal.SIGCONT)


def test_the_end_of_a_connection_is_raised_where_it_is_awaited(service):
    async def main():
        c = spillway.Connection()
        task = asyncio.ensure_future(wait(c.spill(numpy.random.default_rng(1).random(4_000_000))))
        await asyncio.sleep(0)
        c.close()
        with pytest.raises(spillway.ECONN, match="closed"):
            await asyncio.wait_for(task, 20)
        assert c._session._loops == {}
        assert c._session._fd == c._session._wake == -1  # closed by the loop that had watched them

    async def wait(ticket):
        return await ticket

    asyncio.run(main())


def test_a_loop_that_ends_before_the_call(connection, service):
    async def main():
        task = asyncio.ensure_future(round_trip(connection, 1))
        await asyncio.sleep(0.05)
        task.cancel()

    connection.spill(array(3)).wait()  # so that the service has a place for the next copy already
    pause(service)
    try:
        asyncio.run(main())
    finally:
        os.kill(service.pid, signal.SIGCONT)
    assert (connection.spill(array(2)).wait().restore().wait() == array(2)).all()
    while connection._session._running:
        connection.dispatch()
    assert connection._session._loops == {}


def test_a_canceled_wait_gets_no_outcome(connection, service):
    """The call still completes, in a loop that goes on, and nothing fails there."""
    failures = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        task = asyncio.ensure_future(wait(ticket))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        os.kill(service.pid, signal.SIGCONT)
        while not ticket.done():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)

    async def wait(ticket):
        return await ticket

    pause(service)
    try:
        ticket = connection.spill(array(1))
        asyncio.run(main())
    finally:
        os.kill(service.pid, signal.SIGCONT)
    assert not failures
    assert connection._session._loops == {}
