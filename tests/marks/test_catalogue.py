from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nncftools.marks import autoload, calls
from nncftools.session.nesting import KINDS

FACTS = {"kind", "name", "call", "step", "logged", "leaf", "arguments", "always", "saves", "parameters"}
FOLDER = Path(autoload.__file__).parent / "catalogue"
STAND_IN = Path(__file__).parent / "stand_in"


def entries() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield file, module, function and facts of all entries."""
    for file in sorted(set(autoload.LIBRARIES.values())):
        for module, functions in autoload.catalogued(file).items():
            for function, facts in functions.items():
                yield file, module, function, facts


def test_every_file_is_registered() -> None:
    """Each file of the folder belongs to a library, and each library has a file."""
    assert {path.stem for path in FOLDER.glob("*.json")} == set(autoload.LIBRARIES.values())


def test_entries_are_whole() -> None:
    """Every entry has a valid kind or a name, and known facts, under the root package that lists its file."""
    for file, module, function, facts in entries():
        place = f"{module}:{function}"
        arguments = {*facts.get("arguments", {})}
        assert facts["kind"] in KINDS if "kind" in facts else facts["name"] not in KINDS, place
        assert set(facts) <= FACTS - ({"name"} if "kind" in facts else set()), place
        assert {*facts.get("always", ()), *filter(None, [facts.get("saves")])} <= arguments, place
        assert arguments <= set(facts.get("parameters", arguments)), place
        assert autoload.LIBRARIES[module.partition(".")[0]] == file, place
        assert all(part.isidentifier() for part in [*module.split("."), *function.split(".")]), place
        assert not facts.get("step") or facts.get("kind") == "Training" or facts["name"] == "Inference", place


def test_names_are_unambiguous() -> None:
    """No function is listed twice, and no two are shown under one name."""
    shown = [facts.get("call") or f"{module.partition('.')[0]}.{name}" for _, module, name, facts in entries()]
    files = {(file, module) for file, module, _, _ in entries()}

    assert sorted(shown) == sorted(set(shown))
    assert len(files) == len({module for _, module in files})


def test_versions_of_nncf() -> None:
    """The table of versions names catalogued functions only, and the version that the catalogue is for lacks none."""
    lacking = json.loads((Path(__file__).parent / "nncf_versions.json").read_text())
    known = {f"{module}:{function}" for _, module, function, _ in entries()}

    assert {name for names in lacking.values() for name in names} <= known
    assert lacking["3.4.0"] == []


class StandIn(NamedTuple):
    """A made-up library: the modules and functions of the real one, a program that calls them, and the operations."""

    program: str
    operations: list[str]
    """A line each with name, function and arguments, indented by nesting."""
    modules: dict[str, str] = {}  # noqa: RUF012 — no default is ever changed
    """Source by path."""


_QUANT_API = "torchao/quantization/quant_api.py"
_STAND_INS = {
    "QEfficient": StandIn(
        """
        from QEfficient import QEFFAutoModelForCausalLM
        model = QEFFAutoModelForCausalLM.from_pretrained("gpt2")
        assert model.compile() == "gpt2.qpc" and model.generate(["a"]) == ["A"]
        """,
        [
            "Model Loading QEfficient.QEFFAutoModelForCausalLM.from_pretrained",
            "  Model Loading QEfficient.QEFFTransformersBase.from_pretrained",
            "Export QEfficient.QEFFBaseModel.export",
            "Compilation QEfficient.QEFFBaseModel.compile",
            "Generation QEfficient.QEFFAutoModelForCausalLM.generate",
        ],
    ),
    "auto-round": StandIn(
        """
        from auto_round.compressors.orchestrator import CompressionOrchestrator
        rounding = CompressionOrchestrator()
        assert rounding.quantize() == ["block 0", "block 1", "lm_head"]
        assert rounding.save_quantized("models/tiny", format="auto_round") == "models/tiny"
        """,
        [
            "Quantization auto_round.AutoRound.quantize",
            "  Calibration auto_round.AutoRound.cache_data",
            "  Layer auto_round.AutoRound.compress_block",
            "  Layer auto_round.AutoRound.compress_block",
            "  Layer outside the blocks auto_round.AutoRound.compress_layer_outside_block",
            "Saving auto_round.AutoRound.save_quantized tiny auto_round",
        ],
        {
            "auto_round/compressors/base.py": """
                class BaseOrchestrator:
                    def save_quantized(self, output_dir=None, format=None, inplace=True):
                        return output_dir
            """,
            "auto_round/algorithms/composer.py": """
                class AlgorithmComposer:
                    def compress_block(self, block, fp_inputs, input_others, block_ctx):
                        return block
                    def compress_layer_outside_block(self, layer, fp_inputs=None):
                        return layer
            """,
            "auto_round/compressors/orchestrator.py": """
                from auto_round.algorithms.composer import AlgorithmComposer
                from auto_round.compressors.base import BaseOrchestrator
                class CompressionOrchestrator(BaseOrchestrator):
                    def cache_data(self, block_names, nsamples):
                        return block_names
                    def quantize(self):
                        composer = AlgorithmComposer()
                        blocks = self.cache_data(["block 0", "block 1"], 8)
                        done = [composer.compress_block(block, None, None, block_ctx=None) for block in blocks]
                        return [*done, composer.compress_layer_outside_block("lm_head")]
            """,
        },
    ),
    "auto-round, with the modules of an older release": StandIn(
        """
        from auto_round.compressors.base import BaseCompressor
        assert BaseCompressor().quantize() == "model"
        """,
        [],
        {"auto_round/compressors/base.py": "class BaseCompressor:\n    def quantize(self):\n        return 'model'"},
    ),
    "bitsandbytes": StandIn(
        """
        from bitsandbytes.nn.modules import Int8Params, Params4bit
        assert (Params4bit().to("cpu"), Int8Params().to("cpu")) == ("cpu", "cpu")
        """,
        [
            "Quantization bitsandbytes.nn.Params4bit.quantize",
            "Quantization bitsandbytes.nn.Int8Params.quantize",
        ],
        {
            "bitsandbytes/nn/modules.py": """
                class Params4bit:
                    def _quantize(self, device):
                        return device
                    def to(self, device):
                        return self._quantize(device)
                class Int8Params:
                    def _quantize(self, device):
                        return device
                    def to(self, device):
                        return self._quantize(device)
            """
        },
    ),
    "GPTQModel": StandIn(
        """
        from gptqmodel.models.auto import GPTQModel
        model = GPTQModel.from_pretrained("models/tiny", quantize_config=None)
        assert model.quantize([1, 2], batch_size=4) == ["model.layers.0", "model.layers.1"]
        assert model.save("models/int4") == "models/int4" and GPTQModel.from_quantized("models/int4")
        """,
        [
            "Model Loading gptqmodel.GPTQModel.from_pretrained tiny",
            "Quantization gptqmodel.GPTQModel.quantize batch size 4",
            "  Calibration gptqmodel.cache_inputs",
            "  Layer gptqmodel.run_subset_stage model.layers.0",
            "  Layer outputs gptqmodel.replay_layer_outputs model.layers.0",
            "  Layer gptqmodel.run_subset_stage model.layers.1",
            "  Layer outputs gptqmodel.replay_layer_outputs model.layers.1",
            "Saving gptqmodel.GPTQModel.save int4",
            "Model Loading gptqmodel.GPTQModel.from_quantized int4",
        ],
        {
            "gptqmodel/looper/stage_inputs_capture.py": """
                class StageInputsCapture:
                    def cache_inputs(self, layers, calibration_data, use_cache):
                        return layers
            """,
            "gptqmodel/looper/stage_subset.py": """
                def run_subset_stage(looper, *, plan, layer_descriptor):
                    return layer_descriptor
            """,
            "gptqmodel/looper/stage_layer.py": """
                from gptqmodel.looper.stage_subset import run_subset_stage
                def _replay_layer_outputs(looper, *, module, layer_descriptor):
                    return layer_descriptor
                def run_layer(name):
                    run_subset_stage(None, plan=None, layer_descriptor=name)
                    return _replay_layer_outputs(None, module=None, layer_descriptor=name)
            """,
            "gptqmodel/models/base.py": """
                from gptqmodel.looper.stage_inputs_capture import StageInputsCapture
                from gptqmodel.looper.stage_layer import run_layer
                class BaseQModel:
                    def quantize(self, calibration=None, batch_size=1):
                        names = ["model.layers.0", "model.layers.1"]
                        StageInputsCapture().cache_inputs(names, calibration, False)
                        return [run_layer(name) for name in names]
                    def save(self, save_dir):
                        return save_dir
            """,
            "gptqmodel/models/auto.py": """
                from gptqmodel.models.base import BaseQModel
                class GPTQModel:
                    @classmethod
                    def from_pretrained(cls, model_id_or_path, quantize_config):
                        return BaseQModel()
                    @classmethod
                    def from_quantized(cls, model_id_or_path):
                        return BaseQModel()
            """,
        },
    ),
    "llm-compressor": StandIn(
        """
        from llmcompressor.entrypoints.oneshot import oneshot
        from compressed_tensors.compressors.model_compressors.model_compressor import ModelCompressor
        assert oneshot("models/tiny", num_calibration_samples=8, output_dir="models/int4") == ["layer"]
        assert ModelCompressor().compress_model("model") == "model"
        """,
        [
            "Quantization llmcompressor.oneshot tiny 8 samples to int4",
            "  Calibration data llmcompressor.get_calibration_dataloader",
            "  Tracing llmcompressor.trace_subgraphs",
            "  Calibration llmcompressor.batches (1/1): Calibrating",
            "  Weight loop llmcompressor.sequential_epoch_end",
            "  Calibration llmcompressor.batches (1/1): Propagating",
            "Weight Compression compressed_tensors.ModelCompressor.compress_model",
        ],
        {
            "llmcompressor/datasets/utils.py": """
                def get_calibration_dataloader(dataset_args, processor):
                    return [1, 2]
            """,
            "llmcompressor/pipelines/sequential/helpers.py": """
                def trace_subgraphs(model, sample_input):
                    return ["layer"]
            """,
            "llmcompressor/core/session_functions.py": """
                class LifecycleCallbacks:
                    @classmethod
                    def sequential_epoch_end(cls, modules):
                        return modules
            """,
            "llmcompressor/pipelines/sequential/pipeline.py": """
                from llmcompressor.core.session_functions import LifecycleCallbacks
                from llmcompressor.pipelines.sequential.helpers import trace_subgraphs
                def _get_batches(activations, num_batches, input_names, desc, sequential_prefetch=False):
                    yield from enumerate(activations)
                def run(model, batches):
                    graphs = trace_subgraphs(model, batches[0])
                    assert list(_get_batches(batches, 2, [], "(1/1): Calibrating")) == [(0, 1), (1, 2)]
                    LifecycleCallbacks.sequential_epoch_end(graphs)
                    assert len(list(_get_batches(batches, 2, [], "(1/1): Propagating"))) == 2
                    return graphs
            """,
            "llmcompressor/entrypoints/oneshot.py": """
                from llmcompressor.datasets.utils import get_calibration_dataloader
                from llmcompressor.pipelines.sequential.pipeline import run
                def oneshot(model, recipe=None, num_calibration_samples=512, output_dir=None):
                    return run(model, get_calibration_dataloader(None, None))
            """,
            "compressed_tensors/compressors/model_compressors/model_compressor.py": """
                class ModelCompressor:
                    def compress_model(self, model, skip_compressed=False):
                        return model
            """,
        },
    ),
    "neural-compressor": StandIn(
        """
        from neural_compressor.torch.quantization.quantize import convert, prepare, quantize
        from neural_compressor.torch.quantization.save_load_entry import load, save
        assert convert(prepare("model", "config")) == quantize("model", "config") == "model"
        assert load(save("model", "models/int4"), original_model="model") == "model"
        """,
        [
            "Quantization neural_compressor.prepare",
            "Quantization neural_compressor.convert",
            "  GPTQ neural_compressor.GPTQ.fasterquant",
            "Quantization neural_compressor.quantize",
            "Saving neural_compressor.save int4",
            "Model Loading neural_compressor.load int4",
        ],
        {
            "neural_compressor/common.py": """
                def log_process(function):
                    def inner_wrapper(*args, **kwargs):
                        return function(*args, **kwargs)
                    return inner_wrapper
            """,
            "neural_compressor/torch/algorithms/weight_only/gptq.py": """
                class GPTQ:
                    def fasterquant(self, W, blocksize=128):
                        return W
            """,
            "neural_compressor/torch/quantization/quantize.py": """
                from neural_compressor.common import log_process
                from neural_compressor.torch.algorithms.weight_only.gptq import GPTQ
                @log_process
                def prepare(model, quant_config, inplace=True):
                    return model
                @log_process
                def convert(model, quant_config=None):
                    return GPTQ().fasterquant(model)
                @log_process
                def quantize(model, quant_config):
                    return model
            """,
            "neural_compressor/torch/quantization/save_load_entry.py": """
                from neural_compressor.common import log_process
                @log_process
                def save(model, checkpoint_dir="saved_results", format="default"):
                    return checkpoint_dir
                @log_process
                def load(model_name_or_path, original_model=None):
                    return original_model
            """,
        },
    ),
    "torchao": StandIn(
        "from torchao.quantization.quant_api import quantize_; assert quantize_([], None) is None",
        ["Quantization torchao.quantize_"],
        {_QUANT_API: "def quantize_(model, config):\n    model.append(config)"},
    ),
    "torchao without the function": StandIn(
        "from torchao.quantization.quant_api import other; assert other() == 1",
        [],
        {_QUANT_API: "def other():\n    return 1"},
    ),
}


def outline(lines: list[dict[str, Any]]) -> list[str]:
    """Return the operations of a marks log, a line each, indented by nesting."""
    depth = 0
    operations = []
    for line in lines:
        if line.get("event") == "begin":
            words = [line["name"], line["call"], *line.get("arguments", ())]
            operations.append("  " * depth + " ".join(words))
            depth += 1
        elif line.get("event") == "end":
            depth -= 1
    return operations


@pytest.mark.process
@pytest.mark.parametrize("library", _STAND_INS)
def test_libraries_that_are_not_installed(tmp_path: Path, library: str) -> None:
    """Functions of a library are marked and return what they returned before; absent functions are skipped silently.

    ``python -m benchmarks.quantizers`` runs the real libraries.
    """
    stand_in = _STAND_INS[library]
    for path, source in stand_in.modules.items():
        module = tmp_path / path
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(textwrap.dedent(source))
    log = tmp_path / "marks.jsonl"
    log.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{STAND_IN}")
        environment = {**os.environ, **calls.environment(log, [])}
    program = textwrap.dedent(stand_in.program)
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]

    assert outline(lines) == stand_in.operations
    assert not any("warning" in line for line in lines)
