"""The verdict on a run that died, as headings and texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.limits.judges import verdict
from nncftools.limits.needs import MACHINE, needs
from nncftools.units import printable, seconds_text, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.limits.verdict import LastState, Verdict
    from nncftools.session.model import Process
    from nncftools.session.session import Session
    from nncftools.units import MemoryUnit

_NAME = 40


def verdict_lines(session: Session, unit: MemoryUnit) -> list[tuple[str, str]]:
    """Return headings and texts, the conclusion first; empty when nothing died."""
    found = verdict(session, unit)
    if found is None:
        return []
    needed = needs(session, is_bound=True) if found.is_for_memory else None
    enough = [] if needed is None else [("needs", needed.text(unit))]
    return [("Verdict", headline(found)), *_details(found, unit), *enough]


def headline(found: Verdict) -> str:
    """Return the conclusion as a sentence, and how sure it is."""
    text = found.text.removeprefix("the ").removeprefix("a ")
    first = "The " if found.text.startswith("the ") else "A " if found.text.startswith("a ") else ""
    hung = "" if found.hung_s is None else f" The command did nothing for {seconds_text(found.hung_s)} after that."
    return f"{first}{text}.{hung} ({found.certainty})"


def _details(found: Verdict, unit: MemoryUnit) -> Iterator[tuple[str, str]]:
    state = found.state
    held = _held(found, state, unit)
    if held:
        yield "held", held
    if state.largest:
        yield "largest", ", ".join(_of(process, unit) for process in state.largest)
    if state.operation:
        yield "during", state.operation
    if state.running:
        yield "running", printable(state.running)
    if found.evidence:
        yield "evidence", "; ".join(map(printable, found.evidence))
    if found.is_not:
        yield "not", "; ".join(text.removeprefix("not ") for text in found.is_not)


def _held(found: Verdict, state: LastState, unit: MemoryUnit) -> str:
    """Return what the run held last, how much of its limit that is, and how fast it grew."""
    if state.at_s is None:
        return ""
    growth = "" if state.growth_per_s is None else f", growing by {unit.brief(state.growth_per_s)} {unit}/s"
    return f"RSS {unit.brief(state.rss)} {unit} at {seconds_text(state.at_s)}{growth}{_share(found, state.rss, unit)}"


def _share(found: Verdict, rss: int, unit: MemoryUnit) -> str:
    limit = found.limit
    if limit is None:
        return ""
    if limit.is_of_process:
        rss = max((process.peak_rss or 0 for process in found.state.largest), default=0)
    whose = "of the machine" if limit.kind == MACHINE else f"({limit.kind})"
    return f"; {limit.share_text(rss)} of {unit.brief(limit.size)} {unit} {whose}"


def _of(process: Process, unit: MemoryUnit) -> str:
    name = shortened(printable(process.name), _NAME) or "a process"
    most = max(process.peak_rss or 0, process.high_water_mark or 0)
    return f"{name} (pid {process.pid}) {unit.brief(most)} {unit}"
