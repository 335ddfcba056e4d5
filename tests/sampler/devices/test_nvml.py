from __future__ import annotations

import pathlib
import types
from typing import Any

import pytest

from nncftools.sampler import devices
from nncftools.sampler.devices import Nvml

pytestmark = pytest.mark.process  # the stand-in is made by gcc

GIB = 1 << 30
GPU = f"gpu 0 {80 * GIB} {9 * GIB} 40 0\n"


class Run:
    """Processes of a run, and what was written to its sampler."""

    def __init__(self, *pids: int, folder: pathlib.Path | None = None) -> None:
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


def source(tmp_path: pathlib.Path, *, is_container: bool = False) -> Nvml:
    """Return the source on a machine, or in a container, with a folder for each process that is there."""
    (tmp_path / "proc/self/ns").mkdir(parents=True, exist_ok=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532001]" if is_container else "pid:[4026531836]")
    return Nvml(str(tmp_path / "proc"))


def read(of: Nvml, run: Run) -> dict[str, float | None]:
    """Return what a source reads, which begins before its first reading."""
    assert of._devices or of.begin(run)  # type: ignore[arg-type] # what it asks of a run
    return dict(of.read(run))  # type: ignore[arg-type] # what it asks of a run


def test_memory_of_the_run(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What the run's processes hold is their sum; what everyone holds, and the load, are of the device."""
    script.write_text(f"{GPU}process 0 C 11 {GIB}\nprocess 0 C 12 {2 * GIB}\nprocess 0 C 99 {3 * GIB}\n")
    run = Run(11, 12, 13)

    values = read(source(tmp_path), run)

    assert values == {"device_memory@nvidia0": 3 * GIB, "device_used@nvidia0": 9 * GIB, "device_busy@nvidia0": 40}
    facts = {"device": "nvidia0", "model": "Stand-In 80GB", "uuid": "GPU-0", "memory": 80 * GIB}
    assert run.written == [("device", facts)]


def test_process_of_both_kinds(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A process in the lists of computing and of drawing processes counts once."""
    script.write_text(f"{GPU}process 0 C 11 {GIB}\nprocess 0 G 11 {GIB}\nprocess 0 G 12 {GIB}\n")

    values = read(source(tmp_path), Run(11, 12))

    assert values["device_memory@nvidia0"] == 2 * GIB


def test_unused_device(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A run that is not on the list of the machine's driver holds nothing."""
    script.write_text(f"{GPU}process 0 C 99 {GIB}\n")

    assert read(source(tmp_path), Run(11))["device_memory@nvidia0"] == 0


@pytest.mark.parametrize(
    ("lines", "why"),
    [("process 0 C 11 -1\n", ""), ("list 3 0\n", ": Not Supported"), ("list 15 0 G\n", ": GPU is lost")],
)
def test_not_available(lines: str, why: str, script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Where the driver does not report the memory of a process, that is unknown, and the reason is written once."""
    script.write_text(GPU + lines)
    of, run = source(tmp_path), Run(11)

    values = [read(of, run), read(of, run)]

    assert [value["device_memory@nvidia0"] for value in values] == [None, None]
    assert values[0]["device_used@nvidia0"] == 9 * GIB
    assert run.missing == [devices.NOT_TOLD + why]


def test_no_drawing_processes(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A driver that does not support the list of drawing processes has none."""
    script.write_text(f"{GPU}list 3 0 G\nprocess 0 C 11 {GIB}\n")

    assert read(source(tmp_path), Run(11))["device_memory@nvidia0"] == GIB


@pytest.mark.parametrize("used", [-2, 81 * GIB])
def test_more_than_there_is(used: int, script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A size that cannot be is unknown."""
    script.write_text(f"{GPU}process 0 C 11 {used}\n")
    run = Run(11)

    assert read(source(tmp_path), run)["device_memory@nvidia0"] is None
    assert run.missing == [devices.NOT_TOLD]


def test_no_memory_of_its_own(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A GPU that has only the machine's memory (GB10) does not say what everyone holds, but what processes do."""
    script.write_text(f"gpu 3 0 0 0 0\nprocess 0 C 11 {GIB}\n")
    run = Run(11)
    values = read(source(tmp_path), run)

    assert (values["device_memory@nvidia0"], values["device_used@nvidia0"], run.missing) == (GIB, None, [])


@pytest.mark.parametrize("kinds", ["CG", "GC"])
def test_available_in_one_list(kinds: str, script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A process of both kinds, of which one list does not tell what it holds, holds what the other one tells."""
    script.write_text(f"{GPU}process 0 {kinds[0]} 11 -1\nprocess 0 {kinds[1]} 11 {GIB}\n")

    assert read(source(tmp_path), Run(11))["device_memory@nvidia0"] == GIB


@pytest.mark.parametrize("number", [0, 1, 2, 3, 16, 17, 40])
@pytest.mark.parametrize("size", [16, 24, 32])
def test_size_of_entries(size: int, number: int, script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """How long an entry is, which differs between drivers of one version of NVML, is seen from what was written."""
    processes = "".join(f"process 0 C {100 + place} {GIB}\n" for place in range(number))
    script.write_text(f"{GPU}entry {size}\n{processes}")

    assert read(source(tmp_path), Run(*range(100, 140)))["device_memory@nvidia0"] == number * GIB


def test_list_without_end(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A driver that asks for more room than there can be gets little, and what the run holds is unknown."""
    script.write_text(f"{GPU}hungry\n")
    run = Run(11)

    assert read(source(tmp_path), run)["device_memory@nvidia0"] is None
    assert run.missing == [f"{devices.NOT_TOLD}: Insufficient Size"]


def test_failing_count(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A driver that does not say how many devices there are is a warning."""
    script.write_text(f"{GPU}count 15\n")
    run = Run(11)

    assert not source(tmp_path).begin(run)  # type: ignore[arg-type] # what it asks of a run
    assert ("warning", "memory of NVIDIA's GPUs is unknown: GPU is lost") in run.written


@pytest.mark.parametrize(("status", "warns"), [(15, True), (4, False)])
def test_failing_device(status: int, script: pathlib.Path, tmp_path: pathlib.Path, *, warns: bool) -> None:
    """A GPU that does not answer is a warning, but for one that nobody here may use; others keep their numbers."""
    script.write_text(f"{GPU * 2}handle {status} 0\nprocess 1 C 11 {GIB}\n")
    run = Run(11)
    values = read(source(tmp_path), run)
    warnings = [value for key, value in run.written if key == "warning"]

    assert (values.keys() & {"device_memory@nvidia0"}, values["device_memory@nvidia1"]) == (set(), GIB)
    assert warnings == ["memory of nvidia0 is unknown: GPU is lost"] * warns


def test_figures_that_cannot_be(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """More memory in use than there is, and more than all of the time, are unknown."""
    script.write_text(f"gpu 0 {80 * GIB} {(1 << 64) - 1} 4000000000 0\nprocess 0 C 11 {GIB}\n")

    values = read(source(tmp_path), Run(11))

    assert values == {"device_memory@nvidia0": GIB, "device_used@nvidia0": None, "device_busy@nvidia0": None}


def test_too_many_devices(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A driver that says that there are more devices than there can be is not asked for each."""
    script.write_text(f"{GPU}count 0 4000000000\n")
    run = Run(11)

    assert set(read(source(tmp_path), run)) == {"device_memory@nvidia0", "device_used@nvidia0", "device_busy@nvidia0"}
    assert len(run.written) < 100


def test_not_available_for_others(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What is unknown of other processes does not matter."""
    script.write_text(f"{GPU}process 0 C 11 {GIB}\nprocess 0 C 99 -1\n")

    assert read(source(tmp_path), Run(11))["device_memory@nvidia0"] == GIB


def test_long_list(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """There is room for many processes."""
    processes = "".join(f"process 0 C {pid} {GIB}\n" for pid in range(100, 150))
    script.write_text(f"{GPU}{processes}")

    assert read(source(tmp_path), Run(*range(100, 140)))["device_memory@nvidia0"] == 40 * GIB


@pytest.mark.parametrize("version", [1, 2])
def test_older_drivers(version: int, script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Drivers without the newest function have one before it, whose entries may be shorter."""
    script.write_text(f"{GPU}old {version}\nprocess 0 C 11 {GIB}\nprocess 0 C 12 {2 * GIB}\n")

    assert read(source(tmp_path), Run(12))["device_memory@nvidia0"] == 2 * GIB


def test_mig(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
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


def test_pids_of_the_host(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """In a container, PIDs that are not there are those of the host, and none of the run's can be matched."""
    script.write_text(f"{GPU}process 0 C 81234 {GIB}\n")
    run = Run(11)

    values = read(source(tmp_path, is_container=True), run)

    assert values["device_memory@nvidia0"] is None
    assert run.missing == [devices.OF_HOST]


def test_ended_process_of_the_machine(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """On the machine itself, a PID that is not there is that of a process that has just ended."""
    script.write_text(f"{GPU}process 0 C 81234 {GIB}\n")

    assert read(source(tmp_path), Run(11))["device_memory@nvidia0"] == 0


@pytest.mark.parametrize(("device", "held"), [("/dev/nvidia-uvm", None), ("/dev/dxg", None), ("/dev/nvidia0", 0)])
def test_empty_list_in_a_container(device: str, held: int | None, script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """In a container or WSL, an empty list proves nothing about a process that uses CUDA."""
    script.write_text(GPU)
    (tmp_path / "11/fd").mkdir(parents=True)
    (tmp_path / "11/fd/3").symlink_to(device)
    run = Run(11, folder=tmp_path)

    values = read(source(tmp_path, is_container=True), run)

    assert values["device_memory@nvidia0"] == held
    assert run.missing == ([devices.NOT_NAMED] if held is None else [])


def test_matched_in_a_container(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """In a container whose driver knows its PIDs, all is as on the machine."""
    script.write_text(f"{GPU}process 0 C 11 {GIB}\n")
    (tmp_path / "proc/11").mkdir(parents=True)

    assert read(source(tmp_path, is_container=True), Run(11))["device_memory@nvidia0"] == GIB


@pytest.mark.parametrize(("device", "held"), [("/dev/nvidia-uvm", GIB), ("/dev/null", None)])
def test_own_pid_on_the_host(device: str, held: int | None, script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Among PIDs of the host, one that a process of the run has here is its own only if it uses CUDA."""
    script.write_text(f"{GPU}process 0 C 11 {GIB}\nprocess 0 C 81234 {GIB}\n")
    (tmp_path / "11/fd").mkdir(parents=True)
    (tmp_path / "11/fd/3").symlink_to(device)
    (tmp_path / "proc/11").mkdir(parents=True)
    run = Run(11, folder=tmp_path)

    assert read(source(tmp_path, is_container=True), run)["device_memory@nvidia0"] == held
    assert run.missing == ([devices.OF_HOST] if held is None else [])


def test_driver_that_goes_away(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
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


def test_driver_that_does_not_begin(script: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A driver that cannot be used is a warning, and the end of reading."""
    script.write_text("init 9 0\n")
    run = Run(11)

    assert not source(tmp_path).begin(run)  # type: ignore[arg-type] # what it asks of a run
    assert run.written == [("warning", "memory of NVIDIA's GPUs is unknown: Driver Not Loaded")]


def test_no_driver(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library, there is nothing to read and nothing to say."""
    monkeypatch.setenv(devices.FOR_TESTS, str(tmp_path / "missing.so"))
    run = Run(11)

    assert not source(tmp_path).begin(run)  # type: ignore[arg-type] # what it asks of a run
    assert run.written == []
