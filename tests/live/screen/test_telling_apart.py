from __future__ import annotations

import shlex

import pytest

from nncftools.live.processes import short_commands

SPAWN = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=8, pipe_handle={})"


def told(*commands: str | list[str]) -> list[str]:
    """Return the short texts of commands."""
    given = [shlex.split(command) if isinstance(command, str) else command for command in commands]
    return list(short_commands(tuple((number, tuple(words)) for number, words in enumerate(given))).values())


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/usr/bin/python3.11 -u /home/ada/train.py --lr 1", "train.py --lr 1"),
        ("python3 -m torch.distributed.run train.py", "python -m torch.distributed.run train.py"),
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
    """Of processes of one program, the words that differ are shown, with the option before them."""
    ranks = (f"python train.py --config big.yaml --data /data --rank {rank} --lr 1" for rank in range(2))

    assert told(*ranks) == ["train.py … --rank 0", "train.py … --rank 1"]


def test_options_with_a_sign() -> None:
    """A word that differs stands for itself."""
    assert told("a.py --seed=1 x", "a.py --seed=2 x") == ["a.py --seed=1", "a.py --seed=2"]


def test_workers_of_multiprocessing() -> None:
    """Long words are cut where they are the same, but not where they differ."""
    workers = [["/usr/bin/python3", "-c", SPAWN.format(number), "--multiprocessing-fork"] for number in (10, 14)]
    tracker = ["/usr/bin/python3", "-c", "from multiprocessing.resource_tracker import main;main(7)"]

    assert told(*workers, tracker) == [
        "python -c from multiprocessing…handle=10)",
        "python -c from multiprocessing…handle=14)",
        "python -c from multiprocessing.resource_tracker import main;main(7)",
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
