"""Write files completely or not at all, and only this user's files; also help with descriptors."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat

TYPE_CHECKING = False  # the sampler loads this module, but not typing
if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator
    from typing import BinaryIO


_STANDARD_ERROR = 2
_MOST_LINKS = 40
"""Number of symbolic links to follow, as in Linux."""
FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_PERMISSIONS = 0o777
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_LOG = NEW | os.O_APPEND
_STREAM = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
_STREAM |= os.O_NOFOLLOW | os.O_CLOEXEC
_MADE: set[tuple[int, int]] = set()
"""Device and inode of each file made by this process; these files may be replaced in any folder."""


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[BinaryIO]:
    """Yield a binary file for a whole output; every output is written this way.

    A regular file is written under another name in the same folder, and renamed at the end; an error leaves the earlier
    file, and the new file gets the permissions of the earlier file. A descriptor, a device and a FIFO get the whole
    content at the end: see ``file_behind``. Raises OSError.
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
                    with contextlib.suppress(OSError):  # a file system without permissions
                        os.fchmod(beside, mode)  # the umask has removed some permissions
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
    """Write a whole output, or leave the earlier file; gzipped if the name ends in ``.gz``.

    Raises OSError like ``replacing``.
    """
    if path.name.lower().endswith(".gz"):
        import gzip

        content = gzip.compress(content, mtime=0)
    with replacing(path) as output:
        output.write(content)


def ending_in(name: str) -> str:
    """Return the ending of a file's name, in lower case and without ``.gz``; empty for none."""
    return os.path.splitext(name.lower().removesuffix(".gz"))[1]  # noqa: PTH122 — no pathlib here


def file_behind(path: pathlib.Path) -> pathlib.Path | None:
    """Return the regular file that a write to ``path`` makes or replaces; None for a descriptor, a device or a FIFO.

    Follow symbolic links. Raises OSError for another user's link or file, and for a folder, a socket or a disk.
    """
    path = _follow_links(path)
    if _is_descriptor(path):
        path.stat()  # fails for a closed descriptor: a file of ours may get its number later
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
    """Open a descriptor, a device or a FIFO without waiting, and return a descriptor. Raises OSError."""
    path = _follow_links(path)
    if _is_descriptor(path):
        return above_standard(os.dup(int(path.name)))
    try:
        stream = above_standard(os.open(path, _STREAM))
    except OSError as error:
        if error.errno == errno.ENXIO:
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
    """Return whether a path is ``/dev/fd/N``, by any name of that folder."""
    own_folders = {os.path.realpath("/dev/fd"), os.path.realpath("/proc/self/fd")}
    return path.name.isdecimal() and os.path.realpath(path.parent) in own_folders


def _refuse_other_file(status: os.stat_result, path: pathlib.Path, folder: Folder) -> None:
    """Raise OSError for a regular file that this user must not replace.

    In a folder where every user may rename, only files made by this process are replaced. Root may replace files of the
    owner of both the folder and the working folder, as in a container with a mounted checkout.
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
    """Raise OSError for another user's device or FIFO, and for a socket or a disk."""
    is_stream = stat.S_ISCHR(status.st_mode) or stat.S_ISFIFO(status.st_mode)
    reason = other_owner(status) if is_stream else "is a socket or a disk"
    if reason:
        raise _refusal(f"it {reason}", path)


class Folder(contextlib.AbstractContextManager["Folder"]):
    """A folder for outputs, held open so that nobody can exchange the folder: see docs/internals/promises.md."""

    def __init__(self, path: pathlib.Path, *, make: bool = False) -> None:
        """Open the folder; with ``make``, create missing folders first.

        Raises OSError if another user could move the files elsewhere.
        """
        self.descriptor, self.is_shared = _open_folder(path, make=make)
        """Whether every user may rename files in this folder, or in a folder above."""
        self.path = path.absolute()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor of the folder."""
        os.close(self.descriptor)

    @property
    def descriptor_path(self) -> pathlib.Path:
        """The folder's path through its descriptor; the plain path on systems without /proc."""
        name = type(self.path)(f"/proc/self/fd/{self.descriptor}")
        return name if name.exists() else self.path

    def check(self) -> None:
        """Open the folder again if the user's command has replaced the folder.

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
    """Open a folder step by step; return the descriptor, and whether a folder on the way lets every user rename.

    A relative path begins at the working folder, which nobody can exchange. Raises OSError.
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
    """Raise OSError for a folder whose owner could exchange the files inside.

    Trusted owners are this user, root, the owner of the root folder and, for root, the owner of the working folder.
    The members of a group trust each other.
    """
    trusted = os.stat("." if os.geteuid() == 0 else "/")  # noqa: PTH116 — no pathlib here
    reason = other_owner(status, os.stat("/").st_uid, trusted.st_uid)  # noqa: PTH116
    is_of_group = status.st_mode & stat.S_IWGRP and not status.st_mode & stat.S_IWOTH
    groups = {os.getegid(), *os.getgroups()}
    if reason and not (is_of_group and status.st_gid in groups):
        raise OSError(errno.EPERM, f"the folder {name!r} {reason}")


def is_open_to_all(status: os.stat_result) -> bool:
    """Return whether every user may change a file, or rename in a folder that is not sticky."""
    is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    return bool(status.st_mode & stat.S_IWOTH) and not is_sticky


def other_writer(status: os.stat_result) -> str:
    """Return why another user may change a file or folder, after its name; empty if no other user may."""
    return "may be changed by every user" if is_open_to_all(status) else other_owner(status)


def open_ours(path: pathlib.Path) -> int:
    """Make a log, replacing an earlier log; return a descriptor that only appends.

    Raises OSError, and changes nothing, for a link, a device, a pipe, and another user's file.
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
    """Open an output that grows while a command runs, and return the descriptor.

    A file is opened as in ``open_ours``; a descriptor, a device and a FIFO, as in ``replacing``. Raises OSError.
    """
    file = file_behind(path)
    return _open_stream(path) if file is None else open_ours(file)


def _follow_links(path: pathlib.Path) -> pathlib.Path:
    """Return the path behind symbolic links. Raises OSError for another user's link."""
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
    """Return a text that names another user as the owner; empty if the owner is this user, root or a trusted user."""
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
    """Write all of ``data``. Raises OSError."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another program made the shared terminal or pipe non-blocking
            has_room(descriptor)


def has_room(descriptor: int, within_ms: int | None = None) -> bool:
    """Wait until a pipe or terminal has room, for ever without a time limit; return whether there is room.

    Raises ValueError for a negative descriptor.
    """
    import select

    poll = select.poll()  # select() accepts no descriptor above 1,023
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(within_ms))


def descriptors_in_use() -> int:
    """Return the number of descriptors that this process has open; 0 for unknown."""
    try:
        return len(os.listdir("/dev/fd")) - 1  # noqa: PTH208 — without the descriptor of the folder
    except OSError as error:
        if error.errno != errno.EMFILE:
            return 0
        import resource

        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def above_standard(descriptor: int) -> int:
    """Return a descriptor above 2 for a file, so that no program mistakes the file for a standard stream.

    When standard streams are closed, new files get the numbers 0 to 2.
    """
    if descriptor > _STANDARD_ERROR:
        return descriptor
    import fcntl

    above = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _STANDARD_ERROR + 1)
    os.close(descriptor)
    return above
