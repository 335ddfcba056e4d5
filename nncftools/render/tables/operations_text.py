"""Operations in the text report: a timeline that says which one grew, and a table of what each cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from nncftools.analysis.timeline import timeline
from nncftools.render.tables.cells import signed, table
from nncftools.session.phases import unmarked
from nncftools.text import printable, shortened
from nncftools.units import UNKNOWN, seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from nncftools.render.view import View
    from nncftools.session.model import SavedModel, Session
    from nncftools.session.phases import Phase
    from nncftools.units import MemoryUnit

_NAME = 40
_MANY = 60
"""Rows; of more operations the longest are shown."""
_LONG_GAP = 0.05
"""Of the run: from here on, a time in which nothing was marked is a row."""
_SETTING = 3
_SETTINGS = ("mode", "preset", "ratio", "group_size", "backup_mode", "subset_size", "model_type", "target_device")
_UNMARKED = "(nothing marked)"


def operations(session: Session, view: View) -> Iterator[RenderableType]:
    """Yield what was marked, as a timeline and as figures; nothing when nothing was."""
    rows = timeline(session.phases, view.depth)
    if not rows:
        return
    shown = sorted(rows, key=lambda phase: phase.duration_s, reverse=True)[:_MANY]
    shown.sort(key=lambda phase: (phase.start_s, phase.depth))
    numbers = {id(phase): number for number, phase in enumerate(rows, start=1)}
    gaps = unmarked(session, max(session.duration_s * _LONG_GAP, 1e-9))
    yield Text("Operations", style="bold")
    yield _timeline(sorted([*shown, *gaps], key=lambda phase: phase.start_s), numbers, view.unit)
    if len(rows) > len(shown):
        yield Text(f"… and {len(rows) - len(shown):,} shorter ones", style="dim")
    yield Text()
    yield _figures(shown, numbers, view.unit)
    yield Text()


def _timeline(rows: Sequence[Phase], numbers: dict[int, int], unit: MemoryUnit) -> Table:
    grid = table()
    grid.show_header = False
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for _ in range(2):
        grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    for phase in rows:
        number = numbers.get(id(phase))
        grid.add_row(
            "" if number is None else f"{number}.",
            seconds_text(phase.start_s),
            _named(phase),
            f"({seconds_text(phase.duration_s)})",
            f"[{signed(phase.delta, unit)} {unit}]",
            Text("<- peak" if phase.has_peak else "", style="bold"),
            style="dim" if number is None else "",
        )
    return grid


def _named(phase: Phase) -> Text:
    """Return name, number of calls, how it ended and which function it was."""
    if not phase.name:
        return Text(_UNMARKED)
    text = Text("  " * phase.depth + shortened(printable(phase.name), _NAME))
    if phase.count > 1:
        text.append(f" ×{phase.count:,}")
    if phase.error is not None:
        text.append(f" {printable(phase.error)}", style="red")
    if phase.call is not None:
        text.append(f" {shortened(_brief(phase.call), _NAME)}", style="dim")
    if phase.total_s is not None and phase.longest_s is not None:
        told = f" {seconds_text(phase.total_s)} in calls, the longest {seconds_text(phase.longest_s)}"
        text.append(told, style="dim")
    return text


def _brief(call: str) -> str:
    """Return a function with its library, a method by its own name."""
    return printable(", ".join(one if one.count(".") == 1 else one.rpartition(".")[2] for one in call.split(", ")))


def _figures(rows: Sequence[Phase], numbers: dict[int, int], unit: MemoryUnit) -> Table:
    figures = table()
    figures.add_column(f"\n{unit}", justify="right", no_wrap=True)
    for heading in (
        "RSS\nstart",
        "\nend",
        "\npeak",
        "Cores\nmean",
        "\npeak",
        "Storage\nread",
        "\nwritten",
        "Calls\nread",
        "\nwritten",
    ):
        figures.add_column(heading, justify="right", no_wrap=True)
    for phase in rows:
        figures.add_row(
            f"{numbers[id(phase)]}.",
            *(unit.text(size) for size in (phase.rss_start, phase.rss_end, phase.rss_peak)),
            *(_cores(cores) for cores in (phase.cpu_average, phase.cpu_peak)),
            *(unit.text(size) for size in (phase.read_bytes, phase.write_bytes, phase.read_chars, phase.write_chars)),
        )
    return figures


def _cores(cores: float | None) -> str:
    return UNKNOWN if cores is None else f"{cores:.2f}"


def models(session: Session) -> Iterator[tuple[str, str]]:
    """Yield what saved models say of their compression."""
    for model in session.models:
        told = _compression(model)
        if told:
            yield "Compressed", printable(f"{model.path.rpartition('/')[2]}: {told}")


def _compression(model: SavedModel) -> str:
    """Return algorithm and settings, and which refinements were used: ``weight compression, mode int4_sym, awq``."""
    places = [(place.split("/"), value) for place, value in model.facts.items()]
    settings = [(parts[1], parts[2], value) for parts, value in places if parts[0] == "nncf" and len(parts) == _SETTING]
    said = [algorithm for algorithm, _, _ in settings]
    for wanted in _SETTINGS:
        said += [f"{name} {value}" for _, name, value in settings if name == wanted and value != "None"]
    said += [name for _, name, value in settings if value == "True"]
    return ", ".join(dict.fromkeys(said))
