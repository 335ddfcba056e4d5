from __future__ import annotations

from nncftools.cli.sweep.worker.model import Constant, count_weights


def test_weights_are_counted_by_width() -> None:
    """Matrices count, also in groups; scales, zero points, vectors and indices do not."""
    found = [
        Constant("layer.weight", "i4", (64, 9, 64)),
        Constant("layer.weight/scale", "f16", (64, 9, 1)),
        Constant("layer.weight/zero_point", "u8", (64, 9, 1)),
        Constant("embeddings.weight", "u8", (100, 576)),
        Constant("norm.weight", "f32", (1, 1, 576)),
        Constant("Constant_1", "i64", (4, 4)),
    ]

    assert count_weights(found) == {"int4": 64 * 576, "int8": 57600}
