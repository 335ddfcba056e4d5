"""The size of the package: what one person can hold in the head.

Size is counted in nodes of the syntax tree, without docstrings. Nodes fall by deleting and merging, never by denser
lines. A file is split only for another process, for being loaded on use, or because it passes the limit below. The
numbers rise only with a new capability, by what its issue grants.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import nncftools
from tests import legible
from tests.test_layers import name_of, needed

ROOT = Path(nncftools.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
MOST_NODES = {
    "ground floor": 8_158,
    "analysis": 32_135,
    "api": 6_327,
    "cli": 44_507,
    "compression": 13_204,
    "importers": 4_029,
    "journal": 2_087,
    "limits": 6_082,
    "live": 11_538,
    "marks": 7_818,
    "reading_marks": 6_960,
    "render": 38_015,
    "sampler": 21_582,
    "session": 11_496,
    "snapshots": 10_004,
    "testing": 3_036,
}
"""By room: the most nodes that it may have."""
MOST_FILES = 165
LONGEST = 2_600
LONGER = {
    "analysis.ranks": "merges the sessions of a job; its times, figures and names of ranks belong together",
    "compression.picture": "the trade-off picture, with the solver that keeps its labels apart",
    "render.comparison": "the tables of compare",
    "session.recording": "the one reader of a recording's lines",
}
"""Files that are longer, and why they are one."""
SMALLEST = 300
MOST_SMALL = 16
MOST_WITH_ONE_IMPORTER = 37
MOST_FINDINGS = {"squeezed": 1, "dense": 0, "positional": 0, "fragment": 0}
"""By kind: the most places that are hard to read (tests/legible.py)."""
MOST_STAND_INS = 7
"""Words in place of a noun, of 1,000 words of docstrings, comments and messages."""
_NOT_COUNTED = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


def count_nodes(source: str) -> int:
    """Return the number of syntax nodes, without docstrings, contexts and operators: the same on every Python."""
    tree = ast.parse(source)
    left_out = set[int]()
    for node in ast.walk(tree):
        if legible.is_text(node):
            left_out.update(id(inner) for inner in ast.walk(node))
        elif isinstance(node, ast.JoinedStr):  # Python 3.12.1 ends a nested format with an empty text
            left_out.update(id(value) for value in node.values if isinstance(value, ast.Constant) and value.value == "")
    return sum(id(node) not in left_out and not isinstance(node, _NOT_COUNTED) for node in ast.walk(tree))


def room_of(module: str) -> str:
    """Return the folder of a module that is in the package directly, by the module's name."""
    room, _, name = module.partition(".")
    return room if name or (ROOT / room).is_dir() else "ground floor"


@pytest.fixture(scope="module")
def sizes() -> dict[str, int]:
    """Return the nodes of each module, by its name inside the package."""
    return {name_of(path): count_nodes(path.read_text(encoding="utf-8")) for path in MODULES}


@pytest.mark.parametrize(
    "source, nodes",
    [
        ("", 1),
        ("# Why.\nLIMIT = 3  # bytes\n", 4),
        ('"""What it is.\n\nMore."""\nLIMIT = 3\n"""Its meaning."""\n', 4),
        ("print(\n    LIMIT,\n)\n", 5),
        ("a = b + c", 6),
        ('f"{size:{width}}"', 8),
    ],
)
def test_nodes(source: str, nodes: int) -> None:
    """Docstrings, comments, line breaks, operators and contexts do not count."""
    assert count_nodes(source) == nodes


def test_rooms(sizes: dict[str, int]) -> None:
    """No room has more nodes than were granted, and the package no more files."""
    nodes = dict.fromkeys(MOST_NODES, 0)
    for module, size in sizes.items():
        nodes[room_of(module)] += size

    assert {room: size for room, size in nodes.items() if size > MOST_NODES[room]} == {}
    assert len(sizes) <= MOST_FILES


def test_no_file_is_too_long(sizes: dict[str, int]) -> None:
    """A file that is longer than a reader likes is named above, with its reason."""
    assert {name for name, size in sizes.items() if size > LONGEST} == set(LONGER)


def test_few_files_are_small(sizes: dict[str, int]) -> None:
    """Small files are rare: a reader would have to open, jump back, and remember names with one use."""
    inits = {name_of(path) for path in MODULES if path.name == "__init__.py"}

    assert len([name for name, size in sizes.items() if size < SMALLEST and name not in inits]) <= MOST_SMALL


def test_few_files_have_a_single_importer() -> None:
    """What only one other file imports is in that file, unless it is loaded on use."""
    paths = {name_of(path): path for path in MODULES}
    importers: dict[str, set[str]] = {}
    for name, path in paths.items():
        for module in needed(path, set(paths), types=True):
            importers.setdefault(module, set()).add(name)

    assert len([name for name, users in importers.items() if len(users) == 1]) <= MOST_WITH_ONE_IMPORTER


def test_folders_hold_at_least_four_files() -> None:
    """A folder with fewer files than four makes a reader open it for nothing."""
    few = {
        str(folder.relative_to(ROOT))
        for folder in {path.parent for path in MODULES}
        if len(list(folder.glob("*.py"))) + len(list(folder.glob("*.json"))) < len(("__init__", "and", "three", "more"))
    }

    # A file for each side; the registry, which loads alone; alone on the PYTHONPATH of the measured program.
    assert few <= {"journal", "importers", "marks/hook"}


def test_lines_are_plain() -> None:
    """One statement does one thing, and a line holds no more than a reader takes in at once."""
    findings = [legible.findings_in(path) for path in MODULES]
    places = {kind: [place for of_file in findings for place in of_file[kind]] for kind in MOST_FINDINGS}

    assert {kind: places[kind] for kind, most in MOST_FINDINGS.items() if len(places[kind]) > most} == {}


def test_prose_names_its_nouns() -> None:
    """Docstrings, comments and messages have few words in place of a noun."""
    counts = [legible.words_in(path) for path in MODULES]
    words = sum(count for count, _ in counts)
    stand_ins = sum(count for _, count in counts)

    assert 1000 * stand_ins / words <= MOST_STAND_INS


@pytest.mark.parametrize(
    "kind, source, lines",
    [
        ("squeezed", "a, b = x, y\n", [1]),
        ("squeezed", "a, b = b, a\nc, d = f()\n", []),
        ("squeezed", "a = [\n    x if x else y\n    for x in z\n]\n", [1]),
        ("squeezed", "a = x if y else (z if u else v)\n", [1]),
        ("squeezed", "a = [x for y in z for x in y]\n", [1]),
        ("dense", f"a = {'x + ' * 12}x\n", [1]),
        ("dense", f"a = {'x + ' * 11}x\n", []),
        ("dense", f"def f({'x, ' * 30}y):\n    ...\n", []),
        ("dense", f"A = [\n    {'x, ' * 30}\n]\n", []),
        ("dense", "f'" + "{x}" * 30 + "'\n", []),
        ("positional", "f(1, 2, 3, 4, 5)\nf(1, 2, 3, 4, e=5)\nf(*a, 1, 2, 3, 4)\n", [1]),
    ],
)
def test_findings(tmp_path: Path, kind: str, source: str, lines: list[int]) -> None:
    """Each kind of finding has its line."""
    path = tmp_path / "module.py"
    path.write_text(source)

    assert legible.findings_in(path)[kind] == [f"{path}:{line}" for line in lines]


def test_stand_ins() -> None:
    """Words in place of a noun are counted, whatever their case; words that contain them are not."""
    assert legible.count_words("It says which one is its own; that of none. Whatever, anyone.") == (12, 5)
