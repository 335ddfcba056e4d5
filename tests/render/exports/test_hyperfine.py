from __future__ import annotations

import json
import pathlib
import shlex
from typing import Any

import pytest

from nncftools.render.benchmarks import Timing, report, result, timing
from nncftools.render.view import View
from nncftools.session.model import Exit
from nncftools.session.session import Session
from tests.conftest import Run, burner
from tests.made_up import MIB, session

REAL = pathlib.Path(__file__).parents[2] / "data" / "hyperfine_1.15.json"
"""What hyperfine 1.15 wrote of two commands, three runs each."""
RUN = Timing(duration_s=1.0, user_s=0.5, system_s=0.25, peak_rss=MIB, exit_code=0)


def only_result(of: Session, **view: Any) -> dict[str, Any]:  # noqa: ANN401 — any field of a view
    """Return the only result of a session's export."""
    document = json.loads(report(of, View(metrics=["rss"], **view)))
    (found,) = document["results"]
    assert list(document) == ["results"]
    return dict(found)


def test_one_run() -> None:
    """A session is one command with one run, of which there is no deviation."""
    assert only_result(session()) == {
        "command": "work --fast",
        "mean": 1.0,
        "stddev": None,
        "median": 1.0,
        "user": 0.5,
        "system": 0.25,
        "min": 1.0,
        "max": 1.0,
        "times": [1.0],
        "memory_usage_byte": [300 * MIB],
        "exit_codes": [0],
    }


def test_title() -> None:
    """The title replaces the command, as with ``hyperfine --command-name``."""
    assert only_result(session(), title="int4")["command"] == "int4"


def test_the_shape_of_a_real_export() -> None:
    """Keys have hyperfine's names, order and types; a later version added memory."""
    ours = result("sleep 0.1", [RUN, RUN, RUN])
    del ours["memory_usage_byte"]
    for theirs in json.loads(REAL.read_text(encoding="utf-8"))["results"]:
        assert list(ours) == list(theirs)
        assert {key: type(value) for key, value in ours.items()} == {key: type(value) for key, value in theirs.items()}


def test_statistics_of_a_real_export() -> None:
    """Mean, deviation, median and bounds are those that hyperfine made of the same times."""
    for theirs in json.loads(REAL.read_text(encoding="utf-8"))["results"]:
        ours = result(theirs["command"], [Timing(time_s, 0, 0, 0, 0) for time_s in theirs["times"]])

        for key in ("mean", "stddev", "median", "min", "max"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-12)


@pytest.mark.parametrize(
    ("exit_", "code"), [(Exit(code=3), 3), (Exit(signal=9), 137), (None, None)], ids=["code", "signal", "unknown"]
)
def test_exit_codes(exit_: Exit | None, code: int | None) -> None:
    """A signal is 128 and its number, as hyperfine has it; unknown is null."""
    assert timing(session(exit=exit_)).exit_code == code


def test_unknown() -> None:
    """Unknown figures are null or missing, never 0. A mean of only some of the runs is not given."""
    of = session({"pss": [1, 2]}, totals={"cpu": 1.0}, exit=None)
    found = only_result(of)

    assert (found["user"], found["system"], found["exit_codes"]) == (None, None, [None])
    assert "memory_usage_byte" not in found
    partly = result("work", [RUN, timing(of)])
    assert partly["user"] is None
    assert "memory_usage_byte" not in partly


def test_memory_from_zero() -> None:
    """Memory above a first sample that is not known is no peak."""
    assert "memory_usage_byte" not in only_result(session(from_zero=True))


def test_on_the_command_line(nncf_tools: Run) -> None:
    """A real recording is exported in hyperfine's format."""
    script = f"{shlex.join(burner('copies', 'figures', 1, 1, 'rss'))}; exit 3"  # lives until it was sampled
    nncf_tools("monitor", "-q", "--no-plot", "-i", 0.02, "-o", "run.json", "--", "sh", "-c", script)
    found = json.loads(nncf_tools("report", "run.json", "--format", "hyperfine").stdout)["results"][0]

    assert found["command"] == shlex.join(["sh", "-c", script])
    assert found["exit_codes"] == [3]
    assert found["memory_usage_byte"][0] > 100_000
