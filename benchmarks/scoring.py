"""CPU time of reading answers, beside one plain regular expression over the same texts; and how it grows with a text's length.

    python benchmarks/scoring.py                # every reader, in about a minute
    python benchmarks/scoring.py --answers 500  # fewer answers a turn

The peer is the shortest reader that anybody would write, a search for ``answer is X`` or a letter that stands alone. It reads
far fewer answers rightly; it is here so that figures of two machines can be compared. Ours and the peer take turns, and the
fastest turn of each counts. The second table repeats hostile pieces of text: where a text of twice the length takes more than
three times as long, a pattern backtracks, and the program ends with 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from pytest_vlmrobust.scoring import extract_boxes, extract_choice, extract_open, extract_yes_no

Reader = Callable[[str], object]

OPTIONS = {"A": "a cat", "B": "a dog", "C": "a bird", "D": "a fish"}
ANSWERS = (
    "B",
    "The answer is **B**.",
    "A dog is running in the park",
    "I think it is a dog, not a cat",
    "C and D are wrong so B",
    "<think>It barks, so no cat.</think>\nAnswer: yes",
    '{"left_eye": [10, 20, 30, 40]}',
)
HOSTILE = (
    "<think>",
    "\\boxed{",
    "so ",
    "A ",
    "the answer is ",
    "(",
    "**",
    "A and ",
    "it is ",
    "1,",
    "{",
    '{"a":',
    "[0,1] ",
    "no, ",
)
TURNS = 5
LENGTH = 25_000
"""Characters of the shorter hostile text."""
MOST_GROWTH = 3.0
LEAST_SECONDS = 0.005
"""Below this a doubled time is noise."""
_PEER = re.compile(r"answer is\W*([A-D])\b|\b([A-D])\b", re.IGNORECASE)


def readers() -> dict[str, Reader]:
    """Returns the readers of answers by name."""
    return {
        "choice": lambda text: extract_choice(text, OPTIONS),
        "yes_no": extract_yes_no,
        "open": extract_open,
        "boxes": lambda text: extract_boxes(text, ("left_eye", "nose")),
    }


def fastest(calls: Mapping[str, Reader], texts: Sequence[str]) -> dict[str, float]:
    """Returns the CPU seconds of each call over all texts, in its fastest turn."""
    turns: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            begin = time.process_time()
            for text in texts:
                call(text)
            turns[name].append(time.process_time() - begin)
    return {name: min(values) for name, values in turns.items()}


def growth(read: Reader, piece: str) -> tuple[float, float]:
    """Returns the CPU seconds of a hostile text of twice ``LENGTH`` characters, and how many times those of half of it."""
    short, long = (fastest({"": read}, [piece * (size // len(piece))])[""] for size in (LENGTH, 2 * LENGTH))
    return long, long / max(short, 1e-9)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints both tables and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=2_000, help="answers that each reader reads in a turn")
    count = parser.parse_args(arguments).answers
    texts = [f"{ANSWERS[number % len(ANSWERS)]} {number}" for number in range(count)]
    by_reader = fastest({"peer": _PEER.search, **readers()}, texts)
    peer = by_reader.pop("peer")
    print(f"{'reader':<10}{'s / 10,000':>12}{'times the peer':>16}")
    for name, seconds in by_reader.items():
        print(f"{name:<10}{seconds / count * 10_000:>12.2f}{seconds / peer:>16.0f}")
    print(f"\n{'reader':<10}{'slowest piece':<18}{'seconds':>10}{'growth':>8}")
    backtracks = False
    for name, read in readers().items():
        rows = [(*growth(read, piece), piece) for piece in HOSTILE]
        seconds, times, piece = max(rows)
        slow = [row for row in rows if row[0] > LEAST_SECONDS and row[1] > MOST_GROWTH]
        backtracks = backtracks or bool(slow)
        print(f"{name:<10}{piece!r:<18}{seconds:>10.3f}{times:>8.1f}")
        for longer, factor, culprit in slow:
            print(f"{'':<10}{culprit!r} takes {factor:.1f} times as long at twice the length ({longer:.3f} s)")
    return int(backtracks)


if __name__ == "__main__":
    sys.exit(main())
