from __future__ import annotations

from nncftools.analysis.memory_kinds import MemoryKind, kinds_at_largest, kinds_over_time
from nncftools.session.snapshots import MappingsMoment, ProcessMappings, Snapshots
from tests.made_up import MIB, session
from tests.render.built_up import group, mapped


class TestKinds:
    def test_processes_are_summed(self) -> None:
        """Groups of the same kind and file are one, the largest first."""
        processes = [
            ProcessMappings(0, [group("anonymous", 5), group("file", 8, "/m.bin", copied=1)]),
            ProcessMappings(1, [group("anonymous", 2), group("file", 8, "/m.bin")]),
        ]
        moment = MappingsMoment(time_s=1.0, total=23 * MIB, processes=processes)
        (found,) = kinds_over_time(session(snapshots=Snapshots(mappings=[moment])))

        assert found.kinds == [
            MemoryKind("file", "/m.bin", 16 * MIB, 15 * MIB, MIB),
            MemoryKind("anonymous", "", 7 * MIB, 7 * MIB, 0),
        ]

    def test_processes_that_were_not_read(self) -> None:
        """What the groups leave of the memory of all processes is a kind of its own, whose properties are unknown."""
        moments = [mapped(1.0, group("anonymous", 95), total=100)]
        (found,) = kinds_over_time(session(snapshots=Snapshots(mappings=moments)))

        assert found.kinds[-1] == MemoryKind("not_read", "", 5 * MIB, None, None)

    def test_largest(self) -> None:
        """The moment with the most memory stands for the peak."""
        moments = [mapped(2.0, group("anonymous", 9)), mapped(1.0, group("anonymous", 5))]
        of = session(snapshots=Snapshots(mappings=moments))
        largest = kinds_at_largest(of)

        assert [moment.time_s for moment in kinds_over_time(of)] == [1.0, 2.0]
        assert largest is not None
        assert largest.time_s == 2.0

    def test_nothing_was_read(self) -> None:
        """Without mappings there is no moment."""
        assert kinds_over_time(session()) == []
        assert kinds_at_largest(session(snapshots=Snapshots())) is None
