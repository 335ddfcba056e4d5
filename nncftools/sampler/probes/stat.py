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


class Stat:
    """Resident and virtual size, CPU time in clock ticks (10 ms), page faults, threads, processes."""

    kind = PROCESS
    metrics = ("rss", "vms", "cpu_user", "cpu_system", "minor_faults", "major_faults", "threads", "processes")
    file = "stat"
    source = "/proc/PID/stat"
    cost = "4 µs a process"

    def __init__(self, slot: int) -> None:
        self._slot = slot
        self._retired = (0, 0, 0, 0)
        self.restless: list[Process] = []
        """The processes with page faults since the sample before."""

    def read(self, processes: Sequence[Process]) -> tuple[float | None, float | None, float, float, int, int, int, int]:
        """Return the sums in bytes, seconds and counts; memory is None when only zombies are left.

        Parents are read before their children: a child that is reaped in between is missing from one sample, but never
        counted twice.
        """
        slot = self._slot
        pread = os.pread
        user, system, minor, major = self._retired
        rss = vms = threads = count = 0
        self.restless = restless = []
        for process in processes:
            try:
                data = pread(process.files[slot], SMALL, 0)
            except OSError:
                data = process.read_slot(slot)
                if not data:
                    continue
            fields = data[data.rindex(b")") + 2 :].split(b" ", _RSS + 1)
            own_user, own_system = int(fields[11]), int(fields[12])
            user += own_user + int(fields[13])
            system += own_system + int(fields[14])
            own_minor, own_major = int(fields[7]), int(fields[9])
            minor += own_minor + int(fields[8])
            major += own_major + int(fields[10])
            process.cpu_ticks = own_user + own_system
            faults = own_minor + own_major
            if faults != process.faults:
                process.faults_before, process.rss_before = process.faults, process.rss
                process.faults = faults
                restless.append(process)
            resident = int(fields[_RSS])
            process.rss = resident
            if not (resident and process.counted):  # it is ending and has freed its memory, or shares it
                continue
            rss += resident
            vms += int(fields[20])
            process.thread_count = int(fields[17])
            threads += process.thread_count
            count += 1
            process.samples += 1
            if resident > process.peak_rss:  # noqa: PLR1730 — max() costs 60 ns more, for each process at each sample
                process.peak_rss = resident
        memory = (rss * PAGE, vms) if count else (None, None)
        return *memory, user / TICKS_PER_S, system / TICKS_PER_S, minor, major, threads, count

    def retire(self, process: Process) -> None:
        """Add the CPU time and faults of a child of ours that has ended: its file is readable until it is reaped."""
        _, _, user, system, minor, major, _, _ = self.read([process])
        self._retired = (round(user * TICKS_PER_S), round(system * TICKS_PER_S), minor, major)
