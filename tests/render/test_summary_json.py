from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nncftools.analysis.build_up import SEEN, BuildUp, Part
from nncftools.render.summary_json import peak_tree
from nncftools.session.model import MOST_FRAMES, Frame
from tests.golden_outputs import FOLDER
from tests.made_up import session

DOCUMENTED = Path(__file__).parents[2] / "docs" / "reports.md"


def keys(document: Any, above: str = "") -> Iterator[str]:  # noqa: ANN401 — any JSON
    """Yield all keys with those above them, metrics by one name."""
    for key, value in document.items() if isinstance(document, dict) else ():
        name = "METRIC" if above in {"peaks", "memory"} else key
        yield f"{above}.{name}" if above else name
        yield from keys(value, f"{above}.{name}" if above else name)
    for value in document if isinstance(document, list) else ():
        yield from keys(value, f"{above}[]")


def section(heading: str) -> str:
    """Return a section of the documentation."""
    return DOCUMENTED.read_text(encoding="utf-8").partition(f"## {heading}")[2].partition("\n## ")[0]


def test_every_key_is_documented() -> None:
    """The documentation names the keys of the summary, and no other."""
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", section("The summary"), re.MULTILINE)
    written = {f"{of}.{key}".lstrip(".") for of, meanings in rows for key in re.findall(r"`(\w+)`", meanings)}
    names = ("", ".recorded", ".built_up", ".died_of_limit", ".parallel")
    goldens = [FOLDER / f"report{name}.json" for name in names]
    found = {key for path in goldens for key in keys(json.loads(path.read_text(encoding="utf-8")))}
    of_sessions = ("host.", "sampler.", "start.", "exit.", "totals.", "processes.mattering[].exit.")
    of_marks = ("phases[].own_start.", "phases[].own_end.")

    assert {key for key in found if not key.startswith((*of_sessions, *of_marks))} == written


def test_every_key_of_the_peak_is_documented() -> None:
    """The documentation names the keys of the tree of the peak, and no other."""
    found = json.loads((FOLDER / "peak.built_up.json").read_text(encoding="utf-8"))

    assert [*found] == re.findall(r"^\| `(\w+)` \|", section("The tree of the peak"), re.MULTILINE)
    assert {*found} == {*found["children"][0], "format", "version", "at_s"}


def test_deep_stacks() -> None:
    """The deepest stack that is recorded can be written and read; a deeper one has no inner frames."""
    frames = tuple(Frame(f"f{depth}", "/a.py", 1) for depth in range(MOST_FRAMES))
    found = json.loads(peak_tree(session(), BuildUp(1.0, 10, [Part(10, SEEN, 0, frames)]), ""))
    for _ in range(401):
        (found,) = found["children"]

    assert (found["function"], found["bytes"], found["children"]) == ("f400", 10, [])
