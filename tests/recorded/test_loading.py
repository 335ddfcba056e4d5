"""What the processes of a recording load: later changes may make the lists shorter, not longer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.recorded import loading

SLOW = {"help", "operation", "sampler", "helper"}
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="the sampler loads other modules elsewhere"),
]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in SLOW else ()) for name in loading.LISTS]
)
def test_no_further_module_of_others_is_loaded(name: str, tmp_path: Path) -> None:
    """A process loads no module of the standard library, or of another package, that it did not load before."""
    releases, before = loading.listed(name)
    if releases != loading.releases(name):
        pytest.skip(f"the list is of{releases.removeprefix('#')}; python -m tests.recorded.loading writes it anew")

    assert loading.foreign(name, tmp_path) - before == set()
