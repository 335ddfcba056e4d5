"""Where control groups can be made: made-up trees of version 2, and real groups of version 1 as root."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from nncftools.backports import running
from nncftools.cli.fit import groups
from nncftools.cli.fit.groups import LimitedGroup, ParentGroup
from tests.memory_group import IS_POSSIBLE
from tests.sampler.grouped import V2, Machine

as_root = pytest.mark.skipif(not IS_POSSIBLE, reason="only root makes control groups")


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Make a machine on which this process is in a group of version 2 of its own."""
    made = Machine(tmp_path)
    made.belongs_to_v2({"/job": 0})
    made.proc.joinpath("7").rename(made.proc / str(os.getpid()))
    made.charge("cg/job", "cgroup.procs", os.getpid())
    made.charge("cg/job", "cgroup.subtree_control", "")
    made.charge("cg/job/nncf-tools", "cgroup.procs", "")
    monkeypatch.setattr(groups, "PROC", str(made.proc))
    return made


def limits_refused_in(monkeypatch: pytest.MonkeyPatch, *folders: pathlib.Path) -> None:
    """Let these groups have no groups with limits inside."""

    def limit(group: LimitedGroup, *_: object) -> None:
        if group.folder.parent in folders:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(LimitedGroup, "limit", limit)


class TestVersion2:
    @pytest.mark.usefixtures("machine")
    def test_made_at_the_top(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A group with processes has no others with limits inside, so ours are made at the top."""
        limits_refused_in(monkeypatch)

        assert groups.parent_group().folder == str(tmp_path / "cg")
        assert [path.name for path in (tmp_path / "cg").iterdir()] == ["job"]

    @pytest.mark.usefixtures("machine")
    def test_delegated(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """In a group that was delegated to us we make room: its processes move, and its groups get the controller."""
        limits_refused_in(monkeypatch, tmp_path / "cg")
        job = tmp_path / "cg/job"

        assert groups.parent_group() == ParentGroup(str(job), is_v2=True)
        assert (job / "nncf-tools/cgroup.procs").read_text() == str(os.getpid())
        assert (job / "cgroup.subtree_control").read_text() == "+memory"

    def test_delegated_before(self, tmp_path: pathlib.Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        """What an earlier search moved is not moved deeper."""
        limits_refused_in(monkeypatch, tmp_path / "cg")
        machine.charge("cg/job/nncf-tools", V2, 0)
        (machine.proc / str(os.getpid()) / "cgroup").write_text("0::/job/nncf-tools\n")

        assert groups.parent_group() == ParentGroup(str(tmp_path / "cg/job"), is_v2=True)

    @pytest.mark.usefixtures("machine")
    def test_not_ours(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where neither is allowed, the reason is raised."""
        limits_refused_in(monkeypatch, tmp_path / "cg", tmp_path / "cg/job")

        with pytest.raises(PermissionError):
            groups.parent_group()


def test_no_controller(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a memory controller, no group can be made, and the reason is said."""
    monkeypatch.setattr(groups, "PROC", str(Machine(tmp_path).proc))

    with pytest.raises(OSError, match="no memory controller"):
        groups.parent_group()


class TestScope:
    @pytest.fixture
    def systemd(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
        """Make a stand-in for ``systemd-run``, which writes its words to a file and executes the command."""
        program = tmp_path / "bin/systemd-run"
        program.parent.mkdir()
        program.write_text('#!/bin/sh\necho "$@" >> "$0.words"\nwhile [ "$1" != -- ]; do shift; done; shift; "$@"\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return program

    @pytest.mark.process
    def test_started_again(self, systemd: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """This program is started again in a scope whose name has our PID and when we began."""
        executed: list[list[str]] = []
        monkeypatch.setattr(os, "execvp", lambda _, words: executed.append(words))
        monkeypatch.setattr(sys, "argv", ["nncf-tools", "fit", "--", "a b"])
        groups.start_in_scope()
        [words] = executed
        scope = f"--unit={groups.own_name()}-0.scope"

        assert words[:3] == ["systemd-run", "--user", "--scope"]
        assert words[-7:] == ["--", *running("nncftools"), "fit", "--", "a b"]
        assert scope in words
        assert systemd.with_name("systemd-run.words").read_text().endswith("-- true\n")

    @pytest.mark.process
    def test_no_systemd_of_the_user(self, systemd: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where systemd refuses, nothing is started."""
        systemd.write_text("#!/bin/sh\nexit 1\n")
        monkeypatch.setattr(os, "execvp", lambda *_: pytest.fail("started"))

        groups.start_in_scope()

    def test_not_again(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What was started in a scope is not started in another one."""
        name = groups.own_name()
        (tmp_path / "self").mkdir()
        (tmp_path / str(os.getpid())).mkdir()
        (tmp_path / str(os.getpid()) / "stat").write_bytes(pathlib.Path("/proc/self/stat").read_bytes())
        (tmp_path / "self/cgroup").write_text(f"0::/user.slice/{name}-0.scope\n")
        monkeypatch.setattr(groups, "PROC", str(tmp_path))
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("tried"))

        groups.start_in_scope()


class TestLeftovers:
    def test_removed(self, tmp_path: pathlib.Path) -> None:
        """Groups whose owner is gone are removed; those of a search that runs, and others, stay."""
        own = LimitedGroup(ParentGroup(str(tmp_path), is_v2=True), 1).folder
        gone = tmp_path / f"nncf-tools-fit-{os.getpid()}-1-2"
        others = [tmp_path / "nncf-tools-fit-else", tmp_path / "job"]
        for folder in (own, gone, *others):
            folder.mkdir()

        assert groups.remove_leftovers(ParentGroup(str(tmp_path), is_v2=True)) == [str(gone)]
        assert {*tmp_path.iterdir()} == {own, *others}

    def test_scopes(self, tmp_path: pathlib.Path) -> None:
        """The scope of a search that was killed is beside ours, with groups inside."""
        own = tmp_path / f"{groups.own_name()}-0.scope"
        gone = tmp_path / f"nncf-tools-fit-{os.getpid()}-1-0.scope"
        for folder in (own / "nncf-tools", gone / "nncf-tools", gone / f"nncf-tools-fit-{os.getpid()}-1-3"):
            folder.mkdir(parents=True)

        assert groups.remove_leftovers(ParentGroup(str(own), is_v2=True)) == [str(gone)]
        assert [*tmp_path.iterdir()] == [own]

    @as_root
    @pytest.mark.process
    def test_with_processes(self) -> None:
        """The group of a killed search is removed with all that still runs in it."""
        place = groups.parent_group()
        left = LimitedGroup(place, 9)
        left.folder = pathlib.Path(place.folder) / f"nncf-tools-fit-{os.getpid()}-1-9"
        left.folder.mkdir()
        with subprocess.Popen([*left.entry, "sleep", "100"]) as process:
            while not left.pids():
                pass
            found = groups.remove_leftovers(place)

        assert str(left.folder) in found
        assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("content", "expected"),
    [("Filename Type Size\n", False), ("Filename Type Size\n/dev/zram0 partition 5\n", True), (None, True)],
)
def test_swap(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, content: str | None, *, expected: bool) -> None:
    """A machine has swap if its kernel lists any."""
    if content is not None:
        (tmp_path / "swaps").write_text(content)
    monkeypatch.setattr(groups, "PROC", str(tmp_path))

    assert groups.has_swap() is expected
