"""The panels over the run's time: memory, CPU, and I/O where no operations were marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FuncFormatter

from nncftools.analysis.series import decimated_with_gaps, rates_of, run_s
from nncftools.analysis.summary import cpu_s, level
from nncftools.drawing import DPI, FAINT, INK
from nncftools.metrics import cpu_counters
from nncftools.render.view import label
from nncftools.session.samples import known
from nncftools.units import MemoryUnit, seconds_text, size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from nncftools.drawing import Ruler
    from nncftools.render.view import View
    from nncftools.session.session import Session

    Points = NDArray[np.float64]

_PARTS = {"anon": "#8a8f94", "file": "#b9bdc1", "shmem": "#dfe1e3"}
"""The parts of RSS, from below. Colours belong to operations."""
_ZONES = ((0, 50, "#fafafa"), (50, 80, "#f3f3f3"), (80, 100, "#eaeaea"))
"""Per cent of all cores."""
_CPU_TOPS = (5, 10, 25, 100)
_CPU_WINDOWS = 1500
"""More cannot be seen apart."""
_FEW = 40
_SIZE = 8.0
_MARGIN = 0.04
"""In inches, as what follows."""
_PEAK_NAME = 0.34
"""How much room above the data the peak's name takes."""
_FEW_PER_CENT = 10
IO_PLACES = {"Storage": ("read_bytes", "write_bytes"), "System calls": ("read_chars", "write_chars")}


def draw_memory(axes: Axes, session: Session, view: View, ruler: Ruler) -> None:
    """Draw RSS with its peak, and what it consists of as far as that was recorded.

    Without RSS it is the first metric of ``view``. Above the first sample (``from_zero``) parts are not drawn: each
    would have a zero of its own.
    """
    samples = session.samples
    name = "rss" if "rss" in samples and known(samples["rss"]) else view.metrics[0]
    values = known(samples[name]) if name in samples else ()
    zero = values[0] if values and view.from_zero else 0.0
    above = " above the first sample" if view.from_zero else ""
    axes.set_ylabel(f"{label(name)}{above} ({view.unit})", fontsize=_SIZE + 1, parse_math=False)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    if not values:
        _note(axes, "no samples were recorded")
        return
    time, value = decimated_with_gaps(samples.time_s, samples[name], session.sampler.spacing_s)
    line = (value - zero) / view.unit.factor
    if name == "rss" and not view.from_zero:
        _draw_parts(axes, session, view, time, line)
    few = len(time) <= _FEW or len(values) < len(samples) / 2
    axes.plot(time, line, color=INK, linewidth=1.5, marker="." if few else "", label=label(name))
    sampled = max(values)
    at_s = samples.time_s[samples[name].index(sampled)]
    top, bottom = (sampled - zero) / view.unit.factor, min(0.0, float(np.nanmin(line))) * 1.05
    axes.plot(at_s, top, marker="o", color=INK, markersize=6, markeredgecolor="white", label="_peak")
    axes.set_ylim(bottom, bottom + (top - bottom or 1.0) * _room(axes))
    peak = level(samples, name, session.peaks)
    kernel = "" if peak.at_s is not None or peak.peak is None else f" (kernel: {view.unit.label(peak.peak - zero)})"
    said = f"{label(name)} peak {view.unit.label(sampled - zero)} at {seconds_text(at_s)}{kernel}"
    _name_peak(axes, (at_s, top), said, run_s(session), ruler)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        _legend_beside(axes)


def draw_cpu(axes: Axes, session: Session) -> None:
    """Draw how many cores were busy, in per cent of all, and their average."""
    cpus = session.host.cpus
    part = 100 / (cpus or 1)
    axes.set_ylabel(f"CPU (% of all {cpus} cores)" if cpus else "CPU (% of one core)", fontsize=_SIZE + 1)
    moments, cores = rates_of(session, cpu_counters(session.samples), _CPU_WINDOWS)
    spent = cpu_s(session)
    if not len(cores):
        recorded = spent is not None and bool(cpu_counters(session.samples)) and len(session.samples) > 0
        said = f"{seconds_text(spent)} of CPU time; the run is too short to tell when"
        _note(axes, said if recorded else "CPU time was not recorded")
        return
    busy = cores * part
    average = None if spent is None or not session.duration_s else spent / session.duration_s * part
    highest = float(max(busy[~np.isnan(busy)].max(initial=0), average or 0))
    tops = _CPU_TOPS if cpus else ()
    axes.set_ylim(0, next((top for top in tops if highest <= top), highest or 1) * 1.04)
    if cpus:
        for low, high, colour in _ZONES:
            axes.axhspan(low, high, color=colour, zorder=0, linewidth=0)
    axes.stairs(busy, moments, baseline=None, color=INK, linewidth=1.1)
    if average is not None:
        axes.axhline(average, color=INK, linestyle="--", linewidth=1)
        digits = 0 if average >= _FEW_PER_CENT else 1
        beside: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "center"}
        axes.annotate(f"average\n{average:.{digits}f} %", (1, average), (5, 0), fontsize=_SIZE, color=INK, **beside)


def draw_io(axes: Axes, session: Session, place: str) -> None:
    """Draw what was read and written until each moment; ``place`` is one of ``IO_PLACES``."""
    columns = [(name, session.samples[name]) for name in IO_PLACES[place] if name in session.samples]
    columns = [(name, column) for name, column in columns if known(column)]
    unit = _unit(max((max(known(column)) for _, column in columns), default=0.0))
    axes.set_title(place, loc="left", fontsize=_SIZE + 1, color=INK)
    axes.set_ylabel(f"{unit}", fontsize=_SIZE + 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    if not columns:
        _note(axes, "I/O was not recorded")
    for name, column in columns:
        time, value = decimated_with_gaps(session.samples.time_s, column, session.sampler.spacing_s)
        read = name.startswith("read")
        total = session.totals.get(name)
        said = f"{'read' if read else 'written'} {size_text(known(column)[-1] if total is None else total)}"
        marker = "." if len(time) <= _FEW else ""
        axes.plot(time, value / unit.factor, "-" if read else "--", color=INK, linewidth=1.4, marker=marker, label=said)
    highest = max((float(np.nanmax(line.get_ydata())) for line in axes.lines), default=0.0)
    axes.set_ylim(0, highest * 1.08 or 1)
    if not highest:
        axes.set_yticks([0] if columns else [])
    if columns:
        legend: dict[str, Any] = {
            "loc": "lower right",
            "bbox_to_anchor": (1, 1),
            "ncols": 2,
            "frameon": False,
            "borderaxespad": 0.2,
        }
        axes.legend(fontsize=_SIZE, **legend)


def _draw_parts(axes: Axes, session: Session, view: View, time: Points, line: Points) -> None:
    """Draw the parts of RSS upon each other, at the moments at which RSS is drawn."""
    places = np.searchsorted(np.asarray(session.samples.time_s), time)
    below = np.zeros(len(time))
    for name, colour in _PARTS.items():
        if name not in session.samples or not known(session.samples[name]):
            continue
        part = np.asarray(session.samples[name])[places] / view.unit.factor
        known_here = ~np.isnan(line) & ~np.isnan(part)
        top = below + np.where(known_here, part, 0)
        axes.fill_between(time, below, top, where=known_here, color=colour, linewidth=0, label=label(name), zorder=1.5)
        below = top


def _name_peak(axes: Axes, point: tuple[float, float], text: str, length_s: float, ruler: Ruler) -> None:
    """Write above a point, as near to it as the axes let."""
    wide = axes.bbox.width / DPI
    text = ruler.fitted(text, wide - _MARGIN, _SIZE + 1)
    half = (ruler.width(text, _SIZE + 1) + _MARGIN) / 2 / wide * length_s
    middle_s = min(max(point[0], half), length_s - half)
    how: dict[str, Any] = {"ha": "center", "va": "bottom", "color": INK, "parse_math": False}
    axes.annotate(text, (middle_s, point[1]), (0, 6), textcoords="offset points", fontsize=_SIZE + 1, **how)


def _room(axes: Axes) -> float:
    """Return how many times the data's height the axes' has to be, for the peak's name to stand above."""
    high = axes.bbox.height / DPI
    return high / (high - _PEAK_NAME)


def _legend_beside(axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    where: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1), "frameon": False, "borderaxespad": 0.3}
    axes.legend(handles[::-1], names[::-1], fontsize=_SIZE, handlelength=1.4, **where)


def _unit(size: float) -> MemoryUnit:
    """Return the binary unit that fits a size."""
    units = (MemoryUnit.GiB, MemoryUnit.MiB, MemoryUnit.KiB)
    return next((unit for unit in units if size >= unit.factor), MemoryUnit.B)


def _note(axes: Axes, text: str) -> None:
    """Write instead of data."""
    axes.set(yticks=[], ylim=(0, 1))
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=FAINT, fontsize=_SIZE + 1)
