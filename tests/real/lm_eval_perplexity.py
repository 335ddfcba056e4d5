"""Print the word perplexity of a text by lm-evaluation-harness, offline: lm_eval_perplexity.py MODEL TEXT

MODEL is a folder exported to OpenVINO. Runs where lm_eval is installed beside the real tools.
"""

import json
import pathlib
import sys
import tempfile

import lm_eval
import lm_eval.tasks

TASK = """\
task: own_text
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: word_perplexity
"""


def main(model: str, text: str) -> None:
    """Evaluate."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        content = pathlib.Path(text).read_text(encoding="utf-8").strip()
        (folder / "data.jsonl").write_text(json.dumps({"text": content}) + "\n", encoding="utf-8")
        (folder / "own.yaml").write_text(TASK.format(data=folder / "data.jsonl"), encoding="utf-8")
        found = lm_eval.simple_evaluate(
            model="openvino",
            model_args=f"pretrained={model}",
            tasks=["own_text"],
            device="cpu",
            task_manager=lm_eval.tasks.TaskManager(include_path=str(folder)),
            bootstrap_iters=0,
        )
    print(found["results"]["own_text"]["word_perplexity,none"])


if __name__ == "__main__":
    main(*sys.argv[1:])
