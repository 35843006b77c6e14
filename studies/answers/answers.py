"""How many answers are read rightly, and how many wrongly, beside the functions of VLMEvalKit and lmms-eval.

    python studies/answers/answers.py                                                      # ours alone, in seconds
    python studies/answers/answers.py --vlmevalkit vlmeval/bin/python --lmms-eval lmms/bin/python

Each peer is installed from the package index in an environment of its own, whose Python is named; ``answers_peer.py`` calls its
function there. Two sets: ``tests/golden/answers.jsonl`` (from public sources, without what is disputed) and ``answers.csv``
(written by hand, and looked at while the rules were written). Right is the letter, or nothing where nothing single is said; wrong
is another letter, or a letter where nothing single is said. At last the CPU time of 10,000 golden answers, and of 10,000 that
give their reasons first. The program ends with 1 where ours reads a golden answer wrongly.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path

from pytest_vlmrobust.scoring import extract_choice, extract_yes_no

HERE = Path(__file__).parent
OPTIONS = {"A": "cat", "B": "dog", "C": "red car", "D": "12"}
REASONS = (
    "Let me look at the picture carefully. In the foreground there is an animal with floppy ears and a wagging tail.",
    "Option A says that it is a cat, which has pointed ears and whiskers. However, the animal here does not have whiskers.",
    "Option C is a red car, but no vehicle is visible. Option D is a number, which makes no sense here.",
    "The animal appears to be barking at something outside the frame. Its fur is brown and short, and it wears a collar.",
)
"""Parts of an answer with its reasons."""

Question = tuple[str, str, dict[str, str], str]
Read = Callable[[Sequence[Question]], Sequence[str | None]]


def written() -> list[tuple[Question, str]]:
    """Returns the answers that were written by hand, and what a person reads."""
    with (HERE / "answers.csv").open(encoding="utf-8", newline="") as stream:
        return [((row["kind"], row["text"], OPTIONS, ""), row["answer"]) for row in csv.DictReader(stream)]


def golden() -> list[tuple[Question, str]]:
    """Returns the golden answers that are not disputed, and what a person reads."""
    lines = (HERE.parents[1] / "tests" / "golden" / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["call"] in ("choice", "yes_no") and "disputed" not in row]
    return [
        (
            (row["call"], row["text"], row.get("options", {}), *row.get("more", ("",))),
            "" if row["expected"] in (None, "ambiguous") else row["expected"],
        )
        for row in rows
    ]


def ours(questions: Sequence[Question]) -> list[str]:
    """Returns what our rules read."""
    return [
        (extract_choice(text, options) if kind == "choice" else extract_yes_no(text, question)).answer or ""
        for kind, text, options, question in questions
    ]


def peer(python: str, name: str) -> Read:
    """Returns the reader of a peer that is installed in the environment of ``python``."""

    def read(questions: Sequence[Question]) -> list[str | None]:
        command = [python, str(HERE / "answers_peer.py"), name]
        content = json.dumps([question[:3] for question in questions])
        process = subprocess.run(command, input=content, capture_output=True, text=True, check=False)  # noqa: S603 - named by the caller
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{process.stderr[-2000:]}")
        answers: list[str | None] = json.loads(process.stdout)
        return answers

    return read


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vlmevalkit", help="Python of an environment with VLMEvalKit")
    parser.add_argument("--lmms-eval", help="Python of an environment with lmms-eval")
    parser.add_argument("--show", action="store_true", help="print what ours reads otherwise than a person")
    chosen = parser.parse_args(arguments)
    readers: dict[str, Read] = {"ours": ours}
    readers |= {"vlmevalkit": peer(chosen.vlmevalkit, "vlmevalkit")} if chosen.vlmevalkit else {}
    readers |= {"lmms-eval": peer(chosen.lmms_eval, "lmms-eval")} if chosen.lmms_eval else {}
    failed = False
    print(f"{'set':<10}{'reader':<12}{'asked':>7}{'right':>7}{'unread':>8}{'wrong':>7}")
    for name, rows in (("golden", golden()), ("written", written())):
        for reader, read in readers.items():
            pairs = list(zip(read([question for question, _ in rows]), rows, strict=True))
            others = [(said, *row) for said, row in pairs if said is not None and said != row[1]]
            count = Counter("wrong" if said else "unread" for said, _, _ in others)
            total = sum(said is not None for said, _ in pairs)
            print(f"{name:<10}{reader:<12}{total:>7}{total - len(others):>7}{count['unread']:>8}{count['wrong']:>7}")
            failed = failed or (reader == "ours" and name == "golden" and count["wrong"] > 0)
            for said, question, expected in others if chosen.show and reader == "ours" else ():
                print(f"  {said or '-'} for {expected or '-'}: {question[1]!r}")
    long = [
        (
            "choice",
            f"{' '.join(REASONS[(number + place) % 4] for place in range(4))}\n\nSo, step {number}: the answer is **B**.",
            OPTIONS,
            "",
        )
        for number in range(10_000)
    ]
    for about, questions in (
        ("golden answers", list(islice(cycle(question for question, _ in golden()), 10_000))),
        ("with reasons", long),
    ):
        begin = time.process_time()
        ours(questions)
        seconds, length = time.process_time() - begin, sum(len(question[1]) for question in questions) // len(questions)
        print(f"10,000 {about} of {length} characters: {seconds:.2f} s of CPU time")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
