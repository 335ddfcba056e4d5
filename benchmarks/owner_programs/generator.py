"""Write random Python programs that log what they allocate; a number always means the same program."""

from __future__ import annotations

import math
import os
import pathlib
import random
import shutil
from collections.abc import Callable
from typing import NamedTuple

MIB = 1 << 20
_SMALLEST, _LARGEST, _MOST = 2, 200, 600
"""In MiB: of an allocation, and of all that a program has at a time."""
_TRUTH = pathlib.Path(__file__).with_name("truth.py")
_ARRAYS = ["np.ones({0})", "np.full({0}, 1.5)", "np.arange({0}, dtype=float)", "np.tile(np.ones(1024), {0} // 1024)"]
_MODULES = [
    "functools",
    "hashlib",
    "json",
    "mmap",
    "multiprocessing",
    "os",
    "subprocess",
    "sys",
    "threading",
    "time",
    "zlib",
]
_IMPORTS = "".join(f"import {name}\n" for name in _MODULES)
_NUMPY = "\ntruth.takes()\nimport numpy as np\ntruth.lives(np, truth.MEASURED)\n"
_SHARED = ["steps.py", "tools.py"]
"""The modules of functions."""
FEATURES = (
    "inline", "function", "class", "generator", "decorator", "recursion", "partial", "thread", "child", "free",
    "rebind", "import", "mapped", "native", "numpy", "bytearray",
)  # fmt: skip


class Program(NamedTuple):
    """The files of a program by name, the sizes of its data files, and what occurs in it."""

    files: dict[str, str]
    data: dict[str, int]
    features: set[str]

    def write(self, folder: pathlib.Path) -> None:
        """Write the files into a folder."""
        shutil.copy(_TRUTH, folder)
        for name, text in self.files.items():
            (folder / name).write_text(text, "utf-8")
        for name, size in self.data.items():
            (folder / name).touch()
            os.truncate(folder / name, size)


def generate(seed: int, *, is_slow: bool = False) -> Program:
    """Return the program with this number; a slow one has one thread and takes memory once a second."""
    writer = _SlowWriter(seed) if is_slow else _Writer(seed)
    return writer.program()


def _block(text: str, depth: int) -> str:
    """Return lines as far to the right as a block needs."""
    return "".join(f"{'    ' * depth}{line}\n" if line else "\n" for line in text.splitlines())


def _logged(name: str, value: str, size: str = "") -> str:
    """Return lines that put a value into a variable and log it."""
    return f"truth.takes()\n{name} = {value}\ntruth.lives({', '.join(filter(None, [name, size]))})\n"


class _Writer:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 — no secret
        self.has_numpy = self.chance(0.85)
        self.head = f"{_IMPORTS}\nimport truth\n{_NUMPY if self.has_numpy else ''}\n"
        self.files = dict.fromkeys(_SHARED, "")
        self.data: dict[str, int] = {}
        self.features: set[str] = set()
        self.flow: list[str] = []
        self.held: dict[str, float] = {}
        """By variable of the main program: the MiB that it holds."""
        self.number = 0

    def steps(self) -> list[Callable[[], None]]:
        """Return the steps of the main program."""
        every = [
            self.inline, self.function, self.class_, self.generator, self.decorator, self.recursion, self.partial,
            self.thread, self.child, self.free, self.rebind, self.import_, self.mapped, self.native,
        ]  # fmt: skip
        chosen = self.random.sample(every, self.random.randint(5, 8))
        several = [self.function, self.rebind, self.class_, self.thread]
        return chosen + self.random.choices(several, k=self.random.randint(0, 2))

    def program(self) -> Program:
        """Return the program."""
        for step in self.steps():
            self.number += 1
            self.flow.append(f"# {step.__name__.strip('_')}")
            self.features.add(step.__name__.strip("_"))
            step()
            self.flow.append(self.pause())
        self.flow.append("time.sleep(0.1)")
        flow = "\n".join(self.flow)
        start = 'if __name__ == "__main__":\n'
        if self.chance(0.5):
            body = f"def main():\n{_block(flow, 1)}\n\n{start}    main()\n"
        else:
            body = f"{start}{_block(flow, 1)}"
        self.files["main.py"] = f"import steps\nimport tools\n\n\n{body}"
        return Program({name: self.head + text for name, text in self.files.items()}, self.data, self.features)

    def chance(self, probability: float) -> bool:
        """Return True as often as this."""
        return self.random.random() < probability

    def pause(self, most_s: float = 0.25) -> str:
        """Return a line that sleeps, or now and then computes for about as long."""
        seconds = self.random.choice([0.02, most_s, self.random.uniform(0.02, most_s)])
        if self.chance(0.15):
            return f"sum(range({int(seconds * 20_000_000)}))"
        return f"time.sleep({seconds:.2f})"

    def size(self, factor: float = 1.0) -> float:
        """Return how many MiB a step takes; of ``factor`` times as much there is room."""
        while (room := (_MOST - sum(self.held.values())) / factor) < 4 * _SMALLEST and self.held:
            self.free()
        high = min(_LARGEST, room)
        return math.exp(self.random.uniform(math.log(_SMALLEST), math.log(high)))

    def define(self, text: str) -> str:
        """Add functions to one of the modules; return the name of the module."""
        module = self.random.choice(_SHARED)
        self.files[module] += f"\n\n{text}"
        return module.removesuffix(".py")

    def hold(self, value: str, size: float) -> str:
        """Let the main program keep a value in a variable."""
        name = f"v{self.number}"
        self.flow.append(f"{name} = {value}")
        self.held[name] = size
        return name

    def expression(self, size: float, *, is_array: bool | None = None) -> str:
        """Return an expression that takes as many MiB."""
        if is_array is None:
            is_array = self.has_numpy and self.chance(0.65)
        self.features.add("numpy" if is_array else "bytearray")
        if is_array:
            return self.random.choice(_ARRAYS).format(max(int(size * MIB) // 8192, 1) * 1024)
        return f"truth.Buffer({int(size * MIB)})"

    def taking(self, name: str, size: float, *, is_array: bool | None = None) -> str:
        """Return lines that take as many MiB in one block."""
        if self.has_numpy and is_array is not False and self.chance(0.15):
            self.features.add("numpy")
            count = int(size * MIB) // 8
            return f"{name} = np.zeros({count})\ntruth.takes()\n{name}[:] = 1.5\ntruth.lives({name})\n"
        return _logged(name, self.expression(size, is_array=is_array))

    def taking_parts(self, name: str, size: float, *, is_array: bool | None = None) -> str:
        """Return lines that take as many MiB in a list of parts."""
        count = self.random.randint(3, 12)
        part = self.taking("part", size / count, is_array=is_array) + f"{name}.append(part)\n" + self.pause(0.05)
        return f"{name} = []\nfor _ in range({count}):\n{_block(part, 1)}"

    def is_in_parts(self) -> bool:
        """Choose between a list of parts and one block."""
        return self.chance(0.3)

    def any_taking(self, name: str, size: float) -> str:
        """Return lines that take as many MiB."""
        return self.taking_parts(name, size) if self.is_in_parts() else self.taking(name, size)

    def inline(self) -> None:
        """Take memory in the main program."""
        size, name = self.size(), f"v{self.number}"
        self.flow.append(self.any_taking(name, size))
        self.held[name] = size

    def function(self) -> None:
        """Call a function that takes memory, perhaps through another one."""
        size, n = self.size(), self.number
        body = self.any_taking("block", size) + self.random.choice(["", f"{self.pause()}\n"]) + "return block"
        text = f"def load_{n}():\n{_block(body, 1)}"
        called = f"load_{n}"
        if self.chance(0.5):
            called = f"prepare_{n}"
            text += f"\n\ndef prepare_{n}():\n{_block(self.pause(0.1), 1)}    return load_{n}()\n"
        self.hold(f"{self.define(text)}.{called}()", size)

    def class_(self) -> None:
        """Fill an object, and perhaps replace what it has."""
        size, n = self.size(3), self.number
        is_array = self.has_numpy and self.chance(0.7)
        fill = self.taking("self.x", size, is_array=is_array)
        scale = _logged("self.x", "(self.x - 0.5) / 2.0" if is_array else "truth.Buffer(self.x)")
        text = f"class Model{n}:\n    def fill(self):\n{_block(fill, 2)}\n    def scale(self):\n{_block(scale, 2)}"
        name = self.hold(f"{self.define(text)}.Model{n}()", size)
        self.flow += [f"{name}.fill()", self.pause()]
        for _ in range(self.random.choice([0, 1, 1, 3])):
            self.flow += [f"{name}.scale()", self.pause()]

    def generator(self) -> None:
        """Take what a generator yields: keep it, or only the last part."""
        size, n = self.size(), self.number
        count = self.random.randint(3, 10)
        part = self.taking("batch", size / count) + self.pause(0.04) + "\nyield batch\n"
        module = self.define(f"def batches_{n}():\n    for _ in range({count}):\n{_block(part, 2)}")
        keep = self.random.choice(["v{0}.append(batch)", "v{0}[:] = [batch]"]).format(n)
        self.hold("[]", size)
        self.flow.append(f"for batch in {module}.batches_{n}():\n    {keep}\n    {self.pause(0.08)}\ndel batch")

    def decorator(self) -> None:
        """Call a decorated function; the decorator may take memory, too."""
        size, n = self.size(2), self.number
        wrapper, total = f"{self.pause(0.1)}\nresult = function()\n", size
        if self.chance(0.4):
            total *= 2
            wrapper += self.taking("extra", size) + "result = (result, extra)\n"
        text = (
            f"def logged_{n}(function):\n    @functools.wraps(function)\n    def wrapper():\n"
            f"{_block(wrapper, 2)}        return result\n    return wrapper\n\n\n"
            f"@logged_{n}\ndef read_{n}():\n{_block(self.taking('block', size), 1)}    return block\n"
        )
        self.hold(f"{self.define(text)}.read_{n}()", total)

    def recursion(self) -> None:
        """Take memory at each depth of a recursion."""
        size, n = self.size(), self.number
        depth = self.random.randint(2, 8)
        body = self.taking("part", size / depth) + f"parts.append(part)\n{self.pause(0.05)}\n"
        body += f"if depth > 1:\n    descend_{n}(depth - 1, parts)\n"
        module = self.define(f"def descend_{n}(depth, parts):\n{_block(body, 1)}")
        name = self.hold("[]", size)
        self.flow.append(f"{module}.descend_{n}({depth}, {name})")

    def partial(self) -> None:
        """Take memory in a partial, which has no frame, or in a lambda."""
        size, n = self.size(), self.number
        count = int(size * MIB)
        if self.chance(0.5):
            called = f"np.full, {count // 8}, 1.5" if self.has_numpy else f"truth.Buffer, {count}"
            module = self.define(f"make_{n} = functools.partial({called})\n")
            self.features.add("numpy" if self.has_numpy else "bytearray")
            self.flow.append("truth.takes()")
            self.flow.append(f"truth.lives({self.hold(f'{module}.make_{n}()', size)})")
        else:
            parts = self.random.randint(1, 4)
            called = self.expression(size / parts)
            module = self.define(f"grow_{n} = lambda _: truth.lives(truth.takes(0) or {called})\n")
            self.hold(f"list(map({module}.grow_{n}, range({parts})))", size)

    def thread(self) -> None:
        """Take memory in threads while the main thread waits, or takes some itself."""
        size, n = self.size(3), self.number
        count, name = self.random.randint(1, 3), f"v{n}"
        self.hold("[]", size)
        self.flow.append("workers = []")
        for part in range(count):
            taking = self.any_taking("block", size / count)
            body = f"{self.pause(0.1)}\n{taking}{self.pause(0.2)}\nkept.append(block)\n"
            module = self.define(f"def work_{n}_{part}(kept):\n{_block(body, 1)}")
            self.flow.append(f"workers.append(threading.Thread(target={module}.work_{n}_{part}, args=({name},)))")
        self.flow.append("for worker in workers:\n    worker.start()")
        if self.chance(0.4):
            self.flow.append(self.any_taking(f"{name}b", size))
            self.held[f"{name}b"] = size
        self.flow.append("for worker in workers:\n    worker.join()")

    def child(self) -> None:
        """Take memory in another process."""
        size, n = self.size(2), self.number
        body = self.any_taking("block", size) + f"time.sleep({self.random.uniform(0.2, 0.5):.2f})\n"
        how = self.random.choice(["fork", "spawn", "script"])
        if how == "script":
            self.files[f"child_{n}.py"] = f"\ndef work_{n}():\n{_block(body, 1)}\n\nwork_{n}()\n"
            start = f'child = subprocess.Popen([sys.executable, os.path.join(truth.HERE, "child_{n}.py")])'
            wait = "child.wait()"
        else:
            module = self.define(f"def work_{n}():\n{_block(body, 1)}")
            start = f'child = multiprocessing.get_context("{how}").Process(target={module}.work_{n})\nchild.start()'
            wait = "child.join()"
        self.flow.append(start)
        if self.chance(0.4):
            self.flow.append(self.taking(f"v{n}", size))
            self.held[f"v{n}"] = size
        self.flow.append(wait)

    def free(self) -> None:
        """Free one of the variables."""
        if not self.held:
            self.inline()
        self.features.add("free")
        name = self.random.choice(list(self.held))
        del self.held[name]
        self.flow += [self.random.choice([f"del {name}", f"{name} = None"]), self.pause(0.1)]

    def rebind(self) -> None:
        """Replace a value by what a function makes of it, as in ``w = convert(w)``."""
        size, n = self.size(3), self.number
        is_array = self.has_numpy and self.chance(0.7)
        news = ["{0} * 2.0", "{0}.astype(np.float32)", "{0}.copy()"] if is_array else ["truth.Buffer({0})"]
        is_list = self.is_in_parts()
        take = self.taking_parts if is_list else self.taking
        load = f"def load_{n}():\n{_block(take('block', size, is_array=is_array), 1)}    return block\n"
        new = self.random.choice(news)
        if is_list:
            each = _logged("new", new.format("part")) + "result.append(new)\n"
            body = f"result = []\nfor part in parts:\n{_block(each, 1)}return result\n"
        else:
            body = _logged("new", new.format("parts")) + f"{self.pause(0.1)}\nreturn new\n"
        module = self.define(f"{load}\n\ndef convert_{n}(parts):\n{_block(body, 1)}")
        name = self.hold(f"{module}.load_{n}()", size)
        for _ in range(self.random.choice([1, 1, 2, 4])):
            self.flow += [self.pause(), f"{name} = {module}.convert_{n}({name})"]

    def import_(self) -> None:
        """Import a module that takes memory while it is imported."""
        size, n = self.size(), self.number
        self.files[f"tables_{n}.py"] = self.any_taking("TABLE", size)
        self.flow.append(f"import tables_{n}")
        self.held[f"tables_{n}.TABLE"] = size

    def mapped(self) -> None:
        """Map a file and touch its pages."""
        size, n = self.size(), self.number
        self.data[f"data_{n}.bin"] = int(size * MIB)
        body = (
            f'with open(os.path.join(truth.HERE, "data_{n}.bin"), "rb") as file:\n'
            "    view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n"
            f"truth.takes()\nview[::4096]\ntruth.lives(view)\nreturn view\n"
        )
        module = self.define(f"def open_{n}():\n{_block(body, 1)}")
        self.hold(f"{module}.open_{n}()", size)

    def native(self) -> None:
        """Call a long native function, which may take memory."""
        n = self.number
        size = min(self.size(3), 25)
        count = int(size * MIB)
        side = math.isqrt(count // 8)
        items, words = count // 40, count // 72
        texts = {
            "dot": _logged("left", f"np.ones(({side}, {side}))") + _logged("result", "np.dot(left, left)"),
            "hash": self.taking("result", size) + "for _ in range(3):\n    hashlib.sha256(result).hexdigest()\n",
            "zlib": _logged("raw", f"truth.Items([os.urandom({count})])", f"{count}")
            + _logged("result", "truth.Items([zlib.compress(raw[0], 1)])", "len(result[0])"),
            "sort": _logged("items", f"truth.Items(range({items}, 0, -1))", f"{40 * items}")
            + _logged("order", "truth.Items(sorted(items))", f"{8 * items}")
            + "result = (items, order)\n",
            "json": _logged("words", f"truth.Items(map(str, range({words}, {2 * words})))", f"{72 * words}")
            + _logged("result", "truth.Items([json.dumps(words)])", "len(result[0])"),
        }
        if not self.has_numpy:
            del texts["dot"]
        text = self.random.choice(list(texts.values()))
        module = self.define(f"def compute_{n}():\n{_block(text, 1)}    return result\n")
        self.hold(f"{module}.compute_{n}()", 2 * size)


class _SlowWriter(_Writer):
    """Writes programs of one thread, which rests or computes for about a second after each block that it takes."""

    def steps(self) -> list[Callable[[], None]]:
        every = [self.inline, self.function, self.class_, self.free, self.rebind]
        return self.random.choices(every, k=self.random.randint(4, 7))

    def is_in_parts(self) -> bool:
        return False

    def pause(self, most_s: float = 1.0) -> str:  # noqa: ARG002 — always about a second
        return "sum(range(80_000_000))" if self.chance(0.3) else f"time.sleep({self.random.uniform(0.8, 1.2):.2f})"

    def free(self) -> None:
        if not self.held:
            self.inline()
            self.flow.append(self.pause())
        super().free()
