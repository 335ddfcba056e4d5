from __future__ import annotations

import contextlib
import json
import os
import threading
import time
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


def reading(at_s: float, of: str = "GPUs", next_s: float = 0.5, **values: int) -> dict[str, object]:
    """Return a reading of a source so long after the start."""
    return {"t_ns": int((5 + at_s) * SECOND), "of": of, "next_s": next_s, "values": values}


class TestRelay:
    def test_readings(self, pipe: tuple[int, int]) -> None:
        """A reading gets its time in the recording; what is known of devices, and warnings, pass as they are."""
        relay, lines = relayed(pipe[0])
        say(pipe[1], device={"device": "gpu0"})
        say(pipe[1], devices=reading(2.0, **{"device_memory@gpu0": 3}))
        say(pipe[1], warning="text", unknown=1)
        relay.take(2.0)

        assert relay.columns == {"device_memory@gpu0"}
        assert lines == [
            ("device", {"device": "gpu0"}),
            ("devices", {"at_s": 2.0, "values": {"device_memory@gpu0": 3}}),
            ("warning", "text"),
        ]

    def test_half_a_line(self, pipe: tuple[int, int]) -> None:
        """A line that has come in part waits for its rest."""
        relay, lines = relayed(pipe[0])
        os.write(pipe[1], b'{"warning":')
        relay.take(1.0)
        before = list(lines)
        os.write(pipe[1], b'"x"}\n')
        relay.take(1.0)

        assert (before, lines) == ([], [("warning", "x")])

    def test_no_line_end(self, pipe: tuple[int, int]) -> None:
        """Of a driver that writes without an end of a line, little is kept; what comes after that end is read."""
        relay, lines = relayed(pipe[0])
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

    def test_endless_output(self, pipe: tuple[int, int]) -> None:
        """A driver that writes faster than it is read does not hold the sampler."""
        relay, _ = relayed(pipe[0])
        done: list[int] = []

        def write() -> None:
            while not done:
                os.write(pipe[1], b"x" * 65_536)

        writer = threading.Thread(target=write)
        writer.start()
        begun_s = time.monotonic()
        taking = threading.Timer(5.0, done.append, (1,))
        taking.start()
        for _ in range(5):
            relay.take(1.0)
        taking.cancel()
        lasted_s = time.monotonic() - begun_s
        done.append(1)
        while writer.is_alive():
            relay.take(1.0)

        assert lasted_s < 4

    def test_nothing_held(self, pipe: tuple[int, int]) -> None:
        """A reading without a value is no line of the journal, but a sign that the drivers answer."""
        relay, lines = relayed(pipe[0])
        say(pipe[1], sources=["GPUs"])
        say(pipe[1], devices=reading(8.0))
        relay.finish(9.0)

        assert lines == []

    def test_what_a_driver_prints(self, pipe: tuple[int, int]) -> None:
        """Other text is left out: a driver may write to the standard output of its process."""
        relay, lines = relayed(pipe[0])
        os.write(pipe[1], b'NVRM: hello\n[1]\n{"devices":3}\n')
        say(pipe[1], warning="text")
        relay.take(1.0)

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

    @pytest.mark.parametrize(
        ("read_s", "end_s", "since"),
        [(None, 2.0, None), (None, 4.0, "in the 4.0 s of the run"), (1, 3.0, None), (1, 9.0, "since 1.0 s")],
    )
    def test_silence(self, pipe: tuple[int, int], read_s: int | None, end_s: float, since: str | None) -> None:
        """Drivers that have not answered for a while at the end are a warning."""
        relay, lines = relayed(pipe[0])
        say(pipe[1], sources=["GPUs"])
        if read_s is not None:
            say(pipe[1], devices=reading(read_s))
        relay.finish(end_s)
        warnings = [value for key, value in lines if key == "warning"]

        assert warnings == ([] if since is None else [f"memory of GPUs is unknown: the driver did not answer {since}"])

    def test_long_wait(self, pipe: tuple[int, int]) -> None:
        """A driver that is asked seldom, because readings take long, is not silent."""
        relay, lines = relayed(pipe[0])
        say(pipe[1], sources=["GPUs"])
        say(pipe[1], devices=reading(1.0, next_s=20.0))
        relay.finish(20.0)

        assert lines == []

    def test_silence_of_one(self, pipe: tuple[int, int]) -> None:
        """A driver that does not answer any more is a warning, also while another one answers."""
        relay, lines = relayed(pipe[0])
        say(pipe[1], sources=["GPUs", "NPUs"])
        say(pipe[1], devices=reading(1.0, "GPUs"))
        say(pipe[1], devices=reading(8.5, "NPUs"))
        relay.finish(9.0)

        assert lines == [("warning", "memory of GPUs is unknown: the driver did not answer since 1.0 s")]

    def test_helper_that_never_spoke(self, pipe: tuple[int, int]) -> None:
        """A helper that has not even begun is a warning."""
        relay, lines = relayed(pipe[0])
        relay.finish(9.0)

        assert lines == [
            ("warning", "memory of GPUs and NPUs is unknown: the driver did not answer in the 9.0 s of the run")
        ]

    def test_end_of_one(self, pipe: tuple[int, int]) -> None:
        """A source that could not go on is a warning, with the error; the others go on."""
        relay, lines = relayed(pipe[0])
        say(pipe[1], sources=["GPUs", "NPUs"])
        say(pipe[1], ended=["GPUs", "KeyError: 5"])
        relay.take(2.0)
        say(pipe[1], devices=reading(3.0, "NPUs"))
        relay.finish(4.0)

        assert lines == [("warning", "memory of GPUs is unknown from 2.0 s on: KeyError: 5")]


def test_machine_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a device there is no metric of one, and no helper."""
    monkeypatch.setattr(machine, "_NVIDIA", ("/nowhere",))
    monkeypatch.setattr(machine, "_OTHERS", (("/nowhere", "card"),))

    assert Devices.why_unavailable("/proc") == "there is no GPU or NPU"
    assert (client.metrics_of_devices(), client.DeviceReader(Plan(["rss", "device_memory"])).outputs) == ((), [])


@pytest.mark.parametrize(
    ("columns", "source", "is_there"),
    [(["rss"], "proc", False), (["device_memory"], "psutil", False), (["rss", "device_memory"], "proc", True)],
)
def test_recording_without_devices(
    columns: list[str], source: str, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    """A recording without a metric of devices, or not from /proc, needs no helper."""
    monkeypatch.setattr(machine, "_NVIDIA", ("/dev/null",))
    helper = client.DeviceReader(Plan(columns, source=source))

    assert bool(helper.outputs) == is_there
    helper.close()
