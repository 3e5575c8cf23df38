# SPDX-License-Identifier: Apache-2.0
"""python -m spillway, and the examples."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import spillway

HERE = Path(__file__).parents[1]


def program(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_doctor(service):
    done = program("-m", "spillway", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("driver ", "coder ", "you may use it", "every byte is back", "next step none", spillway.__version__):
        assert said in done.stdout


def test_doctor_without_a_service(tmp_path):
    done = program("-m", "spillway", "doctor", SPILLWAY_SOCKET=str(tmp_path / "none.sock"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "does not exist" in done.stdout and "trying spillway.start()" in done.stdout
    assert "next step call spillway.start()" in done.stdout


def test_doctor_names_the_group(monkeypatch, tmp_path):
    from spillway import _doctor

    path = tmp_path / "data.sock"
    path.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    text, step = _doctor._rights(str(path))
    assert "you may not use it" in text and step.startswith("sudo usermod -aG ")


def test_probe(service, tmp_path):
    numbers = numpy.arange(1_000_000, dtype="i4") % 1000
    numpy.save(tmp_path / "x.npy", numbers)
    (tmp_path / "x.raw").write_bytes(numbers.tobytes())
    as_saved = program("-m", "spillway", "probe", tmp_path / "x.npy").stdout
    assert "4000000 bytes, as i32" in as_saved and "every byte is back" in as_saved and " GB/s (" in as_saved
    ratios = [
        float(re.search(r"ratio ([0-9.]+)", out)[1])
        for out in (
            as_saved,
            program("-m", "spillway", "probe", tmp_path / "x.raw", "--type", "i32").stdout,
            program("-m", "spillway", "probe", tmp_path / "x.raw").stdout,
        )
    ]
    assert ratios[0] == ratios[1] > 2 * ratios[2] > 1


def test_probe_of_what_is_not_there(tmp_path):
    (tmp_path / "empty").touch()
    for name, said in (("empty", "is empty"), ("none", "No such file")):
        done = program("-m", "spillway", "probe", tmp_path / name)
        assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr
    done = program("-m", "spillway", "--socket", tmp_path / "none", "probe", __file__)
    assert done.returncode == 1 and "ENOSERVICE" in done.stderr


@pytest.mark.parametrize("example", sorted(HERE.glob("examples/*.py")), ids=lambda path: path.stem)
def test_example(example, tmp_path):
    code = example.read_text()
    assert len(code.splitlines()) <= 40
    for module in ("cudf", "cupy", "rmm", "torch"):
        if f"import {module}" in code:
            pytest.importorskip(module)
    if "import cupy" in code and not os.path.exists("/dev/nvidiactl"):
        pytest.skip("no NVIDIA GPU")
    done = program(example, XDG_RUNTIME_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "every byte is back" in done.stdout


def test_the_readme_works(tmp_path):
    (code,) = re.findall(r"^```python\n(.*?)^```$", (HERE / "README.md").read_text(), re.M | re.S)
    done = program("-c", code, SPILLWAY_SOCKET="")
    assert done.returncode == 0, done.stderr


def test_one_version():
    assert spillway.__version__ == spillway.library_version()
    assert f'version = "{spillway.__version__}"' in (HERE / "pyproject.toml").read_text()
