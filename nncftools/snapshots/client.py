"""Starts the helper from the process that starts a recording, and ends it.

Nothing here raises or waits for more than a second: without the helper, only stacks and mappings are missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from nncftools.journal.writing import Plan
from nncftools.sampler.target import readable
from nncftools.sampler.tree import DETACHED_ARGUMENT

if TYPE_CHECKING:
    from nncftools.snapshots.helper import Order

_MAIN = pathlib.Path(__file__).parent / "__main__.py"
_YAMA = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
_STATUS = pathlib.Path("/proc/self/status")
_CAP_SYS_PTRACE = 19
_PATIENCE_S = 1.0
DEFAULT_SHARE = 0.01
LEAST_S = 0.5
"""The CPU seconds that short runs may take; fewer or more when the share is below or above the default."""
ONLY_PARENTS, ONLY_ADMINISTRATORS = 1, 2


class StackAccess(NamedTuple):
    """What may be read of the command's processes."""

    is_allowed: bool
    """Whether stacks can be taken."""
    missing: str | None = None
    """Why no stacks are taken, or not of every program; None when nothing is in the way."""
    needs_ptrace: bool = False
    """Whether the processes must allow it themselves."""


def stack_access(*, with_hook: bool) -> StackAccess:
    """Return what may be read here; ``with_hook``: the hook runs in the command's Pythons, and can allow it."""
    if sys.platform != "linux":
        return StackAccess(is_allowed=False, missing="stacks are read on Linux only")
    scope = 0
    with contextlib.suppress(OSError, ValueError):  # a kernel without yama
        scope = int(_YAMA.read_text("ascii"))
    if scope < ONLY_PARENTS or _may_trace_all():
        return StackAccess(is_allowed=True)
    why = f"the kernel does not allow it (kernel.yama.ptrace_scope is {scope})"
    if scope >= ONLY_ADMINISTRATORS:
        return StackAccess(is_allowed=False, missing=f"{why}: run as root, or set it to 0 with sysctl")
    if with_hook:
        return StackAccess(is_allowed=True, missing=f"{why}, except of Pythons that load the hook", needs_ptrace=True)
    missing = f"{why}: use `nncf-tools profile`, run as root, or `sysctl kernel.yama.ptrace_scope=0`"
    return StackAccess(is_allowed=False, missing=missing)


def _may_trace_all() -> bool:
    """Return whether this process has CAP_SYS_PTRACE (capabilities(7))."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        effective = int(_STATUS.read_text("ascii").partition("\nCapEff:")[2].split(None, 1)[0], 16)
        return bool(effective >> _CAP_SYS_PTRACE & 1)
    return False


class Helper:
    """A helper process, from its start to its end."""

    def __init__(self, log: int | None, *, detached: bool = False) -> None:
        """Start it, with ``log`` as the descriptor to append to; start nothing without one.

        It has a session of its own: no Ctrl-C reaches it. A ``detached`` one is no part of the tree that it watches.
        """
        self._process: subprocess.Popen[bytes] | None = None
        if log is None:
            return
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_MAIN), str(log), *([DETACHED_ARGUMENT] if detached else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(log,),
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        """Its PID; None when it could not be started."""
        return None if self._process is None else self._process.pid

    def follow(self, sampler: int, plan: Plan, stack_access: StackAccess, budget: float) -> None:
        """Tell it what to watch, with ``budget`` as the share of one core's time that it may take."""
        order: Order = {
            "sampler": sampler,
            "pid": plan.pid,
            "children": plan.children,
            "duration_s": plan.duration_s,
            "stacks": stack_access.is_allowed,
            "missing": stack_access.missing,
            "share": budget,
            "least_s": LEAST_S * budget / DEFAULT_SHARE,
        }
        self._send(json.dumps(order).encode() + b"\n")

    def _send(self, data: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended
                os.write(self._process.stdin.fileno(), data)

    def close(self) -> None:
        """End it; it has a second to write what it still has."""
        self._send(b"end\n")
        process, self._process = self._process, None  # now: Ctrl-C may end the wait
        if process is None:
            return
        assert process.stdout is not None
        at_end: list[int] = []
        with contextlib.suppress(OSError), process:  # closes the pipes, and waits
            try:
                at_end = readable([process.stdout.fileno()], _PATIENCE_S)
            finally:
                if not at_end:
                    os.killpg(process.pid, signal.SIGKILL)
