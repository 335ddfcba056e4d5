"""Draw the pictures of the documents, the live view's and the page's states: python -m docs.pictures [SESSION.json].

They need tmux and Chromium, and take about a minute. With a session, the pictures of a real run are drawn instead:
README's page and live view.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def main(*session: str) -> int:
    """Run one program after the other; return how many of them failed."""
    programs: list[list[str]] = [["-m", "docs.pictures.pages", *session], [str(HERE / "live_view.py"), *session]]
    return sum(subprocess.run([sys.executable, *words], check=False).returncode != 0 for words in programs)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
