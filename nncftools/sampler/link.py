"""The messages between starter and sampler: JSON Lines through two pipes that no other process can reach.

The sampler is the process that makes a recording, and the starter is the process that has started the sampler. The
starter first sends the order (``Order``), and later these messages:

- ``{"signal": N}``: the starter has received the signal N;
- ``{"release": FD}``: the starter no longer relays the command's output from the descriptor FD;
- ``{"answer": true}``: all signals that the starter received before the message ``ask`` have been sent;
- ``{"stop": true}``: the recording must end.

When the starter is gone, this pipe is closed. The sampler then relays the command's output, so that the command keeps a
working terminal.

The sampler sends these messages:

- ``{"started": PID}``: the command was started;
- ``{"start": …}``: the line ``start`` of the journal;
- ``{"sampled": true}``: the first sample was taken;
- ``{"ask": true}``: the starter must send all signals received so far, and then the answer;
- ``{"exit": …}``: the command has ended, and will be reaped;
- ``{"end": …}``: the last line of the journal.

When the sampler is gone, this pipe is closed.

``OutputRelay`` relays the command's output, and ``DeviceRelay`` relays the lines of the helper that reads devices.
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
        """The order to make a recording, from the starter (the process that started the sampler).

        The order is never written to a file.
        """

        plan: PlanFields
        argv: list[str]
        """The words of the command. They are decoded as latin-1, because the words may contain any bytes."""
        marks: str | None
        """The path of the marks log. Any write to this file triggers a sample. None if there is no marks log."""
        blocked: list[int]
        """The signals that were blocked in the process that started the sampler. They must be blocked in the command.
        """
        ignored: list[int]
        """The signals that were ignored in the process that started the sampler. The command must ignore these signals,
        but the sampler must not.
        """
        descriptors: int | None
        """The soft limit of open files for the command. None if the process that started the sampler has not raised the
        limit.
        """
        relays: list[tuple[int, int]]
        """Pairs ``(source, sink)`` of descriptors. If the process that started the sampler is killed, the sampler
        copies the command's output from the source to the sink.
        """
        devices: int | None
        """The descriptor of the pipe from the helper that reads GPUs and NPUs. None if there is no helper."""
        detached: bool
        """Whether the sampler records the process that started it. If so, the sampler is not a child of this process.
        """
        ends_with_starter: bool
        """Whether the recording ends when the process that started the sampler has ended."""


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
    """Return a value as a line of JSON."""
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


class LineReader:
    """Reads lines from a pipe as they arrive."""

    is_open = True
    """Whether the other process still had the pipe open at the last call of ``lines``."""
    _rest = b""

    def __init__(self, descriptor: int) -> None:
        """Read from ``descriptor``. The command does not inherit this descriptor."""
        os.set_inheritable(descriptor, False)
        self.descriptor = descriptor

    def lines(self) -> list[bytes]:
        """Return the lines that have arrived since the last call. The descriptor must be non-blocking.

        A call stops reading after ``_LONGEST_LINE`` bytes. A longer line is dropped.
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
    """The sampler's ends of the two pipes to the starter (the process that started the sampler)."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        """Read from ``incoming``, and write to ``outgoing``. The command inherits neither descriptor."""
        super().__init__(incoming)
        os.set_inheritable(outgoing, False)
        self._outgoing = outgoing

    def next_message(self) -> dict[str, Any] | None:
        """Wait for the next message. Return None if the other process is gone."""
        while b"\n" not in self._rest:
            data = os.read(self.descriptor, _CHUNK)
            if not data:
                return None
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(text)
        return message

    def order(self) -> Any:  # noqa: ANN401 — an Order, as JSON has it
        """Wait for the order. Raises EOFError if the process that started the sampler ends before sending an order."""
        order = self.next_message()
        if order is None:
            raise EOFError("the starter is gone")
        os.set_blocking(self.descriptor, False)
        return order

    def send(self, key: str, value: object = True) -> None:  # noqa: FBT002 — JSON's true, for a key without a value
        """Send the message ``{key: value}``. Do nothing if the other process is gone."""
        with suppress(OSError):
            write_all(self._outgoing, encode_line({key: value}))

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived since the last call."""
        return list(map(json.loads, self.lines()))


class StarterLink(Link):
    """The ends of the two pipes to the sampler, in the starter (the process that started the sampler)."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        super().__init__(incoming, outgoing)
        self.received: dict[str, Any] = {}
        """All messages of the sampler so far, merged into a single dictionary."""

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[tuple[StarterLink, tuple[int, int]]]:
        """Open both pipes; yield the starter's link, and the pair of descriptors for the sampler.

        At the end of the ``with`` block, the sampler's descriptors are closed. After an exception, the starter's link
        is closed, too.
        """
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
        """Send the order to make a recording. If the order is longer than the buffer of the pipe, wait.

        Later messages wait for a second at most.
        """
        with suppress(BrokenPipeError):  # the sampler has failed, and the exit status will show the failure
            write_all(self._outgoing, encode_line(order))
        os.set_blocking(self._outgoing, False)

    def send_message(self, key: str, value: object = True) -> bool:  # noqa: FBT002 — JSON's true
        """Send ``{key: value}`` to the sampler; return whether the sampler is still there.

        The order to make a recording is sent first, and may fill the pipe. If the pipe is full, wait at most a second
        until the sampler reads. If the pipe is still full, drop the message: the sampler may be stopped (SIGSTOP).
        """
        try:
            has_room(self._outgoing, _ROOM_WITHIN_MS)
            os.write(self._outgoing, encode_line({key: value}))
        except BlockingIOError:
            return True
        except (OSError, ValueError):  # ValueError: the pipe is closed here
            return False
        return True

    def listen(self) -> dict[str, Any]:
        """Receive messages until the sampler ends; return all messages, merged into a single dictionary."""
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
    """Relays the command's output when the starter (the process that started the sampler) has ended.

    Before that, the starter itself relays the output, and the descriptors that are open here keep the command's
    terminals and pipes alive.
    """

    _done: _thread.LockType | None = None

    def __init__(self, relays: Sequence[tuple[int, int]]) -> None:
        """Keep pairs ``(source, sink)`` of descriptors. The command inherits none of these descriptors."""
        self.relays = dict(relays)
        """Maps a source (the descriptor from which the output is read) to the sink (the descriptor to which the output
        is written). A source is removed when no process can write to the source any more.
        """
        for descriptor in (*self.relays, *self.relays.values()):
            os.set_inheritable(descriptor, False)

    def release(self, source: int) -> None:
        """Close a source and its sink, so that the command notices the end.

        The process that started this one has closed the same source before.
        """
        sink = self.relays.pop(source, None)
        if sink is not None:
            os.close(source)
            os.close(sink)

    def begin(self) -> None:
        """Start to relay in a thread, because a terminal that accepts no output must not stop the sampling."""
        if self.relays and self._done is None:
            self._done = _thread.allocate_lock()
            self._done.acquire()
            _thread.start_new_thread(self._run, (self._done,))

    def finish(self) -> None:
        """Close standard output and error of this process. Then wait until no process can write to a source of output.

        The program ``tee`` waits in the same way. If ``begin`` has not started a thread, do nothing.
        """
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
    """Copy the output that has arrived; return whether more may come. If the sink is closed, drop the output."""
    try:
        data = os.read(source, _CHUNK)
    except OSError:  # EIO: the last writer has closed the terminal
        return False
    with suppress(OSError):
        write_all(sink, data)
    return bool(data)


_SILENT_S = 3.0
"""If a reading is this late, a warning says that the driver did not answer."""


class DeviceRelay(LineReader):
    """Writes the lines of a helper process to the journal. The helper reads GPUs and NPUs. Runs in the sampler."""

    def __init__(self, descriptor: int, write_line: WriteLine, start_ns: int) -> None:
        """Read from ``descriptor``. The recording began at ``start_ns`` (CLOCK_MONOTONIC)."""
        super().__init__(descriptor)
        os.set_blocking(descriptor, False)
        self._write_line = write_line
        self._start_ns = start_ns
        self._sources = {"GPUs and NPUs": (0.0, 0.0)}
        """Maps a kind of device to a pair: the time of the last reading, and the time at which the next reading is due.
        """
        self.columns: set[str] = set()
        """The columns of all readings so far."""

    def take(self, now_s: float) -> None:
        """Write the lines that have arrived to the journal. Warn if the helper was killed."""
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
        """Write the last lines to the journal. Warn if a driver's reading is more than ``_SILENT_S`` seconds late."""
        if self.is_open:
            self.take(end_s)
        for source, (read_s, due_s) in self._sources.items():
            if self.is_open and end_s - due_s > _SILENT_S:
                since = f"since {read_s:.1f} s" if read_s else f"in the {end_s:.1f} s of the run"
                self._write_line("warning", f"memory of {source} is unknown: the driver did not answer {since}")


_IN_MODIFY = 0x2
_SHARE = 10
"""After a sample for a mark, the next sample for a mark is delayed by this many times the duration of the sample. So
samples for marks take at most about 1 / 10 of the time.
"""


class MarkWatch:
    """Takes a sample after any write to the marks log (inotify(7), Linux only)."""

    _rests_until_ns = 0
    is_due = False
    """Whether there are marks for which no sample was taken yet. If so, the next regular sample is also the sample for
    these marks.
    """

    def __init__(self, path: str, sample: Callable[[], None]) -> None:
        """Watch an existing file. Raises OSError, or AttributeError on a system without inotify."""
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if libc.inotify_add_watch(self.descriptor, os.fsencode(path), _IN_MODIFY) < 0:  # also fails for descriptor -1
            raise OSError(ctypes.get_errno(), "inotify")
        self._sample = sample

    def take(self) -> None:
        """Take a sample for new marks. During the pause after the last such sample, set ``is_due`` instead."""
        try:
            os.read(self.descriptor, 1 << 16)
        # no new marks: after --duration, the loop calls this method twice without a sleep in between
        except BlockingIOError:
            return
        begun_ns = time.monotonic_ns()
        self.is_due = begun_ns < self._rests_until_ns
        if not self.is_due:
            self._sample()
            ended_ns = time.monotonic_ns()
            self._rests_until_ns = ended_ns + (ended_ns - begun_ns) * _SHARE
