"""The session as programs and notebooks see it."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

import nncftools
from nncftools import Profiler, Session
from nncftools.errors import NncfToolsError
from nncftools.render.text import markdown_report as report
from nncftools.session import model
from tests.made_up import mib, session
from tests.render.golden import run


def made() -> Session:
    """Return the session of the golden outputs as users get it."""
    return Session.of(run())


def test_public_names_are_listed() -> None:
    """Completion after ``nncftools.`` offers the public names, and each of them exists."""
    names = dir(nncftools)

    assert names == sorted([*nncftools.__all__, "__version__"])
    assert all(getattr(nncftools, name) is not None for name in names)


def test_session_prints_in_five_lines() -> None:
    """Printing a session says in five short lines what ran, how, its peak, its cost, and what was recorded."""
    lines = repr(made()).splitlines()

    assert [line.split()[0] for line in lines] == ["Session", "run", "peak", "used", "holds"]
    assert lines[2] == "  peak   2,600 MiB, 7.0 s after the start, during Export"
    assert max(map(len, lines)) <= 100


@pytest.mark.long
def test_table_of_samples() -> None:
    """Bytes and counts are nullable integers, seconds and unknown metrics floats; what is unknown is no number."""
    of = {"rss": mib(1, None), "cpu_user": [0.25, None], "processes": [1, 2], "gpu": [0.5, 1.0]}
    table = Session.of(session(of)).to_pandas()

    assert dict(table.dtypes.astype(str)) == {
        "rss": "Int64",
        "cpu_user": "float64",
        "processes": "Int64",
        "gpu": "float64",
    }
    assert (table["rss"].sum(), table["rss"].isna().tolist()) == (2**20, [False, True])
    assert table["cpu_user"].isna().tolist() == [False, True]


def test_session_that_knows_nothing_prints() -> None:
    """A session without samples, peaks and totals prints, too, and calls unknown what it does not know."""
    empty = Session.of(session({"time_s": []}, totals={}, peaks={}, processes=[], exit=None, start=model.Start()))

    assert len(repr(empty).splitlines()) == 5
    assert "unknown" in repr(empty)
    assert "unknown" in empty._repr_markdown_()


@pytest.mark.long
def test_loaded_session_reports_and_draws(tmp_path: Path) -> None:
    """A loaded session has the same methods as a recorded one: text, picture, page."""
    loaded = Session.load(made().save(tmp_path / "run.json"))
    page = tmp_path / "run.html"

    assert isinstance(loaded, Session)
    assert loaded.report().startswith("export: Peak memory 2,600 MiB, ")
    assert loaded.plot(tmp_path / "run.svg").read_bytes().startswith(b"<?xml")
    assert loaded.to_html(page) == page
    assert loaded.to_html() == page.read_text(encoding="utf-8")


def test_picture_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A picture whose name ends in something else is refused, with the endings that there are."""
    with pytest.raises(NncfToolsError, match=r"a picture ends in \.png, \.svg, \.pdf"):
        made().plot(tmp_path / "run.xyz")


def test_notebook_shows_picture_and_tables() -> None:
    """A notebook gets the picture as PNG, and the report's tables as Markdown."""
    picture, _, tables = made()._repr_markdown_().partition("\n\n")
    content = re.fullmatch(r"!\[.*\]\(data:image/png;base64,(.*)\)", picture)

    assert content is not None
    assert base64.b64decode(content[1]).startswith(b"\x89PNG")
    assert tables == report(made(), made()._view())


def test_names_in_a_notebook_are_text() -> None:
    """Commands and names are shown as they are, never as HTML."""
    marks = [model.Mark(name="<img src=x>", start_s=0.0, end_s=1.0, error="<b>")]
    shown = Session.of(session(marks=marks, command=["<script>"]))._repr_markdown_()

    assert "\\<img src=x>" in shown
    assert "`'<script>'`" in shown
    assert not re.search(r"(?<![\\'])<(img|script)", shown)


def test_profiler_before_its_start_says_what_to_do() -> None:
    """A profiler that has recorded nothing displays what to do instead of an error."""
    profiler = Profiler()

    assert "with profiler:" in repr(profiler)
    assert "with profiler:" in profiler._repr_markdown_()
