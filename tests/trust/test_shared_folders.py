"""What `fit` and `sweep` do in a folder that another user may write to: only what they were asked for."""

from __future__ import annotations

import os
import pathlib
import shlex

import pytest

from tests.conftest import Run
from tests.memory_group import IS_POSSIBLE
from tests.trust.another_user import BECOMES_ANOTHER, OTHER, as_another

pytestmark = pytest.mark.process


def planted(trap: str, log: pathlib.Path, victim: pathlib.Path) -> None:
    """Put a trap in the place of a log: what is written there goes to the victim, or to its owner."""
    if trap == "link":
        log.symlink_to(victim)
    elif trap == "hard link":
        log.hardlink_to(victim)
    else:
        log.write_text("theirs")
        os.chown(log, OTHER, OTHER)


class TestLogOfARun:
    @as_another
    @pytest.mark.parametrize(
        ("trap", "why"),
        [
            ("link", "it is a symbolic link"),
            ("hard link", "it has a second name (a hard link)"),
            ("file", "it belongs to another user"),
        ],
    )
    def test_trap(self, nncf_tools: Run, tmp_path: pathlib.Path, shared: pathlib.Path, trap: str, why: str) -> None:
        """A log that leads to another file, or is another user's, is refused before a byte of it changes."""
        victim, log = tmp_path / "victim", shared / "run-1.log"
        victim.write_text("mine")
        planted(trap, log, victim)
        done = nncf_tools("fit", "--free-only", "-o", shared, "--before", "echo oh", "--", "touch", tmp_path / "ran")

        assert done.returncode == 1
        assert done.stderr.endswith(f"nncf-tools: error: option --output: cannot write {str(log)!r}: {why}\n")
        assert victim.read_text() == "mine"
        assert log.read_text() in {"mine", "theirs"}
        assert not (tmp_path / "ran").exists()

    @as_another
    @pytest.mark.skipif(not IS_POSSIBLE, reason="only root makes control groups")
    def test_planted_while_a_run_runs(self, nncf_tools: Run, tmp_path: pathlib.Path, shared: pathlib.Path) -> None:
        """The log of each run is checked when that run begins; the runs before it are kept."""
        (tmp_path / "victim").write_text("mine")
        plants = shlex.join([*BECOMES_ANOTHER, "ln", "-s", str(tmp_path / "victim"), str(shared / "run-2.log")])
        done = nncf_tools("fit", "-o", shared, "--success", "echo oh", "--", "sh", "-c", f"{plants}; sleep 0.3")

        assert done.returncode == 1
        assert f"cannot write {str(shared / 'run-2.log')!r}: it is a symbolic link\n" in done.stderr
        assert (tmp_path / "victim").read_text() == "mine"
        assert (shared / "run-1.log").read_text() == "oh\n"
        assert (shared / "fit.json").exists()

    def test_replaced_while_it_runs(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """All output of a run goes to the file that was opened for it, whatever has its name by then."""
        (tmp_path / "victim").write_text("mine")
        script = "echo first; mv out/run-1.log out/moved; ln -s ../victim out/run-1.log; echo second; sleep 0.3"
        done = nncf_tools("fit", "--free-only", "--success", "echo third", "-o", "out", "--", "sh", "-c", script)

        assert done.returncode == 0, done.stderr
        assert (tmp_path / "out/moved").read_text() == "first\nsecond\nthird\n"
        assert (tmp_path / "victim").read_text() == "mine"

    @pytest.mark.parametrize("is_read", [True, False])
    def test_fifo(self, nncf_tools: Run, tmp_path: pathlib.Path, is_read: bool) -> None:  # noqa: FBT001 — a case
        """A FIFO is refused at once, whether somebody reads it or not: an open that waits could not be ended."""
        (tmp_path / "out").mkdir()
        log = tmp_path / "out/run-1.log"
        os.mkfifo(log)
        reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK) if is_read else -1
        done = nncf_tools("fit", "--free-only", "-o", "out", "--", "touch", "ran")
        if is_read:
            os.close(reader)

        assert done.returncode == 1
        assert done.stderr.endswith(f"option --output: cannot write {str(log)!r}: it is a device or pipe\n")
        assert not (tmp_path / "ran").exists()

    def test_earlier_log(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A log of ours from an earlier run is begun anew."""
        (tmp_path / "out").mkdir()
        (tmp_path / "out/run-1.log").write_text("a run of before")
        nncf_tools("fit", "--free-only", "-o", "out", "--", "sh", "-c", "echo now; sleep 0.3")

        assert (tmp_path / "out/run-1.log").read_text() == "now\n"


class TestStateOfASearch:
    @pytest.mark.parametrize("is_held", [True, False])
    def test_fifo(self, nncf_tools: Run, tmp_path: pathlib.Path, is_held: bool) -> None:  # noqa: FBT001 — a case
        """A FIFO in the place of `fit.json` is refused at once, also one that somebody opened to write nothing."""
        (tmp_path / "out").mkdir()
        os.mkfifo(tmp_path / "out/fit.json")
        writer = os.open(tmp_path / "out/fit.json", os.O_RDWR) if is_held else -1
        done = nncf_tools("fit", "--free-only", "--resume", "-o", "out", "--", "touch", "ran")
        if is_held:
            os.close(writer)

        assert done.returncode == 2
        assert done.stderr.endswith("fit.json: cannot be read: a file expected\n")
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "ran").exists()
