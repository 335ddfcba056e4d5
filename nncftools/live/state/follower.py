"""Reads a journal and its marks log while others append to them; nothing is parsed twice."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from nncftools.errors import SessionFileError
from nncftools.journal import file as journal_file
from nncftools.journal.tail import Lines, Tail
from nncftools.live.state.operations import LiveOperations
from nncftools.live.state.run import Run
from nncftools.marks.entries import rows as entries_of
from nncftools.marks.sidecars import MARKS_ENDING
from nncftools.redaction import Redaction
from nncftools.session.from_journal import host_and_rank
from nncftools.session.model import Exit, Start
from nncftools.text import printable

if TYPE_CHECKING:
    import pathlib

    from typing_extensions import Self

    from nncftools.journal.lines import Line


class Follower:
    """The state of a run according to its journal, up to where it was last read."""

    def __init__(self, journal: pathlib.Path, descriptor: int | None = None) -> None:
        """Read the first line; with ``descriptor``, from the very file that it has open.

        Raises SessionFileError when it is not the header of a journal, OSError.
        """
        self._journal = journal_file.reader(journal, descriptor)
        self._marks_path = journal.with_name(journal.name.removesuffix(journal_file.ENDING) + MARKS_ENDING)
        self._marks: Lines | None = None
        self._start: Start | None = None
        self._operations = LiveOperations()
        self.error: str | None = None
        """Why the command was never started."""
        try:
            self._tail = Tail(self._journal, str(journal))
            self._redaction = Redaction(self._tail.plan.redact)
            self.run = _run(self._tail, self._redaction, str(journal), self._operations)
        except SessionFileError:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.close()
        if self._marks is not None:
            self._marks.file.close()

    def read(self) -> None:
        """Read what was appended since the last time."""
        for chunk in self._tail.read():
            if self.run.columns != self._tail.plan.columns:
                self.run.take_columns(self._tail.plan.columns)
            if chunk.samples:
                values = np.array(chunk.samples, dtype=np.float64)
                self.run.take_rows(values[:, 0], values[:, 1:])
            for line in chunk.lines:
                self._take(line)
            for _, each in chunk.each[-1:]:
                for number, rss in each.items():
                    if number in self.run.processes:
                        self.run.processes[number].rss = rss
        self._read_marks()

    def recorder_lives(self) -> bool:
        """Return whether the sampler still holds its lock on the journal."""
        return journal_file.is_held(self._journal.fileno())

    def _take(self, line: Line) -> None:
        if "start" in line:
            self._start = msgspec.convert(line["start"], Start)
        if "process" in line:
            fields = line["process"]
            if "command" in fields:
                fields["command"] = self._redaction.words(fields["command"])
            self.run.take_process(fields)
        if "rise" in line:
            rise = line["rise"]
            self.run.take_rise(rise["high_water_mark"] + rise["others"], rise["from_s"], rise["to_s"])
        if "end" in line:
            self.run.ended = True
            self.run.exit = msgspec.convert(line["end"].get("exit"), Exit | None)
            self.error = line["end"].get("error")

    def _read_marks(self) -> None:
        if self._start is None:
            return
        if self._marks is None:
            try:
                self._marks = Lines(journal_file.reader(self._marks_path))
            except OSError:
                return
        while data := self._marks.next():
            for row in entries_of(data, MARKS_ENDING, self._start):
                if row.entry is not None and row.entry.is_operation:
                    self._operations.take(row.entry)


def _run(tail: Tail, redaction: Redaction, origin: str, operations: LiveOperations) -> Run:
    """Return the run that a journal's first line describes. Raises SessionFileError."""
    header, plan = tail.header, tail.plan
    command = redaction.words(header.get("command", []))
    text = printable(shlex.join(command)) or printable(header.get("name", ""))
    return Run(
        command=text or f"process {plan.pid}",
        columns=list(plan.columns),
        interval_s=plan.interval_s,
        host=host_and_rank(header, origin)[0],
        attached_to=plan.pid,
        operations=operations,
    )
