from __future__ import annotations

import contextlib
import json
import pathlib
import signal
import subprocess
import sys

import psutil
import pytest

from nncftools.analysis.session import Session
from nncftools.cli import options, planning
from nncftools.cli.options import Request
from nncftools.cli.planning import arguments, find_special
from nncftools.errors import SessionFileError, UsageError
from nncftools.limits import needs
from nncftools.limits.needs import Available
from nncftools.metrics import memory_of, recorded_with
from nncftools.session.model import Exit, FileSystem, Floor
from tests import waiting
from tests.conftest import HANGING_S, Run, burner, command_line
from tests.made_up import MIB, session
from tests.memory_group import IS_POSSIBLE, MemoryGroup


@pytest.mark.parametrize(
    ("line", "special"),
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


@pytest.mark.parametrize("words", [["python a.py > out.txt"], ["a|b"]])
def test_line_for_a_shell_is_refused(words: list[str]) -> None:
    """One string with such characters is refused, and the message names the way."""
    with pytest.raises(UsageError, match=r"only a shell understands .* put --shell before it"):
        arguments(words, shell=False)


@pytest.mark.parametrize("words", [["echo", "a > b", "$X"], ["a > b"], ["["]], ids=["words", "file", "on PATH"])
def test_words_are_never_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """Several words, the name of a file, and a program on PATH are passed on unchanged, whatever they hold."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a > b").touch()

    assert arguments(words, shell=False) == words


KILL = ("--max-memory", "50MiB", "--on-limit", "kill")
ENDED = "is above --max-memory 50.0 MiB: the command is ended"


HOLD = " ".join(burner("touch", 100, 2 * HANGING_S))
CHILD = f"until [ -s child ]; do sleep 0.01; done; exec {HOLD}"
"""Holds too much as soon as its PID is known."""


def runs(file: pathlib.Path) -> bool:
    """Return whether the process with the PID in a file is running; a zombie is not."""
    try:
        return psutil.Process(int(file.read_text())).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until_ended(file: pathlib.Path) -> None:
    """Wait for the end of the process with the PID in a file; it would run twice as long as this waits."""
    waiting.until(lambda: not runs(file), "the end of the child")


@pytest.mark.parametrize("text", ["", "8", "GiB", "-1GiB", "0GiB", "0.1B", "8 PiB", "1e3MiB", "8GiB!"])
def test_no_size(in_process: Run, text: str) -> None:
    """What is no size with a unit is refused; the message says what was expected."""
    result = in_process("monitor", f"--max-memory={text}", "true")

    assert result.returncode == 2
    assert result.stderr.startswith("nncf-tools: error: option --max-memory: a size above 0 with its unit")


@pytest.mark.parametrize(("size", "action"), [(None, "kill"), (8 << 30, "stop")])
def test_no_action(size: int | None, action: str) -> None:
    """An action without a limit, or an unknown one, is refused."""
    with pytest.raises(UsageError, match="option --on-limit"):
        planning.plan(["rss"], Request(max_memory=size, on_limit=action))


@pytest.mark.parametrize(("columns", "expected"), [(["pss"], ["rss", "pss"]), (["pss", "rss"], ["pss", "rss"])])
def test_rss_is_recorded(columns: list[str], expected: list[str]) -> None:
    """A limit makes the recording include RSS."""
    assert planning.plan(columns, Request(max_memory=1)).columns == expected


@pytest.mark.long
def test_below(nncf_tools: Run) -> None:
    """A command below its limit ends normally, and nothing is printed."""
    result = nncf_tools("monitor", "-q", "-o", "run.json", *KILL, *burner("touch", 1, 0.1, 3))

    assert (result.returncode, result.stderr) == (3, "")


@pytest.mark.process
def test_warn(tmp_path: pathlib.Path) -> None:
    """A command above its limit continues; the warning is on standard error and in the session."""
    words = command_line("monitor", "-q", "-o", "run.json", "--max-memory", "50MiB", *burner("touch", 100, "go", 3))
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        (tmp_path / "go").touch()
        _, rest = process.communicate(timeout=HANGING_S)
    (warning,) = Session.load(tmp_path / "run.json").warnings[:1]

    assert process.returncode == 3
    assert (said, rest) == (f"nncf-tools: {warning}\n", "")
    assert "is above --max-memory 50.0 MiB" in warning


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="there is no sample at a mark")
def test_operation_at_the_limit(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """``profile`` has the limit, too, and its report names the operation in which it was exceeded."""
    (tmp_path / "work.py").write_text(
        "from nncftools import operation\n"
        "with operation('Export'):\n    with operation('Saving'):\n        held = b'x' * (100 << 20)\n"
    )
    words = ("profile", "-o", "run.json", "--no-plot", "--max-memory", "50MiB", sys.executable, "work.py")
    result = nncf_tools(*words)
    reached = Session.load(tmp_path / "run.json").limit_reached

    assert (result.returncode, result.stdout) == (0, "")
    assert reached is not None
    assert reached.rss > reached.limit == 50 << 20
    assert "--max-memory was exceeded during Export › Saving, at" in " ".join(result.stderr.split())


@pytest.mark.parametrize("source", ["proc", pytest.param("psutil", marks=pytest.mark.long)])
def test_kill(nncf_tools: Run, tmp_path: pathlib.Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command and all descendants are ended, the status is that of SIGTERM, and the session says why."""
    if source == "proc" and sys.platform != "linux":
        pytest.skip("no /proc")
    monkeypatch.setenv("_NNCF_TOOLS_SOURCE", source)
    script = f"({CHILD}) & echo $! > child; wait"
    words = ("-i", "0.05", "-t", "rss", *KILL, "sh", "-c", script)
    result = nncf_tools("monitor", "-q", "-o", "run.json", *words)
    session = Session.load(tmp_path / "run.json")

    assert result.returncode == 143
    assert session.exit is not None
    assert session.exit.signal == signal.SIGTERM
    assert ENDED in session.warnings[0]
    until_ended(tmp_path / "child")


def test_kill_what_ignores_that(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """A process that ignores SIGTERM gets SIGKILL after 5 s, also a child of a command that has ended."""
    script = f"(trap '' TERM; {CHILD}) & echo $! > child; wait"
    result = nncf_tools("monitor", "-q", "-i", "0.05", "-t", "pss", "-o", "run.json", *KILL, "sh", "-c", script)
    session = Session.load(tmp_path / "run.json")

    assert result.returncode == 143
    assert session.warnings[1] == "1 of the processes went on for 5 s after SIGTERM: SIGKILL"
    until_ended(tmp_path / "child")


@pytest.mark.long
def test_kill_what_was_attached_to(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """An attached process is ended, too."""
    with subprocess.Popen(burner("touch", 100, 2 * HANGING_S)) as process:
        try:
            words = ("-i", "0.05", *KILL, "--pid", process.pid)
            result = nncf_tools("monitor", "-q", "-o", "run.json", *words)
            status = process.wait(HANGING_S)
        finally:
            process.kill()

    assert (result.returncode, status) == (0, -signal.SIGTERM)
    assert ENDED in Session.load(tmp_path / "run.json").warnings[0]


@pytest.mark.long
@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the sampler ends with the command line")
def test_outlives_the_command_line(tmp_path: pathlib.Path) -> None:
    """The limit holds after the command line is killed: the sampler enforces it."""
    gate = f"echo $$ > child; until [ -e go ]; do sleep 0.01; done; exec {HOLD}"
    child, journal = tmp_path / "child", tmp_path / "run.journal.jsonl"
    words = command_line("monitor", "-q", "-i", "0.05", "-o", "run.json", *KILL, "sh", "-c", gate)
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        waiting.until(lambda: child.exists() and child.read_text(), "the start of the command")
        process.kill()
        process.wait(HANGING_S)
        (tmp_path / "go").touch()
        until_ended(child)
        waiting.until(lambda: '\n{"end":' in journal.read_text(), "the end of the recording")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]

    assert any(isinstance(line, dict) and ENDED in str(line.get("warning")) for line in lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-memory", "8"), "option --max-memory: a size above 0 with its unit"),
        (("--on-limit", "kill"), "option --on-limit: only with --max-memory"),
        (("--max-memory", "8GiB", "--on-limit", "x"), "option --on-limit: 'x' is not one of warn, kill"),
    ],
)
def test_wrong(in_process: Run, tmp_path: pathlib.Path, words: tuple[str, ...], message: str) -> None:
    """A wrong limit gives one line; nothing runs and no files are left."""
    result = in_process("monitor", *words, "touch", "ran")

    assert result.returncode == 2
    assert message in result.stderr
    assert not list(tmp_path.iterdir())


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


def test_earlier_session() -> None:
    """A session of the same command says what is needed."""
    earlier(3 * GIB)

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
        "option --require: 'earlier.json' does not contain the needs of the command; record it again"
    )


def test_no_session() -> None:
    """A file that is no session is named."""
    pathlib.Path("earlier.json").write_text("{}")

    with pytest.raises(SessionFileError, match=r"^earlier\.json: "):
        planning.check_required("earlier.json", WORDS, pathlib.Path())


@pytest.mark.parametrize(
    ("fields", "words", "note"),
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
    planning.check_required("earlier.json", words, pathlib.Path())
    printed = capsys.readouterr()

    assert (printed.out, printed.err) == ("", f"nncf-tools: option --require: {note}\n" if note else "")


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
    words = command_line("monitor", "-q", "--no-plot", "--require", "300MiB", "true")
    with MemoryGroup("require", 200 * MIB) if in_group else contextlib.nullcontext() as group:
        enter = [] if group is None else ["sh", "-c", f'{group.enter} && exec "$@"', "sh"]
        result = subprocess.run([*enter, *words], check=False, cwd=tmp_path, capture_output=True, text=True)

    assert result.returncode == (2 if in_group else 0)
    assert ("300 MiB of memory is needed, " in result.stderr) == in_group
    assert (" of 200 MiB)" in result.stderr) == in_group


class TestDevices:
    COLUMNS = ("rss", "device_memory@nvidia0", "device_memory@nvidia1", "device_used@nvidia0", "device_busy@nvidia0")

    @pytest.mark.parametrize(
        ("asked", "shown"),
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

    def test_another_name(self) -> None:
        """Who asks for the GPU is told the name."""
        with pytest.raises(UsageError, match=r"'gpu' is not one of .*; did you mean device\?$"):
            options.memory_types(["gpu"], ["rss", "device_memory"])

    def test_recorded_together(self) -> None:
        """With one metric of devices, all are recorded; without one, none."""
        assert set(recorded_with(["device_memory"])) >= {"device_allocated", "device_used", "device_busy"}
        assert not any(name.startswith("device") for name in recorded_with(["rss", "pss"]))
