from __future__ import annotations

from typing import Any

import pytest

from nncftools.limits.needs import Needs, needs
from nncftools.render.session_tables import facts
from nncftools.session.model import Exit, FileRead, Floor
from nncftools.units import MemoryUnit
from tests.limits.deaths import counted, failure
from tests.made_up import MIB, process, session

FLOOR = Floor(size=250 * MIB, at_s=0.5, mapped=50 * MIB)


def found(**fields: Any) -> Needs:  # noqa: ANN401 — any field of a session
    """Return what a run needs that had a floor of 250 MiB at 0.5 s, and 50 MiB of mapped files."""
    result = needs(session(floor=FLOOR, **fields))
    assert result is not None
    return result


def test_unknown() -> None:
    """Without a floor nothing is known, and no report names anything."""
    assert needs(session()) is None
    assert all(row.cells[0].text != "Needs" for row in facts(session(), MemoryUnit.MiB).rows)


def test_floor() -> None:
    """The floor is what was sampled, and 2 % of what is mapped; with more, mapped files can be kept in memory."""
    assert found() == (251 * MIB, 0.5, 300 * MIB, False)


def test_between_samples() -> None:
    """What a high-water mark proves above the samples counts as anonymous."""
    assert found(processes=[process(high_water_mark=340 * MIB)]).floor == 291 * MIB


@pytest.mark.parametrize(("read_mib", "comfortable_mib"), [(None, 400), (500, 400), (60, 360)])
def test_files(read_mib: int | None, comfortable_mib: int) -> None:
    """Files that were read count with their sizes, but with no more than was read."""
    files = [FileRead(path="/a", size=70 * MIB), FileRead(path="/b", size=30 * MIB)]
    totals = {"read_chars": None if read_mib is None else read_mib * MIB}

    assert found(files_read=files, totals=totals).comfortable == comfortable_mib * MIB


@pytest.mark.parametrize(
    ("fields", "is_bound"),
    [
        ({}, False),
        ({"exit": Exit(code=3)}, False),
        ({"exit": Exit(signal=9)}, True),
        ({"exit": None}, True),
        ({"finished": False}, True),
        ({"exit": Exit(code=1), "failures": [failure("memory")]}, True),
        ({"exit": Exit(code=0), "oom_kills": [counted()]}, True),
    ],
)
def test_cut_short(fields: dict[str, Any], is_bound: bool) -> None:  # noqa: FBT001 — parametrized
    """A run that did not end by itself would have needed more."""
    assert found(**fields).is_bound is is_bound


def test_cut_short_for_another_reason() -> None:
    """Who knows why a run ended says whether it was cut short."""
    result = needs(session(floor=FLOOR), is_bound=True)

    assert result is not None
    assert result.is_bound


@pytest.mark.parametrize(
    ("of", "unit", "text"),
    [
        (Needs(1055 * MIB, 1, 1312 * MIB), "MiB", "at least 1,055 MiB; 1,312 MiB to keep its files in memory"),
        (Needs(6 << 30, 1, 7 << 30), "GiB", "at least 6.00 GiB; 7.00 GiB to keep its files in memory"),
        (Needs(1055 * MIB, 1, 1055 * MIB + 4096), "MiB", "at least 1,055 MiB"),
        (Needs(1055 * MIB, 1, 1312 * MIB, is_bound=True), "MiB", "more than 1,055 MiB"),
    ],
)
def test_text(of: Needs, unit: str, text: str) -> None:
    """It is told in the view's unit, without needless digits."""
    assert of.text(MemoryUnit(unit)) == text


def test_in_reports() -> None:
    """The facts of a run name it."""
    rows = facts(session(floor=FLOOR), MemoryUnit.MiB).rows

    assert [row.cells[1].text for row in rows if row.cells[0].text == "Needs"] == [
        "at least 251 MiB; 300 MiB to keep its files in memory"
    ]
