from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from nncftools.marks.line import DEVICE, DISK, MEMORY, cause_of, report
from tests.made_up import rows


class TestOwn:
    @pytest.mark.parametrize(
        "error, cause",
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

    @pytest.mark.parametrize(
        "text, cause",
        [
            ("CUDA error: unable to allocate memory", None),
            ("XPU: not enough memory", None),
            ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB", DEVICE),
            ("CUDA error: out of memory", DEVICE),
            ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", DEVICE),
            ("HIP out of memory. Tried to allocate 2 GiB", DEVICE),
            ("XPU out of memory. Tried to allocate 2 GiB (GPU 0; 48 GiB total capacity)", DEVICE),
        ],
    )
    def test_memory_of_a_device(self, text: str, cause: str | None) -> None:
        """The memory of a device is not that of the machine."""
        assert cause_of(RuntimeError(text))[0] == cause


@pytest.mark.parametrize(
    "text, device",
    rows("""
CUDA out of memory. GPU 1 has a total capacity of 79.15 GiB | cuda1
CUDA out of memory. Tried to allocate 2 GiB (GPU 1; 79.15 GiB total capacity) | cuda1
CUDA error: out of memory | cuda
XPU out of memory. Tried to allocate 2 GiB. GPU 12 has | xpu12
"""),
)
def test_device_of_an_exception(text: str, device: str, tmp_path: Path) -> None:
    """The line of the exception names the device, as torch does."""
    log = tmp_path / "log"
    log.touch()

    report(os.fsencode(log), RuntimeError(text), fatal=True)

    facts = json.loads(log.read_text())
    assert (facts["failure"], facts["cause"], facts["device"], facts["fatal"]) == (
        "RuntimeError",
        "device",
        device,
        True,
    )


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
