"""Read input from outside safely: files in limited memory, numbers within ranges, command lines without secrets.

The JSON decoder checks the range of each number; the annotated type has the range. ``docs/limits-and-mistakes.md``
lists the limits.
"""

from __future__ import annotations

import datetime as dt
import gzip
import io
import os
import pathlib
import re
import select
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf
from operator import le
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

import msgspec

from nncftools.backports import moment_of
from nncftools.errors import SessionFileError
from nncftools.units import printable, shortened

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


Progress = Callable[[int, int | None], None]
"""A function that is called with the bytes read so far, and the total (None if unknown)."""

LARGEST = 2.0**63
"""Upper limit of sizes, counts and nanoseconds."""
LATEST_S = 1e10
"""Upper limit of seconds since the start, and of Unix seconds (the year 2286)."""
LARGEST_PID = 2**31 - 1
"""The largest PID that is accepted. The kernel's own limit is 2^22 (proc(5))."""
_LARGEST_WHOLE = 2**63 - 1
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=_LARGEST_WHOLE)]
Size = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST_WHOLE)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Pid = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_PID)]
ExitNumber = Annotated[int, msgspec.Meta(ge=0, le=255)]
"""An exit status or the number of a signal."""
Figure = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Level = Annotated[float, msgspec.Meta(ge=0, le=LARGEST)]
Seconds = Annotated[float, msgspec.Meta(ge=-LATEST_S, le=LATEST_S)]
Duration = Annotated[float, msgspec.Meta(ge=0, le=LATEST_S)]
_SHOWN = 40
_LONGEST_LOCATION = 100


class Limits(NamedTuple):
    """Limits for the content of files. No recording by `monitor` reaches these limits."""

    size: int = 2 << 30
    """The largest size of an unpacked file in bytes: several times the size of a recording with a million samples."""
    processes: int = 200_000
    marks_of_recording: int = 50_000
    marks_of_process: int = 20_000
    marks_of_operation: int = 1_000
    """The largest number of operations in a marks log that are listed directly inside another operation. The two fields
    before are the limits for the whole log and for a process. Operations above a limit are joined and counted."""
    warnings: int = 10_000
    table_bytes: int = 10_000_000
    table_rows: int = 1_000
    """The largest number of rows in a table of compressed models. A longer table would be unreadable, and a picture
    would have no room for the names."""
    packed_ratio: int = 800
    """The largest factor by which a file may grow when unpacked. The factor is checked once the unpacked size exceeds
    64 MiB. Recordings grow by a factor of 3 to 30, and idle recordings by at most 600."""


LIMITS = Limits()


class WrongValueError(ValueError):
    """An invalid value. The message has the location, the expected value and the actual value."""


def moment(text: str) -> dt.datetime:
    """Parse a time in ISO 8601 with a time zone.

    Raises ValueError, also if the time is before 1970 or after 2286.
    """
    time = moment_of(text)
    if time.tzinfo is None:
        raise ValueError(f"a time with its zone expected, as in 2026-11-21T07:00:00+01:00, found {shown(text)!r}")
    if not 0 <= time.timestamp() <= LATEST_S:
        raise ValueError(f"a year from 1970 to 2286 expected, found {shown(text)!r}")
    return time


def is_pid(text: str) -> bool:
    """Return whether a text can be a PID."""
    return re.fullmatch(r"\d{1,10}", text) is not None and int(text) <= LARGEST_PID


def check_rising(times: Sequence[float], location: str) -> None:
    """Raise WrongValueError if a time is before the previous time."""
    if all(map(le, times, times[1:])):
        return
    for number, (before, after) in enumerate(pairwise(times), start=1):
        if not before <= after:
            raise error_at(f"{location}[{number}]", f"time goes back from {before} to {after}")


def check_columns(key: str, time_s: Sequence[float], *others: Sequence[object]) -> None:
    """Raise WrongValueError if columns have different lengths, or if times go back."""
    if any(len(column) != len(time_s) for column in others):
        raise error_at(key, "columns of the same length expected")
    check_rising(time_s, f"{key}.time_s")


def shown(value: object) -> str:
    """Return a value from outside as text for a message: shortened and printable."""
    text = value if isinstance(value, str) else repr(value)
    return printable(shortened(text, _SHOWN))


def unknown_text(count: int, location: str) -> str:
    """Return the warning that values out of range count as unknown.

    ``location`` is the location of the first such value.
    """
    return f"values out of range count as unknown: {count:,}, the first at `{printable(location)}`"


def error_at(location: str, problem: str) -> WrongValueError:
    """Return an error that names the location of a value and the problem."""
    place = printable(shortened(location, _LONGEST_LOCATION))
    return WrongValueError(f"at `{place}`: {problem}")


_OUT_OF_RANGE = re.compile(r"(?:Number out of range|Expected `(?:int|float)` ([<>]=) (\S+))(?: - at `\$(.*)`)?")
_STEP = re.compile(r"\.(\w+)|\[[^]]*\]")


def decode(raw: bytes, kind: Any, path: str, warnings: list[str]) -> Any:  # noqa: ANN401 — of any field
    """Decode JSON to the type ``kind``. A number out of range becomes None, and a warning counts such numbers.

    If the type does not allow None for the number, the object or list around the number becomes None. ``path`` is the
    location of ``raw`` in the whole document, for messages. Raises WrongValueError for any other invalid value.
    """
    earlier = ""
    while True:
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            text = str(error) if "at `$" in str(error) else f"{error} - at `$`"
            text = text.replace("`$", f"`{path}", 1)
            match = _OUT_OF_RANGE.fullmatch(str(error))
            if match is not None:
                limit = LARGEST if match[2] is None else msgspec.json.decode(match[2])
                low = limit if match[1] == ">=" else -inf
                high = inf if match[1] == ">=" else limit
                location = match[3] or ""
                steps = ["", *_STEP.findall(location)]
                original = raw
                earlier = text
                up = 0
            elif earlier and "`null`" in text:  # the type does not allow None
                up += 1
            else:
                raise WrongValueError(text) from error
            document = [msgspec.json.decode(original)]
            count = set_unknown(document, steps, low, high, up=up)
            if not count or up == len(steps):
                raise WrongValueError(earlier) from error
            if not up:
                warnings.append(unknown_text(count, path + location))
            raw = msgspec.json.encode(document[0])


def set_unknown(value: Any, steps: Sequence[str], low: float, high: float, up: int = 0) -> int:  # noqa: ANN401 — of any field
    """Set numbers out of range to None; return how many.

    ``steps`` is the path of keys to the numbers; an empty key stands for every key. If ``up`` is 1, the object or list
    with the number becomes None in place of the number; if ``up`` is 2, the object or list around that, and so on.
    """
    step, *inner = steps
    keys: Iterable[Any] = [step]
    if not step:
        keys = list(value) if isinstance(value, dict) else range(len(value))
    count = 0
    for key in keys:
        item = value.get(key) if isinstance(value, dict) else value[key]
        wrong = 0
        if inner and isinstance(item, dict | list):
            wrong = set_unknown(item, inner, low, high, up=up)
        elif not inner and isinstance(item, int | float):
            wrong = int(not low <= item <= high)
        if wrong and len(inner) == up:
            value[key] = None
        count += wrong
    return count


UTF_8_MARK = b"\xef\xbb\xbf"
"""Byte-order mark of UTF-8, which is ignored. Some editors and PowerShell write the mark at the start of a file."""
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
GZIP = b"\x1f\x8b"
_PIECE = 1 << 16
_FREE = 64 << 20
"""A gzip file may always unpack to this number of bytes. ``Limits.packed_ratio`` applies only to larger content."""
_WRITER_S = 3.0
"""Seconds to wait for a program that writes to a FIFO."""
_PAUSE_S = 0.05
_READ = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_BINARY"):
    _READ |= getattr(os, _name, 0)
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
"""Exceptions that a damaged or truncated gzip file raises."""


def open_file(path: pathlib.Path, problem: str = "a file expected", *, may_wait: bool = True) -> io.BufferedReader:
    """Open a file for reading; with ``may_wait``, also a FIFO.

    Raises SessionFileError, also for other kinds of files; ``problem`` is the end of the message in this case.
    """
    try:
        descriptor = os.open(path, _READ)
        mode = os.fstat(descriptor).st_mode
        if may_wait and stat.S_ISFIFO(mode):
            return io.BufferedReader(_Fifo(descriptor), _PIECE)
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            raise SessionFileError(f"{path}: cannot be read: {problem}")
        return os.fdopen(descriptor, "rb")
    except OSError as error:
        raise SessionFileError(f"{path}: cannot be read: {error.strerror or error}") from error


class _Fifo(io.FileIO):
    """A FIFO. Reading waits for a writer, at most 3 s. As soon as a writer has opened the FIFO, there is no limit."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._until_s: float | None = time.monotonic() + _WRITER_S

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not (count := super().readinto(buffer)):
            if count is None:  # there is a writer, but no data yet
                self._until_s = None
                self._poll.poll()
                continue
            # with POLLIN, a writer opened, wrote and closed the FIFO after the read above
            has_closed = (self.fileno(), select.POLLHUP) in self._poll.poll(0)
            if self._until_s is None or has_closed:
                return 0
            if time.monotonic() > self._until_s:
                raise OSError(f"no program has opened this FIFO for writing within {_WRITER_S:g} seconds")
            time.sleep(_PAUSE_S)
        self._until_s = None
        return count


def read_file(path: pathlib.Path, *, most: int | None = None, may_wait: bool = True) -> bytes:
    """Return the unpacked content of a file (with ``may_wait``, also of a FIFO) without a byte-order mark.

    Raises SessionFileError, also if the content has more than ``most`` bytes.
    """
    with open_file(path, may_wait=may_wait) as file:
        return content(file, path, most)


def content(file: BinaryIO, path: pathlib.Path, most: int | None = None) -> bytes:
    """Return the content of an open file: unpacked if gzipped, and without a byte-order mark.

    Raises SessionFileError if the file cannot be read, or has more than ``most`` bytes. If ``most`` is None, the limit
    is ``LIMITS.size``.
    """
    data = io.BytesIO()  # unlike joining parts, getvalue() does not copy the content
    limit = LIMITS.size if most is None else min(most, LIMITS.size)
    try:
        for piece in pieces(file, path):
            data.write(piece)
            if data.tell() > limit:
                raise too_large(path, limit)
    except DAMAGED as error:
        raise SessionFileError(f"{path}: the gzip archive is damaged or cut off: {error}") from error
    except OSError as error:
        raise SessionFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except MemoryError as error:
        raise too_large(path, data.tell()) from error
    return data.getvalue()


def size_of(file: BinaryIO) -> int | None:
    """Return the size of an open file in bytes; None for a FIFO. For a gzip file, the size is the compressed size."""
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def check_size(file: BinaryIO, path: pathlib.Path) -> None:
    """Raise SessionFileError if a file is too large.

    The size is checked before reading, because a sparse file may be huge although the file takes no disk space.
    """
    if (size_of(file) or 0) > LIMITS.size:
        raise too_large(path, LIMITS.size)


def too_large(path: pathlib.Path, limit: int) -> SessionFileError:
    """Return the error that a file is larger than ``limit`` bytes."""
    size = f"{limit >> 30} GiB" if limit >= 1 << 30 else f"{limit:,} bytes"
    return SessionFileError(f"{path}: larger than {size}, the largest file that is read")


def pieces(file: BinaryIO, path: pathlib.Path) -> Iterator[bytes]:
    """Yield the unpacked content of a file in short parts, without a byte-order mark.

    Raises SessionFileError if the file unpacks to far more bytes than any recording. Also raises OSError, and the
    exceptions in ``DAMAGED`` for a damaged gzip file.
    """
    counted = io.BufferedReader(Counted(file), _PIECE)
    read = counted.raw
    is_packed = counted.peek(len(GZIP))[: len(GZIP)] == GZIP
    source = gzip.GzipFile(fileobj=counted) if is_packed else counted
    total = 0
    piece = source.read1(_PIECE).removeprefix(UTF_8_MARK) or source.read1(_PIECE)  # a lone mark is not the end
    while piece:
        total += len(piece)
        ratio = LIMITS.packed_ratio
        if is_packed and total > max(_FREE, ratio * read.count):
            raise SessionFileError(f"{path}: unpacks to more than {ratio} times the file size, unlike any recording")
        yield piece
        piece = source.read1(_PIECE)


def begin(packed: bytes, most: int) -> bytes:
    """Unpack the start of a gzip file, to at most ``most`` bytes. If the file is damaged, return no bytes."""
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, most)
    except zlib.error:
        return b""


class Counted(io.RawIOBase):
    """Wraps a file: counts the bytes read, and reports them to ``progress``."""

    def __init__(self, file: BinaryIO, progress: Progress | None = None) -> None:
        super().__init__()
        self._file = file
        self._progress = progress
        self.count = 0

    def readable(self) -> bool:  # noqa: D102 — as in io.RawIOBase
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:  # noqa: D102 — as in io.RawIOBase
        read: int = self._file.readinto(buffer)  # type: ignore[attr-defined] # every binary file has it
        self.count += read
        if self._progress is not None:
            self._progress(self.count, size_of(self._file))
        return read


HIDDEN = "***"
_OF_A_MODEL = (
    "pad", "eos", "bos", "unk", "sep", "cls", "mask", "special", "start", "end", "stop", "image", "audio", "video",
    "prompt", "num", "max", "min", "new", "per", "first", "last", "next",
)  # fmt: skip
"""Kinds of tokens that are not secret: `--pad-token` and similar options are settings of a tokenizer."""
_TOKEN = "".join(f"(?<!{kind}[-_])" for kind in _OF_A_MODEL) + "token"
_NAME = (
    rf"(?:pass(?:word|wd|phrase|code)?|secret|credentials?|{_TOKEN}|api[-_]?key"
    r"|(?:access|private|secret|account|auth)[-_]?key)"
)
_KEY = rf"(?:[\w.-]*[-_.])?{_NAME}"
_VARIABLE = r"[\w.-]*(?:_KEY|_PWD|PASSWORD|PASSWD|PASSPHRASE|(?<![\w.-])KEY)"
"""Matches a name in capitals, such as `PGPASSWORD` or `WANDB_KEY`. In capitals, a name counts as secret more easily."""
_SECRET = rf"(?:(?i:{_KEY})|{_VARIABLE})"
_NAME_START = r"(?<![\w.-])"
"""Matches only at the start of a name. Without this condition, a word of 100,000 letters would take minutes."""
_QUOTED = r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\."
_VALUE = rf"(?:{_QUOTED}|[^\s;&|])+"
"""Matches a word in a shell command line."""
# Patterns are compiled on first use: two patterns for whole words take 3 ms, and most words do not need them.
_WHOLE_OPTION = rf"(?i)--?{_KEY}"
_WHOLE_SETTING = rf"[-+]{{0,2}}{_SECRET}="
_SCRIPT_NEXT = r"-\w*c"
"""Matches an option as in `sh -c`: the next word is a command line, and only a part of it may be secret."""
_SETTINGS = (
    ("=", rf"{_NAME_START}({_SECRET})( ?=(?!=) ?){_VALUE}", r"\1\2***"),
    ("-", rf"(?i){_NAME_START}(--?{_KEY}\s+)(?!-){_VALUE}", r"\1***"),
    (":", rf"(?i){_NAME_START}({_KEY}(?:\\?[\"']\s*:\s*|:\s+)){_VALUE}", r"\1***"),
)
"""Patterns for secret settings and options in a word of a command. A word may itself be a whole shell command line. An
entry is ``(text, pattern, replacement)``; the pattern is only tried if the word contains the text."""
_TOKENS = (
    (":", r"(?i)\b(authorization[\"']?\s*:\s*[\"']?)[^\"'\n]+", r"\1***"),
    ("://", r"(://)[^\s/@:]*:[^\s/]+@", r"\1***@"),
    ("://", r"(https?://)[^\s/@:]+@", r"\1***@"),
    ("bearer", r"(?i)\b(bearer)\s+[\w.~+/=-]{8,}", r"\1 ***"),
    ("hf_", r"(?<![A-Za-z0-9])hf_(?=[A-Za-z0-9]*[0-9A-Z]|[A-Za-z0-9]{20})[A-Za-z0-9]{6,}", HIDDEN),
    ("sk-", r"(?<![A-Za-z0-9])sk-(?=[\w-]{20}|[\w-]*[0-9A-Z])[\w-]{6,}", HIDDEN),
    ("_", r"(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_)[\w-]{10,}", HIDDEN),
    ("-", r"(?<![A-Za-z0-9])(?:glpat-|xox[abprs]-|nvapi-|pypi-)[\w-]{10,}", HIDDEN),
    ("ia", r"(?<![A-Za-z0-9])A[KS]IA[0-9A-Z]{16}", HIDDEN),
    ("aiza", r"(?<![A-Za-z0-9])AIza[\w-]{35}", HIDDEN),
    ("npm_", r"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}", HIDDEN),
    ("eyj", r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", HIDDEN),
)
"""Patterns for secrets in headers and URLs, and for known tokens, in a word of a command. An entry is ``(text, pattern,
replacement)``. The pattern is only tried if the word in lower case contains the text. Most words contain none of the
texts, so patterns are compiled on first use (together 3 ms). Each pattern takes linear time, because a word may have
128 KiB."""
_TEXT = r"\"(?:\\.|[^\"\\])*|'(?:\\.|[^'\\])*"
"""Matches a string in a line of Python, without the closing quotation mark, because the string may end in a later
line."""
_STRING = rf"(?:\b[A-Za-z]{{1,2}})?(?:{_TEXT})[\"']?"
_OPERATOR = r"\]*\s*(?::[^=,;\"'(){}]{0,80}=(?!=)|[:!+]?={1,2}|:)"
_IN_CODE = rf"(?:{_SECRET}|(?i:[\w.]*(?:pwd|_key|authorization))|[a-z]\w*(?:Token|Password|Secret|Key))"
"""Matches a name that counts as secret in code. More names count than on a command line. A string that is hidden by
mistake does little harm, because a reader can find the line in the source file."""
_ASSIGNMENT = (
    rf"((?:{_NAME_START}{_IN_CODE}|[\"']-{{0,2}}{_IN_CODE}[\"'](?:\s*,)?)(?:(?<=,)|{_OPERATOR}))"
    rf"((?:{_STRING}|\((?:{_STRING}|[^\"'()])*\)|[^,;\"'])*)"
)
"""Matches an assignment to a secret name, such as ``token: str = "x"`` or ``"token": "x"``. Groups: name and operator,
value."""


class Redaction:
    """Hides secrets in texts, by known patterns and by patterns of the user."""

    def __init__(self, more: Sequence[str] | None = ()) -> None:
        """Also hide matches of the user's regular expressions ``more``; None: hide nothing at all.

        If an expression has a group, only the first group is hidden.
        """
        self._is_off = more is None
        self._more = [re.compile(pattern) for pattern in more or ()]

    def words(self, words: Sequence[str]) -> list[str]:
        """Return the words of a command line with secrets hidden."""
        if self._is_off:
            return list(words)
        safe = []
        previous = ""
        for word in words:
            setting = None
            if "=" in word and not re.fullmatch(_SCRIPT_NEXT, previous):
                setting = re.match(_WHOLE_SETTING, word)
            if setting is not None:
                safe.append(setting[0] + HIDDEN)
            elif previous.startswith("-") and not word.startswith("-") and re.fullmatch(_WHOLE_OPTION, previous):
                safe.append(HIDDEN)
            else:
                safe.append(self.text(word))
            previous = word
        return safe

    def text(self, text: str) -> str:
        """Return a text, such as a shell command line, with secrets hidden."""
        if self._is_off:
            return text
        return self._hide_more(_replace(text, _SETTINGS + _TOKENS))

    def code(self, line: str) -> str:
        """Return a line of Python code with secrets hidden.

        Secrets are known tokens, and strings that are assigned to a name such as ``password``.
        """
        if self._is_off:
            return line
        line = re.sub(f"{_ASSIGNMENT}|({_TEXT})([\"']?)", _hide_strings, line)
        return self._hide_more(_replace(line, _TOKENS))

    def _hide_more(self, text: str) -> str:
        for pattern in self._more:
            text = pattern.sub(_hide, text)
        return text


def _replace(text: str, patterns: Sequence[tuple[str, str, str]]) -> str:
    folded = text.lower()
    for part, pattern, replacement in patterns:
        if part in folded:
            text = re.sub(pattern, replacement, text)
    return text


def _hide_strings(match: re.Match[str]) -> str:
    """Return the matched code with secrets hidden.

    If a string is assigned to a secret name, the whole string is hidden. In any other string, only the values of secret
    settings are hidden, such as ``x`` in ``--password x``.
    """
    if match[3] is not None:
        return _replace(match[3], _SETTINGS) + match[4]
    value = re.sub(rf"{_STRING}(?:\s*{_STRING})*", HIDDEN, match[2])
    return match[1] + value


def _hide(match: re.Match[str]) -> str:
    if not match.re.groups or match[1] is None:
        return HIDDEN if match[0] else ""
    head = match.string[match.start() : match.start(1)]
    tail = match.string[match.end(1) : match.end()]
    return head + HIDDEN + tail
