from __future__ import annotations

import pytest

from nncftools.live.shared_terminal import Tail, takes_the_screen


def fed(*data: bytes) -> tuple[list[str], list[str]]:
    """Return the lines that are whole, and those that are held, after output came in these pieces."""
    tail = Tail()
    whole = [line for piece in data for line in tail.feed(piece)]
    return whole, tail.shown(80)


@pytest.mark.parametrize(
    "data, whole, held",
    [
        ([b"one\ntwo\nthr"], ["one", "two"], ["thr"]),
        ([b"\r 10%", b"\r 20%", b"\r100%\nnext"], ["100%"], ["next"]),
        ([b"a long line\r\x1b[2Kshort"], [], ["short"]),
        ([b"a long line\rshort\x1b[K"], [], ["short"]),
        ([b"\x1b[32mok\x1b[0m\n"], ["\x1b[32mok\x1b[0m"], [""]),
        (
            [b"\x1b[31mone\ntwo\x1b[0m\nthree\n"],
            ["\x1b[31mone\x1b[0m", "\x1b[31mtwo\x1b[0m", "three"],
            [""],
        ),
        ([b"a\tb"], [], ["a       b"]),
        ([b"abc\b\bX"], [], ["aXc"]),
    ],
    ids=[
        "lines",
        "progress bar",
        "erased line",
        "erased rest",
        "colour",
        "colour of several lines",
        "tab",
        "backspace",
    ],
)
def test_output(data: list[bytes], whole: list[str], held: list[str]) -> None:
    """A line that has ended is passed on with its colours, in its last state; the one that goes on is held."""
    assert fed(*data) == (whole, held)


def test_pieces_break_anywhere() -> None:
    """Characters and escape sequences may come in pieces."""
    data = "\x1b[32mgrün\x1b[0m ✓\r\n".encode()
    pieces = [data[place : place + 1] for place in range(len(data))]

    assert fed(*pieces) == (["\x1b[32mgrün\x1b[0m ✓"], [""])


def test_several_bars() -> None:
    """Bars below each other are held and changed in place while the command moves between them."""
    tail = Tail()
    tail.feed(b"A 0%\nB 0%\x1b[A")
    for step in (b"10%", b"20%"):
        tail.feed(b"\rA " + step + b"\n\rB " + step + b"\x1b[A")

    assert tail.shown(80)[-2:] == ["A 20%", "B 20%"]


def test_held_lines_are_let_go_with_the_cursor() -> None:
    """When the command shows its cursor again, its bars are final."""
    tail = Tail()
    tail.feed(b"\x1b[?25lA\nB\x1b[1A\rA2\nB2\n")
    whole = tail.feed(b"\x1b[?25hafter")

    assert whole[-1] == "B2"
    assert tail.shown(80) == ["after"]


def test_cut_to_the_width() -> None:
    """What is shown is no wider than the screen; rows count wide characters as two, and colours as none."""
    tail = Tail()
    tail.feed("\x1b[A漢字\x1b[31m漢字".encode())

    assert tail.shown(5) == ["漢字"]
    assert tail.cursor(5) == (0, 5)
    tail.feed(b"\n\nbar")
    assert [tail.count_rows_above(80, columns) for columns in (8, 3)] == [2, 5]


def test_end() -> None:
    """At the end, an unfinished line is returned; an empty one is not."""
    tail = Tail()
    tail.feed(b"rest")

    assert tail.end() == ["rest"]
    assert tail.end() == []


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"\x1b[?1049h", True),
        (b"\x1b[?47h", True),
        (b"text\x1b[12;40Hmore", True),
        (b"\x1b[H\x1b[2J", False),
        (b"\x1b[1A\x1b[2K", False),
    ],
)
def test_who_takes_the_screen(data: bytes, *, expected: bool) -> None:
    """Editors and pagers are recognized by their escape sequences; progress bars and `clear` leave the screen."""
    assert bool(takes_the_screen(data)) == expected
