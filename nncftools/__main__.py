"""The entry point of the command line, also for ``python -m nncftools``."""

import gc
import sys

_FEW_COLLECTIONS = 200_000
"""Number of new objects before Python searches for reference cycles. With Python's usual 700, loading would take a
hundred searches."""


def main() -> None:
    """Run the command line and exit. If the user interrupts the loading, no traceback is printed."""
    gc.set_threshold(_FEW_COLLECTIONS)
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
