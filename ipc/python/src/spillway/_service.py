# SPDX-License-Identifier: Apache-2.0
"""A private service for this process: spillway.start()."""

from __future__ import annotations

import atexit
import itertools
import os
import socket as sockets
import stat
import subprocess
import tempfile
import threading
import time
from typing import Any

from . import _session, errors
from ._library import program

_STOP_S = 20
_PATH_BYTES = 107  # that a socket's address has room for
_numbers = itertools.count()
_lock = threading.Lock()
_started: Service | None = None


class Service:
    """A spillwayd that ends with this process, even if the process is killed.

    socket: its data socket. control_socket: for spillwayctl. pid: its process.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], socket: str, control_socket: str, log: Any, options: dict[str, Any]
    ):
        self._process = process
        self._log = log
        self._options = options
        self._before = os.environ.get("SPILLWAY_SOCKET")
        self._owner = os.getpid()
        self.socket = socket
        self.control_socket = control_socket
        self.pid = process.pid

    def is_running(self) -> bool:
        return self._owner == os.getpid() and self._process.poll() is None

    def log(self) -> str:
        """Returns what the service has logged."""
        return os.pread(self._log.fileno(), 1 << 24, 0).decode(errors="replace")

    def stop(self) -> None:
        """Stops the service; its regions end with it. Nothing in a forked child, or if it has stopped."""
        global _started
        if self._owner != os.getpid() or self._process.stdin is None or self._process.stdin.closed:
            return
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if os.environ.get("SPILLWAY_SOCKET") == self.socket:
            if self._before is None:
                del os.environ["SPILLWAY_SOCKET"]
            else:
                os.environ["SPILLWAY_SOCKET"] = self._before
        if _started is self:
            _started = None

    def _leave_to_parent(self) -> None:
        """After fork(): the service would not see the parent's end if the child kept the pipe."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<spillway.Service {self.pid} on {self.socket}{'' if self.is_running() else ', stopped'}>"


def start(*, timeout: float = 120, **options: Any) -> Service:
    """Starts a private spillwayd, which ends with this process, and sets $SPILLWAY_SOCKET to its socket.

    So Connection() finds it, also in processes that this one starts. Returns the running service if there is one.
    options: those of spillwayd.json, such as host_tier_bytes="16GiB", nvme_tier_directory="/scratch/me", device="host".
    Its sockets are below $XDG_RUNTIME_DIR, else in a folder of /tmp that only this user can read.
    """
    global _started
    with _lock:
        if _started is not None and _started.is_running():
            if options and options != _started._options:
                raise errors.EINVAL(
                    f"a service with other options is running: {_started._options}", hint="stop() it first"
                )
            return _started
        _started = _launch(timeout, options)
        os.environ["SPILLWAY_SOCKET"] = _started.socket
        return _started


def _launch(timeout: float, options: dict[str, Any]) -> Service:
    path = program("spillwayd")
    if path is None:
        raise errors.ENOENT(
            "spillwayd is not installed",
            hint="install the wheel of spillway-gpu, or the package, or set SPILLWAYD to the program's path",
        )
    stem = os.path.join(_folder(), f"{os.getpid()}-{next(_numbers)}")
    settings = {"data_socket": f"{stem}.sock", "control_socket": f"{stem}.control.sock", **options}
    command = [path, "--stop-at-eof"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    log = tempfile.TemporaryFile()
    # A session of its own: Ctrl-C is for the program.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
    service = Service(process, settings["data_socket"], settings["control_socket"], log, options)
    try:
        _await_ready(service, timeout)
    except BaseException:
        service.stop()
        raise
    return service


def _await_ready(service: Service, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        if service._process.poll() is not None:
            lines = [line for line in service.log().splitlines() if "level=info" not in line]
            raise errors.ENOSERVICE(
                "spillwayd ended at its start: " + "\n".join(lines[-5:]),
                hint="`python -m spillway doctor` tells what is missing",
            )
        if time.monotonic() > deadline:
            raise errors.ETIMEDOUT(f"spillwayd was not ready after {timeout} s: {service.log()[-500:]}")
        with sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET) as probe:
            if probe.connect_ex(service.socket) == 0 and "event=service.ready " in service.log():
                return
        time.sleep(0.01)


def _is_private(path: str) -> bool:
    st = os.lstat(path)
    return stat.S_ISDIR(st.st_mode) and st.st_uid == os.getuid() and not st.st_mode & 0o077


def _folder() -> str:
    """Returns a folder for sockets that only this user can read."""
    candidates = [os.path.join(tempfile.gettempdir(), f"spillway-{os.getuid()}"), f"/tmp/spillway-{os.getuid()}"]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        candidates.insert(0, os.path.join(runtime, "spillway"))
    for path in candidates:
        if len(os.fsencode(path)) + 32 > _PATH_BYTES:
            continue
        try:
            os.makedirs(path, 0o700, exist_ok=True)
        except OSError:
            continue
        if _is_private(path):
            return path
    return tempfile.mkdtemp(prefix="spillway-", dir="/tmp")  # another user has the name


def _in_child() -> None:
    global _started, _lock
    _lock = threading.Lock()
    if _started is not None:
        _started._leave_to_parent()
    _started = None


def _at_exit() -> None:
    _session.close_all()  # else the service waits for their memory
    if _started is not None:
        _started.stop()


os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)
