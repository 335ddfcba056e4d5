from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError
from nncftools.render.stacks import collapsed_report, report
from nncftools.render.view import View
from nncftools.session.model import Frame, Snapshots
from tests.golden_outputs import FOLDER
from tests.made_up import MIB, session
from tests.render.built_up import MAIN, built_up

VIEW = View(metrics=["rss"])


def test_hostile_names() -> None:
    """A name with a semicolon or a new line is one frame on one line."""
    hostile = Frame("a;b\nc 5", "/home/x;y/z\n.py", 1)

    assert collapsed_report(built_up(([MAIN, hostile], 100)), VIEW).splitlines() == [
        rf"main (me/export.py:10);a:b\nc 5 (x:y/z\n.py:1) {100 * MIB}"
    ]


@pytest.mark.parametrize(
    "of, why",
    [
        (session(), "this session has none"),
        (session(snapshots=Snapshots(missing="py-spy is not\ninstalled")), r"none were taken: py-spy is not\\n"),
        (built_up(([MAIN], 10), peaks={}), "the moment of the peak is unknown"),
    ],
    ids=["no snapshots", "missing", "no peak"],
)
def test_without_stacks(of: Session, why: str) -> None:
    """A session without stacks is refused in one line that says why."""
    with pytest.raises(NncfToolsError, match=rf"^collapsed needs the stacks of the peak; {why}.*\Z") as error:
        collapsed_report(of, VIEW)
    assert error.value.remedy == "stacks"


SCHEMA = Path(__file__).parents[1] / "data" / "speedscope_1.25.schema.json"
"""The published schema of the format: https://www.speedscope.app/file-format-schema.json"""


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.speedscope.txt")), ids=lambda path: path.name)
def test_goldens_keep_the_schema(path: Path) -> None:
    """The documents for speedscope are valid by the published schema, and every stack has its weight."""
    found = json.loads(path.read_bytes())
    jsonschema.validate(found, json.loads(SCHEMA.read_bytes()))

    for profile in found["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == sum(profile["weights"])
        assert all(0 <= frame < len(found["shared"]["frames"]) for stack in profile["samples"] for frame in stack)


def test_any_name() -> None:
    """A name that no UTF-8 has is written, too."""
    found = json.loads(report(built_up(([Frame("</script>\x00", "", 0), Frame("", "\ud800", -1)], 100)), VIEW))

    assert found["shared"]["frames"][0] == {"name": r"</script>\x00"}
