from __future__ import annotations

import json
from math import isnan

import msgspec
import pytest

from nncftools.errors import SessionFileError
from nncftools.session.samples import Samples


def loaded(**columns: str) -> Samples:
    """Return columns as a file has them: JSON that is parsed on use."""
    texts = {"time_s": "[0, 0.5]", **columns}
    return Samples({name: msgspec.Raw(text.encode()) for name, text in texts.items()}, "run.json")


def written(of: Samples) -> dict[str, str]:
    """Return the JSON of every column."""
    return {name: bytes(raw).decode() for name, raw in of.raw().items()}


def test_column_never_asked_for_is_written_as_it_was() -> None:
    """A column that was not parsed keeps its very text."""
    of = loaded(rss="[1,   2.50]")

    assert written(of)["rss"] == "[1,   2.50]"


@pytest.mark.parametrize("text", ["[1048576,2]", "[9007199254740991,null]"])
def test_bytes_are_written_as_integers(text: str) -> None:
    """Sizes in bytes stay integers, also beside an unknown one."""
    of = loaded(rss=text)
    _ = of["rss"]

    assert written(of)["rss"] == text


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("rss", "[1]", "at `$.samples.rss`: 2 values expected, one for each of 'time_s', found 1"),
        ("rss", "[1e999, 2]", "at `$.samples.rss`: Number out of range - at `$[0]`"),
        ("rss", '[1, "2"]', "at `$.samples.rss`: Expected `float | null`, got `str` - at `$[1]`"),
        ("rss", f'[{"1," * 50_000}"2"]', "at `$.samples.rss`: Expected `float | null`, got `str` - at `$[50000]`"),
        ("rss", f'"{"1," * 50_000}"', "at `$.samples.rss`: Expected `array`, got `str`"),
        ("rss", f'{{"a": [{"1," * 50_000}1]}}', "at `$.samples.rss`: Expected `array`, got `object`"),
        ("time_s", f"[{'7,' * 50_000}0]", "at `$.samples.time_s[50000]`: time goes back from 7.0 to 0.0"),
        ("rss", "5", "at `$.samples.rss`: Expected `array`, got `int`"),
        ("rss", "null", "at `$.samples.rss`: Expected `array`, got `null`"),
        ("time_s", "[0.5, 0.25]", "at `$.samples.time_s[1]`: time goes back from 0.5 to 0.25"),
        ("time_s", "[-1, 0]", "at `$.samples.time_s`: seconds from 0 to 10^10 expected"),
        ("time_s", "[0, null]", "at `$.samples.time_s`: a number for every sample expected, found null"),
    ],
)
def test_impossible_column_names_its_place(name: str, text: str, message: str) -> None:
    """A column that cannot be right is one line with file, place and what was expected."""
    of = loaded(**{name: text})
    with pytest.raises(SessionFileError) as caught:
        _ = of[name]

    assert str(caught.value) == f"run.json: {message}"


@pytest.mark.parametrize("text, place", [("[1, -2]", 1), ("[1e30, 2]", 0)])
def test_values_out_of_range_are_unknown(text: str, place: int) -> None:
    """What cannot be is NaN, and the session has a warning."""
    warnings = ["earlier"]
    columns = {"time_s": msgspec.Raw(b"[0, 1]"), "rss": msgspec.Raw(text.encode())}
    of = Samples(columns, "run.json", warnings=warnings)

    assert [isnan(value) for value in of["rss"]] == [number == place for number in range(2)]
    assert of.figures("rss").known == 1
    assert warnings[1:] == [f"values out of range count as unknown: 1, the first at `$.samples.rss[{place}]`"]


class TestLong:
    """Columns are parsed a piece at a time."""

    @pytest.mark.parametrize("count, blanks", [(0, " "), (1, "\n  "), (7_000, ""), (20_000, "\n  ")])
    def test_is_parsed_whole(self, count: int, blanks: str) -> None:
        """No value is lost between pieces, whatever blanks are between the values; null is NaN."""
        between = f"{blanks},{blanks}"
        values = [None if place % 1000 == 999 else place * 10**9 + (place % 2) / 8 for place in range(count)]
        times, texts = (between.join(map(json.dumps, numbers)) for numbers in (range(count), values))
        found = loaded(time_s=f"[{blanks}{times}{blanks}]", other=f"[{blanks}{texts}{blanks}]")

        assert [len(found), len(found.time_s)] == [count] * 2
        assert [None if isnan(value) else value for value in found["other"]] == values
