from __future__ import annotations

import pathlib

import pytest

from nncftools.compression.reading import ResultsError, read


def test_many_columns(tmp_path: pathlib.Path) -> None:
    """A header of very many columns is checked in time that grows with their number."""
    path = tmp_path / "results.csv"
    path.write_text(",".join(map(str, range(200_000))) + ",0\n" + ",".join("1" * 200_001) + "\n")

    with pytest.raises(ResultsError, match="named twice: '0'"):
        read(path)
