"""The starter's end of the pipes between starter and sampler; ``link.py`` describes the messages."""

from __future__ import annotations

import contextlib
import os
import select
from typing import TYPE_CHECKING, Any

from nncftools.files import above_standard, write_all
from nncftools.sampler import link

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.sampler.link import Order

_ROOM_WITHIN_S = 1.0


class StarterLink(link.Link):
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
            write_all(self._outgoing, link.encoded(order))
        os.set_blocking(self._outgoing, False)

    def send_message(self, key: str, value: object = True) -> bool:  # noqa: FBT002 — JSON's true
        """Send a message; return whether the sampler is still there.

        The end of a long order may still fill the pipe. The wait for a stopped sampler is limited to one second.
        """
        try:
            select.select([], [self._outgoing], [], _ROOM_WITHIN_S)
            os.write(self._outgoing, link.encoded({key: value}))
        except BlockingIOError:
            return True
        except (OSError, ValueError):  # ValueError: closed
            return False
        return True

    def listen(self) -> dict[str, Any]:
        """Return all messages of the sampler up to its end."""
        while (message := self.next_message()) is not None:
            if link.ASK in message:
                self.send_message(link.ANSWER)
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
