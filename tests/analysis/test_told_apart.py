from __future__ import annotations

import pytest

from nncftools.analysis.peak_text import without_shared_start


class TestToldApart:
    def test_shared_beginning(self) -> None:
        """Names lose the beginning that they share, as far as every rest is unlike the end of any other name."""
        names = ["a.export.layer_0.attention", "a.export.layer_0.mlp_up", "a.export.layer_1.attention", "Export"]

        assert list(without_shared_start(names).values()) == [
            "…layer_0.attention",
            "…layer_0.mlp_up",
            "…layer_1.attention",
            "Export",
        ]

    def test_words(self) -> None:
        """Names without parts lose whole words, as long as enough is left."""
        assert without_shared_start(["compress_weights_of_block_12", "compress_weights_of_block_13"]) == {
            "compress_weights_of_block_12": "…block_12",
            "compress_weights_of_block_13": "…block_13",
        }

    @pytest.mark.parametrize("names", [[], ["Export"], ["Export", "Export model"], ["step 1", "step 2"]])
    def test_nothing_to_lose(self, names: list[str]) -> None:
        """A name that shares nothing, or of which too little would be left, stays whole."""
        assert without_shared_start(names) == {name: name for name in names}
