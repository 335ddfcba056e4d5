from __future__ import annotations

from nncftools.cli.sweep.checks import find_shared

TEXT = "It was the best of times, it was the worst of times, it was the age of wisdom."


def test_shared_words_are_found() -> None:
    """Twelve words in the same order are found, whatever the punctuation and case."""
    other = f"Somebody wrote: {TEXT.upper().replace(',', ';')}"

    assert find_shared(other, TEXT) == "it was the best of times it was the worst of times"


def test_short_runs_are_no_overlap() -> None:
    """A few words that are the same are an accident."""
    assert find_shared("It was the best of times. " * 5, TEXT) == ""
    assert find_shared("", TEXT) == ""
