"""Evidence of deaths that is left on the machine after a recording, also when the sampler died."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from nncftools.limits.deaths import deaths
from nncftools.limits.kernel_log import kernel_kills
from nncftools.sampler.control_groups import oom_kills_in
from nncftools.session.model import OomKills

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.session.session import Session


def take_kernel_log(session: Session) -> None:
    """Add what the kernel's log says of processes of a run that may have been killed."""
    is_unsure = session.exit is None or bool(session.oom_kills)
    if session.start.monotonic_ns is None:
        return
    if is_unsure or any(death.number == signal.SIGKILL for death in deaths(session)):
        pids = {process.pid for process in session.processes if process.pid is not None}
        session.kernel_kills = kernel_kills(pids, session.start.monotonic_ns)


def take_counts(session: Session) -> None:
    """Add the processes that the kernel killed in control groups after the sampler was lost."""
    session.oom_kills = [*session.oom_kills, *_later(session)]


def _later(session: Session) -> Iterator[OomKills]:
    last_s = max(session.samples.time_s, default=0.0) if len(session.samples) else 0.0
    for group in session.control_groups:
        now = oom_kills_in(group.folder)
        known = sum(rise.count for rise in session.oom_kills if rise.group == group.folder)
        if now is not None and group.oom_kills is not None and now > group.oom_kills + known:
            count = now - group.oom_kills - known
            yield OomKills(group=group.folder, from_s=last_s, to_s=session.duration_s, count=count)
