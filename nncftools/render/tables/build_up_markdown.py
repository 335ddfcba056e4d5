"""The build-up of a peak as Markdown tables, for a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nncftools.render.tables.build_up import tables
from nncftools.render.tables.markdown import code, painted, text
from nncftools.render.tables.peak_lines import as_sentences
from nncftools.render.view import command_text
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from nncftools.render.tables.build_up import Whole

_TITLE = 200


def rendered(whole: Whole) -> str:
    """Return the build-up as GitHub's Markdown; it ends with a line break."""
    blocks = [
        [f"### {code(shortened(command_text(whole.session), _TITLE))}"],
        [f"**{text(whole.title)}**"],
        [f"- {text(line)}" for line in as_sentences(whole.lines)],
        *(block for _, table in tables(whole) for block in painted(table)),
        [f"- {text(printable(note))}" for note in whole.notes],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"
