from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests import made_up
from tests.conftest import Run
from tests.made_up import full_disk


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """Write the session of a short run."""
    return made_up.session().save(tmp_path / "run.json")


@pytest.mark.usefixtures("session")
class TestReport:
    def test_keeps_an_existing_picture(self, in_process: Run, tmp_path: Path) -> None:
        """An existing picture is kept unless --force is given."""
        (tmp_path / "old.png").write_text("precious")
        refused = in_process("report run.json --plot old.png")
        forced = in_process("report run.json --plot old.png --force")

        assert (refused.returncode, forced.returncode) == (2, 0)
        assert (tmp_path / "old.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("session")
class TestFormats:
    def test_full_disk_leaves_nothing(self, nncf_tools: Run, tmp_path: Path) -> None:
        """A report that cannot be written completely is not written at all, and one line says why."""
        with full_disk():
            done = nncf_tools("report run.json --format json --output out")

        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert "option --output: cannot write 'out'" in done.stderr
        assert {path.name for path in tmp_path.iterdir()} == {"run.json"}

    def test_without_plotly(self, nncf_tools: Run, tmp_path: Path) -> None:
        """Without plotly one line says how to install it."""
        (tmp_path / "plotly").mkdir()
        (tmp_path / "plotly" / "__init__.py").write_text("raise ImportError")
        done = nncf_tools("report run.json --format html", env={"PYTHONPATH": str(tmp_path)})

        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert (
            "error: option --format: html needs plotly; install it with: pip install 'nncf-tools[html]'\n"
            in done.stderr
        )


def test_page_is_not_for_a_terminal(in_process: Run, session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An HTML page is not printed to a terminal."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    done = in_process("report", session, "--format", "html")

    assert done.returncode == 2
    assert "html cannot be shown on a terminal; name a file with --output" in done.stderr


class TestBadInput:
    @pytest.mark.parametrize(
        "content, message",
        [
            (b"", "the file is empty"),
            (b"\x00\x01\x02", "neither a session nor a log"),
            (b'{"format": "nncf-tools-session", "vers', "not a session: Input data was truncated"),
            (b'{"a": 1}', '`"format": "nncf-tools-session"` expected'),
            (b"[" * 100_000, "neither a session nor a log"),
            (b'{"format": "nncf-tools-session", "version": 99}', "upgrade"),
            (b"\x1f\x8bnonsense", "gzip archive is damaged"),
        ],
    )
    def test_is_one_line_that_names_the_file(
        self, in_process: Run, tmp_path: Path, content: bytes, message: str
    ) -> None:
        """A file that is no session gives one line that names it, and status 1."""
        (tmp_path / "bad.json").write_bytes(content)
        result = in_process("report bad.json")

        assert (result.returncode, result.stdout) == (1, "")
        assert re.fullmatch(f".*bad.json: .*{re.escape(message)}.*\n", result.stderr)
