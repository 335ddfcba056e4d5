"""The version of nncf-tools, on the ground floor, so that nothing has to import the package for it."""

__version__ = "0.1.0"
