"""The options of ``fit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from nncftools.cli import options
from nncftools.cli.parameters import RUN, option
from nncftools.units import bytes_from


def _swap(text: str) -> int:
    from nncftools.cli.fit import groups

    size = 0 if text.strip() == "0" else bytes_from(text)
    if size and not groups.has_swap():
        raise ValueError("this machine has no swap; add some (swapon), or leave the option out")
    return size


@dataclass(frozen=True, kw_only=True)
class FitOptions(options.SeriesRequest):
    """What to search, and how exactly."""

    tolerance: Annotated[str, option("--tolerance PERCENT", RUN, "How exactly to find the limit.")] = "3%"
    slower: Annotated[
        float, option("--slower FACTOR", RUN, "Full speed is up to FACTOR times the time without a limit.")
    ] = 1.1
    runs: Annotated[int, option("--runs N", RUN, "The most runs, with the one without a limit.", min=2)] = 10
    give_up: Annotated[str, option("--give-up Nx", RUN, "End a run after N times the time without a limit.")] = "5x"
    swap: Annotated[int, option("--swap SIZE", RUN, "Swap that a run may use beside its limit.", parser=_swap)] = 0
    success: Annotated[
        str | None, option("--success COMMAND", RUN, "Shell command after each run; it fails if the run failed.")
    ] = None
    before: Annotated[str | None, option("--before COMMAND", RUN, "Shell command before each run, to clean up.")] = None
    free_only: Annotated[bool, option("--free-only", RUN, "Only run without a limit: no control group.")] = False
    interval: options.Interval = 0.1
    shell: options.Shell = False

    @property
    def recorded(self) -> options.Request:
        """How each run is recorded."""
        return options.Request(
            words=self.words, shell=self.shell, types=["rss"], interval=self.interval, no_auto=True, stacks=False
        )
