"""The effects of the hook on a program: marks, and nothing else. Each test runs a Python with made-up packages.

The permission that the hook gives to the helper, recorded by a made-up ctypes: this kernel may have no yama.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from nncftools.marks import calls
from nncftools.marks.line import VARIABLE
from tests.conftest import HANGING_S

pytestmark = pytest.mark.process
SOURCE = '''
import functools, warnings

def work(size=1, *, deep=False):
    """Does it."""
    return size

def fail():
    raise error

error = ValueError("wrong")
alias = work

def warn():
    warnings.warn("old", UserWarning, stacklevel=2)

def later():
    yield 1

async def soon():
    pass

@functools.wraps(later)
def wrapped(*args):
    return later(*args)

def outer(times, call):
    for _ in range(times):
        call()

def nap(seconds):
    import time
    time.sleep(seconds)

async def stream():
    yield await soon()

count = 3

class Base:
    def inherited(self):
        return self

class Model(Base):
    def run(self):
        return self

    @classmethod
    def load(cls, name):
        return cls, name

    @staticmethod
    def save(name):
        return name
'''
ODD = 'a "b" \\ ü 世 😀'
NAMES = {
    "work": "Work",
    "fail": "Fail",
    "warn": "Warn",
    "outer": "Outer",
    "nap": "Nap",
    "later": "Later",
    "soon": "Soon",
    "stream": "Stream",
    "Model.run": "Run",
    "Model.load": "Load",
    "Model.save": "Save",
}
MORE = {
    "made/__init__.py": "",
    "made/up.py": SOURCE,
    "made/warns.py": "import warnings\nwarnings.warn('old', stacklevel=2)\ndef work(): pass",
    "made/fails.py": "1 / 0",
    "made/deep.py": """
        def dive(n):
            return n and dive(n - 1)
        def climb(n):
            return n and fall(n - 1)
        def fall(n):
            return n and climb(n - 1)
    """,
    "counts/sitecustomize.py": "import builtins\nbuiltins.ran = getattr(builtins, 'ran', 0) + 1",
    "raises/sitecustomize.py": "raise RuntimeError('mine')",
    "torch/__init__.py": "",
    "torch/autograd.py": "def backward(): pass",
    "torch/serialization.py": "def save(): pass",
    "openvino/__init__.py": "from openvino._pyopenvino import save_model",
    "openvino/_pyopenvino.py": """
        def save_model(model, output_model):
            return model and open(output_model, 'w').write(model)
    """,
    "openvino/_ov_api.py": """
        class InferRequest:
            def infer(self):
                return 1
        class CompiledModel:
            def __call__(self):
                return InferRequest().infer()
        class Core:
            pass
    """,
    "made/chain.py": "".join(f"def f{n}(): f{n + 1}()\n" for n in range(120)) + "def f120(): pass\n",
}
"""Files beside the script, by path."""
Lines = list[dict[str, Any]]


class Program:
    """A folder with the package ``made``, and the marks log of what runs there."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.log = folder / "marks.jsonl"
        self.log.touch()
        self.calls = [calls.Call("made.up", function, name) for function, name in NAMES.items()]
        self.calls += [calls.Call(module, "work", "Work") for module in ("made.warns", "made.fails", "zipped.up")]
        self.calls += [calls.Call("made.deep", name, name) for name in ("dive", "climb", "fall")]
        self.calls += [calls.Call("made.chain", f"f{n}", "Link") for n in range(121)]
        for path, text in MORE.items():
            self.write(path, text)

    def write(self, name: str, text: str) -> pathlib.Path:
        """Write a file of the program."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def run(self, text: str, *options: str, hook: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script, with the hook or without, and return its output; it must succeed."""
        script = self.write("script.py", text)
        words = [sys.executable, *options, str(script)]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            variables = {**os.environ, **(calls.environment(self.log, self.calls) if hook else {})}
        done = subprocess.run(
            words, env=variables, cwd=self.folder, capture_output=True, text=True, timeout=HANGING_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done

    def marks(self, text: str, *options: str, **environment: str) -> Lines:
        """Run a script and return the lines of its log."""
        self.log.write_bytes(b"")
        self.run(text, *options, **environment)
        return [json.loads(line) for line in self.log.read_bytes().splitlines()]


@pytest.fixture
def program(tmp_path: pathlib.Path) -> Program:
    """Make a folder with a package to mark."""
    return Program(tmp_path)


def begun(lines: Lines) -> list[str]:
    """Return the names of the operations in the order of their starts."""
    return [line["name"] for line in lines if line.get("event") == "begin"]


_UNHURRIED = "import sys; sys.modules['_nncf_tools_marks.line']._LONGEST_READING_NS = 1 << 60; "
"""The beginning of a program whose marks keep readings that a busy machine has interrupted: test_line is of that."""


def test_a_call_is_a_begin_and_an_end(program: Program) -> None:
    """The log holds the Python's version and, per call, its name, call, context, process, thread, times and memory."""
    python, begin, end = program.marks(f"{_UNHURRIED}import made.up; made.up.work()")
    expected = {"event": "begin", "name": "Work", "call": "made.up.work", "source": "auto", "in": 0, "descendants": []}
    common = {"event", "op", "t_ns", "pid", "tid", "rss", "high_water_mark", "descendants"}

    assert [*python] == ["python", "pid", "t_ns", "program"]
    assert python["python"] == sys.version.split()[0]
    assert begin == {**begin, **expected, "pid": python["pid"], "tid": python["pid"]}
    assert end == {**end, "event": "end", "op": begin["op"], "pid": python["pid"], "tid": begin["tid"]}
    assert (set(begin), set(end)) == (common | {*expected}, common)
    assert python["t_ns"] < begin["t_ns"] <= end["t_ns"]
    assert 1 << 20 < begin["rss"] <= begin["high_water_mark"]


LONG = pytest.mark.long
SLOW = {"spawn", "forkserver", "depth of recursion", "warning on import", "failing import", "own sitecustomize"}
"""Cases that run only with ``-m long``."""
MARKED = {
    "methods": (
        """
        from made.up import Model, alias
        model = Model()
        assert (model.run(), Model.load("a"), model.save("b"), alias(3)) == (model, (Model, "a"), "b", 3)
        """,
        "Run Load Save Work",
    ),
    "signature, source and pickling": (
        """
        import inspect, pickle
        from made.up import Model, work, alias
        assert work.__wrapped__.__code__.co_filename.endswith("up.py")
        assert str(inspect.signature(work)) == "(size=1, *, deep=False)"
        assert str(inspect.signature(Model.load)) == "(name)"
        assert inspect.getsource(work).startswith("def work(")
        assert inspect.getdoc(work) == "Does it." and work.__qualname__ == "work" and work.__module__ == "made.up"
        assert pickle.loads(pickle.dumps(work)) is work is alias
        assert pickle.loads(pickle.dumps(Model.load))("x") == (Model, "x")
        """,
        "Load",
    ),
    "loaders": (
        """
        import importlib, importlib.machinery, importlib.util, made.up
        loader = importlib.machinery.SourceFileLoader
        assert (loader, loader) == (type(made.up.__spec__.loader), type(made.up.__loader__))
        assert importlib.util.find_spec("made.up") is made.up.__spec__
        assert importlib.reload(made.up).work.__wrapped__
        """,
        "",
    ),
    "a lazily loaded module": (
        """
        import importlib.util, sys
        spec = importlib.util.find_spec("made.up")
        loader = importlib.util.LazyLoader(spec.loader)
        spec.loader = loader
        module = sys.modules["made.up"] = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        module.work()
        """,
        "Work",
    ),
    "a zip file": (
        """
        import sys, zipfile
        with zipfile.ZipFile("app.zip", "w") as file:
            file.writestr("zipped/__init__.py", "")
            file.write("made/up.py", "zipped/up.py")
        sys.path.insert(0, "app.zip")
        import zipped.up
        assert zipped.up.work(3) == 3
        """,
        "Work",
    ),
    "no descriptor is kept": (
        """
        import os, made.up
        before = os.listdir("/proc/self/fd")
        made.up.work()
        assert os.listdir("/proc/self/fd") == before
        os.closerange(3, 64)
        made.up.work()
        """,
        "Work*2",
    ),
    "nncftools is not imported": (
        "import sys, made.up; made.up.work(); sys.exit('nncftools' in sys.modules)",
        "Work",
    ),
    "coroutines and generators": (
        """
        import asyncio, inspect
        from made.up import later, soon, stream
        assert inspect.isgeneratorfunction(later) and inspect.iscoroutinefunction(soon)
        assert inspect.isasyncgenfunction(stream)
        async def main():
            assert [name async for name in stream()] == [None]
        list(later())
        asyncio.run(main())
        """,
        "Later Stream Soon",
    ),
    "a child process": (
        """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "import made.up; made.up.work()"], check=True)
        """,
        "Work",
    ),
    **{
        method: (
            f"""
            import multiprocessing, made.up
            if __name__ == "__main__":
                with multiprocessing.get_context("{method}").Pool(2) as pool:
                    assert pool.map(made.up.work, range(4)) == list(range(4))
            """,
            "Work*4",
        )
        for method in ("spawn", "fork", "forkserver")
    },
    "exceptions, unchanged": (
        """
        import made.up
        def stop(error):
            made.up.error = error
            try:
                made.up.fail()
            except BaseException as found:
                assert found is error and error.__context__ is None and error.__cause__ is None
        for error in ValueError("wrong"), SystemExit(0), KeyboardInterrupt():
            stop(error)
        """,
        "Fail*3 | ValueError SystemExit KeyboardInterrupt",
    ),
    "recursion is one operation, also in a thread and after an error": (
        """
        import made.deep, sys, threading
        made.deep.dive(300)
        try:
            made.deep.dive(-1)
        except RecursionError:
            pass
        thread = threading.Thread(target=made.deep.dive, args=(300,))
        thread.start()
        thread.join()
        sys.setrecursionlimit(1234)
        made.deep.dive(800)
        assert sys.getrecursionlimit() == 1234
        """,
        "dive*4 | RecursionError",
    ),
    "to a depth of 100": ("import made.chain; made.chain.f0()", "Link*100"),
    "1,000 calls in each operation; nothing in an aggregated call": (
        """
        import made.up
        def failing():
            try:
                made.up.fail()
            except ValueError:
                pass
        for _ in range(2):
            made.up.outer(1001, failing)
        made.up.outer(1001, lambda: made.up.outer(1, made.up.work))
        """,
        "Outer*3 Fail*2000 Work*1000 | ValueError*2000 | 1-ValueError 1-ValueError 1",
    ),
    "aggregates are flushed every ten seconds": (
        """
        import sys, os, made.up
        sys.modules["_nncf_tools_marks.call_log"].FLUSH_NS = 10**6
        for _ in range(1000):
            made.up.nap(0)
        for _ in range(3):
            made.up.nap(0.002)
        os._exit(0)
        """,
        "Nap*1000 | | 1 1 1",
    ),
    "ten inferences, and nothing inside of them": (
        """
        from openvino._ov_api import CompiledModel
        model = CompiledModel()
        for _ in range(500):
            assert model() == 1
        """,
        "Inference*10 | | 490",
    ),
}


def counted(texts: Iterable[str]) -> str:
    """Return texts with their numbers, in the order of their first ones."""
    return " ".join(f"{text}*{number}" if number > 1 else text for text, number in Counter(texts).items())


def summary(lines: Lines) -> str:
    """Return the names of operations, the errors at their ends, the counts of aggregated calls, and warnings."""
    errors = [line["error"] for line in lines if line.get("event") == "end" and "error" in line]
    counts = [line for line in lines if "count" in line]
    aggregated = " ".join(f"{line['count']}{'-' * ('error' in line)}{line.get('error', '')}" for line in counts)
    warnings = counted(line["warning"] for line in lines if "warning" in line)
    return " | ".join([counted(begun(lines)), counted(errors), aggregated, warnings]).replace("|  |", "| |").strip(" |")


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG if name in SLOW else ()) for name in MARKED])
def test_marked(program: Program, name: str) -> None:
    """Calls are marked wherever they are made, and functions behave as without the hook: the script checks that."""
    text, expected = MARKED[name]

    assert summary(program.marks(text)) == expected


SAME = {
    "warning of the caller's line": ("import made.up\n\nmade.up.warn()\n", ""),
    "warning on import": ("\nimport made.warns\n", ""),
    "failing import": (
        """
        import traceback
        try:
            import made.fails
        except ZeroDivisionError:
            traceback.print_exc()
    """,
        "",
    ),
    "path, modules and flags": (
        """
        import sys, made.up
        print(sys.path, sys.argv, sys.flags, made.up.work(2), "sitecustomize" in sys.modules)
        print(sorted(name for name in sys.modules if name.startswith(("made", "site", "json", "threading", "typing"))))
        print([path for path in sys.path_importer_cache if "hook" in path])
        """,
        "",
    ),
    "lines that a tracer sees": (
        """
        import os, sys
        standard = os.path.dirname(os.__file__)
        seen = []
        def trace(frame, event, _):
            name = frame.f_code.co_filename
            if not name.startswith(("<", standard)) and "_distutils_hack" not in name:  # a finder of setuptools
                seen.append((os.path.basename(name), event, frame.f_code.co_name, frame.f_lineno))
            return trace
        sys.settrace(trace)
        import made.up, torch.autograd
        made.up.outer(2, made.up.work)
        torch.autograd.backward()
        sys.settrace(None)
        print(*seen, sep="\\n")
        """,
        "",
    ),
    "depth of recursion": (
        """
        import sys
        from made.deep import climb, dive
        def own(n):
            return n and own(n - 1)
        def fits(function, n):
            try:
                function(n)
            except RecursionError:
                return False
            return True
        for function in own, dive, climb:
            print(next(n for n in range(970, 1000) if not fits(function, n)), sys.getrecursionlimit())
        """,
        "",
    ),
    "working folder in the path": ("import sys; print(sys.path)", "::/nowhere:"),
    "own sitecustomize": ("import builtins, sys; print(builtins.ran, sys.modules['sitecustomize'])", "{folder}/counts"),
    "failing sitecustomize": ("import sys; print('sitecustomize' in sys.modules)", "{folder}/raises"),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG if name in SLOW else ()) for name in SAME])
def test_same_as_without_us(program: Program, name: str) -> None:
    """Output, warnings and tracebacks of a program are the same with and without the hook."""
    text, path = SAME[name]
    program.calls += [calls.Call("__main__", "own", "Own")] * ("def own" in text)
    path = path.format(folder=program.folder)
    done, without = (program.run(text, hook=hook, PYTHONPATH=path) for hook in (True, False))

    assert (done.stdout, done.stderr) == (without.stdout, without.stderr)
    assert done.stdout + done.stderr


def test_catalogue(program: Program) -> None:
    """A catalogued function is named by its kind and shown under its public name, unless the user names it, too."""
    program.calls.append(calls.Call("torch.serialization", "save", "Checkpoint"))
    lines = program.marks("import torch.autograd, torch.serialization as s; torch.autograd.backward(); s.save()")
    line = lines[1]

    assert begun(lines) == ["Training", "Checkpoint"]
    assert (line["kind"], line["call"], line["step"]) == ("Training", "torch.autograd.backward", True)


def test_already_imported_module_is_marked(program: Program) -> None:
    """A module that Python imported before the hook is marked, too, and so are builtin functions."""
    program.calls = [calls.Call("posixpath", "join", ODD), calls.Call("time", "sleep", "Sleep")]
    names = begun(program.marks("import time, posixpath; posixpath.join('a', 'b'); time.sleep(0)"))

    assert {ODD, "Sleep"} <= set(names)


UNMARKABLE = {
    "alias": "is already marked as work",
    "absent": "does not exist",
    "Absent.run": "does not exist",
    "wrapped": "is a coroutine or generator function: a call returns before its code runs",
    "count": "is not a function",
    "count.real": "does not exist",
    "Model": "is not a function",
    "Model.inherited": "is inherited: name it as made.up:Base.inherited",
}


def test_unmarkable_functions_are_reported(program: Program) -> None:
    """A user's functions that cannot be marked stay unchanged, and warnings say why."""
    program.calls = [calls.Call("made.up", function, "Name") for function in ("work", *UNMARKABLE)]
    lines = program.marks("import made.up; list(made.up.wrapped())")
    begin = "--mark-call made.up"

    assert [line["warning"] for line in lines[1:]] == [
        f"{begin}:{name}: nothing is marked, {name} {reason}" for name, reason in UNMARKABLE.items()
    ]


def test_calls_know_the_operation_around_them(program: Program) -> None:
    """A call says which operation of nncftools is around it in its own task, also in a thread that the task started."""
    lines = program.marks(
        """
        import asyncio, nncftools, made.up
        async def task(name):
            with nncftools.operation(name):
                await asyncio.sleep(0.01)
                made.up.work()
                await asyncio.to_thread(made.up.work)
        async def main():
            await asyncio.gather(*(task(name) for name in "abc"))
        asyncio.run(main())
        """,
        PYTHONPATH=str(pathlib.Path(calls.__file__).parents[2]),
    )
    names = {line["op"]: line["name"] for line in lines if line.get("event") == "begin"}
    around = [names[line["in"]] for line in lines if line.get("name") == "Work"]

    assert sorted(around) == ["a", "a", "b", "b", "c", "c"]


HOSTILE = {
    "a folder as log": {VARIABLE: "/"},
    "a device as log": {VARIABLE: "/dev/full"},
    "a path that is too long": {VARIABLE: "/" + "x" * 5_000},
    "no text": {VARIABLE: "/\udcff"},
    "calls without names": {calls.CALLS: "\t\t\t\n\n\udcff\tf\tn\tk"},
    "every process as helper": {calls.HELPER: "-1:"},
    "a helper with too many digits": {calls.HELPER: "9" * 5_000},
}


@pytest.mark.parametrize("variables", HOSTILE.values(), ids=HOSTILE)
def test_variables_that_make_no_sense(program: Program, variables: dict[str, str]) -> None:
    """Whatever the variables hold, the program runs as it would have, and nothing else is written."""
    environment = {**calls.environment(program.log, program.calls), **variables}
    done = program.run("import made.up; print(made.up.work(3))", hook=False, **environment)

    assert (done.stdout, done.stderr) == ("3\n", "")


def test_log_that_is_gone(program: Program) -> None:
    """No log is created: without a log nothing is wrapped, and a program whose log is removed goes on."""
    text = """
        import os, made.up
        log = os.environ["NNCF_TOOLS_MARKS"]
        print(hasattr(made.up.work, "__wrapped__"), made.up.work(3), os.path.exists(log) and os.remove(log))
        made.up.work()
    """
    assert program.run(text).stdout == "True 3 None\n"
    assert not program.log.exists()
    assert program.run(text).stdout == "False 3 False\n"


def test_fork_starts_with_an_empty_stack(program: Program) -> None:
    """A forked child starts with an empty stack; it neither ends its parent's calls nor flushes their aggregates."""
    lines = program.marks("""
        import os, sys, made.up
        def forked():
            child = os.fork()
            if child:
                assert os.waitpid(child, 0)[1] == 0
            else:
                made.up.work()
        for _ in range(1002):
            made.up.nap(0)
        made.up.outer(1, forked)
    """)
    parent = lines[0]["pid"]
    child = [line for line in lines if line["pid"] != parent]

    assert [(line.get("event"), line.get("name")) for line in child] == [("begin", "Work"), ("end", None)]
    assert child[0]["tid"] == child[0]["pid"]
    assert [line["count"] for line in lines if "count" in line] == [2]


def test_functions_of_the_script_itself(program: Program) -> None:
    """They are marked as they are called, nested and with their errors; from Python 3.12 on no generator function."""
    names = ("prepare", "Job.run", "fails", "later", "soon", "missing")
    program.calls = [calls.Call("__main__", name, name) for name in names]
    lines = program.marks("""
        import asyncio, contextlib, sys
        class Job:
            def run(self, deeper):
                return deeper and self.run(deeper - 1)
        def prepare():
            return Job().run(1)
        def fails():
            raise KeyError
        def later():
            yield
        async def soon():
            await asyncio.sleep(0)
            return Job().run(0)
        async def main():
            await asyncio.gather(soon(), soon())
        prepare()
        with contextlib.suppress(KeyError):
            fails()
        list(later())
        asyncio.run(main())
    """)
    warnings = [line["warning"] for line in lines if "warning" in line]
    of = {line["op"]: line for line in lines if line.get("event") == "begin"}
    is_old = sys.version_info < (3, 12)

    assert begun(lines) == ["prepare", "Job.run", "fails", *["later"] * is_old, "soon", "soon", "Job.run", "Job.run"]
    assert [of[line["op"]]["name"] for line in lines if "error" in line] == ["fails"]
    assert [of[line["in"]]["name"] for line in of.values() if line["in"]] == ["soon", "soon"]
    reason = (
        "missing: nothing is marked, the script does not define it" if is_old else "later: nothing is marked, it is"
    )
    assert [text.startswith(f"--mark-call __main__:{reason}") for text in warnings] == [True]


def test_calls_beyond_a_thousand_are_aggregated(program: Program) -> None:
    """Of many calls in one operation, 1,000 are logged; the others are one line before the next call or the end."""
    lines = program.marks("""
        import made.up
        def calls():
            for _ in range(1500):
                made.up.work()
            made.up.nap(0)
            for _ in range(2):
                made.up.work()
        made.up.outer(1, calls)
    """)
    first, *others = lines[2002:]

    assert (first["name"], first["call"], first["source"], first["tid"]) == (
        *("Work", "made.up.work", "auto"),
        lines[1]["tid"],
    )
    assert 0 < first["longest_ns"] < first["total_ns"] <= first["end_ns"] - first["t_ns"]
    assert [line.get("count") or line["event"] for line in (first, *others)] == [500, "begin", "end", 2, "end"]


MODEL = """<?xml version="1.0"?>
<net name="m" version="11">
	<layers><layer id="0"><rt_info><nncf>of a layer</nncf></rt_info></layer></layers>
	<edges>
	</edges>
	<rt_info>
		<info name="x" />
		<nncf>
			<weight_compression><mode value="int4_sym" /></weight_compression>
		</nncf>
		<optimum><v value="1" /></optimum>
	</rt_info>
</net>
"""


def test_saved_models(program: Program) -> None:
    """The lines of a call that saved an OpenVINO model hold its arguments, its path, and the rt_info at its end."""
    program.write("m.txt", MODEL)
    lines = program.marks("""
        import openvino, pathlib
        m = pathlib.Path("m.txt").read_text()
        openvino.save_model(m, pathlib.Path("a.xml"))
        openvino.save_model(m, output_model="b.xml")
        openvino.save_model(m, b"c.xml")
        openvino.save_model("<net><edges></edges><rt_info></rt_info></net>", "d.xml")
        openvino.save_model("<nncf>", "e.xml")
        openvino.save_model(m + " " * 65536, "far.xml")
        openvino.save_model("", "none.xml")
        try:
            openvino.save_model(1, __file__)
        except TypeError:
            pass
    """)[1:]
    begins, ends = lines[::2], lines[1::2]
    texts = [line.get("rt_info") for line in ends]

    assert [line["arguments"] for line in begins[:2]] == [["a.xml"], ["b.xml"]]
    assert [line.get("saved") for line in ends] == [
        *(str(program.folder / f"{name}.xml") for name in ("a", "b", "c", "d", "e", "far")),
        *(None, None),
    ]
    assert texts[1:] == [texts[0], texts[0], *[None] * 5]
    assert texts[0].startswith("<nncf>\n\t\t\t<weight_compression>")
    assert texts[0].endswith('</nncf><optimum><v value="1" /></optimum>')


CTYPES = """
import os
c_ulong = int
class CDLL:
    def __init__(self, name):
        pass
    def prctl(self, *arguments):
        with open({log!r}, "a") as log:
            print(os.getpid() == {parent}, *arguments, file=log)
        if "END_AT_CALL" in os.environ:
            end(arguments[1])
        return 0

def end(pid):
    if pid:
        os.kill(pid, 9)
    while pid and os.path.exists(f"/proc/{{pid}}"):
        pass
"""
HELPER = os.getpid()
"""Any process that runs."""
ALLOWED = f"{0x59616D61} {HELPER} 0 0 0"


def allowed(folder: pathlib.Path, script: str, helper: int | None) -> list[str]:
    """Run a script with the hook; return each call of prctl(2): whether it was in the first process, and arguments."""
    log = folder / "prctl"
    log.touch()
    text = CTYPES.format(log=str(log), parent='int(os.environ.setdefault("FIRST", str(os.getpid())))')
    (folder / "ctypes.py").write_text(textwrap.dedent(text), encoding="utf-8")
    marks = folder / "marks.jsonl"
    marks.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        patch.delenv("FIRST", raising=False)
        environment = {**calls.os.environ, **calls.environment(marks, [], helper)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=HANGING_S)
    return log.read_text(encoding="utf-8").splitlines()


def test_only_the_helper(tmp_path: pathlib.Path) -> None:
    """A Python that loads the hook, and each forked child, allows the helper to read its memory, and nobody else."""
    script = "import os; pid = os.fork(); pid or os._exit(0); os.waitpid(pid, 0)"

    assert allowed(tmp_path, script, HELPER) == [f"True {ALLOWED}", f"False {ALLOWED}"]


@pytest.mark.parametrize("helper", [None, -1])
def test_nobody(tmp_path: pathlib.Path, helper: int | None) -> None:
    """Without a helper nothing is allowed; -1 would allow it to every process."""
    assert allowed(tmp_path, "pass", helper) == []


def test_another_process_with_its_pid(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the helper's end, another process with its PID is not allowed."""
    monkeypatch.setattr(calls, "read_start", lambda _: "77")

    assert allowed(tmp_path, "pass", HELPER) == []


@pytest.fixture
def ending() -> Iterator[int]:
    """Yield the PID of a process that is waited for as soon as it ends."""
    with subprocess.Popen(["sleep", "60"]) as process:
        waiting = threading.Thread(target=process.wait)
        waiting.start()
        yield process.pid
        process.kill()
        waiting.join()


def test_fork_after_the_end(tmp_path: pathlib.Path, ending: int) -> None:
    """A child that is forked after the helper's end allows nobody: another process may have its PID."""
    script = f"import ctypes, os; ctypes.end({ending}); pid = os.fork(); pid or os._exit(0); os.waitpid(pid, 0)"

    assert allowed(tmp_path, script, ending) == [f"True {0x59616D61} {ending} 0 0 0"]


def test_end_at_the_call(tmp_path: pathlib.Path, ending: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the helper ends while it is allowed, the permission is withdrawn: it may be another process's."""
    monkeypatch.setenv("END_AT_CALL", "1")

    assert allowed(tmp_path, "pass", ending) == [f"True {0x59616D61} {pid} 0 0 0" for pid in (ending, 0)]
