from __future__ import annotations

import csv
import os
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from nncftools import Session
from tests.conftest import command_line
from tests.waiting import until

pytestmark = pytest.mark.real

DOCS = Path(__file__).parents[2] / "docs"
QUICK = ["fp32", "int8", "int4", "scale estimation"]
NAMES = ["", *QUICK[1:]]
SLOW_S = 300


class Sweep(NamedTuple):
    """A sweep of the random Llama."""

    folder: Path
    words: list[str]
    environment: dict[str, str]

    def start(self, *more: object) -> subprocess.Popen[str]:
        """Start it with more options."""
        return subprocess.Popen(
            [*self.words, *map(str, more)],
            env=self.environment,
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, *more: object) -> tuple[int, str]:
        """Run it with more options; return exit status and output."""
        process = self.start(*more)
        output, _ = process.communicate(timeout=SLOW_S)
        return process.returncode, output

    def rows(self) -> list[dict[str, str]]:
        """Return the results so far."""
        file = self.folder / "results.csv"
        return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines())) if file.exists() else []


def prose(name: str, start: int, count: int) -> str:
    """Return so many words of a page of ours, as one paragraph."""
    return " ".join((DOCS / f"{name}.md").read_text(encoding="utf-8").split()[start : start + count])


@pytest.fixture(scope="module")
def swept(
    llama: Path, real_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Sweep, str, float]:
    """Sweep the quick grid; kill it in the middle, and go on. Return the output of the second, and when int8 ended."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "text.txt").write_text(prose("operations", 800, 400))
    (folder / "calibration.txt").write_text(prose("internals/truth", 0, 3000))
    (folder / "prompts.txt").write_text("The sampler\nA peak is\nMemory\n")
    python = Path(os.environ["NNCF_TOOLS_REAL"]).resolve() / "bin" / "python"
    options = ["--output", "results.csv", "--text", "text.txt", "--calibration", "calibration.txt"]
    options += ["--prompts", "prompts.txt", "--python", str(python)]
    sweep = Sweep(folder, command_line("sweep --model", llama, *options), real_environment)
    first = sweep.start()
    try:
        until((folder / "results.sweep" / "model" / ".exported").exists)
        until(lambda: len(sweep.rows()) == 1)
        until(lambda: len(sweep.rows()) == 2)
    finally:
        first.kill()
        output, _ = first.communicate(timeout=SLOW_S)
    assert first.returncode == -signal.SIGKILL, output
    (int8,) = folder.glob("results.sweep/int8*/row.json")
    ended = int8.stat().st_mtime_ns
    status, output = sweep.run("--resume")
    assert status == 0, output
    assert int8.stat().st_mtime_ns == ended
    return sweep, output, ended


def test_killed_sweep_goes_on(swept: tuple[Sweep, str, float]) -> None:
    """After kill −9 the second sweep runs what did not end, and nothing else."""
    _, output, _ = swept

    assert "Running fp32" not in output
    assert "Running int8" not in output
    assert "Running scale estimation" in output


def test_each_configuration_has_its_figures(swept: tuple[Sweep, str, float]) -> None:
    """Size, quality, time, memory and its owner are known of each; the smaller ones are smaller."""
    rows = swept[0].rows()

    assert [row["plot name"] for row in rows] == NAMES
    sizes = [float(row["model size, Gb"]) for row in rows]
    assert sizes[0] > sizes[1] > sizes[2] == sizes[3]
    for row in rows:
        assert float(row["held-out text, word perplexity"]) > 1
        assert float(row["inference peak memory, MiB"]) > 50
        assert float(row["first token, s"]) > 0
        assert float(row["per token, s"]) > 0
        assert row["failed"] == ""
    for row in rows[1:]:
        assert float(row["compression time, s"]) > 0
        low, high = float(row["peak memory, MiB"]), float(row["peak memory high, MiB"])
        assert 200 < low <= high < low * 1.1, "a forked copy of the process is counted"
        assert "Weight Compression" in row["peak owner"]
    assert [row["bit widths"].partition(" ")[0] for row in rows] == ["fp32", "int8", "int8", "int8"]
    assert float(rows[0]["prompts, similarity"]) == 1
    assert float(rows[0]["bits per weight"]) == pytest.approx(32, abs=0.1)


def test_table_and_picture_come_of_it(swept: tuple[Sweep, str, float]) -> None:
    """The sweep ends with table, picture and what the columns mean, beside recordings that open."""
    folder = swept[0].folder
    table = (folder / "results.md").read_text()
    (session,) = folder.glob("results.sweep/int4*/compress.json")

    assert "int4 symmetric + scale estimation" in table
    assert "rolling log-likelihood" in table
    assert (folder / "results.png").stat().st_size > 10_000
    assert any("Weight Compression" in operation.name for operation in Session.load(session).operations)


def test_other_kinds_of_models_are_swept(
    swept: tuple[Sweep, str, float], real_environment: dict[str, str], tmp_path: Path
) -> None:
    """A classifier in OpenVINO's format is quantized with the user's data, and has the user's score."""
    sweep = swept[0]
    python = sweep.words[sweep.words.index("--python") + 1]
    kind = Path(__file__).with_name("classifier.py")
    subprocess.run([python, kind, "classifier.xml"], env=real_environment, cwd=tmp_path, check=True, timeout=SLOW_S)
    options = ["--kind", kind, "--output", "results.csv", "--python", python, "--only", "mixed"]
    words = command_line("sweep --model classifier.xml", *options)
    status, output = sweep._replace(folder=tmp_path, words=words).run()
    baseline, mixed = sweep._replace(folder=tmp_path).rows()

    assert status == 0, output
    assert float(baseline["score"]) == 1
    assert float(mixed["score"]) > 0.5
    assert mixed["bit widths"] == "int8 100%"
    assert mixed["peak owner"].startswith("Quantization")
    assert float(mixed["inference, s"]) > 0
    assert (tmp_path / "results.png").exists()
