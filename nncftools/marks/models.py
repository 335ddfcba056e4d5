"""What saved OpenVINO models tell of their compression."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from nncftools.session.model import SavedModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nncftools.marks.entries import Entry


def saved_models(entries: Iterable[Entry]) -> list[SavedModel]:
    """Return the models whose ``rt_info`` was noted, those saved again under one name at their last state."""
    found: dict[str, SavedModel] = {}
    for entry in entries:
        if entry.saved and entry.rt_info and entry.start_s is not None:
            facts = dict(_facts(entry.rt_info))
            if facts:
                found[entry.saved] = SavedModel(path=entry.saved, saved_s=entry.start_s, facts=facts)
    return list(found.values())


def _facts(xml: str) -> Iterator[tuple[str, str]]:
    """Yield place and value of each leaf of ``rt_info``: ``nncf/weight_compression/mode``, ``int4_sym``."""
    try:
        root = ET.fromstring(f"<rt_info>{xml}</rt_info>")  # noqa: S314 — a fragment has no DTD, and so no entities
    except ET.ParseError:
        return
    waiting = [("", child) for child in root]
    while waiting:
        place, element = waiting.pop(0)
        value = element.get("value")
        if value is not None:
            yield place + element.tag, value
        waiting += [(f"{place}{element.tag}/", child) for child in element]
