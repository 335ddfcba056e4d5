"""Run the command line as ``python -m nncftools``."""

from nncftools.cli.app import main

if __name__ == "__main__":
    main()
