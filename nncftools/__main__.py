"""The entry point of the command line, also for ``python -m nncftools``."""

from __future__ import annotations

import gc
import sys

_FEW_COLLECTIONS = 200_000
"""Number of new objects before Python searches for reference cycles. With Python's usual 700, loading would take a
hundred searches."""

_NEEDED = {"numpy": 144 << 20, "matplotlib": 240 << 20}
"""The address space in bytes with which a library works."""


class _LibraryGuard:
    """Makes the import of a library raise MemoryError if ``ulimit -v`` is too low. Otherwise, OpenBLAS calls exit."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Raise MemoryError if a library would not get enough memory; otherwise, let others find the module."""
        if name in _NEEDED and sys.platform != "win32":
            import resource

            if 0 <= resource.getrlimit(resource.RLIMIT_AS)[0] < _NEEDED[name]:
                raise MemoryError


def main() -> None:
    """Run the command line and exit. If the user interrupts the loading, no traceback is printed."""
    gc.set_threshold(_FEW_COLLECTIONS)
    sys.meta_path.insert(0, _LibraryGuard)
    try:
        from nncftools.cli.app import run

        status = run()
    except KeyboardInterrupt:
        status = 130
    except Exception as error:
        from nncftools.errors import memory_shortage

        if not (shortage := memory_shortage(error)):
            raise
        sys.stderr.write(f"nncf-tools: error: {shortage}\n")
        status = 1
    gc.freeze()  # without a search for cycles at exit: 20 ms of CPU
    sys.exit(status)


if __name__ == "__main__":
    main()
