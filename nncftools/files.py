"""Write output files completely or not at all, and never to another user's files. Also has helpers for descriptors."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat

TYPE_CHECKING = False  # the sampler loads this module without typing
if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator
    from typing import BinaryIO


_STANDARD_ERROR = 2
_MOST_LINKS = 40
"""The largest number of symbolic links to follow, as in Linux."""
FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_PERMISSIONS = 0o777
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_LOG = NEW | os.O_APPEND
_STREAM = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
_STREAM |= os.O_NOFOLLOW | os.O_CLOEXEC
HELPER_PROCESS = os.path.join(os.path.dirname(__file__), "helper_process.py")  # noqa: PTH118, PTH120 — no pathlib
"""The path of the program of our processes that run beside the command."""
_MADE: set[tuple[int, int]] = set()
"""Device and inode of each file that this process made. Only these files may be replaced in a folder that every user
may write to."""


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[BinaryIO]:
    """Yield a binary file for the content of an output. All outputs are written through this function.

    A regular file is written under another name in the same folder and renamed at the end, with the permissions of the
    earlier file. After an error, the earlier file stays. A descriptor, a device or a FIFO gets the whole content at the
    end: see ``file_behind``. Raises OSError.
    """
    file = file_behind(path)
    if file is None:
        stream = _open_stream(path)
        try:
            content = io.BytesIO()
            yield content
            write_all(stream, content.getvalue())
        finally:
            os.close(stream)
        return
    name = f".{os.urandom(4).hex()}.{file.name}"
    with Folder(file.parent) as opened_folder:
        folder = opened_folder.descriptor
        mode = None
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(file.name, dir_fd=folder).st_mode & _PERMISSIONS
        beside = above_standard(os.open(name, NEW, 0o666 if mode is None else mode, dir_fd=folder))
        try:
            with os.fdopen(beside, "w+b") as opened:
                if mode is not None:
                    with contextlib.suppress(OSError):  # the file system may have no permissions
                        os.fchmod(beside, mode)  # restores permissions that the umask removed
                yield opened
                opened.flush()
                os.fsync(beside)
                _note_made(beside)
            os.replace(name, file.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            raise


def write_file(path: pathlib.Path, content: bytes) -> None:
    """Write a whole output, or keep the earlier file if that fails. If the name ends in ``.gz``, the output is gzipped.

    Raises OSError if writing fails, and for a link or file of another user, a folder, a socket or a disk.
    """
    if path.name.lower().endswith(".gz"):
        import gzip

        content = gzip.compress(content, mtime=0)
    with replacing(path) as output:
        output.write(content)


def ending_in(name: str) -> str:
    """Return the ending of a file name in lower case, ignoring ``.gz``: ``".json"``; empty if there is none."""
    return os.path.splitext(name.lower().removesuffix(".gz"))[1]  # noqa: PTH122 — no pathlib here


def file_behind(path: pathlib.Path) -> pathlib.Path | None:
    """Return the regular file that a write to ``path`` makes or replaces; None for a descriptor, device or FIFO.

    Symbolic links are followed. Raises OSError for a link or file of another user, and for a folder, a socket or a
    disk.
    """
    path = _follow_links(path)
    if _is_descriptor(path):
        path.stat()  # fails if the descriptor is closed: later, a file of ours may get the number
        return None
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), Folder(path.parent) as folder:
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            _refuse_other_device(status, path)
            return None
        _refuse_other_file(status, path, folder)
    return path


def _open_stream(path: pathlib.Path) -> int:
    """Open a descriptor, a device or a FIFO for writing, and return a new descriptor. Raises OSError.

    If no program reads from the FIFO, this is an error: do not wait for a reader.
    """
    path = _follow_links(path)
    if _is_descriptor(path):
        return above_standard(os.dup(int(path.name)))
    try:
        stream = above_standard(os.open(path, _STREAM))
    except OSError as error:
        if error.errno == errno.ENXIO and path.is_fifo():
            raise OSError(errno.ENXIO, "no program reads from this FIFO", str(path)) from error
        raise
    try:
        _refuse_other_device(os.fstat(stream), path)
        os.set_blocking(stream, True)
    except OSError:
        os.close(stream)
        raise
    return stream


def _is_descriptor(path: pathlib.Path) -> bool:
    """Return whether a path is ``/dev/fd/N`` or another name of the same descriptor."""
    own_folders = {os.path.realpath("/dev/fd"), os.path.realpath("/proc/self/fd")}
    return path.name.isdecimal() and os.path.realpath(path.parent) in own_folders


def _refuse_other_file(status: os.stat_result, path: pathlib.Path, folder: Folder) -> None:
    """Raise OSError if this user must not replace a regular file.

    In a folder where every user may rename files, only files that this process made may be replaced. Root may also
    replace another user's file if that user owns the folder and the working folder, as in a container with a mounted
    checkout.
    """
    owner = status.st_uid
    folder_status = os.fstat(folder.descriptor)
    if is_open_to_all(folder_status) and (status.st_dev, status.st_ino) not in _MADE:
        raise OSError(errno.EEXIST, "the file exists, and every user may replace it; choose a new name", str(path))
    is_in_checkout = os.geteuid() == 0 and owner == folder_status.st_uid == os.stat(".").st_uid  # noqa: PTH116 — no pathlib here
    if owner != os.geteuid() and not is_in_checkout:
        raise _refusal(f"it belongs to another user ({_name_user(owner)})", path)


def _refusal(reason: str, path: pathlib.Path) -> OSError:
    return OSError(errno.EPERM, reason, str(path))


def _note_made(descriptor: int) -> None:
    status = os.fstat(descriptor)
    _MADE.add((status.st_dev, status.st_ino))


def _refuse_other_device(status: os.stat_result, path: pathlib.Path) -> None:
    """Raise OSError for a device or FIFO of another user, and for a socket or a disk."""
    is_stream = stat.S_ISCHR(status.st_mode) or stat.S_ISFIFO(status.st_mode)
    reason = other_owner(status) if is_stream else "is a socket or a disk"
    if reason:
        raise _refusal(f"it {reason}", path)


class Folder(contextlib.AbstractContextManager["Folder"]):
    """A folder for outputs.

    The folder is kept open, so that nobody can put another folder in the same place: see docs/internals/promises.md.
    """

    def __init__(self, path: pathlib.Path, *, make: bool = False) -> None:
        """Open the folder. If ``make`` is true, first create missing folders.

        Raises OSError if another user could move or replace the files.
        """
        self.descriptor, self.is_shared = _open_folder(path, make=make)
        """``is_shared``: whether every user may rename files in this folder or in a folder above."""
        self.path = path.absolute()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor of the folder."""
        os.close(self.descriptor)

    @property
    def descriptor_path(self) -> pathlib.Path:
        """A path that leads through the open descriptor to the folder. On systems without /proc, the plain path."""
        name = type(self.path)(f"/proc/self/fd/{self.descriptor}")
        return name if name.exists() else self.path

    def check(self) -> None:
        """If the user's command has replaced the folder, open the new folder.

        Raises OSError if another user may have replaced the folder.
        """
        with contextlib.suppress(OSError):
            if os.path.samestat(self.path.stat(), os.fstat(self.descriptor)):
                return
        if self.is_shared:
            raise _refusal(f"{self.path} is another folder now", self.path)
        descriptor, self.is_shared = _open_folder(self.path, make=True)
        os.close(self.descriptor)
        self.descriptor = descriptor


def _open_folder(path: pathlib.Path, *, make: bool) -> tuple[int, bool]:
    """Open a folder. Return the descriptor, and whether every user may rename files in a folder of ``path``.

    All folders of ``path`` are opened one after another. A relative path begins at the working folder, because nobody
    can replace the working folder. Raises OSError.
    """
    folder = os.open(".", FOLDER)
    names = list(reversed(path.parts))
    if not path.is_absolute():
        names.append(".")
    links = 0
    is_shared = False
    try:
        while names:
            name = names.pop()
            if make:
                with contextlib.suppress(FileExistsError, IsADirectoryError):
                    os.mkdir(name, dir_fd=folder)
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode) and links < _MOST_LINKS:
                links += 1
                _refuse_link(status, path)
                names += reversed(type(path)(os.readlink(name, dir_fd=folder)).parts)
                continue
            parent = folder
            folder = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=parent)
            os.close(parent)
            status = os.fstat(folder)
            _refuse_folder(status, name)
            is_shared |= is_open_to_all(status)
    except OSError:
        os.close(folder)
        raise
    return above_standard(folder), is_shared


def _refuse_folder(status: os.stat_result, name: str) -> None:
    """Raise OSError if the owner of a folder is not trusted, because the owner could replace the files in the folder.

    Trusted owners are this user, root and the owner of the root folder. Root also trusts the owner of the working
    folder. Members of a group trust each other.
    """
    trusted = os.stat("." if os.geteuid() == 0 else "/")  # noqa: PTH116 — no pathlib here
    reason = other_owner(status, os.stat("/").st_uid, trusted.st_uid)  # noqa: PTH116
    is_of_group = status.st_mode & stat.S_IWGRP and not status.st_mode & stat.S_IWOTH
    groups = {os.getegid(), *os.getgroups()}
    if reason and not (is_of_group and status.st_gid in groups):
        raise OSError(errno.EPERM, f"the folder {name!r} {reason}")


def is_open_to_all(status: os.stat_result) -> bool:
    """Return whether every user may change a file, or rename the files in a folder.

    ``status`` is the status of the file or folder. In a sticky folder, only the owners may rename files.
    """
    is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    return bool(status.st_mode & stat.S_IWOTH) and not is_sticky


def other_writer(status: os.stat_result) -> str:
    """Return why another user may change a file or folder, as the end of a sentence; empty if no other user may."""
    return "may be changed by every user" if is_open_to_all(status) else other_owner(status)


def open_ours(path: pathlib.Path) -> int:
    """Make a log file in place of an earlier log; return a descriptor that only appends.

    Raises OSError for a link, a device, a pipe, or a file of another user; nothing is changed then.
    """
    if file_behind(path) != path:
        raise _refusal("it is a symbolic link, a device or a pipe", path)
    with Folder(path.parent) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=folder.descriptor)
        log = above_standard(os.open(path.name, NEW_LOG, 0o666, dir_fd=folder.descriptor))
    _note_made(log)
    return log


def open_output(path: pathlib.Path) -> int:
    """Open an output that grows while a command runs; return the descriptor. Raises OSError.

    A new file replaces an earlier file. A descriptor, a device or a FIFO is opened for writing.
    """
    file = file_behind(path)
    return _open_stream(path) if file is None else open_ours(file)


def _follow_links(path: pathlib.Path) -> pathlib.Path:
    """Follow symbolic links and return the path. Raises OSError if a link belongs to another user."""
    for _ in range(_MOST_LINKS):
        if _is_descriptor(path) or not path.is_symlink():
            return path
        _refuse_link(path.lstat(), path)
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _refuse_link(status: os.stat_result, path: pathlib.Path) -> None:
    reason = other_owner(status)
    if reason:
        raise _refusal(f"it is a symbolic link that {reason}", path)


def other_owner(status: os.stat_result, *trusted: int) -> str:
    """Return a text that names the owner, if the owner is another user.

    Empty if the owner is this user, root or a user in ``trusted``.
    """
    if status.st_uid in {os.geteuid(), 0, *trusted}:
        return ""
    return f"belongs to another user ({_name_user(status.st_uid)})"


def _name_user(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data`` to a descriptor. Raises OSError."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another program has made the shared terminal or pipe non-blocking
            has_room(descriptor)


def has_room(descriptor: int, within_ms: int | None = None) -> bool:
    """Wait until a pipe or terminal has room for data; return whether there is room.

    If ``within_ms`` is None, wait without limit. Raises ValueError for a negative descriptor.
    """
    import select

    poll = select.poll()  # select() would not accept descriptors above 1,023
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(within_ms))


def descriptors_in_use() -> int:
    """Return the number of descriptors that this process has open; 0 if unknown."""
    try:
        return len(os.listdir("/dev/fd")) - 1  # noqa: PTH208 — without the descriptor of the folder
    except OSError as error:
        if error.errno != errno.EMFILE:
            return 0
        import resource

        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def above_standard(descriptor: int) -> int:
    """Move a descriptor to a number above 2, so that no program mistakes the file for a standard stream.

    If standard streams are closed, a new file gets a number from 0 to 2.
    """
    if descriptor > _STANDARD_ERROR:
        return descriptor
    import fcntl

    above = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _STANDARD_ERROR + 1)
    os.close(descriptor)
    return above
