from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from nncftools.analysis.session import Session
from nncftools.session.model import Exit, Host, Mark, SamplerFacts, Start
from nncftools.session.session import schema
from tests.made_up import process, session

if TYPE_CHECKING:
    from pathlib import Path


def saved(of: Session, folder: Path) -> dict[str, Any]:
    """Return the document that a session is saved as."""
    document: dict[str, Any] = json.loads(of.save(folder / "run.json").read_text(encoding="utf-8"))
    return document


@functools.cache
def validator() -> jsonschema.Draft202012Validator:
    """Return what compares documents with the schema, which it does not check again for each of them."""
    return jsonschema.Draft202012Validator(schema())


def test_schema_is_a_schema() -> None:
    """The schema itself is right by the rules of its dialect."""
    found = schema()

    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(found)


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(
            session(
                {"rss": [None, None], "cpu_user": [None, 0.5], "made_up": [1, None]},
                start=Start(utc="2026-11-21T07:00:00+00:00"),
                exit=None,
                host=Host(),
                sampler=SamplerFacts(),
                totals={"cpu_user": None},
                processes=[process(pid=None, start_s=None, end_s=None)],
            ),
            id="nulls",
        ),
        pytest.param(
            session(
                finished=False,
                attached_to=7,
                exit=Exit(signal=9),
                processes=[process(high_water_mark=2**40, exit=Exit(code=1), cpu_s=0.5)],
                marks=[Mark(name="export", start_s=0.1, end_s=None, pid=7)],
                warnings=["look"],
            ),
            id="all",
        ),
    ],
)
def test_saved_session_follows_the_schema(of: Session, tmp_path: Path) -> None:
    """What is saved validates, also with nulls."""
    validator().validate(saved(of, tmp_path))


@pytest.mark.parametrize(
    "place, value",
    [
        ("format", "other"),
        ("version", 2),
        ("samples.rss", ["much"]),
        ("samples.time_s", [None]),
        ("peaks.rss", {"low": []}),
    ],
)
def test_schema_refuses(place: str, value: object, tmp_path: Path) -> None:
    """A value that this version cannot read does not validate."""
    document = saved(session(), tmp_path)
    folder, _, key = place.rpartition(".")
    inner = document[folder] if folder else document
    inner[key] = value
    with pytest.raises(jsonschema.ValidationError):
        validator().validate(document)


def test_schema_allows_later_keys(tmp_path: Path) -> None:
    """Keys and metrics of a later version of the tool validate."""
    document = saved(session(), tmp_path)
    document["later"] = {"a": 1}
    document["host"]["later"] = True
    document["samples"]["later"] = [1, None, 3]

    validator().validate(document)
