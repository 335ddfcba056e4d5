"""The entry point of the command line, also for ``python -m nncftools``."""

import gc
import sys

_FEW_COLLECTIONS = 200_000
"""New objects before Python looks for cycles: after every 700, Python would look a hundred times while loading."""


def main() -> None:
    """Run the command line and exit; an interrupt during loading is no error."""
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
    gc.freeze()  # at the end, Python would look for cycles in all modules: 20 ms of CPU
    sys.exit(status)


if __name__ == "__main__":
    main()
