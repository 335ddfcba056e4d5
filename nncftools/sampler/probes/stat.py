"""``/proc/PID/stat``: memory, CPU time, page faults and threads in one read (proc(5)).

CPU time and faults come twice: a process's own, and what the kernel folded into it from reaped children (``cutime``,
``cstime``, ``cminflt``, ``cmajflt``). So the sum over the live tree loses no child whose parent waits for it.
"""

from __future__ import annotations

import os

from nncftools.sampler.kernel_file import PAGE, SMALL, TICKS_PER_S
from nncftools.sampler.probes import PROCESS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.sampler.tree import Process

_RSS = 21
"""Position after the closing parenthesis of the name, which can itself contain spaces and parentheses."""
_NOTHING = (0,) * 8


class Stat:
    """Resident and virtual size, CPU time in clock ticks (10 ms), page faults, threads, processes."""

    kind = PROCESS
    metrics = ("rss", "vms", "cpu_user", "cpu_system", "minor_faults", "major_faults", "threads", "processes")
    file = "stat"
    source = "/proc/PID/stat"
    cost = "4 µs a process"

    def __init__(self, slot: int) -> None:
        self._slot = slot
        self._retired = (0,) * 8
        self._summed = -1
        """How many processes are in ``_sums``; -1 when these are to be made again."""
        self._sums: tuple[float | None, ...] = ()
        self.restless: list[Process] = []
        """The processes with page faults since the sample before."""

    def read(self, processes: Sequence[Process]) -> tuple[float | None, ...]:
        """Return the sums in bytes, seconds and counts; memory is None when only zombies are left.

        Parents are read before their children: a child that is reaped in between is missing from one sample, but never
        counted twice. Of a process that sleeps, the file is the same, and is not taken apart again.
        """
        slot = self._slot
        pread = os.pread
        has_changed = len(processes) != self._summed
        self.restless = restless = []
        for process in processes:
            try:
                data = pread(process.files[slot], SMALL, 0)
            except OSError:
                data = process.read_slot(slot)
            if data == process.data[slot]:
                process.samples += process.parts[slot][-1]
                continue
            has_changed = True
            process.data[slot] = data
            if not data:
                process.parts[slot] = _NOTHING
                continue
            fields = data[data.rindex(b")") + 2 :].split(b" ", _RSS + 1)
            own_user, own_system = int(fields[11]), int(fields[12])
            own_minor, own_major = int(fields[7]), int(fields[9])
            process.cpu_ticks = own_user + own_system
            faults = own_minor + own_major
            if faults != process.faults:
                process.faults_before, process.rss_before = process.faults, process.rss
                process.faults = faults
                restless.append(process)
            resident = int(fields[_RSS])
            process.rss = resident
            user, system = own_user + int(fields[13]), own_system + int(fields[14])
            minor, major = own_minor + int(fields[8]), own_major + int(fields[10])
            if not (resident and process.counted):  # it is ending and has freed its memory, or shares it
                process.parts[slot] = 0, 0, user, system, minor, major, 0, 0
                continue
            process.thread_count = int(fields[17])
            process.parts[slot] = resident, int(fields[20]), user, system, minor, major, process.thread_count, 1
            process.samples += 1
            if resident > process.peak_rss:  # noqa: PLR1730 — max() costs 60 ns more, for each process at each sample
                process.peak_rss = resident
        if has_changed:
            parts = [process.parts[slot] for process in processes]
            rss, vms, user, system, minor, major, threads, count = map(sum, zip(self._retired, *parts, strict=True))
            memory = (rss * PAGE, vms) if count else (None, None)
            self._sums = *memory, user / TICKS_PER_S, system / TICKS_PER_S, minor, major, threads, count
            self._summed = len(processes)
        return self._sums

    def repeat(self, processes: Sequence[Process], times: int) -> None:
        """Count further samples that were as the last one."""
        for process in processes:
            process.samples += times * process.parts[self._slot][-1]

    def retire(self, process: Process) -> None:
        """Add the CPU time and faults of a child of ours that has ended: its file is readable until it is reaped."""
        self.read([process])
        self._summed = -1
        before, last = self._retired, process.parts[self._slot]
        user, system, minor, major = (sum(pair) for pair in zip(before[2:6], last[2:6], strict=True))
        self._retired = (0, 0, user, system, minor, major, 0, 0)
