"""Open a session by a path on the command line, with marks.

On a terminal, a long read shows a progress bar.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nncftools import intake
from nncftools.analysis.session import Session
from nncftools.cli import destination, options
from nncftools.errors import UsageError
from nncftools.intake import Redaction
from nncftools.journal import reading
from nncftools.journal.reading import MARKS_ENDING, SIDECARS, find_sidecar
from nncftools.session.recording import Tail
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from rich.progress import Progress

_AFTER_S = 2.0
"""A read that takes longer than this shows a progress bar."""


@contextlib.contextmanager
def _show_progress(name: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield a callback for the number of bytes read so far and the total (None if unknown).

    If standard error is not a terminal, yield None.
    """
    if not sys.stderr.isatty():
        yield None
        return
    begun_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        bar: Progress | None = None

        def show(done: int, total: int | None) -> None:
            nonlocal bar
            if bar is None and time.monotonic() - begun_s > _AFTER_S:
                from rich.console import Console
                from rich.markup import escape
                from rich.progress import Progress

                bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
                bar.add_task(f"Reading {escape(name)}", total=None)
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done, total=total)

        yield show


os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Without this variable, numpy starts idle threads for linear algebra, at a cost of 0.04 s of CPU.

No program of the user inherits the variable: commands that open a session start no program.
"""
_STANDARD_INPUT = Path("/dev/stdin")


def open_sessions(
    paths: Sequence[Path],
    log_dir: Path,
    *,
    sidecars: Sequence[Path] = (),
    tool: str | None = None,
) -> Session:
    """Return the session of a path, like ``open_session``, or the merged session of several paths.

    The sessions of several paths must be ranks of one job. Sidecars (files with marks beside a recording) are skipped
    if there are other paths: a pattern such as ``run*`` matches sidecars, too. Raises NncfToolsError.
    """
    parts = [path for path in paths if not path.name.endswith(SIDECARS)] or paths
    duplicate = destination.find_duplicate(parts)
    if duplicate is not None:
        raise UsageError(f"argument SESSION: {str(duplicate)!r} is given twice; name each recording once")
    if len(parts) <= 1:
        return open_session(parts[0] if parts else None, log_dir, sidecars=sidecars, tool=tool)
    from nncftools.analysis import ranks as analysis_ranks

    ranks = {str(path): open_session(path, log_dir, tool=tool) for path in parts}
    with options.naming_remedy(compare="; `nncf-tools compare` shows how runs differ"):
        session = analysis_ranks.merge_ranks(ranks)
    session.warnings[:0] = _list_verdicts(ranks, session)
    _add_enclosing(session, sidecars)
    return session


def files_read(paths: Sequence[Path], log_dir: Path) -> list[Path]:
    """Return the files that ``open_sessions`` may read, also the sidecars (files with marks beside a recording).

    Raises NncfToolsError.
    """
    files = [destination.find_recording(path, log_dir) for path in paths or [log_dir]]
    return [*files, *filter(None, map(find_sidecar, files)), _STANDARD_INPUT]


def open_session(
    path: Path | None,
    log_dir: Path,
    *,
    sidecars: Sequence[Path] = (),
    tool: str | None = None,
) -> Session:
    """Return the session in a file, in standard input (``-``), or in the log of another tool.

    See ``destination.find_recording`` for folders and for ``latest``, the default. ``tool`` is the tool that wrote a
    log; by default the tool is recognised. If a sidecar (a file with marks) is beside the file, the marks in the
    sidecar replace the marks in the file. Then the operations in the files ``sidecars`` are added; the session's own
    operations become nested in them. Raises NncfToolsError.
    """
    from nncftools.importers.source import read_session

    if path is None:
        file = destination.find_newest(log_dir)
    elif str(path) == "-":
        file = _STANDARD_INPUT
    else:
        file = destination.find_recording(path, log_dir)
        destination.check_exists(file, log_dir)
    with options.naming_option("--from"), _show_progress(file.name) as on_progress:
        session = read_session(file, tool, on_progress)
    if session.finished is False and session.host.boot_id:
        from nncftools.limits import verdict
        from nncftools.sampler.client import boot_id

        if session.host.boot_id == boot_id():  # the kernel's log on this machine may say more
            verdict.take_kernel_log(session)
    sidecar = find_sidecar(file)
    if sidecar is not None:
        _replace_marks(session, sidecar, file)
    _add_enclosing(session, sidecars)
    return session


def _list_verdicts(ranks: Mapping[str, Session], job: Session) -> Iterator[str]:
    """Yield why processes of ranks died, except for ranks that were ended because another rank had failed."""
    from nncftools.limits.judges import is_consequence, verdict
    from nncftools.render.peak_lines import write_verdict

    for path, session in ranks.items():
        why = verdict(session, MemoryUnit.MiB)
        name = path if session.rank is None else f"rank {session.rank.number}"
        if why is not None and not is_consequence(why, name, job):
            yield f"{name}: {write_verdict(why)}"


def _replace_marks(session: Session, sidecar: Path, file: Path) -> None:
    from nncftools.reading_marks import collecting

    if sidecar.name.endswith(MARKS_ENDING) and file.name.endswith(destination.JOURNAL_ENDING):
        with reading.reader(file) as journal:
            plan = Tail(journal, str(file)).plan
        with intake.open_file(sidecar) as log:
            collecting.take_log(session, log, sidecar.name, Redaction(plan.redact))
    else:
        session.marks = collecting.read_sidecar(sidecar, session)


def _add_enclosing(session: Session, sidecars: Sequence[Path]) -> None:
    for sidecar in sidecars:
        from nncftools.reading_marks import collecting

        marks = collecting.read_sidecar(sidecar, session)
        collecting.add_enclosing(session, marks)
