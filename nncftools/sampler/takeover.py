"""Passes the command's output on when the command line that did so was killed: its terminal is not to vanish."""

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


class Takeover:
    """Keeps the far ends of the command's terminals or pipes open, and reads them once nobody else does."""

    def __init__(self, relays: Sequence[tuple[int, int]]) -> None:
        """Keep pairs of descriptors: where output arrives, and where it goes. The command gets none of them."""
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
        """Read from now on, in a thread: a terminal that takes no output must not stop the sampling."""
        if self._relays and self._done is None:
            self._done = _thread.allocate_lock()
            self._done.acquire()
            _thread.start_new_thread(self._run, ())

    def finish(self) -> None:
        """Wait until the last writer has closed its end, as ``tee`` would; our own ends are closed."""
        if self._done is None:
            return
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in _STANDARD_OUTPUTS:
            os.dup2(nowhere, descriptor)
        self._done.acquire()

    def _run(self) -> None:
        while self._relays:
            for source in readable(list(self._relays)):
                if not _passed_on(source, self._relays[source]):
                    del self._relays[source]
        if self._done is not None:
            self._done.release()


def _passed_on(source: int, sink: int) -> bool:
    """Pass on what has arrived; return whether more may come. A sink that is gone swallows it."""
    try:
        data = os.read(source, _CHUNK)
    except OSError:  # EIO: the last writer has closed the terminal
        return False
    with contextlib.suppress(OSError):
        write_all(sink, data)
    return bool(data)
