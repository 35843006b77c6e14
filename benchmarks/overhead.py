"""What the engine that asks costs: a gate's way of asking beside a bare loop of the same batched forwards.

    python benchmarks/overhead.py                      # 24 cells of 128 questions, some minutes
    python benchmarks/overhead.py --samples 40         # fewer questions of each cell

Both ask the embedded model the same questions in the same batches, from empty. The gate's way begins with a store without any
answer, makes and digests the pictures, preprocesses them, asks, and stores and scores the answers. The bare loop finds its inputs
prepared, calls the model batch by batch, and keeps nothing; torch computes each batch with the threads that it takes by itself,
or with those that ``OMP_NUM_THREADS`` says. The weights are loaded before. Both take turns, and the median of the rounds' ratios
counts, so that a machine that becomes slower or faster meanwhile changes it little. It also says for which share of the gate's
time the lanes of the model were computing: the rest is waiting for inputs, for the store, or for a turn in Python. The program
ends with 1 where the gate takes longer than the bound allows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from pytest_vlmrobust.backends import BackendOptions, resolve
from pytest_vlmrobust.backends.answering import Answerer, BatchSize, Job
from pytest_vlmrobust.backends.transformers import TransformersBackend
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request
from pytest_vlmrobust.datasets import resolve as dataset
from pytest_vlmrobust.evaluation.run.evaluator import EvaluationOptions, Evaluator
from pytest_vlmrobust.evaluation.run.queue import CellRequest
from pytest_vlmrobust.store import Store

SETTINGS = (
    "clean",
    "no_image",
    "gaussian_blur:low",
    "motion_blur:low",
    "glass_blur:low",
    "zoom_blur:low",
    "gaussian_noise:low",
    "shot_noise:low",
    "fog:low",
    "rain:low",
    "snow:low",
    "jpeg_compression:low",
    "pixelate:low",
    "rotate:low",
    "perspective_transform:low",
    "elastic_transform:low",
    "brightness:low",
    "contrast:low",
    "saturation:low",
    "hue_shift:low",
    "random_occlusion:low",
    "downsample:low",
    "posterize:low",
    "text_overlay:low",
)
CELLS = [Cell("tiny", "shapes", Setting.parse(name)) for name in SETTINGS]
BOUND = 1.10

Times = tuple[float, float]
"""Seconds by the clock, and of the processor."""


class Timed(BatchSize):
    """A size of batches that adds up how long lanes computed."""

    computing = 0.0

    def answered(self, requests: int, seconds: float) -> None:
        """Takes how long a batch of so many requests took."""
        self.computing += seconds
        super().answered(requests, seconds)


class Recorded(TransformersBackend):
    """A backend that keeps the batches that its model computed, and its weights."""

    def __init__(self, ref: ModelRef, options: BackendOptions) -> None:
        super().__init__(ref, options)
        self.batches: list[list[Request]] = []
        self.times = self._batch_size = Timed(options.batch_size, self._has_room)

    def _computed(self, batch: list[Job]) -> list[Prediction]:
        self.batches.append([job.request for job in batch])
        return super()._computed(batch)

    def close(self) -> None:
        """Keeps the weights for the next round."""


def main(arguments: Sequence[str]) -> int:
    """Measures, and prints what was found.

    Returns:
        The exit status: 1 where the gate takes longer than the bound allows, else 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", default="200", help="of each cell")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1, help="threads that prepare requests ahead")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    evaluation = EvaluationOptions(sample=options.samples, batch_size=options.batch_size, threads=options.threads)
    threads = torch.get_num_threads()  # before any backend changes it
    backend = Recorded(resolve("tiny"), BackendOptions(batch_size=options.batch_size))
    backend.infer([Request("", (), "Is it?")])
    gates: list[Times] = []
    loops: list[Times] = []
    busy: list[float] = []
    for _ in range(options.rounds):
        backend.batches.clear()
        backend.times.computing = 0.0
        gates.append(_timed(lambda: gate(backend, CELLS, "shapes", evaluation)))
        busy.append(backend.times.computing / backend.lanes / gates[-1][0])
        loops.append(_bare_loop(backend, threads))
        print(f"gate {_said(gates[-1])}, {busy[-1]:.0%} of it computing   bare loop {_said(loops[-1])}", flush=True)
    clock, processor = ([gate[unit] / loop[unit] for gate, loop in zip(gates, loops, strict=True)] for unit in (0, 1))
    ratio = statistics.median(clock)
    print(f"{sum(map(len, backend.batches))} questions in {len(backend.batches)} batches of at most {options.batch_size}")
    print(f"{backend.lanes} lanes in the gate; {threads} threads of torch in the bare loop")
    print(f"the model computes {max(busy):.0%} of the time: who else wants the cores changes this less than the other numbers")
    print(f"by the processor: {statistics.median(processor):.2f} times as much")
    verdict, rounds = "PASS" if ratio <= BOUND else "FAIL", f"rounds {min(clock):.3f} to {max(clock):.3f}"
    print(f"{verdict}  gate against bare loop: {ratio:.3f}, {rounds} (expected: at most {BOUND:g})")
    return 0 if ratio <= BOUND else 1


def gate(backend: Recorded, cells: Sequence[Cell], questions: str, options: EvaluationOptions) -> None:
    """Evaluates cells of one dataset as a gate does, with an empty store.

    Args:
        backend: what answers, whichever model the cells name.
        cells: of one model and of the dataset.
        questions: the dataset, a name or a file.
        options: of the evaluation.
    """
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        evaluator = Evaluator(
            models={cells[0].model: resolve("tiny")},
            datasets={cells[0].dataset: lambda: dataset(questions)},
            open_backend=lambda _ref: backend,
            store=store,
            options=options,
        )
        evaluator.expect(map(CellRequest, cells))
        for cell in cells:
            evaluator.result(cell)
        evaluator.close()


def _bare_loop(backend: Recorded, threads: int) -> Times:
    """Returns how long the model takes for the batches that it was given, with so many threads of torch."""
    model = backend._ready().answerer  # noqa: SLF001 - the same forwards, without what stands around them
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    times = [_forward(model, requests) for requests in backend.batches]
    torch.set_num_threads(before)
    return sum(clock for clock, _ in times), sum(processor for _, processor in times)


def _forward(model: Answerer, requests: Sequence[Request]) -> Times:
    jobs = [Job(0, request, model.letters(request.choices), inputs=model.row(request)) for request in requests]
    inputs = model.encoded(jobs)[0]
    return _timed(lambda: model._generate(inputs, 1, [], output_logits=True))  # noqa: SLF001 - as above


def _timed(call: Callable[[], object]) -> Times:
    clock, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - clock, time.process_time() - processor


def _said(times: Times) -> str:
    return f"{times[0]:.2f} s ({times[1]:.2f} s of the processor)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
