"""``QEffMemoryProfiler``: the interface of QEfficient's memory profiler, over our recorder."""

from __future__ import annotations

import contextlib
import logging
import pathlib
import time
from typing import TYPE_CHECKING, ClassVar

from nncftools.api.profiler import Profiler
from nncftools.api.qeff_collector import MetricsCollector, ProfilerConfig
from nncftools.api.qeff_figures import DEFAULT_PICTURE, QEffFigures
from nncftools.api.qeff_recorded import BEFORE_ALL, COMPLETION, ProfileSample
from nncftools.api.qeff_report import report
from nncftools.api.recorder import SHORTEST_S
from nncftools.errors import NncfToolsError
from nncftools.marks.operations import SOURCE
from nncftools.render.colours import FILLS, REST
from nncftools.session.model import Mark
from nncftools.session.operation import KINDS
from nncftools.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping


__all__ = [
    "MetricsCollector",
    "ProfileSample",
    "ProfilerConfig",
    "QEffMemoryProfiler",
    "QEffMemoryVisualizer",
    "__version__",
]

_COLOURS = {kind: fill.colour for kind, fill in zip(KINDS, FILLS, strict=False)}
_UNNAMED = "(unnamed)"
_VECTOR_FORMATS = ("svg", "pdf")
_logger = logging.getLogger(__name__)


class QEffMemoryProfiler(QEffFigures):
    """Records memory, CPU and disk I/O of this program and its descendants, and the operations that it marks.

    It is used like QEfficient's own profiler but measures differently. Native code never delays sampling. A name
    marked twice is two operations. An operation's cost comes from the samples at its start and end. The I/O of child
    processes counts, even after they have ended.

    Sizes are MB of 2^20 bytes, times are local times without a time zone. An unknown figure is 0.0. All figures may be
    read at any time: they are those up to now. Samples of a second start follow those of the first.
    """

    SEGMENT_COLORS: ClassVar[Mapping[str, str]] = {
        BEFORE_ALL: REST.colour,
        "Model Loading": _COLOURS["Model Loading"],
        "Export": _COLOURS["Export"],
        "Model Export": _COLOURS["Export"],
        "Compilation": _COLOURS["Compilation"],
        "Model Compilation": _COLOURS["Compilation"],
        "Generation": _COLOURS["Generation"],
        "Text Generation": _COLOURS["Generation"],
        "Cleanup": _COLOURS["Cleanup"],
        COMPLETION: REST.colour,
    }
    """The colours of usual operations as ``#rrggbb``."""

    def __init__(  # noqa: PLR0913, PLR0917 — the signature that users of QEfficient's profiler know
        self,
        sampling_interval: float = 0.05,
        output_file: str | None = None,
        verbose: bool = False,  # noqa: FBT001, FBT002 — the same
        enable_cpu_monitoring: bool = True,  # noqa: FBT001, FBT002 — the same
        enable_disk_monitoring: bool = True,  # noqa: FBT001, FBT002 — the same
        track_child_processes: bool = True,  # noqa: FBT001, FBT002 — the same
        child_scan_interval: float = 1.0,
    ) -> None:
        """Prepare to sample every ``sampling_interval`` seconds.

        ``output_file`` is the picture's default path, else ``qeff_memory_profile.png``; ``verbose`` logs marks. Metrics
        that are not enabled are 0.0. ``child_scan_interval`` changes nothing: each sample finds all processes.
        """
        config = ProfilerConfig(
            sampling_interval,
            output_file or DEFAULT_PICTURE,
            verbose,
            enable_cpu_monitoring,
            enable_disk_monitoring,
            track_child_processes,
            child_scan_interval,
        )
        super().__init__(config)
        self.metrics_collector = MetricsCollector(config)

    def start_monitoring(self) -> None:
        """Start, and return after the first sample; does nothing if already running.

        An interval below 1 ms is 1 ms. Raises ValueError for one above a year, NncfToolsError.
        """
        if self.monitoring:
            return
        interval_s = max(self.config.sampling_interval, SHORTEST_S)
        self._profiler = Profiler(interval_s, include_children=self.config.track_child_processes).start()

    def stop_monitoring(self) -> None:
        """End the recording and mark its completion; does nothing if none is running."""
        if self._profiler is None or not self.monitoring:
            return
        self._profiler.stop()
        with contextlib.suppress(NncfToolsError):  # stop() has warned that the recording is lost
            session = self._profiler.session
            at_s = session.duration_s
            session.marks.append(
                Mark(name=COMPLETION, start_s=at_s, end_s=at_s, pid=session.attached_to, source=SOURCE)
            )
            self._ended.append(session)
        self._known = None

    def mark_operation(self, operation_name: str) -> None:
        """Start an operation and end the previous one; before the start, the operation that the recording begins in."""
        name = str(operation_name) or _UNNAMED
        if self._profiler is not None and self.monitoring:
            self._profiler.mark(name)
        else:
            self._outside.append((time.monotonic_ns(), name))
            self._known = None
        if self.config.verbose:
            _logger.info("operation: %s", name)

    def mark_segment(self, segment_name: str) -> None:
        """Call ``mark_operation``."""
        self.mark_operation(segment_name)

    def generate_memory_graph(self, filename: str | None = None) -> None:
        """Draw memory, CPU, I/O and operations over time, as .svg or .pdf by the file name's extension, else as PNG.

        Logs a warning, and draws nothing, if nothing was recorded. Raises OSError.
        """
        recorded = self._recorded()
        if recorded is None:
            _logger.warning("No data to plot")
            return
        from nncftools.render import panels
        from nncftools.render.view import View

        path = pathlib.Path(filename or self.output_file)
        suffix = path.suffix[1:].lower()
        panels.draw(recorded.drawn, View(["rss"]), path, suffix if suffix in _VECTOR_FORMATS else "png")

    def stop_and_save(self, filename: str | None = None) -> str:
        """End the recording, draw the picture and return the report."""
        self.stop_monitoring()
        self.generate_memory_graph(filename)
        return self.get_memory_report()

    def get_memory_report(self) -> str:
        """Return peaks, statistics and the operations' timeline as text."""
        recorded = self._recorded()
        return "No memory data collected" if recorded is None else report(recorded, self.config.sampling_interval)

    def get_memory_usage(self) -> tuple[float, float]:
        """Return RSS and VMS of this process alone at this moment, in MB."""
        return self.metrics_collector.get_memory_usage()


class QEffMemoryVisualizer:
    """Draws what a profiler recorded."""

    def __init__(self, profiler: QEffMemoryProfiler) -> None:
        """Draw the recordings of ``profiler``."""
        self.profiler = profiler

    def generate_professional_graph(self, filename: str) -> None:
        """Write the picture of ``QEffMemoryProfiler.generate_memory_graph``. Raises OSError."""
        self.profiler.generate_memory_graph(filename)
