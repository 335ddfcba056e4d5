"""Stand in for a Python that has NNCF and OpenVINO: sweep_python.py WORKER JOB.json

It answers what a sweep asks, and writes made-up results of steps. Configurations do what their names say: "wait" waits
until it is ended the first time, "fail" fails with an error, "nan" has a figure that is no number.

Usage: sweep_python.py -c SCRIPT | WORKER JOB.json
"""

import json
import os
import pathlib
import sys
import time


def evaluated(name: str) -> dict:
    """Return made-up figures of an evaluation."""
    perplexity = float("nan") if name == "nan" else 20.0 + len(name)
    figures = {"held-out text, word perplexity": [perplexity, 0.5], "held-out text, last-word acc": [0.5, None]}
    times = {"first_token_s": 0.25, "per_token_s": 0.125}
    return {"figures": figures, "continuations": [[1, 2]], "widths": {"int8": 1000}, **times}


def compress(job: dict, name: str) -> dict:
    """Write a made-up model."""
    if "fail" in name:
        raise ValueError("a channel size of 576 cannot be divided by 100")
    if (os.environ["CI"], os.environ["HF_HUB_OFFLINE"]) != ("true", "1"):
        raise ValueError("the telemetry of OpenVINO is on")
    if "wait" in name:
        wait(job)
    output = pathlib.Path(job["output"])
    output.mkdir()
    (output / "openvino_model.bin").write_bytes(bytes(1000))
    return {"compression_s": 0.5, "versions": {}}


def wait(job: dict) -> None:
    """Wait until the sweep is gone or says so; the second time, go on."""
    been = pathlib.Path(os.environ["SWEEP_WAITED"])
    if been.exists():
        return
    been.write_text(str(os.getpid()))
    while not pathlib.Path(job["stop"]).exists() and pathlib.Path(f"/proc/{job['starter']}").exists():
        time.sleep(0.05)
    sys.exit(3)


def main(words: list[str]) -> None:
    """Do what is asked."""
    if words[0] == "-c":
        print("[]")
        return
    job = json.loads(pathlib.Path(words[1]).read_text())
    if job["step"] == "module":
        words = ["-m", job["module"], *job["words"]]
    if words[:2] == ["-m", "lm_eval"]:
        out = pathlib.Path(words[words.index("--output_path") + 1], "model")
        out.mkdir(parents=True)
        results = {"arc_easy": {"acc,none": 0.75, "acc_stderr,none": 0.01}, "wikitext": {"word_perplexity,none": 9.5}}
        (out / "results_1.json").write_text(json.dumps({"results": results}))
        return
    if words[0] == "-m":
        out = pathlib.Path(words[-1])
        out.mkdir()
        (out / "openvino_model.xml").touch()
        (out / "openvino_model.bin").write_bytes(bytes(4000))
        return
    name = job["name"]
    result = compress(job, name) if job["step"] == "compress" else evaluated(name)
    pathlib.Path(job["result"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
