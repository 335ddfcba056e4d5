"""Hides what looks like a secret in command lines, before they are stored or shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"
_OF_A_MODEL = (
    "pad", "eos", "bos", "unk", "sep", "cls", "mask", "special", "start", "end", "stop", "image", "audio", "video",
    "prompt", "num", "max", "min", "new", "per", "first", "last", "next",
)  # fmt: skip
"""`--pad-token` and similar options are tokenizer settings."""
_TOKEN = "".join(f"(?<!{kind}[-_])" for kind in _OF_A_MODEL) + "token"
_NAME = (
    rf"(?:pass(?:word|wd|phrase|code)?|secret|credentials?|{_TOKEN}|api[-_]?key"
    r"|(?:access|private|secret|account|auth)[-_]?key)"
)
_KEY = rf"(?:[\w.-]*[-_.])?{_NAME}"
_VARIABLE = r"[\w.-]*(?:_KEY|_PWD|PASSWORD|PASSWD|PASSPHRASE|(?<![\w.-])KEY)"
"""`PGPASSWORD`, `WANDB_KEY`: for names in capitals, weaker hints suffice."""
_SECRET = rf"(?:(?i:{_KEY})|{_VARIABLE})"
_BEGIN = r"(?<![\w.-])"
"""Matches are tried only at the start of a name: otherwise a word of 100,000 letters would take minutes."""
_PIECE = r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\."
_VALUE = rf"(?:{_PIECE}|[^\s;&|])+"
"""One word of a shell command line."""
# Patterns are compiled on use: the two for whole words take 3 ms, and most words need neither.
_WHOLE_OPTION = rf"(?i)--?{_KEY}"
_WHOLE_SETTING = rf"[-+]{{0,2}}{_SECRET}="
_SCRIPT_NEXT = r"-\w*c"
"""`sh -c` and similar: the next word is a command line, of which only a part may be a secret."""
_SETTINGS = (
    ("=", rf"{_BEGIN}({_SECRET})( ?=(?!=) ?){_VALUE}", r"\1\2***"),
    ("-", rf"(?i){_BEGIN}(--?{_KEY}\s+)(?!-){_VALUE}", r"\1***"),
    (":", rf"(?i){_BEGIN}({_KEY}(?:\\?[\"']\s*:\s*|:\s+)){_VALUE}", r"\1***"),
)
"""Settings and options inside a word, which may be a shell command line; see ``_TOKENS``."""
_TOKENS = (
    (":", r"(?i)\b(authorization[\"']?\s*:\s*[\"']?)[^\"'\n]+", r"\1***"),
    ("://", r"(://)[^\s/@:]*:[^\s/]+@", r"\1***@"),
    ("://", r"(https?://)[^\s/@:]+@", r"\1***@"),
    ("bearer", r"(?i)\b(bearer)\s+[\w.~+/=-]{8,}", r"\1 ***"),
    ("hf_", r"(?<![A-Za-z0-9])hf_(?=[A-Za-z0-9]*[0-9A-Z]|[A-Za-z0-9]{20})[A-Za-z0-9]{6,}", HIDDEN),
    ("sk-", r"(?<![A-Za-z0-9])sk-(?=[\w-]{20}|[\w-]*[0-9A-Z])[\w-]{6,}", HIDDEN),
    ("_", r"(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_)[\w-]{10,}", HIDDEN),
    ("-", r"(?<![A-Za-z0-9])(?:glpat-|xox[abprs]-|nvapi-|pypi-)[\w-]{10,}", HIDDEN),
    ("ia", r"(?<![A-Za-z0-9])A[KS]IA[0-9A-Z]{16}", HIDDEN),
    ("aiza", r"(?<![A-Za-z0-9])AIza[\w-]{35}", HIDDEN),
    ("npm_", r"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}", HIDDEN),
    ("eyj", r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", HIDDEN),
)
"""Headers, URLs and known tokens inside a word.

Before each stands what every match contains, in lower case: most words contain nothing of it, and compiling the
patterns takes 3 ms. Each pattern runs in linear time: the kernel allows words of 128 KiB.
"""
_TEXT = r"\"(?:\\.|[^\"\\])*|'(?:\\.|[^'\\])*"
"""A string in a line of Python, without its closing quote: it may end in a later line."""
_STRING = rf"(?:\b[A-Za-z]{{1,2}})?(?:{_TEXT})[\"']?"
_OPERATOR = r"\]*\s*(?::[^=,;\"'(){}]{0,80}=(?!=)|[:!+]?={1,2}|:)"
_IN_CODE = rf"(?:{_SECRET}|(?i:[\w.]*(?:pwd|_key|authorization))|[a-z]\w*(?:Token|Password|Secret|Key))"
"""Strings are hidden more readily than words of a command line: nobody needs them to find the line."""
_ASSIGNMENT = (
    rf"((?:{_BEGIN}{_IN_CODE}|[\"']-{{0,2}}{_IN_CODE}[\"'](?:\s*,)?)(?:(?<=,)|{_OPERATOR}))"
    rf"((?:{_STRING}|\((?:{_STRING}|[^\"'()])*\)|[^,;\"'])*)"
)
"""A secret's name with an operator, such as ``token: str =`` or ``"token":``, and the value."""


class Redaction:
    """Hides what looks like a secret, and what the user specifies in addition."""

    def __init__(self, more: Sequence[str] | None = ()) -> None:
        """``more`` are regular expressions; their first group is hidden, or the whole match. None hides nothing."""
        self._is_off = more is None
        self._more = [re.compile(pattern) for pattern in more or ()]

    def words(self, words: Sequence[str]) -> list[str]:
        """Return a command line with secrets hidden."""
        if self._is_off:
            return list(words)
        shown = []
        before = ""
        for word in words:
            setting = None
            if "=" in word and not re.fullmatch(_SCRIPT_NEXT, before):
                setting = re.match(_WHOLE_SETTING, word)
            if setting is not None:
                shown.append(setting[0] + HIDDEN)
            elif before.startswith("-") and not word.startswith("-") and re.fullmatch(_WHOLE_OPTION, before):
                shown.append(HIDDEN)
            else:
                shown.append(self.text(word))
            before = word
        return shown

    def text(self, text: str) -> str:
        """Return text, such as a shell command line, with secrets hidden."""
        if self._is_off:
            return text
        return self._without_own(_without(text, _SETTINGS + _TOKENS))

    def code(self, line: str) -> str:
        """Return a line of Python with secrets hidden: tokens, and strings assigned to the name of a secret."""
        if self._is_off:
            return line
        line = re.sub(f"{_ASSIGNMENT}|({_TEXT})([\"']?)", _hide_strings, line)
        return self._without_own(_without(line, _TOKENS))

    def _without_own(self, text: str) -> str:
        for own in self._more:
            text = own.sub(_hide, text)
        return text


def _without(text: str, patterns: Sequence[tuple[str, str, str]]) -> str:
    folded = text.lower()
    for part, pattern, hidden in patterns:
        if part in folded:
            text = re.sub(pattern, hidden, text)
    return text


def _hide_strings(match: re.Match[str]) -> str:
    """Hide the strings in the value of an assignment, or the settings in another string."""
    if match[3] is not None:
        return _without(match[3], _SETTINGS) + match[4]
    return match[1] + re.sub(rf"{_STRING}(?:\s*{_STRING})*", HIDDEN, match[2])


def _hide(match: re.Match[str]) -> str:
    if not match.re.groups or match[1] is None:
        return HIDDEN if match[0] else ""
    begin, end = match.start(1) - match.start(), match.end(1) - match.start()
    return match[0][:begin] + HIDDEN + match[0][end:]
