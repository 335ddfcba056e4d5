"""Numbers for stacks and frames: each is written once, then named by its number."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from nncftools.journal.writing import Writer
    from nncftools.snapshots.py_spy import Frame


class Interned:
    """The stacks and frames of a log so far."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._frames: dict[Frame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def stack(self, frames: Sequence[Frame]) -> int:
        """Return the number of a stack; write it first if it is new."""
        numbers = tuple([self._frame(frame) for frame in frames])
        number = self._stacks.get(numbers)
        if number is None:
            number = self._stacks[numbers] = len(self._stacks)
            self._writer.line("stack", [number, numbers])
        return number

    def _frame(self, frame: Frame) -> int:
        number = self._frames.get(frame)
        if number is None:
            number = self._frames[frame] = len(self._frames)
            self._writer.line("frame", [number, *frame])
        return number
