"""One process as the helper watches it."""

from __future__ import annotations

import os

from nncftools.snapshots.growth import Growth
from nncftools.snapshots.threads import Threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nncftools.sampler.tree import Process
    from nncftools.snapshots.py_spy import Frame

EXPECTED_S = 0.009
"""The CPU time of the first dump of a process."""


class Watched:
    """A process of the tree: its growth, and the stacks that were seen last."""

    def __init__(self, process: Process, t_ns: int) -> None:
        self.process = process
        self.growth = Growth(t_ns)
        self.anonymous = 0
        """Its resident memory without files and shared memory, in bytes."""
        self.found_ns = t_ns
        self.is_introduced = False
        self.threads = Threads(process.path)
        self._program = self._running_program()
        self.begin_program()

    def begin_program(self) -> None:
        """Know nothing of the program that it runs."""
        self.seen: dict[int, tuple[int, tuple[Frame, ...]]] = {}
        """The last stack of each thread: its number and its frames."""
        self.imports = False
        """Whether it imported a module at the last look."""
        self.looked_ns = 0
        self.needs_blocking = False
        self.may_look = True
        self.look_after_ns = 0
        self.failures = 0
        self.cost_s = EXPECTED_S

    def has_execed(self) -> bool:
        """Return whether it runs another program than at the last call."""
        before, self._program = self._program, self._running_program()
        return before != self._program

    def _running_program(self) -> str:
        try:
            return os.readlink(f"{self.process.path}/exe")
        except OSError:  # it has ended, or belongs to another user
            return ""
