"""Rich output on a terminal, and the same words plain and without padding anywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from rich.console import Console

if TYPE_CHECKING:
    from rich.console import RenderableType

PLAIN_WIDTH = 100


def show(content: RenderableType, stream: TextIO) -> None:
    """Print to a terminal in its width; to a pipe or file in lines of at most 100 characters, no trailing blanks."""
    if stream.isatty():
        Console(file=stream, highlight=False, soft_wrap=False).print(content)
        return
    console = Console(file=stream, width=PLAIN_WIDTH, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(content)
    stream.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    stream.flush()
