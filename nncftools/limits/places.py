"""Where control groups of our own can be made, and what searches that were killed left there.

v1: inside of our own group, so that a container's limit still holds. v2: a group with processes cannot have groups with
controllers inside (cgroup-v2.rst, No Internal Process Constraint), so they are made at the top. Where that is not
allowed, but our own group was delegated to this user, they are made there; this process moves to a group beside them.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from nncftools.backports import running
from nncftools.limits import groups
from nncftools.limits.groups import LimitedGroup, Place
from nncftools.sampler.control_groups import Hierarchies

if TYPE_CHECKING:
    from collections.abc import Iterable

_BESIDE = "nncf-tools"
"""The group that this process moves to."""
_SCOPE = ["systemd-run", "--user", "--scope", "--quiet", "--property=Delegate=yes"]
"""A command in a group of its own that is delegated to its user (systemd.resource-control(5))."""
_LONGEST_S = 10


def parent_group() -> Place:
    """Return the group in which groups can be made. Raises OSError, with a reason, where that is not allowed."""
    own = Hierarchies(groups.PROC).group_of(os.getpid())
    if own is None:
        raise OSError("no memory controller accounts this process's control group")
    if not own.is_v2:
        return _tried(Place(own.folder, is_v2=False))
    try:
        return _tried(Place(own.top, is_v2=True))
    except OSError:
        return _tried(_delegated(pathlib.Path(own.folder)))


def _tried(parent: Place) -> Place:
    trial = LimitedGroup(parent, 0)
    with trial:
        trial.limit(1 << 30, 0)
    return parent


def _delegated(own: pathlib.Path) -> Place:
    """Make room in our own group for groups with limits. Raises OSError where it is not ours."""
    folder = own.parent if own.name == _BESIDE else own
    beside = folder / _BESIDE
    beside.mkdir(exist_ok=True)
    for pid in groups.pids_of(folder):
        groups.write(beside / "cgroup.procs", pid)
    groups.write(folder / "cgroup.subtree_control", "+memory")
    return Place(str(folder), is_v2=True)


def start_in_scope() -> None:
    """Start this program again in a group that this user's systemd delegates; return where that is not possible.

    The process stays the same, with its PID: ``systemd-run --scope`` executes the command itself.
    """
    unit = f"{groups.own_name()}-0.scope"
    if unit in pathlib.Path(groups.PROC, "self/cgroup").read_text(encoding="utf-8", errors="replace"):
        return
    try:
        tried = subprocess.run([*_SCOPE, "--", "true"], capture_output=True, timeout=_LONGEST_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
    if tried.returncode == 0:
        again = [*running("nncftools"), *sys.argv[1:]]
        os.execvp(_SCOPE[0], [*_SCOPE, f"--unit={unit}", "--", *again])  # noqa: S606 — no shell is wanted


def remove_leftovers(parent: Place) -> list[str]:
    """Remove the groups of searches that were killed, with all that runs in them; return their folders."""
    place = pathlib.Path(parent.folder)
    found = []
    for folder in (*place.glob(f"{groups.PREFIX}*"), *_scopes_beside(place)):
        owner = re.fullmatch(rf"{groups.PREFIX}(\d+)-(\d+)-\d+(\.scope)?", folder.name)
        if owner is not None and groups.started(int(owner[1])) != owner[2]:
            groups.remove(folder)
            found.append(str(folder))
    return found


def has_swap() -> bool:
    """Return whether the machine has swap; where nothing says so, it may."""
    try:
        return len(pathlib.Path(groups.PROC, "swaps").read_text(encoding="utf-8").splitlines()) > 1
    except OSError:
        return True


def _scopes_beside(place: pathlib.Path) -> Iterable[pathlib.Path]:
    return place.parent.glob(f"{groups.PREFIX}*.scope") if place.name.startswith(groups.PREFIX) else ()
