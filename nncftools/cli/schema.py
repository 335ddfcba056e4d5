"""``nncf-tools schema``: the JSON Schema of a session file."""

from __future__ import annotations

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

    from nncftools.session import model

    typer.echo(json.dumps(model.schema(), indent=2))
