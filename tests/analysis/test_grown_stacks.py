from __future__ import annotations

import pytest

from nncftools.analysis.build_up import NOT_SEEN, SEEN, SHARED, BuildUp, Part
from nncftools.analysis.figures import CodePath, GrownStack, HeldSize, find_grown, places
from tests.made_up import MIB
from tests.made_up_stacks import stack

MAIN, LOAD, RUN = "/a/b.py:9 main", "torch/load.py:1 load", "torch/run.py:2 run"
PLACES = {"main": MAIN, "load": LOAD, "run": RUN, "optimum": "optimum/main.py:1 main"}


def held(*parts: str) -> dict[CodePath, HeldSize]:
    """Return what stacks held, all of it certain, from texts such as ``100 main > load > /a/b.py:2 f``, in MiB."""
    found = []
    for part in parts:
        size, _, places = part.partition(" ")
        of = stack(*(PLACES.get(place, place) for place in places.split(" > ")))
        found.append(Part(int(size) * MIB, SEEN, 0, of, len(of)))
    return of_parts(*found)


def of_parts(*parts: Part) -> dict[CodePath, HeldSize]:
    """Return what parts of a peak held."""
    return places(BuildUp(1.0, sum(part.size for part in parts), parts))


def changes(found: list[GrownStack]) -> list[tuple[str, int]]:
    """Return the places and their changes in MiB."""
    return [(one.label, round(one.change / MIB)) for one in found]


def test_largest_change_first() -> None:
    """The function of a library that changed is named with the own code that called it; what did not change is not."""
    base = held("100 main > load", "100 main > run")
    new = held("100 main > load", "300 main > run")

    assert changes(find_grown([base], [new], 5)) == [("b.py main (torch run)", 200)]


THREAD = "/usr/lib/python3.11/threading.py:9 Thread._bootstrap > /usr/lib/python3.11/threading.py:5 Thread.run"


@pytest.mark.parametrize(
    "base, new, label",
    [
        ("/a/old.py:9 <module> > load", "/b/new.py:7 <module> > load", "new.py (torch load)"),
        ("/a/old.py:9 <module>", "/b/new.py:7 <module>", "new.py"),
        (
            "/a/old.py:9 <module> > /a/old.py:3 load",
            "/b/new.py:7 <module> > /b/new.py:5 main > /b/new.py:4 load",
            "new.py load",
        ),
        (
            f"{THREAD} > /a/old.py:3 load > load",
            "/b/new.py:7 <module> > /b/parts.py:4 load > load",
            "parts.py load (torch load)",
        ),
        ("/a/old.py:3 Model.load", "/b/new.py:4 Model.load", "new.py Model.load"),
    ],
)
def test_other_script(base: str, new: str, label: str) -> None:
    """A function of one script is that of another one, whatever the files are called and whoever calls it."""
    other = "50 /a/util.py:1 same"

    assert changes(find_grown([held(f"100 {base}", other)], [held(f"130 {new}", other)], 5)) == [(label, 30)]


@pytest.mark.parametrize(
    "script, label",
    [("/new/bin/optimum-cli", "torch/load.py load"), ("/a/export.py", "export.py (torch load)")],
)
def test_console_script(script: str, label: str) -> None:
    """A program without own code is compared by the functions of its libraries, also with a script that calls them."""
    base, new = (
        held(f"{size} {file}:8 <module> > optimum > load", f"50 {file}:8 <module> > run")
        for size, file in ((100, "/old/bin/optimum-cli"), (130, script))
    )

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
    inner = "main > /a/b.py:{} main.<locals>.<{}>"
    stacks = "main", inner.format(3, "listcomp"), inner.format(4, "lambda")
    base, new = (held(*(f"{size} {of}" for of in stacks)) for size in (10, 30))

    assert changes(find_grown([base], [new], 5)) == [("b.py main", 60)]


@pytest.mark.parametrize(
    "kind, label", [(NOT_SEEN, "code that no stack shows"), (SHARED, "shared pages, counted again")]
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
    certain = held("100 main > load")

    assert all(of.is_within_bounds for of in find_grown(likely[:1], likely[1:], 5))
    assert [of.is_within_bounds for of in find_grown([certain], [unseen], 5) if of.file] == [True]
    assert [of.is_within_bounds for of in find_grown([certain], [held("300 main > load")], 5)] == [False]


def test_bounds_of_certain_callers() -> None:
    """What certainly belongs to another caller cannot belong here, even if its innermost function is only likely."""
    base = of_parts(Part(100 * MIB, SEEN, 0, stack(MAIN, LOAD, "t/a.py:1 a"), 2))
    new = of_parts(Part(100 * MIB, SEEN, 0, stack(MAIN, RUN, "t/a.py:1 a"), 2))

    assert [of.is_within_bounds for of in find_grown([base], [new], 5)] == [False, False]
