from __future__ import annotations

import pathlib

import pytest

from nncftools.compression.results import Result, joined, series_name
from tests.compression.made_up import compared, row, without_int8, written


def results(folder: pathlib.Path, *modes: tuple[str, float]) -> list[Result]:
    """Return the results of rows with these modes and shares of int4."""
    rows = [row("fp32"), *(row(mode, **{"%int4": int4, "%int8": 0}) for mode, int4 in modes)]
    (comparison,) = compared(written(folder / "a.csv", rows))
    return [result for result in comparison.results if result.row is not comparison.model.baseline]


class TestName:
    @pytest.mark.parametrize(
        ("modes", "expected"),
        [
            (["int4 + scale estimation + gptq"], "100% int4, gptq + scale estimation"),
            (["int4 + awq + LoRA  correction"], "100% int4, LoRA correction + awq"),
            (["int4 + gptq", "INT4 + GPTQ + awq"], "100% int4, gptq"),
            (["gptq", "int4 + awq + gptq"], "100% int4, gptq"),
            (["int4 + lora", "int4 + lora correction"], "100% int4, LoRA correction"),
            (["int4"], "100% int4, data-free"),
            (["int4 symmetric", "nf4"], "100% 4-bit, data-free"),
            (["mxfp4 + awq"], "100% mxfp4, awq"),
            (["int4 + awq", "int4 + scale estimation"], "100% int4, data-aware"),
        ],
    )
    def test_whole(self, tmp_path: pathlib.Path, modes: list[str], expected: str) -> None:
        """Of fully compressed results, precision and common algorithms are named, the kind's own one first."""
        assert series_name(results(tmp_path, *((mode, 1) for mode in modes))) == expected

    @pytest.mark.parametrize(
        ("modes", "expected"),
        [
            (["int4 + scale estimation"], "mixed precision, scale estimation"),
            (["int4", "int4 + awq"], "mixed precision"),
            (["int4 + gptq"], "gptq"),
            (["int8 + + gptq"], "gptq"),
            (["+"], "mixed precision"),
            (["int4_sym + lora", "int4_sym + lora + awq"], "lora"),
        ],
    )
    def test_mixed(self, tmp_path: pathlib.Path, modes: list[str], expected: str) -> None:
        """Of results with a part in int4, only the algorithms are named."""
        assert series_name(results(tmp_path, *((mode, 0.6) for mode in modes))) == expected

    @pytest.mark.parametrize(("mode", "expected"), [("int8 + smooth", "int8"), ("ternary", "other")])
    def test_others(self, tmp_path: pathlib.Path, mode: str, expected: str) -> None:
        """Without int4, the name is the kind's."""
        assert series_name(results(tmp_path, (mode, 0))) == expected


class TestJoined:
    def test_ends_at_the_whole(self, tmp_path: pathlib.Path) -> None:
        """The line grows with the share of int4 and ends at 100 % of the same algorithms, in any order of naming."""
        found = results(tmp_path, ("int4 + awq", 1), ("int4", 1), ("awq + int4", 0.4), ("INT4 + awq", 0.8))

        assert [[result.row.int4 for result in series] for series in joined(found)] == [[0.4, 0.8, 1]]

    def test_each_series_has_its_line(self, tmp_path: pathlib.Path) -> None:
        """Different algorithms are not joined."""
        modes = [(mode, share) for mode in ("int4", "int4 + gptq") for share in (0.5, 1)]
        found = joined(results(tmp_path, *modes))

        assert [{result.row.mode for result in series} for series in found] == [{"int4"}, {"int4 + gptq"}]

    def test_ambiguous_share(self, tmp_path: pathlib.Path) -> None:
        """Two results with the same algorithms and share belong to no line."""
        assert joined(results(tmp_path, ("int4", 0.5), ("int4", 0.5), ("int4", 1))) == []

    def test_ranks_are_not_joined(self, tmp_path: pathlib.Path) -> None:
        """Adapters of several ranks, and results with one share, are not joined."""
        (comparison,) = compared(written(tmp_path / "a.csv", without_int8()))

        assert joined([result for result in comparison.results if result.row.int4 in {0, 1}]) == []
