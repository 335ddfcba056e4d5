"""Six parallel tasks, each an operation with one inside of it that takes 10 MiB; the first one ends first: tasks.py"""

import asyncio

from sampling import touched, until_sampled

import nncftools

held = []


async def task(number: int) -> None:
    """Begin after the others, take memory while all are open, and end after those that began before."""
    with nncftools.operation(f"Task {number}"):
        await asyncio.sleep(0)
        with nncftools.operation(f"Inside {number}"):
            held.append(touched(10))
            until_sampled()
            await asyncio.sleep(0)


async def main() -> None:
    """Run the tasks."""
    await asyncio.gather(*(task(number) for number in range(6)))


until_sampled()
asyncio.run(main())
