"""Take pictures of the live view in tmux, a real terminal: live_view.py [SESSION]; takes half a minute and 600 MiB.

Without a session, ``demo.py`` is recorded with ``--live``, and this recording is watched in terminals of several sizes
and abilities. All screens are captured at the same moment and drawn cell by cell. With a session, its replay is the
picture in README:

    nncf-tools profile -o export.json -- optimum-cli export openvino --model DIR --weight-format int8 OUT
    python docs/pictures/live_view.py export.json
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from terminal import picture

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = pathlib.Path(__file__).parent
TRUE, MANY, FEW = {"COLORTERM": "truecolor"}, {"TERM": "xterm-256color"}, {"TERM": "xterm"}
PLAIN = {"NO_COLOR": "1"}
ASCII = {"PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
DUMB = {"TERM": "dumb"}
TOOL = [sys.executable, "-m", "nncftools"]
RECORD = ["profile", "--live", "--no-stacks", "--max-memory", "1GiB", "-o", "run.json", "--"]
PATH = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
WATCH = ["watch", "run.json"]
SHOWN = "Now Weight Compression"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
LATER_S, PATIENCE_S = 7.0, 120.0
"""Pictures are taken so long after this operation has begun."""


@dataclass(frozen=True, eq=False)
class Still:
    """A picture, and the terminal that it shows."""

    name: str
    size: tuple[int, int]
    abilities: dict[str, str]
    theme: str = "dark"
    keys: tuple[str, ...] = ()
    words: tuple[str, ...] = tuple(WATCH)


LIVE = Still("output", (100, 34), TRUE)
README, SPEED = Still("live_view", (120, 36), TRUE), "4"
STILLS = (
    Still("80x24", (80, 24), TRUE),
    Still("120x40", (120, 40), TRUE),
    Still("200x60", (200, 60), TRUE),
    Still("40x15", (40, 15), TRUE),
    Still("light", (80, 24), TRUE, theme="light"),
    Still("256_light", (80, 24), MANY, theme="light"),
    Still("16", (80, 24), FEW),
    Still("16_light", (80, 24), FEW, theme="light"),
    Still("no_color", (80, 24), PLAIN),
    Still("ascii", (80, 24), ASCII),
    Still("dumb", (120, 10), DUMB),
    Still("list", (80, 24), TRUE, keys=("l",)),
    Still("flat", (80, 24), TRUE, words=("monitor", "--live", "-q", "-o", "flat.json", "--", "sleep", "60")),
    Still("metric", (80, 24), TRUE, keys=("m",)),
)


class Terminals:
    """Terminals of a tmux server of our own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null", "-u"]
        self._folder = folder

    def start(self, still: Still, words: list[str]) -> None:
        """Run a program in a terminal; it stays open when the program has ended."""
        surroundings = {
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(HERE.parents[1]),
            "PATH": PATH,
            **still.abilities,
        }
        without = ["-u", "COLORTERM", "-u", "NO_COLOR"]
        given = ["env", *without, *(f"{name}={value}" for name, value in surroundings.items())]
        columns, rows = still.size
        size = ["-x", str(columns), "-y", str(rows)]
        program = f"{shlex.join([*given, *words])}; sleep 600"
        self._run("new-session", "-d", "-s", still.name, *size, "-c", str(self._folder), program)

    def press(self, still: Still) -> None:
        """Press the keys of a picture."""
        for key in still.keys:
            self._run("send-keys", "-t", still.name, "-l", key)

    def screen(self, still: Still) -> list[str]:
        """Return the lines of a screen, with colours as escape sequences."""
        return self._run("capture-pane", "-e", "-p", "-t", still.name).rstrip("\n").split("\n")

    def close(self) -> None:
        """End everything."""
        self._run("kill-server")

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], check=True, capture_output=True, text=True).stdout


def take_stills() -> None:
    """Write a picture for each kind of terminal into ``live``."""
    with tempfile.TemporaryDirectory() as work:
        terminals = Terminals(pathlib.Path(work))
        shutil.copy(HERE / "demo.py", work)
        try:
            terminals.start(LIVE, [*TOOL, *RECORD, "python", "demo.py"])
            _until(lambda: pathlib.Path(work, "run.journal.jsonl").exists())
            for still in STILLS:
                terminals.start(still, [*TOOL, *still.words])
            _until(lambda: _shows(terminals, LIVE, SHOWN))
            begin_s = time.monotonic()
            for still in STILLS:
                terminals.press(still)
            time.sleep(max(0.0, LATER_S - (time.monotonic() - begin_s)))
            screens = {still: terminals.screen(still) for still in (LIVE, *STILLS)}
        finally:
            terminals.close()
    for still, lines in screens.items():
        _save(HERE / "live" / f"{still.name}.png", still, lines)


def take_replay(session: pathlib.Path) -> None:
    """Write the picture in README: the replay of a session while weights are compressed."""
    with tempfile.TemporaryDirectory() as work:
        terminals = Terminals(pathlib.Path(work))
        try:
            terminals.start(README, [*TOOL, "replay", str(session.resolve()), "--speed", SPEED])
            _until(lambda: _shows(terminals, README, SHOWN))
            time.sleep(LATER_S / 4)
            lines = terminals.screen(README)
        finally:
            terminals.close()
    _save(HERE / f"{README.name}.png", README, lines)


def _shows(terminals: Terminals, still: Still, text: str) -> bool:
    return text in _COLOURS.sub("", "".join(terminals.screen(still)))


def _save(path: pathlib.Path, still: Still, lines: list[str]) -> None:
    empty = next((row for row, line in enumerate(lines) if line.strip()), 0)
    path.parent.mkdir(exist_ok=True)
    picture(lines[empty:], (still.size[0], len(lines) - empty), still.theme).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def _until(is_so: Callable[[], object]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > end_s:
            sys.exit("waited in vain")
        time.sleep(0.2)


if __name__ == "__main__":
    if sys.argv[1:]:
        take_replay(pathlib.Path(sys.argv[1]))
    else:
        take_stills()
