"""Real files of each kind that nncf-tools reads, made by their writers, or kept in ``tests/data``."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import pathlib
import tempfile
from typing import TYPE_CHECKING

from nncftools.analysis.session import Session
from nncftools.marks import line
from nncftools.reading_marks.collecting import write_sidecar
from nncftools.session.model import Mark, OwnMemory, Process, Rank, Rise, SavedModel, Series, Start
from tests.compression.made_up import with_figures
from tests.fuzz import interpreters
from tests.importers.logs import INFO, INFO_KIB, LOGS, USAGE, USAGE_KIB
from tests.made_up import END, MIB, UTC, header, journal, mib, session
from tests.made_up_stacks import frame, group, grown
from tests.render.golden import run as golden_run

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = pathlib.Path(__file__).parents[1] / "data"
SESSION = "session"
"""Read by ``report``."""
MARKS = "marks"
"""By ``report`` with ``--marks``."""
TABLE = "table"
"""By ``viz-compression``."""
EVALUATION, SIMILARITY = "evaluation", "similarity"
"""By ``from-lm-eval``."""
PROJECT = "project"
"""By ``profile``, which reads pyproject.toml."""
INTERPRETER, PROGRAM = "interpreter", "program"
"""By the helper that reads stacks: the memory of a Python, and its program."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """A file to damage, and those next to it."""

    name: str
    content: bytes
    reader: str = SESSION
    beside: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    opened: str = ""
    """The file to open, if it is another one."""


def _saved(of: Session) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return of.save(pathlib.Path(folder) / "run.json").read_bytes()


def _everything() -> Session:
    """Return a session in which every field is filled."""
    whole = golden_run()
    stacked = grown(
        ((frame("/work/a.py:1 main"), frame("torch/nn/modules/module.py:9 forward")), 300.0),
        ((frame("/work/a.py:2 main"), frame("nncf/quantize.py:3 compress")), 200.0),
        groups=(group("anonymous", 300), group("file", 100, "/models/a.bin", clean=90), group("libraries", 50)),
    )
    whole.snapshots = stacked.snapshots
    whole.rank = Rank(number=1, size=2, local=1, job="7", launcher="torchrun")
    whole.models = [SavedModel(path="/out/m.xml", saved_s=9.0, facts={"nncf/weight_compression/mode": "int4_sym"})]
    first = whole.processes[0]
    first.rises = [Rise(from_s=1.0, to_s=1.5, high_water_mark=410 * MIB, others=MIB, others_around=2 * MIB)]
    first.series = Series(time_s=[0.0, 6.0, 12.0], rss=[MIB, 2 * MIB, 3 * MIB])
    first.counted_s, first.first_rss, first.peak_s = 0.0, MIB, 6.0
    own = OwnMemory(rss=MIB, high_water_mark=2 * MIB)
    whole.marks[0] = Mark(
        **{**{name: getattr(whole.marks[0], name) for name in Mark.__struct_fields__}, "own_start": own, "own_end": own}
    )
    return whole


def _marks_log() -> bytes:
    """Return what the hook, the API and ``nncf-tools mark`` write."""
    where = '"pid":100,"tid":100'
    members = line.common_members("Weight Compression", "auto", "compress", "nncf.compress_weights")
    step = line.common_members("Calibration", "auto", "calibrate", "openvino.infer", step=True)
    texts = [
        line.describe_python(5).replace(f'"pid":{os.getpid()}', '"pid":100'),
        line.moment(line.common_members("Load", "api"), 100_000_005, where),
        line.begin(2, members + ',"arguments":["INT4_SYM","g64"]', 200_000_005, where),
        *(line.begin(op, step, op * 100_000_005, where) + line.end(op, op * 110_000_005, where=where) for op in (4, 6)),
        line.end(
            2, 800_000_005, "ValueError", ',"saved":"/out/m.xml","rt_info":"<nncf><a value=\\"1\\"/></nncf>"', where
        ),
        f'{{{step},"t_ns":850000005,"end_ns":900000005,{where},"count":7,"total_ns":30000000,"longest_ns":9000000}}\n',
        line.warning("made up"),
        f'{{{line.common_members("Saving", "shell")},"t_ns":950000005}}\n',
    ]
    return "".join(texts).encode()


def _journal() -> bytes:
    """Return a journal with every kind of line."""
    first = header(("rss", "cpu_user", "read_bytes"), rank={"number": 0, "size": 2, "launcher": "mpi"})
    child = {"id": 1, "pid": 101, "parent": 0, "name": "python", "command": ["python", "a.py"], "start_s": 0.1}
    more = {
        "id": 1,
        "end_s": 0.9,
        "exit": {"code": 0, "signal": None},
        "peak_rss": 9 * MIB,
        "high_water_mark": 10 * MIB,
    }
    sampler = {"cpu_s": 0.1, "peak_rss": 9 * MIB, "taken": 3, "missed": 0, "longest_gap_s": 0.5, "rows": 3}
    return journal(
        {"columns": ["rss", "cpu_user", "read_bytes"]},
        {"process": child},
        [0.0, MIB, 0.0, 0],
        {"each": {"0": 1000, "1": 2000}},
        [0.5, 9 * MIB, 0.25, 4096],
        {"rise": {"id": 1, "from_s": 0.1, "to_s": 0.5, "high_water_mark": 10 * MIB, "others": 0, "others_around": 5}},
        {"exec": {"id": 1, "from_s": 0.2, "to_s": 0.5}},
        {"each": {"0": 1500, "1": 9_000_000}},
        {"limit_reached": {"at_s": 0.5, "rss": 9 * MIB, "limit": 8 * MIB, "action": "warn"}},
        {"warning": "made up"},
        [1.0, 5 * MIB, 0.5, 8192],
        {"process": more},
        {"end": {**END["end"], "sampler": sampler}},
        first=first,
    )


def _snapshots() -> bytes:
    """Return what the helper writes."""
    of_process = {"process": 0}
    span = {"t_ns": list(range(100_000_005, 500_000_006, 20_000_000))}
    lines: list[object] = [
        {"helper": {"pid": 5, "t_ns": 5, "missing": None, "share": 0.01, "least_s": 0.5}},
        {"process": {"number": 0, "pid": 100, "t_ns": 100_000_005, "inherited": 0}},
        {"frame": [0, "<module>", "/run.py", 9]},
        {"frame": [1, "load", "/run.py", 4]},
        {"stack": [0, [0, 1]]},
        {"table": [0, 11, "gAGAAQ=="]},
        {"frame": [2, "work", "/run.py", 4, 0, 2]},
        {"stack": [1, [0, 2]]},
        {"loop": 2},
        {"rss": {**of_process, "t_ns": [100_000_005, 500_000_005], "rss": [0, 9 * MIB], "apart_ns": [0, 20_000_000]}},
        {"faults": {**of_process, "t_ns": 500_000_005, "threads": {"77": 3, "78": 2}, "lost": 1}},
        {"window": {**of_process, **span, "threads": {"77": [[100_000_005, 0], [400_000_005, None]]}}},
        {"window": {**of_process, **span, "threads": {"78": [[100_000_005, 1, 0], [140_000_005, 1, 2]]}}},
        {"native": 0},
        {"mappings": {"t_ns": 500_000_005, "total": 9, "processes": [[0, [["file", "/m", [9, 1, 2, 3, 3, 4]]]]]}},
        {"problem": {"process": 0, "text": "refused"}},
        {"end": {"cpu_s": 0.25, "failed": 1}},
    ]
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


EVALUATED = {
    "results": {
        "wikitext": {"word_perplexity,none": 9.5, "word_perplexity_stderr,none": "N/A", "alias": "w"},
        "gsm8k": {"exact_match,strict": 0.5, "exact_match_stderr,strict": 0.01},
    }
}
CSV_MARKS = (
    b"name,start_s,end_s,depth,t_ns,start\nLoad,0.1,0.5,0,,\nSave,0.6,0.9,,,\nEnd,,,,,2026-11-21T07:00:01+00:00\n"
)
PROJECT_FILE = b'[tool.nncf-tools]\nmark-calls = ["a.b:c=Load", "a:D.e=Save"]\n'


def _sidecar() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.marks.json"
        write_sidecar([Mark(name="Load", start_s=0.1, end_s=0.5), Mark(name="Save", start_s=0.6, depth=1)], path)
        return path.read_bytes()


def _measured() -> bytes:
    """Return results with figures of memory and time."""
    with tempfile.TemporaryDirectory() as folder:
        return with_figures(pathlib.Path(folder) / "measured.csv").read_bytes()


def samples() -> list[Sample]:
    """Return one sample or more of each kind of file."""
    plain = _saved(session(start=Start(utc=UTC, monotonic_ns=5), processes=[Process(id=0, pid=100, start_s=0.0)]))
    recorded, marks = _journal(), _marks_log()
    stored = [Sample(path.name, path.read_bytes()) for path in sorted((DATA / "version_1").iterdir()) if path.is_file()]
    csv = (DATA / "made_up_compression.csv").read_bytes()
    kept = [one for one in stored if ".marks." not in one.name]
    return [
        *kept,
        Sample("everything.json", _saved(_everything())),
        Sample("everything.json.gz", gzip.compress(_saved(_everything()), mtime=0)),
        Sample("sparse.json", _saved(session({"rss": mib(1, None, 3)}))),
        Sample("whole.journal.jsonl", recorded),
        Sample("whole.marks.jsonl", marks, beside={"whole.journal.jsonl": recorded}, opened="whole.journal.jsonl"),
        Sample(
            "whole.snapshots.jsonl",
            _snapshots(),
            beside={"whole.journal.jsonl": recorded},
            opened="whole.journal.jsonl",
        ),
        Sample("run.marks.json", _sidecar(), beside={"run.json": plain}, opened="run.json"),
        Sample("run.marks.jsonl", marks, beside={"run.json": plain}, opened="run.json"),
        Sample("run.marks.csv", CSV_MARKS, beside={"run.json": plain}, opened="run.json"),
        Sample("more.csv", CSV_MARKS, MARKS, {"run.json": plain}, "run.json"),
        Sample("semicolons.csv", CSV_MARKS.replace(b",", b";"), MARKS, {"run.json": plain}, "run.json"),
        Sample("more.json", _sidecar(), MARKS, {"run.json": plain}, "run.json"),
        *(
            Sample(name, content, beside={"usage.jsonl": USAGE} if name == "info.json" else {"info.json": INFO})
            for name, (content, _) in LOGS.items()
        ),
        Sample("x_info.json", INFO_KIB, beside={"x_usage.json": USAGE_KIB}),
        Sample("psrecord.txt.gz", gzip.compress(LOGS["psrecord.txt"][0], mtime=0)),
        Sample("results.csv", csv, TABLE),
        Sample("measured.csv", _measured(), TABLE),
        Sample("results.json", json.dumps(EVALUATED).encode(), EVALUATION),
        Sample("metrics.csv", b"prompt,similarity\na,0.9\nb,0.95\n", SIMILARITY),
        Sample("pyproject.toml", PROJECT_FILE, PROJECT),
        *(Sample(f"memory.{version}", interpreters.image(version), INTERPRETER) for version in interpreters.VERSIONS),
        Sample("python.elf", interpreters.program(), PROGRAM),
    ]
