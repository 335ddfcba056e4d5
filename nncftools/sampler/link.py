"""What passes between starter and sampler: JSON Lines through two pipes that no other process can reach.

To the sampler: the order first, then ``{"signal": N}`` for each signal that the starter received, ``{"release": FD}``
for a relay that has ended, ``{"answer": true}``, or ``{"stop": true}``. When this pipe closes, the starter is gone, and
the sampler relays the command's output in its place: the terminal must not vanish.

From the sampler: ``{"started": PID}``, ``{"start": …}`` as in the journal, ``{"sampled": true}`` with the first sample,
``{"exit": …}`` before the command is reaped, and ``{"end": …}``, the journal's last line. After ``{"ask": true}``, the
starter first sends all signals that it received before, then the answer. When this pipe closes, the sampler is gone.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os

from nncftools.files import above_standard, has_room, write_all
from nncftools.sampler.target import readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, TypedDict

    from nncftools.journal.reading import PlanFields
    from nncftools.sampler.tree import WriteLine

    class Order(TypedDict):
        """What the sampler starts and records; never written to a file."""

        plan: PlanFields
        argv: list[str]
        """The command and its arguments, one character per byte (latin-1): arguments need not be text."""
        marks: str | None
        """The marks log: any write to it triggers a sample."""
        blocked: list[int]
        """Signals that were blocked in the starter; they are blocked in the command."""
        ignored: list[int]
        """Signals that the starter ignored but the sampler must not; they are ignored in the command."""
        descriptors: int | None
        """The command's soft limit of open files, if the starter raised its own."""
        relays: list[tuple[int, int]]
        """Pairs of descriptors: the source of the command's output, and its sink when the starter is killed."""
        devices: int | None
        """The descriptor of what the helper reads of GPUs and NPUs, if there is one."""
        detached: bool
        """Whether the sampler records its own starter: it is not the starter's child, and ends with it."""


STARTED, START, SAMPLED, EXIT, END, ASK = "started", "start", "sampled", "exit", "end", "ask"
SIGNAL, STOP, RELEASE, ANSWER = "signal", "stop", "release", "answer"
_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 20
_ROOM_WITHIN_MS = 1_000


def encoded(value: object) -> bytes:
    """Return one line of JSON."""
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


class LineReader:
    """Reads lines from a pipe as they arrive."""

    def __init__(self, descriptor: int) -> None:
        """Read from ``descriptor``, which the command does not inherit."""
        os.set_inheritable(descriptor, False)
        self.descriptor = descriptor
        self.is_open = True
        """Whether the other process is still there, as far as ``lines`` has seen."""
        self._rest = b""

    def lines(self) -> list[bytes]:
        """Return the lines that have arrived since the last call; the descriptor does not block.

        Not more is taken at once than the longest line; a line that is longer is dropped.
        """
        with contextlib.suppress(BlockingIOError):
            while self.is_open and len(self._rest) < _LONGEST_LINE:
                data = os.read(self.descriptor, _CHUNK)
                self.is_open = bool(data)
                self._rest += data
        *whole, rest = self._rest.split(b"\n")
        self._rest = rest if len(rest) < _LONGEST_LINE else b""
        return whole


class Link(LineReader):
    """One end of the two pipes: the sampler's."""

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
        """Wait for the order. Raises EOFError when the starter is gone before."""
        order = self.next_message()
        if order is None:
            raise EOFError("the starter is gone")
        os.set_blocking(self.descriptor, False)
        return order

    def send(self, key: str, value: object = True) -> None:  # noqa: FBT002 — JSON's true, for a key without a value
        """Send a message, if the starter is still there."""
        with contextlib.suppress(OSError):
            write_all(self._outgoing, encoded({key: value}))

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
    @contextlib.contextmanager
    def opened(cls) -> Iterator[tuple[StarterLink, tuple[int, int]]]:
        """Yield our ends and the sampler's; ours are closed when its start fails, and the sampler's in any case."""
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
        """Send the order, which may be longer than a pipe holds; later messages are short, and never wait."""
        with contextlib.suppress(BrokenPipeError):  # the sampler has failed: its exit status says so
            write_all(self._outgoing, encoded(order))
        os.set_blocking(self._outgoing, False)

    def send_message(self, key: str, value: object = True) -> bool:  # noqa: FBT002 — JSON's true
        """Send a message; return whether the sampler is still there.

        The end of a long order may still fill the pipe. The wait for a stopped sampler is limited to one second.
        """
        try:
            has_room(self._outgoing, _ROOM_WITHIN_MS)
            os.write(self._outgoing, encoded({key: value}))
        except BlockingIOError:
            return True
        except (OSError, ValueError):  # ValueError: closed
            return False
        return True

    def listen(self) -> dict[str, Any]:
        """Return all messages of the sampler up to its end."""
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

    def __init__(self, relays: Sequence[tuple[int, int]]) -> None:
        """Keep pairs of descriptors: a source of output and its sink. The command inherits none of them."""
        self.relays = dict(relays)
        """Those whose writers are not gone."""
        self._done: _thread.LockType | None = None
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
        """Close our own ends, and wait until the last writer has closed its end, as ``tee`` would."""
        if self._done is None:
            return
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)
        self._done.acquire()

    def _run(self, done: _thread.LockType) -> None:
        while self.relays:
            for source in readable(list(self.relays)):
                if not _relayed(source, self.relays[source]):
                    del self.relays[source]
        done.release()


def _relayed(source: int, sink: int) -> bool:
    """Relay the output that has arrived; return whether more may come. If the sink is gone, the output is dropped."""
    try:
        data = os.read(source, _CHUNK)
    except OSError:  # EIO: the last writer has closed the terminal
        return False
    with contextlib.suppress(OSError):
        write_all(sink, data)
    return bool(data)


_KEYS = {"devices", "device", "warning"}
_SILENT_S = 3.0
"""So long may a reading take that is due."""


class DeviceRelay(LineReader):
    """Passes the helper's lines on to the journal; in the sampler."""

    def __init__(self, descriptor: int, write_line: WriteLine, start_ns: int) -> None:
        """Read from ``descriptor``, which the command does not inherit; the recording began at ``start_ns``."""
        super().__init__(descriptor)
        os.set_blocking(descriptor, False)
        self._write_line = write_line
        self._start_ns = start_ns
        self._sources = {"GPUs and NPUs": (0.0, 0.0)}
        """What is read: when it was read last, and when the next reading is due."""
        self.columns: set[str] = set()
        """The columns of all readings so far."""

    def take(self, now_s: float) -> None:
        """Write the lines that have arrived; say so when the helper was killed."""
        for text in self.lines():
            with contextlib.suppress(
                ValueError, TypeError, KeyError, AttributeError
            ):  # a driver may print what it likes
                for key, value in json.loads(text).items():
                    self._take_line(key, value, now_s)
        if self._sources and not self.is_open:
            why = "the process that asks the drivers ended early"
            self._write_line("warning", f"memory of devices is unknown from {now_s:.1f} s on: {why}")

    def _take_line(self, key: str, value: Any, now_s: float) -> None:  # noqa: ANN401 — as JSON has it
        if key == "sources":
            self._sources = dict.fromkeys(value, (0.0, 0.0))
        elif key == "ended":
            del self._sources[value[0]]
            if value[1]:
                self._write_line("warning", f"memory of {value[0]} is unknown from {now_s:.1f} s on: {value[1]}")
        elif key == "devices":
            value["at_s"] = read_s = max(0.0, round((value.pop("t_ns") - self._start_ns) / 1e9, 6))
            self._sources[value.pop("of")] = read_s, read_s + value.pop("next_s")
            self.columns.update(value["values"])
        if key in _KEYS and (key != "devices" or value["values"]):
            self._write_line(key, value)

    def finish(self, end_s: float) -> None:
        """Write what is left, and whether the drivers have not answered for a while."""
        if self.is_open:
            self.take(end_s)
        for what, (read_s, due_s) in self._sources.items():
            if self.is_open and end_s - due_s > _SILENT_S:
                since = f"since {read_s:.1f} s" if read_s else f"in the {end_s:.1f} s of the run"
                self._write_line("warning", f"memory of {what} is unknown: the driver did not answer {since}")
