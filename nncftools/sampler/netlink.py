"""The part of generic netlink that a subscription needs (include/uapi/linux/netlink.h, genetlink.h).

The ``socket`` module would cost 1 MiB of resident memory; ``_socket``, its core, costs next to nothing.
"""

from __future__ import annotations

import _socket
import errno
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

HEADERS = 20
"""Bytes of struct nlmsghdr and struct genlmsghdr, with which every message begins."""
_GENERIC_NETLINK = 16
_CONTROLLER, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_REQUEST, _ACKNOWLEDGE = 1, 4
_ERROR = 2
_SO_RCVBUFFORCE = 33
_LONGEST = 4096


class Netlink:
    """A socket of one generic netlink family."""

    def __init__(self, family: str, buffer_bytes: int) -> None:
        """Find the family; the kernel buffers up to ``buffer_bytes`` of messages. Raises OSError."""
        self._socket = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, _GENERIC_NETLINK)
        try:
            self._socket.bind((0, 0))
            self._socket.setsockopt(_socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer_bytes)
            answer = self._ask(_CONTROLLER, _GET_FAMILY, _FAMILY_NAME, family.encode() + b"\0")
            found = dict(attributes(answer, HEADERS))
            self._family = int.from_bytes(found[_FAMILY_ID][:2], "little")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def ask(self, command: int, attribute: int, value: bytes) -> None:
        """Send a command with one attribute to the family and wait for the answer. Raises OSError."""
        self._ask(self._family, command, attribute, value)

    def _ask(self, family: int, command: int, attribute: int, value: bytes) -> bytes:
        padded = value + b"\0" * (-len(value) % 4)
        body = struct.pack("=BBHHH", command, 1, 0, 4 + len(value), attribute) + padded
        self._socket.send(struct.pack("=IHHII", 16 + len(body), family, _REQUEST | _ACKNOWLEDGE, 0, 0) + body)
        answer = b""
        while True:
            data = self._socket.recv(_LONGEST)
            if struct.unpack_from("=H", data, 4)[0] != _ERROR:
                answer = data
                continue
            (code,) = struct.unpack_from("=i", data, 16)
            if code:
                raise OSError(-code, os.strerror(-code))
            return answer

    def received(self) -> Iterator[bytes]:
        """Yield the waiting messages. Raises OSError with ENOBUFS when some were lost."""
        while True:
            try:
                yield self._socket.recv(_LONGEST, _socket.MSG_DONTWAIT)
            except BlockingIOError:
                return


def attributes(data: bytes, place: int) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and value of each attribute from offset ``place`` on."""
    while place + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, place)
        if length < 4:  # noqa: PLR2004 — the attribute's own header
            raise OSError(errno.EBADMSG, "a netlink attribute without length")
        yield kind, data[place + 4 : place + length]
        place += (length + 3) & ~3
