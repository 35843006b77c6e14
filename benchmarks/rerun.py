"""How long a gate takes whose answers are all in the store, and how long pytest takes to collect many cells.

    python benchmarks/rerun.py                     # 135 settings x 900 samples; 1k, 5k and 20k cells
    python benchmarks/rerun.py --samples 100       # fewer samples
    python benchmarks/rerun.py --only judging      # one table: judging or collection

No model runs. A store is filled with answers drawn from a published profile (VLM-RobustBench), each with the log-probabilities
of four letters, as a model leaves them. Then `pytest --vlm-offline suites/test_corruptions.py` judges all of them under two
policies, in a process of its own, in full and in adaptive mode.

    start         from the start of the interpreter to the first test file: imports, options, models, policies
    collection    test files, one test for each cell, and what is checked before any test runs
    judging       from the first test to the last: answers out of the store, scores, intervals, verdicts, evidence and journal
    end           the decision, the summary on the terminal, the manifest

Each number is processor time of the whole process, with the time by the clock beside it: other programs change the second more.
The least of some rounds counts. The program ends with 1 where judging takes longer than its bound.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import numpy as np

    from pytest_vlmrobust.core.prediction import Prediction

ROOT = Path(__file__).parents[1]
SUITE = ROOT / "suites/test_corruptions.py"
SETTINGS, SAMPLES, ROUNDS = 135, 900, 3
BOUND = 5.0
"""Seconds of judging."""
SIZES = (1_000, 5_000, 20_000)
"""Cells that are collected."""
PROFILE = "MMBench/Qwen3-VL-8B"
LETTERS = "ABCD"
TIMES = "RERUN_TIMES"
"""Environment variable: the file into which a gate writes when its phases began."""
PHASES = ("start", "collection", "judging", "end")
DECIDED = (0, 1, 10)
"""Exit codes of a gate that ended with a decision: GO, NO-GO, INCONCLUSIVE."""


# The plugin that runs within the gate: `-p rerun`.


class Clock:
    """Notes the time at the borders of phases."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.times: list[tuple[float, float]] = []

    def note(self) -> None:
        """Notes the time by the clock, and the processor time so far of this process."""
        self.times.append((time.time(), time.process_time()))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Notes when collection begins and ends."""
        self.note()
        result = yield
        self.note()
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Notes when the last test is over."""
        result = yield
        self.note()
        return result

    def pytest_unconfigure(self) -> None:
        """Leaves the times for the process that started this one."""
        Path(self.file).write_text(json.dumps(self.times), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Starts the clock."""
    config.pluginmanager.register(Clock(os.environ[TIMES]))


# A gate in a process of its own.


@dataclass(frozen=True)
class Gate:
    """How long the phases of a gate took, in seconds, and the last lines that it printed."""

    clock: tuple[float, ...]
    processor: tuple[float, ...]
    said: tuple[str, ...]

    @classmethod
    def run(cls, folder: Path, *arguments: str) -> Gate:
        """Runs pytest with this file as a plugin.

        Raises:
            RuntimeError: pytest ended otherwise than with a decision.
        """
        times = folder / "times.json"
        paths = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
        command = [sys.executable, "-m", "pytest", "-p", "rerun", "-q", "-p", "no:cacheprovider", *arguments]
        environment = {**os.environ, TIMES: str(times), "PYTHONPATH": paths}
        started = time.time()
        with (folder / "said.txt").open("w+", encoding="utf-8") as out:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT)  # noqa: S603
            _, status, used = os.wait4(process.pid, 0)
            ended = time.time()
            out.seek(0)
            said = out.read()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in DECIDED or not times.exists():
            raise RuntimeError(f"{' '.join(command)}\nended with {process.returncode}:\n{said[-4000:]}")
        borders = json.loads(times.read_text(encoding="utf-8"))
        times.unlink()
        clock = [started, *(wall for wall, _ in borders), ended]
        processor = [0.0, *(spent for _, spent in borders), used.ru_utime + used.ru_stime]
        return cls(_steps(clock), _steps(processor), tuple(said.rstrip().splitlines()[-4:]))

    @classmethod
    def fastest(cls, rounds: int, folder: Path, *arguments: str) -> Gate:
        """Runs pytest several times; of each phase the least time counts."""
        runs = [cls.run(folder, *arguments) for _ in range(rounds)]
        clock = tuple(map(min, zip(*(run.clock for run in runs), strict=True)))
        processor = tuple(map(min, zip(*(run.processor for run in runs), strict=True)))
        return cls(clock, processor, runs[-1].said)


def _steps(times: Sequence[float]) -> tuple[float, ...]:
    return tuple(after - before for before, after in itertools.pairwise(times))


# What is judged: questions, a model that is never asked, and its answers.


def write_questions(file: Path, count: int) -> None:
    """Writes a dataset of questions with four options, each about a small picture of its own."""
    from PIL import Image

    pictures = file.parent / f"{file.stem}_pictures"
    pictures.mkdir()
    rows = []
    for number in range(count):
        Image.new("RGB", (8, 8), (number % 256, number // 256, 0)).save(pictures / f"{number}.png")
        options = [f"thing {number}", f"thing {number + 1}", "nothing", "everything"]
        row = {"id": f"q{number}", "image": f"{pictures.name}/{number}.png", "question": "What is it?", "options": options}
        rows.append({**row, "answer": LETTERS[number % 4], "category": f"kind {number % 6}"})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_models(folder: Path, count: int) -> list[str]:
    """Writes a models file with scripted models, and returns their names."""
    (folder / "script.yaml").write_text("default: A\n", encoding="utf-8")
    names = [f"m{number}" for number in range(count)]
    entries = "".join(f"  {name}: {{backend: scripted, path: script.yaml}}\n" for name in names)
    (folder / "models.yaml").write_text(f"models:\n{entries}", encoding="utf-8")
    return names


def fill_store(folder: Path, questions: Path, settings: int) -> int:
    """Stores an answer to each question under each setting, as if the model had been asked, and returns how many these are."""
    import numpy as np

    from pytest_vlmrobust import datasets, perturbations
    from pytest_vlmrobust.backends import open_backend, resolve
    from pytest_vlmrobust.core.cell import Cell, Setting
    from pytest_vlmrobust.core.fingerprint import fingerprint
    from pytest_vlmrobust.evaluation.power.published import published_profiles
    from pytest_vlmrobust.evaluation.run.evaluator import Evaluator
    from pytest_vlmrobust.metrics import Needs
    from pytest_vlmrobust.store import Store

    names = perturbations.names("robustbench")[: settings - 2]
    dataset = datasets.resolve(str(questions))
    samples = dataset.samples()
    rng = np.random.default_rng(1234)
    table = published_profiles()[PROFILE].draw(len(samples), ["corruptions"], rng)["corruptions"]
    scores = {
        "clean": table.clean,
        "no_image": table.required(Needs.NO_IMAGE),
        **{name: table.by_setting[name] for name in names},
    }
    with Store.open(folder / "store") as store:
        model = resolve("m0", models_file=folder / "models.yaml")
        evaluator = Evaluator({"m0": model}, {questions.stem: lambda: dataset}, open_backend, store)
        for name, right in scores.items():
            cell = Cell("m0", questions.stem, Setting.parse(name))
            recipes = [query.recipe for query in evaluator.queries(cell)]
            store.put_digests({recipe: [fingerprint(["pixels of", recipe])] for recipe in recipes})
            letters = [_letter(sample.target, bool(hit)) for sample, hit in zip(samples, right, strict=True)]
            keys = [str(query.key) for query in evaluator.queries(cell)]
            answers = {key: _prediction(letter, rng) for key, letter in zip(keys, letters, strict=True)}
            store.put_many(answers, context={"model": "m0", "dataset": questions.stem, "setting": name})
        evaluator.close()
        return len(store)


def _letter(target: object, right: bool) -> str:
    letter = str(target)
    return letter if right else LETTERS[(LETTERS.index(letter) + 1) % len(LETTERS)]


def _prediction(letter: str, rng: np.random.Generator) -> Prediction:
    """Returns an answer by the log-probabilities of four letters, of which its own is the highest."""
    from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction

    shares = sorted(rng.dirichlet([1.0] * len(LETTERS)).tolist(), reverse=True)
    ranked = [letter, *(other for other in LETTERS if other != letter)]
    logprobs = {name: math.log(max(share, 1e-12)) for name, share in zip(ranked, shares, strict=True)}
    return Prediction(letter, LETTER_LOGITS, logprobs={name: logprobs[name] for name in LETTERS})


# The tables.


def judging(options: argparse.Namespace, folder: Path) -> bool:
    """Prints how long it takes to judge what is in a store; returns whether that is within the bound."""
    questions = folder / "questions.jsonl"
    write_questions(questions, options.samples)
    write_models(folder, 1)
    answers = fill_store(folder, questions, SETTINGS)
    print(f"{answers:,} answers to {options.samples} questions under {SETTINGS} settings\n", flush=True)
    given = ["--vlm=m0", "--vlm-models=models.yaml", f"--vlm-dataset={questions}", "--vlm-store=store", "--vlm-offline"]
    print(f"| judged again | {' | '.join(PHASES)} | whole |\n|---|{'--:|' * (len(PHASES) + 1)}")
    within = True
    for policy in ("default", "robustbench"):
        for mode in ("full", "adaptive"):
            gate = Gate.fastest(options.rounds, folder, *given, f"--vlm-thresholds={policy}", f"--vlm-mode={mode}", str(SUITE))
            print(_line(f"policy `{policy}`, {mode}", gate), flush=True)
            within &= gate.processor[PHASES.index("judging")] <= BOUND
    print(f"\n{'PASS' if within else 'FAIL'}  judging takes at most {BOUND:g} s of the processor")
    return within


def collection(options: argparse.Namespace, folder: Path) -> None:
    """Prints how long it takes to collect so many cells, and what a further thousand adds."""
    models = write_models(folder, 10)
    data = []
    for number in range(max(len(models), -(-max(options.sizes) // (SETTINGS * len(models))))):
        file = folder / f"d{number}.jsonl"
        write_questions(file, 2)
        data.append(file)
    print("\n| cells | tests | start | collection | per 1,000 tests |\n|--:|--:|--:|--:|--:|")
    for cells in options.sizes:
        pairs = -(-cells // SETTINGS)
        several = models if pairs >= len(models) else models[:1]
        used = data[: -(-pairs // len(several))]
        given = [*(f"--vlm={name}" for name in several), *(f"--vlm-dataset={file}" for file in used)]
        gate = Gate.fastest(
            options.rounds, folder, "--vlm-models=models.yaml", *given, "--vlm-store=none", "--collect-only", str(SUITE)
        )
        tests = int(gate.said[-1].split()[0])
        real, whole = SETTINGS * len(several) * len(used), gate.processor[1]
        times = [_both(gate.processor[phase], gate.clock[phase]) for phase in (0, 1)]
        print(f"| {real:,} | {tests:,} | {' | '.join(times)} | {whole / tests * 1e3:.2f} s |", flush=True)


def _line(name: str, gate: Gate) -> str:
    times = [*zip(gate.processor, gate.clock, strict=True), (sum(gate.processor), sum(gate.clock))]
    return f"| {name} | {' | '.join(_both(*each) for each in times)} |"


def _both(processor: float, clock: float) -> str:
    return f"{processor:.2f} s ({clock:.2f} s)"


def main(arguments: Sequence[str]) -> int:
    """Measures, and prints what was found.

    Returns:
        The exit status: 1 where judging takes longer than its bound, else 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of each cell")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="cells to collect")
    parser.add_argument("--only", choices=("judging", "collection"), default="", help="one of the tables")
    options = parser.parse_args(arguments)
    within = True
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "collection":
            within = judging(options, Path(folder))
        if options.only != "judging":
            collection(options, Path(folder))
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
