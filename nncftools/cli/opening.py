"""From a path on the command line to a session with its marks; a long read shows a progress bar on a terminal."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nncftools import intake
from nncftools.analysis.session import Session
from nncftools.cli import destination, options
from nncftools.errors import UsageError
from nncftools.journal import reading
from nncftools.journal.reading import MARKS_ENDING, SIDECARS, find_sidecar
from nncftools.redaction import Redaction
from nncftools.session.recording import Tail
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from rich.progress import Progress

_AFTER_S = 2.0
"""A shorter read shows no bar."""


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield a callback for the bytes read so far and the total (None if unknown); without a terminal, yield None."""
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
"""Without it, numpy starts threads for linear algebra when it is imported; they stay idle and cost 0.04 s of CPU.

Commands that open a session start no user program that could inherit it.
"""
_STANDARD_INPUT = pathlib.Path("/dev/stdin")


def open_sessions(
    paths: Sequence[pathlib.Path],
    log_dir: pathlib.Path,
    sidecars: Sequence[pathlib.Path] = (),
    forced: str | None = None,
) -> Session:
    """Return one session, as ``open_session`` does, or several ranks of a job merged into one.

    Sidecars among several paths, matched by the same pattern, are skipped. Raises NncfToolsError.
    """
    parts = [path for path in paths if not path.name.endswith(SIDECARS)] or paths
    twice = destination.find_duplicate(parts)
    if twice is not None:
        raise UsageError(f"argument SESSION: {str(twice)!r} is given twice; a recording counts once")
    if len(parts) <= 1:
        return open_session(parts[0] if parts else None, log_dir, sidecars, forced)
    from nncftools.analysis import ranks as analysis_ranks

    ranks = {str(path): open_session(path, log_dir, forced=forced) for path in parts}
    with options.naming_remedy(compare="; `nncf-tools compare` shows how runs differ"):
        session = analysis_ranks.merged(ranks)
    session.warnings[:0] = _verdicts(ranks, session)
    _add_enclosing(session, sidecars)
    return session


def files_read(paths: Sequence[pathlib.Path], log_dir: pathlib.Path) -> list[pathlib.Path]:
    """Return the files that ``open_sessions`` may read, with the sidecars beside them. Raises NncfToolsError."""
    files = [destination.find_recording(path, log_dir) for path in paths or [log_dir]]
    return [*files, *filter(None, map(find_sidecar, files)), _STANDARD_INPUT]


def open_session(
    path: pathlib.Path | None, log_dir: pathlib.Path, sidecars: Sequence[pathlib.Path] = (), forced: str | None = None
) -> Session:
    """Return the session in a file, in standard input (``-``), or in another tool's log.

    A folder stands for its newest session, None and ``latest`` for the newest in ``log_dir``, ``latest~1`` for the one
    before it. ``forced`` names the tool that wrote a
    log; by default it is recognised. Marks of a sidecar beside the file replace the file's own; the operations of
    ``sidecars`` are placed around them. Raises NncfToolsError.
    """
    from nncftools.importers.source import read_session

    if path is None:
        file = destination.find_newest(log_dir)
    elif str(path) == "-":
        file = _STANDARD_INPUT
    else:
        file = destination.find_recording(path, log_dir)
        destination.check_exists(file, log_dir)
    with options.naming_option("--from"), _progress(file.name) as on_progress:
        session = read_session(file, forced, on_progress)
    if session.finished is False and session.host.boot_id:
        from nncftools.limits import verdict
        from nncftools.sampler.client import boot_id

        if session.host.boot_id == boot_id():  # the machine still runs: its kernel's log may say more
            verdict.take_kernel_log(session)
    beside = find_sidecar(file)
    if beside is not None:
        _take_beside(session, beside, file)
    _add_enclosing(session, sidecars)
    return session


def _verdicts(ranks: Mapping[str, Session], job: Session) -> Iterator[str]:
    """Yield why processes of ranks died, but for those that were ended because another rank had failed."""
    from nncftools.limits.judges import is_consequence, verdict
    from nncftools.render.peak_lines import headline

    for path, session in ranks.items():
        why = verdict(session, MemoryUnit.MiB)
        name = path if session.rank is None else f"rank {session.rank.number}"
        if why is not None and not is_consequence(why, name, job):
            yield f"{name}: {headline(why)}"


def _take_beside(session: Session, sidecar: pathlib.Path, file: pathlib.Path) -> None:
    from nncftools.reading_marks import collecting

    if sidecar.name.endswith(MARKS_ENDING) and file.name.endswith(destination.JOURNAL_ENDING):
        with reading.reader(file) as journal:
            redaction = Redaction(Tail(journal, str(file)).plan.redact)
        with intake.open_file(sidecar) as log:
            collecting.take_log(session, log, sidecar.name, redaction)
    else:
        session.marks = collecting.read_sidecar(sidecar, session)


def _add_enclosing(session: Session, sidecars: Sequence[pathlib.Path]) -> None:
    for sidecar in sidecars:
        from nncftools.reading_marks import collecting

        collecting.add_enclosing(session, collecting.read_sidecar(sidecar, session))
