from __future__ import annotations

import pytest

from nncftools.live.shared_terminal import Tail, takes_the_screen


def fed(*data: bytes) -> tuple[list[str], list[str]]:
    """Return the lines that are whole, and those that are held, after output came in these pieces."""
    tail = Tail()
    whole = [line for piece in data for line in tail.feed(piece)]
    return whole, tail.shown(80)


def test_whole_lines_are_let_go() -> None:
    """A line that has ended is passed on; the one that goes on is held."""
    assert fed(b"one\ntwo\nthr") == (["one", "two"], ["thr"])


def test_carriage_return_writes_over() -> None:
    """Of a progress bar there is the last state."""
    assert fed(b"\r 10%", b"\r 20%", b"\r100%\nnext") == (["100%"], ["next"])


def test_erasing() -> None:
    """What is erased is gone."""
    assert fed(b"a long line\r\x1b[2Kshort") == ([], ["short"])
    assert fed(b"a long line\rshort\x1b[K") == ([], ["short"])


def test_colours_stay() -> None:
    """A line keeps its colours and ends with the plain one."""
    assert fed(b"\x1b[32mok\x1b[0m\n") == (["\x1b[32mok\x1b[0m"], [""])


def test_colour_over_several_lines() -> None:
    """A colour that is set on one line is that of the next, too."""
    assert fed(b"\x1b[31mone\ntwo\x1b[0m\nthree\n")[0] == ["\x1b[31mone\x1b[0m", "\x1b[31mtwo\x1b[0m", "three"]


def test_pieces_break_anywhere() -> None:
    """Characters and escape sequences may come in pieces."""
    data = "\x1b[32mgrün\x1b[0m ✓\r\n".encode()
    pieces = [data[place : place + 1] for place in range(len(data))]

    assert fed(*pieces) == fed(data)
    assert fed(data)[0] == ["\x1b[32mgrün\x1b[0m ✓"]


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
    """What is shown is no wider than the screen, wide characters counted as two."""
    tail = Tail()
    tail.feed("漢字漢字".encode())

    assert tail.shown(5) == ["漢字"]
    assert tail.cursor(5) == (0, 5)


def test_tabs_and_backspaces() -> None:
    """They move as they do on a terminal."""
    assert fed(b"a\tb") == ([], ["a       b"])
    assert fed(b"abc\b\bX") == ([], ["aXc"])


def test_end() -> None:
    """At the end, an unfinished line is returned; an empty one is not."""
    tail = Tail()
    tail.feed(b"rest")

    assert tail.end() == ["rest"]
    assert tail.end() == []


@pytest.mark.parametrize("data", [b"\x1b[?1049h", b"\x1b[?47h", b"text\x1b[12;40Hmore"])
def test_who_takes_the_screen(data: bytes) -> None:
    """Editors and pagers are recognized by their escape sequences."""
    assert takes_the_screen(data)


@pytest.mark.parametrize("data", [b"\x1b[H\x1b[2J", b"\x1b[1A\x1b[2K", b"\x1b[?25l", b"plain"])
def test_who_does_not(data: bytes) -> None:
    """Progress bars and `clear` leave it."""
    assert not takes_the_screen(data)
