from __future__ import annotations

from functools import reduce

from nncftools.live.figures import Order, ViewSettings, after
from tests.live.made_up import run

PLAIN = ViewSettings()


def pressed(keys: str, look: ViewSettings = PLAIN) -> ViewSettings:
    """Return the look after these keys."""
    return reduce(after, keys, look)


def test_metrics_in_turn() -> None:
    """The key m shows the metrics of the run together, then each alone, those of the machine, too."""
    shown = [pressed("m" * times).chart(run().columns) for times in range(5)]

    assert shown == [["rss", "anon"], ["rss"], ["anon"], ["system"], ["rss", "anon"]]


def test_metric_that_was_asked_for() -> None:
    """Metrics that were asked for come first."""
    assert ViewSettings(metrics=["system"]).chart(["rss", "system"]) == ["system"]


def test_zoom() -> None:
    """Zooming in and out again changes nothing; there is an end to both."""
    assert pressed("+=").zoom == 2
    assert pressed("+-") == pressed("_") == PLAIN
    assert pressed("+" * 50).zoom < 10


def test_orders_in_turn() -> None:
    """The key s goes through all orders."""
    assert [pressed("s" * times).order for times in range(5)] == [*Order, Order.MEMORY]


def test_filter_is_typed() -> None:
    """After a slash, keys are characters of the filter, also those with another meaning; Enter ends this."""
    look = pressed("/rank qs\x7f\x7f7\r")

    assert (look.filter, look.typing, look.order) == ("rank 7", False, Order.MEMORY)
    assert pressed("s", look).order is Order.CPU


def test_filter_is_cleared() -> None:
    """Escape clears the filter, while it is typed and afterwards."""
    assert pressed("/rank\x1b") == PLAIN
    assert pressed("/rank\r\x1b") == PLAIN


def test_control_characters_are_no_filter() -> None:
    """What cannot be shown cannot be typed, and a filter has an end."""
    assert pressed("/a\x01b\t").filter == "ab"
    assert len(pressed("/" + "a" * 1000).filter) < 100


def test_other_keys_change_nothing() -> None:
    """A key that means nothing does nothing."""
    assert pressed("x\x1b") == PLAIN
