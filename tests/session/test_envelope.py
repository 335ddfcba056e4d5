from __future__ import annotations

from typing import Any

import pytest

from nncftools.session.model import Unseen
from nncftools.session.peaks import Envelope
from tests.made_up import MIB, mib, process, session

PAGE, HUGE = 4096, 2 * MIB


def envelope(*unseen: tuple[float, float, int | None], **fields: Any) -> Envelope:  # noqa: ANN401 — any field
    """Return the envelope of samples of 100, 300 and 200 MiB, and of more between two moments, in MiB."""
    from_s, to_s, most = map(list, zip(*unseen, strict=True)) if unseen else ([], [], [])
    of = Unseen(from_s=from_s, to_s=to_s, most=mib(*most))
    given: dict[str, Any] = {"processes": [process(samples=3)], "unseen": of}
    return Envelope(session(fields.pop("columns", None), **{**given, **fields}))


@pytest.mark.parametrize(
    ("span_s", "expected"),
    [((0.0, 0.5), 303), ((0.1, 0.2), 303), ((0.6, 0.9), 303), ((-0.1, 0.2), None), ((0.6, 1.1), None)],
    ids=["first", "between two", "last two", "before the first sample", "after the last sample"],
)
def test_samples(span_s: tuple[float, float], expected: int | None) -> None:
    """Without anything unseen, the samples around a time bound it, but for noise of 1 %."""
    assert envelope().most(*span_s) == (None if expected is None else expected * MIB)


def test_unseen() -> None:
    """What the sampler says of the time between two samples counts where it overlaps."""
    of = envelope((0.0, 0.5, 400), (0.5, 1.0, None))

    assert of.most(0.1, 0.2) == 400 * MIB
    assert of.most(0.4, 0.6) is None
    assert of.most(0.6, 0.7) is None


def test_process_that_no_sample_shows() -> None:
    """What processes can have held that no sample shows is added while they lived; unknown stays unknown."""
    short = process(1, start_s=0.1, end_s=0.2, high_water_mark=40 * MIB, accounted=True)
    unknown = process(1, start_s=0.1, end_s=0.2)

    assert envelope(processes=[process(samples=3), short]).most(0.1, 0.2) == 343 * MIB
    assert envelope(processes=[process(samples=3), short]).most(0.3, 0.4) == 303 * MIB
    assert envelope(processes=[process(samples=3), unknown]).most(0.1, 0.2) is None


def test_nothing_is_known() -> None:
    """Without lines of the sampler and without RSS there is no bound."""
    assert envelope(unseen=None).most(0.1, 0.2) is None
    assert envelope(columns={"pss": mib(1, 2, 3)}).most(0.1, 0.2) is None


@pytest.mark.parametrize("rss", [(2, None, 1), (None, 2, 1), (2, None, None)])
def test_only_zombies_were_left(rss: tuple[int | None, ...]) -> None:
    """A sample without RSS is one of zombies, which hold nothing."""
    assert envelope(columns={"rss": mib(*rss)}).most(0.1, 0.4) == (3 if 2 in rss[:2] else 1) * MIB


@pytest.mark.parametrize(
    ("huge", "expected"),
    [([0, 0, 0], 10 * PAGE), ([0, 0, HUGE], 10 * PAGE + HUGE), ([0, 0, 90 * HUGE], 10 * PAGE + 10 * HUGE)],
    ids=["none", "one", "more than there were faults"],
)
def test_page_faults(huge: list[int], expected: int) -> None:
    """Each fault adds a page, and as many huge pages as the machine mapped meanwhile, at most one each."""
    of = envelope(columns={"rss": mib(1, 2, 3), "huge_pages": huge})

    assert of.grown(10, 0.1, 0.9) == expected


def test_page_faults_where_huge_pages_are_not_known() -> None:
    """Before the first and after the last count of huge pages, nothing is known of faults."""
    columns = {"rss": mib(1, 2, 3), "huge_pages": [None, 0, 0]}

    assert envelope(columns=columns).grown(10, 0.1, 0.9) is None
    assert envelope().grown(10, 0.1, 0.9) is None


def test_total_is_the_last_count() -> None:
    """The totals at the end bound what follows the last sample."""
    columns = {"rss": mib(1, 2, 3), "huge_pages": [0, 0, None]}

    assert envelope(columns=columns, totals={"huge_pages": HUGE}).grown(10, 0.1, 0.9) == 10 * PAGE + HUGE
