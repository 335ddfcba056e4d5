from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from nncftools.analysis.session import Session
from nncftools.cli import options, planning
from nncftools.cli.planning import arguments, find_special
from nncftools.errors import UsageError
from nncftools.limits import needs
from nncftools.limits.needs import Available
from nncftools.metrics import memory_of
from nncftools.session.model import Exit, FileSystem, Floor
from tests import waiting
from tests.conftest import HANGING_S, Run, burner, command_line
from tests.made_up import session


@pytest.mark.parametrize(
    "line, special",
    [
        ("python a.py > out.txt", ">"),
        ("python a.py >> out.txt", ">>"),
        ("cat < in.txt", "<"),
        ("a | b", "|"),
        ("a&&b", "&&"),
        ("a || b", "||"),
        ("a; b", ";"),
        ("a &", "&"),
        ("(a b)", "("),
        ("a $X", "$"),
        ('a "$X"', "$"),
        ("a `b`", "`"),
        ('a "x `b`"', "`"),
        ("ls *.py", "*"),
        ("ls a?.py", "?"),
        ("ls [ab].py", "["),
        ("ls ~/x", "~"),
        ("a # comment", "#"),
        ("a\nb", "\n"),
        ("a \\\n b", "\\\n"),
        ('a "\\$x"', "\\$"),
        ("X=1 a", "X="),
        ("a 'x > $y'", ""),
        ('a "x > y; *"', ""),
        (r"a \| b", ""),
        ("a b=c\n", ""),
        ("a b~c", ""),
        ("a b#c", ""),
        ("python -c 'print(1); print(2)'", ""),
    ],
)
def test_find_special(line: str, special: str) -> None:
    """The first characters that a shell would act on are found; what is quoted or inside a word is literal."""
    assert find_special(line) == special


@pytest.mark.parametrize("words", [["echo", "a > b", "$X"], ["a > b"], ["["]], ids=["words", "file", "on PATH"])
def test_words_are_never_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """Several words, the name of a file, and a program on PATH are passed on unchanged, whatever they hold."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a > b").touch()

    assert arguments(words, shell=False) == words


KILL = ("--max-memory", "50MiB", "--on-limit", "kill")
ENDED = "is above --max-memory 50.0 MiB: ending the command"


HOLD = " ".join(burner("touch", 100, 2 * HANGING_S))
CHILD = f"until [ -s child ]; do sleep 0.01; done; exec {HOLD}"
"""Holds too much as soon as its PID is known."""


def runs(file: Path) -> bool:
    """Return whether the process with the PID in a file is running; a zombie is not."""
    try:
        return psutil.Process(int(file.read_text())).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until_ended(file: Path) -> None:
    """Wait for the end of the process with the PID in a file; it would run twice as long as this waits."""
    waiting.until(lambda: not runs(file), "the end of the child")


@pytest.mark.process
def test_warn(tmp_path: Path) -> None:
    """A command above its limit continues; the warning is on standard error and in the session."""
    words = command_line("monitor -q -o run.json --max-memory 50MiB", *burner("touch", 100, "go", 3))
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        (tmp_path / "go").touch()
        _, rest = process.communicate(timeout=HANGING_S)
    (warning,) = Session.load(tmp_path / "run.json").warnings[:1]

    assert process.returncode == 3
    assert (said, rest) == (f"nncf-tools: {warning}\n", "")
    assert "is above --max-memory 50.0 MiB" in warning


def test_kill(nncf_tools: Run, tmp_path: Path) -> None:
    """Command and descendants are ended, with the status of SIGTERM; RSS is recorded, and the session says why."""
    script = f"({CHILD}) & echo $! > child; wait"
    words = ("-i", "0.05", "-t", "pss", *KILL, "sh", "-c", script)
    result = nncf_tools("monitor -q -o run.json", *words)
    session = Session.load(tmp_path / "run.json")

    assert result.returncode == 143
    assert session.exit is not None
    assert session.exit.signal == signal.SIGTERM
    assert ENDED in session.warnings[0]
    until_ended(tmp_path / "child")


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the sampler ends with the command line")
def test_outlives_the_command_line(tmp_path: Path) -> None:
    """The limit holds after the command line is killed: the sampler enforces it."""
    gate = f"echo $$ > child; until [ -e go ]; do sleep 0.01; done; exec {HOLD}"
    child, journal = tmp_path / "child", tmp_path / "run.journal.jsonl"
    words = command_line("monitor -q -i 0.05 -o run.json", *KILL, "sh", "-c", gate)
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        waiting.until(lambda: child.exists() and child.read_text(), "the start of the command")
        process.kill()
        process.wait(HANGING_S)
        (tmp_path / "go").touch()
        until_ended(child)
        waiting.until(lambda: '\n{"end":' in journal.read_text(), "the end of the recording")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]

    assert any(isinstance(line, dict) and ENDED in str(line.get("warning")) for line in lines)


GIB = 2**30
HERE = Available(8 * GIB, 16 * GIB, 2 * GIB, 4 * GIB)
WORDS = ["work", "--fast"]
"""The command of the sessions."""


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make 2 GiB available, and work in an empty folder."""
    monkeypatch.setattr(needs, "available", lambda *_: HERE)
    monkeypatch.chdir(tmp_path)


def earlier(size: int = GIB, **fields: object) -> None:
    """Write a session whose command needed so much."""
    session(**{"floor": Floor(size=size, at_s=0.5), **fields}).save("earlier.json")


def refused(text: str, words: list[str] = WORDS) -> str:
    """Return why a command is not started."""
    with pytest.raises(UsageError) as error:
        planning.check_required(text, words, Path())
    return str(error.value)


@pytest.mark.parametrize(
    "words, message",
    [
        ("--require 3GiB touch ran", "3 GiB of memory is needed, 2 GiB is available (machine: 8 of 16 GiB, control"),
        ("--require earlier.json touch ran", "3 GiB of memory is needed, 2 GiB is available"),
        ("--require old.json touch ran", "'old.json' does not say how much memory the command needs; record the"),
    ],
)
def test_wrong(in_process: Run, words: str, message: str) -> None:
    """A wrong limit, or a command that cannot fit, gives one line; nothing runs."""
    earlier(3 * GIB, command=["touch", "ran"])
    session().save("old.json")
    result = in_process("monitor", *words.split())

    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr
    assert {path.name for path in Path().iterdir()} == {"earlier.json", "old.json"}


def test_disk() -> None:
    """The disk that the earlier run used must be free, too."""
    room = FileSystem(role="cwd", size=2**60, first=2**60, lowest=2**59, last=2**59)
    earlier(file_systems=[room])

    assert " of disk at " in refused("earlier.json")


@pytest.mark.parametrize(
    "fields, words, note",
    [
        ({}, WORDS, ""),
        ({}, ["rest"], "'earlier.json' was recorded with a different command"),
        ({"command": ["work", "--password=***"]}, ["work", "--password=hush"], ""),
        ({"exit": Exit(signal=9)}, WORDS, "the run in 'earlier.json' was cut short: it needs more than 1 GiB"),
    ],
    ids=["same", "another", "hidden", "cut short"],
)
def test_notes(capsys: pytest.CaptureFixture[str], fields: dict[str, object], words: list[str], note: str) -> None:
    """A line says if the session is of another command, a hidden secret apart, or of a run that was cut short."""
    earlier(**fields)
    planning.check_required("earlier.json", words, Path())
    printed = capsys.readouterr()

    assert (printed.out, printed.err) == ("", f"nncf-tools: option --require: {note}\n" if note else "")


class TestDevices:
    COLUMNS = ("rss", "device_memory@nvidia0", "device_memory@nvidia1", "device_used@nvidia0", "device_busy@nvidia0")

    @pytest.mark.parametrize(
        "asked, shown",
        [
            (["device"], ["device_memory@nvidia0", "device_memory@nvidia1", "device_used@nvidia0"]),
            (["device_memory"], ["device_memory@nvidia0", "device_memory@nvidia1"]),
            (["rss,device_memory@nvidia1"], ["rss", "device_memory@nvidia1"]),
            (None, ["rss", "device_memory@nvidia0", "device_memory@nvidia1"]),
        ],
    )
    def test_types(self, asked: list[str] | None, shown: list[str]) -> None:
        """A type is all memory of devices, a metric of each device, or a column; the default is the run's memory."""
        default = [name for name in self.COLUMNS if name.startswith(("rss", "device_memory"))]

        assert options.memory_types(asked, memory_of(self.COLUMNS), default) == shown
