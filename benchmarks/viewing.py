"""How long the viewer takes to find, to sort and to read the answers of a large run.

    python benchmarks/viewing.py                     # 134 settings x 7500 samples: a million answers
    python benchmarks/viewing.py --samples 750       # fewer samples

No model runs. The answers are drawn by chance, each with the log-probabilities of four letters, as a model leaves them. Each
number is processor time of this process, which other programs hardly change; the last line says how much memory it took.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, Setting
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.store import Answer, Evidence, StoredCell
from pytest_vlmrobust.store.browsing import Browser
from pytest_vlmrobust.store.searching import AnswerFilter

LETTERS = "ABCD"
SETTINGS = 134
PAGE = 24


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes the run and prints a line for each thing that a reader asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=7500, help="questions of the run (default: %(default)s)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), options.samples)
        measure(Path(folder))


def fill(directory: Path, count: int) -> None:
    """Writes the evidence of a run."""
    draw = random.Random(0)
    samples = [
        Sample(
            id=f"q{number:05d}",
            images=(),
            question=f"What is shown in picture {number}? Look at it with care and say which of the options fits best.",
            target=draw.choice(LETTERS),
            task="choice",
            options={letter: f"option {letter} of {number}" for letter in LETTERS},
            category=f"category {number % 12}",
        )
        for number in range(count)
    ]
    settings = [CLEAN, NO_IMAGE, *map(Setting.parse, perturbations.names("robustbench"))][:SETTINGS]
    with Evidence.open(directory) as evidence:
        evidence.put_samples("drawn", "0" * 64, samples)
        for setting in settings:
            answers = tuple(_answer(draw, sample) for sample in samples)
            evidence.put_cells([StoredCell(Cell("drawn", "drawn", setting), 1, answers)])


def _answer(draw: random.Random, sample: Sample) -> Answer:
    said = str(sample.target) if draw.random() < 0.7 else draw.choice(LETTERS)
    logprobs = {letter: -3 * draw.random() for letter in LETTERS}
    prediction = Prediction(said, "letter_logits", logprobs=logprobs, details={"prompt_tokens": 300, "visual_tokens": 256})
    return Answer("0" * 64, prediction, Score(float(said == sample.target), "letter_logits", said))


def measure(directory: Path) -> None:
    """Prints how long each thing takes."""
    browser = Browser({"drawn": directory})
    tasks: dict[str, Callable[[], Sequence[object]]] = {
        "opening": browser.cells,
        "all answers, worst first": lambda: browser.answers(AnswerFilter(), "worst"),
        "another page of them": lambda: [browser.read(key) for key in browser.answers(AnswerFilter(), "worst")[-PAGE:]],
        "all answers, surest first": lambda: browser.answers(AnswerFilter(), "surest"),
        "all samples": lambda: browser.samples(AnswerFilter(), "worst"),
        "harmful flips of a setting": lambda: browser.answers(AnswerFilter(setting="fog", flip="harmful"), "worst"),
        "a text": lambda: browser.answers(AnswerFilter(text="option c of 17"), "worst"),
    }
    for name, task in tasks.items():
        start = time.process_time()
        count = len(task())
        print(f"{name:28} {time.process_time() - start:6.2f} s  {count:>9,} found")
    print(
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB of memory at most, the making of the run included"
    )


if __name__ == "__main__":
    main()
