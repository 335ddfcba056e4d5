"""Automatic marks of the real libraries: what is called is named, and the programs do not notice."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks import quantizers
from benchmarks.quantizers.__main__ import LIBRARIES, list_operations, select_results
from nncftools import Session
from nncftools.analysis.operation import Operation
from tests.conftest import command_line

pytestmark = pytest.mark.real

HERE = Path(__file__).parent
VERSIONS = HERE.parent / "marks" / "nncf_versions.json"
HANGING_S = 900
CLOCKS = re.compile(rb"\d+:\d\d:\d\d")
"""How long NNCF's steps took, which it prints."""
TOP_LEVEL = [
    "Quantization nncf.quantize",
    "Training torch.autograd.backward, torch.optim.Adam.step, torch.optim.Optimizer.zero_grad",
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
    "Inference openvino.CompiledModel.__call__",
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


def run(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Run a command and return what it printed."""
    done = subprocess.run(words, env=environment, capture_output=True, check=False, timeout=HANGING_S)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done


def profiled(
    words: list[str], environment: dict[str, str], file: Path
) -> tuple[Session, subprocess.CompletedProcess[bytes]]:
    """Run a command under ``profile``; return the session and what was printed."""
    done = run([*command_line("profile --details --plot -o", file, "--"), *words], environment)
    return Session.load(file), done


def top_level(session: Session) -> list[str]:
    """Return name and call of what is inside of nothing else, in order."""
    return [f"{mark.name} {mark.call}" for mark in session.marks if mark.depth == 0]


def export(llama: Path, out: Path) -> list[str]:
    """Return the command that exports the random Llama to OpenVINO in full precision."""
    options = ["--task", "text-generation", "--weight-format", "fp32"]
    return ["optimum-cli", "export", "openvino", "--model", str(llama), *options, str(out)]


def is_listed(operation: Operation, session: Session) -> bool:
    """Return whether an operation is too long to be among the small ones that a report only counts."""
    return operation.depth == 0 and operation.duration_s >= session.duration_s / 100


def test_workflow_is_named_and_unchanged(llama: Path, real_environment: dict[str, str], tmp_path: Path) -> None:
    """Each step of an unchanged script is an operation, in order; it prints byte for byte what it prints alone."""
    run(export(llama, tmp_path / "ir"), real_environment)
    words = ["python", str(HERE / "workflow.py"), str(tmp_path / "ir"), str(tmp_path)]
    run(words, real_environment)  # compiles an extension of NNCF, the first time
    alone = run(words, real_environment)
    session, marked = profiled(words, real_environment, tmp_path / "run.json")
    facts = {Path(model.path).name: model.facts for model in session.models}
    report = " ".join(marked.stderr.decode().split())

    assert CLOCKS.sub(b"", marked.stdout) == CLOCKS.sub(b"", alone.stdout)
    assert top_level(session) == TOP_LEVEL
    assert facts["int8_asym.xml"]["nncf/weight_compression/mode"] == "int8_asym"
    assert facts["int4_sym.xml"]["nncf/weight_compression/mode"] == "int4_sym"
    assert any(place.startswith("nncf/quantization/") for place in facts["controlled.xml"])
    assert [mark for mark in session.marks if mark.error is not None] == []
    assert all(f"{one.name} " in report for one in session.operations if is_listed(one, session))
    assert "Compressed int4_sym.xml: weight_compression, mode int4_sym, ratio 1, group_size 64" in report
    assert (tmp_path / "run.png").stat().st_size > 10_000


def test_export_is_named(llama: Path, real_environment: dict[str, str], tmp_path: Path) -> None:
    """An export by optimum-cli is loading, export and saving on the top level."""
    session, _ = profiled(export(llama, tmp_path / "ir"), real_environment, tmp_path / "run.json")

    assert set(top_level(session)) >= {
        "Model Loading optimum.TasksManager.get_model_from_task",
        "Export openvino.convert_model",
        "Saving optimum.exporters.openvino.save_model",
        "Export optimum.exporters.openvino.export_tokenizer",
    }
    assert [Path(model.path).name for model in session.models] == ["openvino_model.xml"]


def test_quantization_by_torchao_is_named(llama: Path, real_environment: dict[str, str], tmp_path: Path) -> None:
    """Quantization is marked where the program or transformers calls torchao, and the results are the same."""
    program = Path(quantizers.__file__).with_name("with_torchao.py")
    words = ["python", str(program), str(llama), str(tmp_path / "quantized")]
    alone = run(words, real_environment)
    session, marked = profiled(words, real_environment, tmp_path / "run.json")

    assert select_results(marked.stdout.decode()) == select_results(alone.stdout.decode())
    assert list_operations(session) == LIBRARIES["torchao"].operations.strip().splitlines()


def test_steps_of_the_installed_nncf(real_environment: dict[str, str], tmp_path: Path) -> None:
    """All listed functions are marked, but for those that this NNCF lacks by the table: these without a warning."""
    session, done = profiled(["python", str(HERE / "catalogued.py")], real_environment, tmp_path / "run.json")
    version = (
        run(["python", "-c", "import nncf; print(nncf.__version__)"], real_environment).stdout.decode().split()[-1]
    )
    lacking = json.loads(VERSIONS.read_text())[version.partition("-")[0]]

    assert list(json.loads(done.stdout.splitlines()[-1])) == lacking
    assert not any("nothing is marked" in warning for warning in session.warnings)


def test_steps_of_a_compression(real_environment: dict[str, str], tmp_path: Path) -> None:
    """Inside of a compression and of a quantization are the steps of NNCF, with the inferences of each."""
    session, _ = profiled(["python", str(HERE / "steps.py")], real_environment, tmp_path / "run.json")
    inside: dict[str, list[str]] = {}
    for operation in session.operations:
        if operation.depth == 0:
            steps = inside.setdefault(operation.signature, [])
        elif operation.depth == 1 and operation.name not in steps:
            steps.append(operation.name)

    assert inside == {
        "compress_weights(INT4_SYM, g32, ratio 0.5, awq, scale_estimation, dataset, 4 samples)": [
            "Statistics",
            "Mixed precision",
            "AWQ",
            "Scale estimation",
            "Weight loop",
        ],
        "save_model(int4.xml)": [],
        "quantize(4 samples, mixed)": ["Statistics", "MinMax", "Fast bias correction"],
        "compile_model(CPU)": [],
        "CompiledModel.__call__": [],
    }
    assert any(mark.name == "Inference" and mark.depth > 1 for mark in session.marks)
    assert next(mark.count for mark in session.marks if mark.call == "openvino.CompiledModel.__call__") == 50


def test_catalogue_covers_an_optimizer(real_environment: dict[str, str]) -> None:
    """Every optimizer of PyTorch has its step in the catalogue."""
    from nncftools.marks.autoload import catalogued

    program = (
        "import torch; O = torch.optim.Optimizer; "
        "print(*{f'{c.step.__module__}:{c.step.__qualname__}' for c in O.__subclasses__()})"
    )
    steps = set(run(["python", "-c", program], real_environment).stdout.decode().split())
    listed = {f"{module}:{function}" for module, functions in catalogued("torch").items() for function in functions}

    assert steps - listed == set()
