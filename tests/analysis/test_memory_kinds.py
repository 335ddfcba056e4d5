from __future__ import annotations

import pytest

from nncftools.analysis.rss_levels import file_held, kinds_at, kinds_near, mapped_file_text
from nncftools.session.model import MappingsMoment, ProcessMappings, Snapshots
from tests.analysis.made_snapshots import read_levels
from tests.made_up import MIB, session
from tests.made_up_stacks import group


def read(moments: str) -> Snapshots:
    """Return mappings that were read at some seconds, with the MiB that there were: ``300@1 50@1.9``."""
    found = []
    for at_s, size in read_levels(moments):
        processes = [ProcessMappings(0, [group("shared", size)])]
        found.append(MappingsMoment(time_s=at_s, total=size * MIB, processes=processes))
    return Snapshots(mappings=found)


@pytest.mark.parametrize(
    "moments, expected",
    [
        ("300@1 50@1.9 305@9", (1.0, False)),
        ("300@1 299@2.15 280@1.9", (2.15, True)),
        ("200@2", (2.0, False)),
        ("300@1.7", (1.7, False)),
    ],
    ids=["nearest in size", "within 0.2 s", "another size", "another time"],
)
def test_nearest_in_size_and_time(moments: str, expected: tuple[float, bool]) -> None:
    """Mappings with nearly as much memory count, even if others are nearer; they are of a moment within 0.2 s."""
    found = kinds_near(session(snapshots=read(moments)), 2.0, 300 * MIB)

    assert (found and (found.at_s, found.is_of_moment)) == expected


def test_processes_are_summed() -> None:
    """A kind, or a file, of several processes counts once; what was not read is known."""
    parts = [ProcessMappings(number, [group("file", 100, "/w.bin", clean=60, copied=40)]) for number in (0, 1)]
    snapshots = Snapshots(mappings=[MappingsMoment(time_s=1.0, total=250 * MIB, processes=parts)])
    found = kinds_near(session(snapshots=snapshots), 1.0, 250 * MIB)

    assert found is not None
    assert [(of.rss // MIB, of.clean // MIB, of.anonymous // MIB) for of in found.groups] == [(200, 120, 80)]
    assert found.not_read == 50 * MIB


def test_growth_while_mappings_are_read() -> None:
    """Where mappings hold more than the processes did just before, the whole is what was read: shares sum to 100."""
    parts = [ProcessMappings(0, [group("shared", 100)])]
    kinds = kinds_at(MappingsMoment(time_s=1.0, total=90 * MIB, processes=parts))

    assert (kinds.total, kinds.is_of_moment) == (100 * MIB, True)


GROUPS = [
    group("file", 500, "/model.safetensors", clean=500),
    group("file", 300, "/copied.bin", copied=300),
    group("file", 120, "/data.bin", clean=120),
    group("libraries", 200, clean=200, copied=20),
    group("anonymous", 100, copied=100),
]


@pytest.mark.parametrize(
    "file_mib, path",
    [
        (500, "/model.safetensors"),
        (700, "/model.safetensors"),
        (1_100, ""),
        (180, ""),
        (110, "/data.bin"),
        (60, "/data.bin"),
        (300, ""),
        (0, ""),
    ],
)
def test_file_that_is_held(file_mib: int, path: str) -> None:
    """The file is the one nearest in size that makes up half of the pages; copied pages are none of a file."""
    moment = MappingsMoment(time_s=1.0, total=1_220 * MIB, processes=[ProcessMappings(0, GROUPS)])
    read = session(snapshots=Snapshots(mappings=[moment]))

    assert file_held(read, 1.0, 1_220 * MIB, file_mib * MIB) == path
    assert file_held(read, 1.0, 2_000 * MIB, file_mib * MIB) == ""
    assert file_held(session(), 1.0, 1_220 * MIB, file_mib * MIB) == ""


@pytest.mark.parametrize(
    "path, expected",
    [
        ("/m/model-00001-of-00002.safetensors", True),
        ("/m/openvino_model.BIN", True),
        ("/m/model.onnx_data", True),
        ("/m/model.onnx.data", True),
        ("/m/words.data", False),
        ("/usr/lib/libtorch.so", False),
        ("/m/safetensors", False),
    ],
)
def test_weights(path: str, expected: bool) -> None:  # noqa: FBT001 — a column of the table
    """Files of weights are known by their ending."""
    assert mapped_file_text(path).endswith("(weights; Linux can free them)") is expected
