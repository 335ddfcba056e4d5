"""Write which catalogued names of NNCF each of some versions lacks: nncf_versions.py WHEEL...

The wheels come from ``pip download --no-deps nncf==VERSION``. The result is ``nncf_versions.json`` beside this file.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from pathlib import Path

from nncftools.marks.autoload import catalogued

RESULT = Path(__file__).with_suffix(".json")


def defined(source: bytes) -> set[str]:
    """Return the functions of a module, and ``Class.method`` of its classes."""
    body = ast.parse(source).body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    methods = {f"{of.name}.{node.name}" for of in classes for node in of.body if isinstance(node, ast.FunctionDef)}
    return methods | {node.name for node in body if isinstance(node, ast.FunctionDef)}


def lacking(wheel: Path) -> list[str]:
    """Return the catalogued names that a version lacks, as ``module:name``."""
    missing = []
    with zipfile.ZipFile(wheel) as files:
        for module, functions in catalogued("nncf").items():
            try:
                there = defined(files.read(f"{module.replace('.', '/')}.py"))
            except KeyError:
                there = set()
            missing += [f"{module}:{function}" for function in functions if function not in there]
    return missing


def main(wheels: list[str]) -> None:
    """Write the result for these wheels."""
    found = {wheel.name.split("-")[1]: lacking(wheel) for wheel in map(Path, wheels)}
    in_order = sorted(found, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])
    RESULT.write_text(json.dumps({version: found[version] for version in in_order}, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
