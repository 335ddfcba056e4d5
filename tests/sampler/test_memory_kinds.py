from __future__ import annotations

import pytest

from nncftools.sampler.tree import PAGE, MemoryKinds

KIB = 1024
STATUS = b"Name:\twork\nVmPTE:\t  40 kB\nRssAnon:\t  %d kB\nRssFile:\t  6 kB\nRssShmem:\t  7 kB\nThreads:\t1\n"


def status(anon: int) -> bytes:
    """Return a status file with so many bytes of anonymous memory."""
    return STATUS % (anon // KIB)


def taken(anon: int, rss: int = 100, parents: int = 0) -> MemoryKinds:
    """Return the kinds of a process after its first reading."""
    kinds = MemoryKinds()
    kinds.take(status(anon), rss, parents)
    return kinds


def test_kinds() -> None:
    """Anonymous memory, files, shared memory and page tables are in bytes."""
    kinds = taken(500 * KIB)

    assert (kinds.anon, kinds.file, kinds.shmem, kinds.tables) == (500 * KIB, 6 * KIB, 7 * KIB, 40 * KIB)
    assert (kinds.rss, kinds.is_new) == (100, True)


@pytest.mark.parametrize("data", [b"Name:\twork\nState:\tZ (zombie)\n", b"Name:\tRssAnon:\nVmRSS:\t 9 kB\n", b""])
def test_file_without_kinds(data: bytes) -> None:
    """A zombie, and a kernel before 4.5, say nothing: what was read before stays."""
    kinds = taken(500 * KIB)
    kinds.own(100, 0)
    kinds.take(data, 200, 0)

    assert (kinds.anon, kinds.rss, kinds.is_new) == (500 * KIB, 100, False)


class TestOwn:
    def test_program(self) -> None:
        """A program owns all its anonymous memory, and its page tables; asking once makes the reading an old one."""
        kinds = taken(500 * KIB)

        assert kinds.own(rss=100, faults=7) == 540 * KIB
        assert not kinds.is_new

    def test_fresh_copy(self) -> None:
        """A forked copy that did nothing has only page tables of its own."""
        assert taken(100 * PAGE, 100, parents=100 * PAGE).own(rss=100, faults=0) == 40 * KIB

    def test_copy_that_grew(self) -> None:
        """What a forked copy took since is its own."""
        kinds = taken(100 * PAGE, 100, parents=100 * PAGE)
        kinds.take(status(160 * PAGE), 160, 0)

        assert kinds.own(rss=160, faults=60) == 60 * PAGE + 40 * KIB

    def test_copy_that_wrote(self) -> None:
        """Page faults without growth are pages that were copied, as the copy wrote to them."""
        kinds = taken(100 * PAGE, 100, parents=100 * PAGE)

        assert kinds.own(rss=100, faults=30) == 30 * PAGE + 40 * KIB
        assert kinds.own(rss=100, faults=3000) == 100 * PAGE + 40 * KIB

    def test_copy_of_a_copy_has_no_more_than_its_own(self) -> None:
        """A copy inherits no more than it holds, though its parent may have grown by the time of the reading."""
        assert taken(100 * PAGE, 100, parents=900 * PAGE).inherited == 100 * PAGE

    def test_inherited_at_the_first_reading(self) -> None:
        """What was inherited is settled at the first reading."""
        kinds = taken(100 * PAGE)
        kinds.take(status(200 * PAGE), 200, parents=150 * PAGE)

        assert kinds.inherited == 0
