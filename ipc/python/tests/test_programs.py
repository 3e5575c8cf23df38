# SPDX-License-Identifier: Apache-2.0
"""python -m spillway, and the examples."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

import spillway
from spillway import __main__ as main
from spillway import _doctor, _probe

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
    path = tmp_path / "data.sock"
    path.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    text, step = _doctor._rights(str(path))
    assert "you may not use it" in text and step.startswith("sudo usermod -aG ")


class FakeDriver:
    """The driver's functions that are called, as for two GPUs."""

    def __init__(self, version=13000, code=0):
        self.version, self.code = version, code

    def cuInit(self, flags):
        return self.code

    def cuGetErrorName(self, code, ret):
        ret._obj.value = b"CUDA_ERROR_%d" % code

    def cuDriverGetVersion(self, ret):
        ret._obj.value = self.version

    def cuDeviceGetCount(self, ret):
        ret._obj.value = 2

    def cuDeviceGet(self, ret, number):
        ret._obj.value = 10 + number

    def cuDeviceGetName(self, name, size, device):
        name.value = b"GPU %d" % device.value

    def cuDeviceTotalMem_v2(self, ret, device):
        ret._obj.value = 5 << 30


@pytest.mark.parametrize(
    "driver, said, n_gpus, step",
    [
        (FakeDriver(), "driver    runs CUDA 13.0\nGPU       0: GPU 10, 5 GiB\nGPU       1: GPU 11, 5 GiB\n", 2, ""),
        (FakeDriver(12090), "driver    runs CUDA 12.9, too old for the kernels (13.0)\n", 2, "update .* 580 .*12.9"),
        (FakeDriver(code=3), "driver    cuInit: CUDA_ERROR_3; host memory only\n", 0, "install the NVIDIA driver"),
        (None, "driver    no libcuda.so.1; host memory only\n", 0, "install the NVIDIA driver"),
    ],
)
def test_doctor_looks_at_the_driver(monkeypatch, capsys, driver, said, n_gpus, step):
    def load(name):
        if driver is None:
            raise OSError(name)
        return driver

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/dev/nvidiactl")
    report = _doctor.Report()
    assert _doctor._look_at_driver(report) == n_gpus
    assert capsys.readouterr().out.startswith(said) and re.match(f"{step}", report.next_step)
    assert bool(step) == bool(report.next_step)


def test_doctor_looks_at_the_package(monkeypatch, capsys):
    """The first step that is missing is named."""
    monkeypatch.setattr(_doctor, "_kernels", lambda: None)
    monkeypatch.setattr(_doctor, "program", lambda name: None)
    for n_gpus, step in ((1, "build the wheel with nvcc"), (0, "install the wheel or the package")):
        report = _doctor.Report()
        _doctor._look_at_package(report, n_gpus)
        assert report.next_step.startswith(step)
    assert "spillwayd not installed" in capsys.readouterr().out
    monkeypatch.setattr(_doctor, "_kernels", lambda: "/lib/kernels.so")
    report = _doctor.Report()
    _doctor._look_at_package(report, 1)
    assert report.next_step.startswith("install the wheel or the package")


def test_doctor_of_a_service_without_gpus(service, capsys):
    report = _doctor.Report()
    _doctor._look_at_service(report, service.socket, 1)
    assert report.next_step.startswith("the service uses no GPU")
    said = capsys.readouterr().out
    assert f"socket    {service.socket}: s" in said and re.search(r"; 0\.\d of 0\.[23] GiB in use", said)


@pytest.mark.parametrize(
    "error, step",
    [(spillway.EACCES("refused"), "join the group"), (spillway.EVERSION("other", hint="update it"), "update it")],
)
def test_doctor_says_why_a_service_is_of_no_use(monkeypatch, capsys, error, step):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(_doctor, "Connection", refuse)
    monkeypatch.setattr(_doctor, "_rights", lambda socket: ("its rights", "join the group"))
    monkeypatch.setattr(_doctor, "_look_at_private_service", lambda *_: None)
    report = _doctor.Report()
    _doctor._look_at_service(report, "/socket", 0)
    assert report.next_step == step
    said = f"socket    /socket: its rights\nservice   {error.name}: {error.text}\n"
    assert capsys.readouterr().out == said


def test_doctor_fails_if_nothing_can_spill(tmp_path):
    (tmp_path / "spillwayd").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "spillwayd").chmod(0o755)
    where = tmp_path / "none" / "data.sock"
    done = program("-m", "spillway", "--socket", where, "doctor", SPILLWAYD=str(tmp_path / "spillwayd"))
    assert done.returncode == 1 and f"socket    {where}: does not exist" in done.stdout
    assert "ended at its start" in done.stdout and "next step `python -m spillway doctor`" in done.stdout


def test_doctor_names_who_may_use_the_socket(tmp_path):
    (tmp_path / "file").touch()
    assert _doctor._rights(str(tmp_path / "file" / "data.sock")) == ("cannot be seen: Not a directory", "")
    assert _doctor._user(os.getuid()) != str(os.getuid()) and _doctor._user(4_000_000_000) == "4000000000"


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
    as_told = program("-m", "spillway", "probe", tmp_path / "x.npy", "--type", "u32").stdout
    assert "4000000 bytes, as u32" in as_told
    assert ratios[0] == ratios[1] > 2 * ratios[2] > 1


def test_probe_reads_the_header_of_numpy(tmp_path):
    path = tmp_path / "x.npy"
    for dtype, type_ in (("u1", "u8"), ("<f2", "f16"), ("<f8", "f64"), ("<u8", "u64"), (">i4", None), ("<c8", None)):
        numpy.save(path, a := numpy.arange(5).astype(dtype))
        values = _probe.read(str(path), None)
        assert values.type == type_ and values.data == a.tobytes()
    fields = numpy.zeros(2, [("x", "i4"), ("y", "i4")])
    with open(path, "wb") as file:
        numpy.lib.format.write_array(file, fields, version=(2, 0))
    values = _probe.read(str(path), None)
    assert values.type is None and values.data == fields.tobytes()
    with pytest.raises(spillway.EINVAL, match="type='i24'"):
        _probe.read(str(path), "i24")


def test_other_bytes_are_noticed(monkeypatch, connection, service, capsys):
    """A restore that claims success and does nothing."""
    done = SimpleNamespace(wait=lambda: bytearray(5))
    monkeypatch.setattr(spillway.Region, "restore", lambda region, **options: done)
    values = _probe.Values(memoryview(b"bytes"), None)
    assert _probe.run(connection, "a file", values, None) == 1
    assert "verified  THE BYTES DIFFER" in capsys.readouterr().out
    assert _doctor.run(service.socket) == 1
    assert "trial     THE BYTES DIFFER\nnext step report this as a bug" in capsys.readouterr().out


def test_probe_takes_room_for_the_file(monkeypatch):
    """As many slabs of 2 MiB as it needs if it does not shrink, up to half of the memory."""
    assert _probe.tier_bytes(0) == 256 << 20
    assert _probe.tier_bytes(1 << 30) == (1 << 30) + (128 << 20)
    assert _probe.tier_bytes((1 << 30) + 1) % (2 << 20) == 0
    assert _probe.tier_bytes(1 << 60) < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 0.51


def test_probe_starts_a_service_with_room(monkeypatch, tmp_path):
    """Where the program has named no socket."""
    started = []

    def refuse(**options):
        started.append(options)
        raise spillway.ETIMEDOUT("it is not started here")

    monkeypatch.delenv("SPILLWAY_SOCKET", raising=False)
    monkeypatch.setattr("spillway._connection.DEFAULT_SOCKET", str(tmp_path / "none"))
    monkeypatch.setattr(main, "start", refuse)
    with open(tmp_path / "file", "wb") as file:
        file.truncate(300 << 20)
    monkeypatch.setattr(sys, "argv", ["spillway", "probe", str(tmp_path / "file")])
    assert main.main() == 1
    assert started == [{"host_tier_bytes": _probe.tier_bytes(300 << 20)}]
    assert _probe.tier_bytes(300 << 20) > _probe.tier_bytes(0)
    monkeypatch.setenv("SPILLWAY_SOCKET", str(tmp_path / "named"))
    assert main.main() == 1 and len(started) == 1


def test_programs_of_the_wheel(monkeypatch, tmp_path):
    executed = []
    monkeypatch.setattr(os, "execv", lambda *arguments: executed.append(arguments))
    monkeypatch.setattr(sys, "argv", ["spillwayctl", "--json", "status"])
    main.spillwayctl()
    assert executed[0][1] == ["spillwayctl", "--json", "status"]
    monkeypatch.setattr(main, "program", lambda name: None)
    with pytest.raises(SystemExit, match="spillwayd is not installed"):
        main.spillwayd()


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
