"""procpath: reads all of /proc, records a subtree into SQLite."""

from __future__ import annotations

import contextlib
import mmap
import sqlite3
from typing import TYPE_CHECKING

from benchmarks.tools.base import Recording, Tool, ToolError, made_up

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

_FILES = {"rss": "stat", "pss": "stat,smaps_rollup"}
_SIZES = {"rss": ("stat_rss", mmap.PAGESIZE), "pss": ("smaps_rollup_pss", 1024)}


class Procpath(Tool):
    """It attaches to a process, and ends when its query finds nothing more."""

    name = "procpath"
    packages = ("procpath",)
    attaches = True

    def record(self, words: Sequence[str], interval_s: float, folder: pathlib.Path, metric: str) -> list[str]:
        """Return the command that records a subtree, with the fewest files."""
        (pid,) = words
        what = ("--pid-list", pid, "--procfile-list", _FILES[metric], f"$..children[?(@.stat.pid == {pid})]")
        how = ("--interval", str(interval_s), "--stop-without-result", "--database-file", str(_database(folder)))
        return [self.script("procpath"), "--logging-level", "ERROR", "record", *how, *what]

    def read(self, folder: pathlib.Path, metric: str) -> Recording:
        """Return the recording from the database."""
        try:
            return _figures(folder, *_SIZES[metric])
        except sqlite3.Error as error:
            raise ToolError(f"left no usable database: {error}") from error

    def draw(self, folder: pathlib.Path) -> list[str]:
        """Return the command that draws RSS, without a dot per sample."""
        picture = str(folder / "drawn.svg")
        words = ("--database-file", str(_database(folder)), "--plot-file", picture, "--query-name", "rss", "--no-dots")
        return [self.script("procpath"), "plot", *words]

    def grow(self, folder: pathlib.Path, count: int) -> None:
        """Repeat the last row with other times and sizes."""
        with contextlib.closing(sqlite3.connect(_database(folder))) as database, database:
            names = [row[1] for row in database.execute("PRAGMA table_info(record)") if row[1] != "record_id"]
            row = database.execute(f"SELECT {','.join(names)} FROM record ORDER BY record_id DESC").fetchone()  # noqa: S608 — its own columns
            database.execute("DELETE FROM record")
            time, size = names.index("ts"), names.index("stat_rss")
            rows = (
                _changed(row, time, row[time] + at_s, size, bytes_ // mmap.PAGESIZE) for at_s, bytes_ in made_up(count)
            )
            marks = ",".join("?" * len(names))
            database.executemany(f"INSERT INTO record ({','.join(names)}) VALUES ({marks})", rows)  # noqa: S608 — the same


def _figures(folder: pathlib.Path, column: str, unit: int) -> Recording:
    sums = f"SELECT ts, sum({column}) AS size FROM record GROUP BY ts"  # noqa: S608 — a column of ours
    with contextlib.closing(sqlite3.connect(_database(folder))) as database:
        figures = database.execute(f"SELECT count(*), max(ts) - min(ts), max(size) FROM ({sums})").fetchone()  # noqa: S608 — the same
        (processes,) = database.execute("SELECT count(DISTINCT stat_pid) FROM record").fetchone()
    samples, span_s, size = figures
    return Recording(samples, span_s or 0.0, None if size is None else size * unit, processes)


def _changed(row: tuple[object, ...], time: int, moment: float, size: int, pages: int) -> list[object]:
    changed = list(row)
    changed[time], changed[size] = moment, pages
    return changed


def _database(folder: pathlib.Path) -> pathlib.Path:
    return folder / "procpath.sqlite"
