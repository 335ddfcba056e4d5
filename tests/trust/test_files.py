from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nncftools import Session
from tests.conftest import HANGING_S, Run, command_line
from tests.made_up import rows
from tests.trust.another_user import OTHER, as_another
from tests.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.long]

SWAPS = """
echo
until [ -e stop ]; do
    for name in run.journal.jsonl run.marks.jsonl; do
        if [ -e $name ] && ! [ -L $name ]; then mv $name $name.taken; ln -s evil $name; fi
    done
done
"""
"""Replace a recording's files by links to another file as soon as they exist."""
WATCHES = """
import contextlib, io, os, sys
from nncftools.cli.app import run
sys.argv[:] = ["nncf-tools", "watch"]
here = os.open(".", os.O_RDONLY)
os.chdir("/proc")
with contextlib.redirect_stderr(io.StringIO()):
    assert run() == 1
os.chdir(here)
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
sys.exit(run())
"""
"""Become the second user after a first call has imported everything: only root may be able to read Python itself."""
KEPT = re.compile(r"it is (\S+)|the journal is (\S+)")
"""The error's phrase for the place of a session or journal."""
UNTIL_SAMPLED = "until grep -qs '^\\[' {}; do sleep 0.01; done; "


def session_of(run: subprocess.CompletedProcess[str], asked: Path) -> Session:
    """Return the recorded session, from the requested place or the one that the error names."""
    found = KEPT.search(run.stderr)
    return Session.load(asked if found is None else Path(found[1] or found[2]))


class TestAnotherUser:
    @as_another
    @pytest.mark.parametrize("umask", [0o022, 0o002])
    def test_swaps_files(self, nncf_tools: Run, shared: Path, umask: int) -> None:
        """Swapping journal and marks for links can neither choose what runs nor redirect writes."""
        evil = shared / "evil"
        plan = f'{{"columns":["rss"],"interval_s":0.1,"source":"proc","argv":["touch","{shared}/ran"]}}'
        evil.write_text(f'{{"format":"nncf-tools-journal","version":1,"host":{{}},"plan":{plan}}}\n')
        evil.chmod(0o666)
        with subprocess.Popen(
            ["sh", "-c", SWAPS], cwd=shared, user=OTHER, group=OTHER, extra_groups=[], stdout=subprocess.PIPE
        ) as attacker:
            assert attacker.stdout is not None
            attacker.stdout.readline()
            result = nncf_tools(
                "profile --no-plot -o",
                shared / "run.json",
                "--",
                "sh",
                "-c",
                f"until [ -L {shared}/run.marks.jsonl ]; do :; done; {sys.executable} -c 1; exit 3",
                umask=umask,
            )
            (shared / "stop").touch()

        assert result.returncode in {2, 3}, result.stderr  # 2: refused, when journal or marks were gone at once
        assert "Traceback" not in result.stderr
        assert not (shared / "ran").exists()
        assert evil.read_text().count("\n") == 1, evil.read_text()
        if result.returncode == 3:
            assert session_of(result, shared / "run.json").command[:2] == ["sh", "-c"]

    @as_another
    def test_journals_of_others(self, shared: Path) -> None:
        """`watch` skips journals that it may not read."""
        journal = shared / "memory_logs" / "run" / "session.journal.jsonl"
        journal.parent.mkdir(parents=True)
        journal.touch(0o600)
        done = subprocess.run(
            [sys.executable, "-c", WATCHES], cwd=shared, capture_output=True, text=True, check=False, timeout=HANGING_S
        )
        assert done.returncode == 1, done.stderr
        assert "no recording runs" in done.stderr


class TestSameName:
    def test_second(self, nncf_tools: Run, tmp_path: Path) -> None:
        """A second recording to the same files is refused while the first runs: its command is not run, no data mix."""
        words = command_line("monitor -q --force -o run.json -- sh -c")
        first = subprocess.Popen([*words, "until [ -e go ]; do sleep 0.02; done; exit 3"], cwd=tmp_path)
        journal = tmp_path / "run.journal.jsonl"
        until(lambda: journal.exists() and b"\n[" in journal.read_bytes(), "a sample")
        second = nncf_tools("monitor -q --force -o run.json -- sh -c 'touch ran; exit 4'")
        (tmp_path / "go").touch()

        assert first.wait(HANGING_S) == 3
        assert second.returncode == 2
        assert "another recording that still runs writes to" in second.stderr
        assert not (tmp_path / "ran").exists()
        exit_ = Session.load(tmp_path / "run.json").exit
        assert exit_ is not None
        assert exit_.code == 3


SCRIPTS = """
-o out/run.json | rm -rf out |
-o out/run.json | rm -rf out; mkdir out |
-o out/run.json | rm -rf out; touch out | it is
-o out/run.json | rm -rf out; mkdir victim; ln -s victim out |
-o out/run.json | mkdir out/run.json | it is
-o out/run.json | mkfifo out/run.json | a device or pipe has taken the place of the session file
-o out/run.json | rm out/run.journal.jsonl; mkfifo out/run.journal.jsonl |
-o out/run.json | rm out/run.marks.jsonl; mkdir out/run.marks.jsonl |
-o out/run.json | rm out/run.marks.jsonl; mkfifo out/run.marks.jsonl |
-o out/run.json | echo x >> out/run.marks.jsonl; rm -rf ../work |
--no-plot | rm -rf memory_logs |
--no-plot | rm -rf memory_logs; touch memory_logs | it is
--no-plot | rm -rf ../work; mkdir ../work |
"""


class TestWhatACommandDoes:
    """Whatever the command does to its recording's files, we exit with its status, and no loss is silent."""

    @pytest.mark.parametrize("options, script, message", rows(SCRIPTS))
    def test_to_folders(self, nncf_tools: Run, tmp_path: Path, options: str, script: str, message: str) -> None:
        """Folders and files that the command removes, recreates or replaces affect neither exit status nor session."""
        work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
        work.mkdir()
        elsewhere.mkdir()
        journal = "out/run.journal.jsonl" if "-o" in options else "memory_logs/*/session.journal.jsonl"
        script = f"{UNTIL_SAMPLED.format(journal)}{script}; exit 7"
        line = f"monitor -q -i 0.01 {options} -- sh -c"
        result = nncf_tools(line, script, cwd=work, env={"TMPDIR": str(elsewhere)})

        assert result.returncode == 7, result.stderr
        assert result.stderr.count("\n") == bool(message), result.stderr
        assert message in result.stderr
        asked = work / "out/run.json" if "-o" in options else next(work.glob("memory_logs/*/session.json"), work)
        session = session_of(result, asked)
        assert session.finished
        assert len(session.samples)

    def test_marks_through_a_link(self, nncf_tools: Run, tmp_path: Path) -> None:
        """A marked program does not write through a link in the place of the marks."""
        (tmp_path / "victim").write_text("mine")
        script = (
            f"ln -sf victim run.marks.jsonl; {sys.executable} -m nncftools mark Export; {sys.executable} -c 1; exit 7"
        )
        result = nncf_tools("profile -q --no-plot -o run.json -- sh -c", script)

        assert result.returncode == 7
        assert (tmp_path / "victim").read_text() == "mine"


def test_journal_that_the_command_empties(nncf_tools: Run, tmp_path: Path) -> None:
    """Data recorded after the journal was emptied is a session; start and exit status are still known."""
    sampled = UNTIL_SAMPLED.format("run.journal.jsonl")
    script = f"{sampled}: > run.journal.jsonl; {sampled}exit 4"
    result = nncf_tools("monitor -q -i 0.02 -o run.json sh -c", script)
    session = Session.load(tmp_path / "run.json")

    assert (result.returncode, session.exit.code if session.exit else None) == (4, 4)
    assert (session.finished, session.command[0]) == (True, "sh")
    assert len(session.samples) >= 1
    assert [warning for warning in session.warnings if "missing from the journal" in warning]
