from __future__ import annotations

import csv
import pathlib

import pytest

from nncftools.compression.outputs import Request, make
from nncftools.compression.reading import STANDARD, ResultsError
from tests.compression.made_up import MADE_UP

VERDICT = "compress: out of memory, the limit was 8 GiB | at 3 s"


def with_failure(folder: pathlib.Path) -> pathlib.Path:
    """Write the made-up results with a configuration that failed, whose size and quality are unknown."""
    with MADE_UP.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    failed = {**dict.fromkeys(rows[0], ""), next(iter(rows[0])): next(iter(rows[0].values())), "mode": "int4 + gptq"}
    failed |= {"plot name": "no room", "failed": VERDICT}
    path = folder / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "failed"], restval="")
        writer.writeheader()
        writer.writerows([rows[0], failed, *rows[1:]])
    return path


def test_failed_row_is_listed_under_the_table(tmp_path: pathlib.Path) -> None:
    """A row with a verdict needs no figures; it is under the table with its verdict, and nowhere else."""
    outcome = make(Request([with_failure(tmp_path)], tmp_path / "out", ("svg",), STANDARD, extra=True))
    table, _, listed = (tmp_path / "out" / "a.md").read_text().partition("\n\nFailed:\n\n")
    (comparison,) = outcome.comparisons

    assert "no room" not in [result.label for result in comparison.results]
    assert listed == "- int4 + gptq (no room): compress: out of memory, the limit was 8 GiB &#124; at 3 s"
    assert "failed" not in table
    assert [failure.verdict for failure in comparison.model.failures] == [VERDICT]


def test_model_whose_rows_all_failed_is_refused(tmp_path: pathlib.Path) -> None:
    """It would vanish without a word: the error has the model and its first verdict."""
    path = with_failure(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text(lines[0] + lines[2], encoding="utf-8")

    with pytest.raises(ResultsError, match=r"each row of model .* has failed; the first one says 'compress: out of"):
        make(Request([path], tmp_path / "out", ("svg",), STANDARD))
