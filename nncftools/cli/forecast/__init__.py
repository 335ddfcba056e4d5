"""``nncf-tools forecast``: forecast the memory, time and disk space that a command with a model needs.

The figures come from runs with slices of the model (the model with only some of its layers).
"""

from __future__ import annotations

import pathlib

from nncftools.cli import options, planning
from nncftools.cli.forecast.arguments import ForecastOptions, by_size, find
from nncftools.cli.parameters import with_options
from nncftools.errors import UsageError


@with_options(ForecastOptions)
def forecast(request: ForecastOptions) -> int:
    """Forecast the needs of a command with a model, from runs with a few of the model's layers.

    \b
    Examples:
      nncf-tools forecast -- optimum-cli export openvino -m DIR OUT
      nncf-tools forecast --for 16GiB -- optimum-cli export openvino -m DIR OUT
      nncf-tools forecast -- python compress.py DIR {output}
      nncf-tools forecast --no-output -- python generate.py DIR
      nncf-tools forecast --from-config -- optimum-cli export openvino -m DIR OUT
      nncf-tools forecast --prepare 'rm -rf CACHE' -- ./export.sh DIR {output}
      nncf-tools forecast --output llama --resume -- ./export.sh DIR {output}

    The command runs three to five times, each time with a slice (a model with a
    few of the layers) in place of the model, and with a scratch folder in place of
    the output. Nothing else of the command is changed. The exit status is 0 if
    there is a forecast and, with --for, the command fits into that memory. It is 1
    if not, or if that is not certain. After Ctrl-C it is 130, and the forecast so
    far is shown.
    """
    from nncftools.cli.forecast import runs, slices

    argv = planning.resolve_target(options.Request(words=request.words))
    request.check_resume()
    if request.scratch is not None and not request.scratch.is_dir():
        raise UsageError(f"option --scratch: {str(request.scratch)!r} is not a folder")
    command = find(argv, request.model, writes=not request.no_output)
    model = slices.read(pathlib.Path(command.model), argv, from_config=request.from_config)
    command, notes = by_size(command, model.parameters, model.size(model.layers))
    return runs.run(request, command, model, runs.begin_result(request, command, model, notes))
