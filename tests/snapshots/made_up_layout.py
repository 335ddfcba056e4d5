"""What a Python writes at the beginning of ``_PyRuntime``: its version, and where the fields of its memory lie."""

from __future__ import annotations

import struct

from nncftools.snapshots.finding import _COOKIE, _MOST_WORDS, _ORDERS, published_layout

FIELDS = """
runtime size=283320 finalizing=608 interpreters=632
interpreter size=194968 id=7272 next=7264 threads=7344
thread size=304 next=8 interpreter=16 frame=72 pthread_id=152 thread_id=160
frame size=80 previous=8 code=0 instruction=56 locals=72 owner=70
code size=208 file=112 plain_name=120 name=128 lines=136 first_line=68 argument_count=52 local_names=96 local_kinds=104 bytecode=200
object size=16 type=8
type size=416 name=24
tuple size=32 items=24 count=16
dict size=48 keys=32 values=40
bytes size=40 count=16 bytes=32
string size=64 state=32 length=16 ascii_size=40 wide_size=56
"""  # noqa: E501 — a line for each struct
OFFSETS: dict[str, dict[str, int]] = {}
for line in FIELDS.split("\n")[1:-1]:
    struct_name, *pairs = line.split(" ")
    OFFSETS[struct_name] = {name: int(offset) for name, offset in (pair.split("=") for pair in pairs)}
"""The offsets of Python 3.13.0, by struct; sizes of others are 64, and other fields are at the beginning."""


def words_of(version: int, offsets: dict[str, dict[str, int]] | None = None) -> list[int]:
    """Return the words from the cookie on, in the order of a version, or else in the newest one."""
    words = [int.from_bytes(_COOKIE, "little"), 3 << 24 | version << 16 | 0xF0, 0]
    of = {}
    for text in _ORDERS.get(version, _ORDERS[max(_ORDERS)]).split():
        name = text
        if text.endswith(".size"):
            struct_name, name = text.split(".")
            of = (offsets or OFFSETS).get(struct_name, {"size": 64})
        words.append(of.get(name, 0))
    return words


def packed(words: list[int]) -> bytes:
    """Return words as they are read from memory; zeros follow."""
    return struct.pack(f"<{_MOST_WORDS}Q", *words[:_MOST_WORDS], *[0] * (_MOST_WORDS - len(words)))


def layout_of(version: int) -> dict[str, int]:
    """Return the layout with these offsets."""
    return published_layout(packed(words_of(version)))[1]
