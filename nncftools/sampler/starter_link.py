"""The starter's ends of the pipes between command line and sampler; ``link.py`` says what goes through them."""

from __future__ import annotations

import contextlib
import json
import os
import select
from typing import TYPE_CHECKING, Any

from nncftools.files import above_standard, write_all
from nncftools.sampler import link

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nncftools.sampler.link import Order

_CHUNK = 1 << 16
_ROOM_WITHIN_S = 1.0


class StarterLink:
    """The starter's ends of the two pipes."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        """Read from ``incoming``, write to ``outgoing``."""
        self.incoming = incoming
        self._outgoing = outgoing
        self._rest = b""
        self.told: dict[str, Any] = {}
        """What the sampler has said."""

    @classmethod
    @contextlib.contextmanager
    def opened(cls) -> Iterator[tuple[StarterLink, tuple[int, int]]]:
        """Yield our ends, closed when starting fails, and the sampler's, which are its alone afterwards."""
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

    def send(self, order: Order) -> None:
        """Send the order, which may be longer than a pipe holds; what follows is short, and never waits."""
        data = json.dumps(order, separators=(",", ":")).encode("ascii") + b"\n"
        with contextlib.suppress(BrokenPipeError):  # the sampler has failed: seen at its end
            write_all(self._outgoing, data)
        os.set_blocking(self._outgoing, False)

    def send_message(self, key: str, value: object = True) -> bool:  # noqa: FBT002 — JSON's true
        """Say something; return whether there is a sampler to say it to.

        The end of a long order may still fill the pipe. A sampler that is stopped is not waited for beyond a second.
        """
        try:
            select.select([], [self._outgoing], [], _ROOM_WITHIN_S)
            os.write(self._outgoing, link.line(key, value))
        except BlockingIOError:
            return True
        except (OSError, ValueError):  # ValueError: closed
            return False
        return True

    def next_message(self) -> dict[str, Any]:
        """Return the sampler's next message, an empty one at its end."""
        while b"\n" not in self._rest:
            data = os.read(self.incoming, _CHUNK)
            if not data:
                return {}
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(text)
        return message

    def listen(self) -> dict[str, Any]:
        """Return all that the sampler says up to its end."""
        while message := self.next_message():
            if link.ASK in message:
                self.send_message(link.ANSWER)
            self.told.update(message)
        return self.told

    def hang_up(self) -> None:
        """Close the way to the sampler."""
        if self._outgoing >= 0:
            os.close(self._outgoing)
        self._outgoing = -1

    def close(self) -> None:
        """Close both."""
        self.hang_up()
        if self.incoming >= 0:
            os.close(self.incoming)
        self.incoming = -1
