"""``python -m tests.faults``: makes faults to commands at their moments, and checks the five promises (root).

    python -m tests.faults --only monitor --only middle
    python -m tests.faults --sample 40 --seed 2

``--only`` takes a part of a name COMMAND/MOMENT/FAULT; given more than once, all must fit. It ends with status 1
after a red line.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.faults.case import GREEN, RED, Result, combinations, result_of
from tests.faults.commands import COMMANDS
from tests.faults.faults import FAULTS
from tests.faults.promises import PROMISES, RULES

_AT_ONCE = 2


def main() -> int:
    """Run; return 1 after a red line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], metavar="PART", help="only names that contain this")
    parser.add_argument("--seed", type=int, default=1, help="what is left to chance: which file gets a trap")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many, chosen by the seed")
    parser.add_argument("--list", action="store_true", help="only list the names, and what is left out")
    parser.add_argument("--show", action="store_true", help="also print what each command showed on its terminal")
    given = parser.parse_args()
    names, omitted = combinations()
    names = [name for name in names if all(part in name for part in given.only)]
    if given.sample is not None:
        names = sorted(random.Random(given.seed).sample(names, min(given.sample, len(names))))  # noqa: S311 — no secret
    if given.list:
        print("\n".join(names))
        for rule, number in Counter(omitted.values()).most_common():
            print(f"left out: {number:4}  {rule}")
        return 0
    if os.geteuid() != 0:
        parser.error("only root can make mounts, owners and control groups")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = _run(names, given.seed, shows=given.show)
    results.sort(key=lambda result: names.index(result.name))
    print(f"\n{table(results)}\n\n{explained(results)}")
    return 1 if any(result.colour == RED for result in results) else 0


def _run(names: Sequence[str], seed: int, *, shows: bool) -> list[Result]:
    """Run combinations and say how each went; after Ctrl-C, of those that ended."""
    began, results = time.monotonic(), []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = [pool.submit(result_of, name, seed) for name in names]
        try:
            for future in as_completed(futures):
                result = future.result()
                results.append(result)
                so_far = f"{len(results)}/{len(names)} {time.monotonic() - began:.0f} s"
                print(f"[{so_far}] {result.colour:14} {result.name} ({result.seconds:.1f} s)", flush=True)
                if shows:
                    print(result.shown, flush=True)
                if result.colour == RED:
                    print(_text(result), flush=True)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print("\nstopped: those that run come to their end", flush=True)
            pool.shutdown(cancel_futures=True)
    return results


def _text(result: Result) -> str:
    return "\n".join(
        f"    {PROMISES.get(int(number), 'the table')}: {reason}" for number, reason in result.reasons.items()
    )


def table(results: Sequence[Result]) -> str:
    """Return the counts of each command and fault as a table in Markdown: green, rule of the kernel, red."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for result in results:
        command, _, fault = result.name.split("/")
        counts[command, fault, _kind(result)] += 1
    commands = [name for name in COMMANDS if any(command == name for command, _, _ in counts)]
    faults = [name for name in FAULTS if any(fault == name for _, fault, _ in counts)]
    lines = [f"| fault | {' | '.join(commands)} |", f"|---|{'---:|' * len(commands)}"]
    for fault in faults:
        cells = []
        for command in commands:
            green, rule, red = (counts[command, fault, kind] for kind in (GREEN, "rule", RED))
            parts = [str(green) * bool(green), f"{rule} k" * bool(rule), f"**{red} red**" * bool(red)]
            cells.append(" + ".join(filter(None, parts)) or "–")
        lines.append(f"| {fault} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _kind(result: Result) -> str:
    return result.colour if result.colour in {GREEN, RED} else "rule"


def explained(results: Sequence[Result]) -> str:
    """Return the counts of all, which rules were met, and what is red, in lines."""
    kinds = Counter(map(_kind, results))
    counts = f"{kinds[GREEN]} green, {kinds['rule']} a rule of the kernel (k), {kinds[RED]} red"
    lines = [f"{len(results)} combinations: {counts}"]
    met = Counter(result.colour for result in results)
    lines += [f"{met[rule.name]:4}  {rule.name}: {rule.reason}" for rule in RULES if met[rule.name]]
    lines += [f"RED  {result.name}\n{_text(result)}" for result in results if result.colour == RED]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
