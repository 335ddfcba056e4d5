"""Checks imports between layers: the folders of the package."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

import nncftools

ROOT = Path(nncftools.__file__).parent
HERE = {path.stem for path in ROOT.iterdir()}
EVERYBODY = {"backports", "errors", "files", "intake", "markdown", "metrics", "snapshot_rules", "units"}
SAMPLER_MAY_IMPORT = {"errors", "files", "metrics"}
"""Of the ground floor: it is small, and needs only the standard library."""
MAY_IMPORT = {
    "journal": set[str](),
    "session": {"journal"},
    "sampler": {"journal"},
    "analysis": {"session"},
    "render": {"analysis", "limits", "session", "drawing"},
    "importers": {"analysis", "journal", "session"},
    "marks": {"session.nesting"},
    "reading_marks": {"analysis", "marks.line", "session"},
    "limits": {"analysis", "journal", "session", "sampler.control_groups"},
    "snapshots": {"journal", "sampler.target", "sampler.tree"},
    "compression": {"drawing"},
    "live": {"analysis", "journal", "limits", "session", "render", "reading_marks"},
    "api": {
        "sampler.client",
        "snapshots.client",
        "journal",
        "analysis",
        "session",
        "marks",
        "reading_marks",
        "render",
        "importers",
    },
    "testing": {"analysis", "api", "journal", "session", "marks"},
    "cli": {
        "api",
        "live",
        "render",
        "importers",
        "marks",
        "reading_marks",
        "limits",
        "analysis",
        "compression",
        "drawing",
        "sampler.client",
        "sampler.control_groups",
        "snapshots.client",
        "journal",
        "session",
    },
}


def name_of(path: Path) -> str:
    """Return the dotted name of a module inside the package."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


class Module(NamedTuple):
    """What the tests look at in a module, which is parsed once for all of them."""

    imports: frozenset[str]
    """The full names of the modules and objects that it imports, but for those that are for types only."""
    for_types: frozenset[str]
    """These."""
    texts: tuple[str, ...]
    """Its literals except docstrings."""


@functools.cache
def parsed(path: Path) -> Module:
    """Return what is in a module."""
    tree = ast.parse(path.read_bytes())
    for_types = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    tree.body = [node for node in tree.body if node not in for_types]
    nodes, of_types = list(ast.walk(tree)), [inner for node in for_types for inner in ast.walk(node)]
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = (node for node in [*nodes, *of_types] if isinstance(node, ast.Constant) and id(node) not in docs)
    package = path.relative_to(ROOT.parent).parent.parts
    return Module(
        frozenset(_imports(nodes, package)),
        frozenset(_imports(of_types, package)),
        tuple(node.value for node in constants if isinstance(node.value, str)),
    )


def imported(path: Path, *, types: bool = True) -> frozenset[str]:
    """Return the full names of the modules and objects that a module imports, with or without those for types only."""
    module = parsed(path)
    return module.imports | module.for_types if types else module.imports


def _imports(nodes: Iterable[ast.AST], package: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def ours(path: Path) -> set[str]:
    """Return the package's folders and modules that a module imports, by names inside the package."""
    names = (name.partition(".") for name in imported(path))
    inside = {name for root, _, name in names if root == "nncftools"}
    return {name for name in inside if name.partition(".")[0] in HERE}


def is_within(name: str, packages: set[str]) -> bool:
    """Return whether ``name`` is one of the packages or modules, or is inside one of them."""
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def modules(package: str) -> list[Path]:
    """Return the files of a subpackage."""
    return sorted((ROOT / package).rglob("*.py"))


def needed(path: Path, every: set[str], *, types: bool) -> set[str]:
    """Return which of ``every`` module of ours a module imports, by names inside the package."""
    found = set[str]()
    for name in imported(path, types=types):
        inside = name.removeprefix("nncftools.") if name.startswith("nncftools.") else None
        while inside and inside not in every:
            inside = inside.rpartition(".")[0]
        if inside is not None:
            found.add(inside or "__init__")
    return found - {name_of(path)}


SERIES = ("fit", "forecast", "sweep")
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_only_what_its_layer_may(package: str) -> None:
    """No module imports a layer that the table does not list, not even inside a function or for types."""
    forbidden: list[str] = []
    for path in modules(package):
        module = name_of(path)
        ground_floor = SAMPLER_MAY_IMPORT if package == "sampler" else EVERYBODY
        allowed = ground_floor | {package} | MAY_IMPORT.get(module, MAY_IMPORT[package])
        forbidden += [f"{module} -> {name}" for name in sorted(ours(path)) if not is_within(name, allowed)]

    assert forbidden == []


@pytest.mark.parametrize("command", SERIES)
def test_commands_that_run_others_import_nothing_of_each_other(command: str) -> None:
    """What several of them need is in ``cli/series.py`` and ``limits/needs.py``."""
    others = {f"cli.{other}" for other in SERIES if other != command}
    paths = [path for path in modules("cli") if name_of(path).removeprefix("cli.").startswith(command)]

    assert len(paths) > 1
    assert [(name_of(path), name) for path in paths for name in ours(path) if is_within(name, others)] == []


def test_nothing_imports_in_a_circle() -> None:
    """Modules have an order in which each imports only earlier modules, also inside functions and for types."""
    paths = {name_of(path): path for path in ROOT.rglob("*.py")}
    order = graphlib.TopologicalSorter({name: needed(path, set(paths), types=True) for name, path in paths.items()})

    assert set(order.static_order()) >= {"cli.app", "metrics"}  # raises CycleError, which names a circle


@pytest.mark.parametrize("module", sorted(EVERYBODY))
def test_what_everybody_imports_imports_no_layer(module: str) -> None:
    """The modules that all layers share import none of them."""
    assert [name for name in ours(ROOT / f"{module}.py") if not is_within(name, EVERYBODY)] == []


MAY_NAME_OPTIONS = {
    "analysis.summary": "advice on a recording, which a session of merged ranks repeats",
    "limits.needs": "the kind of a limit, which reports show; options of systemd-run",
    "render.sentences": "advice on a recording, which reports repeat wherever they are shown",
    "marks.autoload": "a warning that the command's Python writes for the session",
    "sampler.target": "a warning that the sampler writes for the session",
}


def test_options_are_named_in_cli_alone() -> None:
    """Only ``cli`` names options of the command line; other messages say what is wrong.

    The pytest plugin names its own options.
    """
    option = re.compile(r"--[a-z][a-z0-9_-]+")
    ours = {name for path in modules("cli") for text in parsed(path).texts for name in option.findall(text)}
    elsewhere = [
        path for path in sorted(ROOT.rglob("*.py")) if path.relative_to(ROOT).parts[0] not in {"cli", "testing"}
    ]
    naming = {name_of(path) for path in elsewhere for text in parsed(path).texts if ours & set(option.findall(text))}

    assert "--fail-if" in ours
    assert naming == set(MAY_NAME_OPTIONS)


@pytest.mark.process
@pytest.mark.parametrize("module", ["nncftools", "nncftools.sampler.service", "nncftools.snapshots.helper"])
def test_importing_loads_no_third_party_module(module: str) -> None:
    """Importing the package or the sampler loads only the standard library and itself."""
    program = f"import sys; before = set(sys.modules); import {module}; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    foreign = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names

    assert foreign == {"nncftools"}
