from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nncftools.cli import fit_runs
from nncftools.cli.destination import lock_folder
from nncftools.cli.fit_search import Fit, FitOptions
from nncftools.errors import NncfToolsError, UsageError
from nncftools.limits import needs
from tests.conftest import Run, command_line
from tests.made_up import rows
from tests.memory_group import IS_POSSIBLE

as_root = pytest.mark.skipif(not IS_POSSIBLE, reason="only root makes control groups")
NEEDS = [sys.executable, "-S", "-E", "-c", "held = b'x' * (300 << 20); import time; time.sleep(0.25)"]


def request(*words: str, **options: Any) -> FitOptions:  # noqa: ANN401 — any option
    """Return the options of a search."""
    return FitOptions(words=list(words or ("work",)), **options)


def result(folder: Path) -> dict[str, object]:
    """Return what is in ``fit.json``."""
    found: dict[str, object] = json.loads((folder / "fit.json").read_text())
    return found


def begun(folder: Path) -> Fit:
    """Return the search to go on with."""
    return fit_runs.resume_search(
        fit_runs.make_search(request()), fit_runs.make_results(request(output=folder, resume=True))
    )


def left(pid: int) -> list[str]:
    """Return the groups of a search."""
    return [path.name for path in Path(needs.parent_group().folder).glob(f"nncf-tools-fit-{pid}-*")]


class TestOptions:
    def test_former_name_of_prepare(self, in_process: Run) -> None:
        """The former name is understood and not shown; both names at once are a mistake."""
        both = in_process("fit --before true --prepare true -- true")

        assert both.returncode == UsageError.exit_code
        assert both.stderr == "nncf-tools: error: option --before: the former name of --prepare; give only --prepare\n"
        assert "--before" not in in_process("fit --help").stdout

    def test_groups_cannot_be_made(self, in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where no group can be made, one line says why and what would allow it, and nothing runs."""

        def refuse() -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(needs, "parent_group", refuse)
        monkeypatch.setattr(needs, "start_in_scope", lambda: None)
        done = in_process("fit -- touch ran")

        assert done.returncode == NncfToolsError.exit_code
        assert done.stderr == (
            "nncf-tools: error: memory cannot be limited here: Permission denied. Run as root, or as a user of systemd "
            "(control groups of version 2). Or use --free-only: it measures a run without a limit\n"
        )
        assert not Path("ran").exists()
        assert not Path("memory_logs").exists()

    def test_finished_search(self, tmp_path: Path) -> None:
        """A folder with a search is not overwritten unless that is asked for."""
        (tmp_path / "fit.json").write_text("{}")

        with pytest.raises(UsageError, match="has a search already; use --resume or --force"):
            fit_runs.make_results(request(output=tmp_path))
        assert fit_runs.make_results(request(output=tmp_path, resume=True)).folder == tmp_path

    @pytest.mark.parametrize(
        "content, message",
        rows("""
{ | cannot be read
FIFO | cannot be read: a file expected
{"command": ["else"]} | was made with another command: else
{"command": ["work"], "version": 2} | a newer version
{"command": ["work"], "trials": 5} | cannot be read
{"command": ["work"], "success": "true"} | option --success: the earlier runs used 'true'
"""),
    )
    def test_cannot_go_on(self, tmp_path: Path, content: str, message: str) -> None:
        """A search that is damaged, or was of something else, is not continued; a FIFO is not waited for."""
        if content == "FIFO":
            os.mkfifo(tmp_path / "fit.json")
        else:
            (tmp_path / "fit.json").write_text(content)

        with pytest.raises(UsageError, match=message):
            begun(tmp_path)

    def test_begun_anew(self, tmp_path: Path) -> None:
        """With --force nothing is left of an earlier search, and nothing else is touched."""
        others = ["run-all.json", "run-1.txt", "notes.md"]
        for name in ("fit.json", "fit.md", "fit.png", "run-1.json", "run-12.log", *others):
            (tmp_path / name).touch()
        with fit_runs.make_results(request(output=tmp_path, force=True)).locked():
            pass

        assert {path.name for path in tmp_path.iterdir()} == set(others)

    def test_two_at_once(self, tmp_path: Path) -> None:
        """A second search in the same folder is refused before it runs or removes anything."""
        (tmp_path / "fit.json").touch()
        with lock_folder("--output", tmp_path, ""), pytest.raises(UsageError, match="another search writes to"):
            fit_runs.search(request(output=tmp_path, force=True), None)
        assert (tmp_path / "fit.json").exists()

    def test_secrets(self) -> None:
        """The result does not contain what looks like a secret in the command."""
        assert "hunter2" not in str(fit_runs.make_search(request("work", "--password", "hunter2")).command)


@pytest.mark.process
def test_free_only(nncf_tools: Run, tmp_path: Path) -> None:
    """A free run alone gives floor and comfortable amount, without a control group."""
    done = nncf_tools("fit --free-only --json -o out --", *NEEDS)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == result(tmp_path / "out")
    assert "**Needs at least 30" in (tmp_path / "out/fit.md").read_text()
    assert "no limit was tried" in (tmp_path / "out/fit.md").read_text()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"fit.json", "fit.md", "run-1.json", "run-1.log"}


@pytest.mark.process
def test_command_that_fails(nncf_tools: Run, tmp_path: Path) -> None:
    """A command that fails without a limit ends the search, with the place of its output."""
    done = nncf_tools("fit --free-only -o out -- sh -c 'echo no such model; exit 3'")

    assert done.returncode == 1
    assert "the command does not work without a limit: exit status 3; the output is in " in done.stderr
    assert (tmp_path / "out/run-1.log").read_text() == "no such model\n"


@as_root
@pytest.mark.process
@pytest.mark.long
class TestSearches:
    def test_anonymous(self, nncf_tools: Run, tmp_path: Path) -> None:
        """Memory that cannot be dropped has one limit, just above the floor; every run is a session."""
        done = nncf_tools("fit -o out --prepare 'rm -f made' --", *NEEDS)
        found = result(tmp_path / "out")
        works = found["works_from"]

        assert done.returncode == 0, done.stderr
        assert isinstance(works, int)
        assert 300 <= works / 2**20 <= 320
        assert found["is_finished"]
        assert done.stdout.count("out of memory") >= 1
        sessions = sorted((tmp_path / "out").glob("run-*.json"))
        assert len(sessions) == done.stderr.count("\nRun ") + done.stderr.startswith("Run ") - 1
        killed = nncf_tools("report", sessions[-1]).stdout + nncf_tools("report", sessions[-2]).stdout
        assert "out of memory" in killed or "killed" in killed

    def test_success_is_not_exit_0(self, nncf_tools: Run, tmp_path: Path) -> None:
        """A run whose child was killed has failed, though the command says 0, and so has one that did not succeed."""
        quiet = 'exec 2>/dev/null; "$@"; touch made; exit 0'
        words = ["sh", "-c", quiet, "-", *NEEDS]
        done = nncf_tools("fit --success 'test -e made' --prepare 'rm -f made' -o out --", *words)
        works = result(tmp_path / "out")["works_from"]

        assert done.returncode == 0, done.stderr
        assert isinstance(works, int)
        assert works / 2**20 >= 300
        refused = nncf_tools("fit --success 'test -e never' -o other -- true")
        assert "does not work without a limit: not successful" in refused.stderr

    def test_hanging(self, nncf_tools: Run, tmp_path: Path) -> None:
        """A run that takes too long is ended, and counts as failed."""
        script = "test -e later && sleep 1000; sleep 0.3; touch later"
        done = nncf_tools("fit --runs 2 -o out -- sh -c", script)

        assert done.returncode == 1
        assert "given up after" in done.stdout
        assert "nncf-tools fit ended the command after" in nncf_tools("report", tmp_path / "out/run-2.json").stdout
        assert result(tmp_path / "out")["works_from"] is None

    def test_killed(self, nncf_tools: Run, tmp_path: Path) -> None:
        """After kills at random moments, the next search removes every group that was left."""
        chance = random.Random(7)  # noqa: S311 — moments, no secrets
        pids = []
        for number in range(4):
            words = command_line("fit -o", f"out-{number}", "--", *NEEDS)
            with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
                time.sleep(chance.uniform(0.2, 2.5))
                process.kill()
            pids.append(process.pid)
        done = nncf_tools("fit --runs 2 -o out -- sleep 0.3")

        assert done.returncode == 0, done.stderr
        assert [left(pid) for pid in pids] == [[], [], [], []]
