"""``/proc/PID/status``: the parts of RSS, swap, and the high-water mark VmHWM (proc(5), in kB of 1,024 bytes)."""

from __future__ import annotations

from nncftools.sampler.kernel_file import read_all, value_of
from nncftools.sampler.probes import PROCESS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.sampler.tree import Process

_KEYS = (b"\nRssAnon:", b"\nRssFile:", b"\nRssShmem:", b"\nVmSwap:")


class Status:
    """The anonymous, file-backed and shared parts of RSS, and swapped-out memory."""

    kind = PROCESS
    metrics = ("anon", "file", "shmem", "swap")
    file = "status"
    source = "/proc/PID/status"
    cost = "8 µs a process"

    def __init__(self, slot: int) -> None:
        self._slot = slot

    def read(self, processes: Sequence[Process]) -> tuple[int | None, ...]:
        """Return the sums in bytes; None when no process has memory, or on a kernel before 4.5."""
        sums = [0, 0, 0, 0]
        counted = False
        for process in processes:
            try:  # longer than a page for users in many groups
                data = read_all(process.files[self._slot])
            except OSError:
                data = process.read_slot(self._slot)
            if not process.counted or b"\nVmRSS:" not in data:  # a zombie has no VmRSS
                continue
            counted = True
            for place, key in enumerate(_KEYS):
                size = value_of(data, key)
                if size is None:
                    return (None,) * len(_KEYS)
                sums[place] += size
        return tuple(sums) if counted else (None,) * len(_KEYS)

    def retire(self, process: Process) -> None:
        """Keep nothing: a process that has ended holds no memory."""
