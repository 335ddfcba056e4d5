"""Files of code, and recordings whose stacks stand in them."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nncftools.intake import Redaction
from nncftools.session.model import Frame, Process, Snapshots, Start, WatchedProcess
from nncftools.session.snapshots import take_sources
from tests.made_up import process, session
from tests.made_up_stacks import window

CODE = "first = 1\nsecond = make(2)\n"
OURS = os.geteuid()


def taken(  # noqa: PLR0913 — one parameter per fact of a run
    path: object,
    *lines: int,
    after_s: float = 10.0,
    user: int | None = OURS,
    processes: list[Process] | None = None,
    others: Sequence[Process] = (),
    redact: tuple[str, ...] | None = (),
    own: Callable[[str], bool] = lambda _: True,
) -> dict[int, str]:
    """Return the texts of lines (2 by default) of a file; the recording began ``after_s`` later than now.

    All ``processes`` ran this code, and the ``others`` did not.
    """
    listed = [process()] if processes is None else processes
    numbers = lines or (2,)
    watched = [
        WatchedProcess(process=of.id, pid=1, user=user, windows=[window(1, (0.0, 0), to_s=1.0)]) for of in listed
    ]
    frames = [Frame("f", str(path), line) for line in numbers]
    made = session(
        processes=[*others, *listed],
        start=Start(utc=dt.datetime.fromtimestamp(time.time() + after_s, dt.timezone.utc).isoformat(), monotonic_ns=5),
        snapshots=Snapshots(frames=frames, stacks=[list(range(len(frames)))], processes=watched),
    )
    take_sources(made, Redaction(redact), own)
    assert made.snapshots is not None
    return made.snapshots.sources.get(str(path), {})


def written(path: Path, text: str | bytes = CODE, mode: int = 0o644, owner: int = OURS) -> Path:
    """Write a file of code, and the folders above."""
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    if owner != OURS:
        os.chown(path, owner, owner)
    return path


def linked(path: Path, target: Path, owner: int = OURS) -> Path:
    """Make a symbolic link of a user."""
    path.symlink_to(target)
    if owner != OURS:
        os.lchown(path, owner, owner)
    return path
