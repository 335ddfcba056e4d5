from __future__ import annotations

import pytest

from nncftools.analysis.operation import Operation, short_name, signature


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("nncf.compress_weights", "compress_weights"),
        ("nncf.quantize", "quantize"),
        ("openvino.Core.compile_model", "compile_model"),
        ("torch.onnx.export", "torch.onnx.export"),
        ("torch.save", "torch.save"),
        ("openvino.CompiledModel.__call__", "CompiledModel.__call__"),
        ("transformers.PreTrainedModel.from_pretrained", "PreTrainedModel.from_pretrained"),
        ("torch.optim.Adam.step", "Adam.step"),
        ("ovc", "ovc"),
    ],
)
def test_short_name(call: str, expected: str) -> None:
    """A function is named as shortly as it is clear."""
    assert short_name(call) == expected


@pytest.mark.parametrize(
    ("name", "call", "arguments", "expected"),
    [
        ("Weight Compression", "nncf.compress_weights", "INT4_SYM, g64", "compress_weights(INT4_SYM, g64)"),
        ("Export", "torch.onnx.export", None, "torch.onnx.export"),
        ("Training", "torch.autograd.backward, torch.optim.Adam.step", None, "torch.autograd.backward, Adam.step"),
        ("Scale estimation", "nncf.ScaleEstimation.apply", None, ""),
        ("Export", None, None, ""),
    ],
)
def test_signature(name: str, call: str | None, arguments: str | None, expected: str) -> None:
    """A function is shown with its arguments, and not at all where the operation's name says as much."""
    assert signature(name, call, arguments) == expected
    assert Operation(name=name, start_s=0, end_s=1, call=call, arguments=arguments).signature == expected
