"""Control groups of our own: real ones of v1 as root, and made-up trees.

Where control groups can be made: made-up trees of version 2, and real groups of version 1 as root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nncftools.backports import running
from nncftools.limits import needs
from nncftools.limits.needs import LimitedGroup, ParentGroup, parent_group
from tests.made_up import MIB
from tests.memory_group import IS_POSSIBLE
from tests.sampler.grouped import V2, Machine

as_root = pytest.mark.skipif(not IS_POSSIBLE, reason="only root makes control groups")
GROWS = "held = bytearray(300 << 20); print('done')"


def run(group: LimitedGroup, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command inside a group."""
    return subprocess.run([*group.entry, *words], capture_output=True, check=False)


class TestMadeUp:
    def test_limit_of_v2(self, tmp_path: Path) -> None:
        """Memory is limited, and there is no swap where the kernel counts it."""
        group = LimitedGroup(ParentGroup(str(tmp_path), is_v2=True), 3)
        group.folder.mkdir()
        (group.folder / "memory.max").touch()
        group.limit(7 * MIB)
        (group.folder / "memory.swap.max").touch()
        group.limit(7 * MIB)

        assert (group.folder / "memory.max").read_text() == str(7 * MIB)
        assert (group.folder / "memory.swap.max").read_text() == "0"

    def test_counts_of_v2(self, tmp_path: Path) -> None:
        """Killed processes and refaults are read from the group's files."""
        group = LimitedGroup(ParentGroup(str(tmp_path), is_v2=True), 3)
        group.folder.mkdir()
        (group.folder / "memory.events").write_text("low 0\noom 4\noom_kill 2\n")
        (group.folder / "memory.stat").write_text("workingset_refault_anon 0\nworkingset_refault_file 3\n")

        assert group.oom_kills() == 2
        assert group.refaults() == 3 * os.sysconf("SC_PAGE_SIZE")


def test_files_whose_names_are_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of mapped files can be written as JSON, whatever is in them."""
    (tmp_path / "5").mkdir()
    (tmp_path / "5/maps").write_bytes(b"7f0-7f1 r--s 0 fe:00 1 /tmp/\xff\xe2\x80\xa8.bin\n7f2-7f3 rw-p 0 00:00 0 \n")
    monkeypatch.setattr(needs, "PROC", str(tmp_path))

    assert needs.files_of([5]) == {"/tmp/\\xff\u2028.bin"}


@as_root
@pytest.mark.process
class TestReal:
    def test_too_little(self) -> None:
        """A process that needs more than the limit is killed and counted; the group is gone afterwards."""
        with LimitedGroup(parent_group(), 1) as group:
            group.limit(100 * MIB)
            done = run(group, sys.executable, "-S", "-E", "-c", GROWS)
            kills = group.oom_kills()

        assert (done.returncode, done.stdout, kills) == (-signal.SIGKILL, b"", 1)
        assert not group.folder.exists()

    def test_daemon(self) -> None:
        """What a run leaves behind is killed at the end, and the group is removed."""
        with LimitedGroup(parent_group(), 1) as group:
            run(group, "sh", "-c", "sleep 100 >/dev/null 2>&1 &")

            assert len(needs.pids_of(group.folder)) == 1

        assert not group.folder.exists()


def in_cache(file: Path) -> bool:
    """Return whether the first bytes of a file come from the page cache."""
    with file.open("rb") as opened:
        try:
            return bool(os.preadv(opened.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT))
        except BlockingIOError:
            return False


@pytest.mark.skipif(sys.platform != "linux", reason="the page cache of Linux")
def test_dropped(tmp_path: Path) -> None:
    """What has just been written is cached, and is not any more after it was dropped."""
    file = tmp_path / "model.bin"
    file.write_bytes(b"x" * MIB)
    before = in_cache(file)
    needs.drop([str(file)])

    assert before
    if in_cache(file):
        pytest.skip("a file system of memory, which drops nothing")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Make a machine on which this process is in a group of version 2 of its own."""
    made = Machine(tmp_path)
    made.belongs_to_v2({"/job": 0})
    made.proc.joinpath("7").rename(made.proc / str(os.getpid()))
    made.charge("cg/job", "cgroup.procs", os.getpid())
    made.charge("cg/job", "cgroup.subtree_control", "")
    made.charge("cg/job/nncf-tools", "cgroup.procs", "")
    monkeypatch.setattr(needs, "PROC", str(made.proc))
    return made


def limits_refused_in(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Let these groups have no groups with limits inside."""

    def limit(group: LimitedGroup, *_: object) -> None:
        if group.folder.parent in folders:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(LimitedGroup, "limit", limit)


class TestVersion2:
    @pytest.mark.usefixtures("machine")
    def test_delegated(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """In a group that was delegated to us we make room: its processes move, and its groups get the controller."""
        limits_refused_in(monkeypatch, tmp_path / "cg")
        job = tmp_path / "cg/job"

        assert needs.parent_group() == ParentGroup(str(job), is_v2=True)
        assert (job / "nncf-tools/cgroup.procs").read_text() == str(os.getpid())
        assert (job / "cgroup.subtree_control").read_text() == "+memory"

    def test_delegated_before(self, tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        """What an earlier search moved is not moved deeper."""
        limits_refused_in(monkeypatch, tmp_path / "cg")
        machine.charge("cg/job/nncf-tools", V2, 0)
        (machine.proc / str(os.getpid()) / "cgroup").write_text("0::/job/nncf-tools\n")

        assert needs.parent_group() == ParentGroup(str(tmp_path / "cg/job"), is_v2=True)


def test_no_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a memory controller, no group can be made, and the reason is said."""
    monkeypatch.setattr(needs, "PROC", str(Machine(tmp_path).proc))

    with pytest.raises(OSError, match="no memory controller"):
        needs.parent_group()


class TestScope:
    @pytest.fixture
    def systemd(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Make a stand-in for ``systemd-run``, which writes its words to a file and executes the command."""
        program = tmp_path / "bin/systemd-run"
        program.parent.mkdir()
        program.write_text('#!/bin/sh\necho "$@" >> "$0.words"\nwhile [ "$1" != -- ]; do shift; done; shift; "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return program

    @pytest.mark.process
    def test_started_again(self, systemd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """This program is started again in a scope whose name has our PID and when we began."""
        executed: list[list[str]] = []
        monkeypatch.setattr(os, "execvp", lambda _, words: executed.append(words))
        monkeypatch.setattr(sys, "argv", ["nncf-tools", "fit", "--", "a b"])
        needs.start_in_scope()
        [words] = executed
        scope = f"--unit={needs.own_name()}-0.scope"

        assert words[:3] == ["systemd-run", "--user", "--scope"]
        assert words[-7:] == ["--", *running("nncftools"), "fit", "--", "a b"]
        assert scope in words
        assert systemd.with_name("systemd-run.words").read_text().endswith("-- true\n")

    def test_not_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What was started in a scope is not started in another one."""
        name = needs.own_name()
        (tmp_path / "self").mkdir()
        (tmp_path / str(os.getpid())).mkdir()
        (tmp_path / str(os.getpid()) / "stat").write_bytes(Path("/proc/self/stat").read_bytes())
        (tmp_path / "self/cgroup").write_text(f"0::/user.slice/{name}-0.scope\n")
        monkeypatch.setattr(needs, "PROC", str(tmp_path))
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("tried"))

        needs.start_in_scope()


class TestLeftovers:
    def test_removed(self, tmp_path: Path) -> None:
        """Groups whose owner is gone are removed; those of a search that runs, and others, stay."""
        own = LimitedGroup(ParentGroup(str(tmp_path), is_v2=True), 1).folder
        gone = tmp_path / f"nncf-tools-fit-{os.getpid()}-1-2"
        others = [tmp_path / "nncf-tools-fit-else", tmp_path / "job"]
        for folder in (own, gone, *others):
            folder.mkdir()

        assert needs.remove_leftovers(ParentGroup(str(tmp_path), is_v2=True)) == [str(gone)]
        assert {*tmp_path.iterdir()} == {own, *others}

    def test_scopes(self, tmp_path: Path) -> None:
        """The scope of a search that was killed is beside ours, with groups inside."""
        own = tmp_path / f"{needs.own_name()}-0.scope"
        gone = tmp_path / f"nncf-tools-fit-{os.getpid()}-1-0.scope"
        for folder in (own / "nncf-tools", gone / "nncf-tools", gone / f"nncf-tools-fit-{os.getpid()}-1-3"):
            folder.mkdir(parents=True)

        assert needs.remove_leftovers(ParentGroup(str(own), is_v2=True)) == [str(gone)]
        assert [*tmp_path.iterdir()] == [own]
