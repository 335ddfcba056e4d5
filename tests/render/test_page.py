from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import subprocess
import sys
import zlib
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nncftools.analysis.session import Session
from nncftools.errors import NncfToolsError
from nncftools.render.chart import kinds
from nncftools.render.page import report
from nncftools.render.stacks import flame
from nncftools.render.view import View
from nncftools.session.model import Exit, Frame, Host, Mark, Process
from nncftools.session.samples import TIME, Samples
from tests.browser import browser
from tests.conftest import BURNERS, Run
from tests.golden_outputs import DATA
from tests.made_up import MIB, marks, mib, process, samples, session
from tests.real.browser import opened
from tests.render.built_up import MAIN, TRACE, built_up, group, mapped
from tests.render.page_content import data_of, note_of, rows_of

VIEW = View(metrics=["rss"])


def boxes(of: Session) -> list[tuple[str, str, float]]:
    """Return the boxes of the flame graph as the number of the enclosing one, name and MiB."""
    found = flame(of, VIEW)
    assert found is not None
    (trace,) = found["traces"]
    names = [texts[0] for texts in trace["customdata"]]
    return [
        (parent, name, size / MIB) for parent, name, size in zip(trace["parents"], names, trace["values"], strict=True)
    ]


class TestFlame:
    @pytest.mark.parametrize("name", ["recorded", "stacks", "built_up", "built_up_more"])
    def test_children_never_exceed_their_parent(self, name: str) -> None:
        """Sizes are whole bytes, and boxes never exceed the one around them: else plotly draws nothing."""
        found = flame(Session.load(DATA / "runs" / f"{name}.json"), VIEW)
        assert found is not None
        (trace,) = found["traces"]
        inside = Counter[str]()
        for parent, size in zip(trace["parents"], trace["values"], strict=True):
            inside[parent] += size

        assert all(type(size) is int for size in trace["values"])
        assert len(set(trace["ids"])) == len(trace["ids"])
        assert all(inside[box] <= size for box, size in zip(trace["ids"], trace["values"], strict=True))

    def test_very_many(self) -> None:
        """There are at most 2,000 boxes, and the sum is kept."""
        stacks = [[Frame(f"{branch}.{place}", "/x.py", 1) for place in range(40)] for branch in range(100)]
        found = boxes(built_up(*((stack, 1) for stack in stacks)))

        assert 1000 <= len(found) <= 2000
        assert all(box[1].endswith(" more") for box in found if box[1].startswith("…"))
        assert sum(box[2] for box in found if box[0] == "0") == pytest.approx(100)

    @pytest.mark.long
    def test_very_deep(self) -> None:
        """Of a stack of 5,000 frames the outer ones are drawn."""
        deep = [Frame(f"f{place}", f"/x/{place}.py", 1) for place in range(5000)]
        found = boxes(built_up((deep, 100)))

        assert len(found) == 1001
        assert found[998][:2] == ("997", "f997")


@pytest.mark.parametrize("anonymous, spans", [(308, [(1, 1), (4, 4)]), (220, [])])
def test_kinds(anonymous: int, spans: list[tuple[float, float]]) -> None:
    """A bar lasts while RSS and anonymous memory stay near the reading; without a bar at the peak, nothing is drawn."""
    moments = [mapped(at_s, group("anonymous", size, copied=size)) for at_s, size in ((1.5, 100), (7.5, 310))]
    rss = mib(0, 100, 104, 300, 302, 320, 310, 300, 303, 50)
    anon = mib(0, 100, 104, 200, 302, anonymous, 310, 300, 303, 50)
    of = built_up(([MAIN], 100), mappings=moments, samples=samples(range(10), rss=rss, anon=anon))

    assert [span for part in kinds(of, VIEW, 10, 1) for span in zip(part["x"], part["width"], strict=True)] == spans


def test_kinds_of_many_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample is compared with the readings beside it, not with all readings."""
    compared: list[int] = []
    monkeypatch.setattr(np, "abs", lambda sizes: compared.append(len(sizes)) or np.absolute(sizes))
    moments = [mapped(at_s, group("anonymous", 100)) for at_s in range(0, 100, 5)]
    of = built_up(([MAIN], 100), mappings=moments, samples=samples(range(100), rss=range(100)))
    kinds(of, VIEW, 100, 1)

    assert 0 < sum(compared) < 300


HOSTILE = (
    "</script><script>window.injected = 1</script><img src=x onerror='window.injected = 1'>"
    "\"'\x00\x1b[31m\u202e <a href='https://evil.example'>click</a> %{x} " + "x" * 10_240
)
PROBE = """
const pause = ms => new Promise(done => setTimeout(done, ms));
const at = (target, kind, x, y) =>
  target.dispatchEvent(new MouseEvent(kind, {clientX: x, clientY: y, bubbles: true, view: window}));
const text = selector => [...document.querySelectorAll(selector)].map(e => e.textContent);
(async () => {
  const chart = document.getElementById("chart");
  const found = {title: document.title};
  found.images = document.querySelectorAll("img").length;
  found.links = document.querySelectorAll("a[href]").length;
  for (let waited = 0; waited < 100 && !chart.textContent; waited++) await pause(100);
  await pause(500);
  found.chart = chart.textContent.slice(0, 100);
  found.hints = [...document.querySelectorAll(".hint")].filter(e => e.getClientRects().length).length;
  found.drawn = text("#chart .scatterlayer .trace").length;
  found.labels = text("#chart text");
  const shownRows = () => text("#operations tbody tr:not([hidden]) td:nth-child(1):not(:empty)");
  found.operations = text("#operations tbody td:nth-child(1):not(:empty) + td");
  found.shown = shownRows();
  found.processes = [...document.querySelectorAll("#processes tbody tr")].map(
    e => [e.cells[0].textContent, Number(e.style.getPropertyValue("--inset"))]);
  found.facts = text("#facts td");
  found.warnings = text("#warnings li");
  found.background = getComputedStyle(document.body).backgroundColor;
  found.filter = getComputedStyle(chart).filter;
  found.overflow = document.documentElement.scrollWidth - innerWidth;
  const area = document.querySelector("#chart .nsewdrag");
  if (area) {
    area.scrollIntoView({block: "center"});
    const box = area.getBoundingClientRect();
    at(area, "mousemove", box.left + box.width / 2, box.top + box.height / 2);
    await pause(300);
    found.hovered = text("#chart .hoverlayer text");
    const toggle = document.querySelector("#chart .legend2toggle");
    const [trace] = chart.data;
    found.visible = [trace.visible];
    if (toggle) at(toggle, "mousedown", 0, 0);
    if (toggle) at(toggle, "mouseup", 0, 0);
    await pause(1000);
    found.visible.push(chart.data.find(other => other.name === trace.name && other.yaxis === trace.yaxis).visible);
    const heights = `${chart._fullLayout.yaxis2.range}`;
    [...document.querySelectorAll("#operations tbody tr")].filter(row => row.cells[0].textContent).at(-1)?.click();
    await pause(300);
    found.range = [...chart.layout.xaxis.range];
    found.chosen = document.querySelector("#chosen span").textContent;
    found.steady = chart._fullLayout.yaxis2.fixedrange && heights === `${chart._fullLayout.yaxis2.range}`;
    document.querySelector("#chosen button").click();
    await pause(300);
    found.whole = [...chart.layout.xaxis.range];
    const inside = document.querySelector("#chart .nsewdrag").getBoundingClientRect();
    const panel = document.querySelector("#chart .xy2 .nsewdrag, #chart .nsewdrag[data-subplot=xy2]");
    const click = async (target, x, y) => {
      at(target, "mousemove", x, y);
      await pause(300);
      for (const kind of ["mousedown", "mouseup"]) at(target, kind, x, y);
      await pause(800);
    };
    await click(panel, inside.left + inside.width * 0.41, panel.getBoundingClientRect().top + 40);
    found.clicked = text("#operations tr.on td:nth-child(1)");
    found.alive = text("#processes tr.alive td:nth-child(1)");
    await click(area, inside.left + inside.width * 0.41, inside.top + 10);
    found.clickedBar = text("#operations tr.on td:nth-child(1)");
    const heads = [...document.querySelectorAll("#operations th button")];
    found.sorted = [];
    for (let times = 0; times < 3 && heads[4]; times++) {
      heads[4].click();
      found.sorted.push(text("#operations tbody td:nth-child(5)"));
    }
    const search = document.querySelector("#operations").closest("section").querySelector("input");
    search.value = "TRACE";
    search.dispatchEvent(new Event("input"));
    found.searched = [shownRows(), document.querySelector("nav output").textContent];
    search.value = "";
    search.dispatchEvent(new Event("input"));
    document.querySelector("#operations .fold:not([hidden])")?.click();
    found.folded = shownRows();
  }
  const graph = document.querySelector("#icicle .slice");
  if (graph) {
    const boxes = () => [...document.querySelectorAll("#icicle .slice")];
    const shown = () => boxes().map(box => box.textContent.trim()).filter(Boolean);
    const point = async (box, kind) => {
      const path = box.querySelector("path"), place = path.getBoundingClientRect();
      for (const one of ["mouseover", "mousemove", ...kind]) at(path, one, place.left + place.width / 2, place.top + 5);
      await pause(500);
    };
    graph.scrollIntoView({block: "center"});
    found.boxes = shown();
    await point(boxes().at(-1), []);
    found.pointed = text("#icicle .hoverlayer text");
    const input = document.querySelector("#flame input");
    for (const words of ["TORCH", "nowhere", ""]) {
      input.value = words;
      input.dispatchEvent(new Event("input"));
      await pause(300);
      (found.sought ??= []).push(document.querySelector("#flame output").textContent);
      (found.colours ??= []).push([...document.getElementById("icicle").data[0].marker.colors]);
    }
    found.legend = text("#flame .legend > span");
  }
  found.flame = !document.getElementById("flame").hidden;
  found.injected = window.injected ?? null;
  found.requests = performance.getEntriesByType("resource").map(entry => entry.name);
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify(found);
  document.body.append(result);
})();
"""
ZOOM = """(async () => {
  const pause = ms => new Promise(done => setTimeout(done, ms));
  const all = selector => [...document.querySelectorAll(selector)];
  const shown = () => all("#icicle .slice, #icicle .pathbar").map(box => box.textContent.trim()).filter(Boolean);
  const click = async box => {
    const path = box.querySelector("path"), place = path.getBoundingClientRect();
    const where = {clientX: place.left + place.width / 2, clientY: place.top + 5, bubbles: true, view: window};
    for (const kind of ["mouseover", "mousemove", "click"]) path.dispatchEvent(new MouseEvent(kind, where));
    await pause(2000);
  };
  for (let waited = 0; waited < 200 && !all("#icicle .slice").length; waited++) await pause(100);
  await pause(500);
  const before = shown();
  await click(all("#icicle .slice").at(-1));
  const zoomed = shown();
  await click(all("#icicle .pathbar").find(box => box.textContent.includes("RSS")));
  return [before, zoomed, shown()];
})()"""


def run(**fields: Any) -> Session:  # noqa: ANN401 — any field of a session
    """Return a run of 12 seconds with memory, CPU and I/O, and two operations, one inside of the other."""
    columns = {
        "rss": mib(*range(100, 125)),
        "system": mib(*range(1000, 1025)),
        "anon": mib(*range(50, 75)),
        "cpu_user": [place / 4 for place in range(25)],
        "cpu_system": [place / 8 for place in range(25)],
        "read_bytes": [place * 2**20 for place in range(25)],
        "write_bytes": [0] * 25,
    }
    operations = marks("Export 3-9, Export/trace 4-6")
    processes = [process(end_s=12.0), process(1, parent=0, name="child", start_s=4.5, end_s=5.0)]
    processes.append(process(2, parent=1, name="grandchild", start_s=6.0, end_s=12.0))
    given = {"marks": operations, "processes": processes, "host": Host(name="box", cpus=4)}
    return session(columns, **{**given, **fields})


def page(of: Session, **view: Any) -> str:  # noqa: ANN401 — any choice
    """Return the page as text."""
    return report(of, View(**{"metrics": ["rss", "system"], "depth": 2, **view})).decode()


def hostile_page() -> str:
    """Return the page of a session whose texts are all ``HOSTILE``."""
    deep = [Frame(HOSTILE, f"/x/site-packages/<img>{HOSTILE}/{place}.py", place) for place in range(400)]
    mappings = [mapped(1.0, group("file", 100, f"/m/{HOSTILE}"))]
    marks = [Mark(name=HOSTILE, start_s=0, end_s=2, call=HOSTILE, error=HOSTILE)]
    names: dict[str, Any] = {
        "name": HOSTILE,
        "command": [HOSTILE],
        "host": Host(name=HOSTILE),
        "warnings": [HOSTILE],
        "exit": Exit(signal=9),
    }
    processes = [process(name=HOSTILE, command=[HOSTILE], end_s=2.0, exit=Exit(signal=9))]
    stacks = ((deep, 100), ([MAIN, *deep[:3]], 100))
    hostile = built_up(*stacks, mappings=mappings, marks=marks, processes=processes, **names)
    return page(hostile, metrics=["rss"], title=HOSTILE)


def scripts(text: str) -> list[str]:
    """Return the programs in a page."""
    return re.findall(r"<script>(.*?)</script>", text, re.DOTALL)


def plotly_of(text: str) -> str:
    """Return plotly's program as the browser unpacks it."""
    (packed,) = re.findall(r'<script type="application/octet-stream" id="plotly">(.*?)</script>', text)
    return zlib.decompress(base64.b64decode(packed)).decode()


def without_plotly(text: str) -> str:
    """Return the page without the packed program."""
    return re.sub(r'(id="plotly">).*?(?=<)', r"\1", text)


def sha256(program: str) -> str:
    """Return a program as a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()}'"


def long_run(count: int) -> Session:
    """Return a run of so many samples with a peak of a single one."""
    rss = np.random.default_rng(1).integers(1 << 30, 2 << 30, count).astype(np.float64)
    rss[count * 2 // 3] = 8 << 30
    columns = {TIME: np.arange(count) / 1000, **dict.fromkeys(("rss", "system", "anon", "file", "pss", "uss"), rss)}
    columns |= {name: np.arange(count) * 4096.0 for name in ("read_bytes", "write_bytes", "read_chars", "write_chars")}
    columns |= {"cpu_user": np.arange(count) / 1000, "cpu_system": np.arange(count) / 10_000}
    return run(
        samples=Samples({name: array("d", column.tobytes()) for name, column in columns.items()}),
        duration_s=count / 1000,
        marks=[Mark(name=f"Step {place}", start_s=place, end_s=place + 0.9) for place in range(50)],
    )


class TestPage:
    def test_only_its_own_programs_run(self) -> None:
        """The policy allows the two programs of the page by their hashes, and nothing from anywhere else."""
        text = page(run())
        (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', text)
        (own,) = scripts(text)

        assert f"default-src 'none'; script-src {sha256(plotly_of(text))} {sha256(own)};" in policy
        assert "connect-src" not in policy

    @pytest.mark.long
    def test_small(self) -> None:
        """A page without many samples is smaller than 2.1 MB, and always the same."""
        assert len(page(run())) < 2_100_000
        assert page(run()) == page(run())

    def test_names_no_address(self) -> None:
        """Outside of plotly's program there is no address."""
        text = without_plotly(page(run()))

        assert re.findall(r"[a-z]+://", text) == []

    def test_texts_cannot_end_the_data(self) -> None:
        """A hostile text in a session adds no script and no image."""
        text = hostile_page()

        assert text.count("<script") == 3
        assert not re.search("<img|\x1b|\x00", text)

    @pytest.mark.long
    def test_many_samples_keep_their_peak(self) -> None:
        """200,000 samples are at most 2,000 points a series, among them the peak of a single sample."""
        text = page(long_run(200_000))
        traces = data_of(text)["chart"]["traces"]

        assert len(text.encode()) < 2_500_000
        assert max(size for size in traces[0]["y"] if size is not None) == 8192
        assert all(len(trace["x"]) <= 2000 for trace in traces)

    @pytest.mark.long
    def test_very_many(self) -> None:
        """Of 3,000 operations and processes those that matter are listed, and the others counted."""
        marks = [Mark(name=f"{place % 50}", start_s=place / 1000, end_s=(place + 1) / 1000) for place in range(3_000)]
        processes = [Process(id=place, name="p", peak_rss=place) for place in range(3_000)]
        text = page(run(marks=marks, processes=processes))
        listed = [(len(rows_of(text, name)), note_of(text, name)) for name in ("operations", "processes")]

        assert listed == [(1000 + 1, "and 2,000 smaller ones"), (300, "and 2,700 smaller ones")]

    def test_without_plotly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without plotly one line says how to install it."""
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

        with pytest.raises(NncfToolsError, match=re.escape("pip install 'nncf-tools[html]'")):
            report(run(), VIEW)


def with_stacks() -> Session:
    """Return a run with stacks of two packages, and mappings at two moments."""
    file = group("file", 100, "/m/model.bin", copied=10)
    mappings = [mapped(1.0, group("anonymous", 200)), mapped(2.0, group("anonymous", 200), file)]
    return built_up(([MAIN], 200), ([MAIN, TRACE], 100), ([MAIN], 0), mappings=mappings)


def in_browser(text: str, folder: Path, *switches: str) -> dict[str, Any]:
    """Open a copy of a page with the probe in it in headless Chromium; return what it found and the console's lines."""
    copy = folder / "page.html"
    allowed = text.replace("script-src ", f"script-src {sha256(PROBE)} ", 1)
    copy.write_text(allowed.replace("</body>", f"<script>{PROBE}</script></body>"), encoding="utf-8")
    quiet = ["--no-first-run", "--disable-sync", "--disable-background-networking", "--disable-component-update"]
    page_only = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", *quiet, "--enable-logging=stderr"]
    waiting = ["--virtual-time-budget=20000", "--window-size=1280,1600", f"--user-data-dir={folder / 'profile'}"]
    command = [browser(), *page_only, *waiting, *switches, "--dump-dom", copy.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=240, check=True)
    result = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert result is not None, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(html.unescape(result[1]))
    return {**found, "console": [line for line in done.stderr.splitlines() if "CONSOLE" in line]}


@pytest.fixture(scope="module")
def opened_page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Open the page of a run without stacks once, for all tests of what it shows and does."""
    of = run()
    of.marks += marks("Saving 9-9.5, Compression 9.5-12")
    return in_browser(page(of), tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def opened_stacks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Open the page of a run with stacks once."""
    return in_browser(page(with_stacks(), metrics=["rss"]), tmp_path_factory.mktemp("stacks"))


@pytest.mark.real
class TestInBrowser:
    def test_draws_without_a_word(self, opened_page: dict[str, Any]) -> None:
        """All panels, tables and names are there, the console is empty, and no request leaves the page."""
        found = opened_page

        assert (found["console"], found["requests"]) == ([], [])
        assert (found["drawn"], found["hints"]) == (7, 1)
        assert {"Memory, MiB", "CPU,cores of 4", "I/O, MiB/s", "Export"} <= set(found["labels"])
        assert found["operations"] == ["Export", "trace", "Saving", "Compression"]
        assert found["processes"] == [["work", 0], ["child", 1], ["grandchild", 2]]
        assert found["overflow"] <= 0
        assert not found["flame"]
        assert "Memory by kind, MiB" not in found["labels"]

    def test_pointing_and_clicking(self, opened_page: dict[str, Any]) -> None:
        """Pointing at a moment shows its figures; clicks hide a metric, zoom in time only, and mark rows."""
        found = opened_page

        assert {"112.0 MiB", "1,012.0 MiB", "6 s"} <= {
            text for hovered in found["hovered"] for text in re.findall(r"[\d,.]+ \w+", hovered)
        }
        assert found["visible"] == [True, "legendonly"]
        assert (found["chosen"], found["steady"], found["whole"]) == ("3 Compression", True, [0, 12])
        assert (found["clicked"], found["clickedBar"]) == (["1.1"], ["1"])
        assert found["alive"] == ["work", "child"]

    def test_rows_sort_search_and_fold(self, opened_page: dict[str, Any]) -> None:
        """Rows sort by their figures inside of what they belong to, are found with what is around them, and fold."""
        falling = ["6.00 s", "2.00 s", "3.00 s", "2.50 s", "0.500 s"]

        assert opened_page["sorted"] == [falling, ["0.500 s", "2.50 s", "3.00 s", "6.00 s", "2.00 s"], falling]
        assert opened_page["searched"] == [["1", "1.1"], "1 of 5"]
        assert opened_page["folded"] == ["1", "3", "2"]

    def test_a_real_run(self, nncf_tools: Run, tmp_path: Path) -> None:
        """A profiled program's page has its operations and its processes."""
        nncf_tools("profile -q -o run.json --", sys.executable, BURNERS / "phases.py", 5)
        nncf_tools("report run.json --format html --output run.html")
        found = in_browser((tmp_path / "run.html").read_text(encoding="utf-8"), tmp_path)

        assert (found["console"], found["requests"]) == ([], [])
        assert found["drawn"] >= 3
        assert found["operations"][:3] == ["Model Loading", "Export", "Compilation"]

    def test_inner_levels(self, tmp_path: Path) -> None:
        """Operations below the levels of the view are folded at first; a click in the chart unfolds them."""
        found = in_browser(page(run(), depth=1), tmp_path)

        assert found["operations"] == ["Export", "trace"]
        assert found["shown"] == ["1"]
        assert found["clicked"] == ["1.1"]
        assert found["searched"] == [["1", "1.1"], "1 of 4"]
        assert found["folded"] == ["1"]

    def test_loaded_is_drawn(self, tmp_path: Path) -> None:
        """The page counts as loaded when its charts are there: what prints or pictures pages waits for that."""
        (tmp_path / "page.html").write_text(page(run()), encoding="utf-8")
        switches = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        command = [browser(), *switches, "--dump-dom", (tmp_path / "page.html").as_uri()]
        dumped = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=240, check=True)

        assert 'class="main-svg"' in dumped.stdout
        assert "<iframe" not in dumped.stdout

    def test_without_decompression(self, tmp_path: Path) -> None:
        """A browser that cannot unpack the charts says which ones can, and shows the tables, but not how to zoom."""
        text = page(run())
        blind = "delete window.DecompressionStream;"
        text = text.replace("script-src ", f"script-src {sha256(blind)} ", 1)
        found = in_browser(text.replace("<body>", f"<body><script>{blind}</script>", 1), tmp_path)

        assert found["console"] == []
        assert found["chart"].startswith("This browser cannot draw the charts: DecompressionStream is not defined.")
        assert found["hints"] == 0
        assert found["operations"] == ["Export", "trace"]
        assert not found["flame"]

    @pytest.mark.parametrize(
        "scheme, paper, look",
        [(0, "rgb(27, 27, 27)", "invert(0.894) hue-rotate(180deg)"), (1, "rgb(255, 255, 255)", "none")],
        ids=["dark", "light"],
    )
    def test_dark_and_light(self, tmp_path: Path, scheme: int, paper: str, look: str) -> None:
        """Page and charts are as dark as the reader's system."""
        found = in_browser(page(run()), tmp_path, f"--blink-settings=preferredColorScheme={scheme}")

        assert (found["background"], found["filter"]) == (paper, look)

    def test_texts_stay_texts(self, tmp_path: Path) -> None:
        """Nothing that a session holds is run, shown as an image or made a link, wherever it stands."""
        found = in_browser(hostile_page(), tmp_path)

        assert (found["injected"], found["images"], found["links"]) == (None, 0, 0)
        assert (found["console"], found["requests"]) == ([], [])
        assert found["operations"][0].startswith("</script><script>window.injected = 1")
        assert any(name.startswith("</script><script>window.injected = 1") for name in found["boxes"])
        assert found["overflow"] <= 0

    def test_flame_graph(self, opened_stacks: dict[str, Any]) -> None:
        """Boxes tell their place, size and share, their colours are named, and mappings have a panel."""
        found = opened_stacks

        assert (found["console"], found["requests"]) == ([], [])
        assert found["boxes"][:2] == ["RSS at its peak", "main  me/export.py:10"]
        assert found["legend"] == ["the program itself", "torch"]
        assert " of the peak" in " ".join(found["pointed"])
        assert "of it certain" in " ".join(found["pointed"])
        assert {"Memory by kind, MiB", "anonymous", "copied from model.bin", "model.bin"} <= set(found["labels"])

    def test_search(self, opened_stacks: dict[str, Any]) -> None:
        """What is found is named with its memory, and everything else is faint, if anything is found."""
        assert opened_stacks["sought"][0].endswith("% of the peak, in 1 box")
        assert opened_stacks["sought"][1:] == ["not found", ""]
        torch, nowhere, nothing = opened_stacks["colours"]
        assert nowhere == nothing
        assert [one == other for one, other in zip(torch, nothing, strict=True)].count(True) == 1

    def test_flame_graph_zooms(self, tmp_path: Path) -> None:
        """A click on a box zooms into it, with the boxes around it above; one on such a box goes back."""
        (tmp_path / "page.html").write_text(page(with_stacks(), metrics=["rss"]), encoding="utf-8")
        with opened(browser(), tmp_path / "profile") as chromium:
            chromium.open((tmp_path / "page.html").as_uri())
            before, zoomed, after = chromium.value(ZOOM)

        assert before == after
        assert before[0] == "RSS at its peak"
        assert zoomed == ["trace  torch/jit/_trace.py:455", "main", "RSS at its peak"]

    def test_a_million_samples(self, tmp_path: Path) -> None:
        """A million samples open and answer like any other page."""
        found = in_browser(page(long_run(1_000_000)), tmp_path)

        assert found["console"] == []
        assert found["drawn"] >= 6
        assert found["visible"] == [True, "legendonly"]

    def test_nothing_recorded(self, tmp_path: Path) -> None:
        """A session without samples is a page that says so."""
        found = in_browser(page(session({"rss": []}), metrics=["rss"]), tmp_path)

        assert (found["console"], found["drawn"]) == ([], 0)
