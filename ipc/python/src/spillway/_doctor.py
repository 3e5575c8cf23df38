# SPDX-License-Identifier: Apache-2.0
"""python -m spillway doctor: looks at everything that has to fit, and names the next step."""

from __future__ import annotations

import ctypes
import glob
import grp
import os
import platform
import pwd
import stat
from typing import Any

from . import __version__
from ._connection import Connection
from ._library import DEFAULT_SOCKET, NATIVE, library_path, library_version, program
from ._service import start
from .errors import EACCES, ENOSERVICE, SpillwayError

_CUDA = 13000  # that the kernels are built with: the driver has to run it


class Report:
    def __init__(self) -> None:
        self.next_step = ""  # that is needed
        self.advice = "none: Connection() works; python -m spillway probe FILE tells what it gains"

    def line(self, name: str, text: str, next_step: str = "") -> None:
        """Prints a line; the first next step that is found is the one to take."""
        print(f"{name:9} {text}")
        self.next_step = self.next_step or next_step


def _driver() -> Any:
    """Returns the CUDA driver, ready for questions, or a text that says why there is none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no libcuda.so.1"
    code = cuda.cuInit(0)
    if code:
        name = ctypes.c_char_p()
        cuda.cuGetErrorName(code, ctypes.byref(name))
        return f"cuInit: {(name.value or b'?').decode()}"
    return cuda


def _look_at_driver(report: Report) -> int:
    """Returns the number of GPUs that this process sees."""
    cuda = _driver()
    has_device = os.path.exists("/dev/nvidiactl")
    if isinstance(cuda, str):
        step = "install the NVIDIA driver, or give this container access to the GPU" if has_device else ""
        report.line("driver", f"{cuda}; host memory only", step)
        return 0
    version, n = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetCount(ctypes.byref(n))
    number = f"{version.value // 1000}.{version.value % 1000 // 10}"
    too_old = f"update the NVIDIA driver to 580 or later: it runs CUDA {number}" if version.value < _CUDA else ""
    report.line("driver", f"runs CUDA {number}" + (", too old for the kernels (13.0)" if too_old else ""), too_old)
    for i in range(n.value):
        device, name, total = ctypes.c_int(), ctypes.create_string_buffer(100), ctypes.c_size_t()
        cuda.cuDeviceGet(ctypes.byref(device), i)
        cuda.cuDeviceGetName(name, 100, device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device)
        report.line("GPU", f"{i}: {name.value.decode()}, {total.value / 2**30:.0f} GiB")
    return n.value


def _kernels() -> str | None:
    """Finds the kernels of the codec; they belong to a build with CUDA."""
    places = (str(NATIVE / "lib"), os.path.dirname(os.path.realpath(library_path())))
    found = [path for place in places for path in glob.glob(f"{place}/libspillway-kernels.so.0")]
    return found[0] if found else None


def _look_at_package(report: Report, n_gpus: int) -> None:
    report.line("Python", f"{platform.python_version()}, {platform.libc_ver()[0]} {platform.libc_ver()[1]}")
    report.line("package", f"spillway-gpu {__version__}, libspillway {library_version()} ({library_path()})")
    kernels = _kernels()
    step = "build the wheel with nvcc: this one is for host memory only" if n_gpus and not kernels else ""
    report.line(
        "coder", kernels or "no libspillway-kernels.so.0 beside the library: this process cannot encode on a GPU", step
    )
    path = program("spillwayd")
    report.line("spillwayd", path or "not installed", "" if path else "install the wheel or the package")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _rights(socket: str) -> tuple[str, str]:
    """Describes who may use a socket, and what this user has to do to be one of them."""
    try:
        st = os.stat(socket)
    except FileNotFoundError:
        return "does not exist", ""
    except OSError as error:
        return f"cannot be seen: {error.strerror}", ""
    try:
        group = grp.getgrgid(st.st_gid).gr_name
    except KeyError:
        group = str(st.st_gid)
    text = f"{stat.filemode(st.st_mode)} {_user(st.st_uid)}:{group}"
    if os.access(socket, os.W_OK):
        return f"{text}, you may use it", ""
    return f"{text}, you may not use it", f"sudo usermod -aG {group} {_user(os.getuid())}, and log in again"


def _look_at_service(report: Report, given: str | None, n_gpus: int) -> None:
    socket = given or os.environ.get("SPILLWAY_SOCKET") or DEFAULT_SOCKET
    rights, step = _rights(socket)
    report.line("socket", f"{socket}: {rights}")
    try:
        with Connection(socket, connect_timeout=5) as connection:
            _look_at_answers(report, connection, n_gpus)
    except (ENOSERVICE, EACCES) as error:
        report.line("service", f"{error.name}: {error.text}", step)
        _look_at_private_service(report, n_gpus)
    except SpillwayError as error:
        report.line("service", f"{error.name}: {error.text}", error.hint or "see the service's log")


def _look_at_private_service(report: Report, n_gpus: int) -> None:
    print("          trying spillway.start()")
    try:
        with start(host_tier_bytes="256MiB") as service, Connection(service.socket) as connection:
            _look_at_answers(report, connection, n_gpus)
    except SpillwayError as error:
        report.line("service", f"{error.name}: {error.text}", error.hint or "see the service's log")
    else:
        report.advice = "call spillway.start() before Connection(), or start the system's service"


def _look_at_answers(report: Report, connection: Connection, n_gpus: int) -> None:
    status = connection.status()
    gib = 2**30
    step = ""
    if n_gpus and not status.n_gpus:
        step = "the service uses no GPU: its log line event=service.ready or device.skipped says why"
    used = f"{status.tier_used_bytes / gib:.1f} of {status.tier_capacity_bytes / gib:.1f} GiB in use"
    report.line("service", f"spillwayd {status.version} on {status.device}, {status.n_gpus} GPUs; {used}", step)
    sample = b"every byte is back. " * 50000
    back = connection.spill(sample).wait().restore().wait()
    report.line(
        "trial",
        "1 MB spilled and restored, every byte is back" if back == sample else "THE BYTES DIFFER",
        "" if back == sample else "report this as a bug",
    )


def run(socket: str | None) -> int:
    """Returns 0 if programs can spill."""
    report = Report()
    n_gpus = _look_at_driver(report)
    _look_at_package(report, n_gpus)
    _look_at_service(report, socket, n_gpus)
    report.line("next step", report.next_step or report.advice)
    return 1 if report.next_step else 0
