"""The size of the package: what one person can hold in the head.

A file is split only for another process, for being loaded on use, or because it passes about 350 code lines: lines
without docstrings, comments and blank lines. The numbers rise only with a new capability, by what its issue grants.
"""

from __future__ import annotations

import ast
import pathlib

import pytest

import nncftools
from tests.test_layers import name_of, needed

ROOT = pathlib.Path(nncftools.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
MOST_LINES = 31_322
MOST_FILES = 207
LONGEST = 350
LONGER = {
    "session.recording": "the one reader of a recording's lines",
}
"""Files that are longer, and why they are one."""
SMALLEST = 40
MOST_SMALL = 16
MOST_WITH_ONE_IMPORTER = 39


def code_lines(path: pathlib.Path) -> int:
    """Return the number of code lines of a file."""
    source = path.read_text(encoding="utf-8")
    lines = [line.lstrip() for line in source.splitlines()]
    code = {number for number, line in enumerate(lines, 1) if line and not line.startswith("#")}
    docstrings = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= _lines(node)
        elif isinstance(node, (ast.Constant, ast.JoinedStr)):
            code |= _lines(node)  # a text may have lines that are blank, or that look like comments
    return len(code - docstrings)


def _lines(node: ast.expr | ast.Expr) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


@pytest.fixture(scope="module")
def sizes() -> dict[str, int]:
    """Return the code lines of each module, by its name inside the package."""
    return {name_of(path): code_lines(path) for path in MODULES}


def test_code_lines(tmp_path: pathlib.Path) -> None:
    """Docstrings, comments and blank lines do not count; a statement counts with all its lines."""
    path = tmp_path / "module.py"
    path.write_text(
        '"""What it is.\n\nMore."""\n\n# Why.\nLIMIT = 3  # bytes\n"""Its meaning."""\n'
        "print(\n    LIMIT,\n\n    # why\n)\n"
        'TEXT = f"""a\n\n# {LIMIT}\n"""\n'
    )

    assert code_lines(path) == 8


def test_package(sizes: dict[str, int]) -> None:
    """The package has no more lines and files than were granted."""
    assert sum(sizes.values()) <= MOST_LINES
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

    assert few <= {"journal", "marks/hook"}  # a file for each side; alone on the PYTHONPATH of the measured program
