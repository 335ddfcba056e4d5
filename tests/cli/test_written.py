"""Every output is written in one way: a file is replaced; a device, FIFO or descriptor is written to and stays."""

from __future__ import annotations

import os
import pathlib
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from nncftools import Session
from nncftools.compression.outputs import write
from nncftools.drawing import figure, save
from nncftools.errors import NncfToolsError
from nncftools.files import open_output, write_file
from nncftools.reading_marks.collecting import write_sidecar
from nncftools.render.samples import write_rows
from nncftools.units import MemoryUnit
from tests import made_up
from tests.conftest import Run, command_line
from tests.surroundings import HANGING_S
from tests.trust.another_user import OTHER, as_another


def capture(path: pathlib.Path) -> None:
    """Write as --capture does."""
    descriptor = open_output(path)
    os.write(descriptor, b"content")
    os.close(descriptor)


Writer = tuple[str, Callable[[pathlib.Path], object]]
IN_PYTHON: dict[str, Writer] = {
    "write_file": ("txt", lambda path: write_file(path, b"content")),
    "Session.save": ("json", lambda path: recorded().save(path)),
    "Session.plot": ("svg", lambda path: recorded().plot(path)),
    "Session.to_html": ("html", lambda path: recorded().to_html(path)),
    "text log": ("txt", lambda path: write_rows([0.0, 1.0], [1.0, 2.0], MemoryUnit("MiB"), path)),
    "sidecar": ("json", lambda path: write_sidecar([], path)),
    "picture": ("pdf", lambda path: save(figure()[0], path)),
    "viz-compression": ("md", lambda path: write({path: b"content"})),
    "--capture": ("log", capture),
}
"""Functions that write an output: the ending that its path needs, and a call."""
COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "report": ("md", ("report", "session.json", "--output")),
    "report --panels": ("png", ("report", "session.json", "--panels")),
    "report --plot": ("svg", ("report", "session.json", "--plot")),
    "compare": ("md", ("compare", "session.json", "other.json", "--output")),
    "compare --plot": ("png", ("compare", "session.json", "other.json", "--plot")),
}
"""Commands that write an output: the ending, and the words before its path."""


def recorded() -> Session:
    """Return a session as programs see it."""
    return Session(**{name: getattr(made_up.session(), name) for name in Session.__struct_fields__})


def save_sessions(folder: pathlib.Path) -> None:
    """Write the sessions that commands read."""
    for name in ("session.json", "other.json"):
        made_up.session().save(folder / name)


@pytest.fixture(params=[*IN_PYTHON, *(pytest.param(name, marks=pytest.mark.long) for name in COMMANDS)])
def writer(request: pytest.FixtureRequest, in_process: Run, tmp_path: pathlib.Path) -> Writer:
    """Return the ending of one kind of output, and the function that writes it."""
    save_sessions(tmp_path)
    if request.param in IN_PYTHON:
        return IN_PYTHON[request.param]
    ending, words = COMMANDS[request.param]

    def write(path: pathlib.Path) -> None:
        done = in_process(*words, path, "--force")
        if done.returncode:
            raise OSError(done.stderr)

    return ending, write


class TestEachOutput:
    """The outputs go through one function, which TestRule tries: one case that is written and one that is refused."""

    def test_fifo(self, tmp_path: pathlib.Path, writer: Writer) -> None:
        """A FIFO gets the content, and stays."""
        ending, write = writer
        path = tmp_path / f"fifo.{ending}"
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(reader, True)
        with os.fdopen(reader, "rb") as file, ThreadPoolExecutor() as pool, path.open("wb"):
            received = pool.submit(file.read)
            write(path)

        assert path.is_fifo()
        assert received.result()

    @as_another
    def test_link_of_another_user(self, tmp_path: pathlib.Path, writer: Writer) -> None:
        """Another user's link is refused, for root and with --force, too."""
        ending, write = writer
        (tmp_path / "precious").write_text("mine")
        path = tmp_path / f"out.{ending}"
        path.symlink_to("precious")
        os.chown(path, OTHER, OTHER, follow_symlinks=False)

        with pytest.raises((OSError, NncfToolsError), match="belongs to another user"):
            write(path)
        assert (tmp_path / "precious").read_text() == "mine"


class TestRule:
    def test_fifo_without_reader(self, tmp_path: pathlib.Path) -> None:
        """A FIFO that nobody reads is refused at once, and stays."""
        os.mkfifo(tmp_path / "fifo")

        with pytest.raises(OSError, match="no program reads from this FIFO"):
            write_file(tmp_path / "fifo", b"content")
        assert (tmp_path / "fifo").is_fifo()

    @as_another
    def test_device(self, tmp_path: pathlib.Path) -> None:
        """A device is written to, and stays: no file takes its place."""
        os.mknod(tmp_path / "null", 0o020666, os.makedev(1, 3))
        write_file(tmp_path / "null", b"content")

        assert (tmp_path / "null").is_char_device()

    def test_descriptor(self, tmp_path: pathlib.Path) -> None:
        """What follows /dev/fd/N goes to the descriptor, after what is already written there."""
        file = os.open(tmp_path / "all", os.O_RDWR | os.O_CREAT)
        os.write(file, b"before\n")
        (tmp_path / "fd").symlink_to(f"/dev/fd/{file}")
        write_file(tmp_path / "fd", b"content")
        os.close(file)

        assert (tmp_path / "all").read_bytes() == b"before\ncontent"

    def test_own_link(self, tmp_path: pathlib.Path) -> None:
        """A link of ours is followed, by several steps, and stays."""
        (tmp_path / "second").symlink_to("file")
        (tmp_path / "first").symlink_to("second")
        write_file(tmp_path / "first", b"content")

        assert (tmp_path / "first").is_symlink()
        assert (tmp_path / "file").read_bytes() == b"content"

    @as_another
    @pytest.mark.parametrize("kind", ["second link", "file", "FIFO"])
    def test_of_another_user(self, tmp_path: pathlib.Path, kind: str) -> None:
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


@pytest.mark.parametrize("name", COMMANDS)
def test_force(name: str, in_process: Run, tmp_path: pathlib.Path) -> None:
    """A command does not replace a file without --force, by a link neither."""
    save_sessions(tmp_path)
    ending, words = COMMANDS[name]
    (tmp_path / f"old.{ending}").write_text("old")
    (tmp_path / f"link.{ending}").symlink_to(f"old.{ending}")
    for path in (f"old.{ending}", f"link.{ending}"):
        assert in_process(*words, path).returncode == 2

    assert (tmp_path / f"old.{ending}").read_text() == "old"


@pytest.mark.process
class TestShell:
    @pytest.fixture(autouse=True)
    def _session(self, tmp_path: pathlib.Path) -> None:
        save_sessions(tmp_path)

    @pytest.mark.parametrize(
        "command",
        [
            "{report} -o /dev/stdout | cat",
            "{report} -o /dev/stdout > all; cat all",
            "{report} -o >(cat)",
            pytest.param("exec 7>all; {report} -o /dev/fd/7; cat all", marks=pytest.mark.long),
        ],
    )
    def test_same_as_standard_output(self, tmp_path: pathlib.Path, command: str) -> None:
        """By each name of a descriptor, the report is as on standard output."""
        report = " ".join(command_line("report", "session.json", "--format", "markdown"))

        def output_of(script: str) -> str:
            words = ["bash", "-c", script]
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=HANGING_S)
            return done.stdout

        assert output_of(command.format(report=report)) == output_of(report)


class TestRefused:
    """Outputs that cannot be written are refused before anything changes."""

    @pytest.fixture(autouse=True)
    def _session(self, tmp_path: pathlib.Path) -> None:
        save_sessions(tmp_path)

    @pytest.mark.parametrize("number", ["65000", "99999999999999999999"])
    def test_closed_descriptor(self, in_process: Run, number: str) -> None:
        """A descriptor that is not open is refused: a file of ours may have its number later."""
        done = in_process("report", "session.json", "-o", f"/dev/fd/{number}")

        assert done.returncode == 2
        assert f"option --output: cannot write '/dev/fd/{number}': No such file or directory" in done.stderr

    def test_all_or_nothing(self, tmp_path: pathlib.Path) -> None:
        """Of several outputs none is written when one is refused, which the error names."""
        os.mkfifo(tmp_path / "a.md")

        with pytest.raises(NncfToolsError, match=r"a\.md': no program reads from this FIFO"):
            write({tmp_path / "a.md": b"table", tmp_path / "a.png": b"picture"})
        assert not (tmp_path / "a.png").exists()


@pytest.mark.process
class TestRecording:
    """What a recording writes hours later."""

    def test_own_link(self, nncf_tools: Run, tmp_path: pathlib.Path) -> None:
        """Links of ours are followed and stay."""
        (tmp_path / "there").mkdir()
        names = ("run.json", "run.png")
        for name in names:
            (tmp_path / name).symlink_to(f"there/{name}")
        nncf_tools("monitor", "--plot", "-o", "run.json", "true")

        assert all((tmp_path / name).is_symlink() and (tmp_path / "there" / name).stat().st_size for name in names)

    def test_capture(self, nncf_tools: Run) -> None:
        """--capture takes a descriptor: the output is there, too."""
        done = nncf_tools("monitor", "-q", "-o", "run.json", "--capture", "/dev/stderr", "echo", "said")

        assert (done.stdout, done.stderr) == ("said\n", "said\n")
