from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from nncftools.analysis.session import Session
from nncftools.errors import SessionFileError
from nncftools.journal.reading import lock
from nncftools.session.model import Mark
from tests.made_up import full_disk, journal, process, rows, session


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """Return the document of a saved session, to be changed and written by ``write``."""
    path = session(processes=[process()], marks=[Mark(name="export", start_s=0.1)]).save(tmp_path / "made.json")
    made: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    return made


def write(document: object, folder: Path) -> Path:
    """Write a document as ``run.json``."""
    path = folder / "run.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def plain(of: Session) -> tuple[dict[str, object], dict[str, list[float]]]:
    """Return fields and columns, to be compared."""
    fields = {name: getattr(of, name) for name in of.__struct_fields__ if name != "samples"}
    return fields, {name: list(column) for name, column in of.samples.items()}


def failure(path: Path) -> str:
    """Return the message of the error that loading the session and all its columns raises."""
    with pytest.raises(SessionFileError) as caught:
        dict(Session.load(path).samples)
    return str(caught.value)


class TestSave:
    @pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
    def test_load_gives_what_was_saved(self, tmp_path: Path, name: str) -> None:
        """A session comes back as it was, gzipped or not."""
        of = session({"rss": [1, 2], "cpu_user": [0.1, 0.30000000000000004]}, marks=[Mark(name="é\n", start_s=0.1)])
        path = of.save(tmp_path / name)

        assert plain(Session.load(path)) == plain(of)
        assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")

    def test_unknown_keys_are_kept(self, tmp_path: Path, document: dict[str, Any]) -> None:
        """What a later version wrote survives being saved by this one, at every depth and in order."""
        document["later"] = {"a": [1, 2.5, None]}
        document["host"]["later"] = 1
        document["processes"][0]["later"] = "x"
        document["samples"]["later"] = [0.5, None, 1.5]
        path = write(document, tmp_path)

        again = Session.load(path).save(tmp_path / "again.json")

        assert json.loads(again.read_text(encoding="utf-8")) == document

    def test_failing_save_leaves_the_old_file(self, tmp_path: Path) -> None:
        """On a full disk the old file stays, and no part of the new one does."""
        path = tmp_path / "run.json"
        path.write_text("old", encoding="utf-8")
        with full_disk(), pytest.raises(OSError, match="File too large"):
            session().save(path)

        assert {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()} == {"run.json": "old"}


WRONG = """
{"duration_s": "long"} | Expected `float`, got `str` - at `$.duration_s`
{"start": {"utc": 5}} | null`, got `int` - at `$.start.utc`
{"host": {"memory": "much"}} | null`, got `str` - at `$.host.memory`
{"peaks": {"rss": {"sampled": 1}}} | Object missing required field `at_s` - at `$.peaks[...]`
{"processes": [{"id": 0}, {"id": "1"}]} | Expected `int`, got `str` - at `$.processes[1].id`
{"command": ["a", 5]} | Expected `str`, got `int` - at `$.command[1]`
{"samples": [1]} | Expected `object`, got `array` - at `$.samples`
{"samples": {"rss": []}} | at `$.samples`: the column 'time_s' is missing
{"processes": [{"id": 0, "series": {"time_s": [0, 1], "rss": [1]}}]} | at `$.processes[0].series`: columns of the
{"files_read": [{"path": "a", "size": -5}]} | Expected `int` >= 0 - at `$.files_read[0].size`
{"processes": [{"id": 1000000000000000000000000000000}]} | <= 9223372036854775807 - at `$.processes[0].id`
{"duration_s": -1} | Expected `float` >= 0.0 - at `$.duration_s`
{"start": {"utc": "2026-11-21T07:00:00"}} | a time with its zone expected
{"ranks": [{"name": "a", "start_s": 0, "duration_s": 1, "time_s": [1, 0], "rss": [1, 1]}]} | time goes back
"""


class TestLoadRefuses:
    def test_missing_file(self, tmp_path: Path) -> None:
        """A file that is not there is named."""
        path = tmp_path / "no.json"

        assert failure(path) == f"{path}: cannot be read: No such file or directory"

    @pytest.mark.parametrize("path", ["/", "/dev/zero"])
    def test_no_file(self, path: str) -> None:
        """A folder is no session, and a device is not read without end."""
        assert failure(Path(path)).startswith(f"{path}: cannot be read: a file with a session")

    @pytest.mark.parametrize(
        "content, message",
        [
            pytest.param(b"", "the file is empty; a session of `nncf-tools monitor` was expected", id="empty"),
            pytest.param(b" \n\t\n", "the file is empty; a session of `nncf-tools monitor` was expected", id="blank"),
            pytest.param(b'{"format": "nncf-tools-ses', "not a session: Input data was truncated", id="truncated"),
            pytest.param(b"\x00\xff\x89PNG\r\n", "not a session: ", id="binary"),
            pytest.param(b'{"\xff": 1}', "not a session: ", id="key that is not UTF-8"),
            pytest.param(b"[1, 2]", "not a session: Expected `object`, got `array`", id="list"),
            pytest.param(b"[" * 100_000, "not a session: ", id="deep"),
            pytest.param(b'{"a": 1}', 'not a session of nncf-tools: `"format": "nncf-tools-session"`', id="foreign"),
            pytest.param(b'{"format": ["nncf-tools-session"]}', "not a session of nncf-tools: ", id="odd format"),
            pytest.param(gzip.compress(b"some text" * 99)[:-9], "the gzip archive is damaged or cut", id="cut gz"),
            pytest.param(b"\x1f\x8bnonsense", "the gzip archive is damaged or cut off: ", id="damaged gz"),
            pytest.param(gzip.compress(b""), "the file is empty", id="empty gz"),
        ],
    )
    def test_file_that_is_no_session(self, tmp_path: Path, content: bytes, message: str) -> None:
        """Whatever else a file holds is one line that names the file and what is wrong."""
        path = tmp_path / "run.json"
        path.write_bytes(content)
        found = failure(path)

        assert found.startswith(f"{path}: {message}")
        assert len(found.splitlines()) == 1

    def test_newer_version(self, tmp_path: Path, document: dict[str, Any]) -> None:
        """A version from the future says what to do."""
        path = write({**document, "version": 2}, tmp_path)

        assert failure(path) == (f"{path}: session format version 2, this nncf-tools reads up to 1: upgrade nncf-tools")

    @pytest.mark.parametrize("key", ["start", "duration_s", "host", "sampler", "samples"])
    def test_missing_key(self, tmp_path: Path, document: dict[str, Any], key: str) -> None:
        """A key that makes a session one is missed by name."""
        del document[key]
        path = write(document, tmp_path)

        assert failure(path) == f"{path}: at `$`: the key {key!r} is missing"

    @pytest.mark.parametrize("wrong, message", rows(WRONG))
    def test_wrong_value_names_its_place(
        self, tmp_path: Path, document: dict[str, Any], wrong: str, message: str
    ) -> None:
        """A value that cannot be right is one line with file, place and what was expected."""
        path = write({**document, **json.loads(wrong)}, tmp_path)
        found = failure(path)

        assert found.startswith(f"{path}: ")
        assert message in found


class TestJournal:
    def test_without_an_end(self, tmp_path: Path) -> None:
        """A journal that nobody holds was left by a recorder that was killed; a locked one is still being written."""
        path = tmp_path / "run.journal.jsonl"
        path.write_bytes(journal([0, 5]))

        assert Session.load(path).warnings == [
            "unfinished: the recorder was killed, or the machine stopped; these are the figures up to then"
        ]
        with path.open("ab") as held:
            lock(held.fileno())

            assert Session.load(path).warnings == [
                "unfinished: the recording still runs; these are the figures up to now"
            ]


RANGE = """
"marks": [{"name": "a", "start_s": 2, "end_s": 1}] | "marks": [{"name": "a", "start_s": 2}] \
| 1, the first at `$.marks[0].end_s`
"processes": [{"id": 0, "pid": -1}, {"id": 1, "pid": -7}] \
| "processes": [{"id": 0, "pid": null}, {"id": 1, "pid": null}] \
| 2, the first at `$.processes[0].pid`
"rank": {"number": 0, "size": -3, "local": 100000000000000000000} | "rank": {"number": 0} \
| 1, the first at `$.rank.size`
"exit": {"code": 1000000000} | "exit": {} | 1, the first at `$.exit.code`
"sampler": {"cpu_s": -1} | "sampler": {} | 1, the first at `$.sampler.cpu_s`
"peaks": {"rss": {"sampled": -5, "at_s": 1, "low": 2}} \
| "peaks": {"rss": {"sampled": null, "at_s": 1, "low": 2}} | 1, the first at `$.peaks[...].sampled`
"totals": {"cpu_user": -500.5, "later": -1.5, "swap_in": 1} \
| "totals": {"cpu_user": null, "later": null, "swap_in": 1} | 2, the first at `$.totals[...]`
"totals": {"read_chars": -7516192768} | "totals": {"read_chars": null} | 1, the first at `$.totals[...]`
"floor": {"size": 5, "at_s": 1, "mapped": -3} | "floor": null | 1, the first at `$.floor.mapped`
"floor": {"size": -5, "at_s": 1} | "floor": null | 1, the first at `$.floor.size`
"limit_reached": {"at_s": 1, "rss": -5, "limit": 7, "action": "warn"} | "limit_reached": null \
| 1, the first at `$.limit_reached.rss`
"processes": [{"id": 0, "samples": -1}] | "processes": [{"id": 0, "samples": null}] \
| 1, the first at `$.processes[0].samples`
"processes": [{"id": 0, "series": {"time_s": [0, 1], "rss": [1, -1]}}] | "processes": [{"id": 0}] \
| 1, the first at `$.processes[0].series.rss[1]`
"ranks": [{"name": "a", "start_s": 0, "duration_s": 1, "peaks": {"rss": {"sampled": 1, "at_s": 0, "low": -5}}}] \
| "ranks": [{"name": "a", "start_s": 0, "duration_s": 1, "peaks": {"rss": {"sampled": 1, "at_s": 0, "low": null}}}] \
| 1, the first at `$.ranks[0].peaks[...].low`
"ranks": [{"name": "a", "start_s": 0, "duration_s": 1, "time_s": [0, 1, 2], "rss": [1, -1, -1]}] \
| "ranks": [{"name": "a", "start_s": 0, "duration_s": 1, "time_s": [0, 1, 2], "rss": [1, null, null]}] \
| 2, the first at `$.ranks.a.rss`
"snapshots": {"failed": -1} | "snapshots": {"failed": null} | 1, the first at `$.snapshots.failed`
"snapshots": {"mappings": [{"time_s": 1, "total": -1, "processes": []}]} | "snapshots": null \
| 1, the first at `$.snapshots.mappings[0].total`
"""


@pytest.mark.parametrize("wrong, right, place", rows(RANGE))
def test_values_out_of_range_are_unknown(
    tmp_path: Path, document: dict[str, Any], wrong: str, right: str, place: str
) -> None:
    """Numbers that cannot be are null, with a warning that counts them, also in a copy."""
    field = wrong.split('"')[1]
    expected = getattr(Session.load(write({**document, **json.loads(f"{{{right}}}")}, tmp_path)), field)
    of = Session.load(write({**document, **json.loads(f"{{{wrong}}}")}, tmp_path))
    for found in (of, Session.load(of.save(tmp_path / "again.json"))):
        assert getattr(found, field) == expected
        assert f"values out of range count as unknown: {place}" in found.warnings
