"""How each command is run, which moments it has, and what it is without nncf-tools."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).parent
ROOT = FOLDER.parents[1]
MOMENTS = ("before", "start", "middle", "end", "saving")
BURNER_STATUS = 7
COMMAND_LINE, SAMPLER, HELPER, COMMAND = "command line", "sampler", "helper", "command"
_GATE = """
import os, sys, time
sys.path[:] = filter(None, sys.path)
event, text, after, folder = sys.argv[1:5]
sys.argv[:] = ["nncf-tools", *sys.argv[5:]]
own, waits = os.getpid(), bool(event)

def hold(name, words):
    global waits
    if waits and name == event and os.getpid() == own and str(words[name == "os.rename"]).endswith(text):
        if os.path.exists(folder + "/" + after):
            waits = False
            with open(folder + "/.reached", "w") as file:
                above, name = os.path.split(str(words[0]))
                file.write(os.path.join(os.path.realpath(above) if above.startswith("/proc/self/fd") else above, name))
            os.rename(folder + "/.reached", folder + "/reached")
            while not os.path.exists(folder + "/passed"):
                time.sleep(0.005)

sys.addaudithook(hold)
from nncftools.__main__ import main
main()
"""
"""Runs nncf-tools, which waits at one of its own audit events until it may pass; signals arrive meanwhile."""


class Gate(NamedTuple):
    """An audit event of Python at which a command line waits: what it opens, imports or renames ends with a text."""

    event: str
    text: str = ""
    after: str = "."
    """The file that the burner must have made before."""


NOWHERE = Gate("")


@dataclass(frozen=True)
class Command:
    """One subcommand: its words, and what of it can be seen."""

    name: str
    words: tuple[str, ...]
    gates: Mapping[str, Gate]
    """Where the command line is at a moment; the others are seen from outside."""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    """The files that it reads and writes, in the working folder."""
    processes: tuple[str, ...] = (COMMAND_LINE,)
    moments: tuple[str, ...] = MOMENTS
    status: int = 0
    """The exit status without a fault."""
    prints: bool = True
    """Whether its standard output is a file; else the terminal."""
    marks: bool = False
    """Whether calls of the burner are marked."""

    @property
    def is_bare(self) -> bool:
        """Whether status and output are those of the burner."""
        return self.status == BURNER_STATUS

    @property
    def records(self) -> bool:
        """Whether it starts the burner; ``watch`` follows another command that does."""
        return COMMAND in self.processes and bool(self.outputs)


def launch(command: Command, moment: str, folder: pathlib.Path) -> list[str]:
    """Return the argument list that runs a command up to a moment, and on when ``folder/passed`` exists."""
    gate = command.gates.get(moment, NOWHERE)
    words = [word.format(folder=folder, python=sys.executable, burner=FOLDER / "burner.py") for word in command.words]
    return [sys.executable, "-c", _GATE, *gate, str(folder), *words]


def burner(folder: pathlib.Path, status: int = BURNER_STATUS) -> list[str]:
    """Return the argument list of the burner alone."""
    return [sys.executable, str(FOLDER / "burner.py"), str(folder), str(status)]


_BURNER = ("{python}", "{burner}", "{folder}")
_END = Gate("open", after="ended")
_RECORDERS = (COMMAND_LINE, SAMPLER, COMMAND)


def _recording(folder: str) -> tuple[str, ...]:
    return tuple(f"{folder}/run{ending}" for ending in (".json", ".journal.jsonl", ".marks.jsonl", ".snapshots.jsonl"))


def _reader(name: str, words: tuple[str, ...], inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Command:
    gates = {
        "start": Gate("open", pathlib.Path(inputs[0]).name),
        "middle": Gate("open", ".data.md") if len(outputs) > 1 else Gate("import", "matplotlib"),
        "saving": Gate("os.rename", pathlib.Path(outputs[0]).name),
    }
    return Command(name, (name, *words), gates, inputs, outputs)


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "monitor",
            ("monitor", "-i", "0.05", "-o", "out/run.json", "--", *_BURNER, str(BURNER_STATUS)),
            {"start": Gate("open", "run.journal.jsonl"), "end": _END, "saving": Gate("os.rename", "run.json")},
            outputs=_recording("out"),
            processes=_RECORDERS,
            status=BURNER_STATUS,
        ),
        Command(
            "profile",
            (
                *("profile", "--live", "-i", "0.05", "--mark-call", "burner:step", "-o", "out/run.json", "--"),
                *(*_BURNER, str(BURNER_STATUS)),
            ),
            {"start": Gate("open", "run.journal.jsonl"), "end": _END, "saving": Gate("os.rename", "run.json")},
            outputs=_recording("out"),
            processes=(COMMAND_LINE, SAMPLER, HELPER, COMMAND),
            status=BURNER_STATUS,
            marks=True,
        ),
        Command(
            "fit",
            ("fit", "-i", "0.05", "--runs", "2", "-o", "out/fit", "--", *_BURNER, "0"),
            {"start": Gate("open", "run-1.log"), "end": _END, "saving": Gate("os.rename", "fit.json")},
            outputs=tuple(
                f"out/fit/{name}" for name in ("fit.json", "fit.md", "run-1.log", "run-2.log", "run-1.journal.jsonl")
            ),
            processes=_RECORDERS,
        ),
        Command(
            "sweep",
            (
                *("sweep", "--model", "in/model", "--text", "in/text.txt", "--grid", "in/grid.toml"),
                *("--output", "out/results.csv", "--python", "{folder}/python"),
            ),
            {"start": Gate("open", "evaluate.log"), "end": _END, "saving": Gate("os.rename", "results.csv")},
            inputs=("in/text.txt", "in/grid.toml"),
            outputs=("out/results.csv", "out/results.md", "out/results.png", "out/results.sweep"),
            processes=(COMMAND_LINE, SAMPLER, HELPER, COMMAND),
        ),
        _reader("report", ("in/measured.json", "--plot", "out/report.png"), ("in/measured.json",), ("out/report.png",)),
        _reader(
            "compare",
            ("in/measured.json", "in/compared.json", "--plot", "out/both.png"),
            ("in/measured.json", "in/compared.json"),
            ("out/both.png",),
        ),
        _reader(
            "viz-compression",
            ("-i", "in/data.csv", "-o", "out", "--metric", "standard"),
            ("in/data.csv",),
            ("out/data.png", "out/data.md"),
        ),
        Command(
            "watch",
            ("watch", "out/run.journal.jsonl"),
            {"start": Gate("open", "run.journal.jsonl"), "end": _END},
            inputs=_recording("out")[1:],
            processes=_RECORDERS,
            moments=("before", "start", "middle", "end"),
            prints=False,
        ),
    )
}
