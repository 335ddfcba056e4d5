"""By how much the kernel's RSS of a process may be off on machines with many cores."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nncftools.session.model import Host

_SINCE, _EXACT_AGAIN = (6, 2), (6, 16)
"""Linux counts RSS on each CPU since commit f1a7941243c1. /proc adds these counts up again since 82241a83cd15."""
_ALSO_EXACT = {(6, 6): 99, (6, 12): 39, (6, 15): 7}
"""The stable releases that took 82241a83cd15: from this patch level on."""
_LEAST_BATCH = 32
_PAGE, _LARGE_PAGE = 4096, 65536
_RELEASE = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")


def rss_error(host: Host) -> int:
    """Return by how many bytes RSS in /proc may be off for one process; 0 where it is exact, or nothing is known.

    Each CPU adds its count to the sum when it has reached a batch, max(32, 2 × CPUs) pages (lib/percpu_counter.c).
    """
    found = _RELEASE.match(host.release)
    if host.system != "Linux" or host.cpus is None or found is None:
        return 0
    series, patch = (int(found[1]), int(found[2])), int(found[3] or 0)
    if not _SINCE <= series < _EXACT_AGAIN or patch >= _ALSO_EXACT.get(series, patch + 1):
        return 0
    has_large_pages = "64k" in host.release or host.machine.startswith("ppc64")
    return max(_LEAST_BATCH, 2 * host.cpus) * host.cpus * (_LARGE_PAGE if has_large_pages else _PAGE)
