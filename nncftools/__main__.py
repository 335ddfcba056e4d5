"""The command line's entry, also as ``python -m nncftools``."""

import sys


def main() -> None:
    """Run the command line and exit; an interrupt while it is loaded is no error."""
    try:
        from nncftools.cli.app import run

        status = run()
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


if __name__ == "__main__":
    main()
