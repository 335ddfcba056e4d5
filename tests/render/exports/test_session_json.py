from __future__ import annotations

import pathlib

from nncftools.render.samples import session_report
from nncftools.render.view import View
from nncftools.session.session import Session
from tests.conftest import Run
from tests.made_up import END, journal, session
from tests.render import golden

VIEW = View(metrics=["rss"])


def test_is_what_save_writes(tmp_path: pathlib.Path) -> None:
    """The report is the very file of the session."""
    assert session_report(golden.run(), VIEW) == golden.run().save(tmp_path / "run.json").read_bytes()


def test_comes_back(tmp_path: pathlib.Path) -> None:
    """A loaded session is reported byte for byte, what this version does not know included."""
    path = tmp_path / "run.json"
    path.write_bytes(session_report(session(), VIEW)[:-3] + b',\n"of tomorrow": [1, 2.50]\n}\n')

    assert session_report(Session.load(path), VIEW) == path.read_bytes()


def test_of_a_journal(nncf_tools: Run, tmp_path: pathlib.Path) -> None:
    """On the command line a journal becomes a session, also through a pipe."""
    (tmp_path / "run.journal.jsonl").write_bytes(journal({"s": [0.5, 100]}, END))
    written = nncf_tools("report", "run.journal.jsonl", "--format", "session", "--output", "run.json")
    piped = nncf_tools("report", "run.journal.jsonl", "--format", "session")

    assert (written.returncode, piped.returncode) == (0, 0)
    assert (tmp_path / "run.json").read_text() == piped.stdout
    assert Session.load(tmp_path / "run.json").exit == Session.load(tmp_path / "run.journal.jsonl").exit
