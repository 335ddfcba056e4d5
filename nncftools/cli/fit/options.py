"""The options of ``fit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from nncftools.cli import options
from nncftools.cli.parameters import RUN, option


@dataclass(frozen=True, kw_only=True)
class FitOptions(options.SeriesRequest):
    """What to search, and how exactly."""

    runs: Annotated[int, option("--runs N", RUN, "The most runs, with the one without a limit.", min=2)] = 10
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
