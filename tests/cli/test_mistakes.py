from __future__ import annotations

from tests.cli import mistakes


def test_page_is_current() -> None:
    """docs/mistakes.md lists at least twenty natural mistakes, and what each of them prints today."""
    assert mistakes.PAGE.read_text(encoding="utf-8") == mistakes.page()
    assert len(mistakes.MISTAKES) >= 20


def test_each_is_answered_with_what_was_meant() -> None:
    """Each answer begins in the same way, and is short."""
    answers = mistakes.page().split("$ nncf-tools ")[1:]

    assert all("\nnncf-tools: error: " in answer for answer in answers)
