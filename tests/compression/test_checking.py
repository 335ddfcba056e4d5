from __future__ import annotations

from pathlib import Path

import pytest

from nncftools.compression.checking import load
from nncftools.compression.reading import STANDARD
from nncftools.errors import NncfToolsError
from tests.compression.made_up import HEADER, MADE_UP, changed, four, many, row, written


def complaint(*paths: Path) -> str:
    """Return the message of the error from reading the files."""
    with pytest.raises(NncfToolsError) as caught:
        load(paths, STANDARD)
    assert caught.value.exit_code == 1
    return str(caught.value)


class TestGoodInput:
    @pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
    @pytest.mark.parametrize("mark", ["", "\ufeff"])
    def test_spreadsheets_files(self, tmp_path: Path, mark: str, ending: str) -> None:
        """A byte order mark, other systems' line endings and empty lines change nothing."""
        text = mark + MADE_UP.read_text(encoding="utf-8").replace("\n", ending) + ending + "," * 11 + ending
        (tmp_path / "a.csv").write_bytes(text.encode())

        assert load([tmp_path / "a.csv"], STANDARD)[0].rows == load([MADE_UP], STANDARD)[0].rows

    def test_baseline_is_fp32_not_the_largest(self, tmp_path: Path) -> None:
        """The baseline is the row whose mode is fp32, in any position, even when others are larger."""
        rows = [*four()[1:], row("int4 + fp32 embeddings", **{"model size, Gb": 99}), row("FP32")]
        (model,) = load([written(tmp_path / "a.csv", rows)], STANDARD)

        assert model.baseline.mode == "FP32"

    @pytest.mark.parametrize("cell", ["-0.02", "1.0005"])
    def test_similarity_is_a_cosine(self, tmp_path: Path, cell: str) -> None:
        """A similarity may be a little below 0, and above 1 as far as half precision rounds."""
        path = written(tmp_path / "a.csv", changed(four(), 4, "WWB, similarity", cell))
        (model,) = load([path], STANDARD)

        assert model.rows[2].values["WWB, similarity"] == float(cell)


class TestModelColumn:
    @pytest.mark.parametrize("heading", ["", "Unnamed: 0"])
    def test_index_of_pandas(self, tmp_path: Path, heading: str) -> None:
        """An index that pandas wrote, in any order, is no column."""
        rows = [{**one, heading: str(index)} for one, index in zip(four(), (2, 0, 3, 1), strict=True)]
        with_index = load([written(tmp_path / "a.csv", rows, [heading, *HEADER])], STANDARD)
        without = load([written(tmp_path / "a.csv", four())], STANDARD)

        assert with_index == without

    @pytest.mark.parametrize("heading", ["", "Unnamed: 0"])
    def test_names_without_heading(self, tmp_path: Path, heading: str) -> None:
        """A first column of names without a heading holds the models, and no set-up."""
        rows = [{**one, heading: "Named"} for one in four()]
        (model,) = load([written(tmp_path / "a.csv", rows, [heading, *HEADER[1:]])], STANDARD)

        assert (model.name, model.setup, model.rows[0].extra) == ("Named", "", {})

    @pytest.mark.parametrize("header", [HEADER[1:], ["", *HEADER[1:]]])
    def test_none(self, tmp_path: Path, header: list[str]) -> None:
        """A file that begins with the mode, or with an index and the mode, holds one model, named like the file."""
        rows = [{**one, "": str(number)} for number, one in enumerate(four())]
        (model,) = load([written(tmp_path / "phi3.csv", rows, header)], STANDARD)

        assert (model.name, model.setup, len(model.rows)) == ("phi3", "", 4)

    @pytest.mark.parametrize(
        "cells, expected",
        [
            (["A", "", "", ""], ["A"] * 4),
            (["", "", "A", ""], ["A"] * 4),
            (["A", "", "B", ""], ["A", "A", "B", "B"]),
            (["", "", "", ""], ["a"] * 4),
        ],
    )
    def test_blank_cells(self, tmp_path: Path, cells: list[str], expected: list[str]) -> None:
        """A blank cell takes the name above; a file with one name, or none, holds one model."""
        modes = ("fp32", "int8", "fp32", "int4")
        rows = [{**row(mode), HEADER[0]: cell} for mode, cell in zip(modes, cells, strict=True)]
        models = load([written(tmp_path / "a.csv", rows)], STANDARD)

        assert [one.model for model in models for one in model.rows] == expected


WRONG = [
    ("%int4", "40", "row 4, column '%int4': a number from 0 to 1 expected (a percentage?), found '40'"),
    ("%int8", "-0.1", "row 4, column '%int8': a number from 0 to 1 expected, found '-0.1'"),
    ("%int8", "0.5", "row 4, column '%int4': a sum of at most 1 with '%int8' (0.5) expected, found '1'"),
    ("lora rank", "8.5", "row 4, column 'lora rank': a whole number of at least 1, or nothing, expected, found '8.5'"),
    ("model size, Gb", "0", "row 4, column 'model size, Gb': a number above 0 expected, found '0'"),
    ("model size, Gb", "inf", "a number above 0 expected, found 'inf'"),
    ("model size, Gb", "", "row 4, column 'model size, Gb': a number above 0 expected, found nothing"),
    ("model size, Gb", "2,004", "a number above 0 expected, found '2,004'"),
    ("wikitext, word perplexity", "nan", "a number of at least 1 expected, found 'nan'"),
    ("wikitext, word perplexity", "0.5", "a number of at least 1 expected, found '0.5'"),
    ("lambada-openai, perplexity", "1e999", "a number of at least 1 expected, found '1e999'"),
    ("lambada-openai, acc", "65.5", "a number from 0 to 1 expected (a percentage?), found '65.5'"),
    ("lambada-openai, acc", "1_0", "a number from 0 to 1 expected, found '1_0'"),
    ("WWB, similarity", "\u0661", "a number from -1 to 1 expected"),
    ("WWB, similarity", "95", "a number from -1 to 1 expected (a percentage?), found '95'"),
    ("mode", "", "row 4, column 'mode': a mode expected, found nothing"),
]


class TestBadInput:
    @pytest.mark.parametrize("column, cell, message", WRONG)
    def test_cell(self, tmp_path: Path, column: str, cell: str, message: str) -> None:
        """A wrong cell is reported with its row, column and value."""
        path = written(tmp_path / "a.csv", changed(four(), 4, column, cell))

        assert message in complaint(path)

    def test_blank_model_above_several(self, tmp_path: Path) -> None:
        """Before the first of several models, a blank cell may belong to any of them."""
        rows = [{**one, HEADER[0]: cell} for one, cell in zip(four(), ("", "A", "B", ""), strict=True)]
        path = written(tmp_path / "a.csv", rows)

        assert "row 2, column 'model, made up': the model's name expected, found nothing" in complaint(path)

    def test_column_twice(self, tmp_path: Path) -> None:
        """A duplicate column is named."""
        path = written(tmp_path / "a.csv", four(), [*HEADER, "mode"])

        assert "columns named twice: 'mode'" in complaint(path)

    @pytest.mark.parametrize("names", [["none.csv"], ["bad.csv", "none.csv"], ["none.csv", "bad.csv"]])
    def test_missing_file(self, tmp_path: Path, names: list[str]) -> None:
        """A missing file is a FileNotFoundError and a RuntimeError, also next to other problems."""
        written(tmp_path / "bad.csv", four()[1:])
        with pytest.raises(FileNotFoundError, match=r"cannot read '.*none\.csv'") as caught:
            load([tmp_path / name for name in names], STANDARD)

        assert isinstance(caught.value, RuntimeError)

    def test_unclear_baseline(self, tmp_path: Path) -> None:
        """Without a row of the mode fp32 alone, several modes that name it are refused."""
        path = written(tmp_path / "a.csv", [row("int4 + fp32 embeddings"), row("fp32, eager"), row("int8")])

        assert "the mode of the baseline must be 'fp32' alone, found row 2 ('int4 + fp32 embeddings'), row 3" in (
            complaint(path)
        )

    def test_all_problems_at_once(self, tmp_path: Path) -> None:
        """One message lists the problems of all files, separated by semicolons."""
        rows = changed(changed(four(), 3, "%int8", "100%"), 5, "model size, Gb", "-1")
        first, second = written(tmp_path / "a.csv", rows), written(tmp_path / "b.csv", four()[1:])
        problems = complaint(first, second, tmp_path / "c.csv").split("; ")

        assert len(problems) == 4
        assert [problem.split(": ")[0][-6:] for problem in problems[:3]] == ["a.csv'", "a.csv'", "b.csv'"]
        assert "c.csv': No such file" in problems[3]

    def test_many_problems_are_counted(self, tmp_path: Path) -> None:
        """Beyond twenty, problems are only counted."""
        path = written(tmp_path / "a.csv", [{**one, "%int8": "x"} for one in many(50)])
        message = complaint(path)

        assert message.count("column '%int8'") == 20
        assert message.endswith("; and 31 more")

    @pytest.mark.parametrize(
        "content, message",
        [
            (b"", "the file is empty"),
            (b"\n\n", "the file is empty"),
            (",".join(f'"{name}"' for name in HEADER).encode(), "the file has a header, but no rows"),
            ("é".encode("latin-1") + b",mode\n", "the file is not UTF-8 (byte 0xe9 in line 1)"),
            ("model,mode\n".encode("utf-16"), "the file is not UTF-8 (byte 0xff in line 1)"),
            (b"," * 10_000 + b"\n", "more than 10,000 columns"),
            (b"model;mode;%int4\n", "separated by semicolons; commas expected"),
            (b'"model, x"\tmode\t"%int4"\n', "separated by tabs; commas expected"),
            (b"\x00\x01\x02", "not a text file"),
            (b'model,mode\n"never closed', "not CSV: EOF inside string starting at row 1"),
            (b"model,mode\n1,2\n1,2,3\n", "not CSV: Expected 2 fields in line 3, saw 3"),
        ],
    )
    def test_file(self, tmp_path: Path, content: bytes, message: str) -> None:
        """A file that is not a valid CSV file is refused with its name and the reason."""
        (tmp_path / "a.csv").write_bytes(content)

        assert message in complaint(tmp_path / "a.csv")
        assert "a.csv'" in complaint(tmp_path / "a.csv")
