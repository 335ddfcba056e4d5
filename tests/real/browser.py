"""A headless Chromium, controlled through a pipe (Chrome DevTools Protocol) with only the standard library."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
LAUNCHER = """import fcntl, os, sys
ours = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for place, number in enumerate(ours, start=3):
    os.dup2(number, place)
os.execvp(sys.argv[3], sys.argv[3:])"""
"""The protocol's descriptors are 3 and 4."""


class Page:
    """One page; ``value`` evaluates JavaScript in it."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to = os.fdopen(to_browser, "wb", buffering=0)
        self._from = os.fdopen(from_browser, "rb")
        self._number = 0
        self._session: dict[str, str] = {}
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}

    def open(self, url: str) -> None:
        """Go to a page, and do not wait for it."""
        self._call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:  # noqa: ANN401 — any JSON
        """Return what an expression, or the promise that it is, comes to."""
        found = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def close(self) -> None:
        """Close the pipe, which ends the browser."""
        self._to.close()
        self._from.close()

    def _call(self, method: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401 — as the protocol has them
        self._number += 1
        message = {"id": self._number, "method": method, "params": params, **self._session}
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            data = bytearray()
            while (character := self._from.read(1)) != b"\0":
                assert character, "the browser ended"
                data += character
            answer = json.loads(data)
            if answer.get("id") == self._number:
                assert "result" in answer, answer
                return dict(answer["result"])


@contextlib.contextmanager
def opened(browser: str, profile: Path) -> Iterator[Page]:
    """Start a browser with one page, and end it."""
    their_input, to_browser = os.pipe()
    from_browser, their_output = os.pipe()
    words = [browser, *ARGUMENTS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
    command = [sys.executable, "-c", LAUNCHER, str(their_input), str(their_output), *words]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, pass_fds=(their_input, their_output), **quiet) as process:
        os.close(their_input)
        os.close(their_output)
        page = Page(to_browser, from_browser)
        try:
            yield page
        finally:
            page.close()
            process.terminate()
