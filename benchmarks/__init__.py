"""What measuring costs, measured: each module is a command, ``python -m benchmarks.NAME``."""
