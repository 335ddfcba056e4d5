"""Whether the operations of quantization libraries are found in the real packages, and the programs stay the same.

``python -m benchmarks.quantizers FOLDER [NAME ...]`` makes a virtual environment for each library in FOLDER (1.2 GB and
a minute each), and a random model of two layers. The program of each library runs alone and under ``profile``. The
report is printed; the exit status is 1 if an operation or a result differs. All programs take 10 minutes.
"""

from __future__ import annotations

import argparse
import difflib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from benchmarks.venvs import prepared, versions
from nncftools import Session

_HERE = pathlib.Path(__file__).parent
_MODELS = _HERE.parents[1] / "tests" / "real" / "models.py"
_ENVIRONMENT = {
    **os.environ,
    "CI": "true",
    "HF_HUB_OFFLINE": "1",
    "GPTQMODEL_CPU_WORKERS": "2",  # on two cores, GPTQModel starts one worker, and asks for two
}
_TORCH = "torch==2.13.0"
_ACCELERATE = "accelerate==1.15.0"
_OLDER = ("transformers==5.5.4", "huggingface-hub<1.22", _ACCELERATE, _TORCH)
_NEWER = ("transformers==5.24.0", _ACCELERATE, _TORCH)


class Library(NamedTuple):
    """A library: the packages of the environment, and the operations of the program."""

    packages: tuple[str, ...]
    operations: str
    """A line each, indented by nesting; ``×2`` after lines that are repeated."""


LIBRARIES = {
    "auto_round": Library(
        ("auto-round==0.16.1", *_NEWER),
        """
Model Loading transformers.PreTrainedTokenizerBase.from_pretrained
Model Loading transformers.PreTrainedModel.from_pretrained
Quantization auto_round.AutoRound.quantize
  Calibration auto_round.AutoRound.cache_data
  Layer auto_round.AutoRound.compress_block
    Training torch.autograd.backward, torch.optim.Optimizer.zero_grad
  Layer auto_round.AutoRound.compress_block
    Training torch.autograd.backward, torch.optim.Optimizer.zero_grad
Saving auto_round.AutoRound.save_quantized
  Saving transformers.PreTrainedTokenizerBase.save_pretrained
  Saving transformers.PreTrainedModel.save_pretrained
Model Loading transformers.PreTrainedModel.from_pretrained
Quantization auto_round.AutoRound.quantize
  Calibration auto_round.AutoRound.cache_data
  Layer auto_round.AutoRound.compress_block ×2
  Layer outside the blocks auto_round.AutoRound.compress_layer_outside_block
Saving auto_round.AutoRound.save_quantized
  Saving transformers.PreTrainedTokenizerBase.save_pretrained
  Saving transformers.PreTrainedModel.save_pretrained
""",
    ),
    "bitsandbytes": Library(
        ("bitsandbytes==0.50.2", *_OLDER),
        """
Model Loading transformers.PreTrainedModel.from_pretrained
  Quantization bitsandbytes.nn.Params4bit.quantize ×14
Saving transformers.PreTrainedModel.save_pretrained
Model Loading transformers.PreTrainedModel.from_pretrained ×2
  Quantization bitsandbytes.nn.Int8Params.quantize ×14
Saving transformers.PreTrainedModel.save_pretrained
Model Loading transformers.PreTrainedModel.from_pretrained
""",
    ),
    "gptqmodel": Library(
        ("gptqmodel==7.6.0", *_NEWER),
        """
Model Loading gptqmodel.GPTQModel.from_pretrained
  Model Loading transformers.PreTrainedTokenizerBase.from_pretrained
Quantization gptqmodel.GPTQModel.quantize
  Calibration gptqmodel.cache_inputs
  Layer gptqmodel.run_subset_stage ×4
  Layer outputs gptqmodel.replay_layer_outputs
  Layer gptqmodel.run_subset_stage ×4
Saving gptqmodel.GPTQModel.save
  Saving transformers.PreTrainedModel.save_pretrained
  Saving transformers.PreTrainedTokenizerBase.save_pretrained
Model Loading gptqmodel.GPTQModel.from_quantized
  Model Loading transformers.PreTrainedTokenizerBase.from_pretrained
""",
    ),
    "llmcompressor": Library(
        ("llmcompressor==0.14.0.1", "compressed-tensors==0.19.0", "transformers==5.17.0", _ACCELERATE, _TORCH),
        """
Model Loading transformers.PreTrainedModel.from_pretrained
Quantization llmcompressor.oneshot
  Model Loading transformers.PreTrainedTokenizerBase.from_pretrained
  Calibration data llmcompressor.get_calibration_dataloader
  Tracing llmcompressor.trace_subgraphs
  Calibration llmcompressor.batches
  Weight loop llmcompressor.sequential_epoch_end
  Calibration llmcompressor.batches ×2
  Weight loop llmcompressor.sequential_epoch_end
  Calibration llmcompressor.batches ×2
  Weight loop llmcompressor.sequential_epoch_end
  Calibration llmcompressor.batches
Weight Compression compressed_tensors.ModelCompressor.compress_model
Saving transformers.PreTrainedModel.save_pretrained
Model Loading transformers.PreTrainedModel.from_pretrained
Quantization llmcompressor.oneshot
  Model Loading transformers.PreTrainedTokenizerBase.from_pretrained
  Calibration data llmcompressor.get_calibration_dataloader
  Weight loop llmcompressor.sequential_epoch_end
Weight Compression compressed_tensors.ModelCompressor.compress_model
Saving transformers.PreTrainedModel.save_pretrained
""",
    ),
    "neural_compressor": Library(
        ("neural-compressor-pt==3.10", *_NEWER),
        """
Model Loading transformers.PreTrainedModel.from_pretrained
Quantization neural_compressor.quantize
Model Loading transformers.PreTrainedModel.from_pretrained
Quantization neural_compressor.prepare
Quantization neural_compressor.convert
Model Loading transformers.PreTrainedModel.from_pretrained
Quantization neural_compressor.prepare
Quantization neural_compressor.convert
  GPTQ neural_compressor.GPTQ.fasterquant ×14
Saving neural_compressor.save
  Saving torch.save
Model Loading transformers.PreTrainedModel.from_pretrained
Model Loading neural_compressor.load
  Model Loading torch.load
""",
    ),
    "torchao": Library(
        ("torchao==0.18.0", *_OLDER),
        """
Model Loading transformers.PreTrainedModel.from_pretrained
Quantization torchao.quantize_
Model Loading transformers.PreTrainedModel.from_pretrained
Quantization torchao.quantize_
Model Loading transformers.PreTrainedModel.from_pretrained
  Quantization torchao.quantize_ ×14
Saving transformers.PreTrainedModel.save_pretrained
""",
    ),
}


def list_operations(session: Session) -> list[str]:
    """Return the operations, a line each, indented by nesting; repeated lines are counted."""
    lines = []
    for mark in session.marks:
        indentation = "  " * mark.depth
        lines.append(f"{indentation}{mark.name} {mark.call}")
    counted = []
    for line, group in groupby(lines):
        count = len(list(group))
        counted.append(f"{line} ×{count}" if count > 1 else line)
    return counted


def select_results(output: str) -> list[str]:
    """Return the lines of a program's output that do not contain times."""
    return [line for line in output.splitlines() if line.startswith("result ")]


def run(*words: str | pathlib.Path) -> str:
    """Run a command and return the output. Raises CalledProcessError."""
    return subprocess.run(words, env=_ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True).stdout


def print_versions(library: Library, python: pathlib.Path) -> None:
    """Print the installed versions."""
    packages = [package.partition("==")[0].partition("<")[0] for package in library.packages]
    for package, version in zip(packages, versions(python, packages), strict=True):
        print(f"- {package} {version}")


def compare(name: str, folder: pathlib.Path) -> list[str]:
    """Run the program of a library alone and under ``profile``; print the report, and return the differences."""
    library = LIBRARIES[name]
    print(f"\n## {name}\n")
    python = prepared(folder / name, library.packages)
    print_versions(library, python)
    model = folder / f"{name}-model"
    run(python, _MODELS, "llama", model)
    program = (python, _HERE / f"with_{name}.py", model, folder / f"{name}-out")
    alone = select_results(run(*program))
    recording = folder / f"{name}.json"
    ours = (sys.executable, "-m", "nncftools")
    marked = select_results(run(*ours, "profile", "--force", "-o", recording, "--", *program))
    report = run(*ours, "report", recording, "--depth", "2")
    print(report, *marked, sep="\n", flush=True)
    expected = library.operations.strip().splitlines()
    operations = list_operations(Session.load(recording))
    return [*find_differences(alone, marked), *find_differences(expected, operations)]


def find_differences(expected: list[str], found: list[str]) -> Iterator[str]:
    """Yield the lines of a diff."""
    return difflib.unified_diff(expected, found, "expected", "found", lineterm="")


def main() -> int:
    """Try the libraries that are named, or all; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="for environments, models and recordings")
    names = ", ".join(LIBRARIES)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {names}; all by default")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    differences = []
    for name in options.names or LIBRARIES:
        found = compare(name, options.folder)
        print(*found, sep="\n")
        differences += found
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
