"""The Python API: a program records itself."""
