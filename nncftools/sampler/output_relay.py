"""Relays the command's output after the command line, which did so, was killed: the terminal must not vanish."""

from __future__ import annotations

import _thread
import contextlib
import os

from nncftools.files import write_all
from nncftools.sampler.signals import readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_CHUNK = 1 << 16
_STANDARD_OUTPUTS = (1, 2)


class OutputRelay:
    """Keeps the far ends of the command's terminals or pipes open, and reads them when the command line is gone."""

    def __init__(self, relays: Sequence[tuple[int, int]]) -> None:
        """Keep pairs of descriptors: a source of output and its sink. The command inherits none of them."""
        self._relays = dict(relays)
        self._done: _thread.LockType | None = None
        for descriptor in (*self._relays, *self._relays.values()):
            os.set_inheritable(descriptor, False)

    def release(self, source: int) -> None:
        """Close a pair that the command line has closed, so that the command notices."""
        sink = self._relays.pop(source, None)
        if sink is not None:
            os.close(source)
            os.close(sink)

    def begin(self) -> None:
        """Start to read, in a thread: a terminal that accepts no output must not stop the sampling."""
        if self._relays and self._done is None:
            self._done = _thread.allocate_lock()
            self._done.acquire()
            _thread.start_new_thread(self._run, (self._done,))

    def finish(self) -> None:
        """Close our own ends, and wait until the last writer has closed its end, as ``tee`` would."""
        if self._done is None:
            return
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in _STANDARD_OUTPUTS:
            os.dup2(nowhere, descriptor)
        self._done.acquire()

    def _run(self, done: _thread.LockType) -> None:
        while self._relays:
            for source in readable(list(self._relays)):
                if not _relayed(source, self._relays[source]):
                    del self._relays[source]
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
