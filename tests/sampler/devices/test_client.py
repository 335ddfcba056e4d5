from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from nncftools.journal.writing import Plan
from nncftools.sampler import client
from nncftools.sampler.link import DeviceRelay
from nncftools.sampler.probes import machine
from nncftools.sampler.probes.machine import Devices

SECOND = 10**9


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return the ends of a pipe; the relay closes its own."""
    reader, writer = os.pipe()
    yield reader, writer
    for end in (reader, writer):
        try:
            os.close(end)
        except OSError:
            continue


def relayed(reader: int) -> tuple[DeviceRelay, list[tuple[str, Any]]]:
    """Return a relay of a recording that began at 5 s, and the lines that it writes."""
    lines: list[tuple[str, Any]] = []
    return DeviceRelay(reader, lambda key, value: lines.append((key, value)), 5 * SECOND), lines


def say(writer: int, **line: object) -> None:
    """Write a line as the helper does."""
    os.write(writer, json.dumps(line).encode() + b"\n")


def reading(at_s: float, of: str = "GPUs", next_s: float = 0.5, **values: int) -> dict[str, Any]:
    """Return the line of a reading so long after the start."""
    return {"devices": {"t_ns": int((5 + at_s) * SECOND), "of": of, "next_s": next_s, "values": values}}


ENDS = {
    "short run": ("sources GPUs", 2.0, ""),
    "silent": ("sources GPUs", 4.0, "GPUs is unknown: SILENT in the 4.0 s of the run"),
    "never begun": ("", 9.0, "GPUs and NPUs is unknown: SILENT in the 9.0 s of the run"),
    "late": ("sources GPUs, 1.0 GPUs", 3.0, ""),
    "silent since a reading": ("sources GPUs, 1.0 GPUs", 9.0, "GPUs is unknown: SILENT since 1.0 s"),
    "nothing held": ("sources GPUs, 8.0 GPUs", 9.0, ""),
    "asked seldom": ("sources GPUs, 1.0 GPUs 20.0", 20.0, ""),
    "one of two silent": (
        "sources GPUs+NPUs, 1.0 GPUs, 8.5 NPUs",
        9.0,
        "GPUs is unknown: SILENT since 1.0 s",
    ),
    "one of two has failed": (
        "sources GPUs+NPUs, ended GPUs, 3.0 NPUs",
        4.0,
        "GPUs is unknown from 4.0 s on: KeyError: 5",
    ),
}
"""By case: what the helper says, readings with their time and when the next is due; the end; a warning."""


class TestRelay:
    def test_text_of_a_driver(self, pipe: tuple[int, int]) -> None:
        """Text of a driver is left out; little is kept of a line without an end, and the next line is read."""
        relay, lines = relayed(pipe[0])
        os.write(pipe[1], b'NVRM: hello\n[1]\n{"devices":3}\n')
        os.set_blocking(pipe[1], False)
        largest = 0
        for _ in range(100):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(pipe[1], b"x" * 4_096)
            relay.take(1.0)
            largest = max(largest, len(relay._rest))
        os.write(pipe[1], b"\n")
        say(pipe[1], warning="text")
        relay.take(1.0)

        assert largest <= 2 << 20
        assert lines == [("warning", "text")]

    @pytest.mark.parametrize("is_done", [True, False])
    def test_end_of_the_helper(self, pipe: tuple[int, int], *, is_done: bool) -> None:
        """A helper that has nothing more to read says so; the end of any other is a warning."""
        relay, lines = relayed(pipe[0])
        say(pipe[1], sources=["GPUs", "NPUs"])
        say(pipe[1], ended=["GPUs", ""])
        if is_done:
            say(pipe[1], ended=["NPUs", ""])
        relay.take(0.5)
        os.close(pipe[1])
        relay.take(1.5)
        relay.finish(9.0)
        warning = "memory of devices is unknown from 1.5 s on: the process that asks the drivers ended early"

        assert (relay.is_open, lines) == (False, [] if is_done else [("warning", warning)])

    @pytest.mark.parametrize("said, end_s, warning", ENDS.values(), ids=ENDS)
    def test_end(self, pipe: tuple[int, int], said: str, end_s: float, warning: str) -> None:
        """Drivers that have not answered for a while at the end, or could not go on, are a warning."""
        relay, lines = relayed(pipe[0])
        for line in filter(None, said.split(", ")):
            kind, names, *words = line.split()
            if kind == "sources":
                say(pipe[1], sources=names.split("+"))
            elif kind == "ended":
                say(pipe[1], ended=[names, "KeyError: 5"])
            else:
                say(pipe[1], **reading(float(kind), names, float(*words or ["0.5"])))
        relay.finish(end_s)
        text = warning.replace("SILENT", "the driver did not answer")

        assert lines == ([("warning", f"memory of {text}")] if warning else [])


@pytest.mark.parametrize(
    "device, columns, source, is_there",
    [
        ("/nowhere", ["rss", "device_memory"], "proc", False),
        ("/dev/null", ["rss"], "proc", False),
        ("/dev/null", ["device_memory"], "psutil", False),
        ("/dev/null", ["rss", "device_memory"], "proc", True),
    ],
)
def test_helper(
    device: str, columns: list[str], source: str, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    """A recording without a device, without a metric of devices, or not from /proc, needs no helper."""
    monkeypatch.setattr(machine, "_NVIDIA", (device,))
    monkeypatch.setattr(machine, "_OTHERS", (("/nowhere", "card"),))
    helper = client.DeviceReader(Plan(columns, source=source))

    assert bool(helper.outputs) == is_there
    assert Devices.why_unavailable("/proc") == ("there is no GPU or NPU" if device == "/nowhere" else "")
    helper.close()
