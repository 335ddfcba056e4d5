"""What makes code hard to read, by file and line: ``python -m tests.legible FOLDER [...]``.

A node of the syntax tree is squeezed if it does several things that a reader must take apart: an assignment of several
unrelated values at once, a conditional expression inside a comprehension or inside another one, a comprehension with
two loops that does more than flatten a list. A line is dense if it has more than 25 tokens; tables and signatures do
not count. A call with more than four positional arguments must name them.

The prose of a file is its docstrings, its comments, and its strings of four words or more. A stand-in is a word in
place of a noun. A fragment is a text that begins with a preposition, or with "The same".
"""

from __future__ import annotations

import ast
import collections
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

STAND_INS = ("what", "which", "that of", "those of", "one", "ones", "its", "it")
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_TABLES = (ast.List, ast.Tuple, ast.Dict, ast.Set)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST_TOKENS = 25
_MOST_POSITIONAL = 4
_FEW_WORDS = 4
_F_STRINGS = {getattr(tokenize, "FSTRING_START", -1): 1, getattr(tokenize, "FSTRING_END", -1): -1}
"""Python 3.12 and later take an f-string apart: what each of its two ends adds to the depth."""


def is_text(node: ast.AST) -> bool:
    """Return whether a statement is only a text: the docstring of a module, function, class or attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def squeezed_lines(tree: ast.Module) -> list[int]:
    """Return the line number of each squeezed node."""
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.expr) and _is_squeezed(node)]


def _is_squeezed(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return _assigns_unrelated(node)
    inner = [found for child in ast.iter_child_nodes(node) for found in ast.walk(child)]
    has_choice = any(isinstance(found, ast.IfExp) for found in inner)
    if isinstance(node, ast.IfExp):
        return has_choice
    if isinstance(node, _COMPREHENSIONS):
        return has_choice or len(node.generators) > 1
    return False


def _assigns_unrelated(node: ast.Assign) -> bool:
    """Return whether an assignment has several names and several values, and is no swap."""
    target = node.targets[0]
    if not isinstance(target, ast.Tuple) or not isinstance(node.value, ast.Tuple):
        return False
    names = {ast.unparse(name) for name in target.elts}
    values = {ast.unparse(value) for value in node.value.elts}
    return len(target.elts) > 1 and names != values


def dense_lines(source: str, tree: ast.Module) -> list[int]:
    """Return the numbers of the lines with more tokens than a reader takes in at once."""
    left_out = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            left_out.update(range(node.lineno, node.body[0].lineno))
        elif isinstance(node, _TABLES) and node.end_lineno != node.lineno:
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = collections.Counter[int]()
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.string.strip() and token.type != tokenize.COMMENT and depth == 0:
            tokens[token.start[0]] += 1
        depth += _F_STRINGS.get(token.type, 0)
    return sorted(line for line, number in tokens.items() if number > _MOST_TOKENS and line not in left_out)


def positional_calls(tree: ast.Module) -> list[int]:
    """Return the line number of each call with too many positional arguments."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if len(call.args) > _MOST_POSITIONAL and not any(isinstance(word, ast.Starred) for word in call.args)
    ]


def prose_of(source: str, tree: ast.Module) -> Iterator[str]:
    """Yield the texts for readers: docstrings, long strings, comments."""
    docstrings = set[int]()
    for node in ast.walk(tree):
        if is_text(node):
            docstrings.update(map(id, ast.iter_child_nodes(node)))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) in docstrings or len(node.value.split()) >= _FEW_WORDS:
            yield node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")


def count_words(text: str) -> tuple[int, int]:
    """Return the number of words of a text, and of stand-ins."""
    stand_ins = sum(len(re.findall(rf"\b{word}\b", text.lower())) for word in STAND_INS)
    return len(re.findall(r"[a-z']+", text.lower())), stand_ins


def fragments(source: str, tree: ast.Module) -> list[str]:
    """Return the texts that begin like a part of a sentence."""
    return [text for text in prose_of(source, tree) if re.match(r"\s*(Of|The same|By|For)\b", text)]


def findings_in(path: Path) -> dict[str, list[str]]:
    """Return what is hard to read in a file, as ``FILE:LINE`` or ``FILE:TEXT``, by kind."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    places_of: dict[str, list[int] | list[str]] = {
        "squeezed": squeezed_lines(tree),
        "dense": dense_lines(source, tree),
        "positional": positional_calls(tree),
        "fragment": fragments(source, tree),
    }
    return {kind: [f"{path}:{place}" for place in places] for kind, places in places_of.items()}


def words_in(path: Path) -> tuple[int, int]:
    """Return the number of words of a file's prose, and of stand-ins."""
    source = path.read_text(encoding="utf-8")
    return count_words(" ".join(prose_of(source, ast.parse(source))))


def main(folders: list[str]) -> None:
    """Print each finding with its place, and the share of stand-ins of each file."""
    all_words = all_stand_ins = 0
    for folder in folders:
        root = Path(folder)
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            for kind, places in findings_in(path).items():
                for place in places:
                    print(f"{place}: {kind}")
            words, stand_ins = words_in(path)
            print(f"{path}: {words} words, {1000 * stand_ins / max(words, 1):.0f} stand-ins per 1,000")
            all_words += words
            all_stand_ins += stand_ins
    print(f"{all_words} words, {1000 * all_stand_ins / max(all_words, 1):.1f} stand-ins per 1,000")


if __name__ == "__main__":
    main(sys.argv[1:] or ["nncftools"])
