"""duct, the command of con-duct: one process that runs ``ps`` for every sample."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

from benchmarks.tools.base import Recording, Tool, made_up, refuse_pss
from nncftools.backports import moment_of

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence


class Duct(Tool):
    """It reports as often as it samples here, so that its log holds what the others' hold."""

    name = "duct"
    packages = ("con-duct", "matplotlib")

    def record(self, words: Sequence[str], interval_s: float, folder: pathlib.Path, metric: str) -> list[str]:
        """Return the command that records, quietly."""
        refuse_pss(metric)
        interval = str(interval_s)
        quiet = ("--log-level", "NONE", "--capture-outputs", "none", "--outputs", "none", "--clobber")
        intervals = ("--sample-interval", interval, "--report-interval", interval)
        return [self.script("duct"), *quiet, *intervals, "--output-prefix", str(folder / "duct_"), *words]

    def read(self, folder: pathlib.Path, metric: str) -> Recording:  # noqa: ARG002 — RSS is all it has
        """Return the recording from its two files."""
        with _usage(folder).open(encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        summary = json.loads((folder / "duct_info.json").read_bytes())["execution_summary"]
        return Recording(
            samples=summary["num_samples"],
            span_s=(_time(lines[-1]) - _time(lines[0])).total_seconds(),
            peak=summary["peak_rss"],
            processes=len({pid for line in lines for pid in line["processes"]}),
        )

    def draw(self, folder: pathlib.Path) -> list[str]:
        """Return the command that draws the usage file."""
        return [self.script("con-duct"), "plot", "--output", str(folder / "drawn.png"), str(_usage(folder))]

    def grow(self, folder: pathlib.Path, count: int) -> None:
        """Repeat the last line with other times and sizes."""
        last = _usage(folder).read_text(encoding="utf-8").splitlines()[-1]
        sample = json.loads(last)
        begin, size = _time(sample), sample["totals"]["rss"]
        before, *between = last.replace(f'"rss": {size}', '"rss": \0').split(sample["timestamp"])
        with _usage(folder).open("w", encoding="utf-8") as file:
            for time_s, made_up_size in made_up(count):
                moment = (begin + dt.timedelta(seconds=time_s)).isoformat()
                file.write(moment.join((before, *between)).replace("\0", str(made_up_size)) + "\n")


def _usage(folder: pathlib.Path) -> pathlib.Path:
    return folder / "duct_usage.jsonl"


def _time(line: dict[str, str]) -> dt.datetime:
    return moment_of(line["timestamp"])
