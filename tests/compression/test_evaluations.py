from __future__ import annotations

import json
import pathlib

import pytest

from nncftools.compression.filling import from_lm_eval, similarity, size_gib, tasks_of
from nncftools.errors import NncfToolsError, UsageError

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


def saved(folder: pathlib.Path, results: object) -> pathlib.Path:
    """Write a result file of lm-evaluation-harness."""
    path = folder / "results.json"
    path.write_text(json.dumps({"results": results, "config": {}}))
    return path


class TestLmEval:
    def test_standard_figures(self, tmp_path: pathlib.Path) -> None:
        """Perplexities and accuracy are found by task and metric, with any standard errors."""
        assert from_lm_eval(saved(tmp_path, RESULTS), tasks_of(())) == {
            "wikitext, word perplexity": 9.48,
            "lambada-openai, acc": 0.6548,
            "lambada-openai, acc stderr": 0.0066,
            "lambada-openai, perplexity": 5.09,
            "lambada-openai, perplexity stderr": 0.12,
        }

    def test_other_task(self, tmp_path: pathlib.Path) -> None:
        """A metric of another task is read when requested."""
        found = from_lm_eval(saved(tmp_path, {"mmlu": RESULTS["mmlu"]}), tasks_of(("mmlu:acc",)))

        assert found == {"mmlu, acc": 0.61, "mmlu, acc stderr": 0.004}

    def test_names_without_filter(self, tmp_path: pathlib.Path) -> None:
        """Metrics of older versions have no filter in their names."""
        found = from_lm_eval(saved(tmp_path, {"wikitext": {"word_perplexity": 10}}), tasks_of(()))

        assert found == {"wikitext, word perplexity": 10}

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "not JSON"),
            (b"\xff", "not JSON"),
            (b"[]", "no 'results' by task"),
            (b'{"results": []}', "no 'results' by task"),
            (b'{"results": {"mmlu": {"acc,none": 1}}}', "its tasks: 'mmlu'"),
            (b'{"results": {"wikitext": {"word_perplexity,none": "low"}}}', "a finite number expected, found 'low'"),
            (b'{"results": {"wikitext": {"word_perplexity,none": NaN}}}', "a finite number expected, found nan"),
            (b'{"results": {"wikitext": {"word_perplexity,none": true}}}', "a finite number expected, found True"),
            (b"[" * 100_000, "not JSON"),
        ],
    )
    def test_bad_file(self, tmp_path: pathlib.Path, content: bytes, message: str) -> None:
        """Anything but such a result is refused with its name and the reason."""
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(NncfToolsError) as caught:
            from_lm_eval(tmp_path / "bad.json", tasks_of(()))

        assert message in str(caught.value)
        assert "bad.json" in str(caught.value)

    def test_no_file(self, tmp_path: pathlib.Path) -> None:
        """A missing file is named."""
        with pytest.raises(NncfToolsError, match=r"none\.json: cannot be read: No such file"):
            from_lm_eval(tmp_path / "none.json", tasks_of(()))

    @pytest.mark.parametrize("text", ["mmlu", ":acc", "mmlu:"])
    def test_bad_task(self, text: str) -> None:
        """A task without a metric is refused."""
        with pytest.raises(UsageError, match="'TASK:METRIC' expected"):
            tasks_of((text,))


class TestWhoWhatBenchmark:
    @pytest.mark.parametrize("text", [",similarity,FDT\n0,0.9,1\n1,0.8,2\n", "similarity\n0.85\n"])
    def test_mean_similarity(self, tmp_path: pathlib.Path, text: str) -> None:
        """The mean of the similarity column is used, over all questions or the one summary row."""
        (tmp_path / "metrics.csv").write_text(text)

        assert similarity(tmp_path / "metrics.csv") == pytest.approx(0.85)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a,b\n1,2\n", "no column 'similarity'"),
            (",similarity\n", "no rows"),
            (",similarity\n0,nan\n", "row 2, column 'similarity': a finite number expected, found 'nan'"),
            (",similarity\n0,\n", "a finite number expected, found ''"),
        ],
    )
    def test_bad_file(self, tmp_path: pathlib.Path, text: str, message: str) -> None:
        """Anything but such a file is refused with the reason."""
        (tmp_path / "metrics.csv").write_text(text)
        with pytest.raises(NncfToolsError, match=message):
            similarity(tmp_path / "metrics.csv")


class TestSize:
    def test_sum_of_files(self, tmp_path: pathlib.Path) -> None:
        """A model's size is the sum of its files, in GiB, including subfolders."""
        (tmp_path / "deep").mkdir()
        for name, size in (("a.bin", 2**29), ("deep/b.bin", 2**28)):
            with (tmp_path / name).open("wb") as file:
                file.truncate(size)

        assert size_gib(tmp_path) == 0.75
        assert size_gib(tmp_path / "a.bin") == 0.5

    def test_published_unit(self) -> None:
        """The published 14.235 "Gb" of Phi-3-mini are its 3,821,079,552 weights of 4 bytes, in GiB."""
        assert round(3_821_079_552 * 4 / 2**30, 3) == 14.235

    def test_nothing_there(self, tmp_path: pathlib.Path) -> None:
        """A folder without files is not a model."""
        with pytest.raises(NncfToolsError, match="no files"):
            size_gib(tmp_path / "none")
