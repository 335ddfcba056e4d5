"""Evidence of deaths that is left on the machine after a recording, also when the sampler died.

The kernel's log (for root only) says which processes it killed because memory ran out (mm/oom_kill.c). Two lines name a
victim: ``oom-kill:constraint=CONSTRAINT_MEMCG,…,oom_memcg=/job,…,task=python3,pid=4711,uid=0`` has the control group
whose limit was reached; ``Memory cgroup out of memory: Killed process 4711 (python3) total-vm:…kB, anon-rss:…kB,
file-rss:…kB, shmem-rss:…kB`` has what it held.
"""

from __future__ import annotations

import os
import pathlib
import re
import signal
from collections.abc import Collection, Iterable, Iterator

from nncftools.limits.verdict import deaths
from nncftools.sampler.control_groups import oom_kills_in
from nncftools.session.model import KernelKill, OomKills
from nncftools.session.session import Session

LOG = "/dev/kmsg"
_RECORD = 8192
"""A record is at most this long (Documentation/ABI/testing/dev-kmsg)."""
_FIRST_NAMESPACE = 0xEFFFFFFC
"""The inode of the first PID namespace (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""
_EARLIER_NS = 1_000_000_000
"""The log's clock does not stop where CLOCK_MONOTONIC does, and begins a little earlier."""
_CHOSEN = re.compile(r"oom-kill:constraint=(\w+).*?(?:,oom_memcg=([^,]*))?,task_memcg=.*,pid=(\d+),uid=")
_KILLED = re.compile(
    r"[Kk]illed process (\d+) \((.*)\) total-vm:\d+kB, anon-rss:(\d+)kB, file-rss:(\d+)kB, shmem-rss:(\d+)kB"
)


def kernel_kills(pids: Collection[int], since_ns: int, log: str = LOG) -> list[KernelKill] | None:
    """Return the victims among ``pids`` since a moment on CLOCK_MONOTONIC; None when the log cannot be read."""
    try:
        if pathlib.Path("/proc/self/ns/pid").stat().st_ino != _FIRST_NAMESPACE:  # the log has other PIDs than we see
            return None
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    return list(_kills(_records(descriptor, since_ns - _EARLIER_NS), pids))


def _records(descriptor: int, since_ns: int) -> Iterator[str]:
    try:
        while True:
            try:
                data = os.read(descriptor, _RECORD)
            except BrokenPipeError:  # older records were overwritten meanwhile
                continue
            if not data:
                return
            for line in data.decode(errors="replace").splitlines():
                head, _, text = line.partition(";")
                fields = head.split(",")
                if len(fields) > 2 and fields[2].isdigit() and int(fields[2]) * 1000 >= since_ns:  # noqa: PLR2004 — µs are third
                    yield text
    except OSError:  # EAGAIN: no more records
        return
    finally:
        os.close(descriptor)


def _kills(records: Iterable[str], pids: Collection[int]) -> Iterator[KernelKill]:
    groups: dict[int, str | None] = {}
    for text in records:
        if chosen := _CHOSEN.search(text):
            is_of_group = chosen[1] == "CONSTRAINT_MEMCG"
            groups[int(chosen[3])] = (chosen[2] or "") if is_of_group else None
        elif (killed := _KILLED.search(text)) and int(killed[1]) in pids:
            anon, file, shmem = (int(size) * 1024 for size in killed.groups()[2:])
            pid = int(killed[1])
            group = groups.get(pid, "" if "cgroup out of memory" in text else None)
            yield KernelKill(pid=pid, name=killed[2], group=group, anon=anon, file=file, shmem=shmem)


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
    last_s = max(session.samples.time_s, default=0.0)
    later = []
    for group in session.control_groups:
        now = oom_kills_in(group.folder)
        known = sum(rise.count for rise in session.oom_kills if rise.group == group.folder)
        if now is not None and group.oom_kills is not None and now > group.oom_kills + known:
            count = now - group.oom_kills - known
            later.append(OomKills(group=group.folder, from_s=last_s, to_s=session.duration_s, count=count))
    session.oom_kills = [*session.oom_kills, *later]
