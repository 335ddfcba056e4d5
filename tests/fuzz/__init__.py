"""Damages real files of every kind, and gives what was read of them to every output: ``python -m tests.fuzz``."""
