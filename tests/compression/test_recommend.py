from __future__ import annotations

import pathlib

import pytest

from nncftools.compression.recommend import bound_of, recommended
from nncftools.errors import UsageError
from tests.compression.made_up import MADE_UP, changed, compared, four, written


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("error<=5%", "int4 + scale estimation"),
        ("Error < 5 %", "int4 + scale estimation + lora correction"),
        ("error ≤ 0.085", "int4 + scale estimation + gptq"),
        ("error<=20%", "int4 + scale estimation + gptq"),
        ("error<=0%", "fp32"),
    ],
)
def test_smallest_under_the_bound(text: str, mode: str) -> None:
    """The smallest model within the bound is recommended, among equals the one with the least error."""
    best = recommended(compared(MADE_UP)[0], bound_of(text))

    assert best is not None
    assert best.row.mode == mode


def test_none(tmp_path: pathlib.Path) -> None:
    """Without a row within the bound, there is no recommendation."""
    rows = changed(four(), 2, "WWB, similarity", "0.9")
    (comparison,) = compared(written(tmp_path / "a.csv", [{**one, "WWB, similarity": "0.9"} for one in rows]))

    assert recommended(comparison, bound_of("error<1%")) is None


@pytest.mark.parametrize("text", ["error", "error<=", "error>=5%", "rate>=4", "error<=x%", "error<=-1%", "error<=nan%"])
def test_what_is_no_bound(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(UsageError, match=r"'error<=5%' or 'error<0\.05' expected"):
        bound_of(text)


def test_five_is_not_five_percent() -> None:
    """A bound above 1 without a percent sign is refused."""
    with pytest.raises(UsageError, match="means 500%; write 'error<=5%'"):
        bound_of("error<=5")
