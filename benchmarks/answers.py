"""How many answers are read rightly, and how many wrongly, beside the functions of VLMEvalKit and lmms-eval.

    python benchmarks/answers.py                                                      # ours alone, in seconds
    python benchmarks/answers.py --vlmevalkit vlmeval/bin/python --lmms-eval lmms/bin/python

Each peer is installed from the package index in an environment of its own, whose Python is named; ``answers_peer.py`` calls its
function there. Three sets: ``answers.csv`` (written by hand, and looked at while the rules were written, so that it says how the
peers read what ours were made for); ``tests/golden/extraction.csv``; and answers that are composed of the phrases of every
language, of which ours must read none as another letter. Right is the letter, or nothing where nothing single is said; wrong is
another letter, or a letter where nothing single is said. At last the CPU time of 10,000 answers of the first set, and of
10,000 that give their reasons first. The program ends with 1 where a peer reads a set better, or a composed answer is read as
another letter.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pytest_vlmrobust.scoring import extract_choice, extract_yes_no
from pytest_vlmrobust.scoring.phrases import shipped

HERE = Path(__file__).parent
OPTIONS = {"A": "cat", "B": "dog", "C": "red car", "D": "12"}
SAYING = (
    "{answer} {is} {letter}",
    "{answer}: {letter}",
    "{choose} {letter}",
    "{so} {letter}",
    "{option} {letter} {is} {correct}",
)
REASONS = (
    "Let me look at the picture carefully.",
    "In the foreground there is an animal with floppy ears and a wagging tail.",
    "The background shows a garden with a wooden fence and some flowers.",
    "Option A says that it is a cat, which has pointed ears and whiskers.",
    "However, the animal here does not have whiskers.",
    "Option C is a red car, but no vehicle is visible.",
    "Option D is a number, which makes no sense here.",
    "The animal appears to be barking at something outside the frame.",
    "Its fur is brown and short, and it wears a collar.",
    "Therefore, considering the shape of the snout, the size and the behaviour, it resembles a dog most.",
)
"""Sentences of an answer with its reasons."""
ENDS = ("Step {}: So the answer is **B**.", "After {} looks, I choose (B).", "{} signs of a dog. Answer: B")
DENYING = ("{answer} {is_not} {letter}", "{letter} {wrong}")

Question = tuple[str, str, dict[str, str]]
Read = Callable[[Sequence[Question]], Sequence[str | None]]


def written() -> list[tuple[Question, str]]:
    """Returns the answers that were written by hand, and what a person reads."""
    with (HERE / "answers.csv").open(encoding="utf-8", newline="") as stream:
        return [((row["kind"], row["text"], OPTIONS), row["answer"]) for row in csv.DictReader(stream)]


def golden() -> list[tuple[Question, str]]:
    """Returns the rows of the golden table about options, yes and no."""
    with (HERE.parent / "tests" / "golden" / "extraction.csv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["kind"] != "open"]
    return [((row["kind"], row["text"], json.loads(row["options"] or "{}")), row["answer"]) for row in rows]


def composed() -> list[tuple[Question, str]]:
    """Returns an answer and a denial, of every two phrases of each language that fit together."""
    return [
        (("choice", text, OPTIONS), expected)
        for language in shipped().languages.values()
        for templates, expected in ((SAYING, "B"), (DENYING, ""))
        for template in templates
        for text in _filled(template, language.phrases, spaces=language.spaces)
    ]


def reasoned() -> list[Question]:
    """Returns 10,000 different answers that give their reasons, option by option, before they say which one it is."""
    return [
        (
            "choice",
            f"{' '.join(REASONS[(number + place) % len(REASONS)] for place in range(10))}\n\n{end.format(number)}",
            OPTIONS,
        )
        for number, end in zip(range(10_000), itertools.cycle(ENDS))
    ]


def _filled(template: str, phrases: dict[str, tuple[str, ...]], *, spaces: bool) -> Iterator[str]:
    roles = [
        role for role in ("answer", "is", "is_not", "choose", "so", "option", "correct", "wrong") if f"{{{role}}}" in template
    ]
    for words in itertools.product(*(phrases.get(role, ())[:6] for role in roles)):
        text = template.format(letter="B", **dict(zip(roles, words, strict=True)))
        yield text if spaces else text.replace(" ", "")


def ours(questions: Sequence[Question]) -> list[str]:
    """Returns what our rules read."""
    return [
        (extract_choice(text, options) if kind == "choice" else extract_yes_no(text)).answer or ""
        for kind, text, options in questions
    ]


def peer(python: str, name: str) -> Read:
    """Returns the reader of a peer that is installed in the environment of ``python``."""

    def read(questions: Sequence[Question]) -> list[str | None]:
        command = [python, str(HERE / "answers_peer.py"), name]
        found = subprocess.run(command, input=json.dumps(questions), capture_output=True, text=True, check=False)  # noqa: S603 - named by the caller
        if found.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {found.returncode}:\n{found.stderr[-2000:]}")
        answers: list[str | None] = json.loads(found.stdout)
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
    for name, rows in (("written", written()), ("golden", golden()), ("composed", composed())):
        rights: dict[str, float] = {}
        for reader, read in readers.items():
            pairs = [
                (said, expected, question)
                for said, (question, expected) in zip(read([question for question, _ in rows]), rows, strict=True)
                if said is not None
            ]
            right = sum(said == expected for said, expected, _ in pairs)
            wrong = sum(bool(said) and said != expected for said, expected, _ in pairs)
            rights[reader] = right / len(pairs)
            failed = failed or (reader == "ours" and name == "composed" and wrong > 0)
            print(f"{name:<10}{reader:<12}{len(pairs):>7}{right:>7}{len(pairs) - right - wrong:>8}{wrong:>7}")
            if chosen.show and reader == "ours":
                print(
                    *(
                        f"  {said or '-'} for {expected or '-'}: {question[1]!r}"
                        for said, expected, question in pairs
                        if said != expected
                    ),
                    sep="\n",
                )
        failed = failed or max(rights, key=lambda reader: rights[reader]) != "ours"
    questions = [question for question, _ in written()]
    print(f"10,000 written answers: {_seconds((questions * (10_000 // len(questions) + 1))[:10_000]):.2f} s of CPU time")
    long = reasoned()
    characters = sum(len(text) for _, text, _ in long) // len(long)
    print(f"10,000 answers of {characters} characters, with their reasons: {_seconds(long):.2f} s of CPU time")
    return int(failed)


def _seconds(questions: Sequence[Question]) -> float:
    begin = time.process_time()
    ours(questions)
    return time.process_time() - begin


if __name__ == "__main__":
    sys.exit(main())
