"""The entry point of the command line, also for ``python -m nncftools``."""

import gc
import sys

_FEW_COLLECTIONS = 200_000
"""Number of new objects before Python looks for cycles; with the usual 700, loading takes a hundred searches."""


def main() -> None:
    """Run the command line and exit; an interrupt during loading prints no traceback."""
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
    gc.freeze()  # avoids a search for cycles in all modules at exit: 20 ms of CPU
    sys.exit(status)


if __name__ == "__main__":
    main()
