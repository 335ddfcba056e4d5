"""Tests of the file names of a recording."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nncftools.analysis.session import Session
from nncftools.cli import closing, destination
from nncftools.cli.closing import is_worth_a_page
from nncftools.errors import NncfToolsError
from nncftools.files import Folder
from nncftools.render.view import View
from nncftools.session.model import Mark, Snapshots, Start
from tests.cli.sweep.inputs import write_inputs
from tests.conftest import Run
from tests.made_up import full_disk, mib, rows, session
from tests.trust.another_user import OTHER, as_another

NAMES = ("oldest", "middle", "newest")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Return a log folder with three recordings, and the link to the newest."""
    folder = tmp_path / "memory_logs"
    for number, name in enumerate(NAMES):
        (folder / name).mkdir(parents=True)
        file = folder / name / "session.json"
        session({"rss": mib(10, 50 + 10 * number)}, duration_s=number).save(file)
        os.utime(file, (number, number))
    (folder / "latest").symlink_to(NAMES[-1])
    return folder


@pytest.mark.parametrize(
    "typed, meant",
    rows("""
latest | newest
last | newest
latest~1 | middle
last~2 | oldest
memory_logs/latest | newest
memory_logs/latest~1 | middle
memory_logs/oldest | oldest
memory_logs | newest
"""),
)
def test_words(logs: Path, monkeypatch: pytest.MonkeyPatch, typed: str, meant: str) -> None:
    """``latest``, ``latest~1`` and folders mean recordings, counted from the newest."""
    monkeypatch.chdir(logs.parent)
    found = destination.find_recording(Path(typed), destination.DEFAULT_LOG_DIR)

    assert found.resolve() == logs / meant / "session.json"


@pytest.mark.parametrize(
    "name, make",
    [
        ("latest", shutil.copytree),
        ("latest", os.symlink),
        ("latest", shutil.move),
        (".4711.latest", shutil.copytree),
        (".4711.latest", os.symlink),
        ("best", os.symlink),
    ],
)
def test_each_recording_counts_once(logs: Path, name: str, make: Callable[..., object]) -> None:
    """Neither links, nor hidden copies, nor a copy named ``latest`` count, but a folder ``latest`` alone does."""
    (logs / "latest").unlink()
    make(logs / "newest", logs / name)

    newest = "latest" if make is shutil.move else "newest"
    assert [path.parent.name for path in destination.list_recordings(logs)] == [newest, "middle", "oldest"]


@pytest.mark.parametrize("kind", ["link", "file", "folder"])
def test_point_latest(logs: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """A link is replaced by the link to this run, a file or folder of the user stays; nothing is left beside it."""
    if kind != "link":
        (logs / "latest").unlink()
    if kind == "file":
        (logs / "latest").touch()
    if kind == "folder":
        (logs / "latest").mkdir()
    folder = logs / "middle"
    destination.Destination(Folder(folder), folder / "session.json", str(folder), folder).point_latest()

    assert ("is not a link" in capsys.readouterr().err) is (kind != "link")
    assert (logs / "latest").resolve().name == ("middle" if kind == "link" else "latest")
    assert {path.name for path in logs.iterdir()} == {*NAMES, "latest"}


def last_line(logs: Path, name: str = "newest", *, profiled: bool = False) -> str:
    """Return the last line of a recording that wrote to a folder of ``logs``."""
    folder = logs / name
    place = destination.Destination(Folder(folder), folder / "session.json", f"memory_logs/{name}", folder)
    place = destination.add_views(place, plot=None, opens=False)
    return closing.last_lines(Session.load(place.session), place, View(["rss"]), profiled=profiled)


@pytest.mark.parametrize(
    "run, profiled, expected",
    [
        ((70, "work"), False, "peak +17 % against the last run: nncf-tools compare latest~1 latest"),
        ((45, "work"), False, "peak -25 % against the last run: nncf-tools compare latest~1 latest"),
        ((60, "work"), False, "which line held it: nncf-tools profile work"),
        ((60, "work"), True, "more: nncf-tools report --details"),
        ((70, "another"), False, "which line held it: nncf-tools profile another"),
        ((70, "a_long_" * 5), False, "which line held it: nncf-tools profile COMMAND"),
    ],
)
def test_last_line(
    logs: Path, monkeypatch: pytest.MonkeyPatch, run: tuple[int, str], expected: str, *, profiled: bool
) -> None:
    """After a recording, one line has the page, and one next command: a comparison only of another peak."""
    monkeypatch.chdir(logs.parent)
    (logs / "newest/session.html").touch()
    runs = {"middle": (60, "work"), "newest": run}
    for place, (name, (peak, command)) in enumerate(runs.items()):
        session({"rss": mib(10, peak)}, command=[command]).save(logs / name / "session.json")
        os.utime(logs / name / "session.json", (5 + place, 5 + place))

    assert last_line(logs, profiled=profiled) == f"memory_logs/latest/session.html · {expected}\n"


@pytest.mark.parametrize(
    "of, is_worth",
    [
        ({"marks": [Mark(name="Export", start_s=0)], "duration_s": 1.5}, True),
        ({"snapshots": Snapshots(stacks=[[0]]), "duration_s": 1.5}, True),
        ({"snapshots": Snapshots(), "duration_s": 1.5}, False),
        ({"marks": [Mark(name="Export", start_s=0)], "duration_s": 0.9}, False),
        ({"snapshots": Snapshots(stacks=[[0]] * 501), "duration_s": 1.5}, False),
    ],
    ids=["operations", "stacks", "nothing", "short", "very many stacks"],
)
def test_pages_that_are_worth_it(of: dict[str, Any], *, is_worth: bool) -> None:
    """A page is written unasked for a run of a second with operations or stacks, if that takes less than a second."""
    assert is_worth_a_page(session({"rss": mib(100)}, **of)) is is_worth


def test_a_copy_keeps_its_order(tmp_path: Path) -> None:
    """Recordings are ordered by their ends, not by when their files were copied."""
    for number, (name, second, duration_s) in enumerate([("b", 5, 1.0), ("a", 0, 20.0), ("c", 3, 2.0)]):
        (tmp_path / name).mkdir()
        start = Start(utc=f"2026-11-27T10:00:{second:02}.5Z")
        session({"rss": mib(10, 50)}, start=start, duration_s=duration_s).save(tmp_path / name / "session.json")
        os.utime(tmp_path / name / "session.json", (2e9 + number, 2e9 + number))

    assert [path.parent.name for path in destination.list_recordings(tmp_path)] == ["a", "b", "c"]


def test_full_disk_at_the_start(tmp_path: Path) -> None:
    """A start that a full disk refuses leaves no folder and no file."""
    target = destination.new_folder(tmp_path / "logs", "run")
    with full_disk(0), pytest.raises(NncfToolsError, match="File too large"):
        destination.claim_files(target, snapshots=True)
    target.place.close()

    assert list(tmp_path.iterdir()) == []


INPUTS = "--model inputs/model --text inputs/text.txt --calibration inputs/calibration.txt --python inputs/python"


@as_another
@pytest.mark.process
@pytest.mark.parametrize(
    "line",
    ["monitor -o theirs/run.json -- true", "prune theirs --keep 0 --yes", f"sweep {INPUTS} -o theirs/results.csv"],
    ids=["recording", "prune", "sweep"],
)
def test_folder_of_another_user(nncf_tools: Run, tmp_path: Path, line: str) -> None:
    """No command writes to a folder, or removes from it, whose owner may exchange it."""
    write_inputs(tmp_path / "inputs", is_exported=True)
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", OTHER, OTHER)
    done = nncf_tools(line)

    assert (done.returncode > 0, list((tmp_path / "theirs").iterdir())) == (True, [])
    assert "the folder 'theirs' belongs to another user" in done.stderr
