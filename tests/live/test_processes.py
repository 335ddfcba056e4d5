from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from nncftools.live.figures import ViewSettings
from nncftools.live.layout import process_table, short_commands
from nncftools.live.run import LiveProcess
from nncftools.render.terminal_plot import TerminalStyle, render_rows
from tests.live.made_up import MIB

SEEN = [
    LiveProcess(100, "python3", 300 * MIB, ["python3", "/opt/train.py", "--rank", "0"], cpu=0.5),
    LiveProcess(101, "python3", 100 * MIB, ["python3", "/opt/train.py", "--rank", "1"], cpu=1.934),
    LiveProcess(102, "sh", 2 * MIB, ["sh", "-c", "tee log"]),
]


def shown(width: int = 80, seen: list[LiveProcess] = SEEN) -> list[str]:
    """Return the rows of processes as text."""
    table = process_table(seen, 0, len(seen), ViewSettings(), width=width)
    return ["".join(part.text for part in row) for row in render_rows(table, width, None, TerminalStyle())]


def test_what_a_row_tells() -> None:
    """PID, what tells the command apart, CPU and RSS with their units, and a bar of the share of all memory."""
    first, second, third = shown()

    assert first.split() == [
        "100",
        "train.py",
        "--rank",
        "0",
        "0.50",
        "cores",
        "300.0",
        "MiB",
        "━" * 11 + "╸" + "━" * 4,
    ]
    assert second.split()[1:7] == ["train.py", "--rank", "1", "1.93", "cores", "100.0"]
    assert third.split() == ["102", "sh", "-c", "tee", "log", "2.0", "MiB", "━" * 16]


@pytest.mark.parametrize("width", [30, 40, 56, 80, 200])
def test_width(width: int) -> None:
    """Rows have the width that there is."""
    assert {len(row) for row in shown(width)} == {width}


def test_no_column_without_figures() -> None:
    """Where CPU is unknown for all, as in a replay, there is no column for it."""
    unknown = [replace(process, cpu=None) for process in SEEN]

    assert not any("cores" in line for line in shown(seen=unknown))


SPAWN = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=8, pipe_handle={})"


def told(*commands: str | list[str]) -> list[str]:
    """Return the short texts of commands."""
    given = [shlex.split(command) if isinstance(command, str) else command for command in commands]
    return short_commands(given)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/usr/bin/python3.11 -u /home/ada/train.py --lr 1", "train.py --lr 1"),
        ("python3 -m torch.distributed.run train.py", "python3 -m torch.distributed.run train.py"),
        ("/opt/venv/bin/python /opt/venv/bin/optimum-cli export", "optimum-cli export"),
        ("/usr/lib/cc1plus -O2", "cc1plus -O2"),
        ("sh -c 'make all'", "sh -c make all"),
        ("/", "/"),
        ("", ""),
    ],
)
def test_program(command: str, expected: str) -> None:
    """Folders and the interpreter of a script say nothing."""
    assert told(command) == [expected]


def test_ranks() -> None:
    """Of processes of one program, a long beginning that all have is cut; what differs, and what follows, stays."""
    ranks = (f"python train.py --config big.yaml --data /data --rank {rank} --lr 1" for rank in range(2))

    assert told(*ranks) == ["train.py --config bi… --rank 0 --lr 1", "train.py --config bi… --rank 1 --lr 1"]


def test_workers_of_multiprocessing() -> None:
    """A short beginning stays, and so does a command that is like no other one."""
    workers = [["/usr/bin/python3", "-c", SPAWN.format(number), "--multiprocessing-fork"] for number in (10, 14)]
    tracker = ["/usr/bin/python3", "-c", "from multiprocessing.resource_tracker import main;main(7)"]

    assert told(*workers, tracker) == [
        "python3 -c from mult…handle=10) --multiprocessing-fork",
        "python3 -c from mult…handle=14) --multiprocessing-fork",
        "python3 -c from multiprocessing.resource_tracker import main;main(7)",
    ]


def test_copies() -> None:
    """Processes that run the same command have all of it."""
    assert told("work --all day", "work --all day") == ["work --all day", "work --all day"]


def test_different_programs() -> None:
    """Words are only left out between commands of one program."""
    assert told("cc -O2 a.c", "ld -O2 a.o") == ["cc -O2 a.c", "ld -O2 a.o"]


def test_different_lengths() -> None:
    """A command may be the beginning of another one."""
    assert told("make", "make all", "make all tests") == ["make", "make all", "make all tests"]


def test_hostile() -> None:
    """Control characters are harmless, and very long commands short."""
    found = told(["work", "\x1b[2J", *["x" * 10_000] * 1000])

    assert "\x1b" not in found[0]
    assert len(found[0]) <= 200


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_long_command_does_not_touch_its_memory(width: int) -> None:
    """The widest figure, a high-water mark of a replay, keeps a blank before it."""
    command = ["optimum-cli", "export", "openvino", "--model", "/models/" + "x" * 120]
    (row,) = shown(width, [LiveProcess(9, "optimum-cli", command=command, most=1299 * MIB)])

    assert " ≤1,299.0 MiB" in row
