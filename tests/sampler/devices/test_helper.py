from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nncftools.analysis.session import Session
from nncftools.sampler.devices import FOR_TESTS, follow
from tests.conftest import BURNERS, Run, command_line
from tests.waiting import until

GIB = 1 << 30
HELD = "device_memory@nvidia0"
STAND_IN = f"gpu 0 {80 * GIB} {3 * GIB} 0 0\n"


class EndedError(Exception):
    """There is nothing more to read: ends a test."""


class Source:
    """Takes these times for its readings, and returns the same values each time."""

    label = "GPUs"
    every_s = 0.5
    share = 0.01

    def __init__(self, *took_s: float) -> None:
        self._took_s = [*took_s]
        self._now_s = 0.0

    def clock(self) -> float:
        """Return the time."""
        return self._now_s

    def begin(self, _: object) -> bool:
        """Return whether there is anything to read; that takes long."""
        self._now_s += 5.0
        return bool(self._took_s)

    def read(self, _: object) -> Mapping[str, float | None]:
        """Return values."""
        if not self._took_s:
            raise EndedError
        self._now_s += self._took_s.pop(0)
        return {HELD: 5}


@pytest.mark.parametrize(
    "took_s, waits_s",
    [
        ((0.001, 0.001), [0.5, 0.5]),
        ((0.02, 0.02, 0.03, 0.02), [0.5, 0.5, 2, 2]),
        ((0.1, 0.001, 0.1, 0.1, 0.1), [0.5, 0.5, 0.5, 0.5, 10]),
    ],
)
def test_pace(took_s: Sequence[float], waits_s: Sequence[float]) -> None:
    """Readings take at most 1 % of the time; one that takes long by chance does not count, nor does the beginning."""
    waited: list[float] = []
    run: Any = types.SimpleNamespace(write=lambda *_: None)
    with pytest.raises(EndedError):
        follow(Source(*took_s), run, waited.append)  # type: ignore[arg-type] # no property is written

    assert waited == pytest.approx(waits_s)


def test_what_is_written() -> None:
    """Values that did not change are written again only when the next reading is due later, or after a while."""
    written: list[object] = []
    run: Any = types.SimpleNamespace(write=lambda _, value: written.append((value["values"], value["next_s"])))
    with pytest.raises(EndedError):
        follow(Source(0.001, 0.1, 0.1, 0.1), run, lambda _: None)  # type: ignore[arg-type] # no property is written
    follow(Source(), types.SimpleNamespace())  # type: ignore[arg-type] # nothing to read: it ends at once

    assert written == [({HELD: 5}, 0.5), ({HELD: 5}, pytest.approx(10))]


def profiled(nncf_tools: Run, *steps: str) -> Session:
    """Return the session of the burner, which takes these steps."""
    command = [sys.executable, str(BURNERS / "device.py"), *steps]
    nncf_tools("profile --no-stacks --no-plot -o run.json --force", *command)
    return Session.load("run.json")


@pytest.fixture
def stand_in(script: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Return the script of the stand-in, which commands find, too."""
    script.write_text(STAND_IN)
    monkeypatch.chdir(tmp_path)
    return script


def test_run(stand_in: pathlib.Path, nncf_tools: Run) -> None:
    """A run's memory on a device is in its samples, in operations and in the report; exact where torch keeps a mark."""
    stand_in.write_text(f"{STAND_IN}print {{\n")  # text of the driver costs no reading
    session = profiled(nncf_tools, "Load:0.1:0", "Quantize:1.2:12:30", "Short:0.01:14:40")
    report = nncf_tools("report run.json").stdout
    quantize, short = (operation for operation in session.operations if operation.name != "Load")

    assert session.samples.figures("device_used@nvidia0").highest == (session.peaks[HELD].low or 0) + 3 * GIB
    assert quantize.of(HELD).peak_low == 30 * GIB + GIB // 2
    assert (short.of(HELD).peak_low or 0) >= 40 * GIB
    assert [(of.start, of.end, of.peak_low) for of in (short.of("device_allocated@nvidia0"),)] == [
        (12 * GIB, 14 * GIB, 40 * GIB)
    ]
    assert (session.warnings, [of.model for of in session.devices]) == ([], ["Stand-In 80GB"])
    assert "Device memory nvidia0" in report
    assert "nvidia0 (Stand-In 80GB, 80.0 GiB): peak of the run " in report


@pytest.mark.parametrize(
    "lines, warnings",
    [
        (f"{STAND_IN}exit\n", ["memory of devices is unknown"]),
        pytest.param(f"init 0 5000\n{STAND_IN}", [], marks=pytest.mark.long),
    ],
    ids=["crashes", "takes 5 s to begin"],
)
def test_bad_driver(lines: str, warnings: list[str], stand_in: pathlib.Path, nncf_tools: Run) -> None:
    """A driver delays neither the command nor the end of its recording, and takes only its own process along."""
    stand_in.write_text(lines)
    nncf_tools("monitor --no-plot -o run.json", sys.executable, "-S", "-c", "import time; time.sleep(0.4)")
    session = Session.load("run.json")

    assert session.finished
    assert session.duration_s < 5
    assert [text.partition(" from ")[0] for text in session.warnings] == warnings


FAILS = "int nvmlInit_v2(void) { return 9; }"
"""A library without the function that explains the status: reading it is an error of Python."""


@pytest.mark.long
def test_source_that_fails(
    stand_in: pathlib.Path, tmp_path: pathlib.Path, nncf_tools: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that cannot go on is one warning, with the error."""
    library = stand_in.with_name("fails.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, "-xc", "-"], input=FAILS.encode(), check=True)
    monkeypatch.setenv(FOR_TESTS, str(library))
    nncf_tools("monitor --no-plot -o run.json", sys.executable, "-S", "-c", "import time; time.sleep(0.8)")
    (warning,) = Session.load(tmp_path / "run.json").warnings

    assert warning.startswith("memory of NVIDIA's GPUs is unknown from ")
    assert warning.endswith("undefined symbol: nvmlErrorString")


RECORDS_ITSELF = """
import os, pathlib, time
from nncftools.api.recorder import Recorder
script = pathlib.Path(os.environ["NVML_SCRIPT"])
recorder = Recorder(["rss"], 0.05)
recorder.start()
children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text()
answers = script.with_name("answers")
answers.write_text(script.read_text() + f"process 0 C {os.getpid()} 7000\\n")
answers.rename(script)
until_s = time.monotonic() + 60
low = None
while low != 7000 and time.monotonic() < until_s:
    time.sleep(0.1)
    peak = recorder.session.peaks.get("device_memory@nvidia0")
    low = peak and peak.low
recorder.stop()
session = recorder.session
print([children, len(session.processes), session.peaks["device_memory@nvidia0"].low])
"""


def helpers() -> list[int]:
    """Return the PIDs of helpers of this test, and of what they have forked."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue
        if b"helper_process.py\0devices" in words and os.fsencode(os.environ["NVML_SCRIPT"]) in environment:
            found.append(int(folder.name))
    return found


OTHER_ENDS = [(STAND_IN, True), (f"{STAND_IN}exit\n", False), ("", False), ("", True)]
"""What the driver has, and whether the command line is killed."""
WAITS = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)"


@pytest.mark.process
@pytest.mark.parametrize(
    "devices, is_killed",
    [(STAND_IN, False), *(pytest.param(*case, marks=pytest.mark.long) for case in OTHER_ENDS)],
)
def test_driver_that_forks(stand_in: pathlib.Path, tmp_path: pathlib.Path, devices: str, *, is_killed: bool) -> None:
    """A child that a driver forks ends with the recording, also where the helper crashes or has nothing to read."""
    stand_in.write_text(f"fork\n{devices}")
    words = command_line("monitor -q --no-plot -o run.json", sys.executable, "-S", "-c", WAITS)
    with subprocess.Popen(words) as process:
        until(lambda: helpers() if devices == STAND_IN else process.poll() is None, "the helper")
        time.sleep(0.5)
        if is_killed:
            process.kill()
        (tmp_path / "go").touch()

    until(lambda: not helpers(), "the helper and its child to end")


@pytest.mark.long
@pytest.mark.process
def test_program_that_records_itself(stand_in: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The helper of a program that records itself is no child of it, and ends with what a driver forks."""
    stand_in.write_text(f"fork\n{STAND_IN}")
    path = tmp_path / "program.py"
    path.write_text(RECORDS_ITSELF)
    result = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)

    assert result.stdout == "['', 1, 7000]\n"
    until(lambda: not helpers(), "the helper and its child to end")
