"""How each command is run, which moments it has, and what it is without nncf-tools."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
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
"""
"""Lets a program wait at one of its own audit events until it may pass; signals arrive in the meantime."""
_COMMAND_LINE = "from nncftools.__main__ import main; main()"
_SCRIPT = "import runpy; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
_PYTEST = "import pytest; sys.exit(pytest.main())"
OUT = "up/out"
"""The folder of all outputs, in the working folder."""
DATED = tuple(f"{OUT}/2026-11-0{day}_12-00-00_export/session.json" for day in (1, 2))
"""Two recordings in folders of their own, for the commands that look at folders: the older one first."""


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
    line: str
    """Its words after ``nncf-tools``, with spaces between."""
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
    program: str = _COMMAND_LINE
    """The statements of Python that run it."""
    keys: bytes = b""
    """The keys that are pressed until it ends."""

    @property
    def is_bare(self) -> bool:
        """Whether status and output are those of the burner."""
        return self.status == BURNER_STATUS

    @property
    def records(self) -> bool:
        """Whether it starts the burner; ``watch`` follows another command that does."""
        return COMMAND in self.processes and bool(self.outputs)

    @property
    def waits(self) -> bool:
        """Whether it goes on in the middle only when the run lets it."""
        return SAMPLER in self.processes and bool(self.outputs)


def launch(command: Command, moment: str, folder: Path) -> list[str]:
    """Return the argument list that runs a command up to a moment, and on when ``folder/passed`` exists."""
    gate = command.gates.get(moment, NOWHERE)
    line = command.line.format(folder=folder, python=sys.executable, burner=FOLDER / "burner.py")
    return [sys.executable, "-c", _GATE + command.program, *gate, str(folder), *line.split()]


def burner(folder: Path, status: int = BURNER_STATUS) -> list[str]:
    """Return the argument list of the burner alone."""
    return [sys.executable, str(FOLDER / "burner.py"), str(folder), str(status)]


_BURNER = "{python} {burner} {folder}"
_END = Gate("open", after="ended")
_RECORDERS = (COMMAND_LINE, SAMPLER, COMMAND)


def _recording(folder: str) -> tuple[str, ...]:
    return tuple(f"{folder}/run{ending}" for ending in (".json", ".journal.jsonl", ".marks.jsonl", ".snapshots.jsonl"))


def _reader(name: str, line: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Command:
    gates = {
        "start": Gate("open", Path(inputs[0]).name),
        "middle": Gate("open", ".data.md") if len(outputs) > 1 else Gate("import", "matplotlib"),
        "saving": Gate("os.rename", Path(outputs[0]).name),
    }
    return Command(name, f"{name} {line}", gates, inputs, outputs)


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "monitor",
            f"monitor -i 0.05 -o {OUT}/run.json -- {_BURNER} {BURNER_STATUS}",
            {"start": Gate("open", "run.journal.jsonl"), "end": _END, "saving": Gate("os.rename", "run.json")},
            outputs=_recording(OUT),
            processes=_RECORDERS,
            status=BURNER_STATUS,
        ),
        Command(
            "profile",
            f"profile --live -i 0.05 --mark-call burner:step -o {OUT}/run.json -- {_BURNER} {BURNER_STATUS}",
            {"start": Gate("open", "run.journal.jsonl"), "end": _END, "saving": Gate("os.rename", "run.json")},
            outputs=_recording(OUT),
            processes=(COMMAND_LINE, SAMPLER, HELPER, COMMAND),
            status=BURNER_STATUS,
            marks=True,
        ),
        Command(
            "fit",
            f"fit -i 0.05 --runs 2 -o {OUT}/fit -- {_BURNER} 0",
            {"start": Gate("open", "run-1.log"), "end": _END, "saving": Gate("os.rename", "fit.json")},
            outputs=tuple(
                f"{OUT}/fit/{name}" for name in ("fit.json", "fit.md", "run-1.log", "run-2.log", "run-1.journal.jsonl")
            ),
            processes=_RECORDERS,
        ),
        Command(
            "sweep",
            "sweep --model in/model --text in/text.txt --grid in/grid.toml "
            f"--output {OUT}/results.csv --python {{folder}}/python",
            {"start": Gate("open", "evaluate.log"), "end": _END, "saving": Gate("os.rename", "results.csv")},
            inputs=("in/text.txt", "in/grid.toml"),
            outputs=(f"{OUT}/results.csv", f"{OUT}/results.md", f"{OUT}/results.png", f"{OUT}/results.sweep"),
            processes=(COMMAND_LINE, SAMPLER, HELPER, COMMAND),
        ),
        _reader("report", f"in/measured.json --plot {OUT}/report.png", ("in/measured.json",), (f"{OUT}/report.png",)),
        _reader(
            "compare",
            f"in/measured.json in/compared.json --plot {OUT}/both.png",
            ("in/measured.json", "in/compared.json"),
            (f"{OUT}/both.png",),
        ),
        _reader(
            "viz-compression",
            f"-i in/data.csv -o {OUT} --metric standard",
            ("in/data.csv",),
            (f"{OUT}/data.png", f"{OUT}/data.md"),
        ),
        Command(
            "watch",
            f"watch {OUT}/run.journal.jsonl",
            {"start": Gate("open", "run.journal.jsonl"), "end": _END},
            inputs=_recording(OUT)[1:],
            processes=_RECORDERS,
            moments=("before", "start", "middle", "end"),
            prints=False,
        ),
        Command(
            "replay",
            "replay in/measured.json",
            {"start": Gate("open", "measured.json")},
            inputs=("in/measured.json",),
            moments=("before", "start", "middle"),
            prints=False,
            keys=b"q",
        ),
        Command(
            "forecast",
            f"forecast -i 0.05 --no-output -o {OUT}/forecast -- {_BURNER} 0 in/layers",
            {"start": Gate("open", "slice-1.log"), "end": _END, "saving": Gate("os.rename", "forecast.json")},
            outputs=tuple(f"{OUT}/forecast/{name}" for name in ("forecast.json", "forecast.md", "slice-1.log")),
            status=1,  # a forecast without operations is not known
            processes=_RECORDERS,
        ),
        Command(
            "list",
            f"list {OUT}",
            {"start": Gate("open", "session.json")},
            inputs=DATED,
            moments=("before", "start"),
        ),
        Command(
            "prune",
            f"prune --keep 1 --yes {OUT}",
            {"start": Gate("open", "session.json"), "saving": Gate("os.remove", "session.json")},
            inputs=DATED,
            moments=("before", "start", "saving"),
        ),
        Command(
            "pytest",
            f"-q -p no:cacheprovider --memory --memory-output {OUT}/run.json in/test_step.py",
            {"start": Gate("import", "nncftools.testing.meter"), "end": _END, "saving": Gate("os.rename", "run.json")},
            outputs=(f"{OUT}/run.json",),
            processes=(COMMAND_LINE, SAMPLER),
            prints=False,
            program=_PYTEST,
        ),
        Command(
            "python",
            f"{FOLDER}/writers.py in/measured.json {OUT} {{folder}}",
            {"start": Gate("open", "measured.json"), "end": _END, "saving": Gate("os.rename", "copy.json")},
            inputs=("in/measured.json",),
            outputs=tuple(f"{OUT}/{name}" for name in ("copy.json", "rss_memory_usage.txt", "rss_memory_usage.png")),
            processes=(COMMAND_LINE, SAMPLER),
            prints=False,
            program=_SCRIPT,
        ),
    )
}
