# SPDX-License-Identifier: Apache-2.0
"""The private service, and how a connection finds a service."""

import os
import socket
import struct
import subprocess
import textwrap
import threading
import time

import pytest

import spillway
from spillway import _service


def is_alive(pid):
    try:
        os.kill(pid, 0)
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid, seconds=20):
    deadline = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_alive(pid)


OWNER = """
    import os, spillway, sys, time
    s = spillway.start(device="host", host_tier_bytes="64MiB", host_tier_slab_bytes="4MiB")
    c = spillway.Connection()
    region = c.spill(bytearray(100000)).wait()
    print(s.pid, s.socket, flush=True)
"""


FORK = """
if os.fork() == 0: # lives longer
    os.closerange(0, 3)
    time.sleep(15)
    os._exit(0)
"""
KILL = "os.kill(os.getpid(), 9)"


@pytest.mark.parametrize("ending", ["", "sys.exit(3)", "os._exit(0)", KILL, FORK + KILL])
def test_it_ends_with_its_process(python, ending):
    done = python(textwrap.dedent(OWNER) + ending, check=False)
    pid, path = done.stdout.split()
    assert ends(int(pid), 10), done.stderr
    assert not os.path.exists(path)


def test_a_thread_that_ends_does_not_end_it(python):
    assert (
        python("""
        import spillway, threading, time
        t = threading.Thread(target=lambda: spillway.start(device="host", host_tier_bytes="64MiB",
                                                           host_tier_slab_bytes="4MiB"))
        t.start(); t.join(); time.sleep(0.2)
        print(spillway.Connection().spill(b"abc").wait().restore().wait())
    """)
        == "bytearray(b'abc')\n"
    )


def test_start_again_is_the_same(service):
    assert spillway.start() is service
    with pytest.raises(spillway.EINVAL, match="other options"):
        spillway.start(host_tier_bytes="1GiB")


def test_options_that_it_refuses(python):
    done = python("import spillway; spillway.start(host_tier_bytes='much')", check=False)
    assert "ENOSERVICE: spillwayd ended at its start" in done.stderr and "host_tier_bytes" in done.stderr


def test_stop_restores_the_environment(python):
    assert (
        python(
            """
        import os, spillway
        with spillway.start(device="host", host_tier_bytes="64MiB", host_tier_slab_bytes="4MiB") as s:
            assert os.environ["SPILLWAY_SOCKET"] == s.socket
        print(os.environ["SPILLWAY_SOCKET"], s.is_running())
    """,
            SPILLWAY_SOCKET="/before",
        )
        == "/before False\n"
    )


def test_it_has_a_session_of_its_own(service):
    """Ctrl-C is for the program."""
    assert os.getsid(service.pid) == service.pid


def test_stop_leaves_a_socket_that_the_program_has_named(python):
    said = python("""
        import os, spillway
        with spillway.start(device="host", host_tier_bytes="64MiB", host_tier_slab_bytes="4MiB"):
            os.environ["SPILLWAY_SOCKET"] = "/other"
        print(os.environ["SPILLWAY_SOCKET"])
    """)
    assert said == "/other\n"


def fake_spillwayd(folder, code):
    path = folder / "spillwayd"
    path.write_text("#!/bin/sh\n" + code)
    path.chmod(0o755)
    return str(path)


def test_a_service_that_does_not_get_ready_is_killed(python, tmp_path):
    said = python(
        """
        import os, spillway
        spillway._service._STOP_S = 0.1  # it does not end by itself
        try:
            spillway.start(timeout=0.2)
        except spillway.ETIMEDOUT as error:
            print(error.text)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("no child")
        """,
        SPILLWAYD=fake_spillwayd(tmp_path, "echo level=info event=waiting\nexec sleep 60\n"),
    )
    assert said == "spillwayd was not ready after 0.2 s: level=info event=waiting\n\nno child\n"


def test_a_child_starts_while_the_parent_does(python, tmp_path):
    said = python(
        """
        import os, signal, spillway, threading, time

        def start(timeout):
            try:
                spillway.start(timeout=timeout)
            except spillway.ETIMEDOUT:
                print("not in time", flush=True)

        spillway._service._STOP_S = 0.1
        thread = threading.Thread(target=start, args=(1.5,))
        thread.start()
        time.sleep(0.3)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            start(0.1)
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        thread.join()
        """,
        SPILLWAYD=fake_spillwayd(tmp_path, "exec sleep 60\n"),
    )
    assert said == "not in time\n0\nnot in time\n"


def test_a_service_that_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(_service, "program", lambda name: None)
    monkeypatch.setattr(_service, "_started", None)
    with pytest.raises(spillway.ENOENT, match="not installed.*wheel"):
        spillway.start()


def test_why_a_service_has_ended(python, tmp_path):
    fake = fake_spillwayd(tmp_path, "echo level=info event=before\necho level=error event=why\nexit 1\n")
    done = python("import spillway; spillway.start()", check=False, SPILLWAYD=fake)
    assert "level=error event=why" in done.stderr and "event=before" not in done.stderr


def test_no_service_names_start(python, tmp_path):
    done = python("import spillway; spillway.Connection()", check=False, SPILLWAY_SOCKET=str(tmp_path / "none"))
    assert "ENOSERVICE" in done.stderr and "spillway.start()" in done.stderr and str(tmp_path) in done.stderr


def test_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert _service._folder() == str(tmp_path / "spillway")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = tmp_path / f"spillway-{os.getuid()}"
    assert _service._folder() == str(own)
    own.chmod(0o777)  # somebody else may have put something there
    assert _service._folder() != str(own)
    own.rename(tmp_path / "folder")
    (tmp_path / "folder").chmod(0o700)
    own.symlink_to(tmp_path / "folder")  # somebody else may change it
    assert _service._folder() != str(own)
    own.unlink()
    (tmp_path / "folder").rename(own)
    assert _service._folder() == str(own)
    if os.getuid() == 0:
        os.chown(own, 12345, -1)
        assert _service._folder() != str(own)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("long" * 30)))
    assert len(_service._folder()) < 60


def test_a_library_of_another_version(python, tmp_path):
    (tmp_path / "other.c").write_text('const char *spillway_version(void) { return "0.7.1"; }')
    subprocess.run(["cc", "-shared", "-o", tmp_path / "other.so", tmp_path / "other.c"], check=True)
    done = python("import spillway; spillway.Connection()", check=False, SPILLWAY_LIBRARY=str(tmp_path / "other.so"))
    assert "EVERSION" in done.stderr and "is version 0.7.1, and this package needs 0.2" in done.stderr
    done = python("import spillway; spillway.Connection()", check=False, SPILLWAY_LIBRARY=str(tmp_path / "none.so"))
    assert "ENOENT: cannot load" in done.stderr and "SPILLWAY_LIBRARY" in done.stderr


def test_a_service_of_another_version(tmp_path):
    """A service that speaks a later protocol, which tells its version on the control socket."""
    (tmp_path / "spillwayctl").write_text('#!/bin/sh\necho \'{"version": "0.9.1"}\'\n')
    (tmp_path / "spillwayctl").chmod(0o755)

    def serve():
        peer, _ = listener.accept()
        with peer:
            magic, _, _, seq, _ = struct.unpack_from("<IHHII", peer.recv(4096))
            peer.send(struct.pack("<IHHII", magic, 11, 101, seq, 0))
            peer.recv(4096)

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "data.sock"))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPILLWAYCTL", str(tmp_path / "spillwayctl"))
            with pytest.raises(spillway.EVERSION) as raised:
                spillway.Connection(tmp_path / "data.sock")
        thread.join(10)
    assert f"libspillway {spillway.__version__}" in raised.value.text and "is 0.9.1" in raised.value.text
    assert "update the service first" in raised.value.hint
