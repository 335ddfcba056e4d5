"""``nncf-tools forecast``: what a command will need with a model, from runs with slices of the model."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Annotated

from nncftools.cli import options, planning
from nncftools.cli.parameters import READ, RUN, SHOW, WRITE, File, Texts, option, with_options
from nncftools.errors import UsageError
from nncftools.units import MemoryUnit, bytes_from, seconds_from

HERE = "here"


def _limit(text: str) -> str:
    if text != HERE:
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
    ] = 600.0
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


@with_options(ForecastOptions)
def forecast(request: ForecastOptions) -> int:
    """Forecast what a command needs with a model, from runs with a few of its layers.

    \b
    Examples:
      nncf-tools forecast -- optimum-cli export openvino --model DIR OUT
      nncf-tools forecast --for 16GiB -- optimum-cli export openvino --model DIR OUT
      nncf-tools forecast -- python compress.py DIR {output}
      nncf-tools forecast --no-output -- python generate.py DIR
      nncf-tools forecast --from-config -- optimum-cli export openvino --model DIR OUT
      nncf-tools forecast --output forecasts/llama --resume -- ./export.sh DIR {output}

    \b
    The command runs three or four times, each time with a slice of the model in
    place of the model, and with a scratch folder in place of its output. Nothing
    else of the command is changed. The exit status is 1 if --for does not fit, or
    if it is not known; 0 otherwise; 130 after Ctrl-C, with the forecast so far.
    """
    from nncftools.cli.forecast import arguments, outputs, runs, slices

    argv = planning.target(options.Request(words=request.words))
    if request.resume and request.output is None:
        raise UsageError("option --resume: only with --output, the folder of the forecast to go on with")
    if request.scratch is not None and not request.scratch.is_dir():
        raise UsageError(f"option --scratch: {str(request.scratch)!r} is not a folder")
    command = arguments.find(argv, request.model, writes=not request.no_output)
    folder = pathlib.Path(command.model)
    model = runs.looked_at(folder, argv) if request.from_config else slices.read(folder)
    command, notes = arguments.by_size(command, model.parameters, model.weights)
    return runs.run(request, command, model, outputs.new(request, command, model, notes))
