"""Choose, check and create the files that a recording writes; find the recording for a path or ``latest~1``.

All checks are made before the command starts. The files and the folder of a recording stay open. So if somebody puts
another folder in the same place, nothing is written to that folder.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from nncftools.backports import moment_of
from nncftools.cli import screen
from nncftools.errors import NncfToolsError, UsageError
from nncftools.files import NEW_LOG, Folder, above_standard, file_behind, open_ours, write_file
from nncftools.journal import reading
from nncftools.journal.reading import MARKS_ENDING, SIDECARS
from nncftools.render.view import log_stem
from nncftools.session import launcher
from nncftools.units import count_text, nearest

if TYPE_CHECKING:
    from rich.console import RenderableType

SESSION = "session.json"
JOURNAL_ENDING = reading.ENDING
LATEST = "latest"
DEFAULT_LOG_DIR = Path("memory_logs")
_LONGEST_NAME = 60


class Log(NamedTuple):
    """The text log and the picture of a memory metric, as NNCF's memory monitor writes them."""

    metric: str
    from_zero: bool
    name: str
    """File name of the text log and of the picture, without the ending."""


class Destination(NamedTuple):
    """The files of a recording. The paths are absolute, because the command may remove the working folder."""

    place: Folder
    """The open folder for all files of the recording. Its owner and permissions were checked."""
    session: Path
    shown: str
    """Path of the session or of the folder, as the user would type the path."""
    folder: Path | None = None
    """The new folder for this run alone; None if the user named a file."""
    logs: Sequence[Log] = ()
    sidecar: Path | None = None
    """The file for marks; None if no file for marks is wanted."""
    panels: Path | None = None
    """The picture; None if no picture is wanted."""
    page: Path | None = None
    page_is_asked: bool = False
    """Whether the recording gets a page even if the recording is too short or too large to be worth a page."""
    force: bool = False
    """Whether files of an earlier run may be replaced."""
    option: str = "--output"
    """The option that names the location, for messages."""

    @property
    def journal(self) -> Path:
        """The journal, a file that exists while the recording runs."""
        return self.beside(JOURNAL_ENDING)

    @property
    def marks(self) -> Path:
        """The marks log, a file that exists while the recording runs."""
        return self.beside(MARKS_ENDING)

    @property
    def snapshots(self) -> Path:
        """The log of the snapshot helper, a file that exists while a recording with stacks runs."""
        return self.beside(reading.SNAPSHOTS_ENDING)

    def beside(self, ending: str) -> Path:
        """Return the path of a file beside the session: the same name with another ending."""
        return self.session.with_name(session_stem(self.session) + ending)

    def check_place(self) -> None:
        """Make the folder again if the command has removed the folder.

        Raises OSError if another user may have made a folder in the same place, or if a device or pipe has taken the
        place of the session.
        """
        self.place.check()
        if file_behind(self.session) is None:
            raise OSError("a device or pipe has taken the place of the session file")

    def remove_folder(self) -> None:
        """Remove the folder of a run that never started."""
        if self.folder is not None:
            with suppress(OSError):
                self.folder.rmdir()
                self.folder.parent.rmdir()  # only succeeds for an empty folder: then this run made the folder

    def point_latest(self) -> None:
        """Make the link ``latest`` in the log folder lead to this run.

        Do nothing if the system has no links. Replace only a link, never a file or folder.
        """
        if self.folder is None:
            return
        link = self.folder.parent / LATEST
        if link.exists() and not link.is_symlink():
            latest = Path(self.shown).with_name(LATEST)
            screen.message(f"{str(latest)!r} is not a link, so it does not lead to this run; remove or rename it")
            return
        new_link = link.with_name(f".{os.urandom(4).hex()}.{LATEST}")
        with suppress(OSError, NotImplementedError):
            new_link.symlink_to(self.folder.name, target_is_directory=True)
            try:
                new_link.replace(link)
            finally:
                new_link.unlink(missing_ok=True)


def new_folder(log_dir: Path, name: str) -> Destination:
    """Make a new folder for a run under ``log_dir``; return its files. Raises UsageError if that fails."""
    plain = re.sub(r"[^\w.+-]+", "_", name).strip("._")[:_LONGEST_NAME] or "run"
    stem = f"{time.strftime('%Y-%m-%d_%H-%M-%S')}_{plain}{launcher.make_suffix(os.environ)}"
    with open_folder("--log-dir", log_dir) as logs_of_all, writing("--log-dir", log_dir, UsageError):
        for number in itertools.count(1):  # another run may have begun in this second
            shown = log_dir / (stem if number == 1 else f"{stem}-{number}")
            with suppress(FileExistsError):
                (logs_of_all.descriptor_path / shown.name).mkdir()
                break
        place = Folder(shown)
    return Destination(place, place.path / SESSION, str(shown), place.path, option="--log-dir")


def in_folder(log_dir: Path, metrics: Sequence[str]) -> Destination:
    """Return the files for a run that writes directly into ``log_dir``, and replaces the files of an earlier run.

    If this program is a rank of a job, the file names end in the rank's number. Raises UsageError if a file cannot be
    written.
    """
    open_folder("--log-dir", log_dir).close()
    target = at_file(log_dir / SESSION, force=True, option="--log-dir")
    rank = launcher.make_suffix(os.environ)
    logs: list[Log] = []
    for metric in metrics:
        for from_zero in (True, False):
            name = log_stem(metric, from_zero=from_zero, rank=rank)
            logs.append(Log(metric, from_zero, name))
            check_file("--log-dir", log_dir / f"{name}.txt", force=True)
            check_file("--log-dir", log_dir / f"{name}.png", force=True)
    return target._replace(logs=logs, shown=str(log_dir))


def open_folder(option: str, path: Path) -> Folder:
    """Make and open a folder; warn if every user may rename files in the folder. Raises UsageError."""
    with writing(option, path, UsageError):
        folder = Folder(path, make=True)
    if folder.is_shared:
        _warn_of_shared(path)
    return folder


@functools.cache
def _warn_of_shared(folder: Path) -> None:
    """Warn, once for each folder, that every user may replace files."""
    screen.message(f"every user may rename files in {str(folder)!r} or in a parent folder; only new files are written")


@contextmanager
def lock_folder(option: str, path: Path, busy: str) -> Iterator[None]:
    """Make a folder, and hold a lock on the folder.

    Raises UsageError with the text ``busy`` if another process holds the lock.
    """
    import fcntl

    with open_folder(option, path) as place:
        folder = os.open(place.descriptor_path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with suppress(OSError):  # some file systems have no locks
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise UsageError(f"option {option}: {busy}") from error
            yield
        finally:
            os.close(folder)


def at_file(output: Path, *, force: bool, option: str = "--output") -> Destination:
    """Return the files for a run whose session is ``output``. Raises UsageError if a file cannot be written.

    If this program is a rank of a job, the file name ends in the rank's number, so that ranks do not overwrite each
    other's files.
    """
    output = add_suffix(output, launcher.make_suffix(os.environ))
    check_file(option, output, force=force)
    for ending in (JOURNAL_ENDING, reading.SNAPSHOTS_ENDING, *SIDECARS):
        path = output.with_name(session_stem(output) + ending)
        check_file(option, path, force=force)
        if path.is_symlink():
            raise UsageError(f"option {option}: {str(path)!r} is a symbolic link; name the target of the link")
    place = open_folder(option, output.parent)
    return Destination(
        place=place,
        session=place.path / output.name,
        shown=str(output),
        force=force,
        option=option,
    )


def add_suffix(path: Path, suffix: str) -> Path:
    """Return the path of a session with ``suffix`` before the extensions: ``run-2-rank0.json.gz``."""
    if not (suffix and path.name):
        return path
    stem = session_stem(path)
    return path.with_name(stem + suffix + path.name.removeprefix(stem))


def add_views(target: Destination, *, plot: bool | None, opens: bool) -> Destination:
    """Add the files that show the run: the picture, the page if plotly is installed, and the sidecar with operations.

    If ``plot`` is None, only a run with a new folder gets these files. If ``opens`` is true, the page is opened in a
    browser after the run, so every run gets the page. Raises UsageError if a file cannot be written, or if ``opens`` is
    true and plotly is not installed.
    """
    has_plotly = find_spec("plotly") is not None
    if opens and not has_plotly:
        raise UsageError("option --open: the page needs plotly; install it with: pip install 'nncf-tools[html]'")
    is_drawn = target.folder is not None if plot is None else plot
    sidecar = target.beside(SIDECARS[0]) if is_drawn or target.folder is not None else None
    panels = target.beside(".png") if is_drawn else None
    page = target.beside(".html") if opens or (is_drawn and has_plotly) else None
    if target.folder is None:
        for path in filter(None, (panels, page)):
            shown = Path(target.shown).with_name(path.name)
            check_file(target.option, shown, force=target.force)
    is_asked = opens or bool(plot)
    return target._replace(sidecar=sidecar, panels=panels, page=page, page_is_asked=is_asked)


def session_stem(session: Path) -> str:
    """Return the file name of a session without extensions.

    All files beside the session have names with this beginning.
    """
    return re.sub(r"(\.json)?(\.gz)?$", "", session.name) or session.name


def check_file(option: str, path: Path, *, force: bool) -> None:
    """Check the path of a file that is written after the run.

    Raises UsageError if the file cannot be written, if it exists and ``force`` is false, or if it is a device or FIFO.
    """
    if _find_file(option, path, force=force) is None:
        raise UsageError(
            f"option {option}: {str(path)!r} is a device or pipe; a recording needs a file that can be read again"
        )


def check_output(option: str, path: Path, *, force: bool) -> Path:
    """Check the path of an output, which may be a device or FIFO. Return the path with all links resolved.

    The path of a device or FIFO is returned unchanged. Raises UsageError if the file cannot be written, for example
    because it belongs to another user, or if the file exists and ``force`` is false.
    """
    return _find_file(option, path, force=force) or path


def _find_file(option: str, path: Path, *, force: bool) -> Path | None:
    """Return the regular file that a write to ``path`` would replace or make. Links are resolved.

    Return None for a device or FIFO. Raises UsageError if the file cannot be written, or if it exists and ``force`` is
    false.
    """
    with writing(option, path, UsageError):
        try:
            file = file_behind(path)
        except IsADirectoryError as error:
            raise UsageError(f"option {option}: {str(path)!r} is a folder; a file name expected") from error
        if file is None:
            return None
        if path.is_symlink():
            file.parent.stat()
        exists = file.exists()
    if exists and not force:
        raise UsageError(f"option {option}: {str(path)!r} exists; choose another name or give --force")
    return file


@contextmanager
def writing(option: str, path: Path, kind: type[NncfToolsError] = NncfToolsError) -> Iterator[None]:
    """Turn an OSError into an error of type ``kind`` that names the option and the file."""
    try:
        yield
    except OSError as error:
        raise kind(f"option {option}: cannot write {str(path)!r}: {error.strerror or error}") from error


def write(output: Path, content: RenderableType | bytes) -> None:
    """Write the file of ``--output``. Raises NncfToolsError."""
    data = content if isinstance(content, bytes) else screen.plain(content).encode(errors="backslashreplace")
    with writing("--output", output):
        write_file(output, data)


@contextmanager
def open_log(option: str, path: Path) -> Iterator[int]:
    """Make a new log with ``open_ours``, and yield a descriptor that only appends. Raises NncfToolsError."""
    with writing(option, path):
        descriptor = open_ours(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def find_duplicate(paths: Iterable[Path]) -> Path | None:
    """Return the first path that leads to the same file as an earlier path; None if there is none."""
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            return path
        seen.add(path.resolve())
    return None


WORDS = (LATEST, "last")
_WORD = re.compile(rf"(?:{'|'.join(WORDS)})(?:~(\d{{1,6}}))?")
_HEAD = 1 << 16
_END = rb'"start": \{"utc":"([^"]{1,40})"[^\n]*\n"duration_s": (\d+\.?\d*)'
"""Pattern for start and duration in the first bytes of a session."""
_PATTERNS = (SESSION, f"*{JOURNAL_ENDING}", f"*/{SESSION}", f"*/*{JOURNAL_ENDING}")


def find_recording(path: Path, log_dir: Path) -> Path:
    """Return the session or journal for a path on the command line.

    A folder means the newest recording in the folder. ``latest`` or ``last`` means the newest recording in ``log_dir``,
    and ``latest~1`` means the second newest recording. If a file or folder with such a name exists, the name means this
    file or folder. Raises NncfToolsError if there are not enough recordings.
    """
    if path.is_dir():
        return find_newest(path)
    word = _WORD.fullmatch(path.name)
    if word is None or path.exists():
        return path
    folder = log_dir if path.parent == Path() else path.parent
    return find_newest(folder, int(word[1] or 0))


def find_newest(log_dir: Path, before: int = 0) -> Path:
    """Return the newest session or journal in a folder; if ``before`` is 2, skip the two newest recordings.

    Raises NncfToolsError if there are not enough recordings.
    """
    recordings = list_recordings(log_dir)
    if not recordings:
        raise NncfToolsError(
            f"no session under {str(log_dir)!r}; record one with `nncf-tools profile COMMAND`, or name a file"
        )
    number = len(recordings)
    if before >= number:
        raise NncfToolsError(f"there is no {LATEST}~{before}: {str(log_dir)!r} holds {count_text(number, 'recording')}")
    return recordings[before]


def list_recordings(log_dir: Path) -> list[Path]:
    """Return the sessions and journals in a folder and the subfolders, the newest first, without duplicates.

    Hidden subfolders are skipped, because they are copies. A subfolder ``latest`` is skipped if it is a link to another
    recording, or a copy: then both recordings end at the same time.
    """
    recordings: dict[str, Path] = {}
    for path in itertools.chain.from_iterable(map(log_dir.glob, _PATTERNS)):
        folder = path.parent
        if folder != log_dir and folder.name.startswith("."):
            continue
        if not path.is_file():  # another user may have put a FIFO there: reading it would never end
            continue
        real = os.path.realpath(path)
        if real not in recordings or not folder.is_symlink():
            recordings[real] = path
    ends = {path: _end_times(path) for path in recordings.values()}
    counts = Counter(end_s for end_s, _ in ends.values())
    for path, (end_s, _) in list(ends.items()):
        if path.parent.name == LATEST and counts[end_s] > 1:
            del ends[path]
    return sorted(ends, key=ends.__getitem__, reverse=True)


def write_time(path: Path) -> float:
    """Return the time of the last write; 0 if the file is missing, because the recorder may just have replaced it."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _end_times(path: Path) -> tuple[float, float]:
    """Return, as a sort key, the end of the recording and the time of the last write to the file.

    The end is read from the session, because the file may be a copy that was written much later.
    """
    written = write_time(path)
    with suppress(OSError, ValueError):
        end = re.search(_END, read_head(path))
        if end is not None:
            start = moment_of(end[1].decode()).timestamp()
            return start + float(end[2]), written
    return written, written


def read_head(path: Path) -> bytes:
    """Return the first bytes of a session, where each line is a key with a value. Raises OSError."""
    with reading.reader(path) as file:  # does not wait if a FIFO has taken the file's place
        return file.read(_HEAD)


def check_exists(path: Path, log_dir: Path) -> None:
    """Raise NncfToolsError with a suggestion if a path does not exist. If there is no suggestion, do nothing."""
    if path.exists():
        return
    if not set("*?[").isdisjoint(path.name):
        raise NncfToolsError(f"{path}: no such file; write the pattern without quotes, or after --base or --new")
    with suppress(OSError):
        names = {str(path.with_name(file.name)) for file in path.parent.iterdir()}
        if path.name != str(path) or log_dir.is_dir():
            names |= {*WORDS}
        suggestion = nearest(str(path), sorted(names))
        if suggestion:
            raise NncfToolsError(f"{path}: cannot be read: No such file or directory; did you mean {suggestion}?")


def claim_files(target: Destination, *, snapshots: bool) -> RecordingFiles:
    """Create the journal, the marks log and, if ``snapshots``, the log of the snapshot helper, for this run alone.

    Raises UsageError.
    """
    with writing(target.option, target.journal, UsageError):
        target.place.check()
        folder = target.place.descriptor_path
        with ExitStack() as undo:
            undo.callback(target.remove_folder)
            journal = reading.create(folder / target.journal.name, replace=target.force)
            undo.callback(os.close, journal)
            undo.callback(reading.remove, target.journal, journal)
            if target.folder is None:
                for ending in (reading.SNAPSHOTS_ENDING, *SIDECARS):
                    (folder / target.beside(ending).name).unlink(missing_ok=True)
            files = RecordingFiles(target, journal, snapshots=snapshots)
            undo.pop_all()
            return files


class RecordingFiles:
    """The open files of a running recording. They can be used even if somebody moves or removes the paths."""

    def __init__(self, target: Destination, journal: int, *, snapshots: bool) -> None:
        """Open the journal a second time, for reading, because the sampler gets the descriptor ``journal``.

        Raises OSError.
        """
        self._target = target
        self.locked = journal
        """The sampler's descriptor of the journal, which holds the file lock and only appends; -1 after ``hand_over``.
        """
        with ExitStack() as stack, ExitStack() as made:

            def create(path: Path) -> int:
                file = target.place.descriptor_path / path.name
                descriptor = above_standard(os.open(file, NEW_LOG, reading.PRIVATE))
                stack.callback(os.close, descriptor)
                made.callback(reading.remove, path, descriptor)
                return descriptor

            self.journal = stack.enter_context(reading.reader(target.journal, journal))
            self.marks = create(target.marks)
            os.write(self.marks, b" ")  # a missing blank shows that the command emptied the log
            self.snapshots = create(target.snapshots) if snapshots else None
            """Descriptor of the snapshot helper's log; None without a helper."""
            made.pop_all()
            self._open = stack.pop_all()

    def hand_over(self) -> None:
        """Close our copy of the journal's descriptor ``locked``, which the sampler has inherited.

        So the lock on the journal ends when the sampler ends.
        """
        os.close(self.locked)
        self.locked = -1

    def open_marks(self) -> BinaryIO:
        """Open the marks log for reading from the beginning."""
        return _reopen(self.marks)

    def read_snapshots(self) -> bytes:
        """Return the content of the snapshot helper's log; empty without a helper."""
        if self.snapshots is None:
            return b""
        with _reopen(self.snapshots) as log:
            return log.read()

    def surviving_journal(self) -> Path:
        """Return the path of the journal; if another file has taken the path, return a copy of the journal.

        Raises OSError.
        """
        path = self._target.journal
        if reading.leads_to(path, self.journal.fileno()):
            return path
        import shutil
        import tempfile

        copy = Path(tempfile.mkdtemp(prefix="nncf-tools-"), path.name)
        self.journal.seek(0)
        with os.fdopen(reading.create(copy, replace=False), "wb") as file:
            shutil.copyfileobj(self.journal, file)
        return copy

    def remove(self) -> None:
        """Remove the logs after the session is written; do not remove files that others put in their places."""
        target = self._target
        logs = {target.journal: self.journal.fileno(), target.marks: self.marks}
        if self.snapshots is not None:
            logs[target.snapshots] = self.snapshots
        for path, descriptor in logs.items():
            with suppress(OSError):
                reading.remove(path, descriptor)

    def abandon(self) -> None:
        """Remove all files of a run that never started."""
        self.remove()
        self._target.remove_folder()

    def close(self) -> None:
        """Close all descriptors."""
        self._open.close()
        if self.locked >= 0:
            self.hand_over()


def _reopen(descriptor: int) -> BinaryIO:
    log = os.fdopen(os.dup(descriptor), "rb")
    log.seek(0)
    return log
