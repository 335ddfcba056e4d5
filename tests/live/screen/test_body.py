from __future__ import annotations

import numpy as np

from nncftools.live.figures import ViewSettings
from nncftools.live.layout import Body
from nncftools.live.run import Run
from nncftools.render.canvas import Medium
from tests.live.made_up import MIB, run

LOOK = ViewSettings()


def more(of: Run, seconds: float, rss: float) -> None:
    """Let a run go on for some time."""
    values = dict.fromkeys(of.columns, 0.0) | of.latest | {"rss": rss}
    of.take_rows(np.array([of.latest_s + seconds]), np.array([[values[name] for name in of.columns]]))


def drawn(body: Body, of: Run) -> list[str]:
    """Return the rows of the body as text."""
    return ["".join(part.text for part in row) for row in body.rows(of, LOOK, Medium(), 80, 20)]


def test_drawn_again_only_when_something_is_seen() -> None:
    """A chart that would look the same is not drawn again; a change of memory is seen at once."""
    body, of = Body(), run(seconds=1000)
    drawn(body, of)
    first = body._drawn
    more(of, 0.1, of.latest["rss"])
    drawn(body, of)
    same = body._drawn
    more(of, 0.1, 400 * MIB)
    drawn(body, of)

    assert same is first
    assert body._drawn is not first


def test_rates_of_now() -> None:
    """The figure of a rate is always that of the last second."""
    body, of = Body(), run(seconds=1000)
    before = drawn(body, of)
    more(of, 2.0, 200 * MIB)
    after = drawn(body, of)

    assert any(row.startswith("Cores   1.00 ") for row in before)
    assert any(row.startswith("Cores   0.00 ") for row in after)


def test_heights() -> None:
    """There are as many rows as there is room for, however few."""
    for height in range(25):
        assert len(Body().rows(run(), LOOK, Medium(), 60, height)) == height
