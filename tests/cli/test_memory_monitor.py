from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nncftools import Session
from nncftools.cli.record import memory_monitor as main
from tests.conftest import HANGING_S

ROOT = Path(__file__).parents[2]
FILES = sorted(
    f"{kind}_memory_usage{zero}.{ending}"
    for kind in ("rss", "system")
    for zero in ("", "_from-zero")
    for ending in ("png", "txt")
)


def memory_monitor(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the module as NNCF's script is run."""
    command = [sys.executable, "-m", "nncftools.memory_monitor", *words]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=HANGING_S
    )


@pytest.mark.process
class TestRecording:
    @pytest.mark.long
    def test_line_for_the_shell(self, tmp_path: Path) -> None:
        """One string runs through the shell; files lie directly in the folder, the summary is on standard output."""
        sampled = "until grep -q '^\\[[0-9.]*,[0-9]' new/logs/session.journal.jsonl; do sleep 0.02; done"
        line = f"echo one > out.txt; {sampled}; echo two; exit 7"
        result = memory_monitor(tmp_path, "--log-dir", "new/logs", line)
        logs = tmp_path / "new/logs"

        assert (result.returncode, result.stderr) == (7, "")
        assert (tmp_path / "out.txt").read_text() == "one\n"
        assert sorted(path.name for path in logs.iterdir()) == sorted([*FILES, "session.json"])
        assert re.fullmatch(
            r"two\n\nMemory summary:\nMemory type    From zero    Peak value\n-+  -+  -+\n"
            r"rss            True         [\d.]+ MiB\nrss            False        [\d.]+ MiB\n"
            r"system         True         -?[\d.]+ MiB\nsystem         False        [\d,.]+ MiB\n",
            result.stdout,
        )
        assert Session.load(logs / "session.json").command == ["/bin/sh", "-c", line]


class TestBadInput:
    @pytest.mark.parametrize("words", [[], ["python", "a.py", "--fast"], ["--log-dir"]])
    def test_usage(self, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
        """Wrong options give a line that says what is wrong, and status 2."""
        with pytest.raises(SystemExit) as ended:
            main(words)

        assert ended.value.code == 2
        assert "memory_monitor: error: " in capsys.readouterr().err
