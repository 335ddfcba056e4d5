from __future__ import annotations

import pytest

from nncftools.analysis.peak_text import span_text, where_reached, where_text
from nncftools.session.model import Mark, Rise
from nncftools.session.session import Session
from tests.made_up import MIB, mib, process, session


@pytest.mark.parametrize(
    ("span_s", "expected"),
    [
        (None, "–"),
        ((12.3, 12.3), "12.30 s"),
        ((12.301, 12.302), "12.30 s"),
        ((12.3, 12.35), "12.30–12.35 s"),
        ((0.95, 1.05), "0.950–1.05 s"),
        ((59.9, 61.0), "59.90 s – 1 min 01.0 s"),
        ((100.0, 101.0), "1 min 40.0 s – 1 min 41.0 s"),
    ],
)
def test_span(span_s: tuple[float, float] | None, expected: str) -> None:
    """A moment between two others has both, unless they read the same."""
    assert span_text(span_s) == expected


def run(rise: tuple[float, float], *names: str) -> Session:
    """Return a session whose mark rose between two moments, with operations one after the other from 0.1 s on."""
    risen = Rise(from_s=rise[0], to_s=rise[1], high_water_mark=300 * MIB)
    columns = {"rss": mib(*[100] * 11), "time_s": [place / 10 for place in range(11)]}
    of = session(columns, processes=[process(high_water_mark=300 * MIB, rises=[risen])])
    length_s = 0.6 / max(1, len(names))
    of.marks = [
        Mark(name=name, start_s=0.1 + place * length_s, end_s=0.1 + (place + 1) * length_s)
        for place, name in enumerate(names)
    ]
    return of


@pytest.mark.parametrize(
    ("rise", "names", "expected"),
    [
        ((0.2, 0.3), ["Export", "Saving"], "during Export"),
        ((0.35, 0.45), ["Export", "Saving"], "in Export or at the start of Saving"),
        ((0.15, 0.65), ["A", "B", "C", "D"], "in one of 4 operations, from A to D"),
        ((0.65, 0.75), ["Export"], "at the end of Export or just after it"),
        ((0.05, 0.15), ["Export"], "at the start of Export or just before it"),
        ((0.72, 0.75), ["Export"], "0.020 s after Export"),
        ((0.02, 0.08), ["Export"], "0.020 s before Export"),
        ((0.85, 0.9), ["Export"], ""),
        ((0.2, 0.3), [], ""),
        ((0.2, 0.3), ["a\x1b[31m" + "b" * 50], "during a\\x1b[31mbbbbbbbbbbbbbbbbb…bbbbbbbbbbbbb"),
    ],
)
def test_where(rise: tuple[float, float], names: list[str], expected: str) -> None:
    """The text says in which operation the peak was, as far as that is known."""
    assert where_text(run(rise, *names)) == expected


def test_path() -> None:
    """Nested operations are a path."""
    of = run((0.2, 0.3), "Weight Compression")
    of.marks.append(Mark(name="Compilation", start_s=0.15, end_s=0.35, depth=1))

    assert where_text(of) == "during Weight Compression › Compilation"
    assert where_reached(of, 300 * MIB, 0.3) == "during Weight Compression › Compilation"
    assert where_reached(of, 100 * MIB, 0.5) == "during Weight Compression"
    assert where_reached(of, 100 * MIB, 0.95) == ""


def test_parts_of_an_operation() -> None:
    """What is certain comes before what may be."""
    of = run((0.35, 0.45), "Export")
    of.marks += [
        Mark(name=name, start_s=start_s, end_s=start_s + 0.3, depth=1) for name, start_s in (("A", 0.1), ("B", 0.4))
    ]

    assert where_text(of) == "during Export, in A or at the start of B"


def test_no_peak() -> None:
    """Without RSS there is nothing to say."""
    assert where_text(session({"system": mib(1)})) == ""
