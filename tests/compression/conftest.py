"""Published results that are stored next to the project, not in it."""

from __future__ import annotations

from pathlib import Path

import pytest

PUBLISHED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def phi3() -> Path:
    """Return the published results of Phi-3; the expected outputs are stored with them."""
    path = PUBLISHED / "phi3_asym.csv"
    if not path.exists():
        pytest.skip("the published Phi-3 results (../shared/data) are not next to this checkout")
    return path
