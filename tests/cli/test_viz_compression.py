from __future__ import annotations

import json
import pathlib
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import TypeVar

import pytest

from nncftools.cli.compression import Also
from nncftools.compression.reading import FIGURES
from tests.compression.made_up import HEADER, MADE_UP, changed, four, many, row, with_figures, written
from tests.conftest import Run

Done = TypeVar("Done")
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "compression" / "smollm2.csv"
OWN = [
    *("--metric", "held-out text, perplexity:lower"),
    *("--metric", "held-out text, next-token acc:higher"),
    *("--metric", "held-out text, word acc:higher"),
]


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    """Write the minimum of four rows."""
    return written(tmp_path / "data.csv", four())


class TestFiles:
    @pytest.mark.long
    def test_table_and_picture(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Table and picture are written to the folder and named on standard error.

        It takes little more CPU than the imports for drawing: 1.1 s and 0.7 s on an idle machine.
        """
        imports = [sys.executable, "-c", "import matplotlib.figure, matplotlib.backends.backend_agg, pandas"]
        _, least_s = with_cpu(lambda: subprocess.run(imports, check=True))
        words = ("viz-compression", "--input-file", MADE_UP, "--output-dir", "out")
        result, whole_s = with_cpu(lambda: nncf_tools(*words))

        assert (result.returncode, result.stdout.count("\n")) == (0, 1)
        assert result.stderr == "Written to out/made_up_compression.md, out/made_up_compression.png\n"
        assert (tmp_path / "out/made_up_compression.md").read_text().count("\n") == 7
        assert (tmp_path / "out/made_up_compression.png").read_bytes().startswith(b"\x89PNG")
        assert whole_s < 4 * least_s

    @pytest.mark.parametrize("words", [["--input_file", "data.csv", "--output_dir", "."], ["-i", "data.csv"]])
    @pytest.mark.usefixtures("data")
    def test_spellings(self, in_process: Run, tmp_path: pathlib.Path, words: list[str]) -> None:
        """Options may be spelled with underscores; without a folder, the files go into the input's folder."""
        result = in_process("viz-compression", *words)

        assert result.returncode == 0
        assert {path.name for path in tmp_path.iterdir()} == {"data.csv", "data.md", "data.png"}

    @pytest.mark.usefixtures("data")
    def test_empty_folder(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """An empty --output-dir means the input's folder."""
        (tmp_path / "in").mkdir()
        (tmp_path / "data.csv").rename(tmp_path / "in" / "data.csv")
        result = in_process("viz-compression", "-i", "in/data.csv", "-o", "")

        assert result.returncode == 0
        assert {path.name for path in (tmp_path / "in").iterdir()} == {"data.csv", "data.md", "data.png"}

    def test_file_of_a_sweep(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """A CSV file of `sweep` is drawn by its own columns, and a note names them."""
        path = pathlib.Path(__file__).parents[2] / "examples/compression/smollm2_sweep.csv"

        result = in_process("viz-compression", "-i", path, "-o", ".")

        assert result.returncode == 0
        assert (
            "the error is the average of held-out text, word perplexity; held-out text, last-word acc" in result.stderr
        )
        assert (tmp_path / "smollm2_sweep.png").exists()

    @pytest.mark.long
    @pytest.mark.usefixtures("data")
    def test_formats(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """Every requested format is written, and no other; a second run replaces the files."""
        words = ["viz-compression", "-i", "data.csv", *(f"--format={kind}" for kind in ("svg", "pdf", "html"))]
        results = [in_process(*words) for _ in range(2)]

        assert [result.returncode for result in results] == [0, 0]
        assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".md", ".svg", ".pdf", ".html"}


def with_cpu(work: Callable[[], Done]) -> tuple[Done, float]:
    """Return the result of some work and the CPU time of the processes that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class TestOutput:
    def test_json(self, in_process: Run) -> None:
        """--json prints every row by the input's columns, with the computed values."""
        result = in_process("viz-compression", "-i", MADE_UP, "-o", "out", "--json", "--recommend", "error<=5%")
        rows = json.loads(result.stdout)

        assert [round(one["average relative error"], 9) for one in rows] == [0, 0.01, 0.03, 0.05, 0.08, 0.14]
        assert [one["recommended"] for one in rows] == [False, False, False, True, False, False]
        assert rows[2]["lora rank"] == 64
        assert rows[2]["compression rate"] == 5
        assert rows[0]["lora rank"] is None
        assert rows[0]["compression time, min"] == "0"

    def test_recommend(self, in_process: Run) -> None:
        """--recommend prints the smallest model within the bound to standard output."""
        result = in_process("viz-compression", "-i", MADE_UP, "-o", "out", "--recommend", "error<=5%")

        assert result.stdout == (
            "int4 with scale estimation (80% int4) is the smallest with error up to 5%: error 5.0%, 1.25 Gb, "
            "6.4x smaller\n"
        )

    def test_without_bounds(self, in_process: Run) -> None:
        """Without --recommend, the first line names the smallest model with an error of at most 5 %."""
        result = in_process("viz-compression", "-i", MADE_UP, "-o", "out")

        assert result.stdout.startswith("int4 with scale estimation (80% int4) is the smallest with error up to 5%: ")

    def test_answer_before_the_chart(self, in_process: Run) -> None:
        """With --terminal, the answer is the first line, and the chart follows."""
        result = in_process("viz-compression", "-i", MADE_UP, "-o", "out", "--terminal")

        assert result.stdout.splitlines()[0].startswith("int4 with scale estimation (80% int4) is the smallest")
        assert "compression rate" in result.stdout

    @pytest.mark.long
    def test_several_bounds(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """The recommendation has the bounded figures, and the number of rows left out for want of one."""
        with_figures(tmp_path / "a.csv")
        words = ["viz-compression", "-i", "a.csv", "--recommend"]
        found = in_process(*words, "size<3GiB, peak<=5G, latency<50ms")
        none = in_process(*words, "peak<1GiB")

        assert found.stdout == (
            "int4 is the smallest with size below 3 GiB and peak up to 5 GiB and latency below 50 ms: "
            "error 0.0%, 1 Gb, 8.0x smaller, peak 4.2 GiB, latency 30 ms\n"
        )
        assert none.stdout == "No model has peak below 1 GiB; 1 row left out, peak unknown\n"

    @pytest.mark.long
    def test_also(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """--also adds panels to the picture; each figure has one, however often it is asked for."""
        with_figures(tmp_path / "a.csv")
        words = [word for one in Also for word in ("--also", one, "--also", one)]
        result = in_process("viz-compression", "-i", "a.csv", "-f", "svg", *words)
        drawn = (tmp_path / "a.svg").read_text()

        assert result.returncode == 0
        assert drawn.count('id="panel-') == 3 * len(FIGURES)

    @pytest.mark.long
    def test_lenient(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """Missing modes are a note on standard error; --lenient omits it."""
        written(tmp_path / "a.csv", [row("fp32"), row("int8")])
        usual = in_process("viz-compression", "-i", "a.csv")
        lenient = in_process("viz-compression", "-i", "a.csv", "--lenient")

        assert (usual.returncode, usual.stdout, lenient.returncode) == (0, lenient.stdout, 0)
        assert usual.stderr == (
            "nncf-tools: note: Made-up-7b: no row with int4, gptq; the others are compared\nWritten to a.md, a.png\n"
        )
        assert lenient.stderr == "Written to a.md, a.png\n"

    def test_no_column_for_the_model(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """Without a column of models, the file's name is the model's, in every output."""
        written(tmp_path / "phi3.csv", four(), HEADER[1:])
        words = ("-f", "html", "--json", "--recommend", "error<=50%")
        result = in_process("viz-compression", "-i", "phi3.csv", *words)
        recommended = in_process("viz-compression", "-i", "phi3.csv", *words[3:])

        assert {one["model"] for one in json.loads(result.stdout)} == {"phi3"}
        assert "<h1>phi3</h1>" in (tmp_path / "phi3.html").read_text()
        assert recommended.stdout.startswith("int4 is the smallest with error up to 50%: ")

    @pytest.mark.usefixtures("data")
    def test_several_files(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """Several files give one table with a column of models."""
        result = in_process("viz-compression", "-i", "data.csv", "-i", MADE_UP, "-o", "out")

        assert result.returncode == 0
        table = (tmp_path / "out/data+made_up_compression.md").read_text()
        answered = [line.partition(": ")[0] for line in result.stdout.splitlines()]
        assert answered == ["Made-up-7b, made up", "Made-up-7b, made up, gs64"]
        assert table.startswith("| model ")
        assert table.count("\n") == 11

    def test_example(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """The example's own metrics, further columns and largest error work as its README shows."""
        words = ["--extra", "--max-error", "30%", "--recommend", "error<=10%", *OWN]
        result = in_process("viz-compression", "-i", EXAMPLE, "-o", "out", *words)

        assert result.returncode == 0
        assert result.stdout.startswith("int4 symmetric with lora correction is the smallest with error up to 10%: ")
        assert "note: not in the picture, because of larger errors: int2 at 19,264%\n" in result.stderr
        assert "compression<br>time,<br>s" in (tmp_path / "out/smollm2.md").read_text()


class TestBadInput:
    def test_one_message(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """All problems are listed with row, column and value, below the file's name; status 1; nothing is written."""
        rows = changed(changed(four(), 3, "%int8", "100"), 5, "model size, Gb", "\x1b[31mbig")
        written(tmp_path / "data.csv", rows)
        result = in_process("viz-compression", "-i", "data.csv", "-o", "out")

        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr == (
            "nncf-tools: error: 'data.csv': 2 problems\n"
            "  row 3, column '%int8': a number from 0 to 1 expected (a percentage?), found '100'\n"
            "  row 5, column 'model size, Gb': a number above 0 expected, found '\\x1b[31mbig'\n"
        )
        assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]

    def test_input_is_not_replaced(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """A table that would overwrite the input is refused with the option that helps."""
        written(tmp_path / "data.md", four())
        result = in_process("viz-compression", "-i", "data.md")

        assert result.returncode == 1
        assert result.stderr == (
            "nncf-tools: error: cannot write 'data.md': it is the input; choose another --output-dir\n"
        )

    def test_many_rows(self, in_process: Run, tmp_path: pathlib.Path) -> None:
        """A table of 100,000 rows is refused; the message gives the limit."""
        text = written(tmp_path / "data.csv", many(9)).read_text()
        (tmp_path / "data.csv").write_text(text + "Made-up-7b,int4,1,0,,,1,10,0.5,4,1\n" * 100_000)
        result = in_process("viz-compression", "-i", "data.csv")

        assert result.returncode == 1
        assert result.stderr == (
            "nncf-tools: error: 'data.csv': more than 1,000 rows; split the file, or take the best rows\n"
        )

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["-i", "none.csv"], "cannot read 'none.csv': No such file or directory"),
            (["-i", "data.csv", "-i", "./data.csv"], "option --input-file: a file is given twice"),
            (["-i", "data.csv", "--recommend", "small"], "option --recommend: 'error<=5%'"),
            (
                ["-i", "data.csv", "--recommend", "peek<1GiB"],
                "option --recommend: bound 'peek' is not one of error",
            ),
            (["-i", "data.csv", "--recommend", "peak<1GiB"], "'data.csv': 'peak' needs the column 'peak memory, MiB'"),
            (["-i", "data.csv", "--also", "time"], "'data.csv': 'time' needs the column 'compression time, s'"),
            (["-i", "data.csv", "--also", "memory"], "'memory' is not one of"),
            (["-i", "data.csv", "--metric", "mmlu"], "option --metric: 'COLUMN:higher'"),
            (["-i", "data.csv", "--metric", "mmlu:lower"], "row 1: no column 'mmlu'"),
            (["-i", "data.csv", "--max-error", "much"], "option --max-error: a percentage above 0 expected"),
            (["-i", "data.csv", "--format", "gif"], "'gif' is not one of"),
            (["-i", "data.csv", "-o", "data.csv"], "cannot write 'data.csv/data.md': Not a directory"),
            ([], "option --input-file: missing"),
        ],
    )
    @pytest.mark.usefixtures("data")
    def test_options(self, in_process: Run, tmp_path: pathlib.Path, words: list[str], message: str) -> None:
        """A wrong option gives one line that names it, and nothing is written."""
        result = in_process("viz-compression", *words)

        assert result.returncode in {1, 2}
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_pipe_gets_no_escapes(in_process: Run, tmp_path: pathlib.Path) -> None:
    """Control codes in the input reach neither standard output nor the written files."""
    rows = [{**one, HEADER[0]: "\x1b[31mred"} for one in changed(four(), 4, "plot name", "\x1b]0;title\x07")]
    written(tmp_path / "a.csv", rows)
    result = in_process("viz-compression", "-i", "a.csv", "-f", "SVG", "-f", "html", "--recommend", "error<=50%")

    assert result.returncode == 0
    assert "\\x1b]0;title" in result.stdout
    for text in (
        result.stdout,
        result.stderr,
        *((tmp_path / f"a.{kind}").read_text() for kind in ("md", "svg", "html")),
    ):
        assert "\x1b" not in text
