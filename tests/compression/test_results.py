from __future__ import annotations

import csv
import itertools
import math
import pathlib

import pytest

from nncftools.compression.reading import LAMBADA_ACCURACY, LAMBADA_PERPLEXITY, STANDARD, WIKITEXT
from nncftools.compression.results import Group, differing, group_of, pareto
from nncftools.errors import NncfToolsError
from tests.compression.made_up import HEADER, MADE_UP, changed, compared, four, written


class TestFigures:
    def test_error_and_rate(self) -> None:
        """Error is the mean of the four relative errors, rate the baseline's size over the model's; sorted by error."""
        (comparison,) = compared(MADE_UP)
        found = [(round(result.error, 12), result.rate) for result in comparison.results]

        assert found == [(0, 1), (0.01, 4), (0.03, 5), (0.05, 6.4), (0.08, 8), (0.14, 8)]

    @pytest.mark.parametrize(
        ("column", "cell"), [("model size, Gb", "1e-300"), ("model size, Gb", "1e15"), (HEADER[7], "1e15")]
    )
    def test_impossible_figures(self, tmp_path: pathlib.Path, column: str, cell: str) -> None:
        """Impossible figures are refused with their row."""
        with pytest.raises(NncfToolsError, match=r"a\.csv': row 4: error .*: check its figures"):
            compared(written(tmp_path / "a.csv", changed(four(), 4, column, cell)))

    def test_one_metric(self, tmp_path: pathlib.Path) -> None:
        """With one metric, its relative error is the error."""
        rows = [{**one, "wikitext, word perplexity": str(10 + place)} for place, one in enumerate(four())]
        (comparison,) = compared(written(tmp_path / "a.csv", rows), metrics=(WIKITEXT,))

        assert [round(result.error, 9) for result in comparison.results] == [0, 0.1, 0.2, 0.3]

    def test_formula_is_the_published_one(self, phi3: pathlib.Path) -> None:
        """With the baseline rounded as for the published column, the column is reproduced, including signs."""
        rounded = {WIKITEXT.column: 9.48, LAMBADA_ACCURACY.column: 0.6548, LAMBADA_PERPLEXITY.column: 5.09}
        with phi3.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["mode"] != "fp32"]
        for row in rows:
            errors = [
                metric.relative_error(float(row[metric.column]), rounded.get(metric.column, 1.0)) for metric in STANDARD
            ]

            assert sum(errors) / 4 == pytest.approx(float(row["average relative error"]), abs=1e-12)

    def test_published_columns_do_not_differ_much(self, phi3: pathlib.Path) -> None:
        """The published error and rate agree with the computed ones to a thousandth."""
        assert differing(compared(phi3)[0]) == []

    def test_stored_figure_that_is_wrong(self, tmp_path: pathlib.Path) -> None:
        """A computed column of the file with different values is reported."""
        rows = [{**one, "compression rate": "4", "average relative error": "0"} for one in four()]
        header = [*HEADER, "compression rate", "average relative error"]
        (comparison,) = compared(written(tmp_path / "a.csv", rows, header))

        assert differing(comparison) == ["compression rate"]

    def test_standard_error(self, tmp_path: pathlib.Path) -> None:
        """Standard errors of row and baseline add up in squares, each over its baseline and the number of metrics."""
        column = "lambada-openai, acc"
        rows = [
            {**one, column: "0.4" if one["mode"] == "int8" else "0.5", f"{column} stderr": "0.01"} for one in four()
        ]
        (comparison,) = compared(written(tmp_path / "a.csv", rows, [*HEADER, f"{column} stderr"]))
        by_mode = {result.row.mode: result.error_stderr for result in comparison.results}

        assert by_mode["fp32"] is None
        assert by_mode["int8"] == pytest.approx(math.hypot(0.01 / 0.5, 0.4 * 0.01 / 0.5**2) / 4)

    def test_no_standard_error(self) -> None:
        """Without such columns, there is no standard error."""
        assert {result.error_stderr for result in compared(MADE_UP)[0].results} == {None}


class TestPareto:
    def test_is_what_nothing_beats(self) -> None:
        """A point is on the front exactly when no other is at least as good in both and better in one."""
        points = [(x / 7, (x * y) % 5 + y / 9) for x, y in itertools.product(range(6), range(7))]

        def beaten(point: tuple[float, float]) -> bool:
            return any(x <= point[0] and y >= point[1] and (x, y) != point for x, y in points)

        assert pareto(points) == {place for place, point in enumerate(points) if not beaten(point)}

    def test_equal_points_stay_together(self) -> None:
        """Two rows with the same figures are both on the front."""
        assert pareto([(0.1, 4.0), (0.1, 4.0), (0.2, 3.0)]) == {0, 1}


@pytest.mark.parametrize(
    ("mode", "int4", "expected"),
    [
        ("int8", 0, Group.INT8),
        ("INT8_ASYM", 0, Group.INT8),
        ("int4 + scale estimation + LoRA correction", 1, Group.LORA),
        ("int4 + gptq", 0.8, Group.GPTQ),
        ("int4", 0.6, Group.MIXED),
        ("int4 + scale estimation", 1, Group.DATA_AWARE),
        ("int4_sym + awq", 1, Group.DATA_AWARE),
        ("int4", 1, Group.DATA_FREE),
        ("NF4", 1, Group.DATA_FREE),
        ("mxfp4", 1, Group.DATA_FREE),
        ("ternary", 0, Group.OTHER),
    ],
)
def test_group(mode: str, int4: float, expected: Group) -> None:
    """The kind follows from the words of the mode and the share of int4, not from exact names."""
    assert group_of(mode, int4) is expected


class TestNames:
    def test_title(self) -> None:
        """The title holds the model's name and the set-up without the word model."""
        assert compared(MADE_UP)[0].title == "Made-up-7b, made up, gs64"

    def test_same_model_in_two_files(self, tmp_path: pathlib.Path) -> None:
        """The same model in two set-ups is distinguished by them, or else by the file names."""
        asym = ["model, int4_asym", *HEADER[1:]]
        rows = [{**one, asym[0]: one[HEADER[0]]} for one in four()]
        a, b = written(tmp_path / "a.csv", four()), written(tmp_path / "b.csv", rows, asym)
        c = written(tmp_path / "c.csv", four())

        assert [one.name for one in compared(a, b)] == ["Made-up-7b, made up", "Made-up-7b, int4_asym"]
        assert [one.name for one in compared(a, c)] == ["Made-up-7b, a", "Made-up-7b, c"]
