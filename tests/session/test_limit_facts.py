from __future__ import annotations

import io
from typing import Any

import pytest

from nncftools.session.model import ControlGroup, FileRead, FileSystem, Floor, MemoryLimit, OomKills
from nncftools.session.recording import session_from
from tests.made_up import header, journal


def fields(*lines: Any) -> dict[str, Any]:  # noqa: ANN401 — lines of a journal
    """Return the fields of a session that lines of a journal make."""
    first = header()
    first["plan"]["redact"] = ["hush"]
    session = session_from(io.BytesIO(journal(*lines, first=first)), "run")
    names = ("memory_limits", "control_groups", "oom_kills", "file_systems", "floor", "files_read")
    return {name: getattr(session, name) for name in names}


def test_nothing() -> None:
    """A journal without such lines says nothing of limits, and the floor is unknown."""
    assert fields({"warning": "other"}) == {
        "memory_limits": [],
        "control_groups": [],
        "oom_kills": [],
        "file_systems": [],
        "floor": None,
        "files_read": [],
    }


def test_limits_groups_and_kills() -> None:
    """Each line of a limit, a group or a kill is kept."""
    limit = {"kind": "control group", "size": 5, "set_by": "/cg/memory.max", "process": 2}
    kills = [{"group": "/cg", "from_s": at_s, "to_s": at_s + 1, "count": 1} for at_s in (1, 2)]
    group = {"folder": "/cg", "oom_kills": 3, "process": 2}
    found = fields({"memory_limit": limit}, {"group": group}, *({"oom_kills": one} for one in kills))

    assert found["memory_limits"] == [MemoryLimit(**limit)]
    assert found["control_groups"] == [ControlGroup(folder="/cg", oom_kills=3)]
    assert found["oom_kills"] == [OomKills(**one) for one in kills]


def test_last_line_counts() -> None:
    """A later line of the same file system, and of the floor, replaces the earlier one."""
    rooms = [{"role": role, "size": 9, "lowest": lowest} for role, lowest in (("cwd", 5), ("TMPDIR", 1), ("cwd", 4))]
    floors = [{"size": size, "at_s": size / 2, "mapped": 3} for size in (10, 20)]
    found = fields(*({"file_system": one} for one in rooms), *({"floor": one} for one in floors))

    assert found["file_systems"] == [
        FileSystem(role="cwd", size=9, lowest=4),
        FileSystem(role="TMPDIR", size=9, lowest=1),
    ]
    assert found["floor"] == Floor(size=20, at_s=10, mapped=3)


def test_files() -> None:
    """A file that is named twice counts once, with its largest size; secrets in paths are hidden."""
    found = fields(
        {"files_read": {"files": [("/a", 5), ("/hush/b", 1)]}},
        {"files_read": {"files": [("/a", 7)]}},
        {"files_read": {"files": [("/a", 6)]}},
    )

    assert found["files_read"] == [FileRead(path="/a", size=7), FileRead(path="/***/b", size=1)]


@pytest.mark.parametrize("line", [{"floor": {"size": "much"}}, {"memory_limit": {}}, {"file_system": {"role": 1}}])
def test_bad_line(line: dict[str, Any]) -> None:
    """A line of another form is left out and counted."""
    session = session_from(io.BytesIO(journal(line)), "run")

    assert "1 line of the journal could not be read: line 4" in session.warnings
