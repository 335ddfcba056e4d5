"""Headless Chromium, told what to show through its DevTools protocol over two pipes; standard library only."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pathlib
    from types import TracebackType

    from typing_extensions import Self

_QUIET = ("--no-first-run", "--disable-sync", "--disable-background-networking", "--disable-component-update")
_SWITCHES = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *_QUIET)
_DRAWN_MS = 1500
"""Until a page of this repository has drawn its charts."""
_A4 = (8.27, 11.69)
"""In inches."""


class Chromium:
    """A browser with one page, to be used as a context manager."""

    def __enter__(self) -> Self:
        """Start the browser; exit when there is none."""
        path = shutil.which("chromium") or shutil.which("google-chrome")
        if path is None:
            sys.exit("chromium is missing on PATH")
        self._cleanup = ExitStack()
        folder = self._cleanup.enter_context(tempfile.TemporaryDirectory())
        command_read, command_write = os.pipe()
        answer_read, answer_write = os.pipe()
        words = [path, *_SWITCHES, "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        script = f'exec "$@" 3<&{command_read} 4>&{answer_write}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", script, "bash", *words],
            pass_fds=(command_read, answer_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_read)
        os.close(answer_write)
        self._commands = self._cleanup.enter_context(os.fdopen(command_write, "wb", buffering=0))
        self._answers = self._cleanup.enter_context(os.fdopen(answer_read, "rb"))
        self._number = 0
        self._session = ""
        (target,) = [one for one in self._tell("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        found = self._tell("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = found["sessionId"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait()
        self._cleanup.close()

    def open(self, page: pathlib.Path, width: int, *, dark: bool = False, height: int = 900) -> None:
        """Show a page in a window of this many CSS pixels, as a reader whose system is light or dark."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._tell("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._tell("Emulation.setEmulatedMedia", media="", features=[scheme])
        self._tell("Page.navigate", url=page.absolute().as_uri())
        self.run(f"new Promise(done => setTimeout(done, {_DRAWN_MS}))")

    def run(self, program: str) -> Any:  # noqa: ANN401 — any value of JavaScript
        """Evaluate JavaScript in the page, wait for its promise, and return its value."""
        found = self._tell("Runtime.evaluate", expression=program, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            sys.exit(f"JavaScript failed: {found['exceptionDetails']}")
        return found["result"].get("value")

    def still(self, *, whole: bool = True) -> bytes:
        """Return the page as PNG: all of it, or the part that the window shows."""
        found = self._tell("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(found["data"])

    def on_paper(self) -> None:
        """Show the page as it is printed, on one sheet."""
        self._tell("Emulation.setEmulatedMedia", media="print", features=[])
        self.run("dispatchEvent(new Event('beforeprint')); new Promise(done => setTimeout(done, 500))")

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Move, press or release the mouse: ``mouseMoved``, ``mousePressed``, ``mouseReleased``."""
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self._tell("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def printed(self) -> bytes:
        """Return the page as the PDF that printing on A4 makes."""
        wide, high = _A4
        found = self._tell("Page.printToPDF", paperWidth=wide, paperHeight=high, printBackground=False)
        return base64.b64decode(found["data"])

    def _tell(self, method: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401 — parameters of the protocol
        """Return the answer to a command; events are left out."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": given}
        if self._session:
            command["sessionId"] = self._session
        self._commands.write(json.dumps(command).encode() + b"\0")
        while True:
            answer = json.loads(self._message())
            if answer.get("id") == self._number:
                break
        if "error" in answer:
            sys.exit(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _message(self) -> bytes:
        parts = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            if not byte:
                sys.exit("chromium ended")
            parts += byte
        return bytes(parts)
