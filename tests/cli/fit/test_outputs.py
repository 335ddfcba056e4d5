from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nncftools.cli import fit_runs, screen
from nncftools.cli.fit_search import Fit
from nncftools.cli.options import SeriesRequest
from nncftools.cli.series import Results
from nncftools.errors import NncfToolsError, UsageError
from nncftools.units import MemoryUnit
from tests.render.fit.searches import FOUND, FREE, search, trial

GIB = MemoryUnit.GiB
NEVER = search(trial(9, ended="exit status 1"), works=None, fast=None)


def results(folder: Path) -> Results:
    """Return a folder of results."""
    return Results(SeriesRequest(output=folder), "fit", "search", "run")


@pytest.mark.parametrize("is_used", [False, True])
def test_refused_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_used: bool) -> None:
    """Where the first run is refused, as by a full disk, no dated folder is left; what a run wrote stays."""
    monkeypatch.chdir(tmp_path)
    of_fit = Results(SeriesRequest(words=["work"]), "fit", "search", "run")
    with pytest.raises(UsageError), of_fit.locked():  # noqa: PT012 — it is within
        (of_fit.folder / "run-1.log").touch()
        if is_used:
            (of_fit.folder / "run-1.json").write_text("{}")
        raise UsageError("No space left on device")

    assert {path.name for path in tmp_path.rglob("run-1.*")} == ({"run-1.log", "run-1.json"} if is_used else set())
    assert (tmp_path / "memory_logs").exists() is is_used


def test_picture_without_memory(tmp_path: Path) -> None:
    """Where matplotlib cannot be loaded because memory is missing, the error says no more than that."""

    def draw(_: Path) -> None:
        raise ImportError("PLEASE READ THIS\n\nOriginal error was: x.so: failed to map segment from shared object")

    with pytest.raises(NncfToolsError, match=r"fit.png is not: not enough memory; if `ulimit -v` limits the address"):
        results(tmp_path).finish(FOUND, fit_runs.make_result(FOUND, GIB)._replace(draw=draw))


FAILED = trial(5.2, ended="out of memory")
PEAK = "The peak without a limit is 7.20 GiB"
DOCKER = "(docker run --memory 5428m)"


@pytest.mark.parametrize(
    "fit, answer",
    [
        (FOUND, f"Smallest memory limit that works: 5.30 GiB {DOCKER}"),
        (search(trial(5.3)), f"Smallest memory limit that works: at most 5.30 GiB {DOCKER}"),
        (
            search(trial(0.002), works=0.002),
            "Smallest memory limit that works: 0.00 GiB (docker run --memory 6m)",
        ),
        (NEVER, "Unknown: the command failed with all limits that were tried, up to 9.00 GiB"),
        (
            search(works=None, fast=None),
            "Needs at least 5.20 GiB, measured in one run without a limit (no limit was tried)",
        ),
    ],
    ids=["found", "no limit failed", "least of docker", "never worked", "only free"],
)
def test_answer(fit: Fit, answer: str) -> None:
    """The first line of text and of Markdown is the smallest limit that works, or why it is not known."""
    shown = fit_runs.make_result(fit, GIB)

    assert screen.plain(shown.text).splitlines()[0] == answer
    assert shown.markdown.splitlines()[0].replace("\\", "") == f"**{answer}**"


@pytest.mark.parametrize(
    "fit, sentences",
    [
        (search(trial(5.3, 1.36), FAILED, fast=5.3), []),
        (search(trial(5.3), trial(6, 1.36), FAILED, fast=5.3), []),
        (
            search(trial(5.3), trial(6, 1.05), FAILED, fast=5.3),
            ["With 5.30 GiB or more, the command is as fast as without a limit, as 2 runs showed"],
        ),
        (search(free=msgspec.structs.replace(FREE, is_short=True)), []),
    ],
    ids=["one run", "one is slow", "fast", "files were dropped without a limit"],
)
def test_speed(fit: Fit, sentences: list[str]) -> None:
    """Full speed is said only if several runs show it; nothing calls a slower run full speed."""
    assert list(fit_runs.write_sentences(fit, GIB)) == [PEAK, *sentences]
    assert ("comfortable more than" in fit_runs.describe_free(fit.unlimited, GIB)) is fit.unlimited.is_short


def test_line_breaks_to_copy() -> None:
    """A script of several lines stays one when its line is copied to a shell; nothing in it acts on the terminal."""
    script = "printf 'a\\t'\necho \x1b"
    line = fit_runs.make_result(msgspec.structs.replace(FOUND, command=["sh", "-c", script]), GIB).to_copy[0]

    assert line.endswith(r"""IMAGE sh -c $'printf \'a\\t\'\necho \x1b'""")


def test_failed_for_another_reason() -> None:
    """Where every run failed, and none for want of memory, a note names the logs and the usual cure."""
    killed = search(trial(9, ended="out of memory"), works=None, fast=None)

    assert list(fit_runs.write_notes(killed)) == []
    assert list(fit_runs.write_notes(NEVER)) == [
        "no run was out of memory: see run-*.log for the errors; --prepare can remove files of earlier runs"
    ]
