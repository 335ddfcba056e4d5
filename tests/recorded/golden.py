"""What is made of real recordings of November 2026, cut at every line, and what the live view shows of them.

``python -m tests.recorded.golden`` writes ``tests/golden/recorded`` anew: read the difference before you commit it.
Each reading of a cut recording is a line with its kind, the number of lines, and the beginning of the SHA-256 of what
was read; three sessions of each recording are there in full, so that a difference can be read.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import nncftools
from tests.recorded import entries

JOURNALS = Path(__file__).parents[1] / "data" / "journals"
FOLDER = Path(__file__).parents[1] / "golden" / "recorded"
JOURNAL, MARKS, SNAPSHOTS = ".journal.jsonl", ".marks.jsonl", ".snapshots.jsonl"
NAMES = sorted(path.name.partition(".")[0] for path in JOURNALS.glob(f"*{JOURNAL}.gz"))
_DIGITS = 12
SCREEN = 80, 24


class Logs(NamedTuple):
    """The lines of a recording's files; empty where there is no such file."""

    journal: list[bytes]
    marks: list[bytes]
    snapshots: list[bytes]


def logs(name: str) -> Logs:
    """Return the files of a recording."""
    paths = [JOURNALS / f"{name}{ending}.gz" for ending in (JOURNAL, MARKS, SNAPSHOTS)]
    return Logs(
        *(gzip.decompress(path.read_bytes()).splitlines(keepends=True) if path.exists() else [] for path in paths)
    )


def write(folder: Path, journal: Iterable[bytes], marks: Iterable[bytes], snapshots: Iterable[bytes]) -> None:
    """Write the files of a recording as they lie while it runs."""
    for ending, lines in ((JOURNAL, journal), (MARKS, marks), (SNAPSHOTS, snapshots)):
        data = b"".join(lines)
        path = folder / f"run{ending}"
        if data or ending == JOURNAL:
            path.write_bytes(data)
        else:
            path.unlink(missing_ok=True)


def reported(folder: Path) -> str:
    """Return the session that ``report --format session`` makes of a recording, or its error."""
    journal = f"run{JOURNAL}"
    words = ["nncf-tools", "report", journal, "--format", "session", "-o", "read.json", "--force"]
    err = io.StringIO()
    with (
        mock.patch.object(sys, "argv", words),
        mock.patch.dict(os.environ, COLUMNS="80", NO_COLOR="1"),
        contextlib.redirect_stderr(err),
        _inside(folder),
    ):
        status = entries.command_line()
    if status:
        return f"{status} {err.getvalue()}"
    document = json.loads((folder / "read.json").read_bytes(), parse_float=_rounded)
    totals = document["totals"]
    totals.update({key: totals[key] and round(totals[key], 4) for key in ("cpu_user", "cpu_system") if key in totals})
    return readable(document)


def _rounded(text: str) -> float:
    """Return a float without its last digits: sums are more exact from Python 3.12 on.

    Totals of CPU time are rounded to microseconds after such a sum, so that these may differ by one.
    """
    return float(f"{float(text):.12g}")


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def readable(document: dict[str, Any]) -> str:
    """Return a session in the order in which it was saved, with lines that a difference can show."""
    lines = []
    for key, value in document.items():
        parts = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
        if any(isinstance(part, (dict, list)) for _, part in parts):
            lines += [f"{key}.{place}: {json.dumps(part)}" for place, part in parts]
        else:
            lines.append(f"{key}: {json.dumps(value)}")
    return "".join(f"{line}\n" for line in lines)


def _shown(run: Any) -> str:  # noqa: ANN401 — whatever the live view keeps
    return "\n".join([entries.status(run), entries.alive(run), *entries.frame(run, SCREEN, state="recording"), ""])


class Reading(NamedTuple):
    """What one reader made of a recording that was cut."""

    kind: str
    lines: int
    text: str

    @property
    def line(self) -> str:
        """The line of the golden."""
        return f"{self.kind} {self.lines} {hashlib.sha256(self.text.encode()).hexdigest()[:_DIGITS]}"


def sessions_of(log: str) -> Callable[..., Iterator[Reading]]:
    """Return what yields the session of each number of lines of a log, or of some, beside the other logs."""

    def sessions(of: Logs, folder: Path, every: int = 1) -> Iterator[Reading]:
        lines = getattr(of, log)
        for number in _numbers(lines)[::every]:
            write(folder, *of._replace(**{log: lines[:number]}))
            yield Reading(log, number, reported(folder))

    return sessions


def sessions_of_damage(kind: str) -> Callable[[Logs, Path], Iterator[Reading]]:
    """Return what yields the session of a journal that is broken in the middle of each line, or has lost the line."""

    def sessions(of: Logs, folder: Path) -> Iterator[Reading]:
        for number, line in enumerate(of.journal):
            rest = [line[: len(line) // 2]] if kind == "broken" else [b"{\n", *of.journal[number + 1 :]]
            write(folder, [*of.journal[:number], *rest], of.marks, of.snapshots)
            yield Reading(kind, number, reported(folder))

    return sessions


def live_line_by_line(of: Logs, folder: Path, every: int = 1) -> Iterator[Reading]:
    """Yield what the live view shows as the journal grows by a line at a time, and the other logs with it.

    It reads each line, and shows every one, or some.
    """
    write(folder, of.journal[:1], (), ())
    followed = entries.Followed(folder / f"run{JOURNAL}")
    for number in range(1, len(of.journal) + 1):
        write(folder, *_together(of, number))
        run = followed.read()
        if number % every == 0 or number == len(of.journal):
            yield Reading("live", number, _shown(run))
    followed.close()


def live_at_once(of: Logs, folder: Path) -> Iterator[Reading]:
    """Yield what the live view shows first, when it is opened after each number of lines."""
    for number in _numbers(of.journal)[1:]:
        write(folder, *_together(of, number))
        followed = entries.Followed(folder / f"run{JOURNAL}")
        yield Reading("opened", number, _shown(followed.read()))
        followed.close()


def plugin_line_by_line(of: Logs, folder: Path, every: int = 1) -> Iterator[Reading]:  # noqa: ARG001 — as the others
    """Yield the samples that the pytest plugin reads as the journal grows by a line at a time."""
    if not _is_of_plugin(of):
        return
    write(folder, of.journal[:1], (), ())
    tapped = entries.Tapped(folder / f"run{JOURNAL}")
    for number in range(1, len(of.journal) + 1):
        if b'{"each"' not in b"".join(of.journal[number : number + 1]):  # it is written together with its sample
            write(folder, of.journal[:number], (), ())
            yield Reading("plugin", number, repr(tapped.rows()))
    tapped.close()


QUICK = {
    **{log: sessions_of(log) for log in Logs._fields},
    "live": live_line_by_line,
    "plugin": plugin_line_by_line,
}
LONG = {**{kind: sessions_of_damage(kind) for kind in ("broken", "lost")}, "opened": live_at_once}
"""The readings, by the first word of their lines in a golden; those that take long."""


def _is_of_plugin(of: Logs) -> bool:
    return b'"pid":null' not in of.journal[0]


def _numbers(lines: list[bytes]) -> range:
    """Return numbers of lines, from none to all of them; without any line, nothing."""
    return range(len(lines) + 1 if lines else 0)


def _together(of: Logs, number: int) -> Logs:
    """Return the first lines of the journal, and as large a part of the other logs."""
    part = number / len(of.journal)
    return Logs(of.journal[:number], *(lines[: round(len(lines) * part)] for lines in of[1:]))


def golden(name: str) -> Path:
    """Return the file with the lines of a recording."""
    return FOLDER / f"{name}.txt"


def in_full(name: str) -> dict[str, int]:
    """Return which sessions are stored in full: by file name, how many lines of the journal they are of."""
    lines = logs(name).journal
    first = next(number for number, text in enumerate(lines, start=1) if text.startswith(b"["))
    numbers = {"first": first, "middle": (first + len(lines)) // 2, "last": len(lines)}
    return {f"{name}.{which}.txt": number for which, number in numbers.items()}


def whole(name: str, number: int, folder: Path) -> str:
    """Return the session of so many lines of the journal, beside the other logs."""
    of = logs(name)
    write(folder, of.journal[:number], of.marks, of.snapshots)
    return reported(folder)


SIZES = ((80, 24), (40, 20), (200, 60))
MOMENTS = (0.3, 0.7, 1.0)
COLOURS = ("STANDARD", "EIGHT_BIT", "TRUECOLOR")
PRESSED = ("", "?", "m", "mm", "mmmmmm", "l", "lj", " ", "s/+-x\x1b")


def loaded(name: str, folder: Path) -> nncftools.Session:
    """Return the session of a whole recording, with its operations."""
    write(folder, *logs(name))
    reported(folder)
    return nncftools.Session.load(folder / "read.json")


def frames(name: str, folder: Path) -> str:
    """Return what ``replay`` shows of a recording at some moments, in all sizes, and in ASCII."""
    moments = entries.replayed(loaded(name, folder), MOMENTS)
    return "".join(
        _titled(f"{part:.0%} line", [entries.status(run)])
        + _titled(f"{part:.0%} 80x24", entries.frame(run, SCREEN))
        + _titled(f"{part:.0%} 40x20 ASCII", entries.frame(run, SIZES[1], unicode=False))
        for part, run in zip(MOMENTS, moments, strict=True)
    )


def screens(name: str, folder: Path) -> str:
    """Return what ``replay`` shows at one moment, in all sizes and media."""
    *_, run = entries.replayed(loaded(name, folder), MOMENTS[:2])
    shown = ""
    for size in SIZES:
        title = f"{size[0]}x{size[1]}"
        shown += _titled(title, entries.frame(run, size))
        shown += _titled(f"{title} ASCII", entries.frame(run, size, unicode=False))
        if size != SIZES[-1]:
            for colours in COLOURS:
                shown += _titled(f"{title} {colours}", entries.frame(run, size, colours=colours))
    return shown


def followed(name: str, folder: Path) -> str:
    """Return what the live view shows of half a recording, and of all of it, when it began with the first line."""
    of = logs(name)
    numbers = {len(of.journal) // 2, len(of.journal)}
    shown = [reading for reading in live_line_by_line(of, folder, len(of.journal) // 2) if reading.lines in numbers]
    return "".join(_titled(f"{reading.lines} lines", reading.text.splitlines()) for reading in shown)


def pressed(name: str, folder: Path) -> str:
    """Return what ``replay`` shows at one moment after keys were pressed."""
    *_, run = entries.replayed(loaded(name, folder), MOMENTS[:2])
    return "".join(_titled(repr(keys), entries.frame(run, SCREEN, keys=keys)) for keys in PRESSED)


def _titled(title: str, lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in [f"== {title}", *(line.replace("\x1b", "\\e") for line in lines)])


SHOWN = {f"{name}.frames.txt": (frames, name) for name in NAMES} | {
    "operations.screens.txt": (screens, "operations"),
    "stacks.screens.txt": (screens, "stacks"),
    **{f"{name}.live.txt": (followed, name) for name in NAMES},
    "children.keys.txt": (pressed, "children"),
}
"""What ``replay`` and the live view show: the file, how it is made, and of which recording."""


def main() -> None:
    """Write all goldens."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.iterdir():
        path.unlink()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in NAMES:
            readings = [reading for read in (QUICK | LONG).values() for reading in read(logs(name), folder)]
            golden(name).write_text("".join(f"{reading.line}\n" for reading in readings), encoding="utf-8")
            for file, number in in_full(name).items():
                (FOLDER / file).write_text(whole(name, number, folder), encoding="utf-8")
            print(f"{name}: {len(readings):,} readings")
        for file, (draw, name) in SHOWN.items():
            (FOLDER / file).write_text(draw(name, folder), encoding="utf-8")


if __name__ == "__main__":
    main()
