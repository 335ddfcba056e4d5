"""Which function of the script itself was at work while memory rose."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nncftools.session.session import Session

_NO_FUNCTION = "<"
"""With what the names of modules, lambdas and comprehensions begin."""


def busiest(session: Session) -> str:
    """Return the innermost function of the command's own script that most stacks have; empty if none has one."""
    snapshots = session.snapshots
    scripts = {PurePath(word).name for word in session.command if word.endswith(".py")}
    counts: Counter[str] = Counter()
    for stack in () if snapshots is None or not scripts else snapshots.stacks:
        frames = [snapshots.frames[number] for number in stack] if snapshots is not None else []
        own = [one.function for one in frames if PurePath(one.file).name in scripts]
        named = [name for name in own if not name.startswith(_NO_FUNCTION)]
        counts.update(named[-1:])
    return counts.most_common(1)[0][0] if counts else ""
