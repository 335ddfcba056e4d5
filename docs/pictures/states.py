"""Made-up sessions in which a page or a picture is seldom looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nncftools.session.model import Exit, Frame, Host, LimitReached, Mark, SamplerFacts
from tests.made_up import MIB, process, session
from tests.render.built_up import LOAD, MACHINERY, MAIN, TRACE, built_up, group, mapped

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nncftools.analysis.session import Session

_LAYER = ("self_attn", "mlp_gate_up_projection", "input_layernorm", "post_attention_layernorm")
_EXPORT = "optimum.exporters.openvino.convert.export_from_model.layer"
_SCALES = "nncf.quantization.algorithms.weight_compression.scale_estimation"
_CONVERT = Frame("convert", "/venv/lib/python3.12/site-packages/openvino/frontend/pytorch/ts_decoder.py", 178)


def many_operations() -> Session:
    """Return 40 operations with long names that begin alike, with others inside, and 30 processes."""
    time = np.linspace(0, 400, 2000)
    rss = np.maximum(300 + 20 * time * (1 + 0.2 * np.sin(time / 7)) - 3000 * (time > 300), 200) * MIB  # noqa: PLR2004
    lengths = np.random.default_rng(3).uniform(1, 20, 40)
    ends = np.cumsum(lengths / lengths.sum() * 395)
    marks = []
    for place, end_s in enumerate(ends.tolist()):
        start_s = float(ends[place - 1]) if place else 0.0
        long_s = end_s - start_s
        name = f"{_EXPORT}_{place // 4}.{_LAYER[place % 4]}"
        call = {"call": "nncf.compress_weights", "arguments": f"INT4_SYM, group_size {16 * (place + 1)}"}
        marks.append(Mark(name=name, start_s=start_s, end_s=start_s + long_s * 0.95, **call))
        if place % 4 == 1:
            inner = {"start_s": start_s + long_s * 0.1, "depth": 1}
            marks.append(Mark(name=f"{_SCALES}.step_{place}", end_s=start_s + long_s * 0.5, **inner))
    processes = [process(name="optimum-cli", peak_rss=400 * MIB, cpu_s=3.0, end_s=400.0)]
    for number in range(1, 30):
        parent = 0 if number < 6 else number // 3  # noqa: PLR2004 — a tree of three levels
        cost = {"peak_rss": (30 - number) * 100 * MIB, "cpu_s": float(number * 3 % 17)}
        life = {"start_s": float(number), "end_s": 400.0 - number}
        processes.append(process(number, parent=parent, name=f"python-worker-{number}", **cost, **life))
    columns = _columns(time, rss)
    return session(columns, command=["optimum-cli", "export"], marks=marks, processes=processes, **_run(400.0))


def near_its_limit() -> Session:
    """Return a run that was ended because it exceeded --max-memory."""
    time = np.linspace(0, 60, 600)
    rss = (100 + 950 * np.abs(np.sin(time / 40))) * MIB
    marks = [
        Mark(name="Model Loading", start_s=1, end_s=14, call="transformers.AutoModel.from_pretrained"),
        Mark(name="Compression", start_s=15, end_s=59, call="nncf.compress_weights", error="MemoryError"),
    ]
    limit = LimitReached(at_s=58.0, rss=1040 * MIB, limit=1024 * MIB, action="kill")
    ended = {"exit": Exit(signal=9), "limit_reached": limit, "marks": marks}
    return session(_columns(time, rss), **{**_run(60.0), **ended})


def with_stacks() -> Session:
    """Return a run with stacks and mappings."""
    steps = [([MAIN, LOAD], 300), ([MAIN, MACHINERY], 150), ([MAIN, TRACE], 500), ([MAIN, _CONVERT], 250)]
    file = group("file", 280, "/m/model.safetensors", copied=20)
    mappings = [
        mapped(place / 2 + 0.1, group("anonymous", 90 * place + 20), group("libraries", 120), *([file] * (place > 1)))
        for place in range(8)
    ]
    marks = [Mark(name="Model Loading", start_s=0, end_s=2), Mark(name="Export", start_s=2, end_s=3.8)]
    return built_up(*steps, mappings=mappings, marks=marks)


def one_sample() -> Session:
    """Return a run of which a single sample was taken."""
    return session({"time_s": [0.01], "rss": [50 * MIB]}, duration_s=0.012, marks=[Mark(name="Export", start_s=0)])


def _columns(time: NDArray[np.float64], rss: NDArray[np.float64]) -> dict[str, list[float | None]]:
    found = {"time_s": time, "rss": rss, "anon": rss * 0.7, "file": rss * 0.3, "cpu_user": time * 1.7}
    found |= {"cpu_system": time * 0.1, "read_bytes": time * 3e6, "write_bytes": time * time * 1e4}
    return {name: column.tolist() for name, column in found.items()}


def _run(length_s: float) -> dict[str, Any]:
    sampler = SamplerFacts(interval_s=0.2, achieved_interval_s=0.2)
    totals = {"cpu_user": 1.7 * length_s, "cpu_system": 0.1 * length_s}
    return {
        "duration_s": length_s,
        "host": Host(name="box", cpus=8, memory=64 << 30),
        "sampler": sampler,
        "totals": totals,
    }


STATES = {
    "many operations": many_operations,
    "near its limit": near_its_limit,
    "with stacks": with_stacks,
    "one sample": one_sample,
}
