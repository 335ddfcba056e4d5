from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.truth.random_programs.envelope import Interval
from benchmarks.truth.random_programs.judging import (
    DECIDED,
    FIGURES,
    HEADLINE,
    HOLDS,
    MISSING,
    RUN,
    TIGHT,
    TOGETHER,
    judge,
)
from benchmarks.truth.random_programs.truth import Headline, Operation, Truth
from nncftools.analysis.operation import Operation as Said
from nncftools.analysis.operation import PeakPlace
from nncftools.analysis.peaks import Bracket, Figures
from nncftools.session.model import Peak, Start
from tests.made_up import MIB

_ZERO_NS = 5_000_000_000


def _interval(low: float, high: float | None = None) -> Interval:
    return Interval(low * MIB, (low if high is None else high) * MIB)


def _operation(name: str = "Export", **fields: object) -> Operation:
    """Return the truth: from 1 to 2 s, 100 to 200 MiB with a peak of 300."""
    given = {
        "name": name,
        "pid": 1,
        "tid": 1,
        "start_ns": (_ZERO_NS + 10**9, _ZERO_NS + 10**9 + 100_000),
        "end_ns": (_ZERO_NS + 2 * 10**9, _ZERO_NS + 2 * 10**9 + 100_000),
        "start": _interval(100),
        "end": _interval(200),
        "peak": _interval(300),
        "inside": None,
    }
    return Operation(**{**given, **fields})


def _truth(*operations: Operation, names: frozenset[str] = frozenset({"Export"})) -> Truth:
    return Truth(
        operations or (_operation(),),
        frozenset({"Late"}),
        _interval(300),
        Headline(names, frozenset({"Export", "Load"})),
    )


def _said(name: str = "Export", start_s: float = 1.00005, end_s: float = 2.00005, **figures: object) -> Said:
    """Return what a session says of an operation; sizes are in MiB."""
    given = {"start": 100, "end": 200, "peak": (299, 301), "start_≈": False, "end_≈": False, **figures}
    start, end = (None if given[key] is None else given[key] * MIB for key in ("start", "end"))
    peak = given["peak"] and Bracket(*(size and size * MIB for size in given["peak"]), from_s=1.5, to_s=1.5)
    rss = Figures(start, end, peak, None, start_is_estimate=given["start_≈"], end_is_estimate=given["end_≈"])
    return Said(name=name, start_s=start_s, end_s=end_s, figures={"rss": rss})


def _session(
    *operations: Said, peak: tuple[int, int | None] = (299, 301), path: object = None, either: object = ()
) -> SimpleNamespace:
    operations = operations or (_said(),)
    low, high = (size and size * MIB for size in peak)
    return SimpleNamespace(
        start=Start(monotonic_ns=_ZERO_NS),
        operations=list(operations),
        peaks={"rss": Peak(sampled=low, at_s=1.5, low=low, high=high)},
        peak_place=PeakPlace(1.5, 1.5, operations[:1] if path is None else path, either),
    )


def _wrong(session: SimpleNamespace, truth: Truth | None = None) -> list[str]:
    return [answer.rule for answer in judge(session, truth or _truth()) if not answer.is_right]


def test_a_right_session() -> None:
    """A session that says the truth is right by every rule."""
    answers = judge(_session(), _truth())

    assert [answer for answer in answers if not answer.is_right] == []
    assert sorted(answer.rule for answer in answers) == sorted(
        [*FIGURES, HOLDS, TOGETHER, MISSING, RUN, HEADLINE, TIGHT, DECIDED]
    )


@pytest.mark.parametrize(
    "said, rules",
    [
        ({"start": 103.1}, ["start"]),
        ({"start": 105}, ["start", "change"]),
        ({"start": None}, ["start", "change"]),
        ({"start": 102.9}, []),
        ({"end": 195.9}, ["end", "change"]),
        ({"end": 204.1, "start": 102}, ["end"]),
        ({"start": 98, "end": 203}, ["change"]),
        ({"start": 103.1, "start_≈": True}, ["start ≈"]),
        ({"start": 105, "start_≈": True}, ["start ≈", "change ≈"]),
        ({"start": 101, "start_≈": True}, []),
        ({"end": 150, "end_≈": True}, ["end ≈", "change ≈"]),
        ({"peak": (290, 296)}, ["peak"]),
        ({"peak": (304, 306)}, ["peak"]),
        ({"peak": None}, ["peak", "tight"]),
        ({"peak": (269, 300)}, ["tight"]),
        ({"peak": (300, 331)}, ["tight"]),
        ({"peak": (300, None)}, ["tight"]),
        ({"start_s": 1.0002}, ["missing"]),
        ({"start_s": 0.99}, ["missing"]),
        ({"end_s": 2.0002}, ["missing"]),
    ],
)
def test_an_operation(said: dict[str, object], rules: list[str]) -> None:
    """Each rule finds what breaks it, and no other rule does."""
    assert _wrong(_session(_said(**said))) == rules


def test_figures_that_contradict_the_peak() -> None:
    """An end above the peak is wrong, although both are close enough to the truth."""
    truth = _truth(_operation(end=_interval(298)))

    assert _wrong(_session(_said(end=303, peak=(299, 301))), truth) == ["together"]


def test_a_wide_truth() -> None:
    """Where a process changed beside the mark, any figure in between is right, and one outside is not."""
    truth = _truth(_operation(start=_interval(100, 150)))

    assert _wrong(_session(_said(start=148)), truth) == []
    assert _wrong(_session(_said(start=155)), truth) == ["start", "change"]


def test_an_unknown_end() -> None:
    """The end of a moment that no mark ended is not judged."""
    truth = _truth(_operation(end_ns=None, end=None))

    assert _wrong(_session(_said(end=17, end_s=9.0)), truth) == []
    assert _wrong(_session(_said(start=17, end_s=9.0)), truth) == ["start"]


@pytest.mark.parametrize("names", [["Export"], ["Export", "Load", "Load"], ["Export", "Load", "Save"]])
def test_missing_or_surplus(names: list[str]) -> None:
    """An operation that is missing, is there twice or was never marked is found."""
    truth = _truth(_operation(), _operation("Load"))

    assert _wrong(_session(*map(_said, names)), truth) == ["missing"]


def test_an_optional_operation() -> None:
    """What an orphan began when the recording ended may be there or not."""
    assert _wrong(_session(_said(), _said("Late", 7.0, 8.0))) == []


@pytest.mark.parametrize("peak", [(290, 296), (304, 320), (None, None)])
def test_the_peak_of_the_run(peak: tuple[int | None, int | None]) -> None:
    """The run's bracket must hold the truth."""
    assert _wrong(_session(peak=peak)) == ["run's peak"]


@pytest.mark.parametrize(
    "path, either, is_right",
    [
        (["Export"], [], True),
        (["Load", "Export"], [], True),
        (["Load"], [], False),
        (["Export", "Load"], [], False),
        (["Save", "Export"], [], False),
        ([], [], False),
        (["Load"], ["Save", "Export"], True),
        ([], ["Save", "Load"], False),
        (["Save"], ["Export", "Load"], False),
    ],
)
def test_the_headline(path: list[str], either: list[str], *, is_right: bool) -> None:
    """The innermost operation must be right, and those around it must have been open."""
    session = _session(path=list(map(_said, path)), either=list(map(_said, either)))

    assert [rule for rule in _wrong(session) if rule != DECIDED] == ([] if is_right else [HEADLINE])
    assert (DECIDED in _wrong(session)) == bool(either)


def test_no_operation_in_the_headline() -> None:
    """An operation is wrong where the peak was outside of all, and none is right."""
    truth = _truth(names=frozenset({""}))

    assert _wrong(_session(path=[]), truth) == []
    assert _wrong(_session(), truth) == ["headline"]
