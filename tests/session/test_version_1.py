"""Files of version 1 stay readable: real ones, written by nncf-tools of November 2026."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from nncftools import Session
from nncftools.cli import opening
from nncftools.render.view import View, format_named
from nncftools.session.model import Mark, OwnMemory
from tests.made_up import MIB, session

FOLDER = Path(__file__).parents[1] / "data" / "version_1"
FILES = sorted(path.name.removesuffix(".json") for path in (FOLDER / "summaries").iterdir())
MENDED = {"warnings", "tool_version"}
"""Texts, which may be written better."""
MOMENT = "at_s"
"""Of a peak: it was that of the largest sample, and is now the one that text and pictures have always named."""
GONE = "exit_accounting"
"""A fact of the sampler, of the kernel's reports of ended processes, which are no longer read."""
HIGH = "high"
"""The upper bound of a peak, which may be higher now: a process of such a report had an exact mark."""
CPU_TIME = {"cpu": ("total_s", "cores_average"), "totals": ("cpu_user", "cpu_system")}
"""Figures that may be higher now: a total was sometimes below the sum of its processes."""


def is_within(old: Any, new: Any) -> bool:  # noqa: ANN401 — JSON
    """Return whether a document holds all that an old one held."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and is_within(value, new[key]) for key, value in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(map(is_within, old, new))
    return bool(old == new)


@pytest.mark.parametrize("name", FILES)
def test_reads_as_it_did(name: str) -> None:
    """Sessions, journals, sidecars and merged ranks, also gzipped, give each figure that they gave then."""
    of = opening.open_sessions([FOLDER / name], FOLDER)
    old = json.loads((FOLDER / "summaries" / f"{name}.json").read_text())
    content = format_named("json")(of, View(["rss"]))
    assert isinstance(content, str)
    new = json.loads(content)

    for metric, peak in old["peaks"].items():
        del peak[MOMENT]
        high = peak.pop(HIGH, None)
        assert high is None or (new["peaks"][metric].get(HIGH) or inf) >= high
    del old["sampler"][GONE]
    for key, names in CPU_TIME.items():
        for figure in names:
            assert (new[key].get(figure) or 0) >= (old[key].pop(figure, 0) or 0)
    assert {key for key, value in old.items() if key not in MENDED and not is_within(value, new[key])} == set()


def test_bounds_are_estimates(tmp_path: Path) -> None:
    """Bounds of RSS at a mark, which are not made any more, are shown as estimates and kept when the file is saved."""
    marks = [Mark(name="Export", start_s=0.2, end_s=0.6, own_start=OwnMemory(rss=90 * MIB, tree=100 * MIB))]
    document = json.loads(session(marks=marks).save(tmp_path / "new.json").read_text())
    document["marks"][0]["own_start"] |= {"tree_low": 80 * MIB, "tree_high": None, "others_before": 7, "faults": 9}
    (tmp_path / "old.json").write_text(json.dumps(document))
    old = Session.load(tmp_path / "old.json")
    rss = old.operations[0].of("rss")

    assert (rss.start, rss.start_is_estimate) == (100 * MIB, True)
    assert json.loads(old.save(tmp_path / "again.json").read_text())["marks"] == document["marks"]
