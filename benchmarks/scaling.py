"""What several processes, and several requests in flight, gain.

    python benchmarks/scaling.py                          # both tables, some minutes
    python benchmarks/scaling.py --only processes         # or: lanes
    python benchmarks/scaling.py --samples 20             # fewer questions

Processes: `pytest -n N` over one empty store, with a model that sleeps as a device computes: some time for each batch, and some
for each request in it. "ideal" is the time that all processes together slept, divided by their number. The time is that from the
first request to the last answer, so that starting the processes is left out. The program ends with 1 where the number of
inferences depends on the number of processes.

Lanes: a model behind a server, which takes up to n requests at a time, each in a call of its own that sleeps for a long-tailed
time (lognormal, the same for a question in every row). The gate's way of asking, with n lanes, stands beside a loop that sends n
requests, waits for all of them, and sends the next n. "ideal" is the sum of all times divided by n, or the longest one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rerun import write_questions

from pytest_vlmrobust.backends.contract import Prepared, Traits
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.fingerprint import rng_for
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request
from pytest_vlmrobust.datasets import resolve
from pytest_vlmrobust.evaluation.run.evaluator import EvaluationOptions, Evaluator
from pytest_vlmrobust.store import Store

ROOT = Path(__file__).parents[1]
PROCESSES = (1, 2, 4)
LANES = (1, 2, 4, 8, 16, 32, 64)
MEDIAN, SPREAD = 0.02, 1.0
"""Of the lognormal latency: the median in seconds, and the standard deviation of its logarithm."""

CONFTEST = '''
import json
import os
import time

from pytest_vlmrobust.backends import backends
from pytest_vlmrobust.backends.scripted import ScriptedBackend


class Sleeping(ScriptedBackend):
    """Answers as slowly as a device computes, and writes down when."""

    def infer(self, requests):
        began = time.time()
        time.sleep(0.04 + 0.01 * len(requests))
        with open(f"slept-{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps([began, time.time(), len(requests)]) + "\\n")
        return super().infer(requests)


backends.add("sleeping", lambda ref, options: Sleeping(lambda request: "A", version="1", name=ref.name))
'''
SUITE = """
import pytest


@pytest.mark.vlm_settings("clean", "no_image", "invert", "flip_h", "flip_v", "grayscale", "fog:low", "contrast:low")
def test_cell(vlm_cell):
    vlm_cell.check()
"""


# Processes.


@dataclass(frozen=True)
class Slept:
    """What the processes of one gate did: from the first request to the last answer, in seconds."""

    clock: float
    device: float
    """How long all processes together slept."""
    answers: int
    batches: int

    @classmethod
    def run(cls, folder: Path, processes: int) -> Slept:
        """Runs a gate with an empty store.

        Raises:
            RuntimeError: it asked nothing.
        """
        given = ["--vlm=m", "--vlm-models=models.yaml", "--vlm-dataset=questions.jsonl", f"--vlm-store=store-{processes}"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(processes), *given, "test_suite.py"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
        calls: list[Any] = []
        for file in folder.glob("slept-*.jsonl"):
            calls += map(json.loads, file.read_text(encoding="utf-8").splitlines())
            file.unlink()
        said = re.search(r"(\d+) inferences?", done.stdout)
        if not calls or said is None:
            raise RuntimeError(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout[-4000:]}")
        clock = max(ended for _, ended, _ in calls) - min(began for began, _, _ in calls)
        return cls(clock, sum(ended - began for began, ended, _ in calls), int(said[1]), len(calls))


def processes_table(folder: Path, samples: int) -> bool:
    """Prints what several processes gain; returns whether all asked equally often."""
    write_questions(folder / "questions.jsonl", samples)
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "models.yaml").write_text("models:\n  m: {backend: sleeping, path: models.yaml}\n", encoding="utf-8")
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    print("| processes | asking took | ideal | ratio | inferences | batches |\n|--:|--:|--:|--:|--:|--:|", flush=True)
    counts = []
    for processes in PROCESSES:
        slept = Slept.run(folder, processes)
        ideal = slept.device / processes
        times = f"{slept.clock:.2f} s | {ideal:.2f} s | {slept.clock / ideal:.2f}"
        print(f"| {processes} | {times} | {slept.answers:,} | {slept.batches:,} |", flush=True)
        counts.append(slept.answers)
    return len(set(counts)) == 1


# Lanes.


class Remote(ScriptedBackend):
    """A server that takes several requests at a time; each answer takes as long as its question says."""

    def __init__(self, lanes: int) -> None:
        super().__init__(lambda _request: "A", version="1", name="remote")
        self.lanes = lanes

    @property
    def traits(self) -> Traits:  # type: ignore[override]  # one that says how many lanes there are
        """How it is asked."""
        return Traits(mixes_cells=True, lanes=self.lanes, prepare=self.prepare, infer_prepared=self.infer_prepared)

    def prepare(self, request: Request) -> Prepared:
        """Returns the request as it is."""
        return Prepared(request)

    def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        """Sleeps as long as the slowest of the requests takes, and answers them."""
        time.sleep(max(latency(each.request.sample_id) for each in prepared))
        return self.infer([each.request for each in prepared])


def latency(sample: str) -> float:
    """Returns how many seconds the answer to a question takes."""
    return MEDIAN * math.exp(SPREAD * float(rng_for(0, "latency", sample).standard_normal()))


def lanes_table(folder: Path, samples: int) -> None:
    """Prints what requests in flight gain."""
    questions = folder / "asked.jsonl"
    write_questions(questions, samples)
    dataset = resolve(str(questions))
    times = [latency(sample.id) for sample in dataset.samples()]
    print("\n| lanes | ideal | gate | ratio | with a barrier | ratio |\n|--:|--:|--:|--:|--:|--:|", flush=True)
    for lanes in LANES:
        ideal = max(sum(times) / lanes, *times)
        with tempfile.TemporaryDirectory() as store, Store.open(Path(store)) as answers:
            evaluator = Evaluator(
                {"remote": ModelRef("remote", "remote", "")},
                {"asked": lambda: dataset},
                lambda _ref, lanes=lanes: Remote(lanes),  # type: ignore[misc]
                answers,
                EvaluationOptions(batch_size=1, threads=2),
            )
            gate = seconds(lambda evaluator=evaluator: evaluator.result(Cell("remote", "asked", Setting.parse("clean"))))  # type: ignore[misc]
            evaluator.close()
        barrier = seconds(lambda lanes=lanes: with_barrier(times, lanes))  # type: ignore[misc]
        row = f"{gate:.2f} s | {gate / ideal:.2f} | {barrier:.2f} s | {barrier / ideal:.2f}"
        print(f"| {lanes} | {ideal:.2f} s | {row} |", flush=True)


def with_barrier(times: Sequence[float], lanes: int) -> None:
    """Sends ``lanes`` requests at a time, and waits for all of them before it sends the next."""
    with ThreadPoolExecutor(lanes) as pool:
        for start in range(0, len(times), lanes):
            list(pool.map(time.sleep, times[start : start + lanes]))


def seconds(call: Callable[[], object]) -> float:
    """Returns how long a call takes by the clock."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main(arguments: Sequence[str]) -> int:
    """Measures, and prints what was found.

    Returns:
        The exit status: 1 where the number of inferences depends on the number of processes, else 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=0, help="questions (default: 200 for processes, 512 for lanes)")
    parser.add_argument("--only", choices=("processes", "lanes"), default="", help="one of the tables")
    options = parser.parse_args(arguments)
    same = True
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "lanes":
            same = processes_table(Path(folder), options.samples or 200)
        if options.only != "processes":
            lanes_table(Path(folder), options.samples or 512)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
