"""A machine with control groups, as files in a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

V1, V2 = "memory.usage_in_bytes", "memory.current"
"""The files of what is charged to a group."""
UNLIMITED_V1 = (1 << 63) - 4096
TMPFS = "tmpfs - tmpfs tmpfs rw,mode=755"


class Machine:
    """A proc directory with one process, and the control group file systems that it names."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.folder = folder
        (self.proc / "7").mkdir(parents=True)
        (self.proc / "self").mkdir()
        self.mounts = [
            f"31 23 0:28 / /sys/fs/cgroup rw,relatime - {TMPFS}",
            "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw",
        ]
        self._write_mounts()

    def belongs(self, *groups: str) -> None:
        """Write the groups of process 7, as lines of its cgroup file."""
        (self.proc / "7/cgroup").write_text("".join(f"{group}\n" for group in groups))

    def mount(
        self, kind: str, controllers: str = "", *, root: str = "/", point: str = "cg", optional: str = ""
    ) -> None:
        """Mount a hierarchy at ``point``, of which ``root`` is shown."""
        text = f"{self.folder / point}".replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
        shown = root.replace("\\", "\\134").replace(" ", "\\040")
        options = f"rw,{controllers}" if controllers else "rw"
        self.mounts.append(f"35 31 0:32 {shown} {text} rw,relatime {optional}- {kind} cgroup {options}")
        self._write_mounts()

    def _write_mounts(self) -> None:
        (self.proc / "self/mountinfo").write_text("".join(f"{line}\n" for line in self.mounts))

    def charge(self, place: str, name: str, size: int | str) -> Path:
        """Write a file of the group whose folder is ``place``: by its name, what is charged to it or its limit."""
        (self.folder / place).mkdir(parents=True, exist_ok=True)
        (self.folder / place / name).write_text(f"{size}\n")
        return self.folder / place / name

    def belongs_to_v1(self, limits: Mapping[str, int], used: int = 0) -> None:
        """Put process 7 into the innermost of nested groups of version 1; ``limits`` are by path, the outermost first.

        0 is no limit. All of them have used the same.
        """
        self.mount("cgroup", "memory")
        least = UNLIMITED_V1
        for path, size in limits.items():
            least = min(least, size or UNLIMITED_V1)
            self.charge(f"cg{path}", V1, used)
            self.charge(f"cg{path}", "memory.limit_in_bytes", size or UNLIMITED_V1)
            self.charge(f"cg{path}", "memory.stat", f"hierarchical_memory_limit {least}\ntotal_inactive_file 0")
            self.charge(f"cg{path}", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0")
            self.belongs(f"4:memory:{path}")

    def belongs_to_v2(self, limits: Mapping[str, int], used: int = 0) -> None:
        """Do the same with groups of version 2."""
        self.mount("cgroup2")
        for path, size in limits.items():
            self.charge(f"cg{path}", V2, used)
            self.charge(f"cg{path}", "memory.max", size or "max")
            self.charge(f"cg{path}", "memory.high", "max")
            self.charge(f"cg{path}", "memory.stat", "anon 0\ninactive_file 0")
            self.charge(f"cg{path}", "memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0")
            self.belongs(f"0::{path}")
