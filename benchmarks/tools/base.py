"""The interface of every tool: record a command, read its recording, draw a recording."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Sequence


class ToolError(Exception):
    """A tool failed; the text gives the reason in a footnote of the table."""


class HungError(ToolError):
    """A tool did not end in time; it is not asked again."""


@dataclass(frozen=True)
class Recording:
    """A tool's figures of a run, in bytes and seconds; None for figures that are not in its output."""

    samples: int
    span_s: float
    """From the first sample to the last."""
    peak: int | None
    """Of the metric that was asked for."""
    processes: int | None = None
    """How many it saw."""
    sampler_rss: int | None = None
    """High-water mark of the process that samples, where that is not the process that was started."""


class Tool(abc.ABC):
    """A recorder from a virtual environment of its own."""

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    """What is installed, the tool first."""
    attaches: ClassVar[bool] = False
    """Whether it records only what runs already."""

    def __init__(self, python: pathlib.Path) -> None:
        self.python = python
        """The interpreter of its environment."""

    def script(self, name: str) -> str:
        """Return the path of a command of its environment."""
        return str(self.python.with_name(name))

    @abc.abstractmethod
    def record(self, words: Sequence[str], interval_s: float, folder: pathlib.Path, metric: str) -> list[str]:
        """Return the command that records ``metric`` (rss or pss) of ``words`` and all descendants into ``folder``.

        A tool that attaches is given a placeholder of the PID as the only word. Raises ToolError.
        """

    @abc.abstractmethod
    def read(self, folder: pathlib.Path, metric: str) -> Recording:
        """Return what was recorded in ``folder``. Raises ToolError, OSError, ValueError or LookupError."""

    @abc.abstractmethod
    def draw(self, folder: pathlib.Path) -> list[str]:
        """Return the command that draws the RSS recorded in ``folder`` to a file. Raises ToolError."""

    @abc.abstractmethod
    def grow(self, folder: pathlib.Path, count: int) -> None:
        """Replace the samples recorded in ``folder`` by ``count`` made-up ones, in the tool's own format."""


def made_up(count: int) -> Iterator[tuple[float, int]]:
    """Return ``count`` samples at 10 ms, seconds and bytes: a slow rise with much noise, the same for every tool."""
    return ((number / 100, 100 * 2**20 + 64 * number + number * 7919 % 1000 * 8192) for number in range(count))


def refuse_pss(metric: str) -> None:
    """Raise ToolError when a tool that knows nothing but RSS is asked for PSS."""
    if metric == "pss":
        raise ToolError("has no PSS")
