from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

from nncftools.sampler import devices
from nncftools.sampler.devices import Nvml

pytestmark = pytest.mark.process  # the stand-in is made by gcc

GIB = 1 << 30
GPU = f"gpu 0 {80 * GIB} {9 * GIB} 40 0\n"


class Run:
    """Processes of a run, and what was written to its sampler."""

    def __init__(self, *pids: int, folder: Path | None = None) -> None:
        self.pids = pids
        self.folder = folder
        self.written: list[tuple[str, Any]] = []

    def processes(self) -> list[Any]:
        """Return them."""
        return [types.SimpleNamespace(pid=pid, path=f"{self.folder}/{pid}") for pid in self.pids]

    def write(self, key: str, value: object) -> None:
        """Keep a line."""
        self.written.append((key, dict(value) if isinstance(value, dict) else value))

    @property
    def missing(self) -> list[object]:
        """The reasons why something is unknown."""
        return [value["missing"] for key, value in self.written if key == "device" and "missing" in value]


def source(tmp_path: Path, *, is_container: bool = False) -> Nvml:
    """Return the source on a machine, or in a container, with a folder for each process that is there."""
    (tmp_path / "proc/self/ns").mkdir(parents=True, exist_ok=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532001]" if is_container else "pid:[4026531836]")
    return Nvml(str(tmp_path / "proc"))


def read(of: Nvml, run: Run) -> dict[str, float | None]:
    """Return what a source reads, which begins before its first reading."""
    assert of._devices or of.begin(run)  # type: ignore[arg-type] # what it asks of a run
    return dict(of.read(run))  # type: ignore[arg-type] # what it asks of a run


@pytest.mark.parametrize(
    "lines, held, missing",
    [
        ("process 0 C 11 GIB\nprocess 0 G 11 GIB\nprocess 0 G 12 GIB", 2 * GIB, []),
        ("process 0 C 99 GIB", 0, []),
        ("list 3 0 G\nprocess 0 C 11 GIB", GIB, []),
        ("process 0 C 11 -1\nprocess 0 G 11 GIB", GIB, []),
        ("process 0 G 11 -1\nprocess 0 C 11 GIB", GIB, []),
        ("process 0 C 11 GIB\nprocess 0 C 99 -1", GIB, []),
        ("process 0 C 81234 GIB", 0, []),
        ("old 1\nprocess 0 C 11 GIB\nprocess 0 C 12 GIB", 2 * GIB, []),
        ("old 2\nprocess 0 C 11 GIB\nprocess 0 C 12 GIB", 2 * GIB, []),
        ("count 0 4000000000\nprocess 0 C 11 GIB", GIB, []),
        ("process 0 C 11 -2", None, [devices.NOT_TOLD]),
        (f"process 0 C 11 {81 * GIB}", None, [devices.NOT_TOLD]),
        ("process 0 C 11 -1", None, [devices.NOT_TOLD]),
        ("list 3 0", None, [f"{devices.NOT_TOLD}: Not Supported"]),
        ("list 15 0 G", None, [f"{devices.NOT_TOLD}: GPU is lost"]),
        ("hungry", None, [f"{devices.NOT_TOLD}: Insufficient Size"]),
    ],
    ids=[
        "process in both lists",
        "unused",
        "no list of drawing processes",
        "known in the second list",
        "known in the first list",
        "unknown for another process",
        "process that has ended",
        "driver with the first function",
        "driver with the second function",
        "more devices than there can be",
        "size below 0",
        "more than there is",
        "unknown",
        "no list",
        "lost",
        "list without end",
    ],
)
def test_processes(lines: str, held: int | None, missing: list[str], script: Path, tmp_path: Path) -> None:
    """The memory of the run's processes is added up, or unknown with a reason that is written once."""
    script.write_text(f"{GPU}{lines.replace('GIB', str(GIB))}\n")
    of, run = source(tmp_path), Run(11, 12)
    values = [read(of, run), read(of, run)]

    assert [value["device_memory@nvidia0"] for value in values] == [held, held]
    assert values[0]["device_used@nvidia0"] == 9 * GIB
    assert run.missing == missing


@pytest.mark.parametrize(
    "gpu, used, busy",
    [
        (f"gpu 0 {80 * GIB} {9 * GIB} 40 0", 9 * GIB, 40),
        ("gpu 3 0 0 0 0", None, None),
        (f"gpu 0 {80 * GIB} {(1 << 64) - 1} 4000000000 0", None, None),
    ],
    ids=["H100", "GPU with the memory of the machine (GB10)", "figures that cannot be"],
)
def test_figures_of_the_device(gpu: str, used: int | None, busy: int | None, script: Path, tmp_path: Path) -> None:
    """The memory of the run's processes is a sum; the memory of everyone and the load are figures of the device."""
    script.write_text(f"{gpu}\nprocess 0 C 11 {GIB}\nprocess 0 C 12 {2 * GIB}\nprocess 0 C 99 {GIB}\n")
    run = Run(11, 12, 13)
    values = read(source(tmp_path), run)

    assert values.pop("device_memory@nvidia0") == 3 * GIB
    assert values == {"device_used@nvidia0": used, "device_busy@nvidia0": busy}
    assert [(key, value["model"], value["uuid"]) for key, value in run.written] == [
        ("device", "Stand-In 80GB", "GPU-0")
    ]


@pytest.mark.parametrize("number", [0, 1, 3, 17, 40])
@pytest.mark.parametrize("size", [16, 24, 32])
def test_size_of_entries(size: int, number: int, script: Path, tmp_path: Path) -> None:
    """How long an entry is, which differs between drivers of one version of NVML, is seen from what was written."""
    processes = "".join(f"process 0 C {100 + place} {GIB}\n" for place in range(number))
    script.write_text(f"{GPU}entry {size}\n{processes}")

    assert read(source(tmp_path), Run(*range(100, 140)))["device_memory@nvidia0"] == number * GIB


@pytest.mark.parametrize("status, warns", [(15, True), (4, False)])
def test_failing_device(status: int, script: Path, tmp_path: Path, *, warns: bool) -> None:
    """A GPU that does not answer is a warning, but for one that nobody here may use; others keep their numbers."""
    script.write_text(f"{GPU * 2}handle {status} 0\nprocess 1 C 11 {GIB}\n")
    run = Run(11)
    values = read(source(tmp_path), run)
    warnings = [value for key, value in run.written if key == "warning"]

    assert (values.keys() & {"device_memory@nvidia0"}, values["device_memory@nvidia1"]) == (set(), GIB)
    assert warnings == ["memory of nvidia0 is unknown: GPU is lost"] * warns


def test_mig(script: Path, tmp_path: Path) -> None:
    """Instances are devices of their own, in place of the GPU that they are parts of; their load is unknown."""
    script.write_text(
        f"gpu 0 {80 * GIB} {9 * GIB} 40 2\n{GPU}"
        f"process 0.1 C 11 {GIB}\nprocess 1 C 11 {3 * GIB}\nprocess 0 C 11 {GIB}\n"
    )

    values = read(source(tmp_path), Run(11))

    held = {name: value for name, value in values.items() if name.startswith("device_memory")}
    assert held == {
        "device_memory@nvidia0.mig0": 0,
        "device_memory@nvidia0.mig1": GIB,
        "device_memory@nvidia1": 3 * GIB,
    }
    assert values["device_busy@nvidia0.mig0"] is None


@pytest.mark.parametrize(
    "lines, device, is_visible, held, missing",
    [
        ("process 0 C 81234 GIB", "/dev/null", False, None, [devices.OF_HOST]),
        ("process 0 C 11 GIB\nprocess 0 C 81234 GIB", "/dev/null", True, None, [devices.OF_HOST]),
        ("process 0 C 11 GIB\nprocess 0 C 81234 GIB", "/dev/nvidia-uvm", True, GIB, []),
        ("process 0 C 11 GIB", "/dev/null", True, GIB, []),
        ("", "/dev/nvidia-uvm", False, None, [devices.NOT_NAMED]),
        ("", "/dev/dxg", False, None, [devices.NOT_NAMED]),
        ("", "/dev/nvidia0", False, 0, []),
    ],
    ids=[
        "PIDs of the host",
        "own PID on the host",
        "own PID among those of the host",
        "PIDs of the container",
        "empty list with CUDA",
        "empty list in WSL",
        "empty list without CUDA",
    ],
)
def test_container(  # noqa: PLR0913 — a case
    lines: str,
    device: str,
    held: int | None,
    missing: list[str],
    *,
    is_visible: bool,
    script: Path,
    tmp_path: Path,
) -> None:
    """In a container or WSL, PIDs may be those of the host; process 11 of the run has opened the device."""
    script.write_text(f"{GPU}{lines.replace('GIB', str(GIB))}\n")
    (tmp_path / "11/fd").mkdir(parents=True)
    (tmp_path / "11/fd/3").symlink_to(device)
    if is_visible:
        (tmp_path / "proc/11").mkdir(parents=True)
    run = Run(11, folder=tmp_path)

    assert read(source(tmp_path, is_container=True), run)["device_memory@nvidia0"] == held
    assert run.missing == missing


def test_driver_that_goes_away(script: Path, tmp_path: Path) -> None:
    """While the driver does not answer, everything is unknown, and the reason is written; later it is known again."""
    script.write_text(f"{GPU}process 0 C 11 {GIB}\n")
    of, run = source(tmp_path), Run(11)
    read(of, run)

    script.write_text("gpu 15 0 0 0 0\nlist 15 0\n")
    lost = read(of, run)
    script.write_text(f"{GPU}process 0 C 11 {GIB}\n")

    assert set(lost.values()) == {None}
    assert run.missing == ["the driver does not answer: GPU is lost"]
    assert read(of, run)["device_memory@nvidia0"] == GIB


@pytest.mark.parametrize("line, why", [("init 9 0", "Driver Not Loaded"), ("count 15", "GPU is lost")])
def test_driver_that_does_not_begin(line: str, why: str, script: Path, tmp_path: Path) -> None:
    """A driver that cannot be used is a warning, and the end of reading."""
    script.write_text(f"{GPU}{line}\n")
    run = Run(11)

    assert not source(tmp_path).begin(run)  # type: ignore[arg-type] # what it asks of a run
    assert run.written == [("warning", f"memory of NVIDIA's GPUs is unknown: {why}")]


def test_no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library, there is nothing to read and nothing to say."""
    monkeypatch.setenv(devices.FOR_TESTS, str(tmp_path / "missing.so"))
    run = Run(11)

    assert not source(tmp_path).begin(run)  # type: ignore[arg-type] # what it asks of a run
    assert run.written == []
