"""Errors of weight-compression results, which programs may also catch as builtin errors."""

from __future__ import annotations

from nncftools.errors import NncfToolsError


class ResultsError(NncfToolsError, RuntimeError):
    """The results cannot be read, compared or written; also a RuntimeError, as in NNCF's visualizer."""


class MissingInputError(ResultsError, FileNotFoundError):
    """An input file does not exist; also a FileNotFoundError."""
