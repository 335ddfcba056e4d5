"""Where a recording may be written: the rule of docs/internals/promises.md, by the real command line and real users."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import command_line
from tests.trust.another_user import OTHER, THIRD, as_another, become
from tests.trust.recorder import result_of

pytestmark = [pytest.mark.process, as_another]

GROUP = 23456
WARNING = "every user may rename files in"


def record(folder: Path, *words: object, user: int = 0, group: int = 0) -> subprocess.CompletedProcess[str]:
    """Record a command that does nothing, in a folder and as a user, who may read Python in root's home, too."""
    line = [*become(user, group or user), *command_line("monitor -q --no-plot", *words, "--", "true")]
    script = ["sh", "-c", 'umask 002 && exec "$@"', "sh", *line]
    return result_of(script, folder)


def recordings(folder: Path) -> list[int]:
    """Return who owns each session below a folder, in the order of their names."""
    return [path.stat().st_uid for path in sorted(folder.rglob("*.json"))]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Return a folder that all users may enter."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 1:
            folder.chmod(0o755)
    return tmp_path


def make(folder: Path, owner: int, group: int, mode: int) -> Path:
    """Make a folder of an owner."""
    folder.mkdir()
    os.chown(folder, owner, group)
    folder.chmod(mode)
    return folder


@pytest.mark.parametrize("words", [(), ("-o", "new/run.json")])
def test_root_in_a_checkout(top: Path, words: Sequence[str]) -> None:
    """Root in a container records in a mounted checkout that belongs to another user."""
    checkout = make(top / "checkout", OTHER, OTHER, 0o755)
    done = record(checkout, *words)

    assert (done.returncode, done.stderr) == (0, "")
    assert recordings(checkout)


def test_sudo(top: Path) -> None:
    """A user records, then with sudo, then without it again, all in one log folder in the home directory."""
    home = make(top / "home", OTHER, OTHER, 0o755)
    for user in (OTHER, 0, OTHER):
        done = record(home, user=user)
        assert (done.returncode, done.stderr) == (0, "")
    done = record(home, "-o", home / "run.json")

    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(recordings(home)) == [0, 0, OTHER, OTHER]


@pytest.mark.parametrize("words", [("-o", "run.json"), ("--log-dir", ".")])
def test_folder_for_all(top: Path, words: Sequence[str]) -> None:
    """In a folder of mode 0777, one warning is given, however many runs there are, and only new names are written."""
    shared = make(top / "shared", 0, 0, 0o777)
    done = record(shared, *words, "--repeat", "2", user=OTHER)
    again = record(shared, *words, "--repeat", "2", "--force", user=OTHER)

    assert (done.returncode, done.stderr.count("\n"), done.stderr.count(WARNING)) == (0, 1, 1)
    assert again.returncode == (2 if words[0] == "-o" else 0)
    assert ("the file exists, and every user may replace it; choose a new name" in again.stderr) is (words[0] == "-o")
    assert set(recordings(shared)) == {OTHER}


@pytest.mark.parametrize("owner", [THIRD, pytest.param(0, marks=pytest.mark.long)])
def test_folder_of_a_group(top: Path, owner: int) -> None:
    """Members of a group record in its folder, whoever made it, and in the log folder of each other."""
    team = make(top / "team", owner, GROUP, 0o2775)
    results = [
        record(team, *words, user=user, group=GROUP)
        for user in (OTHER, THIRD)
        for words in ((), ("-o", f"{user}.json"))
    ]

    assert [(done.returncode, done.stderr) for done in results] == [(0, "")] * 4
    assert sorted(recordings(team)) == [THIRD, THIRD, OTHER, OTHER]
