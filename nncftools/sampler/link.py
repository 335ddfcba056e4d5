"""The messages between starter and sampler: JSON Lines through two pipes that no other process can reach.

To the sampler: the order first, then ``{"signal": N}`` for each signal that the starter received, ``{"release": FD}``
for a relay that has ended, ``{"answer": true}``, or ``{"stop": true}``. This pipe closes when the starter is gone. The
sampler then relays the command's output, so that the command keeps a working terminal.

From the sampler: ``{"started": PID}``, ``{"start": …}`` as in the journal, ``{"sampled": true}`` with the first sample,
``{"exit": …}`` before the command is reaped, and ``{"end": …}``, the journal's last line. After ``{"ask": true}``, the
starter first sends all signals received so far, then the answer. When this pipe closes, the sampler is gone.

``OutputRelay`` relays the command's output, and ``DeviceRelay`` the lines of the helper that reads devices.
``MarkWatch`` takes a sample when an operation is marked.
"""

from __future__ import annotations

import _thread
import json
import os
import time
from contextlib import contextmanager, suppress

from nncftools.files import above_standard, has_room, write_all
from nncftools.sampler.target import wait_readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypedDict

    from nncftools.journal.reading import PlanFields
    from nncftools.sampler.tree import WriteLine

    class Order(TypedDict):
        """The recording that the sampler makes; never written to a file."""

        plan: PlanFields
        argv: list[str]
        """The command and its arguments, a character per byte (latin-1): arguments need not be text."""
        marks: str | None
        """The marks log: any write to this file triggers a sample."""
        blocked: list[int]
        """Signals that were blocked in the starter; they are blocked in the command."""
        ignored: list[int]
        """Signals that the starter ignored: the command must ignore them, the sampler must not."""
        descriptors: int | None
        """The command's soft limit of open files, if the starter raised the limit."""
        relays: list[tuple[int, int]]
        """Pairs of descriptors: the source of the command's output, and the sink when the starter is killed."""
        devices: int | None
        """The descriptor of the pipe from the helper that reads GPUs and NPUs, if there is such a helper."""
        detached: bool
        """Whether the sampler records the starter, and is therefore not a child; the sampler then ends with the
        starter.
        """


STARTED = "started"
START = "start"
SAMPLED = "sampled"
EXIT = "exit"
END = "end"
ASK = "ask"
SIGNAL = "signal"
STOP = "stop"
RELEASE = "release"
ANSWER = "answer"
_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 20
_ROOM_WITHIN_MS = 1_000


def encode_line(value: object) -> bytes:
    """Return a line of JSON."""
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


class LineReader:
    """Reads lines from a pipe as they arrive."""

    is_open = True
    """Whether the other process is still there, as far as ``lines`` has seen."""
    _rest = b""

    def __init__(self, descriptor: int) -> None:
        """Read from ``descriptor``; the command does not inherit this descriptor."""
        os.set_inheritable(descriptor, False)
        self.descriptor = descriptor

    def lines(self) -> list[bytes]:
        """Return the lines that have arrived since the last call; the descriptor does not block.

        A call takes at most the size of the longest line; a line that is longer is dropped.
        """
        with suppress(BlockingIOError):
            while self.is_open and len(self._rest) < _LONGEST_LINE:
                data = os.read(self.descriptor, _CHUNK)
                self.is_open = bool(data)
                self._rest += data
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest if len(rest) < _LONGEST_LINE else b""
        return lines


class Link(LineReader):
    """The sampler's ends of the two pipes."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        """Read from ``incoming``, write to ``outgoing``; the command inherits neither."""
        super().__init__(incoming)
        os.set_inheritable(outgoing, False)
        self._outgoing = outgoing

    def next_message(self) -> dict[str, Any] | None:
        """Wait for the next message; return None when the other process is gone."""
        while b"\n" not in self._rest:
            data = os.read(self.descriptor, _CHUNK)
            if not data:
                return None
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(text)
        return message

    def order(self) -> Any:  # noqa: ANN401 — an Order, as JSON has it
        """Wait for the order. Raises EOFError when the starter ends before sending an order."""
        order = self.next_message()
        if order is None:
            raise EOFError("the starter is gone")
        os.set_blocking(self.descriptor, False)
        return order

    def send(self, key: str, value: object = True) -> None:  # noqa: FBT002 — JSON's true, for a key without a value
        """Send a message, if the starter is still there."""
        with suppress(OSError):
            write_all(self._outgoing, encode_line({key: value}))

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived since the last call."""
        return list(map(json.loads, self.lines()))


class StarterLink(Link):
    """The starter's ends of the two pipes."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        """Read from ``incoming``, write to ``outgoing``."""
        super().__init__(incoming, outgoing)
        self.received: dict[str, Any] = {}
        """The sampler's messages so far."""

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[tuple[StarterLink, tuple[int, int]]]:
        """Yield our ends and the sampler's ends; then close the sampler's ends and, after a failure, ours."""
        theirs_in, ours_out = map(above_standard, os.pipe())
        ours_in, theirs_out = map(above_standard, os.pipe())
        ours = cls(ours_in, ours_out)
        try:
            yield ours, (theirs_in, theirs_out)
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    def send_order(self, order: Order) -> None:
        """Send the order, which may be longer than a pipe holds; later messages are short, and never block."""
        with suppress(BrokenPipeError):  # the sampler has failed, as the exit status shows
            write_all(self._outgoing, encode_line(order))
        os.set_blocking(self._outgoing, False)

    def send_message(self, key: str, value: object = True) -> bool:  # noqa: FBT002 — JSON's true
        """Send a message; return whether the sampler is still there.

        A long order may still fill the pipe: wait up to a second, because the sampler may be stopped.
        """
        try:
            has_room(self._outgoing, _ROOM_WITHIN_MS)
            os.write(self._outgoing, encode_line({key: value}))
        except BlockingIOError:
            return True
        except (OSError, ValueError):  # ValueError: closed
            return False
        return True

    def listen(self) -> dict[str, Any]:
        """Return all messages of the sampler until the sampler ends."""
        while (message := self.next_message()) is not None:
            if ASK in message:
                self.send_message(ANSWER)
            self.received.update(message)
        return self.received

    def hang_up(self) -> None:
        """Close the pipe to the sampler."""
        if self._outgoing >= 0:
            os.close(self._outgoing)
        self._outgoing = -1

    def close(self) -> None:
        """Close both pipes."""
        self.hang_up()
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


class OutputRelay:
    """Keeps the far ends of the command's terminals or pipes open, and reads them when the command line is gone."""

    _done: _thread.LockType | None = None

    def __init__(self, relays: Sequence[tuple[int, int]]) -> None:
        """Keep pairs of descriptors: a source of output and a sink. The command inherits none of them."""
        self.relays = dict(relays)
        """The pairs whose sources still have a writer."""
        for descriptor in (*self.relays, *self.relays.values()):
            os.set_inheritable(descriptor, False)

    def release(self, source: int) -> None:
        """Close a pair that the command line has closed, so that the command notices."""
        sink = self.relays.pop(source, None)
        if sink is not None:
            os.close(source)
            os.close(sink)

    def begin(self) -> None:
        """Start to read, in a thread: a terminal that accepts no output must not stop the sampling."""
        if self.relays and self._done is None:
            self._done = _thread.allocate_lock()
            self._done.acquire()
            _thread.start_new_thread(self._run, (self._done,))

    def finish(self) -> None:
        """Close our own ends, and wait until the last writer has closed the other end, as ``tee`` would."""
        if self._done is None:
            return
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)
        self._done.acquire()

    def _run(self, done: _thread.LockType) -> None:
        while self.relays:
            for source in wait_readable(list(self.relays)):
                if not _relay(source, self.relays[source]):
                    del self.relays[source]
        done.release()


def _relay(source: int, sink: int) -> bool:
    """Relay the output that has arrived; return whether more may come. If the sink is gone, the output is dropped."""
    try:
        data = os.read(source, _CHUNK)
    except OSError:  # EIO: the last writer has closed the terminal
        return False
    with suppress(OSError):
        write_all(sink, data)
    return bool(data)


_SILENT_S = 3.0
"""A driver that is this late with a reading is reported as not answering."""


class DeviceRelay(LineReader):
    """In the sampler: passes the helper's lines on to the journal."""

    def __init__(self, descriptor: int, write_line: WriteLine, start_ns: int) -> None:
        """Read from ``descriptor``, not inherited by the command; the recording began at ``start_ns``."""
        super().__init__(descriptor)
        os.set_blocking(descriptor, False)
        self._write_line = write_line
        self._start_ns = start_ns
        self._sources = {"GPUs and NPUs": (0.0, 0.0)}
        """The time of the last reading of each kind of device, and the time when the next reading is due."""
        self.columns: set[str] = set()
        """The columns of all readings so far."""

    def take(self, now_s: float) -> None:
        """Write the lines that have arrived; warn when the helper was killed."""
        for text in self.lines():
            # a driver may print any text
            with suppress(ValueError, TypeError, KeyError, AttributeError):
                for key, value in json.loads(text).items():
                    self._take_line(key, value, now_s)
        if self._sources and not self.is_open:
            self._warn("devices", now_s, "the process that asks the drivers ended early")

    def _take_line(self, key: str, value: Any, now_s: float) -> None:  # noqa: ANN401 — as JSON has it
        if key == "sources":
            self._sources = dict.fromkeys(value, (0.0, 0.0))
        elif key == "ended":
            source, error = value
            del self._sources[source]
            if error:
                self._warn(source, now_s, error)
        elif key == "devices":
            read_s = (value.pop("t_ns") - self._start_ns) / 1e9
            value["at_s"] = read_s = max(0.0, round(read_s, 6))
            self._sources[value.pop("of")] = (read_s, read_s + value.pop("next_s"))
            self.columns.update(value["values"])
            if value["values"]:
                self._write_line(key, value)
        elif key in {"device", "warning"}:
            self._write_line(key, value)

    def _warn(self, devices: str, now_s: float, reason: str) -> None:
        self._write_line("warning", f"memory of {devices} is unknown from {now_s:.1f} s on: {reason}")

    def finish(self, end_s: float) -> None:
        """Write the last lines, and warn if the drivers have not answered for a while."""
        if self.is_open:
            self.take(end_s)
        for source, (read_s, due_s) in self._sources.items():
            if self.is_open and end_s - due_s > _SILENT_S:
                since = f"since {read_s:.1f} s" if read_s else f"in the {end_s:.1f} s of the run"
                self._write_line("warning", f"memory of {source} is unknown: the driver did not answer {since}")


_IN_MODIFY = 0x2
_SHARE = 10
"""Samples for marks take at most this fraction of the time: 1 / 10."""


class MarkWatch:
    """Any write to the marks log triggers a sample (inotify(7), Linux only)."""

    _rests_until_ns = 0
    is_due = False
    """Whether marks wait for the next sample."""

    def __init__(self, path: str, sample: Callable[[], None]) -> None:
        """Watch an existing file. Raises OSError; AttributeError where there is no inotify."""
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if libc.inotify_add_watch(self.descriptor, os.fsencode(path), _IN_MODIFY) < 0:  # also for descriptor -1
            raise OSError(ctypes.get_errno(), "inotify")
        self._sample = sample

    def take(self) -> None:
        """Take a sample for new marks, or wait for the next one if such samples have just taken too much time."""
        try:
            os.read(self.descriptor, 1 << 16)
        except BlockingIOError:  # no new marks: after --duration, a second step follows without a sleep
            return
        begun_ns = time.monotonic_ns()
        self.is_due = begun_ns < self._rests_until_ns
        if not self.is_due:
            self._sample()
            ended_ns = time.monotonic_ns()
            self._rests_until_ns = ended_ns + (ended_ns - begun_ns) * _SHARE
