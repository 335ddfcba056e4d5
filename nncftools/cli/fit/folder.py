"""The folder of a search of ``fit``: its state, which is complete after each run, and what belongs beside it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
from collections.abc import Iterator

import msgspec

from nncftools import intake
from nncftools.cli import destination, options
from nncftools.cli.fit import outputs
from nncftools.cli.fit.options import FitOptions
from nncftools.cli.fit.search import Fit
from nncftools.errors import NncfToolsError, SessionFileError, UsageError
from nncftools.files import held, replacing
from nncftools.redaction import Redaction
from nncftools.units import MemoryUnit

STATE = "fit.json"


def folder(request: FitOptions) -> pathlib.Path:
    """Return the folder of the results. Raises UsageError."""
    output = request.output
    if output is None:
        name = pathlib.Path((request.words or [""])[0]).name
        made = destination.new_folder(destination.DEFAULT_LOG_DIR, f"fit-{name}")
        assert made.folder is not None
        return made.folder
    if os.path.lexists(output / STATE) and not (request.resume or request.force):
        raise UsageError(f"option --output: {str(output)!r} has a search already; use --resume or --force")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"option --output: cannot make {str(output)!r}: {error.strerror}") from error
    return output.absolute()


@contextlib.contextmanager
def alone_in(output: pathlib.Path) -> Iterator[None]:
    """Keep other searches from writing to the same folder. Raises UsageError, NncfToolsError."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(held(output))
        except BlockingIOError as error:
            raise UsageError(f"option --output: another search writes to {str(output)!r}; wait for its end") from error
        except OSError as error:
            raise destination.cannot_write("--output", output, error) from error
        yield


def remove_earlier(output: pathlib.Path) -> None:
    """Remove what an earlier search wrote: more runs than the new one needs, and a state to go on with."""
    if not os.path.lexists(output / STATE):
        return
    recordings = (path for kind in ("json", "log") for path in output.glob(f"run-[0-9]*.{kind}"))
    for path in (output / STATE, *(output / name for name in outputs.FILES), *recordings):
        with destination.writing("--output", path):
            path.unlink(missing_ok=True)


def new(request: FitOptions) -> Fit:
    """Return a search without runs. Raises UsageError."""
    redaction = Redaction()
    return Fit(
        command=redaction.words([os.fsencode(word).decode(errors="backslashreplace") for word in request.words or ()]),
        tolerance=options.share("--tolerance", request.tolerance),
        slower=request.slower,
        swap=request.swap,
        give_up=_factor(request.give_up),
        success=None if request.success is None else redaction.text(request.success),
    )


def _factor(text: str) -> float:
    try:
        factor = float(text.strip().removesuffix("x"))
    except ValueError:
        factor = 0.0
    if not 1 < factor < float("inf"):
        raise UsageError(f"option --give-up: a factor above 1 expected, such as 5x, found {text!r}")
    return factor


def begun(wanted: Fit, output: pathlib.Path) -> Fit:
    """Return a search that was begun before, to be finished as exactly as is wanted now. Raises UsageError."""
    file = output / STATE
    if not os.path.lexists(file):
        return wanted
    try:
        fit = msgspec.json.decode(intake.whole(file, may_wait=False), type=Fit)
    except SessionFileError as error:
        raise UsageError(f"option --resume: {error}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"option --resume: {str(file)!r} cannot be read: {error}") from error
    if (fit.format, fit.version) != (wanted.format, wanted.version):
        raise UsageError(f"option --resume: {str(file)!r} is not the result of a search, or one of a newer version")
    if fit.command != wanted.command:
        raise UsageError(f"option --resume: {str(file)!r} is of another command: {shlex.join(fit.command)}")
    if fit.swap != wanted.swap:
        raise UsageError(f"option --swap: the runs in {str(file)!r} had {fit.swap} bytes of swap")
    if fit.give_up != wanted.give_up:
        raise UsageError(f"option --give-up: the runs in {str(file)!r} were given up after {fit.give_up:g}x")
    if fit.success != wanted.success:
        how = "without it" if fit.success is None else f"by {fit.success!r}"
        raise UsageError(f"option --success: the runs in {str(file)!r} were judged {how}")
    fit.tolerance, fit.slower = wanted.tolerance, wanted.slower
    return fit


def write(fit: Fit, output: pathlib.Path) -> None:
    """Write what is known so far. Raises NncfToolsError."""
    file = output / STATE
    with destination.writing("--output", file), replacing(file) as beside:
        beside.write_bytes(as_json(fit))


def write_beside(fit: Fit, unit: MemoryUnit, output: pathlib.Path) -> NncfToolsError | None:
    """Write Markdown and picture; return what failed: the result of a long search is shown all the same."""
    try:
        outputs.write(fit, unit, output)
    except Exception as error:  # noqa: BLE001 — matplotlib fails in many ways if its installation is broken
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        text = f"option --output: {STATE} in {str(output)!r} is complete, but what belongs beside it is not: {reason}"
        return NncfToolsError(" ".join(text.split()))
    return None


def as_json(fit: Fit) -> bytes:
    """Return a search as the content of its file."""
    return msgspec.json.format(msgspec.json.encode(fit), indent=2) + b"\n"
