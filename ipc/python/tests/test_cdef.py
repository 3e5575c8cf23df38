# SPDX-License-Identifier: Apache-2.0
"""The declarations for cffi beside the headers as the compiler sees them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import spillway
from spillway import _cdef, _pool_cdef
from spillway._library import ERRORS, ffi

ROOT = Path(__file__).parents[3]
INCLUDES = [f"-I{ROOT / folder}" for folder in ("ipc", "base/public", "codec/public")]
STRUCTS = re.findall(r"^struct (\w+) \{", _cdef.STRUCTS + _pool_cdef.STRUCTS, re.M)

pytestmark = pytest.mark.skipif(
    not (ROOT / "ipc/spillway.h").exists() or not shutil.which("cc"), reason="needs the source tree and a C compiler"
)


def compiled(tmp_path, body, run=True):
    source = tmp_path / "check.c"
    source.write_text(f"#include <spillway_pool.h>\n#include <stddef.h>\n#include <stdio.h>\n{body}")
    command = [
        "cc",
        "-Wall",
        "-Werror",
        *INCLUDES,
        str(source),
        *(["-o", f"{tmp_path}/check"] if run else ["-c", "-o", "/dev/null"]),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return subprocess.run([str(tmp_path / "check")], capture_output=True, text=True, check=True).stdout if run else ""


def test_structs(tmp_path):
    """Sizes, and the offset and size of each field."""
    lines, expected = [], []
    for struct in STRUCTS:
        lines.append(f'printf("{struct} %zu\\n", sizeof(struct {struct}));')
        expected.append(f"{struct} {ffi.sizeof('struct ' + struct)}")
        for name, field in ffi.typeof("struct " + struct).fields:
            lines.append(
                f'printf("{struct}.{name} %zu %zu\\n", offsetof(struct {struct}, {name}), '
                f"sizeof(((struct {struct} *)0)->{name}));"
            )
            expected.append(f"{struct}.{name} {field.offset} {ffi.sizeof(field.type)}")
    assert compiled(tmp_path, "int main(void) {" + "".join(lines) + "}").splitlines() == expected


def test_all_fields_of_the_header_are_declared():
    headers = "".join((ROOT / "ipc" / name).read_text() for name in ("spillway.h", "spillway_pool.h"))
    header = re.sub(r"/\*.*?\*/", "", headers, flags=re.S)
    for struct, body in re.findall(r"^struct (\w+) \{(.*?)^\};", header, re.M | re.S):
        if struct not in STRUCTS:
            continue
        names = [
            re.sub(r"\[.*", "", part).split()[-1].lstrip("*")
            for line in re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", body).split(";")  # callbacks
            if line.strip()
            for part in line.split(",")
        ]
        assert [name for name, _ in ffi.typeof("struct " + struct).fields] == names


def test_functions(tmp_path):
    """A declaration that differs from the header's does not compile after it."""
    compiled(tmp_path, _cdef.FUNCTIONS + _pool_cdef.FUNCTIONS, run=False)


def test_constants(tmp_path):
    constants = _cdef.CONSTANTS | _pool_cdef.CONSTANTS
    lines = "".join(f'printf("%d\\n", (int)SPILLWAY_{name});' for name in constants)
    values = compiled(tmp_path, "int main(void) {" + lines + "}").split()
    assert dict(zip(constants, map(int, values))) == constants


def test_errors(tmp_path):
    printed = compiled(
        tmp_path,
        '#define PRINT(name, code, text) printf("E%s %d %s\\n", #name, code, text);\n'
        "int main(void) {SPILLWAY_ERROR_LIST(PRINT)}",
    )
    for line in printed.splitlines():
        name, code, text = line.split(" ", 2)
        assert ERRORS[name].code == int(code) and getattr(spillway, name) is ERRORS[name]
        assert ERRORS[name].__doc__.rstrip(".").lower() == text.lower()
    assert len(ERRORS) == len(printed.splitlines())
