"""Starts and stops the helper that reads stacks and mappings.

If the helper fails, only stacks and mappings are missing. So no function here raises an error, and no function waits
for more than a second.
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

from nncftools.files import HELPER_PROCESS
from nncftools.journal.writing import Plan
from nncftools.sampler.target import wait_readable
from nncftools.sampler.tree import DETACHED_ARGUMENT

if TYPE_CHECKING:
    from nncftools.snapshots.helper import Order

_YAMA = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
_STATUS = pathlib.Path("/proc/self/status")
_CAP_SYS_PTRACE = 19
_PATIENCE_S = 1.0
DEFAULT_SHARE = 0.01
LEAST_S = 0.5
"""The CPU seconds that the helper may use even in a short run, if its budget is 1 % of a core's time (the default). For
a different budget, the seconds change in proportion.
"""
ONLY_PARENTS = 1
ONLY_ADMINISTRATORS = 2


class StackAccess(NamedTuple):
    """Whether the helper may read stacks of the command's processes."""

    is_allowed: bool
    missing: str | None = None
    """The reason why the stacks of some or all programs are missing. None if all stacks can be read."""
    needs_ptrace: bool = False
    """Whether each process must allow the helper to read its memory."""


def stack_access(*, with_hook: bool) -> StackAccess:
    """Return whether the helper may read stacks on this machine.

    ``with_hook``: whether every Python process of the command loads our hook (a module that runs when Python starts).
    The hook can allow the helper to read the memory of its process.
    """
    if sys.platform != "linux":
        return StackAccess(is_allowed=False, missing="stacks are read on Linux only")
    scope = 0
    with contextlib.suppress(OSError, ValueError):  # the kernel has no Yama
        scope = int(_YAMA.read_text("ascii"))
    if scope < ONLY_PARENTS or _may_trace_all():
        return StackAccess(is_allowed=True)
    why = f"the kernel forbids reading stacks (kernel.yama.ptrace_scope is {scope})"
    if scope >= ONLY_ADMINISTRATORS:
        return StackAccess(is_allowed=False, missing=f"{why}: run as root, or set ptrace_scope to 0 with sysctl")
    if with_hook:
        missing = f"{why}, except for Pythons that load the hook"
        return StackAccess(is_allowed=True, missing=missing, needs_ptrace=True)
    missing = f"{why}: use `nncf-tools profile`, run as root, or `sysctl kernel.yama.ptrace_scope=0`"
    return StackAccess(is_allowed=False, missing=missing)


def _may_trace_all() -> bool:
    """Return whether this process has CAP_SYS_PTRACE (capabilities(7))."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        following = _STATUS.read_text("ascii").partition("\nCapEff:")[2]
        return bool(int(following.split(None, 1)[0], 16) >> _CAP_SYS_PTRACE & 1)
    return False


class Helper:
    """The helper process that reads stacks and mappings."""

    def __init__(self, log: int | None, *, detached: bool = False) -> None:
        """Start the process, and let the process append to the descriptor ``log``. If ``log`` is None, start nothing.

        The process has a session of its own, so Ctrl-C does not reach the process. A ``detached`` helper is not part of
        the process tree that the helper watches.
        """
        self._process: subprocess.Popen[bytes] | None = None
        if log is None:
            return
        command = [sys.executable, "-I", "-S", HELPER_PROCESS, "stacks", str(log)]
        if detached:
            command.append(DETACHED_ARGUMENT)
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(log,),
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        """The process ID; None if the helper could not be started."""
        return None if self._process is None else self._process.pid

    def follow(self, sampler: int, plan: Plan, stack_access: StackAccess, budget: float) -> None:
        """Ask the helper to watch a recording. ``sampler`` is the PID of the sampler.

        ``budget`` is the largest share of a core's time (0 to 1) that the helper may use.
        """
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
            with contextlib.suppress(OSError):  # the helper has ended
                os.write(self._process.stdin.fileno(), data)

    def close(self) -> None:
        """Stop the process. The helper has a second to write the rest of its log."""
        self._send(b"end\n")
        process = self._process
        self._process = None  # before the wait, because Ctrl-C may interrupt the wait
        if process is None:
            return
        assert process.stdout is not None
        is_closed: list[int] = []
        with contextlib.suppress(OSError), process:  # ``with process`` closes the pipes, and waits
            try:
                is_closed = wait_readable([process.stdout.fileno()], _PATIENCE_S)
            finally:
                if not is_closed:
                    os.killpg(process.pid, signal.SIGKILL)
