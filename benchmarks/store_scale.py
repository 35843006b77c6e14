"""What a store takes on disk and in processor time, and what it takes to merge two halves of it.

    python benchmarks/store_scale.py --answers 100000
    python benchmarks/store_scale.py --answers 10000000 --merge-only

Answers are such as a model in this process gives to a choice of four letters, each with the view that it is about. Processor time
of this one thread is printed, for wall time depends on what else the machine does. With ``--merge-only`` the two parts are
written by SQL, in order of keys, so that little time goes into what is merged; every other key is the other part's.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction
from pytest_vlmrobust.store import Store
from pytest_vlmrobust.store.merging import merge_stores
from pytest_vlmrobust.store.predictions import encode_prediction

BATCH = 32
DETAILS: dict[str, str | int | float] = {
    "prompt_tokens": 325,
    "batch_rows": 16,
    "visual_tokens": 256,
    "image_grid_thw": "1x32x32",
    "image_sizes": "448x448",
}


def digest(*parts: object) -> str:
    """Returns a SHA-256 in hex, as keys, recipes and pictures have."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def answer(number: int) -> Prediction:
    """Returns an answer by letters."""
    logprobs = {letter: -0.123456789012 * (place + 1) - number * 1e-9 for place, letter in enumerate("ABCD")}
    return Prediction("A", LETTER_LOGITS, logprobs=logprobs, details=DETAILS)


def fill(directory: Path, first: int, count: int) -> None:
    """Stores answers in batches, as a run does: 900 samples under each setting."""
    with Store.open(directory) as store:
        for start in range(first, first + count, BATCH):
            numbers = range(start, min(start + BATCH, first + count))
            store.put_digests({digest("recipe", n): (digest("pixels", n),) for n in numbers})
            keys = {digest("key", n): answer(n) for n in numbers}
            context = {"model": "m", "dataset": "d", "setting": f"setting-{start // 900}"}
            store.claim(keys, "owner", 60.0)
            store.put_many(keys, context=context)


def write(directory: Path, at: int, count: int) -> None:
    """Writes a part as ``fill`` leaves one, in order of keys."""
    Store.open(directory).close()
    numbers = "with recursive numbers(n) as (select 0 union all select n + 1 from numbers where n < ?) "
    key, rest = f"printf('%016x', (n * 2 + {at}) * 400000000000) || ?", digest("rest")[16:]
    with closing(sqlite3.connect(directory / "predictions.sqlite")) as connection, connection:
        contexts = [(f'{{"dataset":"d","model":"m","setting":"setting-{at}-{n}"}}',) for n in range(count // 900 + 1)]
        connection.executemany("insert into contexts (content) values (?)", contexts)
        connection.execute(
            f"{numbers} insert into predictions select {key}, ?, n / 900 + 1 from numbers",  # noqa: S608 - of ours
            (count - 1, rest, encode_prediction(answer(12345))),
        )
        connection.execute(f"{numbers} insert into views select {key}, ? from numbers", (count - 1, rest, digest("pixels")))  # noqa: S608


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Returns the processor seconds and the wall seconds of a piece of work."""
    began, wall = time.process_time(), time.monotonic()
    work()
    return time.process_time() - began, time.monotonic() - wall


def main() -> None:
    """Prints one row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--merge-only", action="store_true", help="write the parts by SQL: only the merge is measured")
    options = parser.parse_args()
    count = options.answers
    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder, "one"), Path(folder, "two")]
        half = count // 2
        storing = "not measured"
        if options.merge_only:
            for at, part in enumerate(parts):
                write(part, at, half)
        else:
            written = sum(timed(partial(fill, part, at * half, half))[0] for at, part in enumerate(parts))
            storing = f"{written / count * 1e6:.0f} µs"
        merging = timed(lambda: merge_stores(parts, Path(folder, "all")))
        size = Path(folder, "all", "predictions.sqlite").stat().st_size
        merge = f"{merging[0]:.1f} s ({merging[1]:.0f} s wall)"
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"| {count:,} | {size / count:.0f} B | {storing} | {merge} | {memory} MiB |", flush=True)


if __name__ == "__main__":
    main()
