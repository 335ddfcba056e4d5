"""The text of code in a recording: of whom it may be, and that it reveals nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nncftools.analysis.session import Session
from tests.conftest import Run
from tests.session.made_sources import OURS, linked, taken, written
from tests.trust.another_user import BECOMES_ANOTHER, OTHER, as_another


class TestUser:
    @as_another
    @pytest.mark.parametrize(
        "mode, folder, owner, is_read",
        [
            (0o644, 0o755, OURS, True),
            (0o640, 0o755, OURS, False),
            (0o644, 0o750, OURS, False),
            (0o604, 0o711, OURS, True),
            (0o400, 0o755, OTHER, True),
            (0o044, 0o755, OTHER, False),
        ],
    )
    def test_another_user(self, shared: Path, mode: int, folder: int, owner: int, is_read: bool) -> None:  # noqa: FBT001 — of the table
        """Of a program of another user, only what this user may read is read; root itself reads everything."""
        path = written(shared / "code" / "mod.py", mode=mode, owner=owner)
        path.parent.chmod(folder)

        assert bool(taken(path, user=OTHER)) is is_read
        assert taken(path) == {2: "second = make(2)"}

    @as_another
    @pytest.mark.parametrize("of_folder", [False, True])
    def test_link_of_another_user(self, shared: Path, *, of_folder: bool) -> None:
        """A link is followed if it belongs to root, to us or to the user of the program."""
        path = written(shared / "code" / "mod.py")
        target = path.parent if of_folder else path
        link = linked(shared / "link", target, OTHER)
        named = link / path.name if of_folder else link

        assert taken(named) == {}
        assert taken(named, user=OTHER) == {2: "second = make(2)"}
        assert taken(named, user=OTHER - 1) == {}


PYTHON = "/usr/bin/python3"
_MOST_RUNS = 5
SECRET = "correcthorse"  # noqa: S105 — that is the point
HOLDS = f"""import time
def hold():
    held = []
    for _ in range(100):
        held.append(bytearray(b'x') * (1 << 20))
        time.sleep(0.005)
    return held
password = hold() or '{SECRET}'
"""
CALL = "password = hold() or ***"
FROM_MEMORY = """import sys
exec(compile(open('mod.py').read(), sys.argv[1], 'exec'))
"""
"""Runs code under the name of another file."""


def texts(folder: Path, file: Path) -> set[str]:
    """Return the texts of a file's lines in a session; its stacks stand there."""
    snapshots = Session.load(folder / "run.json").snapshots
    assert snapshots is not None
    assert str(file) in {frame.file for frame in snapshots.frames}
    assert SECRET not in (folder / "run.json").read_text(encoding="utf-8")
    return set(snapshots.sources.get(str(file), {}).values())


def users(folder: Path) -> set[int | None]:
    """Return the users of a session's programs; on a busy machine, ``setpriv`` may still run when a program is met."""
    snapshots = Session.load(folder / "run.json").snapshots
    assert snapshots is not None
    return {process.user for process in snapshots.processes}


@pytest.mark.parametrize("options, is_read", [([], True), pytest.param(["--no-source"], False, marks=pytest.mark.long)])
def test_recording(nncf_tools: Run, tmp_path: Path, options: list[str], is_read: bool) -> None:  # noqa: FBT001 — of the table
    """A recording keeps the text of lines without secrets, unless it is told not to."""
    path = written(tmp_path / "mod.py", HOLDS)
    shown = nncf_tools("profile", *options, "--no-plot", "-o", "run.json", "--", sys.executable, path.name)

    assert (CALL in texts(tmp_path, path)) is is_read, shown.stderr
    assert SECRET not in shown.stderr + nncf_tools("report --details run.json").stdout


@pytest.mark.process
@pytest.mark.parametrize("source", [True, pytest.param(False, marks=pytest.mark.long)])
def test_program_that_records_itself(tmp_path: Path, *, source: bool) -> None:
    """The Python API keeps the text, too, at the end and not before; ``source`` leaves it out."""
    written(tmp_path / "mod.py", HOLDS)
    path = written(
        tmp_path / "run.py",
        "import nncftools\n"
        f"with nncftools.Profiler(0.01, stacks=True, source={source}) as profiler:\n"
        "    import mod\n"
        "    assert not profiler.session.snapshots.sources\n"
        "profiler.session.save('run.json')\n",
    )
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    subprocess.run([sys.executable, path], cwd=tmp_path, env=environment, check=True)

    assert (CALL in texts(tmp_path, tmp_path / "mod.py")) is source


@as_another
@pytest.mark.skipif(not Path(PYTHON).exists(), reason="no Python that another user may run")
@pytest.mark.parametrize(
    "name, is_read",
    [pytest.param("mod.py", True, marks=pytest.mark.long), ("private.py", False), ("theirs.py", True)],
)
def test_program_of_another_user(nncf_tools: Run, shared: Path, name: str, is_read: bool) -> None:  # noqa: FBT001 — of the table
    """Root does not read for another user's program which names a file as its code that this user may not read."""
    written(shared / "mod.py", HOLDS)
    written(shared / "private.py", HOLDS, mode=0o600)
    written(shared / "theirs.py", HOLDS, mode=0o400, owner=OTHER)
    written(shared / "run.py", FROM_MEMORY)
    program = [*BECOMES_ANOTHER, PYTHON, "run.py", shared / name]
    for _ in range(_MOST_RUNS):
        nncf_tools("monitor -q --stacks --force -o run.json --", *program, cwd=shared)
        if OTHER in users(shared):
            break

    assert (CALL in texts(shared, shared / name)) is is_read


@as_another
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare makes a program with mounts of its own")
def test_program_with_mounts_of_its_own(nncf_tools: Run, tmp_path: Path) -> None:
    """A program with other mounts can have run another file than the one that we see."""
    path = written(tmp_path / "mod.py", HOLDS)
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no program with mounts of its own can be started here")
    nncf_tools("monitor -q --stacks -o run.json -- unshare -m", sys.executable, path.name)

    assert texts(tmp_path, path) == set()
