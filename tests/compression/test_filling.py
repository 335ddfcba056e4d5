from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from nncftools.compression.filling import (
    Key,
    check_found,
    fill,
    measure_size,
    parse_tasks,
    read_lm_eval,
    read_similarity,
)
from nncftools.errors import NncfToolsError, UsageError
from tests.compression.made_up import HEADER, MADE_UP

RESULTS = {
    "lambada_openai": {
        "alias": "lambada_openai",
        "perplexity,none": 5.09,
        "perplexity_stderr,none": 0.12,
        "acc,none": 0.6548,
        "acc_stderr,none": 0.0066,
    },
    "wikitext": {"word_perplexity,none": 9.48, "word_perplexity_stderr,none": "N/A", "byte_perplexity,none": 1.5},
    "mmlu": {"acc,none": 0.61, "acc_stderr,none": 0.004},
}

GSM8K = {
    "alias": "gsm8k",
    "exact_match,strict-match": 0.4,
    "exact_match_stderr,strict-match": 0.013,
    "exact_match,flexible-extract": 0.5,
    "exact_match_stderr,flexible-extract": 0.014,
}
"""What lm-evaluation-harness writes for a task with two filters."""


def saved(folder: Path, results: object) -> Path:
    """Write a result file of lm-evaluation-harness."""
    path = folder / "results.json"
    path.write_text(json.dumps({"results": results, "config": {}}))
    return path


class TestLmEval:
    def test_names_without_filter(self, tmp_path: Path) -> None:
        """Metrics of older versions have no filter in their names."""
        found = read_lm_eval(saved(tmp_path, {"wikitext": {"word_perplexity": 10}}), parse_tasks(()))

        assert found == {"wikitext, word perplexity": 10}

    @pytest.mark.parametrize(
        "content, message",
        [
            (b"", "not a result of lm-evaluation-harness"),
            (b"\xff", "not a result of lm-evaluation-harness"),
            (b"[]", "Expected `object`, got `array`"),
            (b'{"results": []}', "Expected `object`, got `array` - at `$.results`"),
            (b'{"results": {"mmlu": {"acc,none": 1}}}', "tasks in the file: 'mmlu'"),
            (b'{"results": {"wikitext": {"word_perplexity,none": "low"}}}', "a finite number expected, found 'low'"),
            (b'{"results": {"wikitext": {"word_perplexity,none": NaN}}}', "a finite number expected, found nan"),
            (b'{"results": {"wikitext": {"word_perplexity,none": true}}}', "a finite number expected, found True"),
            (b"[" * 100_000, "not a result of lm-evaluation-harness"),
        ],
    )
    def test_bad_file(self, tmp_path: Path, content: bytes, message: str) -> None:
        """Anything but such a result is refused with its name and the reason."""
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(NncfToolsError) as caught:
            read_lm_eval(tmp_path / "bad.json", parse_tasks(()))

        assert message in str(caught.value)
        assert "bad.json" in str(caught.value)

    def test_fifo(self, tmp_path: Path) -> None:
        """A FIFO that somebody holds open is not waited for, where nobody could end that."""
        os.mkfifo(tmp_path / "results.json")
        writer = os.open(tmp_path / "results.json", os.O_RDWR)

        with pytest.raises(NncfToolsError, match="a file expected"):
            read_lm_eval(tmp_path / "results.json", parse_tasks(()), may_wait=False)
        os.close(writer)

    def test_several_filters(self, tmp_path: Path) -> None:
        """Several filters make the name ambiguous: the message lists them."""
        with pytest.raises(NncfToolsError) as caught:
            read_lm_eval(saved(tmp_path, {"gsm8k": GSM8K}), parse_tasks(("gsm8k:exact_match",)))

        assert "'exact_match' has several filters: " in str(caught.value)
        assert "gsm8k:exact_match,strict-match; gsm8k:exact_match,flexible-extract" in str(caught.value)
        assert caught.value.remedy == "task"

    @pytest.mark.parametrize("texts", [("mixed:em", "mixed:em,f1"), ("mixed:em,f1", "mixed:em")])
    def test_metric_with_and_without_a_filter(self, tmp_path: Path, texts: tuple[str, str]) -> None:
        """A metric asked for with and without a filter fills two columns, in any order."""
        results = {"mixed": {"em,none": 0.1, "em,f1": 0.2, "em_stderr,f1": 0.9}}
        found = read_lm_eval(saved(tmp_path, results), parse_tasks(texts))

        assert found == {"mixed, em": 0.1, "mixed, em,f1": 0.2, "mixed, em,f1 stderr": 0.9}

    @pytest.mark.parametrize(
        "task, filters",
        [
            ("gsm8k:exact_match,nope", "gsm8k:exact_match,strict-match; gsm8k:exact_match,flexible-extract"),
            ("old:acc,foo", "old:acc"),
        ],
    )
    def test_unknown_filter(self, tmp_path: Path, task: str, filters: str) -> None:
        """The message on an unknown filter lists the filters of the metric."""
        results = {**RESULTS, "gsm8k": GSM8K, "old": {"acc": 0.2, "acc_stderr": 0.1}}
        with pytest.raises(NncfToolsError) as caught:
            read_lm_eval(saved(tmp_path, results), parse_tasks((task,)))

        metric = task.partition(":")[2]
        assert str(caught.value).endswith(f"{metric!r} has other filters: {filters}")
        assert caught.value.remedy == "task"

    @pytest.mark.parametrize("task", ["mmlu:acc_norm", "mmlu:alias_", "hellaswag:acc", "mmlu:acc_norm,x"])
    def test_nothing_is_dropped(self, tmp_path: Path, task: str) -> None:
        """A metric that was asked for and has no figure is an error, not a gap."""
        wanted = parse_tasks((task,))
        with pytest.raises(UsageError, match=f"the results have no value of '{task}'"):
            check_found(wanted, read_lm_eval(saved(tmp_path, RESULTS), wanted))

    def test_standard_metrics_may_be_missing(self) -> None:
        """The standard metrics are not asked for."""
        check_found(parse_tasks(()), {})

    @pytest.mark.parametrize("text", ["mmlu", ":acc", "mmlu:"])
    def test_bad_task(self, text: str) -> None:
        """A task without a metric is refused."""
        with pytest.raises(UsageError, match="'TASK:METRIC' expected"):
            parse_tasks((text,))


class TestWhoWhatBenchmark:
    @pytest.mark.parametrize("text", [",similarity,FDT\n0,0.9,1\n1,0.8,2\n", "similarity\n0.85\n"])
    def test_mean_similarity(self, tmp_path: Path, text: str) -> None:
        """The mean of the similarity column is used, over all questions or the one summary row."""
        (tmp_path / "metrics.csv").write_text(text)

        assert read_similarity(tmp_path / "metrics.csv") == pytest.approx(0.85)

    @pytest.mark.parametrize(
        "text, message",
        [
            ("a,b\n1,2\n", "no column 'similarity'"),
            (",similarity\n", "no rows"),
            (",similarity\n0,nan\n", "row 2, column 'similarity': a finite number expected, found 'nan'"),
            (",similarity\n0,\n", "a finite number expected, found ''"),
        ],
    )
    def test_bad_file(self, tmp_path: Path, text: str, message: str) -> None:
        """Anything but such a file is refused with the reason."""
        (tmp_path / "metrics.csv").write_text(text)
        with pytest.raises(NncfToolsError, match=message):
            read_similarity(tmp_path / "metrics.csv")


class TestSize:
    def test_sum_of_files(self, tmp_path: Path) -> None:
        """A model's size is the sum of its files, in GiB, including subfolders."""
        (tmp_path / "deep").mkdir()
        for name, size in (("a.bin", 2**29), ("deep/b.bin", 2**28)):
            with (tmp_path / name).open("wb") as file:
                file.truncate(size)

        assert measure_size(tmp_path) == 0.75
        assert measure_size(tmp_path / "a.bin") == 0.5

    def test_nothing_there(self, tmp_path: Path) -> None:
        """A folder without files is not a model."""
        with pytest.raises(NncfToolsError, match="no files"):
            measure_size(tmp_path / "none")


PERPLEXITY = "wikitext, word perplexity"


def rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the made-up results."""
    path = tmp_path / "a.csv"
    path.write_bytes(MADE_UP.read_bytes())
    return path


class TestNew:
    def test_file(self, tmp_path: Path) -> None:
        """A new file has the standard columns and one row, whose gaps are reported."""
        filled = fill(tmp_path / "a.csv", HEADER[0], Key("fp32", "M"), {PERPLEXITY: 9.48})
        (row,) = rows(tmp_path / "a.csv")

        assert list(row) == HEADER
        assert (row[HEADER[0]], row["mode"], row["%int4"], row["%int8"], row[PERPLEXITY]) == (
            *("M", "fp32", "0", "0", "9.48"),
        )
        assert (filled.number, filled.is_new) == (2, True)
        assert filled.gaps == ["model size, Gb", *HEADER[8:]]

    @pytest.mark.parametrize(
        "mode, int4, int8, expected",
        [
            ("int8", None, None, ("0", "1")),
            ("int4 + gptq", 0.8, None, ("0.8", "0.2")),
            ("int4", 0.8, 0.1, ("0.8", "0.1")),
            ("int4", None, None, ("", "")),
        ],
    )
    def test_shares(self, tmp_path: Path, mode: str, int4: float, int8: float, expected: tuple[str, str]) -> None:
        """By default, the remaining layers are int8; unknown values stay empty."""
        fill(tmp_path / "a.csv", "model", Key(mode, "M", int4, int8), {})
        (row,) = rows(tmp_path / "a.csv")

        assert (row["%int4"], row["%int8"]) == expected

    def test_model_must_be_known(self, tmp_path: Path) -> None:
        """A new file needs the model's name, and is not created without."""
        with pytest.raises(NncfToolsError, match="the file has 0 models") as refused:
            fill(tmp_path / "a.csv", "model", Key("fp32"), {})

        assert refused.value.remedy == "model"
        assert not (tmp_path / "a.csv").exists()


class TestExisting:
    def test_gaps_are_filled(self, copy: Path) -> None:
        """Gaps of a row are filled; repeating the call changes nothing."""
        key = Key("INT8", "Made-up-7b")
        fill(copy, "model", key, {"mmlu, acc": 0.61})
        once = copy.read_bytes()
        filled = fill(copy, "model", key, {"mmlu, acc": 0.61})

        assert (filled.number, filled.is_new, filled.gaps) == (3, False, [])
        assert rows(copy)[1]["mmlu, acc"] == "0.61"
        assert copy.read_bytes() == once

    def test_other_figure_is_kept(self, copy: Path) -> None:
        """A cell with a different figure is only replaced with force."""
        with pytest.raises(
            NncfToolsError, match=r"row 3, column 'wikitext.*has '10\.1', the new value is 10\.2$"
        ) as refused:
            fill(copy, "model", Key("int8"), {PERPLEXITY: 10.2})
        unchanged = copy.read_bytes() == MADE_UP.read_bytes()
        fill(copy, "model", Key("int8"), {PERPLEXITY: 10.2}, force=True)

        assert refused.value.remedy == "force"
        assert unchanged
        assert rows(copy)[1][PERPLEXITY] == "10.2"

    def test_several_rows_fit(self, copy: Path) -> None:
        """A key that matches several rows is refused with their numbers."""
        fill(copy, "model", Key("int4", int4=0.5), {})
        with pytest.raises(NncfToolsError, match="rows 4, 8 all match"):
            fill(copy, "model", Key("int4"), {PERPLEXITY: 1.0})

        assert len(rows(copy)) == 7

    @pytest.mark.parametrize("text", ["a,b\n1,2\n", "mode,a\nfp32,1\n", "model,mode\none,two,three\n"])
    def test_other_file(self, tmp_path: Path, text: str) -> None:
        """A file with other content is not changed."""
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(NncfToolsError):
            fill(tmp_path / "a.csv", "model", Key("fp32", "M"), {})

        assert (tmp_path / "a.csv").read_text() == text
