"""``nncf-tools schema``: the JSON Schema of a session file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="schema")(schema)


def schema() -> None:
    """Print the JSON Schema of a session file.

    \b
    Example:
      nncf-tools schema > session.schema.json
    """
    import json

    from nncftools.cli import screen
    from nncftools.session import session

    screen.to_stdout(f"{json.dumps(session.schema(), indent=2)}\n")
