from __future__ import annotations

import pathlib

import pytest

from nncftools.compression.checking import load
from nncftools.compression.columns import STANDARD, chosen_metrics
from nncftools.errors import NncfToolsError
from tests.compression.made_up import HEADER, MADE_UP, changed, four, many, row, written


def complaint(*paths: pathlib.Path, lenient: bool = False) -> str:
    """Return the message of the error from reading the files."""
    with pytest.raises(NncfToolsError) as caught:
        load(paths, STANDARD, lenient=lenient)
    assert caught.value.exit_code == 1
    return str(caught.value)


class TestGoodInput:
    def test_figures_are_read(self) -> None:
        """A file is read with its model, set-up, baseline, figures and further columns."""
        (model,) = load([MADE_UP], STANDARD)
        lora = model.rows[5]

        assert (model.name, model.setup, model.baseline.mode) == ("Made-up-7b", "model, made up, gs64", "fp32")
        assert (lora.number, lora.lora_rank, lora.size, lora.plot_name) == (7, 64, 1.6, "rank 64")
        assert lora.values["lambada-openai, acc"] == 0.49
        assert lora.extra == {"compression time, min": "60"}

    @pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
    @pytest.mark.parametrize("mark", ["", "\ufeff"])
    def test_spreadsheets_files(self, tmp_path: pathlib.Path, mark: str, ending: str) -> None:
        """A byte order mark, other systems' line endings and empty lines change nothing."""
        text = mark + MADE_UP.read_text(encoding="utf-8").replace("\n", ending) + ending + "," * 11 + ending
        (tmp_path / "a.csv").write_bytes(text.encode())

        assert load([tmp_path / "a.csv"], STANDARD)[0].rows == load([MADE_UP], STANDARD)[0].rows

    def test_baseline_is_fp32_not_the_largest(self, tmp_path: pathlib.Path) -> None:
        """The baseline is the row whose mode is fp32, in any position, even when others are larger."""
        rows = [*four()[1:], row("int4 + fp32 embeddings", **{"model size, Gb": 99}), row("FP32")]
        (model,) = load([written(tmp_path / "a.csv", rows)], STANDARD)

        assert model.baseline.mode == "FP32"

    def test_models_of_a_file_are_apart(self, tmp_path: pathlib.Path) -> None:
        """Rows of several models in one file have one baseline each."""
        other = [{**one, HEADER[0]: "Other", "model size, Gb": "5"} for one in four()]
        models = load([written(tmp_path / "a.csv", [*four(), *other])], STANDARD)

        assert [(model.name, model.baseline.size) for model in models] == [("Made-up-7b", 8), ("Other", 5)]

    def test_lenient(self, tmp_path: pathlib.Path) -> None:
        """With lenient, modes may be missing, and the model lists them."""
        (model,) = load([written(tmp_path / "a.csv", [row("fp32"), row("int8")])], STANDARD, lenient=True)

        assert model.missing == ["int4", "gptq"]


WRONG = [
    ("%int4", "40", "row 4, column '%int4': a number from 0 to 1 expected (a percentage?), found '40'"),
    ("%int4", "40%", "row 4, column '%int4': a number expected (a percentage? a fraction from 0 to 1 expected)"),
    ("%int8", "-0.1", "row 4, column '%int8': a number from 0 to 1 expected, found '-0.1'"),
    ("%int8", "0.5", "row 4, column '%int4': together with '%int8' (0.5) at most 1 expected, found '1'"),
    ("lora rank", "8.5", "row 4, column 'lora rank': a whole number of at least 1, or nothing, expected, found '8.5'"),
    ("lora rank", "high", "found 'high'"),
    ("model size, Gb", "0", "row 4, column 'model size, Gb': a number above 0 expected, found '0'"),
    ("model size, Gb", "-2", "a number above 0 expected, found '-2'"),
    ("model size, Gb", "inf", "a finite number expected, found 'inf'"),
    ("model size, Gb", "", "row 4, column 'model size, Gb': a number expected, found nothing"),
    ("model size, Gb", "2,004", "a number expected, found '2,004'"),
    ("wikitext, word perplexity", "nan", "a finite number expected, found 'nan'"),
    ("wikitext, word perplexity", "low", "column 'wikitext, word perplexity': a number expected, found 'low'"),
    ("wikitext, word perplexity", "0.5", "a number of at least 1 expected, found '0.5'"),
    ("lambada-openai, perplexity", "1e999", "a finite number expected, found '1e999'"),
    ("lambada-openai, acc", "65.5", "a number from 0 to 1 expected (a percentage?), found '65.5'"),
    ("lambada-openai, acc", "1_0", "a number expected, found '1_0'"),
    ("WWB, similarity", "\u0661", "a number expected"),
    ("WWB, similarity", "-0.2", "a number from 0 to 1 expected, found '-0.2'"),
    ("mode", "", "row 4, column 'mode': a mode expected, found nothing"),
    (HEADER[0], "", "row 4, column 'model, made up': the model's name expected, found nothing"),
]


class TestBadInput:
    @pytest.mark.parametrize(("column", "cell", "message"), WRONG)
    def test_cell(self, tmp_path: pathlib.Path, column: str, cell: str, message: str) -> None:
        """A wrong cell is reported with its row, column and value."""
        path = written(tmp_path / "a.csv", changed(four(), 4, column, cell))

        assert message in complaint(path)

    @pytest.mark.parametrize("column", HEADER[1:])
    def test_missing_column(self, tmp_path: pathlib.Path, column: str) -> None:
        """A missing column is named."""
        path = written(tmp_path / "a.csv", four(), [name for name in HEADER if name != column])

        assert f"row 1: no column {column!r}" in complaint(path)

    def test_column_with_another_spelling(self, tmp_path: pathlib.Path) -> None:
        """A similar column name is shown with the missing one."""
        rows = [{**one, "model size, GB": "1"} for one in four()]
        header = ["model size, GB" if name == "model size, Gb" else name for name in HEADER]

        assert "no column 'model size, Gb' (found 'model size, GB')" in complaint(
            written(tmp_path / "a.csv", rows, header)
        )

    def test_no_column_for_the_model(self, tmp_path: pathlib.Path) -> None:
        """A file that begins with the mode lacks the model."""
        path = written(tmp_path / "a.csv", four(), HEADER[1:])

        assert "row 1, column 'mode': the first column must name the set-up and hold the models" in complaint(path)

    def test_column_of_numbers_first(self, tmp_path: pathlib.Path) -> None:
        """A file whose first column has no name, such as an index, is refused."""
        path = written(tmp_path / "a.csv", four(), ["", *HEADER])

        assert complaint(path).endswith("row 1, column '': the first column must name the set-up and hold the models")

    def test_column_twice(self, tmp_path: pathlib.Path) -> None:
        """A duplicate column is named."""
        path = written(tmp_path / "a.csv", four(), [*HEADER, "mode"])

        assert "columns named twice: 'mode'" in complaint(path)

    @pytest.mark.parametrize("word", ["fp32", "int8", "gptq"])
    def test_missing_mode(self, tmp_path: pathlib.Path, word: str) -> None:
        """A missing mode is named; a missing baseline also with lenient."""
        path = written(tmp_path / "a.csv", [one for one in four() if word not in one["mode"]])

        assert f"model 'Made-up-7b' has no row with {word!r}" in complaint(path, lenient=word == "fp32")

    def test_no_int4(self, tmp_path: pathlib.Path) -> None:
        """With fp32, int8 and a gptq row without int4 in its mode, int4 is missing."""
        path = written(tmp_path / "a.csv", [row("fp32"), row("int8"), row("gptq")])

        assert "has no row with 'int4' (allowed with --lenient)" in complaint(path)

    def test_two_baselines(self, tmp_path: pathlib.Path) -> None:
        """Two fp32 rows are reported with their numbers."""
        path = written(tmp_path / "a.csv", [*four(), row("FP32")])

        assert "has 2 baselines, one expected: row 2 ('fp32'), row 6 ('FP32')" in complaint(path)

    def test_baseline_of_zero(self, tmp_path: pathlib.Path) -> None:
        """A baseline of 0 is refused."""
        path = written(tmp_path / "a.csv", changed(four(), 2, "lambada-openai, acc", "0"))

        assert "row 2, column 'lambada-openai, acc': the baseline cannot be 0" in complaint(path)

    def test_all_problems_at_once(self, tmp_path: pathlib.Path) -> None:
        """One message lists the problems of all files, separated by semicolons."""
        rows = changed(changed(four(), 3, "%int8", "100%"), 5, "model size, Gb", "-1")
        first, second = written(tmp_path / "a.csv", rows), written(tmp_path / "b.csv", four()[1:])
        problems = complaint(first, second, tmp_path / "c.csv").split("; ")

        assert len(problems) == 4
        assert [problem.split(": ")[0][-6:] for problem in problems[:3]] == ["a.csv'", "a.csv'", "b.csv'"]
        assert "c.csv': No such file" in problems[3]

    def test_many_problems_are_counted(self, tmp_path: pathlib.Path) -> None:
        """Beyond twenty, problems are only counted."""
        path = written(tmp_path / "a.csv", [{**one, "%int8": "x"} for one in many(50)])
        message = complaint(path, lenient=True)

        assert message.count("column '%int8'") == 20
        assert message.endswith("; and 31 more")

    def test_wrong_number_of_cells(self, tmp_path: pathlib.Path) -> None:
        """A row with too many or too few cells is named."""
        path = written(tmp_path / "a.csv", four())
        with path.open("a") as file:
            file.write("a,b\r\n")

        assert "row 6: 11 cells expected, found 2" in complaint(path)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "the file is empty"),
            (b"\n\n", "the file is empty"),
            (",".join(f'"{name}"' for name in HEADER).encode(), "there is a header and no rows"),
            ("é".encode("latin-1") + b",mode\n", "the file is not UTF-8 (byte 0xe9 in line 1)"),
            ("model,mode\n".encode("utf-16"), "the file is in UTF-16"),
            (b"model;mode;%int4\n", "separated by semicolons; commas expected"),
            (b'"model, x"\tmode\t"%int4"\n', "separated by tabs; commas expected"),
            (b"\x00\x01\x02", "not a text file"),
            (b'model,mode\n"never closed', "row 2 is not CSV"),
            (b"model,mode\n" + b"x" * 200_000, "row 2 is not CSV: field larger"),
        ],
    )
    def test_file(self, tmp_path: pathlib.Path, content: bytes, message: str) -> None:
        """A file that is not a valid CSV file is refused with its name and the reason."""
        (tmp_path / "a.csv").write_bytes(content)

        assert message in complaint(tmp_path / "a.csv")
        assert "a.csv'" in complaint(tmp_path / "a.csv")

    def test_folder(self, tmp_path: pathlib.Path) -> None:
        """A folder is not a file."""
        assert "Is a directory" in complaint(tmp_path)

    def test_too_many_rows(self, tmp_path: pathlib.Path) -> None:
        """100,000 rows are refused with the limit."""
        header, *rows = MADE_UP.read_text(encoding="utf-8").splitlines()
        (tmp_path / "a.csv").write_text("\n".join([header, *rows[:1], *rows[1:2] * 99_999]), encoding="utf-8")
        message = complaint(tmp_path / "a.csv")

        assert message.endswith("more than 1,000 rows; split the file, or take the best rows")


class TestMetrics:
    def test_own_columns_replace_the_standard_ones(self, tmp_path: pathlib.Path) -> None:
        """With the user's own metrics, the standard columns are optional."""
        rows = [{**one, "mmlu, acc": "55"} for one in four()]
        header = [*HEADER[:7], "mmlu, acc"]
        (model,) = load([written(tmp_path / "a.csv", rows, header)], chosen_metrics(("mmlu, acc:higher",)))

        assert model.rows[0].values == {"mmlu, acc": 55}
