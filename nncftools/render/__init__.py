"""Modules that make the outputs, one for each output. They get sessions, and do not know where sessions come from."""
