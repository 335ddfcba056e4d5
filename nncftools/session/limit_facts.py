"""The lines of a journal about limits, killed processes, room on disks and the floor, as fields of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from nncftools.session.model import ControlGroup, FileRead, FileSystem, Floor, MemoryLimit, OomKills

if TYPE_CHECKING:
    from nncftools.journal.lines import Line
    from nncftools.redaction import Redaction


class LimitFacts:
    """Collects the lines."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._limits: list[MemoryLimit] = []
        self._groups: list[ControlGroup] = []
        self._kills: list[OomKills] = []
        self._file_systems: dict[str, FileSystem] = {}
        self._floor: Floor | None = None
        self._files: dict[str, int] = {}

    def take(self, line: Line) -> None:
        """Take a line if it is one of these. Raises msgspec.ValidationError."""
        if "memory_limit" in line:
            self._limits.append(msgspec.convert(line["memory_limit"], MemoryLimit))
        if "group" in line:
            self._groups.append(msgspec.convert(line["group"], ControlGroup))
        if "oom_kills" in line:
            self._kills.append(msgspec.convert(line["oom_kills"], OomKills))
        if "file_system" in line:
            found = msgspec.convert(line["file_system"], FileSystem)
            self._file_systems[found.role] = replace(found, path=self._redaction.text(found.path))
        if "floor" in line:
            self._floor = msgspec.convert(line["floor"], Floor)
        if "files_read" in line:
            for path, size in line["files_read"]["files"]:
                self._files[path] = max(size, self._files.get(path, 0))

    def fields(self) -> dict[str, Any]:
        """Return the fields of the session."""
        files = [FileRead(path=self._redaction.text(path), size=size) for path, size in self._files.items()]
        return {
            "memory_limits": self._limits,
            "control_groups": self._groups,
            "oom_kills": self._kills,
            "file_systems": list(self._file_systems.values()),
            "floor": self._floor,
            "files_read": files,
        }
