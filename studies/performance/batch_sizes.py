"""How many requests the embedded model answers in a second, by the size of its batches and the number of torch's threads.

    python studies/performance/batch_sizes.py                          # two minutes
    python studies/performance/batch_sizes.py --threads 1 --turns 5

Every combination answers the same questions, in turns, and its fastest turn counts. Ratios are to batches of 16, the default, on
as many threads. Other programs disturb the clock; ``CPU`` is the time of all threads together, which shows what threads cost each
other. ``text`` counts answers whose text differs from that of the first combination, and ``log p`` is the largest difference of a
log-probability from it. The last line is what ``--vlm-batch-size auto`` comes to on the first number of threads. With
``OMP_WAIT_POLICY=ACTIVE`` threads spin while they wait, as they do where nobody sets it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import product

from pytest_vlmrobust.backends import BackendOptions, open_backend, resolve
from pytest_vlmrobust.backends.transformers import TransformersBackend
from pytest_vlmrobust.core.prediction import Prediction, Request
from pytest_vlmrobust.datasets import resolve as resolve_dataset
from pytest_vlmrobust.evaluation.run.prompts import prompt, scorable_choices

SIZES = (8, 16, 32, 64, 128)
USUAL = 16


def main(arguments: Sequence[str]) -> int:
    """Measures and prints what the arguments ask for.

    Returns:
        The exit status, 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N", help="threads of torch")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="times that each combination answers")
    parser.add_argument("--count", type=int, default=384, metavar="N", help="questions")
    options = parser.parse_args(arguments)
    requests = _requests(options.count)
    cases = list(product(options.threads, SIZES))
    took: dict[tuple[int, int], list[tuple[float, float]]] = {case: [] for case in cases}
    answers: dict[tuple[int, int], list[Prediction]] = {}
    backends = {case: _backend(*case) for case in cases}
    for _, case in product(range(options.turns), cases):
        answers[case], *times = _answered(backends[case], requests, case[0])
        took[case].append((times[0], times[1]))
    print(f"{'threads':>8}{'batch':>7}{'requests/s':>12}{'ratio':>8}{'CPU s':>8}{'text':>6}{'log p':>10}")
    for case in cases:
        clock, processor = min(took[case])
        ratio = min(took[case[0], USUAL])[0] / clock
        texts, apart = _differences(answers[cases[0]], answers[case])
        print(f"{case[0]:8}{case[1]:7}{len(requests) / clock:12.1f}{ratio:8.2f}{processor:8.2f}{texts:6}{apart:10.1e}")
    backend = _backend(options.threads[0], "auto")
    for _ in range(options.turns):
        _answered(backend, requests, options.threads[0])
    print("auto:", backend.describe()["batches"])
    return 0


def _requests(count: int) -> list[Request]:
    samples = [sample for name in ("shapes", "words") for sample in resolve_dataset(name).samples()]
    return [
        Request(
            f"{number:04}",
            tuple(image.load() for image in sample.images),
            prompt(sample, "direct"),
            scorable_choices(sample, "direct"),
            sample_id=sample.id,
        )
        for number, sample in enumerate((samples * (count // len(samples) + 1))[:count])
    ]


def _backend(threads: int, size: int | str) -> TransformersBackend:
    backend = open_backend(resolve("tiny"), BackendOptions(batch_size=size, threads=threads, device="cpu"))
    if not isinstance(backend, TransformersBackend):
        raise TypeError(f"the embedded model runs in {type(backend).__name__}; expected TransformersBackend")
    return backend


def _answered(backend: TransformersBackend, requests: Sequence[Request], threads: int) -> tuple[list[Prediction], float, float]:
    """Returns the answers, and the seconds by the clock and of CPU time that they took."""
    import torch

    backend.infer(requests[:1])  # the weights load
    torch.set_num_threads(threads)
    clock, processor = time.perf_counter(), time.process_time()
    answers: list[Prediction] = []
    while len(answers) < len(requests):
        answers += backend.infer(requests[len(answers) : len(answers) + backend.batch_size])
    return answers, time.perf_counter() - clock, time.process_time() - processor


def _differences(first: Sequence[Prediction], other: Sequence[Prediction]) -> tuple[int, float]:
    pairs = list(zip(first, other, strict=True))
    apart = max(abs(a.logprobs[letter] - b.logprobs[letter]) for a, b in pairs for letter in a.logprobs)
    return sum(a.text != b.text for a, b in pairs), apart


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
