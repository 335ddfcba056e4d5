from __future__ import annotations

import msgspec

from nncftools.cli.fit import outputs
from nncftools.cli.fit.search import Fit
from nncftools.units import MemoryUnit
from tests.render.fit.searches import FOUND, FREE, search, trial

GIB = MemoryUnit.GiB


def said(fit: Fit) -> str:
    """Return the result in words."""
    return outputs.result_sentence(fit, GIB)


def test_sentence() -> None:
    """Both limits and the free peak are one sentence."""
    assert said(FOUND) == "works from 5.30 GiB (2.1 × slower); full speed from 5.90 GiB; its free peak is 7.20 GiB"


def test_one_limit() -> None:
    """A smallest limit that is at full speed is named once."""
    assert said(search(trial(5.3), fast=5.3)) == "works from 5.30 GiB, at full speed; its free peak is 7.20 GiB"


def test_never_worked() -> None:
    """That no limit was enough is said, with the largest that was tried."""
    fit = search(trial(9, ended="exit status 1"), works=None, fast=None)

    assert said(fit).startswith("worked with no limit that was tried, up to 9.00 GiB; ")
    assert outputs.limit_commands(fit) == []


def test_never_fast() -> None:
    """That full speed was not reached is said."""
    fit = search(trial(5.3, 3.0), trial(9, 2.0), fast=None)

    assert "full speed was not reached with any limit that was tried, up to 9.00 GiB" in said(fit)


def test_only_free() -> None:
    """A free run alone says what is needed, and that nothing was tried."""
    assert said(search(works=None, fast=None)) == (
        "needs at least 5.20 GiB; 7.00 GiB to keep its files in memory; its free peak is 7.20 GiB (no limit was tried)"
    )


def test_free_run() -> None:
    """The free run is one line."""
    assert outputs.of_free(FREE, GIB) == (
        "without a limit, worked, 20.00 s, floor 5.20 GiB, comfortable 7.00 GiB, peak 7.20 GiB"
    )


def test_runs() -> None:
    """Each run is one line, with how much slower it was if it worked, and a warm cache."""
    assert outputs.of_trial(trial(5.3, 2.1), GIB) == "5.30 GiB, worked, 42.00 s, 2.1 × slower"
    assert outputs.of_trial(trial(5.3, is_warm=True), GIB) == (
        "5.30 GiB, worked, 20.00 s, as fast as without a limit, warm cache"
    )
    assert outputs.of_trial(trial(5.3, 0.5, "out of memory"), GIB) == "5.30 GiB, out of memory, 10.00 s"


def test_commands() -> None:
    """Limits of the commands are whole MiB, rounded up, and swap is as it was in the runs."""
    assert outputs.limit_commands(FOUND) == [
        "docker run --memory 5428m --memory-swap 5428m IMAGE python 'export $x.py'",
        "systemd-run --scope -p MemoryMax=5428M -p MemorySwapMax=0M python 'export $x.py'",
    ]
    with_swap = outputs.limit_commands(search(trial(5.3), swap=1 << 30))

    assert "--memory 5428m --memory-swap 6452m" in with_swap[0]
    assert "MemorySwapMax=1024M" in with_swap[1]


def test_line_breaks_to_copy() -> None:
    """A script of several lines stays one when its line is copied to a shell; nothing in it acts on the terminal."""
    script = "printf 'a\\t'\necho \x1b"
    line = outputs.limit_commands(msgspec.structs.replace(FOUND, command=["sh", "-c", script]))[0]

    assert line.endswith(r"""IMAGE sh -c $'printf \'a\\t\'\necho \x1b'""")


def test_least_of_docker() -> None:
    """Docker refuses limits below 6 MiB; systemd does not."""
    docker, systemd = outputs.limit_commands(search(trial(0.002), works=0.002, swap=2**20))

    assert docker.startswith("docker run --memory 6m --memory-swap 7m ")
    assert "MemoryMax=3M -p MemorySwapMax=1M" in systemd


def test_not_finished_and_never_worked() -> None:
    """Where nothing worked yet, more runs try larger limits."""
    fit = search(trial(5.3, ended="out of memory"), works=None, fast=None, is_finished=False)

    assert "with more runs, a larger limit may be enough" in next(outputs.notes(fit))


def test_notes() -> None:
    """A search that was not finished and a warm cache are noted."""
    assert list(outputs.notes(FOUND)) == []
    assert list(outputs.notes(search(trial(5.3, is_warm=True), trial(6), is_finished=False))) == [
        "the search is not finished: with more runs, the limits may be smaller",
        "warm cache: 1 of 2 runs found files in memory; without, they may need more",
    ]
