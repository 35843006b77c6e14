"""What each way of running one model answers in a second: in this process, in two processes, in actors of Ray, behind a server.

    python studies/performance/engines.py                                  # this process, and two parts in a process each
    python studies/performance/engines.py --actors 2                       # also on a Ray cluster that is started here
    python studies/performance/engines.py --served NAME --models FILE --server-pid PID  # also a server that runs here

The embedded model is asked about the embedded shapes, clean and inverted, in batches of 16, from as many threads as each way has
lanes. What is loaded or started once is left out: the first batches are not timed. Nothing is stored or judged, and one thread
of torch computes each batch. Answers a second are by the clock, so the load of the machine is printed beside them. Processor time
compares on a machine that does other work as well: that of this process, and that of the processes that compute for it, as Linux
counts it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.backends import BackendOptions, Cluster, open_backend, resolve
from pytest_vlmrobust.backends.contract import traits_of
from pytest_vlmrobust.core.prediction import ModelRef, Request
from pytest_vlmrobust.datasets import resolve as open_dataset
from pytest_vlmrobust.evaluation.run.prompts import prompt, scorable_choices

BATCH = 16


@dataclass(frozen=True, slots=True)
class Cost:
    """What the questions took, in seconds, without the first ones."""

    lanes: str
    wall: float
    here: float
    """Processor time of the process that asks."""
    elsewhere: float = 0.0
    """Processor time of those that answer for it."""


def processor_seconds(processes: Sequence[int]) -> float:
    """Returns the processor time of processes, with that of children that ended."""
    seconds = 0.0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return seconds


def actors() -> list[int]:
    """Returns the process ids of actors of Ray that host a model."""
    numbers = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_text().startswith("ray::Host"):
                numbers.append(int(folder.name))
        except OSError:
            continue  # it ended meanwhile
    return numbers


def requests(count: int) -> list[Request]:
    """Returns so many questions with their pictures."""
    samples = open_dataset("shapes").samples()
    questions = []
    for setting in ("clean", "invert"):
        for sample in samples:
            picture = (
                sample.images[0].load() if setting == "clean" else perturbations.get(setting)(sample.images[0].load(), seed=1234)
            )
            questions.append(
                Request(f"{setting}{sample.id}", (picture,), prompt(sample, "direct"), scorable_choices(sample, "direct"))
            )
    return [questions[number % len(questions)] for number in range(count)]


def measured(ref: ModelRef, cluster: Cluster | None, questions: Sequence[Request], server: int = 0) -> Cost:
    """Returns what the questions cost; ``server`` is the process id of one on this machine."""
    backend = open_backend(ref, BackendOptions(device="cpu", batch_size=BATCH, cluster=cluster))
    traits = traits_of(backend)
    prepare, infer = traits.prepare, traits.infer_prepared
    if prepare is None or infer is None:
        raise TypeError(f"{ref.name} prepares nothing")
    size = 1 if traits.batch_size == 1 else BATCH
    batches = [questions[start : start + size] for start in range(0, len(questions), size)]

    def answer(batch: Sequence[Request]) -> None:
        wrong = [answer.error for answer in infer([prepare(request) for request in batch]) if answer.error]
        if wrong:
            raise RuntimeError(wrong[0])

    answer(batches[0])
    lanes = traits.lanes
    with ThreadPoolExecutor(lanes) as threads:
        list(threads.map(answer, batches[: 2 * lanes]))
        others = [server] if server else actors() if cluster else []
        began, here, elsewhere = time.perf_counter(), time.process_time(), processor_seconds(others)
        list(threads.map(answer, batches))
        cost = Cost(
            f"{lanes} in flight",
            time.perf_counter() - began,
            time.process_time() - here,
            processor_seconds(others) - elsewhere,
        )
    backend.close()
    return cost


def in_parts(count: int) -> Cost:
    """Returns the longest time that one of two processes took for half of the questions, and the processor time of both."""
    command = [sys.executable, __file__, "--only-here", "--count", str(count // 2)]
    parts = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE) for _ in range(2)]  # noqa: S603 - this program
    costs = [tuple(map(float, part.communicate()[0].split()[-2:])) for part in parts]
    return Cost("2 processes", max(wall for wall, _ in costs), 0.0, sum(cpu for _, cpu in costs))


def main() -> None:
    """Prints a table, or with ``--only-here`` the seconds alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=800, help="questions")
    parser.add_argument("--actors", type=int, default=0, help="actors of a Ray cluster that is started here")
    parser.add_argument("--served", default="", metavar="NAME", help="a server that runs already, as after --vlm")
    parser.add_argument("--models", type=Path, metavar="FILE", help="a models file that describes it")
    parser.add_argument("--server-pid", type=int, default=0, metavar="PID", help="its process, where it is on this machine")
    parser.add_argument("--only-here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    questions, tiny = requests(options.count), resolve("tiny")
    if options.only_here:
        cost = measured(tiny, None, questions)
        print(cost.wall, cost.here)
        return
    ways: dict[str, Callable[[], Cost]] = {
        "this process": lambda: measured(tiny, None, questions),
        "two parts": lambda: in_parts(options.count),
    }
    if options.actors:
        ways[f"{options.actors} actors of Ray"] = lambda: measured(tiny, Cluster("local", options.actors), questions)
    if options.served:
        served = resolve(options.served, models_file=options.models)
        ways["a server"] = lambda: measured(served, None, questions, options.server_pid)
    print("| way | lanes | processor ms an answer: asking | computing | answers a second | load of the machine |")
    print("|---|---|--:|--:|--:|--:|")
    for way, run in ways.items():
        cost = run()
        here, elsewhere = (1000 * seconds / options.count for seconds in (cost.here, cost.elsewhere))
        speed, load = options.count / cost.wall, os.getloadavg()[0]
        print(f"| {way} | {cost.lanes} | {here:.1f} | {elsewhere:.1f} | {speed:.1f} | {load:.1f} |", flush=True)


if __name__ == "__main__":
    main()
