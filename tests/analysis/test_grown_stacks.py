from __future__ import annotations

import pytest

from nncftools.analysis.build_up import NOT_SEEN, SEEN, SHARED, BuildUp, Part
from nncftools.analysis.figures import CodePath, GrownStack, HeldSize, find_grown, places
from tests.made_up import MIB
from tests.made_up_stacks import stack

MAIN, LOAD, RUN = "/a/b.py:9 main", "torch/load.py:1 load", "torch/run.py:2 run"


def held(*parts: tuple[int, tuple[str, ...]]) -> dict[CodePath, HeldSize]:
    """Return what stacks held, in MiB; all of it is certain."""
    return of_parts(*(Part(size * MIB, SEEN, 0, stack(*of), len(of)) for size, of in parts))


def of_parts(*parts: Part) -> dict[CodePath, HeldSize]:
    """Return what parts of a peak held."""
    return places(BuildUp(1.0, sum(part.size for part in parts), parts))


def changes(found: list[GrownStack]) -> list[tuple[str, int]]:
    """Return the places and their changes in MiB."""
    return [(one.label, round(one.change / MIB)) for one in found]


def test_largest_change_first() -> None:
    """The function of a library that changed is named with the own code that called it; what did not change is not."""
    base = held((100, (MAIN, LOAD)), (100, (MAIN, RUN)))
    new = held((100, (MAIN, LOAD)), (300, (MAIN, RUN)))

    assert changes(find_grown([base], [new], 5)) == [("b.py main (torch run)", 200)]


OLD, NEW = "/a/old.py", "/b/new.py"
THREAD = ("/usr/lib/python3.11/threading.py:9 Thread._bootstrap", "/usr/lib/python3.11/threading.py:5 Thread.run")


@pytest.mark.parametrize(
    ("base", "new", "label"),
    [
        ((f"{OLD}:9 <module>", LOAD), (f"{NEW}:7 <module>", LOAD), "new.py (torch load)"),
        ((f"{OLD}:9 <module>",), (f"{NEW}:7 <module>",), "new.py"),
        (
            (f"{OLD}:9 <module>", f"{OLD}:3 load"),
            (f"{NEW}:7 <module>", f"{NEW}:5 main", f"{NEW}:4 load"),
            "new.py load",
        ),
        (
            (*THREAD, f"{OLD}:3 load", LOAD),
            (f"{NEW}:7 <module>", "/b/parts.py:4 load", LOAD),
            "parts.py load (torch load)",
        ),
        ((f"{OLD}:3 Model.load",), (f"{NEW}:4 Model.load",), "new.py Model.load"),
    ],
)
def test_other_script(base: tuple[str, ...], new: tuple[str, ...], label: str) -> None:
    """A function of one script is that of another one, whatever the files are called and whoever calls it."""
    other = (50, ("/a/util.py:1 same",))

    assert changes(find_grown([held((100, base), other)], [held((130, new), other)], 5)) == [(label, 30)]


OPTIMUM = "optimum/main.py:1 main"


@pytest.mark.parametrize(
    ("script", "label"),
    [("/new/bin/optimum-cli", "torch/load.py load"), ("/a/export.py", "export.py (torch load)")],
)
def test_console_script(script: str, label: str) -> None:
    """A program without own code is compared by the functions of its libraries, also with a script that calls them."""
    base = held(
        (100, ("/old/bin/optimum-cli:8 <module>", OPTIMUM, LOAD)), (50, ("/old/bin/optimum-cli:8 <module>", RUN))
    )
    new = held((130, (f"{script}:8 <module>", OPTIMUM, LOAD)), (50, (f"{script}:8 <module>", RUN)))

    assert changes(find_grown([base], [new], 5)) == [(label, 30)]


def test_imports() -> None:
    """What packages take while they are imported is one place, with Python's own start."""
    of_torch = ("/a/b.py:1 <module>", "<frozen importlib._bootstrap>:1 _load", "torch/__init__.py:1 <module>")
    base, new = (
        of_parts(
            Part(torch * MIB, SEEN, 0, stack(*of_torch), 3),
            Part(python * MIB, NOT_SEEN, 0, is_start=True),
            Part(100 * MIB, SEEN, 0, stack(MAIN), 1),
        )
        for torch, python in ((100, 10), (250, 40))
    )

    assert changes(find_grown([base], [new], 5)) == [("Python and imports", 180)]


def test_expressions() -> None:
    """A comprehension and a lambda are part of the function around them."""
    inner = [f"/a/b.py:{line} main.<locals>.<{kind}>" for line, kind in enumerate(("listcomp", "lambda"), start=3)]
    base, new = (held(*((size, (MAIN, *of)) for of in ((), inner[:1], inner[1:]))) for size in (10, 30))

    assert changes(find_grown([base], [new], 5)) == [("b.py main", 60)]


@pytest.mark.parametrize(
    ("kind", "label"), [(NOT_SEEN, "code that no stack shows"), (SHARED, "shared pages, counted again")]
)
def test_without_code(kind: str, label: str) -> None:
    """What was not seen, and what processes share, is compared, too, and called so: it is no change of the code."""
    certain = Part(100 * MIB, SEEN, 0, stack(MAIN), 1)
    of = [of_parts(certain, Part(size * MIB, kind, 0)) for size in (20, 60)]

    assert changes(find_grown([of[0]], [of[1]], 5)) == [(label, 40)]


def test_bounds() -> None:
    """A change is within its bounds if what is only likely, or what was not seen, may explain it."""
    likely = [of_parts(Part(100 * MIB, SEEN, 0, stack(MAIN, place), 1)) for place in (LOAD, RUN)]
    unseen = of_parts(Part(100 * MIB, NOT_SEEN, 0))
    certain = held((100, (MAIN, LOAD)))

    assert all(of.is_within_bounds for of in find_grown(likely[:1], likely[1:], 5))
    assert [of.is_within_bounds for of in find_grown([certain], [unseen], 5) if of.file] == [True]
    assert [of.is_within_bounds for of in find_grown([certain], [held((300, (MAIN, LOAD)))], 5)] == [False]


def test_bounds_of_certain_callers() -> None:
    """What certainly belongs to another caller cannot belong here, even if its innermost function is only likely."""
    base = of_parts(Part(100 * MIB, SEEN, 0, stack(MAIN, LOAD, "t/a.py:1 a"), 2))
    new = of_parts(Part(100 * MIB, SEEN, 0, stack(MAIN, RUN, "t/a.py:1 a"), 2))

    assert [of.is_within_bounds for of in find_grown([base], [new], 5)] == [False, False]
