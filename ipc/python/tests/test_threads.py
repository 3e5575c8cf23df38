# SPDX-License-Identifier: Apache-2.0
"""One connection in several threads, and what fork() makes of it."""

import multiprocessing
import os
import re
import threading
import time

import numpy
import pytest
from pausing import pause

import spillway


def in_threads(n, work):
    failures = []

    def run(i):
        try:
            work(i)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    assert not failures, failures


def test_threads_share_a_connection(connection):
    def work(i):
        for size in range(20):
            a = numpy.random.default_rng(i * 100 + size).integers(0, 1000, 1 + size * 20_000)
            assert (connection.spill(a).wait().restore().wait() == a).all()

    in_threads(8, work)


def test_two_threads_wait_for_the_same_ticket(connection):
    a = numpy.random.default_rng(1).random(2_000_000)
    for _ in range(5):
        ticket = connection.spill(a)
        in_threads(3, lambda _: ticket.wait())


def test_all_that_wait_for_a_ticket_are_woken(connection, service):
    import signal

    pause(service)
    try:
        ticket = connection.spill(bytearray(1000))
        threads = [threading.Thread(target=ticket.wait, daemon=True) for _ in range(6)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
    finally:
        os.kill(service.pid, signal.SIGCONT)
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_the_lock_is_free_while_a_thread_waits(connection, service):
    """A stopped service answers nothing, so only what waits for nothing comes back."""
    import signal

    pause(service)
    try:
        ticket = connection.spill(bytearray(1000))
        waiting = threading.Thread(target=ticket.wait)
        waiting.start()
        time.sleep(0.1)
        begun = time.monotonic()
        others = [connection.spill(bytearray(1000)) for _ in range(5)]
        for other in others:
            with pytest.raises(spillway.EAGAIN):
                other.wait(timeout=0.02)
            assert not other.done()
        assert time.monotonic() - begun < 5
    finally:
        os.kill(service.pid, signal.SIGCONT)
    for other in others:
        other.wait()
    waiting.join(10)
    assert not waiting.is_alive()


def test_waiting_is_one_sleep(connection, service):
    import resource
    import signal

    pause(service)
    try:
        ticket = connection.spill(bytearray(1000))
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        with pytest.raises(spillway.EAGAIN):
            ticket.wait(timeout=0.4)
        assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 50
    finally:
        os.kill(service.pid, signal.SIGCONT)


def test_a_thread_that_gives_up_leaves_polling_to_another(connection, service):
    import signal

    def give_up():
        with pytest.raises(spillway.EAGAIN):
            tickets[0].wait(timeout=0.3)

    pause(service)
    try:
        tickets = [connection.spill(bytearray(1000)) for _ in range(2)]
        polling = threading.Thread(target=give_up)
        polling.start()
        time.sleep(0.1)
        waiting = threading.Thread(target=tickets[1].wait, daemon=True)
        waiting.start()
        polling.join(10)
        assert not polling.is_alive()
    finally:
        os.kill(service.pid, signal.SIGCONT)
    waiting.join(10)
    assert not waiting.is_alive()


def test_interrupted_wait_leaves_no_poller(connection, service):
    import signal

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    pause(service)
    ticket = connection.spill(bytearray(1000))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            ticket.wait()
    finally:
        signal.signal(signal.SIGALRM, before)
        os.kill(service.pid, signal.SIGCONT)
    in_threads(2, lambda _: ticket.wait())


def test_close_ends_waits_of_other_threads(service):
    import signal

    c = spillway.Connection()
    pause(service)
    ended = []

    def wait(ticket):
        try:
            ticket.wait()
        except spillway.ECONN as error:
            ended.append(error)

    threads = [threading.Thread(target=wait, args=(c.spill(bytearray(1000)),)) for _ in range(2)]
    for t in threads:
        t.start()
    time.sleep(0.1)
    closing = threading.Thread(target=c.close)
    closing.start()
    time.sleep(0.1)
    os.kill(service.pid, signal.SIGCONT)  # it still has the memory: close() waits for it
    for t in [*threads, closing]:
        t.join(10)
        assert not t.is_alive()
    assert len(ended) == 2
    assert c._session._fd == c._session._wake == -1  # closed by the thread that had polled them


def child_of_fork(connection, region, ticket, pipe):
    answers = []
    for call in (connection.status, region.restore, ticket.wait, lambda: connection.spill(b"x"), connection.fileno):
        try:
            call()
            answers.append("no error")
        except spillway.EINVAL as error:
            answers.append(error.text if "fork" in error.text else repr(error))
    connection.close()
    del region
    with spillway.Connection() as own:
        answers.append(own.spill(b"own").wait().restore().wait())
    pipe.send(answers)


def test_fork(service):
    """The child's objects are dead, and the parent's go on."""
    with spillway.Connection() as c:
        a = numpy.random.default_rng(1).random(3_000_000)
        region = c.spill(a).wait()
        ticket = c.spill(a)
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=child_of_fork, args=(c, region, ticket, there))
        child.start()
        assert here.poll(30)
        answers = here.recv()
        child.join(10)
        assert child.exitcode == 0
        assert all("fork" in answer for answer in answers[:5]), answers
        assert answers[5] == b"own"
        assert (ticket.wait().restore().wait() == a).all()
        assert (region.restore().wait() == a).all()
        assert service.is_running()


def test_a_child_that_lives_longer_keeps_no_session(service):
    c = spillway.Connection()
    number = re.findall(rf"event=session.open (session=\d+) pid={os.getpid()} ", service.log())[-1]
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
    child.start()
    c.close()
    deadline = time.monotonic() + 10
    while f"event=session.close {number} " not in service.log() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert child.is_alive()
    child.kill()
    child.join()
    assert f"event=session.close {number} " in service.log()


def test_a_child_that_outlives_its_parent_keeps_no_session(alone, python):
    """The parent ends without a close."""
    child = int(
        python("""
        import os, time, spillway
        c = spillway.Connection()
        pid = os.fork()
        if pid == 0:
            os.closerange(0, 3)
            time.sleep(30)
            os._exit(0)
        print(pid, flush=True)
        os._exit(0)
        """)
    )
    deadline = time.monotonic() + 10
    while alone.status().sessions > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    sessions = alone.status().sessions
    os.kill(child, 9)
    assert sessions == 1
