from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from nncftools import __version__
from nncftools.cli import screen
from nncftools.sampler.client import describe_host
from tests.conftest import Run, command_line
from tests.made_up import mib, session
from tests.trust.recorder import result_of

HEAVY = {"pydantic", "matplotlib", "pandas", "plotext", "plotly", "pyarrow", "numpy", "asyncio", "multiprocessing"}


class TestStart:
    @pytest.mark.parametrize(
        "names, begin",
        [
            ({}, "\x1b[1mnncf-tools:\x1b[0m \x1b[1;31merror:\x1b[0m "),
            ({"NO_COLOR": "1"}, "nncf-tools: error: "),
            ({"TERM": "dumb"}, "nncf-tools: error: "),
        ],
    )
    def test_colour(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], names: dict[str, str], begin: str
    ) -> None:
        """Messages are coloured on a terminal that is not dumb, unless NO_COLOR is set."""
        monkeypatch.delenv("NO_COLOR", raising=False)
        for name, value in {"TERM": "xterm", **names}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        screen.error("what is wrong")

        assert capsys.readouterr().err == f"{begin}what is wrong\n"

    @pytest.mark.process
    def test_matplotlib_is_silent(self) -> None:
        """Matplotlib says nothing of a home directory that it cannot write to."""
        environment = {"HOME": "/proc/nowhere", "PATH": os.environ["PATH"]}
        program = "from nncftools.cli import screen; screen.prepare(); import matplotlib"
        words = [sys.executable, "-c", program]
        result = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)

        assert (result.stdout, result.stderr) == ("", "")

    def test_messages_break_between_words(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A terminal would break a long message inside of words; elsewhere it is one line."""
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "30")
        screen.error("no session holds what was asked for")
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        screen.error("no session holds what was asked for")

        one, *lines = capsys.readouterr().err.splitlines()
        assert one == "nncf-tools: error: no session holds what was asked for"
        assert lines == ["nncf-tools: error: no session", "holds what was asked for"]

    @pytest.mark.parametrize("words", [("help",), ("help", "monitor"), ("-V",)])
    def test_help_and_version_as_other_programs_have_them(self, in_process: Run, words: tuple[str, ...]) -> None:
        """``help COMMAND`` is ``COMMAND --help``, ``-V`` is ``--version``."""
        usual = {"help": [*words[1:], "--help"], "-V": ["--version"]}[words[0]]

        assert in_process(*words).stdout == in_process(*usual).stdout

    @pytest.mark.process
    @pytest.mark.parametrize("words", [["monitor", "-o", "new.json", "true"], ["report", "--details", "run.json"]])
    def test_nothing_heavy_is_loaded(self, tmp_path: Path, words: list[str]) -> None:
        """Help, a recording, and the report in text of a run without stacks load nothing that only pictures need."""
        session({"rss": mib(100, 300, 200)}).save(tmp_path / "run.json")
        script = (
            f"import sys; sys.argv[1:] = {words}\nfrom nncftools.cli.app import run\nassert not run()\n"
            "print(list(sys.modules))"
        )
        shown = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        loaded = set(re.findall(r"'([a-z0-9_]+)'", shown.splitlines()[-1]))

        assert {"typer", "rich"} <= loaded
        assert loaded & HEAVY == set()

    def test_version(self, nncf_tools: Run) -> None:
        """--version prints name and version."""
        assert nncf_tools("--version").stdout == f"nncf-tools {__version__}\n"

    def test_no_command(self, in_process: Run) -> None:
        """Without a subcommand, the help goes to standard error with status 2."""
        result = in_process()

        assert (result.returncode, result.stdout) == (2, "")
        assert "\nRecord:\n  profile " in result.stderr


@pytest.mark.long
def test_schema_describes_a_recorded_session(nncf_tools: Run, tmp_path: Path) -> None:
    """`schema` prints a valid JSON Schema, and a recorded session conforms to it."""
    schema = json.loads(nncf_tools("schema").stdout)
    nncf_tools("monitor -q -o run.json true")
    session = json.loads((tmp_path / "run.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(session, schema)

    assert session["host"]["memory"] == describe_host()["memory"]


QUICK = ["--version", "report run.json", "schema"]
PRINT = [
    "help",
    "report --help",
    "report run.json --format parquet",
    "compare run.json other.json",
    "list .",
    "metrics",
    "watch run.json",
    "replay run.json --speed 1000",
    f"viz-compression -i {Path(__file__).parents[1]}/data/made_up_compression.csv -o . --json",
]
"""What prints to standard output."""


@pytest.mark.process
@pytest.mark.parametrize(
    "redirection, why", [(">&-", "is closed"), (">/dev/full", "cannot be written: No space left on device")]
)
@pytest.mark.parametrize("words", [*QUICK, *(pytest.param(words, marks=pytest.mark.long) for words in PRINT)])
def test_lost_output_is_one_line(tmp_path: Path, words: str, redirection: str, why: str) -> None:
    """Standard output that is closed, or cannot be written, is one line and status 1."""
    for name in ("run.json", "other.json", "session.json"):
        session().save(tmp_path / name)
    script = ["sh", "-c", f'exec "$@" {redirection}', "sh", *command_line(words)]
    result = result_of(script, tmp_path)
    lost = f"nncf-tools: error: standard output {why}"

    assert result.returncode == 1
    assert [line for line in result.stderr.splitlines() if "error" in line] == [lost]
    assert "Traceback" not in result.stderr


@pytest.mark.process
def test_broken_pipe_is_quiet(tmp_path: Path) -> None:
    """A reader that closes the pipe early causes no traceback."""
    script = f"{sys.executable} -m nncftools schema | head -n 1"
    result = subprocess.run(script, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S602 — a pipe

    assert result.stdout == "{\n"
    assert result.stderr == ""


@pytest.mark.parametrize("kib", [60_000, 100_000])  # OpenBLAS ends the process from 75,000 to 130,000
@pytest.mark.parametrize("words", ["report run.json --plot x.png", "replay run.json", "monitor --live true"])
def test_little_address_space(nncf_tools: Run, tmp_path: Path, words: str, kib: int) -> None:
    """Where a library cannot be loaded because of ``ulimit -v``, one line says so, and no files stay."""
    session().save(tmp_path / "run.json")
    limit = kib << 10
    done = nncf_tools(words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))

    assert done.stderr.endswith("not enough memory; if `ulimit -v` limits the address space, allow more\n")
    assert done.stderr.count("\n") == 1
    assert (done.returncode, list(tmp_path.iterdir())) == (1, [tmp_path / "run.json"])
