"""Makes a program up: all sizes, times and choices follow from a number."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

from benchmarks.workloads.random_programs.actions import (
    Action,
    Begin,
    End,
    Fork,
    Free,
    Join,
    Moment,
    Orphan,
    Pause,
    Short,
    Spawn,
    Start,
    Take,
    Wait,
)
from benchmarks.workloads.random_programs.memory import HEAP, HEAP_MIB, HUGE, MAPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Choice = tuple[str, int, Callable[[], None]]

_MOST_MIB = 640
"""What all processes may hold together."""
_PYTHON_MIB, _SMALL_PYTHON_MIB = 22, 9
"""What an interpreter holds besides."""
_THREAD_MIB, _WORKER_MIB = 120, 200
_SIZES_MIB = (5, 150)
_STEPS, _THREAD_STEPS, _WORKER_STEPS = (6, 14), (1, 4), (0, 2)
_DEEPEST = 3
_CROWD = 20
_HEAP = 1 / 8
"""The share of areas that are a bytearray, of those that may be."""
_BARE = 1 / 4
"""The share of marks beside which other processes are not read."""
_LONGEST_MS = 2500
"""The pauses of an actor together; then they are short."""
_CHANCES = {"spawn": 0.8, "short": 0.4, "fork": 0.5, "crowd": 0.1, "thread": 0.35, "orphan": 0.3}
"""How likely a program has each kind of process and thread at all."""
_WORDS = ("Load", "Export", "Compile", "Quantize", "Save", "Train", "Check", "Convert")


def plan(seed: int) -> Sequence[Action]:
    """Return what the program with this number does."""
    dice = random.Random(seed)  # noqa: S311 — no secret
    kinds = {kind for kind, chance in _CHANCES.items() if dice.random() < chance}
    author = _Author(dice, kinds, _MOST_MIB - _PYTHON_MIB, itertools.count(1))
    author.pause(100)
    author.write(_STEPS, author.choices_of_main())
    return author.actions


class _Author:
    """Writes what one thread does, and never uses more than its room in MiB."""

    def __init__(
        self, dice: random.Random, kinds: set[str], room: int, numbers: itertools.count[int], level: int = 0
    ) -> None:
        self.actions: list[Action] = []
        self.room = self.least_room = room
        self._dice = dice
        self._kinds = kinds
        self._numbers = numbers
        """Of everything: names and orphans are unique in a program."""
        self._level = level
        self._depth = 0
        self._areas: dict[int, int] = {}
        self._children: dict[int, int] = {}
        self._threads: dict[int, int] = {}
        self._slept_ms = 0.0

    def choices_of_main(self) -> list[_Choice]:
        """Return what the first thread does between marks: kind, weight, and what writes it."""
        special = [("crowd", 1, self._crowd), ("thread", 4, self._start), ("orphan", 2, self._orphan)]
        return [*self.choices_of_worker(), ("fork", 3, self._fork), *special]

    def choices_of_worker(self) -> list[_Choice]:
        """Return what a forked process does."""
        return [*self.choices_of_thread(), *([("fork", 1, self._fork)] if self._level < _DEEPEST else [])]

    def choices_of_thread(self) -> list[_Choice]:
        """Return what a further thread does."""
        programs = [("spawn", 4, self._spawn), ("spawn", 3, self._run), ("short", 2, self._short)]
        return [("", 8, self._take), ("", 7, self._free), *programs, ("", 5, self._wait)]

    def write(self, steps: tuple[int, int], choices: list[_Choice]) -> None:
        """Write marks, and around them anything else; then end what goes on."""
        possible = [choice for choice in choices if not choice[0] or choice[0] in self._kinds]
        weights, whats = [weight for _, weight, _ in possible], [what for _, _, what in possible]
        for _ in range(self._dice.randint(*steps)):
            for part in (self._mark, None):
                for what in self._dice.choices(whats, weights, k=self._dice.choice((0, 0, 1, 1, 2))):
                    what()
                    self.pause()
                if part is not None:
                    part()
                    self.pause()
        self._finish()

    def pause(self, most_ms: int = 350) -> None:
        """Sleep, more often than not for no time at all."""
        spans = [0, 3, 30, most_ms] if self._slept_ms < _LONGEST_MS else [0, 3, 3, 3]
        (span_ms,) = self._dice.choices(spans, (36, 18, 23, 23))
        if span_ms:
            self._slept_ms += span_ms / 2
            self.actions.append(Pause(round(self._dice.uniform(0, span_ms), 1)))

    def _name(self) -> str:
        return f"{self._dice.choice(_WORDS)} {next(self._numbers)}"

    def _is_bare(self) -> bool:
        return self._dice.random() < _BARE

    def _end(self) -> End:
        return End(self._is_bare())

    def _reserve(self, mebibytes: int) -> None:
        self.room -= mebibytes
        self.least_room = min(self.least_room, self.room)

    def _mark(self) -> None:
        """Begin or end an operation, have a short one, or mark a moment.

        Only the first thread marks moments outside of operations: they end at an unknown time.
        """
        kinds = ["begin"] * 4 * (self._depth < _DEEPEST) + ["end"] * 4 * (self._depth > 0) + ["short"]
        kinds += ["moment"] * 2 * (self._depth > 0 or self._level == 0)
        kind = self._dice.choice(kinds)
        if kind == "end":
            self._depth -= 1
            self.actions.append(self._end())
            return
        if kind == "moment":
            self.actions.append(Moment(self._name(), self._is_bare()))
            return
        self.actions.append(Begin(self._name(), self._is_bare()))
        if kind == "begin":
            self._depth += 1
            return
        self._dice.choice((self._take, self._free, self._wait, self._run, self._short, lambda: None))()
        self.actions.append(self._end())

    def _take(self) -> None:
        mebibytes = min(self._dice.randint(*_SIZES_MIB), self.room)
        if mebibytes >= _SIZES_MIB[0]:
            number = next(self._numbers)
            self._areas[number] = mebibytes
            self._reserve(mebibytes)
            self.actions.append(Take(number, mebibytes, self._kind(mebibytes)))

    def _kind(self, mebibytes: int) -> str:
        """Return a kind of memory; a bytearray is seldom, because it is not known when how much of it was filled."""
        return HEAP if mebibytes >= HEAP_MIB and self._dice.random() < _HEAP else self._dice.choice((MAPPED, HUGE))

    def _free(self) -> None:
        if self._areas:
            number = self._dice.choice(list(self._areas))
            self.room += self._areas.pop(number)
            self.actions.append(Free(number))

    def _spawn(self) -> None:
        if spawn := self._program(self._dice.randint(*_SIZES_MIB)):
            self._children[spawn.child] = spawn.mebibytes + _SMALL_PYTHON_MIB
            self.actions.append(spawn)

    def _program(self, mebibytes: int, hold_ms: int = 80) -> Spawn | None:
        mebibytes = min(mebibytes, self.room - _SMALL_PYTHON_MIB)
        if mebibytes < 1:
            return None
        self._reserve(mebibytes + _SMALL_PYTHON_MIB)
        before_ms, hold_ms = (self._dice.choice((0, self._dice.randint(0, most))) for most in (40, hold_ms))
        is_freed = self._dice.random() < 1 / 2
        return Spawn(next(self._numbers), mebibytes, self._kind(mebibytes), before_ms, hold_ms, is_freed)

    def _wait(self) -> None:
        if self._children:
            number = self._dice.choice(list(self._children))
            self.room += self._children.pop(number)
            self.actions.append(Wait(number))

    def _run(self) -> None:
        before = len(self._children)
        self._spawn()
        if len(self._children) > before:
            number, mebibytes = self._children.popitem()
            self.room += mebibytes
            self.actions.append(Wait(number))

    def _short(self) -> None:
        self.actions += [Short()] * self._dice.choice((1, 1, 3, 20))

    def _copy_mib(self) -> int:
        """Return the most that a forked copy of the process holds."""
        return _PYTHON_MIB + sum(self._areas.values()) + sum(self._threads.values())

    def _inner(self, most_mib: int) -> _Author:
        return _Author(self._dice, self._kinds, min(most_mib, self.room), self._numbers, self._level + 1)

    def _written(self, inner: _Author, steps: tuple[int, int]) -> int:
        """Have a worker written; return what it takes at most in MiB."""
        room = inner.room
        inner.pause(40)
        inner.write(steps, inner.choices_of_worker())
        return room - inner.least_room

    def _fork(self) -> None:
        copy_mib = self._copy_mib()
        if copy_mib > self.room:
            return
        self._reserve(copy_mib)
        inner = self._inner(_WORKER_MIB)
        taken_mib = self._written(inner, _WORKER_STEPS)
        self._reserve(taken_mib)
        number = next(self._numbers)
        self._children[number] = copy_mib + taken_mib
        self.actions.append(Fork(number, inner.actions))

    def _crowd(self) -> None:
        """Have many children at once, forked or programs."""
        is_forked = self._dice.random() < 1 / 2
        for _ in range(_CROWD):
            if not is_forked:
                if spawn := self._program(1, 150):
                    self._children[spawn.child] = spawn.mebibytes + _SMALL_PYTHON_MIB
                    self.actions.append(spawn)
            elif (copy_mib := self._copy_mib()) <= self.room:
                self._reserve(copy_mib)
                number = next(self._numbers)
                self._children[number] = copy_mib
                self.actions.append(Fork(number, [Pause(self._dice.randint(0, 150))]))

    def _start(self) -> None:
        inner = self._inner(_THREAD_MIB)
        inner.pause(40)
        inner.write(_THREAD_STEPS, inner.choices_of_thread())
        taken_mib = min(_THREAD_MIB, self.room) - inner.least_room
        self._reserve(taken_mib)
        number = next(self._numbers)
        self._threads[number] = taken_mib
        self.actions.append(Start(number, inner.actions))

    def _orphan(self) -> None:
        """Have an orphan, a program or a copy; its parent is a copy for a moment."""
        copy_mib = 2 * self._copy_mib()
        if copy_mib + _SMALL_PYTHON_MIB + 1 > self.room:
            return
        self._reserve(copy_mib)
        number = next(self._numbers)
        if self._dice.random() < 1 / 2:
            if spawn := self._program(self._dice.randint(*_SIZES_MIB), 400):
                self.actions.append(Orphan(number, spawn))
            return
        inner = self._inner(_WORKER_MIB)
        taken_mib = self._written(inner, _WORKER_STEPS)
        self._reserve(taken_mib)
        self.actions.append(Orphan(number, inner.actions))

    def _finish(self) -> None:
        """End operations, and wait for children and threads, in any order."""
        rest: list[Action] = [self._end() for _ in range(self._depth)]
        rest += [Wait(number) for number in self._children] + [Join(number) for number in self._threads]
        rest += [Free(number) for number in self._areas if self._dice.random() < 1 / 2]
        self._dice.shuffle(rest)
        for action in rest:
            self.actions.append(action)
            self.pause(60)
