"""Judge why nncf-tools says that something died, and how little memory would do: ``python -m benchmarks.limits``.

Deaths are programs that die in known ways, some in control groups of our own. Floors are six programs; the floor of a
recording may differ by 3 % from the smallest limit of a control group with which the program still works. Fits are the
same programs and one more: the limit that ``fit`` finds may differ by 3 % from it, and by 5 % at full speed. The exit
status is 1 if anything was wrong. Only root can make control groups.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

from benchmarks.__main__ import positive
from benchmarks.limits import deaths, fits, floors
from tests.memory_group import IS_POSSIBLE


def main() -> int:
    """Run all rows, print tables, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--runs", type=positive, default=1, metavar="N", help="runs of each row, default 1")
    parser.add_argument("--only", metavar="ROW", help=f"deaths, floors, fit, or one of {', '.join(deaths.ROWS)}")
    options = parser.parse_args()
    if not IS_POSSIBLE:
        parser.error("only root can make control groups, and the memory controller of v1 must be mounted")
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="nncf-tools-limits-") as folder:
        place = pathlib.Path(folder)
        if options.only not in {"floors", "fit"}:
            wrong += deaths.judge(place, options.runs, None if options.only == "deaths" else options.only)
        if options.only in {None, "floors"}:
            wrong += floors.judge(place, options.runs)
        if options.only in {None, "fit"}:
            wrong += fits.judge(place, options.runs)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
