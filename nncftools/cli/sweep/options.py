"""The options of ``sweep``."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from nncftools.cli.compression import Panels, Recommend
from nncftools.cli.options import Force, Name
from nncftools.cli.parameters import READ, RUN, WRITE, File, Texts, option
from nncftools.units import bytes_from


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """What to compress, in which ways, and how to measure the results."""

    model: Annotated[
        pathlib.Path, option("--model -m DIR", READ, "Folder of a language model; with --kind, an .xml or .onnx file.")
    ]
    output: Annotated[pathlib.Path, option("--output -o FILE", WRITE, "The CSV file of the results.")]
    grid: Annotated[str, option("--grid quick|full|FILE", RUN, "What to try; FILE is in TOML.")] = "quick"
    text: Annotated[File, option("--text FILE", READ, "Held-out text for perplexity (.txt or .jsonl).")] = None
    calibration: Annotated[File, option("--calibration FILE", READ, "Text for data-aware compression.")] = None
    lambada: Annotated[
        File, option("--lambada FILE", READ, "Passages to complete, one per line. Default: those of --text.")
    ] = None
    prompts: Annotated[File, option("--prompts FILE", READ, "Prompts for similarity, one per line.")] = None
    tasks: Annotated[
        Texts, option("--tasks TASK[:METRIC]", READ, "Also a task of lm-evaluation-harness; repeatable.")
    ] = None
    include_path: Annotated[File, option("--include-path DIR", READ, "Folder with tasks of your own (YAML).")] = None
    only: Annotated[Texts, option("--only NAME", RUN, "Only this configuration and the baseline; repeatable.")] = None
    kind: Annotated[
        File, option("--kind FILE", READ, "Python file with calibration() and score() of another kind of model.")
    ] = None
    max_memory: Annotated[
        int | None, option("--max-memory SIZE", RUN, "Limit of memory of each configuration.", parser=bytes_from)
    ] = None
    recommend: Recommend = ""
    also: Panels = None
    name: Name = ""
    python: Annotated[str, option("--python FILE", RUN, "A Python with NNCF and OpenVINO. Default: this one.")] = ""
    scheduler: Annotated[
        str | None, option("--scheduler ADDRESS", RUN, "Run on a Dask cluster, such as tcp://HOST:8786.")
    ] = None
    keep_models: Annotated[bool, option("--keep-models", WRITE, "Keep the compressed models.")] = False
    dry_run: Annotated[bool, option("--dry-run", RUN, "Show what would run, with expected times.")] = False
    resume: Annotated[bool, option("--resume", RUN, "Go on with the sweep of --output.")] = False
    force: Force = False

    @property
    def inputs(self) -> Mapping[str, pathlib.Path]:
        """The files that were named, by what they are for."""
        names = "text", "calibration", "lambada", "prompts", "kind"
        return {name: path for name in names if (path := getattr(self, name)) is not None}

    @property
    def interpreter(self) -> str:
        """The Python that has NNCF and OpenVINO."""
        return self.python or sys.executable
