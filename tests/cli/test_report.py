from __future__ import annotations

import gzip
import json
import pathlib
import re

import pytest

from tests.conftest import Run


@pytest.fixture
def session(nncf_tools: Run, tmp_path: pathlib.Path) -> pathlib.Path:
    """Record a short run."""
    nncf_tools("monitor", "-q", "-o", "run.json", "sleep", "0.3")
    return tmp_path / "run.json"


@pytest.mark.usefixtures("session")
class TestReport:
    def test_names_what_matters(self, nncf_tools: Run) -> None:
        """The report names command, time, exit status, both metrics, CPU, I/O, processes and the sampler's own cost."""
        result = nncf_tools("report", "run.json")

        assert result.returncode == 0
        for words in ("sleep 0.3", "exit status 0", "RSS", "System", "from zero", "CPU", "Storage", "Processes", "own"):
            assert words in result.stdout

    def test_chooses_metric_unit_and_title(self, nncf_tools: Run) -> None:
        """--type, --unit, --from-zero and --title do what they say."""
        result = nncf_tools("report", "run.json", "--type", "rss", "--unit", "kib", "--from-zero", "--title", "A title")

        assert result.stdout.splitlines()[1] == "A title"
        assert "Memory, KiB" in result.stdout
        assert "RSS from zero" in result.stdout
        assert "System from" not in result.stdout

    @pytest.mark.parametrize(("name", "magic"), [("a b.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.PDF", b"%PDF")])
    def test_draws(self, nncf_tools: Run, tmp_path: pathlib.Path, name: str, magic: bytes) -> None:
        """--plot writes the picture in the format of its name."""
        result = nncf_tools("report", "run.json", "--plot", name)

        assert result.returncode == 0
        assert (tmp_path / name).read_bytes().startswith(magic)

    def test_opens_gzip(self, nncf_tools: Run, session: pathlib.Path) -> None:
        """A gzipped session is opened like a plain one."""
        (session.parent / "run.gz").write_bytes(gzip.compress(session.read_bytes()))

        assert nncf_tools("report", "run.gz").stdout == nncf_tools("report", "run.json").stdout

    def test_is_plain_in_a_pipe(self, nncf_tools: Run) -> None:
        """A pipe gets no escape codes and no trailing blanks."""
        text = nncf_tools("report", "run.json", env={"FORCE_COLOR": "", "TERM": "xterm-256color"}).stdout

        assert "\x1b" not in text
        assert not re.search(r" +$", text, re.MULTILINE)

    def test_keeps_an_existing_picture(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """A picture that exists is kept unless --force is given."""
        (tmp_path / "old.png").write_text("precious")
        refused = nncf_tools("report", "run.json", "--plot", "old.png")
        forced = nncf_tools("report", "run.json", "--plot", "old.png", "--force")

        assert (refused.returncode, forced.returncode) == (2, 0)
        assert (tmp_path / "old.png").read_bytes().startswith(b"\x89PNG")


class TestNewest:
    def test_without_argument(self, nncf_tools: Run) -> None:
        """Without an argument, the newest session under memory_logs is shown."""
        nncf_tools("monitor", "-q", "--no-plot", "sleep", "0.01")
        nncf_tools("monitor", "-q", "--no-plot", "sleep", "0.02")

        assert nncf_tools("report").stdout.splitlines()[1] == "sleep 0.02"

    def test_none(self, nncf_tools: Run) -> None:
        """Without a session there, the message says how to make one."""
        result = nncf_tools("report")

        assert result.returncode == 1
        assert "no session under 'memory_logs'; record one with `nncf-tools monitor COMMAND`" in result.stderr


class TestBadInput:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "the file is empty"),
            (b"\x00\x01\x02", "not a session"),
            (b'{"format": "nncf-tools-session", "vers', "not a session: Input data was truncated"),
            (b'{"a": 1}', '`"format": "nncf-tools-session"` expected'),
            (b"[" * 100_000, "not a session"),
            (b'{"format": "nncf-tools-session", "version": 99}', "upgrade"),
            (b"\x1f\x8bnonsense", "gzip archive is damaged"),
        ],
    )
    def test_is_one_line_that_names_the_file(
        self, nncf_tools: Run, tmp_path: pathlib.Path, content: bytes, message: str
    ) -> None:
        """A file that is no session is one line naming it, status 1."""
        (tmp_path / "bad.json").write_bytes(content)
        result = nncf_tools("report", "bad.json")

        assert result.returncode == 1
        assert len(result.stderr.splitlines()) == 1
        assert "bad.json: " in result.stderr
        assert message in result.stderr
        assert result.stdout == ""

    def test_wrong_figure_names_its_place(self, nncf_tools: Run, session: pathlib.Path) -> None:
        """A figure of the wrong type is named with its place in the file."""
        document = json.loads(session.read_text())
        document["samples"]["rss"][1] = "much"
        session.write_text(json.dumps(document))
        result = nncf_tools("report", "run.json")

        assert result.returncode == 1
        assert "run.json: at `$.samples.rss`" in result.stderr
        assert "`$[1]`" in result.stderr

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--plot", "a.gif"], "option --plot: 'a.gif' does not end in one of .png, .svg, .pdf"),
            (["--plot", "no/such/folder/a.png"], "option --plot: cannot write 'no/such/folder/a.png'"),
            (["--type", "vms"], "option --type: 'vms' is not one of rss, system"),
        ],
    )
    @pytest.mark.usefixtures("session")
    def test_options(self, nncf_tools: Run, words: list[str], message: str) -> None:
        """A wrong option is one line that names it."""
        result = nncf_tools("report", "run.json", *words)

        assert result.returncode in {1, 2}
        assert message in result.stderr
        assert "Traceback" not in result.stderr
