"""Where recording is impossible, the command is not started; under tight limits, the figures are complete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nncftools import Session
from tests.conftest import burner, command_line
from tests.trust.recorder import result_of

pytestmark = [pytest.mark.process, pytest.mark.long]

ROOT = Path(__file__).parents[2]
INHERITING = """
import os, resource, sys
number, limit, *words = sys.argv[1:]
for _ in range(int(number)):
    os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
soft, hard = (int(limit[1:]), hard) if limit.startswith("S") else (int(limit), int(limit))
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
os.execv(words[0], words)
"""
"""Run a command with inherited descriptors and a limit of open files (S64: only the soft limit)."""
ELSEWHERE = """
import sys
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
from nncftools import errors
errors.CAN_RECORD = False
"""
"""Simulates Windows: modules that are missing there cannot be imported."""
NOT_THERE = "nncf-tools: error: recording needs Linux or macOS; reports, comparisons and pictures work here\n"


def limited(folder: Path, limit: object, *words: object, inherited: int = 0) -> subprocess.CompletedProcess[str]:
    """Record a command under a limit of open files."""
    record = command_line("monitor -q -i 0.02 --force -o run.json", *words)
    launch = [sys.executable, "-S", "-E", "-c", INHERITING, str(inherited), str(limit)]
    return result_of([*launch, *record], folder)


class TestDescriptors:
    @pytest.mark.parametrize("limit", ["64", "S64"])
    def test_crowd(self, tmp_path: Path, limit: str) -> None:
        """With few descriptors, a crowd is counted completely, and sees the original limit."""
        result = limited(tmp_path, limit, "--", *burner("crowd", 200))
        session = Session.load(tmp_path / "run.json")

        assert (result.returncode, result.stdout, result.stderr) == (0, "64\n", "")
        assert max(session.samples["processes"]) == len(session.processes) == 201
        assert session.warnings == []

    @pytest.mark.parametrize("inherited, limit", [(0, 8), (0, 20), (40, 64), (58, 64)])
    def test_too_few(self, tmp_path: Path, inherited: int, limit: int) -> None:
        """With too few descriptors, one line says so before the command starts."""
        result = limited(tmp_path, limit, "touch", "ran", inherited=inherited)

        assert result.returncode == 1
        assert result.stderr.startswith(f"nncf-tools: error: cannot record: of {limit} open files that are allowed")
        assert result.stderr.count("\n") == 1
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("inherited, limit", [(0, "S8"), (30, "64"), (1100, "2048")])
    def test_just_enough(self, tmp_path: Path, inherited: int, limit: str) -> None:
        """Inherited descriptors, or a soft limit that can be raised, are not an obstacle."""
        result = limited(tmp_path, limit, "--", "sh", "-c", "ulimit -Sn; exit 5", inherited=inherited)
        session = Session.load(tmp_path / "run.json")

        assert (result.returncode, result.stdout, result.stderr) == (5, f"{limit.removeprefix('S')}\n", "")
        assert (session.finished, len(session.processes), session.warnings) == (True, 1, [])

    def test_program_with_many_of_its_own(self, tmp_path: Path) -> None:
        """A program with more than a thousand open files can record itself."""
        program = (
            "import os, nncftools\n"
            "held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]\n"
            "with nncftools.MemoryMonitor(interval=0.01) as monitor: pass\n"
            "print(len(monitor.session.processes))\n"
        )
        result = result_of([sys.executable, "-c", program], tmp_path)

        assert (result.stdout, result.stderr) == ("1\n", "")


def can(*words: str) -> bool:
    """Return whether a command succeeds."""
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


class TestProc:
    def test_missing(self, tmp_path: Path) -> None:
        """Without /proc, one line says so before the command starts."""
        if os.stat("/").st_dev != os.stat(ROOT).st_dev or not can("unshare", "-m", "true"):  # noqa: PTH116 — devices
            pytest.skip("only root can change the root folder, and all must be on one disk")
        inside = 'mount --bind / "$1" && root=$1 && shift && exec chroot "$root" "$@"'  # the bind mount omits /proc
        (tmp_path / "root").mkdir()
        program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from nncftools.__main__ import main; main()"
        files = ("-o", str(tmp_path / "run.json"), "--", "touch", str(tmp_path / "ran"))
        record = [sys.executable, "-c", program, "profile", *files]
        result = result_of(["unshare", "-m", "sh", "-c", inside, "sh", str(tmp_path / "root"), *record], tmp_path)

        assert result.stderr == (
            "nncf-tools: error: cannot record: /proc is not mounted here (No such file or directory); "
            "mount it (mount -t proc proc /proc)\n"
        )
        assert (result.returncode, [path.name for path in tmp_path.iterdir()]) == (1, ["root"])

    def test_of_another_namespace(self, tmp_path: Path) -> None:
        """A /proc with other PIDs is refused before the command starts; all figures would be 0."""
        if not can("unshare", "--pid", "--fork", "true"):
            pytest.skip("only root can make a PID namespace")
        words = command_line("monitor -o run.json touch ran")
        result = result_of(["unshare", "--pid", "--fork", *words], tmp_path)

        assert result.returncode == 1
        assert result.stderr.startswith(
            "nncf-tools: error: cannot record: /proc belongs to another PID namespace (this "
        )
        assert result.stderr.count("\n") == 1
        assert not list(tmp_path.iterdir())


class TestWindows:
    @pytest.mark.parametrize("words", [("monitor", "true"), ("profile", "true"), ("watch", "--pid", "1")])
    def test_is_refused(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        """Recording commands end with one line, and leave no files."""
        program = f"{ELSEWHERE}from nncftools.__main__ import main; main()"
        result = result_of([sys.executable, "-c", program, *words], tmp_path)

        assert (result.returncode, result.stdout, result.stderr) == (1, "", NOT_THERE)
        assert not list(tmp_path.iterdir())

    def test_sessions_are_read(self, tmp_path: Path) -> None:
        """A session from another machine can be reported."""
        program = f"{ELSEWHERE}from nncftools.__main__ import main; main()"
        result = result_of([sys.executable, "-c", program, "report", ROOT / "tests/data/runs/base-1.json"], tmp_path)

        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.startswith("export base: Peak memory ")
