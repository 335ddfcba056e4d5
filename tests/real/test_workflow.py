"""Automatic marks of the real libraries: what is called is named, and the programs do not notice."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
from typing import Any

import pytest

from nncftools.marks import calls

pytestmark = pytest.mark.real

HERE = pathlib.Path(__file__).parent
HANGING_S = 900
CLOCKS = re.compile(rb"\d+:\d\d:\d\d")
"""How long NNCF's steps took, which it prints."""
TOP_LEVEL = [
    "Quantization nncf.quantize",
    "Training torch.optim.Optimizer.zero_grad",
    "Training torch.autograd.backward",
    "Training torch.optim.Adam.step",
    "Saving torch.save",
    "Model Loading torch.load",
    "Model Loading nncf.torch.load_from_config",
    "Cleanup nncf.strip",
    "Export torch.onnx.export",
    "Export torch.onnx.export",
    "Export openvino.convert_model",
    "Saving openvino.save_model",
    "Model Loading openvino.Core.read_model",
    "Compilation openvino.Core.compile_model",
    "Model Loading onnx.load",
    "Quantization nncf.quantize",
    "Saving onnx.save",
    "Export openvino.convert_model",
    "Quantization nncf.quantize_with_accuracy_control",
    "Saving openvino.serialize",
    "Weight Compression nncf.prune",
    "Model Loading openvino.Core.read_model",
    "Weight Compression nncf.compress_weights",
    "Saving openvino.save_model",
    "Model Loading openvino.Core.read_model",
    "Weight Compression nncf.compress_weights",
    "Saving openvino.save_model",
]
Lines = list[dict[str, Any]]


def run(words: list[str], environment: dict[str, str], log: pathlib.Path | None = None) -> bytes:
    """Run a command of the real environment, marked into ``log`` when that is given, and return its output."""
    variables = environment
    if log is not None:
        log.touch()
        variables = {**environment, **calls.environment(log, [])}
    done = subprocess.run(words, env=variables, capture_output=True, check=False, timeout=HANGING_S)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


def lines(log: pathlib.Path) -> Lines:
    """Return the marks log."""
    return [json.loads(line) for line in log.read_bytes().splitlines()]


def top_level(found: Lines) -> list[str]:
    """Return kind and call of what is inside of nothing else, in order."""
    open_operations: list[int] = []
    calls_made = []
    for line in found:
        if line.get("event") == "begin":
            if not open_operations:
                calls_made.append(f"{line['kind']} {line['call']}")
            open_operations.append(line["op"])
        elif line.get("event") == "end":
            assert open_operations.pop() == line["op"]
    assert open_operations == []
    return calls_made


def exported(
    llama: pathlib.Path, environment: dict[str, str], out: pathlib.Path, log: pathlib.Path | None = None
) -> pathlib.Path:
    """Export the random Llama to OpenVINO in full precision and return its folder."""
    options = ["--task", "text-generation", "--weight-format", "fp32"]
    run(["optimum-cli", "export", "openvino", "--model", str(llama), *options, str(out)], environment, log)
    return out


def test_workflow_is_named_and_unchanged(
    llama: pathlib.Path, real_environment: dict[str, str], tmp_path: pathlib.Path
) -> None:
    """Each step of an unchanged script is an operation, in order; it prints byte for byte what it prints alone."""
    ir = exported(llama, real_environment, tmp_path / "ir")
    log = tmp_path / "marks.jsonl"
    words = ["python", str(HERE / "workflow.py"), str(ir), str(tmp_path)]
    run(words, real_environment)  # compiles an extension of NNCF, the first time
    alone = run(words, real_environment)
    marked = run(words, real_environment, log)
    found = lines(log)
    saved = {pathlib.Path(line["saved"]).name: line["rt_info"] for line in found if "saved" in line}

    assert CLOCKS.sub(b"", marked) == CLOCKS.sub(b"", alone)
    assert top_level(found) == TOP_LEVEL
    assert '<mode value="int8_asym" />' in saved["int8_asym.xml"]
    assert '<mode value="int4_sym" />' in saved["int4_sym.xml"]
    assert "<quantization>" in saved["controlled.xml"]
    assert [line for line in found if "warning" in line or "error" in line] == []


def test_export_is_named(llama: pathlib.Path, real_environment: dict[str, str], tmp_path: pathlib.Path) -> None:
    """An export by optimum-cli is loading, export and saving on the top level."""
    log = tmp_path / "marks.jsonl"
    exported(llama, real_environment, tmp_path / "ir", log)
    found = lines(log)

    assert set(top_level(found)) >= {
        "Model Loading optimum.TasksManager.get_model_from_task",
        "Export openvino.convert_model",
        "Saving optimum.exporters.openvino.save_model",
        "Export optimum.exporters.openvino.export_tokenizer",
    }
    assert [pathlib.Path(line["saved"]).name for line in found if "saved" in line] == ["openvino_model.xml"]


def test_catalogue_names_what_there_is(real_environment: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Every listed function of the installed libraries exists and is marked; QEfficient cannot be installed here."""
    out = run(["python", str(HERE / "catalogued.py")], real_environment, tmp_path / "marks.jsonl")

    assert json.loads(out.splitlines()[-1]) == {}


def test_catalogue_covers_an_optimizer(real_environment: dict[str, str]) -> None:
    """Every optimizer of PyTorch has its step in the catalogue."""
    from nncftools.marks.catalogue import torch

    program = (
        "import torch; O = torch.optim.Optimizer; "
        "print(*{f'{c.step.__module__}:{c.step.__qualname__}' for c in O.__subclasses__()})"
    )
    steps = set(run(["python", "-c", program], real_environment).decode().split())
    listed = {f"{module}:{function}" for module, functions in torch.CALLS.items() for function in functions}

    assert steps - listed == set()
