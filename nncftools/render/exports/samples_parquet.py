"""The samples as a Parquet file for pandas, Polars, DuckDB and Spark; it needs pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nncftools.errors import NncfToolsError

if TYPE_CHECKING:
    from nncftools.render.view import View
    from nncftools.session.session import Session


def report(session: Session, _view: View) -> bytes:
    """Return all samples with all metrics; the metadata (``DataFrame.attrs``) has the rest of the session.

    Its columns are those of ``to_pandas()``. Raises NncfToolsError when pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: F401, ICN001 — pandas uses it
    except ImportError as error:
        message = "parquet needs pyarrow; install it with: pip install 'nncf-tools[parquet]'"
        raise NncfToolsError(message) from error
    frame = session.to_pandas()
    frame.attrs = _facts(session)
    data: bytes = frame.to_parquet(None, engine="pyarrow", compression="zstd")
    return data


def _facts(session: Session) -> dict[Any, Any]:
    """Return the session without its samples and the samples of its processes."""
    facts = {
        field.name: msgspec.to_builtins(getattr(session, field.name))
        for field in msgspec.structs.fields(session)
        if field.name != "samples"
    }
    for process in facts["processes"]:
        process["series"] = None
    return facts
