# SPDX-License-Identifier: Apache-2.0
"""Loads libspillway.so, and finds the programs that belong to it."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import Any

import cffi

from . import _cdef, errors

NATIVE = Path(__file__).parent / "_native"  # of the wheel; missing if the library is the system's
DEFAULT_SOCKET = "/run/spillway/data.sock"

ffi = cffi.FFI()
ffi.cdef(_cdef.OPAQUE + _cdef.STRUCTS + _cdef.FUNCTIONS)


def library_path() -> str:
    """Returns which library is loaded: $SPILLWAY_LIBRARY, else the wheel's, else the system's."""
    soname = f"libspillway.so.{_cdef.MAJOR}.{_cdef.MINOR}"
    bundled = NATIVE / "lib" / soname
    return os.environ.get("SPILLWAY_LIBRARY") or (str(bundled) if bundled.exists() else soname)


@functools.lru_cache(maxsize=None)
def library() -> Any:
    """Returns the loaded library."""
    path = library_path()
    try:
        lib: Any = ffi.dlopen(path)
    except OSError as error:
        raise errors.ENOENT(
            f"cannot load {path}: {error}",
            hint="install the wheel or the package of Spillway, or set SPILLWAY_LIBRARY to the path of libspillway.so",
        ) from None
    version = text(lib.spillway_version())
    if version.split(".")[:2] != [str(_cdef.MAJOR), str(_cdef.MINOR)]:
        raise errors.EVERSION(
            f"{path} is version {version}, and this package needs {_cdef.MAJOR}.{_cdef.MINOR}",
            hint="install the package and the library of one version, or unset SPILLWAY_LIBRARY",
        )
    return lib


def library_version() -> str:
    return text(library().spillway_version())


def program(name: str) -> str | None:
    """Finds spillwayd or spillwayctl: the environment's ($SPILLWAYD), the wheel's, the system's."""
    bundled = NATIVE / "bin" / name
    path = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin"
    return os.environ.get(name.upper()) or (str(bundled) if bundled.exists() else shutil.which(name, path=path))


def text(pointer: Any) -> str:
    """Returns a zero-terminated text of the library."""
    found: bytes = ffi.string(pointer)  # type: ignore[assignment]
    return found.decode(errors="replace")


def sized(struct: str, n: int = 1) -> Any:
    """Makes an array of structs whose first has its size set."""
    array = ffi.new(f"struct {struct}[]", n)
    array[0].size = ffi.sizeof(f"struct {struct}")
    return array


def new_error() -> Any:
    return ffi.new("struct spillway_error *")


SCOPES = ("request", "region", "session", "device", "daemon")
ERRORS: dict[str, type[errors.SpillwayError]] = {c.__name__: c for c in errors.SpillwayError.__subclasses__()}
_BY_CODE = {c.code: c for c in ERRORS.values()}


def make_error(name: str, code: int, text: str, scope: int = 0, cuda: int = 0) -> errors.SpillwayError:
    """Makes the error that the library has described. A later library may know more names."""
    cls = ERRORS.get(name) or _BY_CODE.get(abs(code))
    if cls is None:
        cls = type(name or "EUNKNOWN", (errors.SpillwayError,), {"code": abs(code)})
    return cls(text, SCOPES[scope] if 0 <= scope < len(SCOPES) else SCOPES[-1], cuda)


def raised(error: Any) -> errors.SpillwayError:
    """Makes the exception of a struct spillway_error."""
    return make_error(text(error.name), error.code, text(error.text), error.scope, error.cuda)
