"""``MemoryMonitor`` and ``memory_monitor_context``: memory of this program over time."""

from __future__ import annotations

import atexit
import contextlib
import os
import pathlib
from array import array
from math import isnan
from typing import TYPE_CHECKING

from nncftools.api.memory_type import MemoryType
from nncftools.api.recorder import Recorder
from nncftools.session import launcher
from nncftools.units import MemoryUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Self

    from nncftools.session.session import Session

    Path = str | os.PathLike[str]

_FROM_ZERO = "_from-zero"


class MemoryMonitor:
    """Records one type of memory of this program, in a separate process that no native call delays.

    Use ``start`` and ``stop``, or a ``with`` block. Several monitors may run at once; no figure includes a monitor.
    """

    def __init__(
        self,
        interval: float = 0.1,
        memory_type: MemoryType = MemoryType.RSS,
        memory_unit: MemoryUnit = MemoryUnit.MiB,
        include_child_processes: bool | None = None,  # noqa: FBT001 — the signature that users of NNCF's monitor know
    ) -> None:
        """Prepare to sample every ``interval`` seconds; ``include_child_processes=False`` leaves descendants out.

        SYSTEM and CGROUP always cover the whole machine or control group. Raises ValueError for an interval that is not
        between 1 ms and a year.
        """
        self.interval = interval
        self.memory_type = MemoryType(memory_type)
        self.memory_unit = MemoryUnit(memory_unit)
        self._recorder = Recorder([self.memory_type], interval, children=include_child_processes is not False)

    def start(self, at_exit_fn: Callable[[], object] | None = None) -> Self:
        """Start, and return after the first sample, the baseline.

        ``at_exit_fn`` is called when the interpreter exits, after all data is read. Raises RuntimeError if the monitor
        is already running, NncfToolsError if nothing can be recorded.
        """
        if self._recorder.is_running:
            raise RuntimeError("the monitor is already running; stop it first, or use another one")
        self._recorder.start()
        _started[self] = (os.getpid(), at_exit_fn)
        return self

    def stop(self) -> None:
        """End the recording; does nothing if none is running."""
        self._recorder.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def session(self) -> Session | None:
        """The recording so far; None before the start."""
        return self._recorder.session

    def get_data(self, memory_from_zero: bool = False) -> tuple[list[float], list[float]]:  # noqa: FBT001, FBT002 — the signature that users know
        """Return times in seconds since the start and memory in the monitor's unit, also while it runs.

        Both lists are empty if nothing was recorded. Samples with unknown memory are left out. ``memory_from_zero``
        subtracts the first value from all values.
        """
        session = self.session
        return (
            ([], [])
            if session is None
            else values_of(session, self.memory_type, self.memory_unit, from_zero=memory_from_zero)
        )

    def save_memory_logs(
        self,
        time_values: Sequence[float],
        memory_values: Sequence[float],
        save_dir: Path,
        plot_title: str = "",
        filename_suffix: str = "",
    ) -> None:
        """Write ``{type}_memory_usage{suffix}.txt`` and ``.png`` to the folder ``save_dir``; make it if it is missing.

        In a job, the rank comes before the suffix: ``rss_memory_usage-rank0_from-zero.txt``.

        The text has a row ``time value`` per sample, then ``Total time`` in seconds and ``Max memory`` in the monitor's
        unit. Without data it says so, and no picture is drawn. Raises OSError, and ValueError for lists of unequal
        length.
        """
        from nncftools.render.exports import memory_log

        folder, stem = pathlib.Path(save_dir), self._file_stem(filename_suffix)
        folder.mkdir(parents=True, exist_ok=True)
        memory_log.write_rows(time_values, memory_values, self.memory_unit, folder / f"{stem}.txt")
        if len(time_values):
            session = _session_of(self.memory_type, self.memory_unit, time_values, memory_values)
            self._draw(session, folder / f"{stem}.png", plot_title)

    def _file_stem(self, suffix: str) -> str:
        return f"{self.memory_type}_memory_usage{launcher.suffix(os.environ)}{suffix}"

    def save_memory_plot(self, log_filepath: Path, plot_title: str = "", filename_suffix: str = "") -> None:
        """Draw a log of ``save_memory_logs`` to ``{type}_memory_usage{suffix}.png`` in the same folder.

        Lines that cannot be read are skipped. Raises OSError, and NncfToolsError if the file is not such a log.
        """
        from nncftools.importers import nncf
        from nncftools.importers.source import Source

        log = pathlib.Path(log_filepath)
        with Source(log) as source:
            session = nncf.read(source, self.memory_type, self.memory_unit)
        self._draw(session, log.with_name(f"{self._file_stem(filename_suffix)}.png"), plot_title)

    def _draw(self, session: Session, picture: pathlib.Path, title: str) -> None:
        from nncftools.render.pictures import plot
        from nncftools.render.view import View, label

        plot.draw(session, View([self.memory_type], self.memory_unit, title=title or label(self.memory_type)), picture)


_started: dict[MemoryMonitor, tuple[int, Callable[[], object] | None]] = {}
"""For each monitor: the PID that started it (forked children exit, too) and its ``at_exit_fn``."""


@atexit.register
def _finish_all() -> None:
    """End all recordings before any callback draws, because drawing takes memory."""
    for monitor in _started:
        monitor.stop()
    for owner, at_exit_fn in _started.values():
        if at_exit_fn is not None and owner == os.getpid():
            at_exit_fn()


class _Data(dict[MemoryType, "float | tuple[list[float], list[float]]"]):
    """By type of memory: the maximum, or times and values; filled when the block ends."""


@contextlib.contextmanager
def memory_monitor_context(
    interval: float = 0.1,
    memory_unit: MemoryUnit = MemoryUnit.MiB,
    return_max_value: bool = True,  # noqa: FBT001, FBT002 — the signature that users of NNCF's monitor know
    save_dir: Path | None = None,
) -> Iterator[_Data]:
    """Record RSS and SYSTEM of this program during the block, with one sampler.

    Yields a dictionary that is filled when the block ends, also by an exception. By ``MemoryType`` it holds the largest
    value above the first sample, in ``memory_unit``; with ``return_max_value=False`` lists of seconds and values. With
    ``save_dir``, logs and pictures of both types, absolute and from zero, are written there. Raises NncfToolsError if
    nothing can be recorded, ValueError for an interval that is not between 1 ms and a year.
    """
    types = (MemoryType.RSS, MemoryType.SYSTEM)
    recorder = Recorder(types, interval)
    data = _Data()
    recorder.start()
    try:
        yield data
    finally:
        recorder.stop()
        session = recorder.session
        if session is not None:
            for memory_type in types:
                times, values = values_of(session, memory_type, memory_unit, from_zero=True)
                data[memory_type] = max(values, default=0.0) if return_max_value else (times, values)
                if save_dir is not None:
                    _save(session, memory_type, memory_unit, save_dir)


def values_of(
    session: Session, memory_type: MemoryType, unit: MemoryUnit, *, from_zero: bool
) -> tuple[list[float], list[float]]:
    """Return the known samples of a session as seconds since its start and values in ``unit``."""
    pairs = zip(session.samples.time_s, session.samples[memory_type], strict=True)
    known = [(time, value) for time, value in pairs if not isnan(value)]
    zero = known[0][1] if known and from_zero else 0.0
    return [time for time, _ in known], [unit.of(value - zero) for _, value in known]


def _session_of(metric: MemoryType, unit: MemoryUnit, time_s: Sequence[float], values: Sequence[float]) -> Session:
    """Return a session that holds only these samples; values may be relative to a baseline."""
    from nncftools.session.model import Host, SamplerFacts, Start
    from nncftools.session.samples import TIME, Samples
    from nncftools.session.session import Session

    columns = {TIME: array("d", time_s), metric: array("d", (value * unit.factor for value in values))}
    spacing_s = (time_s[-1] - time_s[0]) / max(1, len(time_s) - 1)
    return Session(
        start=Start(),
        duration_s=time_s[-1],
        host=Host(),
        sampler=SamplerFacts(achieved_interval_s=spacing_s),
        samples=Samples(columns, may_fall_below_zero=True),
    )


def _save(session: Session, memory_type: MemoryType, unit: MemoryUnit, save_dir: Path) -> None:
    monitor = MemoryMonitor(memory_type=memory_type, memory_unit=unit)
    for from_zero in (False, True):
        values = values_of(session, memory_type, unit, from_zero=from_zero)
        monitor.save_memory_logs(*values, save_dir, filename_suffix=_FROM_ZERO if from_zero else "")
