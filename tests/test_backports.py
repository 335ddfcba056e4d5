from __future__ import annotations

import datetime as dt
import subprocess
from pathlib import Path

import pytest

from nncftools.backports import StrEnum, moment_of, running, toml_of

SEVEN = dt.datetime(2026, 11, 21, 7, 0, 0, 500_000, dt.timezone.utc)


class Colour(StrEnum):
    """An enumeration of texts."""

    RED = "red"


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T07:00:00.500000+00:00",
        "2026-11-21T07:00:00.5Z",
        "2026-11-21 07:00:00,500000000+00",
        "2026-11-21T08:00:00.50+0100",
    ],
)
def test_moments(text: str) -> None:
    """A time may have any number of decimals, and its zone may be written in each of the usual ways."""
    assert moment_of(text) == SEVEN


def test_moment_without_zone() -> None:
    """A time without a zone stays without one."""
    assert moment_of("2026-11-21T07:00:00.5") == SEVEN.replace(tzinfo=None)


@pytest.mark.parametrize("text", ["", "noon", "2026-13-21T07:00:00Z", "2026-11-21T07:00:00.5 Z"])
def test_no_moment(text: str) -> None:
    """A text that is not a time is an error."""
    with pytest.raises(ValueError, match=r"isoformat|month"):
        moment_of(text)


def test_members_are_texts() -> None:
    """A member of an enumeration of texts is written as its text, also with a width."""
    assert (str(Colour.RED), f"{Colour.RED:>5}", Colour.RED) == ("red", "  red", "red")


def test_toml() -> None:
    """TOML is read; what is not TOML is a ValueError that says where."""
    assert toml_of("[tool.x]\ny = [1]") == {"tool": {"x": {"y": [1]}}}
    with pytest.raises(ValueError, match=r"\("):
        toml_of("[tool")


@pytest.mark.process
def test_module_runs_without_the_working_folder(tmp_path: Path) -> None:
    """A module gets its arguments, and what lies in the working folder is not imported."""
    (tmp_path / "itertools.py").write_text("raise SystemExit('imported')")
    (tmp_path / "timeit.py").write_text("raise SystemExit('run')")
    words = [*running("timeit"), "-n", "1", "-r", "1", "print('timed')"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("timed\n")
