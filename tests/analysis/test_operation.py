from __future__ import annotations

import pytest
from msgspec.structs import astuple

from nncftools.analysis.operation import Operation, combine_calls, short_name, signature
from tests.made_up import figures, read_numbers


@pytest.mark.parametrize(
    "call, expected",
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
    "name, call, arguments, expected",
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


@pytest.mark.parametrize(
    "durations_s, peaks, duration, peak",
    [
        ([2, 1, 4, 3], "10 30 20 5", "1 2.5 4 3", "5 15 30 2"),
        ([1, 1, 1], "7 7 7", "1 1 1 1", "7 7 7 1"),
        ([1, 2], "7 -", "1 1.5 2 2", ""),
        ([0.3 - 0.1, 0.2], "- -", "0.2 0.2 0.2 1", ""),
    ],
)
def test_spreads(durations_s: list[float], peaks: str, duration: str, peak: str) -> None:
    """A row of calls knows the least, the median and the largest, and which was the largest; not if one is unknown."""
    calls = []
    for number, (duration_s, size) in enumerate(zip(durations_s, read_numbers(peaks), strict=True)):
        start_s = 10.0 * number
        levels = figures(rss=(0, 0, size))
        calls.append(Operation(name="Step", start_s=start_s, end_s=start_s + duration_s, figures=levels))
    expected = {name: tuple(read_numbers(text)) or None for name, text in (("duration", duration), ("peak", peak))}

    assert {name: of and astuple(of) for name, of in combine_calls(calls).spreads.items()} == expected


def test_spreads_of_counted_calls() -> None:
    """Of calls that a recording counted together, the single ones are unknown; a single call has no spread."""
    calls = [Operation(name="Step", start_s=start_s, end_s=start_s + 1, count=5) for start_s in (0, 2)]

    assert combine_calls(calls).spreads == {}
    assert Operation(name="Step", start_s=0, end_s=1).spreads == {}
