"""What two runs were asked to do differently: command, arguments, machine, sampling, settings of saved models."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from nncftools.session.session import Session

COMMAND = "command"
_MOST_WORDS = 500
_OF_NNCF = 3
"""``nncf``, an algorithm, a setting."""


@dataclass(frozen=True)
class Setting:
    """One setting on both sides; of runs that differ, all values with ``or`` between them. Empty: there is none."""

    name: str
    base: str
    new: str


class Asked(Protocol):
    """What a run was asked to do."""

    @property
    def command(self) -> str:
        """As typed in a shell."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Machine and sampling."""

    @property
    def models(self) -> Mapping[str, str]:
        """How the saved models were compressed."""


def of_models(session: Session) -> dict[str, str]:
    """Return the compression settings of the saved models, by name: ``mode``, ``group_size``."""
    found: dict[str, dict[str, None]] = {}
    for model in session.models:
        for place, value in model.facts.items():
            parts = place.split("/")
            if parts[0] == "nncf" and len(parts) == _OF_NNCF:
                found.setdefault(parts[-1], {})[value] = None
    return {name: _either(values) for name, values in found.items()}


def differing(
    base: Sequence[Asked], new: Sequence[Asked], calls: Iterable[tuple[str, Sequence[str], Sequence[str]]]
) -> Iterator[Setting]:
    """Yield the settings that differ, those that the user chose first.

    ``calls`` are the operations that both sides have: the name, and what it called on each side, with its arguments.
    """
    commands = [list(dict.fromkeys(run.command for run in runs)) for runs in (base, new)]
    if commands[0] != commands[1]:
        yield from _of_commands(*commands)
    for name, of_base, of_new in calls:
        yield from _if_different(name, of_base, of_new)
    have_models = all(any(run.models for run in runs) for runs in (base, new))
    for name in dict.fromkeys(name for run in (*base, *new) for name in run.models if have_models):
        yield from _if_different(name, *([run.models.get(name, "") for run in runs] for runs in (base, new)))
    for fact in base[0].facts:
        yield from _if_different(fact, *([run.facts[fact] for run in runs] for runs in (base, new)))


def _if_different(name: str, base: Sequence[str], new: Sequence[str]) -> Iterator[Setting]:
    sides = _either(base), _either(new)
    if sides[0] != sides[1]:
        yield Setting(name, *sides)


def _of_commands(base: Sequence[str], new: Sequence[str]) -> Iterator[Setting]:
    """Yield the words in which two commands differ, after the option that they belong to; else both as they are."""
    if len(base) > 1 or len(new) > 1:
        yield Setting(COMMAND, _either(base), _either(new))
        return
    one, other = _words(base[0]), _words(new[0])
    for kind, from_, to, new_from, new_to in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        has_option = from_ > 0 and one[from_ - 1].startswith("-") and to > from_ and new_to > new_from
        yield Setting(
            COMMAND,
            shlex.join(one[from_ - has_option : to]),
            shlex.join(other[new_from - has_option : new_to]),
        )


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:  # the name of a run is no command line
        words = command.split()
    return words[:_MOST_WORDS]


def _either(texts: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(texts))
