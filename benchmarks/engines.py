"""What each way of running one model answers in a second: in this process, in two processes, in actors of Ray, behind a server.

    python benchmarks/engines.py                                  # this process, and two parts in a process each
    python benchmarks/engines.py --actors 2                       # also on a Ray cluster that is started here
    python benchmarks/engines.py --served openai:URL#MODEL@1      # also a server that runs already (vlmrobust serve-command)

The embedded model is asked about the embedded shapes, clean and inverted, in batches of 16, from as many threads as each way has
lanes. What is loaded or started once is left out: the first batches are not timed. Nothing is stored or judged, and one thread
of torch computes each batch. Times are by the clock, so the load of the machine is printed beside them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.backends import BackendOptions, Cluster, open_backend, resolve
from pytest_vlmrobust.backends.protocol import PreparingBackend
from pytest_vlmrobust.core.prediction import Request
from pytest_vlmrobust.datasets import resolve as open_dataset
from pytest_vlmrobust.evaluation.run.prompts import prompt, scorable_choices

BATCH = 16


def requests(count: int) -> list[Request]:
    """Returns so many questions with their pictures."""
    samples = open_dataset("shapes").samples()
    found = []
    for setting in ("clean", "invert"):
        for sample in samples:
            picture = (
                sample.images[0].load() if setting == "clean" else perturbations.get(setting)(sample.images[0].load(), seed=1234)
            )
            found.append(
                Request(f"{setting}{sample.id}", (picture,), prompt(sample, "direct"), scorable_choices(sample, "direct"))
            )
    return [found[number % len(found)] for number in range(count)]


def measured(name: str, cluster: Cluster | None, asked: Sequence[Request]) -> tuple[float, str]:
    """Returns the seconds that the questions took, without the first ones, and how many lanes asked them."""
    backend = open_backend(resolve(name), BackendOptions(device="cpu", batch_size=BATCH, cluster=cluster))
    if not isinstance(backend, PreparingBackend):
        raise TypeError(f"{name} prepares nothing")
    size = 1 if getattr(backend, "batch_size", BATCH) == 1 else BATCH
    batches = [asked[start : start + size] for start in range(0, len(asked), size)]

    def answer(batch: Sequence[Request]) -> None:
        wrong = [one.error for one in backend.infer_prepared([backend.prepare(request) for request in batch]) if one.error]
        if wrong:
            raise RuntimeError(wrong[0])

    answer(batches[0])
    lanes = backend.lanes
    with ThreadPoolExecutor(lanes) as threads:
        list(threads.map(answer, batches[: 2 * lanes]))
        began = time.perf_counter()
        list(threads.map(answer, batches))
        seconds = time.perf_counter() - began
    backend.close()
    return seconds, f"{lanes} in flight"


def in_parts(count: int) -> tuple[float, str]:
    """Returns the longest time that one of two processes took for half of the questions."""
    command = [sys.executable, __file__, "--only-here", "--count", str(count // 2)]
    parts = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE) for _ in range(2)]  # noqa: S603 - this program
    return max(float(part.communicate()[0].split()[-1]) for part in parts), "2 processes"


def main() -> None:
    """Prints a table, or with ``--only-here`` the seconds alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=800, help="questions")
    parser.add_argument("--actors", type=int, default=0, help="actors of a Ray cluster that is started here")
    parser.add_argument("--served", default="", metavar="openai:URL#MODEL@REVISION", help="a server that runs already")
    parser.add_argument("--only-here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    asked = requests(options.count)
    if options.only_here:
        print(measured("tiny", None, asked)[0])
        return
    ways = {"this process": lambda: measured("tiny", None, asked), "two parts": lambda: in_parts(options.count)}
    if options.actors:
        ways[f"{options.actors} actors of Ray"] = lambda: measured("tiny", Cluster("local", options.actors), asked)
    if options.served:
        ways["a server"] = lambda: measured(options.served, None, asked)
    print("| way | lanes | answers a second | load of the machine |\n|---|---|--:|--:|")
    for way, run in ways.items():
        seconds, lanes = run()
        print(f"| {way} | {lanes} | {options.count / seconds:.1f} | {os.getloadavg()[0]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
