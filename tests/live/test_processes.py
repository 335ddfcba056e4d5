from __future__ import annotations

import shlex

import pytest

from nncftools.live.figures import ViewSettings
from nncftools.live.layout import process_table, short_commands
from nncftools.live.run import LiveProcess
from nncftools.render.terminal_plot import TerminalStyle, render_rows
from tests.live.made_up import MIB

SPAWN = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=8, pipe_handle={})"


def test_cpu() -> None:
    """CPU is shown where it is known; the bar is the share of all memory."""
    seen = [LiveProcess(100, "python3", 300 * MIB, ["python3", "train.py"], cpu=1.934), LiveProcess(102, "sh", 2 * MIB)]
    table = process_table(seen, 0, 2, ViewSettings(), width=60)
    rows = ["".join(part.text for part in row) for row in render_rows(table, 60, None, TerminalStyle())]

    assert [row.split()[:-1] for row in rows] == [
        ["100", "train.py", "1.93", "cores", "300.0", "MiB"],
        ["102", "sh", "2.0", "MiB"],
    ]


def told(*commands: str) -> list[str]:
    """Return the short texts of commands."""
    return short_commands([shlex.split(command) for command in commands])


@pytest.mark.parametrize(
    "commands, expected",
    [
        (
            [f"python train.py --config big.yaml --data /data --rank {rank} --lr 1" for rank in (0, 1)],
            ["train.py --config bi… --rank 0 --lr 1", "train.py --config bi… --rank 1 --lr 1"],
        ),
        (
            [
                f"python3 -c '{SPAWN.format(10)}' --multiprocessing-fork",
                f"python3 -c '{SPAWN.format(14)}' --multiprocessing-fork",
                "python3 -c 'from multiprocessing.resource_tracker import main;main(7)'",
            ],
            [
                "python3 -c from mult…handle=10) --multiprocessing-fork",
                "python3 -c from mult…handle=14) --multiprocessing-fork",
                "python3 -c from multiprocessing.resource_tracker import main;main(7)",
            ],
        ),
        (
            [
                *["/usr/bin/python3.11 -u /home/ada/train.py --lr 1", "python3 -m torch.distributed.run train.py"],
                *["/opt/venv/bin/python /opt/venv/bin/optimum-cli export", "/usr/lib/cc1plus -O2", "sh -c 'make all'"],
                *["/", ""],
            ],
            [
                *["train.py --lr 1", "python3 -m torch.distributed.run train.py", "optimum-cli export"],
                *["cc1plus -O2", "sh -c make all", "/", ""],
            ],
        ),
        (["work --all day", "work --all day"], ["work --all day", "work --all day"]),
        (["cc -O2 a.c", "ld -O2 a.o"], ["cc -O2 a.c", "ld -O2 a.o"]),
        (["make", "make all", "make all tests"], ["make", "make all", "make all tests"]),
    ],
    ids=[
        "ranks",
        "workers of multiprocessing",
        "folders and interpreters say nothing",
        "copies",
        "different programs",
        "different lengths",
    ],
)
def test_several(commands: list[str], expected: list[str]) -> None:
    """A long beginning that all processes of one program have is cut; the different words, and the rest, stay."""
    assert told(*commands) == expected


def test_hostile() -> None:
    """Control characters are harmless, and very long commands short."""
    found = short_commands([["work", "\x1b[2J", *["x" * 10_000] * 1000]])

    assert "\x1b" not in found[0]
    assert len(found[0]) <= 200
