"""Hides what looks like a secret in command lines, before they are stored or shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HIDDEN = "***"
_NAME = (
    r"(?:pass(?:word|wd|phrase|code)?|secret|credentials?|token|api[-_]?key"
    r"|(?:access|private|secret|account|auth)[-_]?key)"
)
_OF_A_MODEL = r"(?![\w.-]*(?:pad|eos|bos|unk|sep|cls|mask|special|start|end|stop|image|prompt|num)[-_]token)"
"""`--pad-token` and its like are settings of a tokenizer."""
_OPTION = rf"--?{_OF_A_MODEL}(?:[\w.-]*[-_.])?{_NAME}"
_VALUE = r"('[^']*'|\"[^\"]*\"|[^\s;&|]+)"
_WHOLE_OPTION = re.compile(_OPTION, re.IGNORECASE)
_VARIABLE = r"\b((?:[A-Z0-9]+_)*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?))="
_INSIDE = (
    (re.compile(_VARIABLE + _VALUE), r"\1=***"),
    (re.compile(rf"((?<![\w-]){_OPTION})(=|\s+(?!-)){_VALUE}", re.IGNORECASE), r"\1\2***"),
    (re.compile(rf"([?&;](?:[\w-]*[-_])?{_NAME}|(?<![\w-]){_NAME})=([^\s&;#]+)", re.IGNORECASE), r"\1=***"),
    (re.compile(r"(\w[\w+.-]*://)[^\s/@:]*:[^\s/@]+@"), r"\1***@"),
    (re.compile(r"(https?://)[^\s/@:]+@"), r"\1***@"),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE), r"\1 ***"),
    (re.compile(r"(?<![A-Za-z0-9])hf_(?=[A-Za-z0-9]*[0-9A-Z]|[A-Za-z0-9]{20})[A-Za-z0-9]{6,}"), HIDDEN),
    (re.compile(r"(?<![A-Za-z0-9])sk-(?=[\w-]*[0-9A-Z]|[\w-]{20})[\w-]{6,}"), HIDDEN),
    (re.compile(r"(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-)[\w-]{10,}"), HIDDEN),
    (re.compile(r"(?<![A-Za-z0-9])AKIA[0-9A-Z]{16}"), HIDDEN),
    (re.compile(r"(?<![A-Za-z0-9])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), HIDDEN),
)
"""What is looked for inside a word, which may be a shell's line: variables, options, URLs, headers, known tokens."""


class Redaction:
    """What to hide: what looks like a secret, and what the user names besides."""

    def __init__(self, more: Sequence[str] | None = ()) -> None:
        """``more`` are regular expressions; of a match its first group is hidden, or all of it. None hides nothing."""
        self._is_off = more is None
        self._more = [re.compile(pattern) for pattern in more or ()]

    def words(self, words: Sequence[str]) -> list[str]:
        """Return a command line with secrets hidden."""
        if self._is_off:
            return list(words)
        found = []
        is_value = False
        for word in words:
            found.append(HIDDEN if is_value and not word.startswith("-") else self.text(word))
            is_value = _WHOLE_OPTION.fullmatch(word) is not None
        return found

    def text(self, text: str) -> str:
        """Return text, such as a shell's line, with secrets hidden."""
        if self._is_off:
            return text
        for pattern, hidden in _INSIDE:
            text = pattern.sub(hidden, text)
        for own in self._more:
            text = own.sub(_hide, text)
        return text


def _hide(match: re.Match[str]) -> str:
    if not match.re.groups or match[1] is None:
        return HIDDEN if match[0] else ""
    begin, end = match.start(1) - match.start(), match.end(1) - match.start()
    return match[0][:begin] + HIDDEN + match[0][end:]
