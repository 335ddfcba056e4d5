"""The options of ``forecast``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from nncftools.cli import options
from nncftools.cli.parameters import READ, RUN, SHOW, WRITE, File, Texts, option
from nncftools.units import MemoryUnit, bytes_from, seconds_from


def _limit(text: str) -> str:
    if text != "here":
        bytes_from(text)
    return text


@dataclass(frozen=True, kw_only=True)
class ForecastOptions:
    """What to run with slices of which model, and for which machine."""

    words: Annotated[Texts, options.command_words("{output} in it is what it writes.")] = None
    model: Annotated[
        str | None, option("--model ARG", READ, "The argument that is the model's folder, where that is not clear.")
    ] = None
    from_config: Annotated[
        bool, option("--from-config", READ, "Random weights by config.json: the model need not be there.")
    ] = False
    time: Annotated[
        float, option("--time TIME", RUN, "The most time that the slices may take: 90s, 10min.", parser=seconds_from)
    ] = 600
    limit: Annotated[
        str | None, option("--for SIZE|here", RUN, "Say whether it fits: 16GiB, or this machine.", parser=_limit)
    ] = None
    no_output: Annotated[bool, option("--no-output", RUN, "The command writes nothing.")] = False
    scratch: Annotated[
        File, option("--scratch DIR", WRITE, "Where slices and their outputs are while they are used. Default: TMPDIR.")
    ] = None
    output: Annotated[File, option("--output -o DIR", WRITE, "Where to write all files. Default: in memory_logs.")] = (
        None
    )
    resume: Annotated[bool, option("--resume", RUN, "Go on with the forecast in --output.")] = False
    interval: options.Interval = 0.05
    unit: options.Unit = MemoryUnit.MiB
    force: options.Force = False
    as_json: Annotated[bool, option("--json", SHOW, "Print the result as JSON, as in forecast.json.")] = False
