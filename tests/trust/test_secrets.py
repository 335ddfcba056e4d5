from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from nncftools import Session
from nncftools.importers.source import read_session
from nncftools.live.follower import Follower
from tests.conftest import HANGING_S, Run, command_line
from tests.importers import logs
from tests.trust.recorder import result_of
from tests.waiting import until

SECRET = "correcthorse"  # noqa: S105 — that is the point
"""Text that must not appear in any file or display."""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-E', *sys.argv[2:]])"
UNTIL_GO = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)"


def telling(program: str = UNTIL_GO) -> list[str]:
    """Return a command with secrets in its own and its child's command line, in all supported forms."""
    child = ["-c", program, "--password", SECRET, f"--api-key={SECRET}", f"https://me:{SECRET}@host/", "--lr", "0.1"]
    return [sys.executable, "-S", "-E", "-c", PARENT, f"HF_TOKEN={SECRET} {SECRET}", *child]


def mode(path: Path) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def saving(folder: Path, more: str = "") -> dict[str, str]:
    """Write a program that saves models under names with a secret; return the environment in which it runs."""
    (folder / "openvino").mkdir()
    (folder / "openvino" / "__init__.py").touch()
    source = "def save_model(model, output_model):\n    open(output_model, 'w').close()\n"
    (folder / "openvino" / "_pyopenvino.py").write_text(source)
    calls = "".join(f"o.save_model(0, {name!r})\n" for name in (f"token={SECRET}", "mine.xml"))
    (folder / "run.py").write_text(f"import openvino._pyopenvino as o\n{calls}{more}")
    return {"PYTHONPATH": os.pathsep.join([str(Path.cwd()), str(folder)])}


class Recorded(NamedTuple):
    """The files that a recording of such a command leaves."""

    journal: bytes
    session: bytes
    live: str
    """The state of a live view of it."""
    errors: str
    modes: Mapping[str, int]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Record such a command, shared by all tests."""
    folder = tmp_path_factory.mktemp("secrets")
    words = command_line("monitor -i 0.02 --per-process -o run.json --", *telling())
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True, umask=0o002)
    journal = folder / "run.journal.jsonl"
    until(lambda: journal.exists() and journal.read_text().count(f"--api-key={SECRET}") > 1, "the child in the journal")
    modes = {path.name: mode(path) for path in folder.iterdir()}
    with Follower(journal) as follower:
        follower.read()
        live = "\n".join([follower.run.command, *map(repr, follower.run.processes.values())])
    kept = journal.read_bytes()
    (folder / "go").touch()
    _, errors = process.communicate(timeout=HANGING_S)
    assert process.returncode == 0, errors
    modes["run.json"] = mode(folder / "run.json")
    return Recorded(kept, (folder / "run.json").read_bytes(), live, errors, modes)


@pytest.mark.long
@pytest.mark.process
class TestRecording:
    def test_modes(self, recorded: Recorded) -> None:
        """Journal and marks hold the command as typed and are private; a session has the user's umask."""
        assert f"--api-key={SECRET}".encode() in recorded.journal
        assert recorded.modes == {"run.journal.jsonl": 0o600, "run.marks.jsonl": 0o600, "run.json": 0o664}

    def test_session_and_summary(self, recorded: Recorded, tmp_path: Path) -> None:
        """Session, live view and summary hide the secrets of command and child, also what is read from a journal."""
        (tmp_path / "run.journal.jsonl").write_bytes(recorded.journal)
        read_session(tmp_path / "run.journal.jsonl").save(tmp_path / "read.json")

        assert SECRET not in (tmp_path / "read.json").read_text()
        assert SECRET.encode() not in recorded.session
        assert recorded.session.count(b"--api-key=***") > 1
        assert b'"--lr","0.1"' in recorded.session
        assert SECRET not in recorded.errors
        assert SECRET not in recorded.live
        assert "--password '***'" in recorded.live

    def test_own_rules(self, nncf_tools: Run, tmp_path: Path) -> None:
        """--redact hides more, --no-redact hides nothing."""
        words = ("-o", "run.json", "--force", "--", "true", "bbb", "--token", SECRET)
        for option, expected in (
            ("--redact=b+", ["***", "--token", "***"]),
            ("--no-redact", ["bbb", "--token", SECRET]),
        ):
            nncf_tools("monitor -q", option, *words, env={"HF_TOKEN": f"{SECRET} of the environment"})
            assert Session.load(tmp_path / "run.json").command[1:] == expected
            assert "of the environment" not in (tmp_path / "run.json").read_text()

    def test_marks_and_names(self, nncf_tools: Run, tmp_path: Path) -> None:
        """Lines of output, arguments of calls, saved paths, and names made from the command reveal no secret."""
        environment = saving(tmp_path, f"print('login --password={SECRET}')\n")
        line = f"HF_TOKEN={SECRET} {sys.executable} run.py --password {SECRET}"
        words = ("--no-plot", "--redact", "mine", "--mark-on", "login.*", "--shell", line)
        result = nncf_tools("profile", *words, env=environment)
        logs = tmp_path / "memory_logs"
        marks = Session.load(logs / "latest/session.json").marks

        assert [mark.arguments for mark in marks if mark.arguments] == ["token=***", "***.xml"]
        assert [Path(mark.saved).name for mark in marks if mark.saved] == ["token=***", "***.xml"]
        assert "login --password=***" in {mark.name for mark in marks}
        assert SECRET not in result.stderr
        for file in logs.rglob("*"):
            assert SECRET not in str(file.resolve())
            assert file.is_dir() or SECRET.encode() not in file.read_bytes()


class TestForeignLogs:
    def test_mprof(self, tmp_path: Path) -> None:
        """The command in a log of mprof is redacted."""
        log = tmp_path / "mprofile.dat"
        log.write_bytes(logs.MPROF.replace(b"--fast", f"--fast --token {SECRET}".encode()))
        assert read_session(log).command == ["python", "a b.py", "--fast", "--token", "***"]


@pytest.mark.long
@pytest.mark.process
def test_pytest_plugin(tmp_path: Path) -> None:
    """Neither the summary of the pytest plugin nor its recording reveals the secrets of a test's child."""
    (tmp_path / "holds.py").write_text("held = bytearray(64 << 20)\nprint(flush=True)\ninput()\n")
    child = ["py", "-S", "holds.py", f"--token={SECRET}"]
    (tmp_path / "test_it.py").write_text(
        "import subprocess, pytest\n"
        "from subprocess import PIPE\n"
        "@pytest.mark.limit_peak('32 MiB')\n"
        "def test_it():\n"
        f"    child = subprocess.Popen({child!r}, executable={sys.executable!r}, stdin=PIPE, stdout=PIPE)\n"
        "    child.stdout.readline()\n"
        "    TOLD.append(child)\n"
        "TOLD = []\n"
        "def test_end():\n"
        "    TOLD[0].communicate(b'x')\n"
    )
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--memory", "--memory-output", "run.json"]
    result = result_of(words, tmp_path)

    assert result.returncode == 1, result.stdout
    assert "--token=***" in result.stdout
    assert "--token=***" in (tmp_path / "run.json").read_text()
    assert SECRET not in result.stdout + result.stderr + (tmp_path / "run.json").read_text()
