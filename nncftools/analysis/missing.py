"""Why a report names no code, or no operations, that were expected: one sentence with the remedy."""

from __future__ import annotations

import re

from nncftools.analysis.session import Session
from nncftools.analysis.summary import UNMARKED, largest_process

_MUCH = 0.2
"""Where no stack was seen of this part of the peak, the report says why."""
_REASONS = {
    "no program whose memory grew runs Python": "",
    r"layout of (Python [\d.]+)t is": "nncf-tools cannot read the stacks of {}, a build without the global lock; use "
    "Python 3.10 to 3.15 with the lock",
    r"layout of (Python 3\.\d) is": "nncf-tools reads neither stacks nor operations of {}; use Python 3.10 to 3.15",
    r"layout of (Python [\d.]+) is": "this nncf-tools cannot read the stacks of {}; use Python 3.10 to 3.15",
    "no symbol _PyRuntime": "nncf-tools cannot read the stacks of this Python; use CPython 3.10 to 3.15",
    "allow reading the stacks of (.+)": "the kernel does not allow reading the memory of {}; run nncf-tools as the "
    "same user, or as root (in a container: with the capability SYS_PTRACE)",
    r"(kernel\.yama\.ptrace_scope is \d)\), except": "{}, and no Python loaded the hook; run nncf-tools as root, or "
    "set it to 0 with sysctl",
    "(the helper process .+|the log of the helper .+)": "{}; record again",
}
"""By a part of the recorder's text, the sentence with the remedy. Other texts of the recorder name it themselves."""


def is_of_python(session: Session) -> bool:
    """Return whether the process that held the most memory is a Python."""
    largest = largest_process(session)
    return largest is not None and largest.process.is_python


def missing_line(session: Session) -> str:
    """Return what is missing, why, and what to do, in one sentence; empty if nothing is missing that was expected.

    Where code lines and operations are missing, the sentence is about the code: often, both have one reason.
    """
    if reason := _missing_code(session):
        return f"code lines are missing: {reason}"
    return next((text for text in session.warnings if text.startswith(UNMARKED)), "")


def _missing_code(session: Session) -> str:
    """Return why no stacks were seen of much of the memory at the peak; empty if stacks were not asked for."""
    snapshots = session.snapshots
    if snapshots is None:
        return ""
    if snapshots.missing is None:
        has_stacks = any(watched.windows for watched in snapshots.processes)
        if has_stacks or not is_of_python(session):
            return ""
        return "no Python process ran for long enough to read its stack (0.1 s); record a longer run"
    from nncftools.analysis.build_up import NOT_SEEN, of_peak  # a run whose stacks are all there does without it

    build_up = of_peak(session)
    if build_up is not None:
        unseen = sum(part.size for part in build_up.parts if part.kind == NOT_SEEN and not part.is_start)
        if unseen < build_up.size * _MUCH:
            return ""
    return _reason(snapshots.missing)


def _reason(text: str) -> str:
    for pattern, sentence in _REASONS.items():
        if match := re.search(pattern, text):
            return sentence.format(*match.groups())
    return text
