"""Every output is written in one way: a file is replaced; a device, FIFO or descriptor is written to and stays."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nncftools.compression.outputs import write
from nncftools.errors import NncfToolsError
from nncftools.files import write_file
from tests import made_up
from tests.conftest import Run, command_line
from tests.surroundings import HANGING_S
from tests.trust.another_user import OTHER, as_another


class TestRule:
    @as_another
    def test_device(self, tmp_path: Path) -> None:
        """A device is written to, and stays: no file takes its place."""
        os.mknod(tmp_path / "null", 0o020666, os.makedev(1, 3))
        write_file(tmp_path / "null", b"content")

        assert (tmp_path / "null").is_char_device()

    def test_descriptor(self, tmp_path: Path) -> None:
        """What follows /dev/fd/N goes to the descriptor, after what is already written there."""
        file = os.open(tmp_path / "all", os.O_RDWR | os.O_CREAT)
        os.write(file, b"before\n")
        (tmp_path / "fd").symlink_to(f"/dev/fd/{file}")
        write_file(tmp_path / "fd", b"content")
        os.close(file)

        assert (tmp_path / "all").read_bytes() == b"before\ncontent"

    def test_own_link(self, tmp_path: Path) -> None:
        """A link of ours is followed, by several steps, and stays."""
        (tmp_path / "second").symlink_to("file")
        (tmp_path / "first").symlink_to("second")
        write_file(tmp_path / "first", b"content")

        assert (tmp_path / "first").is_symlink()
        assert (tmp_path / "file").read_bytes() == b"content"

    @as_another
    @pytest.mark.parametrize("kind", ["second link", "file", "FIFO"])
    def test_of_another_user(self, tmp_path: Path, kind: str) -> None:
        """Another user's second link, file or FIFO is refused, and nothing changes."""
        theirs = tmp_path / "theirs"
        (tmp_path / "precious").write_text("mine")
        if kind == "second link":
            theirs.symlink_to("precious")
        elif kind == "file":
            theirs.write_text("theirs")
        else:
            os.mkfifo(theirs)
        os.chown(theirs, OTHER, OTHER, follow_symlinks=False)
        (tmp_path / "out").symlink_to("theirs")

        with pytest.raises(OSError, match="belongs to another user"):
            write_file(tmp_path / "out", b"content")
        assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.process
class TestShell:
    @pytest.fixture(autouse=True)
    def _session(self, tmp_path: Path) -> None:
        made_up.session().save(tmp_path / "session.json")

    @pytest.mark.parametrize(
        "command",
        [
            "{report} -o /dev/stdout | cat",
            "{report} -o /dev/stdout > all; cat all",
            "{report} -o >(cat)",
            pytest.param("exec 7>all; {report} -o /dev/fd/7; cat all", marks=pytest.mark.long),
        ],
    )
    def test_same_as_standard_output(self, tmp_path: Path, command: str) -> None:
        """By each name of a descriptor, the report is as on standard output."""
        report = " ".join(command_line("report session.json --format markdown"))

        def output_of(script: str) -> str:
            words = ["bash", "-c", script]
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=HANGING_S)
            return done.stdout

        assert output_of(command.format(report=report)) == output_of(report)


class TestRefused:
    """Outputs that cannot be written are refused before anything changes."""

    @pytest.fixture(autouse=True)
    def _session(self, tmp_path: Path) -> None:
        made_up.session().save(tmp_path / "session.json")

    def test_all_or_nothing(self, tmp_path: Path) -> None:
        """Of several outputs none is written when one is refused, which the error names: a FIFO that nobody reads."""
        os.mkfifo(tmp_path / "a.md")

        with pytest.raises(NncfToolsError, match=r"a\.md': no program reads from this FIFO"):
            write({tmp_path / "a.md": b"table", tmp_path / "a.png": b"picture"})
        assert (tmp_path / "a.md").is_fifo()
        assert not (tmp_path / "a.png").exists()

    def test_no_terminal(self, nncf_tools: Run) -> None:
        """Where there is no terminal, the error is the system's."""
        result = nncf_tools("report -o /dev/tty session.json", start_new_session=True)

        assert "cannot write '/dev/tty': No such device or address\n" in result.stderr


@pytest.mark.process
class TestRecording:
    """What a recording writes hours later."""

    def test_own_link(self, nncf_tools: Run, tmp_path: Path) -> None:
        """Links of ours are followed and stay."""
        (tmp_path / "there").mkdir()
        names = ("run.json", "run.png")
        for name in names:
            (tmp_path / name).symlink_to(f"there/{name}")
        nncf_tools("monitor --plot -o run.json true")

        assert all((tmp_path / name).is_symlink() and (tmp_path / "there" / name).stat().st_size for name in names)

    def test_capture(self, nncf_tools: Run) -> None:
        """--capture takes a descriptor: the output is there, too."""
        done = nncf_tools("monitor -q -o run.json --capture /dev/stderr echo said")

        assert (done.stdout, done.stderr) == ("said\n", "said\n")
