"""The functions of NNCF's visualizer, used as its own ``visualize`` uses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import nncftools.compression
from nncftools.compression import (
    AVG_REL_ERROR,
    COMPRESSION_RATE,
    EXPECTED_COLUMNS,
    INT4_RATIO,
    LORA_RANK,
    MODE,
    MODEL_SIZE,
    add_relative_metrics,
    check_format,
    to_markdown,
    to_plot,
)
from nncftools.compression.reading import ResultsError
from tests.compression.made_up import MADE_UP, four


def table(rows: list[dict[str, str]] | None = None) -> pd.DataFrame:
    """Return rows as a table; by default those of the made-up file."""
    if rows is None:
        return pd.read_csv(MADE_UP)
    frame = pd.DataFrame(rows)
    for name in EXPECTED_COLUMNS:
        if name not in {MODE, "plot name"}:
            frame[name] = pd.to_numeric(frame[name])
    return frame


def test_names_of_columns() -> None:
    """The columns have the names that NNCF documents, and the words of the column of modes are those of its script."""
    names = nncftools.compression

    assert [
        *("mode", "%int4", "%int8", "lora rank", "plot name", "model size, Gb", "wikitext, word perplexity"),
        *("lambada-openai, acc", "lambada-openai, perplexity", "WWB, similarity"),
    ] == EXPECTED_COLUMNS
    assert names.EXPECTED_IN_MODE_COLUMN == [names.GPTQ, names.INT4, names.FP32] == ["gptq", "int4", "fp32"]
    assert ("int8", "%int8", EXPECTED_COLUMNS[6]) == (names.INT8, names.INT8_RATIO, names.WIKI_PPL)
    assert (AVG_REL_ERROR, COMPRESSION_RATE) == ("average relative error", "compression rate")


@pytest.mark.parametrize("published", [False, True])
def test_errors_and_rates(request: pytest.FixtureRequest, published: bool) -> None:  # noqa: FBT001 — a parameter
    """Each row gets its error and rate, and the table is sorted by the error; the given one stays as it is."""
    path = request.getfixturevalue("phi3") if published else MADE_UP
    expected = pd.read_csv(path.with_name(f"{path.stem}.expected.csv"))
    df = pd.read_csv(path)
    before = df.copy()
    found = add_relative_metrics(df)

    pd.testing.assert_frame_equal(df, before)
    assert list(found[MODE]) == list(expected[MODE])
    assert [f"{error:.1%}" for error in found[AVG_REL_ERROR]] == list(expected[AVG_REL_ERROR])
    assert [f"{rate:.1f}x" for rate in found[COMPRESSION_RATE]] == list(expected[COMPRESSION_RATE])


def test_rows_as_they_are_given(tmp_path: Path) -> None:
    """The table has the rows of the frame in their order, and its figures: also those of other errors."""
    df = add_relative_metrics(table(four()))[[MODE, INT4_RATIO, "%int8", LORA_RANK, AVG_REL_ERROR, COMPRESSION_RATE]]
    df = df[df[MODE].str.contains("int4")].assign(**{AVG_REL_ERROR: [0.25, 0.125]}).iloc[::-1]
    to_markdown(df, tmp_path / "a.md")
    header, _, *rows = (tmp_path / "a.md").read_text().splitlines()

    assert [cell.strip() for cell in header.split("|")[1:-1]][-2:] == [
        "average<br>relative<br>error",
        "compression<br>rate",
    ]
    assert [[cell.strip() for cell in row.split("|")][1:-1] for row in rows] == [
        ["int4 + gptq", "100%", "0%", "", "12.5%", "8.0x"],
        ["int4", "100%", "0%", "", "25.0%", "8.0x"],
    ]


def test_own_errors_are_drawn(tmp_path: Path) -> None:
    """The picture needs only the columns that describe the compression, and draws the errors of the table."""
    df = add_relative_metrics(table(four())).drop(columns=EXPECTED_COLUMNS[6:])
    to_plot(df, tmp_path / "a.svg")
    to_plot(df.assign(**{AVG_REL_ERROR: df[AVG_REL_ERROR] + 0.5}), tmp_path / "b.svg")

    assert (tmp_path / "a.svg").read_text() != (tmp_path / "b.svg").read_text()


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda df: df.drop(columns=["WWB, similarity", "mode"]), "no column 'mode'.*no column 'WWB, similarity'"),
        (lambda df: df[df[MODE] != "int4 + gptq"], "no row has these words in the column 'mode': gptq"),
        (lambda df: df[df[MODE] != "fp32"], "no row with 'fp32'"),
        (lambda df: df.assign(**{MODEL_SIZE: "80%"}), "row 2, column 'model size, Gb': a number above 0 expected"),
        (lambda df: df.assign(**{INT4_RATIO: 40}), "row 2, column '%int4': a number from 0 to 1 expected"),
        (lambda df: df.iloc[:0], "a header, but no rows"),
    ],
)
def test_what_cannot_be_compared(change: object, message: str) -> None:
    """All that is wrong is named, as an error that is also a RuntimeError."""
    assert callable(change)
    with pytest.raises(RuntimeError, match=message):
        check_format(change(table(four())))


def test_order_of_the_steps(tmp_path: Path) -> None:
    """Without the errors, table and picture say what to call first, and write nothing."""
    for write in (to_markdown, to_plot):
        with pytest.raises(ResultsError, match=r"no column 'average relative error'.*add_relative_metrics adds them"):
            write(table(four()), tmp_path / "a.md")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_import_is_cheap() -> None:
    """The package loads neither pandas nor Matplotlib."""
    script = (
        "import sys, nncftools.compression; nncftools.compression.MODE;"
        "print([name for name in ('pandas', 'matplotlib') if name in sys.modules])"
    )

    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
