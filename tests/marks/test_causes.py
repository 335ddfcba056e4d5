from __future__ import annotations

import errno

import pytest

from nncftools.marks.causes import DISK, MEMORY, cause_of


class TestOwn:
    @pytest.mark.parametrize(
        ("error", "cause"),
        [
            (MemoryError(), MEMORY),
            (OSError(errno.ENOMEM, "Cannot allocate memory"), MEMORY),
            (OSError(errno.ENOSPC, "No space left on device"), DISK),
            (OSError(errno.EDQUOT, "Disk quota exceeded"), DISK),
            (OSError(errno.ENOENT, "No such file"), None),
            (ValueError("no space left on device"), None),
            (RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"), MEMORY),
            (RuntimeError("std::bad_alloc"), MEMORY),
            (RuntimeError('IoError(Os { code: 28, message: "No space left on device" })'), DISK),
            (RuntimeError("something else"), None),
            (RuntimeError(28), None),
            (RuntimeError(), None),
        ],
    )
    def test_what_an_exception_says(self, error: Exception, cause: str | None) -> None:
        """Its class, its error number or the words of its message say what ran out."""
        assert cause_of(error) == (cause, error)

    @pytest.mark.parametrize("text", ["CUDA error: unable to allocate memory", "XPU: not enough memory"])
    def test_memory_of_a_device(self, text: str) -> None:
        """The memory of a device is another one."""
        assert cause_of(RuntimeError(text))[0] is None


class TestChain:
    def test_cause(self) -> None:
        """An exception that was raised from another one has its cause."""
        error = ValueError("cannot save")
        error.__cause__ = OSError(errno.ENOSPC, "full")

        assert cause_of(error) == (DISK, error.__cause__)

    def test_context(self) -> None:
        """So has one that was raised while another one was handled."""
        error = KeyError("x")
        error.__context__ = MemoryError()

        assert cause_of(error) == (MEMORY, error.__context__)

    def test_circle(self) -> None:
        """A circle of causes ends."""
        error, other = ValueError(), ValueError()
        error.__cause__, other.__cause__ = other, error

        assert cause_of(error) == (None, error)
