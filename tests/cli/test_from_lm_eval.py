from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Run

MODES = {"fp32": 1.0, "int8": 0.99, "int4": 0.9, "int4 + gptq": 0.95}


def evaluated(folder: Path, name: str, quality: float) -> list[str]:
    """Write a model's evaluation results; return the options that name them."""
    wikitext = {"word_perplexity,none": 10 / quality, "word_perplexity_stderr,none": "N/A"}
    lambada = {"acc,none": 0.6 * quality, "acc_stderr,none": 0.006, "perplexity,none": 5 / quality}
    (folder / f"{name}.json").write_text(json.dumps({"results": {"wikitext": wikitext, "lambada_openai": lambada}}))
    (folder / f"{name}.csv").write_text(f",similarity\n0,{quality}\n")
    (folder / name).mkdir()
    with (folder / name / "model.bin").open("wb") as file:
        file.truncate(2**20 * (8 if name == "fp32" else 1))
    return [f"{name}.json", "--wwb", f"{name}.csv", "--model-dir", name]


def test_from_evaluations_to_the_picture(in_process: Run, tmp_path: Path) -> None:
    """viz-compression accepts rows built from evaluation results."""
    for mode, quality in MODES.items():
        words = [*evaluated(tmp_path, mode.replace(" + ", "_"), quality), "--mode", mode, "-o", "data.csv"]
        words += ["--model", "M"] if mode == "fp32" else []
        words += ["--int4", "1"] if "int4" in mode else []
        built = in_process("from-lm-eval", *words)
        assert built.returncode == 0, built.stderr
        assert built.stderr.endswith("added in data.csv\n")
    shown = in_process("viz-compression -i data.csv --json --format svg")
    rows = json.loads(shown.stdout)

    assert [row["mode"] for row in rows] == ["fp32", "int8", "int4 + gptq", "int4"]
    assert [row["compression rate"] for row in rows] == pytest.approx([1, 8, 8, 8], rel=1e-5)
    assert rows[1]["average relative error"] == pytest.approx((0.01 + 2 * (1 / 0.99 - 1) + 0.01) / 4)
    assert rows[1]["average relative error stderr"] is not None
