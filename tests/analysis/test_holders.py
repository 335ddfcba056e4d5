from __future__ import annotations

from typing import Any

import pytest

from nncftools.analysis.build_up import NOT_SEEN, SEEN, SHARED, BuildUp, Part
from nncftools.analysis.frames import CODE, IMPORTS, REST, SHARED_PAGES, Holder, holders
from nncftools.session.model import MappingsMoment, ProcessMappings, Snapshots
from tests.made_up import MIB, rows, session
from tests.made_up_stacks import group, stack

PLACES = {
    "main": "/a/b.py:9 <module>",
    "load": "/a/b.py:1 load",
    "step": "/a/c.py:2 Steps.step",
    "ones": "numpy/_core/numeric.py:233 ones",
    "find": "<frozen importlib._bootstrap>:1176 _find_and_load",
    "script": "/env/bin/optimum-cli:8 <module>",
    "hook": "/env/lib/python3.11/site-packages/nncftools/marks/autoload.py:177 Loader.exec_module",
}


def seen(size: int, places: str, certain: int = 99_999) -> Part:
    """Return MiB with a stack such as ``main > load > /a/b.py:2 f``, of which so many outer frames are certain."""
    of = stack(*(PLACES.get(place, place) for place in places.split(" > ")))
    depth = min(certain, len(of))
    return Part(size * MIB, SEEN, 0, of, depth, still=depth)


def rows_of(*parts: Part, most: int = 4, **seen_of: Any) -> list[Holder]:  # noqa: ANN401 — fields of snapshots
    """Return the rows of a build-up, which sum to it."""
    whole = sum(part.size for part in parts)
    rows = holders(BuildUp(1.0, whole, parts), session(snapshots=Snapshots(**seen_of)), most)

    assert sum(row.size for row in rows) == whole
    assert len({row.label for row in rows}) == len(rows) <= most + 1
    return rows


def labels(*parts: Part, most: int = 4) -> list[tuple[int, str]]:
    """Return MiB and label of each row."""
    return [(row.size // MIB, row.label) for row in rows_of(*parts, most=most)]


@pytest.mark.parametrize(
    "places, expected",
    rows("""
main > load | b.py:1 load
main > load > ones | b.py:1 load (numpy ones)
main > ones > load | b.py:1 load
main > step > /usr/lib/python3.11/copy.py:7 deepcopy | c.py:2 Steps.step (deepcopy)
main > <string>:3 grow | <string>:3 grow
main > <string>:3 Config.__init__ > ones | b.py:9 (numpy ones)
main > find > numpy/__init__.py:1 <module> | Python and imports
main > find > /a/steps.py:4 <module> > ones | steps.py:4 (numpy ones)
main > transformers/utils/import_utils.py:2 _LazyModule._get_module | Python and imports
script > find > torch/__init__.py:5 <module> | Python and imports
script > hook | Python and imports
<string>:1 <module> > /usr/lib/python3.11/multiprocessing/spawn.py:9 main > load | b.py:1 load
main > find > numpy/ma.py:3 <module> > <string>:1 <lambda> | Python and imports
main > load > /a/b.py:1 load.<locals>.<listcomp> | b.py:1 load
/a/bin/job.py:4 serve | job.py:4 serve
script > optimum/main.py:3 main > transformers/llama.py:4 Model.forward | Model.forward
"""),
)
def test_row_is_named_by_own_code(places: str, expected: str) -> None:
    """A row is the deepest frame of the user's code; imports are a row; without own code, libraries are named."""
    assert labels(seen(100, places)) == [(100, expected)]


def test_source_text_replaces_the_function_of_the_library() -> None:
    """A row has the text of its line, where that is known."""
    (row,) = rows_of(seen(100, "main > ones"), sources={"/a/b.py": {9: "a = np.ones(n)"}})

    assert (row.label, row.source) == ("b.py:9", "a = np.ones(n)")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("import numpy as np", [IMPORTS]),
        ("import time; from numpy import ones", [IMPORTS]),
        ("import numpy; a = numpy.ones(9)", [CODE]),
    ],
)
def test_line_of_imports(text: str, expected: list[str]) -> None:
    """A line that only imports belongs to the imports, also where no frame of the import system was seen."""
    assert [row.kind for row in rows_of(seen(100, "main"), sources={"/a/b.py": {9: text}})] == expected


def test_unknown_line_of_a_loop() -> None:
    """Memory of an unknown line belongs to a line that moved on, not to a larger line that stood still."""
    still, *moved = (seen(size, f"main > /a/b.py:{line} f", line % 4) for size, line in [(150, 7), (90, 5), (40, 0)])

    assert labels(still, *moved) == [(150, "b.py:7 f"), (130, "b.py:5 f")]


def test_rest_is_one_row() -> None:
    """Small lines and memory without a stack are one row; pages that are counted again are a row."""
    small = [seen(3, f"main > /a/b.py:{line} f{line}") for line in range(20, 25)]
    rows = rows_of(seen(100, "main > load"), *small, Part(40 * MIB, SHARED, 1), Part(20 * MIB, NOT_SEEN, 0))

    assert [(row.kind, row.size // MIB) for row in rows] == [(CODE, 100), (SHARED_PAGES, 40), (REST, 35)]
    assert rows[-1].parts == [("not seen", 20 * MIB), ("other lines", 15 * MIB)]


def test_callee_that_holds_more_than_half() -> None:
    """The caller is not named if one function of the user's that it called holds more than half."""
    handle = "/a/leak.py:6 handle"
    serve = "/a/leak.py:10 serve"
    parts = [seen(4, f"main > {serve} > {handle}", certain=2), seen(3, f"main > {serve}"), seen(93, "main > load")]

    assert labels(*parts) == [(93, "b.py:1 load"), (4, "leak.py:6 handle"), (3, "everything else")]


def test_same_line_of_two_callers() -> None:
    """One line that two functions call has a row for each, named by these functions."""
    helper = "/a/b.py:3 make"
    parts = [seen(60, f"main > load > {helper}"), seen(40, f"main > step > {helper}")]

    assert [label for _, label in labels(*parts)] == [
        "a/b.py:1 load › a/b.py:3 make",
        "a/c.py:2 Steps.step › a/b.py:3 make",
    ]


def test_largest_code_is_among_few_rows() -> None:
    """However few rows there are, one is the largest code."""
    imported = [
        seen(size, f"main > find > {name}/__init__.py:1 <module>") for size, name in ((50, "numpy"), (60, "torch"))
    ]

    assert labels(*imported, Part(70 * MIB, SHARED, 1), seen(40, "main > load"), most=2) == [
        (110, "Python and imports"),
        (40, "b.py:1 load"),
        (70, "everything else"),
    ]


@pytest.mark.parametrize(
    "file, file_size, expected",
    [
        ("/m/model.safetensors", 80, "model.safetensors (weights; Linux can free them), read in b.py:1 load"),
        ("/m/table.db", 80, "table.db (a mapped file; Linux can free it), read in b.py:1 load"),
        ("/m/model.safetensors", 40, "b.py:1 load"),
    ],
)
def test_pages_of_a_file(file: str, file_size: int, expected: str) -> None:
    """A row that mostly consists of pages of one mapped file says so."""
    files = [group("file", file_size, file, clean=file_size), group("anonymous", 100 - file_size)]
    mapped = MappingsMoment(time_s=1.0, total=100 * MIB, processes=[ProcessMappings(0, files)])
    part = seen(100, "main > load")._replace(file_size=file_size * MIB)
    (row,) = rows_of(part, mappings=[mapped])

    assert row.label == expected
