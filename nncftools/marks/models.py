"""The compression facts of saved OpenVINO models."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from nncftools.session.model import SavedModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nncftools.marks.entries import Entry


def saved_models(entries: Iterable[Entry]) -> list[SavedModel]:
    """Return the models whose ``rt_info`` was logged; of models saved repeatedly under one path, the last state."""
    found: dict[str, SavedModel] = {}
    for entry in entries:
        if entry.saved and entry.rt_info and entry.start_s is not None:
            facts = dict(_facts(entry.rt_info))
            if facts:
                found[entry.saved] = SavedModel(path=entry.saved, saved_s=entry.start_s, facts=facts)
    return list(found.values())


def _facts(xml: str) -> Iterator[tuple[str, str]]:
    """Yield path and value of each leaf of ``rt_info``: ``nncf/weight_compression/mode``, ``int4_sym``."""
    try:
        root = ET.fromstring(f"<rt_info>{xml}</rt_info>")  # noqa: S314 — a fragment has no DTD, and so no entities
    except ET.ParseError:
        return
    pending = [("", child) for child in root]
    while pending:
        place, element = pending.pop(0)
        value = element.get("value")
        if value is not None:
            yield place + element.tag, value
        pending += [(f"{place}{element.tag}/", child) for child in element]
