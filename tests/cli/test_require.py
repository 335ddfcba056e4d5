from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys

import pytest

from nncftools.cli import planning
from nncftools.errors import SessionFileError, UsageError
from nncftools.limits import needs
from nncftools.limits.needs import Available
from nncftools.session.model import Exit, FileSystem, Floor
from tests.conftest import Run, command_line
from tests.made_up import MIB, session
from tests.memory_group import IS_POSSIBLE, MemoryGroup

GIB = 2**30
HERE = Available(8 * GIB, 16 * GIB, 2 * GIB, 4 * GIB)
WORDS = ["work", "--fast"]
"""The command of the sessions."""


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Make 2 GiB available, and work in an empty folder."""
    monkeypatch.setattr(needs, "available", lambda *_: HERE)
    monkeypatch.chdir(tmp_path)


def earlier(size: int = GIB, **fields: object) -> None:
    """Write a session whose command needed so much."""
    session(**{"floor": Floor(size=size, at_s=0.5), **fields}).save("earlier.json")


def refused(text: str, words: list[str] = WORDS) -> str:
    """Return why a command is not started."""
    with pytest.raises(UsageError) as error:
        planning.check_required(text, words, pathlib.Path())
    return str(error.value)


def test_nothing_required() -> None:
    """Without the option nothing is asked."""
    planning.check_required(None, [], pathlib.Path())


def test_size() -> None:
    """What fits is started; what does not is refused with the figures."""
    planning.check_required("2GiB", WORDS, pathlib.Path())

    assert refused("3GiB") == (
        "option --require: 3 GiB of memory is needed, 2 GiB is available "
        "(machine: 8 of 16 GiB, control group: 2 of 4 GiB)"
    )


@pytest.mark.parametrize("text", ["12", "earlier.jsn", "0GiB", "", "x" * 5000])
def test_neither_size_nor_file(text: str) -> None:
    """Anything but a size or a file is refused."""
    expected = "option --require: a size such as 12GiB, or the file of a session, expected, found "

    assert refused(text) == f"{expected}{text!r}"


def test_running_process() -> None:
    """A process that runs already needs no leave."""
    assert refused("1GiB", []) == "option --require: not with --pid"


def test_earlier_session(capsys: pytest.CaptureFixture[str]) -> None:
    """A session of the same command says what is needed."""
    earlier()
    planning.check_required("earlier.json", WORDS, pathlib.Path())
    fits = capsys.readouterr()
    earlier(3 * GIB)

    assert (fits.out, fits.err) == ("", "")
    assert "3 GiB of memory is needed, 2 GiB is available" in refused("earlier.json")


def test_disk() -> None:
    """The disk that the earlier run used must be free, too."""
    room = FileSystem(role="cwd", size=2**60, first=2**60, lowest=2**59, last=2**59)
    earlier(file_systems=[room])

    assert " of disk at " in refused("earlier.json")


def test_session_without_floor() -> None:
    """A session that does not say what is needed is refused."""
    session().save("earlier.json")

    assert refused("earlier.json") == (
        "option --require: 'earlier.json' does not hold what its command needed; record it again"
    )


def test_no_session() -> None:
    """A file that is no session is named."""
    pathlib.Path("earlier.json").write_text("{}")

    with pytest.raises(SessionFileError, match=r"^earlier\.json: "):
        planning.check_required("earlier.json", WORDS, pathlib.Path())


def test_another_command(capsys: pytest.CaptureFixture[str]) -> None:
    """If the session is of another command, a line says so, and the figures count."""
    earlier()
    planning.check_required("earlier.json", ["rest"], pathlib.Path())

    assert capsys.readouterr().err == "nncf-tools: option --require: 'earlier.json' is of another command\n"


def test_hidden_words(capsys: pytest.CaptureFixture[str]) -> None:
    """A secret that the session hides makes no other command."""
    earlier(command=["work", "--password=***"])
    planning.check_required("earlier.json", ["work", "--password=hush"], pathlib.Path())

    assert capsys.readouterr().err == ""


def test_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    """If the earlier run was killed, a line says that the command needs more than that run had."""
    earlier(exit=Exit(signal=9))
    planning.check_required("earlier.json", WORDS, pathlib.Path())

    assert capsys.readouterr().err == (
        "nncf-tools: option --require: the run in 'earlier.json' was cut short: it needs more than 1 GiB\n"
    )


@pytest.mark.parametrize("subcommand", ["monitor", "profile"])
def test_refuses_to_start(nncf_tools: Run, tmp_path: pathlib.Path, subcommand: str) -> None:
    """What cannot fit is not started: one line, exit status 2, and no file."""
    touch = (sys.executable, "-c", "open('started', 'w')")
    result = nncf_tools(subcommand, "--require", "1000000GiB", *touch)

    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "option --require: 1,000,000 GiB of memory is needed" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_starts(nncf_tools: Run) -> None:
    """What fits is recorded as without the option."""
    result = nncf_tools("monitor", "-q", "-o", "run.json", "--require", "1MiB", sys.executable, "-c", "exit(3)")

    assert (result.returncode, result.stderr) == (3, "")


@pytest.mark.process
@pytest.mark.parametrize("in_group", [True, False] if IS_POSSIBLE else [False])
def test_real_group(tmp_path: pathlib.Path, *, in_group: bool) -> None:
    """In a real control group, its limit is what counts, though the machine has more."""
    words = command_line("monitor", "-q", "--require", "300MiB", "true")
    with MemoryGroup("require", 200 * MIB) if in_group else contextlib.nullcontext() as group:
        enter = [] if group is None else ["sh", "-c", f'{group.enter} && exec "$@"', "sh"]
        result = subprocess.run([*enter, *words], check=False, cwd=tmp_path, capture_output=True, text=True)

    assert result.returncode == (2 if in_group else 0)
    assert ("300 MiB of memory is needed, " in result.stderr) == in_group
    assert (" of 200 MiB)" in result.stderr) == in_group
