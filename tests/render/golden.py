"""A made-up session with operations, counters and a gap; saved as ``tests/data/runs/export.json`` it has goldens."""

from __future__ import annotations

from nncftools.analysis.session import Session
from nncftools.render.view import View
from nncftools.session.model import Exit, Host, Mark, SamplerFacts
from tests.made_up import MIB, mib, process, session

VIEW = View(metrics=["rss", "system"], depth=2)


def run() -> Session:
    """Return an export of 12 seconds with four operations, one inside another, PSS now and then, and one gap."""
    rss = (100, 300, 500, 900, 1500, 1400, 1800, 2600, 2500, 900, 800, 700, 300)
    time_s = (*range(10), 11.5, 12, 12.25)
    return session(
        {
            "time_s": time_s,
            "rss": mib(*rss),
            "pss": mib(90, None, None, None, 1450, None, None, None, 2400, None, None, None, 290),
            "system": mib(*(size + 2000 for size in rss)),
            "cpu_user": [at_s * 1.5 for at_s in time_s],
            "cpu_system": [at_s * 0.25 for at_s in time_s],
            "read_bytes": [min(place, 4) * 50 * MIB for place in range(13)],
            "write_bytes": [max(0, place - 9) * 40 * MIB for place in range(13)],
            "read_chars": [min(place, 4) * 60 * MIB for place in range(13)],
            "write_chars": [max(0, place - 9) * 41 * MIB for place in range(13)],
        },
        name="export",
        command=["optimum-cli", "export", "openvino", "--model", "a|b `c` <d>", "out"],
        duration_s=12.25,
        exit=Exit(code=0),
        host=Host(name="box", system="Linux", cpus=4, memory=16 << 30),
        sampler=SamplerFacts(
            cpu_s=0.125,
            peak_rss=11 * MIB,
            interval_s=1.0,
            achieved_interval_s=1.02,
            taken=13,
            missed=1,
            longest_gap_s=2.5,
            source="proc",
        ),
        totals={
            "cpu_user": 18.375,
            "cpu_system": 3.0625,
            "read_bytes": 200 * MIB,
            "write_bytes": 120 * MIB,
            "read_chars": 240 * MIB,
            "write_chars": None,
        },
        processes=[
            process(name="optimum-cli", end_s=12.25, peak_rss=400 * MIB, cpu_s=2.0, samples=13),
            process(
                1,
                parent=0,
                name="python",
                start_s=1.0,
                end_s=12.0,
                peak_rss=2300 * MIB,
                high_water_mark=2400 * MIB,
                cpu_s=19.0,
                samples=11,
                exit=Exit(code=0),
            ),
        ],
        marks=[
            Mark(name="Model Loading", start_s=0.5, end_s=4, source="auto", call="transformers.from_pretrained"),
            Mark(
                name="Export",
                start_s=4,
                end_s=9,
                source="auto",
                call="torch.onnx.export",
                arguments="model.onnx, opset 18",
                saved="/tmp/model.onnx",
            ),
            Mark(name="trace_*model*", start_s=5, end_s=6.5, depth=1, source="api", error="ValueError: | no"),
            Mark(name="Saving", start_s=10, source="auto"),
        ],
        warnings=["made up | by hand"],
    )
