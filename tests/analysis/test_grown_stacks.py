from __future__ import annotations

from nncftools.analysis.build_up import NOT_SEEN, PROGRAM, SEEN, BuildUp, Part
from nncftools.analysis.grown_stacks import CodePath, GrownStack, HeldSize, grown, places
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
    """The place that changed is named, not its callers; what did not change is left out."""
    base = held((100, (MAIN, LOAD)), (100, (MAIN, RUN)))
    new = held((100, (MAIN, LOAD)), (300, (MAIN, RUN)))

    assert changes(grown([base], [new], 5)) == [("torch/run.py run", 200)]


def test_matched_by_function() -> None:
    """Lines, and folders of environments and programs, do not matter."""
    base = held((100, ("/old/b.py:9 main", "/env/lib/python3.10/site-packages/torch/load.py:5 load")))
    new = held((130, ("/new/b.py:7 main", LOAD)))
    (found,) = grown([base], [new], 5)

    assert (found.base, found.new) == (100 * MIB, 130 * MIB)
    assert (found.function, found.file) == ("load", "torch/load.py")


def test_other_script() -> None:
    """What two scripts call is compared, whatever they are called."""
    base = held((100, ("/a/old.py:9 <module>", LOAD)), (50, ("/a/old.py:9 <module>",)))
    new = held((130, ("/a/new.py:7 <module>", LOAD)), (50, ("/a/new.py:7 <module>",)))

    assert changes(grown([base], [new], 5)) == [("torch/load.py load", 30)]


def test_other_script_itself() -> None:
    """What two scripts hold themselves is compared, too."""
    base, new = (held((size, (f"/a/{name}.py:9 <module>",))) for size, name in ((100, "old"), (300, "new")))

    assert changes(grown([base], [new], 5)) == [("the script", 200)]


def test_grown_here_and_shrunk_there() -> None:
    """Changes that cancel each other are both named."""
    base = held((200, (MAIN, LOAD)), (100, (MAIN, RUN)))
    new = held((100, (MAIN, LOAD)), (210, (MAIN, RUN)))

    assert changes(grown([base], [new], 5)) == [
        ("torch/run.py run", 110),
        ("torch/load.py load", -100),
    ]


def test_groups_by_their_medians() -> None:
    """Of repeated runs, the medians are compared."""
    base = [held((size, (MAIN, LOAD))) for size in (100, 110, 500)]
    new = [held((size, (MAIN, LOAD))) for size in (150, 160, 170)]

    assert changes(grown(base, new, 5)) == [("torch/load.py load", 50)]


def test_other_lines() -> None:
    """Lines of one function are one place: they move from version to version."""
    base = held((100, (MAIN, LOAD)), (100, (MAIN, "torch/load.py:7 load")))
    new = held((300, ("/a/b.py:4 main", "torch/load.py:3 load")))

    assert changes(grown([base], [new], 5)) == [("torch/load.py load", 100)]


def test_programs_by_name() -> None:
    """A program without Python is compared by its name, however many processes it has and whoever started it."""
    base = of_parts(Part(100 * MIB, PROGRAM, 1, stack(MAIN), 0, "cc1plus"))
    new = of_parts(*(Part(100 * MIB, PROGRAM, number, stack(LOAD), 0, "cc1plus") for number in (2, 3)))

    assert changes(grown([base], [new], 5)) == [("cc1plus", 100)]


def test_not_seen() -> None:
    """What was not seen is compared, too: a change of it is no change of the code."""
    certain = Part(100 * MIB, SEEN, 0, stack(MAIN), 1)
    of = [of_parts(certain, Part(size * MIB, NOT_SEEN, 0)) for size in (20, 60)]

    assert changes(grown([of[0]], [of[1]], 5)) == [("not seen", 40)]


def test_bounds() -> None:
    """A change is within its bounds if what is only likely, or what was not seen, may explain it."""
    likely = [of_parts(Part(100 * MIB, SEEN, 0, stack(MAIN, place), 1)) for place in (LOAD, RUN)]
    unseen = of_parts(Part(100 * MIB, NOT_SEEN, 0))
    certain = held((100, (MAIN, LOAD)))

    assert all(of.is_within_bounds for of in grown(likely[:1], likely[1:], 5))
    assert [of.is_within_bounds for of in grown([certain], [unseen], 5) if of.file] == [True]
    assert [of.is_within_bounds for of in grown([certain], [held((300, (MAIN, LOAD)))], 5)] == [False]


def test_bounds_of_certain_callers() -> None:
    """What certainly belongs to another caller cannot belong here, even if its innermost function is only likely."""
    base = of_parts(Part(100 * MIB, SEEN, 0, stack(MAIN, LOAD, "t/a.py:1 a"), 2))
    new = of_parts(Part(100 * MIB, SEEN, 0, stack(MAIN, RUN, "t/a.py:1 a"), 2))

    assert [of.is_within_bounds for of in grown([base], [new], 5)] == [False, False]


def test_equal() -> None:
    """Changes of less than 1 % are none."""
    assert grown([held((1000, (MAIN, LOAD)))], [held((1005, (MAIN, LOAD)))], 5) == []


def test_deep() -> None:
    """Stacks of 1,000 frames can be compared."""
    deep = tuple(f"torch/m{number}.py:1 f" for number in range(1000))
    (found,) = grown([held((100, deep))], [held((200, deep))], 5)

    assert found.file == "torch/m999.py"
