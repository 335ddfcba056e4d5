"""The text of lines of code: from which files it is read, and as what."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.made_up import process
from tests.session.made_sources import CODE, linked, taken, written

LARGEST = 8 << 20


class TestText:
    @pytest.mark.parametrize(
        "content, text",
        [
            ("\n\t  make( 1,\t2 )  \n", "make( 1, 2 )"),
            (b"\xef\xbb\xbf# a\r\nprint('\xc3\xa9')\r\n", "print('é')"),
            (b"# coding: latin-1\nprint('\xe9')\n", "print('é')"),
            (b"# coding: utf-8\nprint('\xe9')\n", "print('\ufffd')"),
            (b"# a\n# b\n\n", "# b"),
            (b"# a\n# b\n\xe9\n", "# b"),
            (b"a\rb\rc", "b"),
            ("a\nb\x0cc\x1cd\x85e\u2028f\x00\n", "b c d e f\x00"),
            ("a\x0c\u2028\nb\x1b[31m\n", "b\x1b[31m"),
            ("a\nb = '" + "x" * 200 + "'\n", "b = '" + "x" * 101 + "…" + "x" * 52 + "'"),
            (b"# coding: unicode_escape\n'\\ud800'\n", "'?'"),
            (b"# coding: rot13\nb\n", ""),
            (b"# coding: nothing\nb\n", ""),
        ],
    )
    def test_one_line(self, tmp_path: Path, content: str | bytes, text: str) -> None:
        """A text is one short line without an encoding's traps, by the encoding that the file names."""
        found = taken(written(tmp_path / "mod.py", content)).get(2, "")

        assert found == text
        assert len(found) <= 160

    def test_secrets(self, tmp_path: Path) -> None:
        """Secrets are hidden by the rules of the recording, before a long line is shortened."""
        path = written(tmp_path / "mod.py", f"token = 'abc'\nmine = 'token'; x('{'y' * 120}', token='abc')\n")

        assert taken(path, 1, redact=("mine",))[1] == "token = ***"
        assert taken(path, 2, redact=("mine",))[2].startswith("*** = 'token'; x('yy")
        assert taken(path, 2)[2].endswith("yy', token=***)")
        assert taken(path, 1, redact=None)[1] == "token = 'abc'"

    def test_many(self, tmp_path: Path) -> None:
        """At most 2,000 lines and the next one are read."""
        path = written(tmp_path / "mod.py", "x\n" * 3_000)

        assert len(taken(path, *range(1, 3_001))) == 2_001


class TestFile:
    def test_refused(self, tmp_path: Path) -> None:
        """Only a regular file of 8 MiB is read, by its whole path."""
        large, empty, fifo = tmp_path / "large.py", written(tmp_path / "empty.py", ""), tmp_path / "fifo.py"
        os.truncate(written(large), LARGEST + 1)
        os.mkfifo(fifo)
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            archive.writestr("mod.py", CODE)
        circle = linked(tmp_path / "circle.py", tmp_path / "circle.py")
        relative = os.path.relpath(written(tmp_path / "mod.py"), "/")
        for path in (large, empty, fifo, circle, relative, tmp_path, tmp_path / "all.zip" / "mod.py"):
            assert taken(path) == {}, path
        for name in ("/tmp/ipykernel_1/2.py", "<string>", "/dev/zero", "/a\0b", ""):
            assert taken(name) == {}, name

    def test_links(self, tmp_path: Path) -> None:
        """Our links are followed, relative ones too, and those of folders."""
        written(tmp_path / "code" / "mod.py")
        linked(tmp_path / "folder", Path("code"))
        link = linked(tmp_path / "link.py", tmp_path / "folder" / ".." / "code" / "mod.py")

        assert taken(link) == {2: "second = make(2)"}


class TestChange:
    def test_changed(self, tmp_path: Path) -> None:
        """A file that changed after the process began may have another text, whatever time it has."""
        path = written(tmp_path / "mod.py")
        assert taken(path, after_s=-10) == {}

        os.utime(path, (1, 1))
        assert taken(path, after_s=-10) == {}

        later = time.time() + 60
        os.utime(path, (later, later))
        assert taken(path, after_s=10) == {}

    @pytest.mark.parametrize(
        "processes, is_read",
        [
            ([{"start_s": 20.0, "parent": 0}], True),
            ([{"start_s": 20.0, "parent": 0}, {"start_s": 0.0}], False),  # both ran it: the earliest counts
            ([{"start_s": 20.0, "parent": 0, "forked_copy": True}], False),  # it runs code that its parent has read
            ([{"start_s": 20.0, "parent": None}], False),  # an orphan may be a copy
            ([{"start_s": None, "parent": 0}], False),
        ],
    )
    def test_of_several_processes(
        self,
        tmp_path: Path,
        processes: list[dict[str, Any]],
        is_read: bool,  # noqa: FBT001 — of the table
    ) -> None:
        """A file must be older than all processes that ran its code, and than those that they are copies of."""
        listed = [process(number, **facts) for number, facts in enumerate(processes, start=1)]

        found = taken(written(tmp_path / "mod.py"), after_s=-10, processes=listed, others=[process(0)])

        assert bool(found) is is_read
