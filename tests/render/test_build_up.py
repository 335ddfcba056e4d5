from __future__ import annotations

import re
from typing import Any

import pytest
from rich.console import Console

from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError
from nncftools.render import build_up
from nncftools.render.build_up import build_up_report
from nncftools.session.model import Mark
from nncftools.units import MemoryUnit
from tests.made_up import session
from tests.made_up_stacks import grown, stack

LOAD, RUN = stack("/a/b.py:9 main", "torch/load.py:1 load"), stack("/a/b.py:9 main", "torch/run.py:2 run")
HOSTILE = stack("/a/\x1b[31m.py:9 [bold red]x[/]\n", *(f"pkg/{'n' * 300}.py:{n} {'f' * 300}" for n in range(400)))


def exported(**fields: Any) -> Session:  # noqa: ANN401 — any field of snapshots or a session
    """Return a run that loads 400 MiB, then takes 100, in a step each."""
    marks = [Mark(name="Step", start_s=start_s, end_s=start_s + 0.5) for start_s in (0.0, 0.5)]
    return grown((LOAD, 400), (RUN, 100), **{"marks": marks, **fields})


@pytest.mark.parametrize("width", [40, 120])
def test_width(width: int) -> None:
    """Nothing is wider than the terminal, and deep stacks and long names are harmless."""
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        of = grown((HOSTILE, 400), (RUN, 300))
        console.print(build_up.as_text(build_up_report(of, MemoryUnit.MiB, None, None, None)))
    lines = captured.get().splitlines()

    assert max(map(len, lines)) <= width
    assert not any("\x1b" in line for line in lines)
    assert any("[bold red]" in line for line in lines)


@pytest.mark.parametrize(
    "operation, at_s, between_s, why",
    [
        (None, None, (0.5, 0.2), "0.5 s is not before 0.2 s"),
        (None, None, (0.5, 0.5), "0.5 s is not before 0.5 s"),
        (None, None, (0.5, 9.0), "9 s is outside the recording, which lasted 0.980 s"),
        (None, None, (0.481, 0.515), "Growth from 0.481 s to 0.515 s: no process grew"),
        (None, -1.0, None, "-1 s is outside the recording, which lasted 0.980 s"),
        (None, 99.0, None, "99 s is outside the recording, which lasted 0.980 s"),
        ("Save", None, None, "no operation 'Save'; the session has 'Step', 'Step (2)'"),
    ],
)
def test_wrong_choices(
    operation: str | None, at_s: float | None, between_s: tuple[float, float] | None, why: str
) -> None:
    """What is not in the recording is refused, with what there is."""
    with pytest.raises(NncfToolsError, match=re.escape(why)):
        build_up_report(exported(), MemoryUnit.MiB, operation, at_s, between_s)


@pytest.mark.parametrize(
    "operation, title",
    [
        ("Step", "Peak of Step at 0.980 s: RSS 500.0 MiB"),
        ("Step (1)", "Peak of Step (1) at 0.480 s: RSS 400.0 MiB"),
        ("run", "Peak of run at 0.980 s: RSS 500.0 MiB"),
    ],
)
def test_choice_of_an_operation(operation: str, title: str) -> None:
    """Of several operations of one name the one with the highest peak is shown; a number or a function chooses."""
    of = exported()
    of.marks[1].call = "torch.run"

    assert build_up_report(of, MemoryUnit.MiB, operation, None, None).title == title


def test_no_stacks() -> None:
    """Without stacks, the reason is named."""
    of = exported(missing="py-spy is not installed")
    assert of.snapshots is not None
    of.snapshots.processes[0].windows = []

    with pytest.raises(NncfToolsError, match="no stacks: py-spy is not installed"):
        build_up_report(of, MemoryUnit.MiB, None, None, None)
    with pytest.raises(NncfToolsError, match="recorded without stacks"):
        build_up_report(session(), MemoryUnit.MiB, None, None, None)
