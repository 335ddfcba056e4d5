"""Defaults of options, and functions to mark, in the pyproject.toml of a project."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from nncftools.cli.parameters import find_project
from tests.conftest import Run, command_line
from tests.made_up import mib, rows, session
from tests.trust.another_user import OTHER, THIRD, as_another, become
from tests.trust.recorder import result_of

HEAD = "[tool.nncf-tools]\n"
PEAK = "Peak memory {}, 0.5 s after the start"
MIB = PEAK.format("300 MiB")
GIB = PEAK.format("0.29 GiB")


def written(folder: Path, text: str) -> Path:
    """Write a pyproject.toml into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pyproject.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def project(tmp_path: Path, in_process: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder of a project, two levels below its top, with a session."""
    assert in_process
    folder = tmp_path / "src" / "deep"
    folder.mkdir(parents=True)
    session({"rss": mib(100, 300, 200)}, name="").save(folder / "run.json")
    monkeypatch.chdir(folder)
    return tmp_path


FILES = r"""
 |  | 300 MiB
. |  | 300 MiB
. [tool.ruff]\n[project]\ndependencies = ['nncf-tools'] |  | 300 MiB
. {head} |  | 300 MiB
. {head}unit = 'GiB' |  | 0.29 GiB
. {head}unit = 'GiB' | -u KiB | 307,200 KiB
. {head}unit = 'GiB' | -u MiB | 300 MiB
. {head}unit = ['gib'] |  | 0.29 GiB
. tool.nncf-tools.unit = 'GiB' |  | 0.29 GiB
. \ufeff{head}unit = 'GiB'\r\n |  | 0.29 GiB
. {head}unit = 'GiB' + src {head}depth = 2 |  | 300 MiB
. {head}unit = 'GiB' + src [tool.ruff] |  | 0.29 GiB
. {head}unit = 'GiB' + src/deep {head}unit = 'MiB' |  | 300 MiB
. {head}interval = 'x'\nmetrics = 'pss' |  | 300 MiB
""".replace("{head}", r"[tool.nncf-tools]\n")
"""Folders with their files, options, and the peak in a report."""


@pytest.mark.parametrize("files, words, expected", rows(FILES))
def test_file(in_process: Run, project: Path, files: str, words: str, expected: str) -> None:
    """The nearest file with the table sets the defaults; an option wins; a report shows whatever was recorded."""
    for file in filter(None, files.split(" + ")):
        folder, _, text = file.partition(" ")
        written(project / folder, text.encode().decode("unicode_escape"))
    done = in_process(f"report run.json {words}")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(PEAK.format(expected))


@pytest.mark.parametrize("words, named", [("", ""), ("--details", "depth, unit"), ("--details -u B", "depth")])
def test_details(in_process: Run, project: Path, words: str, named: str) -> None:
    """With --details, a line names the file and the defaults in use."""
    path = written(project, f"{HEAD}unit = 'GiB'\ndepth = 2\ninterval = 1")
    done = in_process(f"report run.json {words}")

    assert done.stderr == (f"nncf-tools: defaults from {path}: {named}\n" if named else "")


MISTAKES = """
type = 'rss' | [tool.nncf-tools]: 'type' is not one of interval, metrics, unit, depth, mark-calls
intervall = 1 | [tool.nncf-tools]: 'intervall' is not one of interval, metrics, unit, depth, mark-calls; did you mean
output = 'x.json' | [tool.nncf-tools]: 'output' is not one of interval, metrics, unit, depth, mark-calls
interval = 'fast' | interval: a time expected, such as 0.5 (seconds), 100ms or 2min, found 'fast'
interval = true | interval: a time expected, such as 0.5 (seconds), 100ms or 2min, found 'True'
interval = 0 | interval: a number of seconds from 0.001 to a year expected, found 0
unit = 'tea' | unit: 'tea' is not one of B, KiB, MiB, GiB, KB, MB, GB
depth = 0 | depth: at least 1 expected, found 0
depth = 1.5 | depth: a whole number expected, found '1.5'
depth = 2024-01-01 | depth: a whole number expected, found '2024-01-01'
metrics = 'rsss' | metrics: 'rsss' is not one of rss,
metrics = [1] | metrics: '1' is not one of rss,
mark-calls = 'f' | mark-calls: package.module:function=Name or
mark-calls = 3 | mark-calls: package.module:function=Name or
[tool | Expected
"""


@pytest.mark.parametrize(
    "text, problem", [*rows(MISTAKES), pytest.param("x = " + "[" * 10_000, "", id="deep"), ("\udcff", "")]
)
def test_mistakes(in_process: Run, project: Path, text: str, problem: str) -> None:
    """One line names the file, the key and what is allowed; nothing starts."""
    path = project / "pyproject.toml"
    path.write_bytes(f"{HEAD}{text}".encode(errors="surrogateescape"))
    done = in_process("profile -o new.json touch ran")

    assert done.returncode == 2
    assert done.stderr.startswith(f"nncf-tools: error: {path}: {problem}")
    assert done.stderr.count("\n") == 1
    assert not Path("ran").exists()


def test_no_table(in_process: Run, project: Path) -> None:
    """A value in the place of the table is named."""
    path = written(project, "[tool]\nnncf-tools = 3")

    assert in_process("report run.json").stderr == f"nncf-tools: error: {path}: a table [tool.nncf-tools] expected\n"


@pytest.mark.parametrize("line", ["report --help", "list", "metrics"])
def test_commands_that_need_none(in_process: Run, project: Path, line: str) -> None:
    """Help, and commands without these options, work beside a file with mistakes."""
    written(project, f"{HEAD}metrics = 1")
    done = in_process(line)

    assert done.returncode == 0
    assert "pyproject.toml" not in done.stderr


def test_toml_is_not_loaded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the name of the table in the file, TOML is not parsed."""
    monkeypatch.setitem(sys.modules, "tomllib", None)
    monkeypatch.setitem(sys.modules, "tomli", None)
    written(project, "[tool.ruff]\nnot TOML")

    assert find_project().texts == {}


def make_large(path: Path) -> None:
    """Make a file larger than any that is read."""
    with path.open("a", encoding="utf-8") as file:
        file.truncate(10_000_001)


@pytest.mark.parametrize(
    "mode, change, why",
    [
        (0o644, None, ""),
        (0o664, None, ""),
        (0o600, None, ""),
        (0o646, None, " may be changed by every user"),
        (0o666, None, " may be changed by every user"),
        (0o644, make_large, ": larger than 10,000,000 bytes, the largest file that is read"),
        pytest.param(0o644, lambda path: os.chown(path, OTHER, OTHER), " belongs to another user (", marks=as_another),
    ],
)
def test_ignored_file(in_process: Run, project: Path, mode: int, change: object, why: str) -> None:
    """A file that another user may change, or that is too large, is ignored; one line says why."""
    written(project, f"{HEAD}unit = 'GiB'")
    path = written(project / "src", f"{HEAD}unit = 'KiB'\nunknown = 1" if why else f"{HEAD}unit = 'KiB'")
    path.chmod(mode)
    if callable(change):
        change(path)
    done = in_process("report run.json --depth 1")

    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == (GIB if why else "Peak memory 307,200 KiB, 0.5 s after the start")
    assert done.stderr.startswith(f"nncf-tools: note: ignored: {path}{why}" if why else "")
    assert done.stderr.count("\n") == bool(why)


@as_another
def test_foreign_file_without_the_table(in_process: Run, project: Path) -> None:
    """A file of another user that has no table is nobody's business."""
    path = written(project, "[project]\ndependencies = ['nncf-tools']")
    os.chown(path, OTHER, OTHER)

    assert in_process("report run.json").stderr == ""


@pytest.mark.parametrize("kind", ["FIFO", "folder", "broken link"])
def test_no_file(in_process: Run, project: Path, kind: str) -> None:
    """Nothing waits for a FIFO; what is not a file does not count."""
    path = project / "pyproject.toml"
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    done = in_process("report run.json")

    assert (done.returncode, done.stderr) == (0, "")


@as_another
@pytest.mark.process
@pytest.mark.parametrize(
    "owner, user, is_used",
    [(OTHER, OTHER, True), (0, OTHER, True), (THIRD, OTHER, False), (OTHER, 0, False)],
    ids=["own", "of root", "of another", "read by root"],
)
def test_users(project: Path, owner: int, user: int, *, is_used: bool) -> None:
    """A file of this user or of root is used; a file of another user is not, not even by root."""
    path = written(project, f"{HEAD}unit = 'GiB'")
    os.chown(path, owner, owner)
    line = [*become(user), *command_line("report run.json")]
    done = result_of(line, Path())

    assert done.stdout.splitlines()[0] == (GIB if is_used else MIB)
    assert (f"ignored: {path} belongs to another user (" in done.stderr) is not is_used


def test_recording(nncf_tools: Run, tmp_path: Path) -> None:
    """A recording has the interval and the metrics of the project; an error in a later check names the file."""
    path = written(tmp_path, f"{HEAD}interval = '20ms'\nmetrics = ['anon', 'rss']\nunit = 'B'")
    done = nncf_tools("monitor --details -o run.json sleep 0.1")
    report = json.loads((tmp_path / "run.json").read_text())

    assert done.returncode == 0
    assert done.stderr.splitlines()[0] == f"nncf-tools: defaults from {path}: metrics, interval, unit"
    assert "Memory, B" in done.stderr
    assert report["sampler"]["interval_s"] == 0.02
    assert "anon" in report["samples"]


@pytest.mark.process
def test_completion(project: Path) -> None:
    """Completion in a shell says nothing about a file with mistakes."""
    written(project, f"{HEAD}metrics = 1")
    environment = {**os.environ, "_NNCF_TOOLS_COMPLETE": "complete_bash", "COMP_WORDS": "nncf-tools report --uni"}
    done = result_of(command_line(), project, env={**environment, "COMP_CWORD": "2"})

    assert (done.stdout.strip(), done.stderr) == ("--unit", "")


def test_gone_folder(in_process: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a working folder there are no defaults."""
    path = tmp_path / "run.json"
    session({"rss": mib(100, 300, 200)}, name="").save(path)
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    assert in_process("report", path, "-o", tmp_path / "out.txt").returncode == 0
