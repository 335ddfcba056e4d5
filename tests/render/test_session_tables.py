"""Tests of the table of a job's ranks in every report that has one, and of the line about devices."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
from PIL import Image

from nncftools.analysis.ranks import merged
from nncftools.analysis.session import Session
from nncftools.render import plot, summary_json
from nncftools.render.session_tables import ranks
from nncftools.render.text import markdown_report
from nncftools.render.view import View
from nncftools.session.model import Device, Exit, Host, Rank
from nncftools.units import MemoryUnit
from tests.made_up import mib, session
from tests.render.test_text import printed

VIEW = View(["rss"])


@pytest.fixture
def job() -> Session:
    """Return a job of two ranks, the second of which held most and was killed."""
    parts = {
        "a": session(rank=Rank(number=0, size=2, job="tune"), host=Host(name="node-01", boot_id="x")),
        "b": session(
            {"rss": mib(100, 900, 200)},
            rank=Rank(number=1, size=2, job="tune"),
            host=Host(name="node-01", boot_id="x"),
            exit=Exit(signal=9),
            totals={},
        ),
    }
    return merged(parts)


def test_cells(job: Session) -> None:
    """A row has a rank's machine, its peak and the peak's time, its duration, its CPU time and its exit."""
    found = ranks(job, MemoryUnit.MiB)

    assert found.headings("") == ["Rank", "Machine", "Peak, MiB", "at", "Lasted", "CPU", "Exit"]
    assert [[cell.text for cell in row.cells] for row in found.rows] == [
        ["0", "node-01", "300.0", "0.500 s", "1.00 s", "0.750 s", "0"],
        ["1", "node-01", "900.0", "0.500 s", "1.00 s", "–", "SIGKILL"],
    ]
    assert [row.note for row in found.rows] == ["", "<- largest"]


def test_none_of_a_single_recording() -> None:
    """A session of a single recording has no such table."""
    assert not ranks(session(), MemoryUnit.MiB).rows
    assert "Rank" not in printed(session(), metrics=("rss",))


def test_text(job: Session) -> None:
    """The text report names the rank that held most, in 80 columns."""
    lines = printed(job, metrics=("rss",)).splitlines()
    table = lines[lines.index(next(line for line in lines if line.startswith("Rank "))) :][:3]

    assert table[2].endswith("SIGKILL <- largest")
    assert not table[1].endswith("largest")
    assert "2 ranks" in lines[2]
    assert max(map(len, table)) <= 80


def test_markdown(job: Session) -> None:
    """The row of the rank that held most is bold."""
    text = re.sub(" +", " ", markdown_report(job, VIEW))

    assert "| 0 | node-01 | 300.0 |" in text
    assert "| **1** | **node-01** | **900.0** |" in text


def test_json(job: Session) -> None:
    """The summary for scripts holds every rank."""
    document = json.loads(summary_json.report(job, VIEW))

    assert [(of["name"], of["peaks"]["rss"]["low"], of["exit"]) for of in document["ranks"]] == [
        ("rank 0", 300 * 2**20, {"code": 0, "signal": None}),
        ("rank 1", 900 * 2**20, {"code": None, "signal": 9}),
    ]


def test_picture(job: Session, tmp_path: pathlib.Path) -> None:
    """Lines of the ranks are drawn below their sum."""
    alone = job.__copy__()
    alone.ranks = []
    plot.draw(job, VIEW, tmp_path / "ranks.png")
    plot.draw(alone, VIEW, tmp_path / "sum.png")

    assert Image.open(tmp_path / "ranks.png").tobytes() != Image.open(tmp_path / "sum.png").tobytes()


@pytest.mark.parametrize(
    ("held", "says"),
    [
        ((5, 7, 6), "nvidia0 (X): at least 7.0 MiB, at times unknown, because why"),
        ((0, 0, 0), "nvidia0 (X): unknown, because why"),
    ],
)
def test_unknown_at_times(held: tuple[int, ...], says: str) -> None:
    """Where it was unknown at times what the run held of a device, the report says what is known, too."""
    of = session(
        {"rss": mib(1, 2, 3), "device_memory@nvidia0": mib(*held)},
        devices=[Device(device="nvidia0", model="X", missing="why")],
    )

    assert says in " ".join(printed(of, metrics=("rss",)).split())
