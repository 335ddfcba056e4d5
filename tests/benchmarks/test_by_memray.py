"""What a recording says of functions, beside what memray logs."""

from __future__ import annotations

from pathlib import Path

from benchmarks.owner_programs.by_memray import Size, compare
from benchmarks.owner_programs.generator import MIB
from nncftools.analysis.build_up import NOT_SEEN, SEEN, BuildUp, Part
from nncftools.session.model import Frame

_TEXT = """\
class Model:
    def forward(self):
        self.layer()

    def layer(self):
        def inner():
            self.layer()
        inner()


Model().forward()
"""


def test_functions(tmp_path: Path) -> None:
    """Functions are found by their lines, count once in a recursion, and without mapped files; imports are one row."""
    file = str(tmp_path / "mod.py")
    Path(file).write_text(_TEXT, "utf-8")
    module, forward = Frame("<module>", file, 11), Frame("Model.forward", file, 3)
    layer, inner = Frame("Model.layer", file, 8), Frame("Model.layer.<locals>.inner", file, 7)
    imports = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1)
    parts = [
        Part(100 * MIB, SEEN, 1, (module, forward, layer, inner, layer), 2, file_size=60 * MIB),
        Part(50 * MIB, SEEN, 1, (module, imports, module), 1),
        Part(8 * MIB, SEEN, 1, (module, forward), 2),
        Part(30 * MIB, NOT_SEEN, 1),
    ]
    held = [
        (70 * MIB, [module, Frame("forward", file, 3), Frame("layer", file, 8)], 3),
        (45 * MIB, [module, imports], 2),
    ]

    sizes = list(compare(BuildUp(1.0, 188 * MIB, parts), held))

    name = f"{tmp_path.name}/mod.py"
    assert sizes == [
        Size("all imports", 50 * MIB, 0, 45 * MIB),
        Size(f"{name} Model.forward", 48 * MIB, 48 * MIB, 70 * MIB),
        Size(f"{name} Model.layer", 40 * MIB, 0, 70 * MIB),
        Size(f"{name} Model.layer.inner", 40 * MIB, 0, 0),
    ]
    assert [size.is_close for size in sizes] == [True, False, False, False]
