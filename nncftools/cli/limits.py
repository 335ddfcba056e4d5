"""``--max-memory`` and ``--on-limit``: a limit on the command's memory; ``--require``: what it needs to start."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from nncftools.cli import help_page, screen
from nncftools.cli.command import is_file
from nncftools.errors import UsageError
from nncftools.redaction import Redaction
from nncftools.units import brief_size, bytes_from, not_one_of

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

    from nncftools.journal.lines import MemoryLimit
    from nncftools.limits.needs import Requirement

ACTIONS = ("warn", "kill")

MaxMemory = Annotated[
    int | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        parser=bytes_from,
        help="Limit on the sum of RSS over all processes, such as 8GiB or 500M.",
        rich_help_panel=help_page.RUN,
    ),
]
OnLimit = Annotated[
    str,
    typer.Option(
        "--on-limit",
        metavar="|".join(ACTIONS),
        help="If a sample exceeds it: warn once, or end all processes (SIGTERM, after 5 s SIGKILL).",
        rich_help_panel=help_page.RUN,
    ),
]
Require = Annotated[
    str | None,
    typer.Option(
        "--require",
        metavar="SIZE|SESSION",
        help="Start only if so much memory is available; with an earlier session of the command, if memory and disk "
        "suffice for what it needed then.",
        rich_help_panel=help_page.RUN,
    ),
]


def limit(max_memory: int | None, action: str) -> MemoryLimit | None:
    """Return the limit that the two options set, or None. Raises UsageError."""
    if action not in ACTIONS:
        raise UsageError(f"option --on-limit: {not_one_of(action, ACTIONS)}")
    if max_memory is None:
        if action != ACTIONS[0]:
            raise UsageError("option --on-limit: only with --max-memory")
        return None
    return {"rss": max_memory, "action": action}


def check_required(
    text: str | None, argv: Sequence[str], output: pathlib.Path, redact: Sequence[str] | None = ()
) -> None:
    """Refuse to start a command that cannot fit: raises UsageError, with the figures.

    ``text`` is a size or the path of an earlier session; ``output`` is the folder of the recording.
    """
    if text is None:
        return
    if not argv:
        raise UsageError("option --require: not with --pid")
    from nncftools.limits import needs
    from nncftools.limits.needs import available

    needed = _required(text, Redaction(redact).words(list(argv)))
    rooms = needs.rooms(needed.disks, argv, output)
    missing = needs.shortage(needed.memory, rooms, available("/proc", os.getpid()))
    if missing:
        raise UsageError(f"option --require: {missing}")


def _required(text: str, words: Sequence[str]) -> Requirement:
    from nncftools.limits import needs

    try:
        return needs.Requirement(bytes_from(text), {})
    except ValueError as error:
        if not is_file(text):
            expected = "a size such as 12GiB, or the file of a session, expected"
            raise UsageError(f"option --require: {expected}, found {text!r}") from error
    from nncftools.session import session as session_session

    session = session_session.load(text)
    found = needs.of_session(session)
    if found is None:
        raise UsageError(f"option --require: {text!r} does not hold what its command needed; record it again")
    if session.command != words:
        screen.message(f"option --require: {text!r} is of another command")
    if found.is_bound:
        more = f"the run in {text!r} was cut short: it needs more than {brief_size(found.memory)}"
        screen.message(f"option --require: {more}")
    return found
