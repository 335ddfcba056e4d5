"""The result of a search for a terminal, and its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from nncftools.files import replacing
from nncftools.render import markdown as render_markdown
from nncftools.render.fit import words
from nncftools.render.fit.table import runs
from nncftools.render.table import Fitting, warnings

if TYPE_CHECKING:
    import pathlib

    from rich.console import RenderableType

    from nncftools.limits.trial import Fit
    from nncftools.units import MemoryUnit

FILES = MARKDOWN, PICTURE = "fit.md", "fit.png"


def text(fit: Fit, unit: MemoryUnit) -> RenderableType:
    """Return the result for Rich to print."""
    sentence = words.sentence(fit, unit)
    return Group(
        Fitting(runs(fit, unit)),
        Text(),
        Text(f"{sentence[:1].upper()}{sentence[1:]}.", style="bold"),
        *warnings(words.notes(fit)),
    )


def commands(fit: Fit) -> str:
    """Return lines to copy, which are not wrapped; empty when no limit was found."""
    return "".join(f"  {line}\n" for line in words.commands(fit))


def markdown(fit: Fit, unit: MemoryUnit) -> str:
    """Return the result as GitHub's Markdown."""
    sentence = words.sentence(fit, unit)
    blocks = [
        [f"**{render_markdown.text(sentence[:1].upper() + sentence[1:])}.**"],
        *render_markdown.painted(runs(fit, unit)),
    ]
    to_copy = words.commands(fit)
    if to_copy:
        blocks.append(["```sh", *to_copy, "```"])
    blocks.append([f"- ⚠ {render_markdown.text(note)}" for note in words.notes(fit)])
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def write(fit: Fit, unit: MemoryUnit, folder: pathlib.Path) -> None:
    """Write Markdown and picture. Raises OSError."""
    with replacing(folder / MARKDOWN) as beside:
        beside.write_text(markdown(fit, unit), encoding="utf-8")
    if fit.trials:
        from nncftools.render.fit import picture

        picture.draw(fit, unit, folder / PICTURE)
