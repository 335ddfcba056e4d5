from __future__ import annotations

import pytest

from nncftools.analysis.session import Session
from nncftools.render.sentences import Performers, span_text, where_reached, where_text, without_shared_start
from nncftools.session.model import Mark, Rise
from tests.made_up import MIB, marks, mib, process, session


@pytest.mark.parametrize(
    "span_s, expected",
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


def run(rise: tuple[float, float], names: str) -> Session:
    """Return a session whose mark rose between two moments, with operations one after the other from 0.1 s on."""
    risen = Rise(from_s=rise[0], to_s=rise[1], high_water_mark=300 * MIB)
    columns = {"rss": mib(*[100] * 11), "time_s": [place / 10 for place in range(11)]}
    of = session(columns, processes=[process(high_water_mark=300 * MIB, rises=[risen])])
    length_s = 0.6 / max(1, len(names.split()))
    starts = enumerate(0.1 + place * length_s for place in range(len(names.split())))
    of.marks = [Mark(name=names.split()[place], start_s=at_s, end_s=at_s + length_s) for place, at_s in starts]
    return of


@pytest.mark.parametrize(
    "from_s, to_s, names, expected",
    [
        (0.2, 0.3, "Export Saving", "during Export"),
        (0.35, 0.45, "Export Saving", "in Export or at the start of Saving"),
        (0.15, 0.65, "A B C D", "in one of 4 operations, from A to D"),
        (0.65, 0.75, "Export", "at the end of Export or just after it"),
        (0.05, 0.15, "Export", "at the start of Export or just before it"),
        (0.72, 0.75, "Export", "0.020 s after Export"),
        (0.02, 0.08, "Export", "0.020 s before Export"),
        (0.85, 0.9, "Export", ""),
        (0.2, 0.3, "", ""),
        (0.2, 0.3, "a\x1b[31m" + "b" * 50, "during a\\x1b[31mbbbbbbbbbbbbbbbbb…bbbbbbbbbbbbb"),
    ],
)
def test_where(from_s: float, to_s: float, names: str, expected: str) -> None:
    """The text says in which operation the peak was, as far as that is known."""
    assert where_text(run((from_s, to_s), names)) == expected


def test_path() -> None:
    """Nested operations are a path."""
    of = run((0.2, 0.3), "")
    of.marks = marks("Weight Compression 0.1-0.7, Weight Compression/Compilation 0.15-0.35")

    assert where_text(of) == "during Weight Compression › Compilation"
    assert where_reached(of, 300 * MIB, 0.3) == "during Weight Compression › Compilation"
    assert where_reached(of, 100 * MIB, 0.5) == "during Weight Compression"
    assert where_reached(of, 100 * MIB, 0.95) == ""


def test_parts_of_an_operation() -> None:
    """What is certain comes before what may be."""
    of = run((0.35, 0.45), "")
    of.marks = marks("Export 0.1-0.7, Export/A 0.1-0.4, Export/B 0.4-0.7")

    assert where_text(of) == "during Export, in A or at the start of B"


def test_no_peak() -> None:
    """Without RSS there is nothing to say."""
    assert where_text(session({"system": mib(1)})) == ""


@pytest.mark.parametrize(
    "operations, expected",
    [
        ("100 0-0.5, 101 0.4-0.9", ["python, pid 100", "worker, pid 101"]),
        ("100 0-0.4, 101 0.4-0.9", ["", ""]),
        ("100 0-0.5, 100 0.1-0.9", ["", ""]),
        ("100 0-0.5, 0 0.1-0.9", ["", ""]),
        ("100 0-0.9, 101 0.1-0.2, 101 0.3-0.4", ["python, pid 100", *["worker, pid 101"] * 2]),
        ("100 0-0.9, 555 0.1-0.2", ["python, pid 100", "pid 555"]),
    ],
    ids=["parallel", "one after the other", "one process", "from outside", "several", "unknown process"],
)
def test_of(operations: str, expected: list[str]) -> None:
    """The process is named where operations of several processes ran at the same time; they are called as their PID."""
    of = session({"rss": mib(1, 2, 3)}, processes=[process(0, name="python"), process(1, name="worker")])
    of.marks = marks(operations)
    for mark in of.marks:
        mark.pid = int(mark.name) or None
    performers = Performers(of)

    assert [performers.name_process(operation) for operation in of.operations] == expected


def test_many_processes_at_once() -> None:
    """Each of 20,000 operations that overlap is told apart by its process, in time that grows with their number."""
    number = 20_000
    marks = [
        Mark(name="a", start_s=place / number / 2, end_s=place / number / 2 + 0.4, pid=place) for place in range(number)
    ]
    of = session(marks=marks)
    performers = Performers(of)

    assert [performers.name_process(operation) for operation in of.operations[:2]] == ["pid 0", "pid 1"]


class TestToldApart:
    def test_shared_beginning(self) -> None:
        """Names lose the beginning that they share, as far as every rest is unlike the end of any other name."""
        names = ["a.export.layer_0.attention", "a.export.layer_0.mlp_up", "a.export.layer_1.attention", "Export"]

        assert list(without_shared_start(names).values()) == [
            "…layer_0.attention",
            "…layer_0.mlp_up",
            "…layer_1.attention",
            "Export",
        ]

    def test_words(self) -> None:
        """Names without parts lose whole words, as long as enough is left."""
        assert without_shared_start(["compress_weights_of_block_12", "compress_weights_of_block_13"]) == {
            "compress_weights_of_block_12": "…block_12",
            "compress_weights_of_block_13": "…block_13",
        }

    @pytest.mark.parametrize("names", [[], ["Export"], ["Export", "Export model"], ["step 1", "step 2"]])
    def test_nothing_to_lose(self, names: list[str]) -> None:
        """A name that shares nothing, or of which too little would be left, stays whole."""
        assert without_shared_start(names) == {name: name for name in names}
