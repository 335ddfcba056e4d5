"""The legend: the meaning of markers, colours and lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D

from nncftools.compression.groups import Group
from nncftools.drawing import PALETTE
from nncftools.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from nncftools.compression.recommend import Bound
    from nncftools.compression.results import Result

_GROUPS = (Group.LORA, Group.GPTQ, Group.DATA_FREE, Group.MIXED, Group.DATA_AWARE, Group.INT8, Group.OTHER)
MARKERS = dict(zip(_GROUPS, "D^vosXP", strict=True))
COLOURS = dict(zip(_GROUPS, (PALETTE[place] for place in (2, 3, 1, 0, 4, 5, 6)), strict=True))
"""The colour of a kind in a picture of one model; several models have one colour each."""
MARKER_SIZE = 8.0
DOMINATED = 0.45
"""The opacity of points that are not on the Pareto front."""
_LINE = "#888888"
_GREY = "#777777"
_NAME = 40


def add_legend(figure: Figure, results: Sequence[Result], models: Sequence[str], bound: Bound | None) -> None:
    """Add the legend below the picture: models by colour, kinds by marker, lines."""
    entries = [*_models(models), *_kinds(results, several=len(models) > 1)]
    if sum(result.is_pareto for result in results) > len(models):
        entries.append(Line2D([], [], color=_LINE, linewidth=1.2, label="Pareto front"))
    if not all(result.is_pareto for result in results):
        entries.append(_mark("o", _GREY, "lighter: dominated", alpha=DOMINATED))
    if bound is not None:
        ring: dict[str, Any] = {"linestyle": ":", "markersize": 10, "fillstyle": "none"}
        entries.append(Line2D([], [], marker="o", color="#444444", label=f"smallest with {bound}", **ring))
    legend = figure.legend(handles=entries, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _models(names: Sequence[str]) -> list[Line2D]:
    if len(names) == 1:
        return []
    return [
        Line2D([], [], color=PALETTE[place % len(PALETTE)], linewidth=4, label=shortened(printable(name), _NAME))
        for place, name in enumerate(names)
    ]


def _kinds(results: Sequence[Result], *, several: bool) -> list[Line2D]:
    here = {result.group for result in results}
    return [_mark(MARKERS[group], _GREY if several else COLOURS[group], group) for group in _GROUPS if group in here]


def _mark(marker: str, colour: str, label: str, alpha: float = 1.0) -> Line2D:
    look: dict[str, Any] = {"linestyle": "", "markersize": MARKER_SIZE, "markeredgecolor": "white"}
    return Line2D([], [], marker=marker, color=colour, label=label, alpha=alpha, **look)
