"""Stand in for a Python that has NNCF and OpenVINO: sweep_python.py WORKER JOB SWEEP

It answers what a sweep asks, and writes made-up results of steps. Configurations do what their names say: "wait" waits
until it is ended the first time, "fail" fails with an error, "nan" has a figure that is no number.

Usage: sweep_python.py -c SCRIPT | WORKER JOB SWEEP; the last two are descriptors
"""

import json
import os
import sys
from pathlib import Path


def evaluated(name: str) -> dict:
    """Return made-up figures of an evaluation."""
    perplexity = float("nan") if name == "nan" else 20.0 + len(name)
    figures = {"held-out text, word perplexity": [perplexity, 0.5], "held-out text, last-word acc": [0.5, None]}
    times = {"first_token_s": 0.25, "per_token_s": 0.125}
    return {"figures": figures, "continuations": [[1, 2]], "widths": {"int8": 1000}, **times}


def compress(job: dict, name: str, sweep: int) -> dict:
    """Write a made-up model."""
    if "fail" in name:
        raise ValueError("a channel size of 576 cannot be divided by 100")
    if (os.environ["CI"], os.environ["HF_HUB_OFFLINE"]) != ("true", "1"):
        raise ValueError("the telemetry of OpenVINO is on")
    if "wait" in name:
        wait(sweep)
    output = Path(job["output"])
    output.mkdir()
    (output / "openvino_model.bin").write_bytes(bytes(1000))
    return {"compression_s": 0.5, "versions": {}}


def wait(sweep: int) -> None:
    """Wait until the sweep is gone or says so; the second time, go on."""
    been = Path(os.environ["SWEEP_WAITED"])
    if been.exists():
        return
    beside = been.with_suffix(".new")
    beside.write_text(str(os.getpid()))
    beside.rename(been)  # who sees it can read it
    os.read(sweep, 1)
    sys.exit(3)


def main(words: list[str]) -> None:
    """Do what is asked."""
    if words[0] == "-c":
        print("[]")
        return
    with os.fdopen(int(words[1]), "r+b") as file:
        result = done(json.loads(file.read()), int(words[2]))
        file.write(json.dumps(result).encode())


def done(job: dict, sweep: int) -> dict:
    """Do a step, and return its result."""
    words = job.get("words", ())
    if job.get("module") == "lm_eval":
        out = Path(words[words.index("--output_path") + 1], "model")
        out.mkdir(parents=True)
        results = {"arc_easy": {"acc,none": 0.75, "acc_stderr,none": 0.01}, "wikitext": {"word_perplexity,none": 9.5}}
        (out / "results_1.json").write_text(json.dumps({"results": results}))
        return {}
    if job["step"] == "module":
        out = Path(words[-1])
        out.mkdir()
        (out / "openvino_model.xml").touch()
        (out / "openvino_model.bin").write_bytes(bytes(4000))
        return {}
    return compress(job, job["name"], sweep) if job["step"] == "compress" else evaluated(job["name"])


if __name__ == "__main__":
    main(sys.argv[1:])
