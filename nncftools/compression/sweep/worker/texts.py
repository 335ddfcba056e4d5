"""Texts for calibration and evaluation."""

from __future__ import annotations

import json
import pathlib
import re

LEAST_WORDS = 40
"""A passage whose last word is guessed has at least so many words."""
_SENTENCE = re.compile(r"(?<=[.!?])[\"'”’)]*\s+")
_AROUND = "\"'“”‘’()[].,;:!?*_—-"


def documents(path: str) -> list[str]:
    """Return the documents of a file that are not empty: ``text`` of each line of a ``.jsonl``, or the whole file."""
    file = pathlib.Path(path)
    text = file.read_text(encoding="utf-8-sig")
    if file.suffix != ".jsonl":
        return [text.strip()]
    # other ends of lines than \n, such as U+2028, may be inside of a text
    found: list[str] = [json.loads(line)["text"].strip() for line in text.split("\n") if line.strip()]
    return [document for document in found if document]


def lines(path: str) -> list[str]:
    """Return the lines of a file that hold something; of a ``.jsonl`` the field ``text``."""
    if path.endswith(".jsonl"):
        return documents(path)
    return [line.strip() for line in pathlib.Path(path).read_text(encoding="utf-8-sig").splitlines() if line.strip()]


def passages(document: str) -> list[str]:
    """Return passages of whole sentences, without a full stop at their end, on one line each.

    A passage ends with the first sentence after 40 words.
    """
    found: list[str] = []
    held: list[str] = []
    for sentence in _SENTENCE.split(" ".join(document.split())):
        held += sentence.split()
        if len(held) >= LEAST_WORDS:
            held[-1] = held[-1].rstrip(_AROUND)
            if held[-1]:
                found.append(" ".join(held))
            held = []
    return found
