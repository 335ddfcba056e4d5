"""The options of `sweep`, which compresses a model in many ways, and compares the results."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from nncftools.cli import options
from nncftools.cli.compression import Panels, Recommend
from nncftools.cli.parameters import READ, RUN, WRITE, File, Texts, option
from nncftools.units import bytes_from


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The options of `sweep`."""

    model: Annotated[
        Path, option("--model -m DIR", READ, "Folder of a language model; with --kind, an .xml or .onnx file.")
    ]
    output: Annotated[Path, option("--output -o FILE", WRITE, "The CSV file for the results.")]
    grid: Annotated[str, option("--grid quick|full|FILE", RUN, "Configurations to try; FILE is in TOML.")] = "quick"
    text: Annotated[File, option("--text FILE", READ, "Held-out text for perplexity (.txt or .jsonl).")] = None
    calibration: Annotated[File, option("--calibration FILE", READ, "Text for data-aware compression.")] = None
    lambada: Annotated[
        File, option("--lambada FILE", READ, "Passages to complete, one per line. Default: passages of --text.")
    ] = None
    prompts: Annotated[File, option("--prompts FILE", READ, "Prompts for similarity, one per line.")] = None
    tasks: Annotated[
        Texts, option("--tasks TASK[:METRIC]", READ, "Also run a task of lm-evaluation-harness; repeatable.")
    ] = None
    include_path: Annotated[File, option("--include-path DIR", READ, "Folder with tasks of your own (YAML).")] = None
    only: Annotated[Texts, option("--only NAME", RUN, "Only this configuration and the baseline; repeatable.")] = None
    kind: Annotated[
        File,
        option("--kind FILE", READ, "Python file with functions calibration() and score(), for other kinds of models."),
    ] = None
    max_memory: Annotated[
        int | None, option("--max-memory SIZE", RUN, "Memory limit for each configuration.", parser=bytes_from)
    ] = None
    recommend: Recommend = ""
    also: Panels = None
    name: options.Name = ""
    python: Annotated[
        str, option("--python FILE", RUN, "The Python with NNCF and OpenVINO. Default: the Python of nncf-tools.")
    ] = ""
    scheduler: Annotated[
        str | None, option("--scheduler ADDRESS", RUN, "Run on a Dask cluster, such as tcp://HOST:8786.")
    ] = None
    keep_models: Annotated[bool, option("--keep-models", WRITE, "Keep the compressed models.")] = False
    dry_run: Annotated[bool, option("--dry-run", RUN, "Only list the configurations, with expected times.")] = False
    resume: Annotated[bool, option("--resume", RUN, "Continue the interrupted sweep in --output.")] = False
    force: options.Force = False

    @property
    def inputs(self) -> Mapping[str, Path]:
        """The given input files, by option name: ``{"text": Path("held_out.txt")}``."""
        names = ("text", "calibration", "lambada", "prompts", "kind")
        files = {name: getattr(self, name) for name in names}
        return {name: path for name, path in files.items() if path is not None}

    @property
    def interpreter(self) -> str:
        """The Python interpreter whose environment has NNCF and OpenVINO."""
        return self.python or sys.executable
