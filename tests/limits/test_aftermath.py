from __future__ import annotations

import pathlib
import signal

import pytest

from nncftools.limits import aftermath
from nncftools.session.model import ControlGroup, Exit, KernelKill
from tests.limits.deaths import KILLED, counted, logged, run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """Return the PIDs for which the kernel's log was read."""
    pids: list[set[int]] = []

    def kernel_kills(of: set[int], _: int) -> list[KernelKill]:
        pids.append(of)
        return [logged()]

    monkeypatch.setattr(aftermath, "kernel_kills", kernel_kills)
    return pids


class TestKernelLog:
    def test_after_a_sigkill(self, asked: list[set[int]]) -> None:
        """The log is asked about all processes of a run in which one was killed."""
        session = run(KILLED)
        aftermath.take_kernel_log(session)

        assert (session.kernel_kills, asked) == ([logged()], [{100}])

    @pytest.mark.parametrize("end", [Exit(code=0), Exit(signal=signal.SIGTERM)])
    def test_not_without_a_reason(self, asked: list[set[int]], end: Exit) -> None:
        """It is not read when nothing was killed."""
        aftermath.take_kernel_log(run(end))

        assert asked == []

    def test_after_a_rise(self, asked: list[set[int]]) -> None:
        """A rise of a group's count is a reason, too: an ordinary user does not see how children ended."""
        aftermath.take_kernel_log(run(Exit(code=0), oom_kills=[counted()]))

        assert len(asked) == 1


class TestCounts:
    def test_after_the_sampler(self, tmp_path: pathlib.Path) -> None:
        """What the count of a group rose after the last one that the sampler saw happened after its last sample."""
        (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")
        group = ControlGroup(folder=str(tmp_path), oom_kills=4)
        session = run(KILLED, control_groups=[group], oom_kills=[counted()], duration_s=1.2)
        session.oom_kills = [rise for rise in session.oom_kills if rise.group == str(tmp_path)]
        aftermath.take_counts(session)

        assert [(rise.from_s, rise.to_s, rise.count) for rise in session.oom_kills] == [(1.0, 1.2, 3)]

    def test_group_that_is_gone(self, tmp_path: pathlib.Path) -> None:
        """A group that was removed says nothing."""
        session = run(KILLED, control_groups=[ControlGroup(folder=str(tmp_path / "gone"), oom_kills=0)])
        aftermath.take_counts(session)

        assert session.oom_kills == []
