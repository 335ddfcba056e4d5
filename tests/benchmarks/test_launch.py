"""What a measured command costs, and which processes it sees: real commands under the launcher."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest

from benchmarks import launch, launcher
from benchmarks.__main__ import surroundings
from benchmarks.tools import HungError, ToolError

pytestmark = pytest.mark.process

BOUND_S = 30
BURNT_S = 0.5
_BURNER = f"import time\nwhile time.process_time() < {BURNT_S}: pass"
_BURN = (sys.executable, "-S", "-E", "-c", _BURNER)
_BURN_BESIDE = (sys.executable, "-S", "-E", "-c", f"print('ready', flush=True)\n{_BURNER}")


@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.long)], ids=["isolated", "not isolated"])
def _isolated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands in a process list of their own, then in the machine's."""
    if request.param and not launch.isolates():
        pytest.skip("no PID namespaces here")
    monkeypatch.setattr(launch, "isolates", lambda: bool(request.param))


def _listed(folder: Path) -> list[str]:
    """Return the PIDs that a command sees."""
    launch.run(["sh", "-c", "echo /proc/[0-9]* > listed"], folder, BOUND_S)
    return (folder / "listed").read_text(encoding="ascii").split()


def test_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user's commands share the machine's process list, and the table says how many are in it."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    launch.isolates.cache_clear()

    assert not launch.isolates()
    launch.isolates.cache_clear()
    assert " other processes; " in surroundings(isolated=False)
    assert "of its own" in surroundings(isolated=True)


def test_processes_seen(tmp_path: Path) -> None:
    """A command in a process list of its own sees the launcher and itself, and the machine's /proc stays as it is."""
    if not launch.isolates():
        pytest.skip("no PID namespaces here")

    assert _listed(tmp_path) == ["/proc/1", "/proc/2"]
    assert Path(f"/proc/{os.getpid()}").exists()


@pytest.mark.long
@pytest.mark.usefixtures("_isolated")
def test_cpu_is_the_commands(tmp_path: Path) -> None:
    """CPU time is that of the command and its children; what it is attached to, and what runs beside, costs nothing."""
    alone = launch.run(_BURN, tmp_path, BOUND_S)
    idle = launch.run_job(launch.Job(["sleep", "1.5"], watched=_BURN, beside=_BURN_BESIDE), tmp_path, BOUND_S)
    child = launch.run(["sh", "-c", '"$@"; exit $?', "sh", *_BURN], tmp_path, BOUND_S)

    assert alone.cpu_s == pytest.approx(BURNT_S, rel=0.1)
    assert child.cpu_s == pytest.approx(BURNT_S, rel=0.1)
    assert idle.cpu_s < BURNT_S / 10


@pytest.mark.usefixtures("_isolated")
def test_attaching(tmp_path: Path) -> None:
    """A command that attaches is given the PID of the program, sees it begin and end, and is not ended with it."""
    wait = (
        f"until grep -q burnt /proc/{launcher.PID}/cmdline; do :; done; while [ -e /proc/{launcher.PID} ]; do :; done"
    )
    watched = ("sh", "-c", "sleep 0.3; : burnt; exit 3")

    cost = launch.run_job(launch.Job(["sh", "-c", wait], watched=watched), tmp_path, BOUND_S)

    assert cost.wall_s < BOUND_S


@pytest.mark.usefixtures("_isolated")
def test_nothing_is_left(tmp_path: Path) -> None:
    """Programs beside a command end with it; a command that hangs is killed with its orphans."""
    seconds = f"{BOUND_S}.{os.getpid()}"
    lasting = ("sh", "-c", f"echo ready; sleep {seconds}; true")

    launch.run_job(launch.Job(["true"], watched=lasting, beside=lasting), tmp_path, BOUND_S)
    assert not _running(seconds)
    with pytest.raises(HungError):
        launch.run(["sh", "-c", f"(sleep {seconds} &) ; sleep {seconds}; true"], tmp_path, 1)
    assert not _running(seconds)


@pytest.mark.usefixtures("_isolated")
def test_a_failure(tmp_path: Path) -> None:
    """A command that fails is named by its exit status and its last line."""
    with pytest.raises(ToolError, match="exit status 7: broken"):
        launch.run(["sh", "-c", "echo broken >&2; exit 7"], tmp_path, BOUND_S)


def _running(word: str) -> list[bytes]:
    """Return the command lines that contain a word."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(file.read_bytes())
    return [line for line in lines if word.encode() in line]
