"""Control groups of our own: real ones of v1 as root, and made-up trees."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from nncftools.cli.fit import groups
from nncftools.cli.fit.groups import LimitedGroup, ParentGroup, parent_group
from nncftools.errors import NncfToolsError
from tests.made_up import MIB
from tests.memory_group import IS_POSSIBLE

as_root = pytest.mark.skipif(not IS_POSSIBLE, reason="only root makes control groups")
GROWS = "held = bytearray(300 << 20); print('done')"


def run(group: LimitedGroup, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command inside a group."""
    return subprocess.run([*group.entry, *words], capture_output=True, check=False)


class TestMadeUp:
    @pytest.mark.parametrize("files", [["memory.max", "memory.swap.max"], ["memory.max"]])
    def test_limit_of_v2(self, tmp_path: pathlib.Path, files: list[str]) -> None:
        """Memory is limited, and swap where the kernel counts it."""
        group = LimitedGroup(ParentGroup(str(tmp_path), is_v2=True), 3)
        group.folder.mkdir()
        for name in files:
            (group.folder / name).write_text("max\n")
        group.limit(7 * MIB, 2 * MIB)
        written = {path.name: path.read_text() for path in group.folder.iterdir()}

        assert written == {name: str(size) for name, size in zip(files, (7 * MIB, 2 * MIB), strict=False)}

    def test_counts_of_v2(self, tmp_path: pathlib.Path) -> None:
        """Killed processes and refaults are read from the group's files."""
        group = LimitedGroup(ParentGroup(str(tmp_path), is_v2=True), 3)
        group.folder.mkdir()
        (group.folder / "memory.events").write_text("low 0\noom 4\noom_kill 2\n")
        (group.folder / "memory.stat").write_text("workingset_refault_anon 1\nworkingset_refault_file 2\n")

        assert group.oom_kills() == 2
        assert group.refaults() == 3 * os.sysconf("SC_PAGE_SIZE")

    def test_cannot_be_removed(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A group that stays busy is named."""
        monkeypatch.setattr(groups, "_REMOVE_WITHIN_S", 0.0)
        (tmp_path / "busy").mkdir()
        (tmp_path / "busy/file").touch()

        with pytest.raises(NncfToolsError, match=r"busy' cannot be removed"):
            groups.remove(tmp_path / "busy")


def test_files_of_this_process() -> None:
    """Mapped files are found by their paths."""
    assert any(pathlib.Path(path).name.startswith(("lib", "ld")) for path in groups.files_of([os.getpid()]))


def test_files_whose_names_are_no_text(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of mapped files can be written as JSON, whatever is in them."""
    (tmp_path / "5").mkdir()
    (tmp_path / "5/maps").write_bytes(b"7f0-7f1 r--s 0 fe:00 1 /tmp/\xff\xe2\x80\xa8.bin\n7f2-7f3 rw-p 0 00:00 0 \n")
    monkeypatch.setattr(groups, "PROC", str(tmp_path))

    assert groups.files_of([5]) == {"/tmp/\\xff\u2028.bin"}


@as_root
@pytest.mark.process
class TestReal:
    def test_too_little(self) -> None:
        """A process that needs more than the limit is killed and counted; the group is gone afterwards."""
        with LimitedGroup(parent_group(), 1) as group:
            group.limit(100 * MIB, 0)
            done = run(group, sys.executable, "-S", "-E", "-c", GROWS)
            kills = group.oom_kills()

        assert (done.returncode, done.stdout, kills) == (-signal.SIGKILL, b"", 1)
        assert not group.folder.exists()

    def test_enough(self) -> None:
        """A process that has enough works, and nothing is counted."""
        with LimitedGroup(parent_group(), 1) as group:
            group.limit(400 * MIB, 0)
            done = run(group, sys.executable, "-S", "-E", "-c", GROWS)

            assert (done.stdout, group.oom_kills(), group.refaults() is None) == (b"done\n", 0, False)

    def test_daemon(self) -> None:
        """What a run leaves behind is killed at the end, and the group is removed."""
        with LimitedGroup(parent_group(), 1) as group:
            run(group, "sh", "-c", "sleep 100 >/dev/null 2>&1 &")

            assert len(group.pids()) == 1

        assert not group.folder.exists()
