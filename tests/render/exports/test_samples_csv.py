from __future__ import annotations

import csv
import io

from nncftools.render import samples
from nncftools.render.view import View
from nncftools.session.session import Session
from tests.made_up import MIB, mib, session

VIEW = View(metrics=["rss"])


def rows(of: Session) -> list[list[str]]:
    """Return the cells."""
    return list(csv.reader(io.StringIO(samples.csv_report(of, VIEW))))


def test_base_units() -> None:
    """All metrics are there, bytes as whole numbers and seconds as they are."""
    assert rows(session({"rss": mib(1, 2), "cpu_user": [0.25, 1.0], "processes": [1, 2]})) == [
        ["time_s", "rss", "cpu_user", "processes"],
        ["0.0", str(MIB), "0.25", "1"],
        ["0.5", str(2 * MIB), "1.0", "2"],
    ]


def test_unknown_is_empty() -> None:
    """An unknown figure is an empty cell."""
    assert rows(session({"rss": [None, 5]}))[1:] == [["0.0", ""], ["0.5", "5"]]


def test_no_sample() -> None:
    """Without samples the names of the columns are left."""
    assert rows(session({"rss": []})) == [["time_s", "rss"]]


def test_more_than_a_portion() -> None:
    """Long recordings are written in portions, and nothing is lost between them."""
    found = rows(session({"rss": list(range(25_001))}))

    assert [row[1] for row in found[1:]] == [str(place) for place in range(25_001)]


def test_name_with_a_comma() -> None:
    """A metric of another version may be called anything."""
    assert rows(session({"rss": [1], 'a,"b"\n': [0.5]}))[0] == ["time_s", "rss", 'a,"b"\n']
    assert rows(session({"rss": [1], "other": [0.5]}))[1] == ["0.0", "1", "0.5"]
