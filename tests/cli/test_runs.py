from __future__ import annotations

import io
import json
import os
import shutil
import sys
from pathlib import Path
from unittest import mock

import pexpect
import pytest

from nncftools.cli import destination, runs, screen
from nncftools.errors import NncfToolsError
from nncftools.journal import reading
from nncftools.session.model import Mark, Start
from tests.conftest import Run
from tests.made_up import UTC, mib, rows, session
from tests.surroundings import HANGING_S
from tests.trust.another_user import OTHER, as_another


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Make three recordings, a minute apart, and a folder of the user."""
    for number in range(3):
        folder = tmp_path / "memory_logs" / f"2026-11-2{number}_10-00-00_work"
        folder.mkdir(parents=True)
        session({"rss": mib(10, 60 + number)}, name="nightly" if number else "").save(folder / "session.json")
        (folder / "session.png").write_bytes(b"x" * 9000)
        os.utime(folder / "session.json", (60 * number, 60 * number))
    mine = tmp_path / "memory_logs" / "mine"
    mine.mkdir()
    session({"rss": mib(10, 20)}).save(mine / "session.json")
    (mine / "session.png").write_bytes(b"x" * 9000)
    os.utime(mine / "session.json", (1, 1))
    return tmp_path / "memory_logs"


PEAKS = {"one": 300, "two": 800, "three": None, "four": 400}
"""Peaks of recordings in MiB, from the oldest recording to the newest."""


@pytest.fixture
def trend(tmp_path: Path, in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make four recordings of one command, a day apart, and an older one of the user; show them in 100 columns."""
    assert in_process is not None  # it sets another width
    monkeypatch.setenv("COLUMNS", "100")
    log_dir = tmp_path / "memory_logs"
    for number, (name, peak) in enumerate(PEAKS.items(), 2):
        folder = log_dir / f"2026-11-2{number}_07-00-00_{name}"
        folder.mkdir(parents=True)
        session(
            {"pss": mib(1, 2)} if peak is None else {"rss": mib(100, peak, 90)},
            name="",
            start=Start(utc=UTC.replace("21T", f"2{number}T"), monotonic_ns=5),
            duration_s=9.0 - number,
            cwd="/" * 9999 * (name == "three"),
            marks=[Mark(name="Export", start_s=0.4, end_s=0.6)] if name == "two" else [],
        ).save(folder / "session.json")
    session({"rss": mib(10, 20)}, name="of [ours]").save(log_dir / "session.json")


ORDERS = """
 | four three two one ours
--sort date | four three two one ours
--sort PEAK | two four one ours three
--sort duration | one two three four ours
--sort size | three two four one ours
--name ours | ours
--name [ours] | ours
--name work*fast --sort peak | two four one ours three
--name Work |
"""
MISTAKES = """
--sort age | option --sort: 'age' is not one of date, peak, duration, size
--trend 1 | option --trend: at least 2 expected, found 1
--name zzz | no recordings with 'zzz' in name or command in 'memory_logs'
none --name zzz | no recordings in 'none'
"""


@pytest.mark.usefixtures("trend")
class TestChoice:
    @pytest.mark.parametrize("words, order", rows(ORDERS))
    def test_order(self, in_process: Run, words: str, order: str) -> None:
        """--sort puts the largest first and the unknown last; --name looks at any part of name and command."""
        runs = json.loads(in_process(f"list {words} --json").stdout)
        names = [run["path"].split("_")[-1].removesuffix("/session.json") for run in runs]

        assert [name.replace("logs", "ours") for name in names] == order.split()

    def test_numbers_stay(self, in_process: Run) -> None:
        """The number in the table is that of latest~N, in any order."""
        lines = in_process("list --sort peak").stdout.splitlines()

        assert [line.split()[0] for line in lines[1:]] == ["2", "0", "3", "4", "1"]

    def test_where(self, in_process: Run) -> None:
        """Each row has the operation of the peak; a dash if it is unknown."""
        lines = in_process("list --name w").stdout.splitlines()

        assert [line.split()[-1] for line in lines] == ["in", "–", "–", "Export", "–", "–"]
        assert [run["peak_in"] for run in json.loads(in_process("list --json").stdout)][2:4] == ["Export", None]

    @pytest.mark.parametrize("columns", [99, 40])
    def test_where_on_a_narrow_terminal(self, in_process: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
        """With less room, the operation is below the command, and an unknown one takes no line."""
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = in_process("list --name work").stdout.splitlines()

        assert [line.split()[0] for line in lines] == ["#", "0", "1", "2", "Export", "3", "4"]

    @pytest.mark.parametrize(
        "most, bars",
        [
            (2, ["-█", "█-", "▃█", "█", "█"]),
            (4, ["▃█-▄", "▃█-", "▃█", "█", "█"]),
        ],
    )
    def test_trend(self, in_process: Run, most: int, bars: list[str]) -> None:
        """Bars are the last peaks of the command, the oldest first, the last that of the row; a - is unknown."""
        result = in_process(f"list --trend {most}")
        newest = json.loads(in_process(f"list --trend {most} --json").stdout)[0]

        assert [line.split()[-1] for line in result.stdout.splitlines()[1:]] == bars
        assert newest["trend"] == mib(*PEAKS.values())[-most:]

    def test_trend_in_ascii(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A stream that takes only ASCII gets characters that grow likewise."""
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
        screen.prepare()
        screen.to_stdout("▁▂▃▄▅▆▇█-")
        written = sys.stdout.buffer.getvalue()  # type: ignore[attr-defined]

        assert written == b"._:=+*#@-"

    @pytest.mark.parametrize("words, message", rows(MISTAKES))
    def test_is_one_line(self, in_process: Run, words: str, message: str) -> None:
        """A mistake, or nothing to list, is a line."""
        result = in_process(f"list {words}")

        assert (result.stdout, result.stderr.count("\n")) == ("", 1)
        assert message in result.stderr


@pytest.mark.usefixtures("logs")
class TestList:
    def test_newest_first(self, in_process: Run) -> None:
        """Each recording is a line with its number, name, command, peak and size."""
        lines = in_process("list").stdout.splitlines()

        assert [line.split()[0] for line in lines] == ["#", "0", "1", "2", "3"]
        assert "nightly: work --fast" in lines[1]
        assert "62.0 MiB" in lines[1]

    def test_json(self, in_process: Run) -> None:
        """--json has the figures in bytes and seconds."""
        found = json.loads(in_process("list --json").stdout)

        assert found[0]["peak_rss"] == 62 << 20
        assert [run["name"] for run in found] == ["nightly", "nightly", "run", ""]
        assert min(run["size"] for run in found) > 9000  # with the picture, in a folder with any name

    def test_ends_meanwhile(self, in_process: Run, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A journal whose recording ends while it is listed, or a folder that is removed then, is no error."""
        paths = destination.list_recordings(logs)
        shutil.rmtree(paths[0].parent)
        gone = logs / "2026-11-20_10-00-00_work" / "session.journal.jsonl"
        monkeypatch.setattr(destination, "list_recordings", lambda _: [*paths, gone])
        result = in_process("list")

        assert result.stdout.count("cannot be read") == 2


class TestPrune:
    def test_keeps_the_newest_and_what_is_not_ours(self, in_process: Run, logs: Path) -> None:
        """Beyond the newest, only folders of recordings with nothing else in them go."""
        (logs / "2026-11-20_10-00-00_work" / "my_memory_usage_notes.txt").write_text("mine")
        (logs / "latest").symlink_to("2026-11-21_10-00-00_work")
        result = in_process("prune --keep 1 --yes")

        assert "Removed 1 recording" in result.stderr
        assert any(line.startswith("1 2026-11-21") for line in result.stderr.splitlines())  # the number of latest~1
        left = sorted(path.name for path in logs.iterdir())
        assert left == ["2026-11-20_10-00-00_work", "2026-11-22_10-00-00_work", "mine"]

    def test_older(self, in_process: Run, logs: Path) -> None:
        """--older counts from now."""
        os.utime(logs / "2026-11-22_10-00-00_work" / "session.json")
        in_process("prune --older 30d --yes")

        assert sorted(path.name for path in logs.iterdir()) == ["2026-11-22_10-00-00_work", "mine"]

    def test_asks(self, in_process: Run, logs: Path) -> None:
        """Without --yes, and with nobody to ask, nothing is removed."""
        result = in_process("prune --keep 0")

        assert result.returncode == 2
        assert "option --yes: needed, because standard input is not a terminal" in result.stderr
        assert len(list(logs.iterdir())) == 4

    @pytest.mark.process
    def test_answer(self, logs: Path) -> None:
        """Only a yes removes what was shown."""
        words = ["-m", "nncftools", "prune", "--keep", "0"]
        with pexpect.spawn(sys.executable, words, cwd=logs.parent, timeout=HANGING_S) as terminal:
            terminal.expect_exact("Remove 3 recordings")
            terminal.expect_exact("[y/N] ")
            terminal.sendline("n")
            terminal.expect(pexpect.EOF)
            terminal.wait()

            assert terminal.exitstatus == 1
        assert len(list(logs.iterdir())) == 4

    def test_still_recorded(self, in_process: Run, logs: Path) -> None:
        """A recording that still runs stays; it goes when it has ended."""
        folder = logs / "2026-11-20_10-00-00_work"
        lock = reading.create(folder / f"session{reading.ENDING}", replace=False)
        in_process("prune --keep 0 --yes")
        left = sorted(path.name for path in logs.iterdir())
        os.close(lock)
        in_process("prune --keep 0 --yes")

        assert left == [folder.name, "mine"]
        assert not folder.exists()

    def test_link_as_folder(self, in_process: Run, logs: Path, tmp_path: Path) -> None:
        """A link that is called like a recording is not followed."""
        away = (logs / "2026-11-20_10-00-00_work").rename(tmp_path / "away")
        (logs / "2026-11-20_10-00-00_work").symlink_to(away)
        in_process("prune --keep 0 --yes")

        assert (away / "session.json").exists()

    def test_swapped(self, in_process: Run, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Who may write to the log folder cannot have another folder emptied while the question is shown."""
        shown, kept = logs / "2026-11-20_10-00-00_work", logs / "2026-11-22_10-00-00_work"

        def swaps(_question: str) -> bool:
            shown.rename(logs / "moved")
            shown.symlink_to(kept)
            return True

        monkeypatch.setattr(runs, "_is_confirmed", swaps)
        result = in_process("prune --keep 2")

        assert result.returncode == NncfToolsError.exit_code
        assert f"{shown.name} is another folder now" in result.stderr
        assert (shown / "session.json").exists()
        assert (logs / "moved" / "session.json").exists()

    def test_yes_keeps_what_is_no_recording(self, in_process: Run, logs: Path) -> None:
        """Nobody has agreed to lose a file that cannot be read: --yes names it and leaves it there.

        It is none of the recordings to keep, either: with a newer one beside the newest recording, both stay.
        """
        mine = logs / "2026-11-21_10-00-00_work"
        newest = logs / "2026-11-22_10-00-00_work"
        name = repr(f"memory_logs/{mine.name}")
        for path in (mine / "session.json", newest / f"session{reading.ENDING}"):
            path.write_text('{"my": "own notes"}')
            os.utime(path, (2e9, 2e9))
        in_process("prune --keep 1 --yes")
        left = sorted(path.name for path in logs.iterdir())
        result = in_process("prune --keep 0 --yes")

        assert left == [mine.name, newest.name, "mine"]
        assert "Removed 2 recordings" in result.stderr
        assert f"{name} is kept: it cannot be read as a recording; run without --yes to remove it" in result.stderr
        assert (mine / "session.json").exists()

    @pytest.mark.parametrize("agreed, left", [([True, True], 1), ([True, False], 2), ([False, True], 3)])
    def test_asks_by_name(
        self, in_process: Run, logs: Path, monkeypatch: pytest.MonkeyPatch, agreed: list[bool], left: int
    ) -> None:
        """What cannot be read as a recording has a question of its own, with its name."""
        mine = logs / "2026-11-21_10-00-00_work"
        (mine / "session.json").write_text("[]")
        questions = mock.Mock(side_effect=agreed)
        monkeypatch.setattr(runs, "_is_confirmed", questions)
        result = in_process("prune --keep 0")
        first, second = (call.args[0] for call in questions.call_args_list)

        assert first.startswith("Remove 2 recordings, ")
        assert second.startswith(f"Remove 'memory_logs/{mine.name}', which cannot be read as a recording? ")
        assert (result.returncode, mine.exists(), len(list(logs.iterdir()))) == (0, not agreed[1], left)

    @as_another
    def test_files_of_another_user(self, in_process: Run, logs: Path) -> None:
        """Another user's file in a folder of ours, and another user's link, stay."""
        folder = logs / "2026-11-20_10-00-00_work"
        (logs / "latest").symlink_to("gone")
        os.lchown(logs / "latest", OTHER, OTHER)
        os.chown(folder / "session.png", OTHER, OTHER)
        result = in_process("prune --keep 0 --yes")

        assert "Removed 2 recordings" in result.stderr
        assert {path.name for path in folder.iterdir()} == {"session.json", "session.png"}
        assert (logs / "latest").is_symlink()
