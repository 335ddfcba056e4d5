"""Strategies of Hypothesis that damage a file: its bytes, its lines and words, or the values of its JSON."""

from __future__ import annotations

import gzip
import json
import re
import struct
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Draw = Callable[[st.SearchStrategy[Any]], Any]
    Place = tuple[Any, Any]
    """A list or object, and an index or key in it."""

NUMBERS = (
    *rb"""
0 -0.0 -1 1 0.5 1e308 -1e308 1e999 -1e999 1e-320 NaN Infinity nan inf -inf 9223372036854775807
9223372036854775808 -9223372036854775808 18446744073709551616 99999999999999999999 1e18 1e20 253402300800
10000000001 2147483648 1e15 1_000 0x10 1e-5 3.7 100000 1000000000
""".split(),
    *(b"9" * 400, b"9" * 5000, b"0." + b"0" * 5000 + b"1"),
)
TEXTS = (
    *rb"""
"" "x" "\u0000" "\ud800" "\u001b[31m" "\u202e" "$x^2$" "%s" "{}" "[/b]" "<script>" "|" "2026-11-21T07:00:00Z"
"9999-12-31T23:59:59+00:00" "N/A" "0001-01-01T00:00:00+23:59" "begin" "end" "high_water_mark" "rss" "sampled"
"\n"
""".split(),
    *(b'"\xc3\xa9\xe2\x9c\x93"', b'"\xff"'),
    *(b'"%b"' % (b"x" * 100_000), b'"%b"' % (b"\\u0001" * 20_000), b'"%b"' % b"../" * 1000),
)
SHAPES = (
    *rb"""
null true false [] {} [null] [[]] [0] [0,1] [1,0] [""] {"":0} {"0":null}
""".split(),
    b"[" * 3000 + b"]" * 3000,
    b'{"a":' * 2000 + b"0" + b"}" * 2000,
    b"[" + b"0," * 100_000 + b"0]",
    b"[" + b"[]," * 20_000 + b"[]]",
    b"{" + b",".join(b'"%d":%d' % (number, number) for number in range(20_000)) + b"}",
)
ADDRESSES = (0, 1, 8, 15, 4096, 1 << 20, (1 << 20) + 3000, 1 << 31, 1 << 32, 1 << 47, 1 << 63, 2**64 - 16, 2**64 - 1)
"""Numbers in place of an address, a size or a count."""
TOKENS = st.sampled_from((*NUMBERS, *TEXTS, *SHAPES)) | st.integers().map(lambda number: b"%d" % number)
PLAIN = (
    b"\n",
    b"\r\n",
    b"\0",
    b"-",
    b"e9",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b";",
    b"\t",
    b" 9",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"#",
)
PIECES = st.sampled_from(PLAIN) | TOKENS | st.binary(max_size=8)
_LARGEST = 1_000_000
"""Bytes of a damaged file."""
_WORD = re.compile(rb'"[^"\n]*"|[^\s,:;\[\]{}]+')
_MOMENT = re.compile(rb'"(\w*(?:_s|_ns))"')
_KEEP = re.compile(rb'"@@(\d+)@@"')


@st.composite
def damaged(draw: Draw, content: bytes) -> bytes:
    """Return a file with one to four kinds of damage."""
    if b"\0" * 8 in content:
        return _addresses(draw, content)
    is_packed = content.startswith(b"\x1f\x8b")
    if is_packed and draw(st.booleans()):
        return _bytes(draw, content)
    data = gzip.decompress(content) if is_packed else content
    for _ in range(draw(st.integers(1, 4))):
        change = draw(st.sampled_from((_json, _json, _words, _words, _moments, _lines, _bytes)))
        data = change(draw, data)[:_LARGEST]
    if is_packed or draw(st.integers(0, 30)) == 0:
        return gzip.compress(data, 1, mtime=0)
    return data


def _bytes(draw: Draw, data: bytes) -> bytes:
    """Cut, delete, insert, overwrite or repeat a piece; or change the encoding."""
    begin = draw(st.integers(0, len(data)))
    end = begin + draw(st.integers(0, 40))
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return data[:begin]
    if kind == 1:
        return data[:begin] + data[end:]
    if kind in (2, 3):
        return data[:begin] + draw(PIECES) + data[begin if kind == 2 else end :]
    if kind == 4:
        return data[:end] + data[begin:end] * draw(st.sampled_from((1, 30, 3000))) + data[end:]
    if kind == 5:
        return b"\xef\xbb\xbf" + data
    return data.decode("utf-8", "replace").encode("utf-16")


def _addresses(draw: Draw, data: bytes) -> bytes:
    """Exchange words of a memory: for another one of its words, which makes circles, or for any number; or cut it."""
    changed = bytearray(data)
    words = [at for at in range(0, len(data) - 7, 4) if data[at : at + 8].strip(b"\0")]
    for _ in range(draw(st.integers(1, 6))):
        at = words[draw(st.integers(0, len(words) - 1))]
        other = words[draw(st.integers(0, len(words) - 1))]
        number = draw(st.sampled_from(ADDRESSES) | st.integers(0, 2**64 - 1))
        is_copy = draw(st.booleans())
        changed[at : at + 8] = data[other : other + 8] if is_copy else struct.pack("<Q", number)
    if draw(st.integers(0, 20)) == 0:
        del changed[draw(st.integers(0, len(changed))) :]
    return bytes(changed)


def _moments(draw: Draw, data: bytes) -> bytes:
    """Make moments equal: of some figures of one name, all get the value of the first."""
    names = sorted(set(_MOMENT.findall(data)))
    if not names:
        return _words(draw, data)
    name = names[draw(st.integers(0, len(names) - 1))]
    figures = list(re.finditer(b'"' + name + rb'"\s*:\s*([^\s,{}\[\]]+)', data))
    if not figures:
        return _words(draw, data)
    first = draw(st.integers(0, len(figures) - 1))
    last = draw(st.integers(first, len(figures) - 1))
    for figure in reversed(figures[first : last + 1]):
        data = data[: figure.start(1)] + figures[first][1] + data[figure.end(1) :]
    return data


def _words(draw: Draw, data: bytes) -> bytes:
    """Replace a word by another one, or by one from elsewhere in the file."""
    words = list(_WORD.finditer(data))
    if not words:
        return data
    place = draw(st.integers(0, len(words) - 1))
    other = words[draw(st.integers(0, len(words) - 1))][0] if draw(st.integers(0, 3)) == 0 else draw(TOKENS)
    bare = other.strip(b'"') if draw(st.booleans()) else other
    return data[: words[place].start()] + bare + data[words[place].end() :]


def _lines(draw: Draw, data: bytes) -> bytes:
    """Delete, swap, move or repeat lines."""
    lines = data.splitlines(keepends=True) or [b""]
    one, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        del lines[one]
    elif kind == 1:
        lines[one], lines[other] = lines[other], lines[one]
    elif kind == 2:
        lines.insert(other, lines[one])
    else:
        times = draw(st.sampled_from((2, 100, 10_000)))
        lines[one:one] = [lines[one]] * min(times, _LARGEST // (len(lines[one]) + 1))
    return b"".join(lines)


def _json(draw: Draw, data: bytes) -> bytes:
    """Change a value, a key or the shape of JSON: of the document, or of one of its lines."""
    document, rest = _parsed(draw, data)
    places = list(_places(document))
    if not places:
        return _words(draw, data)
    tokens: list[bytes] = []
    for _ in range(draw(st.integers(1, 3))):
        _change(draw, places[draw(st.integers(0, len(places) - 1))], places, tokens)
    text = json.dumps(document).encode()
    text = _KEEP.sub(lambda found: tokens[int(found[1])], text)
    return rest[0] + text + rest[1]


def _parsed(draw: Draw, data: bytes) -> tuple[Any, tuple[bytes, bytes]]:
    """Return the JSON of the file, or of a line of it, and what comes before and after it."""
    try:
        return json.loads(data), (b"", b"")
    except (ValueError, RecursionError):
        lines = data.split(b"\n")
    place = draw(st.integers(0, len(lines) - 1))
    try:
        return json.loads(lines[place]), (
            b"".join(one + b"\n" for one in lines[:place]),
            b"\n" + b"\n".join(lines[place + 1 :]),
        )
    except (ValueError, RecursionError):
        return None, (b"", b"")


def _places(document: Any, depth: int = 0) -> Iterator[Place]:  # noqa: ANN401 — any JSON
    if depth > 50 or not isinstance(document, dict | list):
        return
    keys = list(document) if isinstance(document, dict) else range(min(len(document), 200))
    for key in keys:
        yield document, key
        yield from _places(document[key], depth + 1)


def _change(draw: Draw, place: Place, places: list[Place], tokens: list[bytes]) -> None:
    of, key = place
    kind = draw(st.integers(0, 7))
    if isinstance(of, list) and not 0 <= key < len(of):
        return
    if isinstance(of, dict) and key not in of:
        return
    if kind == 0:
        del of[key]
    elif kind == 1 and isinstance(of, list):
        of[key:key] = [of[key]] * draw(st.sampled_from((1, 2, 300)))
    elif kind == 2:
        other, name = places[draw(st.integers(0, len(places) - 1))]
        if name in (other if isinstance(other, dict) else range(len(other))):
            copy = json.dumps(other[name])
            of[key] = json.loads(copy if len(copy) < _LARGEST else "0")
    elif kind == 3 and isinstance(of, dict):
        of[draw(st.sampled_from(("", "rss", "time_s", "id", "x\0", "\ud800", "1e9", "-1", "each", "rss@npu0")))] = of[
            key
        ]
    elif kind == 4 and isinstance(of[key], int | float):
        tokens.append(draw(st.sampled_from(NUMBERS)))
        of[key] = f"@@{len(tokens) - 1}@@"
    elif kind == 5 and isinstance(of[key], str):
        tokens.append(draw(st.sampled_from(TEXTS)))
        of[key] = f"@@{len(tokens) - 1}@@"
    else:
        tokens.append(draw(TOKENS))
        of[key] = f"@@{len(tokens) - 1}@@"
