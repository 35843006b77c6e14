"""From the rows of any file format to samples: the checks that do not depend on the format."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.sample import ImageSource, Sample
from pytest_vlmrobust.core.words import quantity, without_halves

from .files import Place, Problems

TASKS = ("choice", "yes_no", "open")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
YES_NO = {"yes", "no"}


@dataclass(frozen=True, slots=True)
class Draft:
    """One row as it was written, before anything is known to be right.

    ``answer`` holds several texts where the row lists several accepted answers. ``task`` is empty where the row does not
    say. ``shown`` replaces the options in the prompt, where another tool's reading was asked for.
    """

    place: Place
    id: str
    images: tuple[ImageSource, ...]
    question: str
    answer: str | tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    category: str = ""
    group: str = ""
    hint: str = ""
    task: str = ""
    changed_by: frozenset[str] = frozenset()
    shown: Mapping[str, str] | None = None
    scorer: str = ""
    instruction: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)


def finish(drafts: Sequence[Draft], problems: Problems, id_column: str) -> tuple[Sample, ...]:
    """Returns one sample per draft, having noted every problem.

    A row with options is a choice. Rows without options ask yes or no when every answer among them is Yes or No (in any
    case), and are open otherwise.

    Raises:
        DatasetError: there are problems, these ones or any that were noted before.
    """
    _note_unfit_ids(drafts, problems, id_column)
    without = [draft for draft in drafts if not draft.options and not draft.task]
    default = "yes_no" if all(_is_yes_no(draft.answer) for draft in without) else "open"
    samples = tuple(_sample(draft, draft.task or ("choice" if draft.options else default), problems) for draft in drafts)
    problems.raise_any()
    return samples


def _note_unfit_ids(drafts: Sequence[Draft], problems: Problems, id_column: str) -> None:
    first: dict[str, int] = {}
    for draft in drafts:
        if not draft.id:
            problems.add(draft.place, id_column, "", "a value: predictions are kept under it")
        elif without_halves(draft.id) != draft.id:
            problems.add(draft.place, id_column, draft.id, "text without half of a surrogate pair, which no file can hold")
        elif draft.id in first:
            problems.add(draft.place, id_column, draft.id, f"a value of its own (line {first[draft.id]} has it too)")
        else:
            first[draft.id] = draft.place.line


def _sample(draft: Draft, task: str, problems: Problems) -> Sample:
    if not draft.question.strip():
        problems.add(draft.place, "question", draft.question, "the text of a question")
    _check_options(draft, task, problems)
    return Sample(
        id=draft.id,
        images=draft.images,
        question=draft.question,
        target=_target(draft, task, problems),
        task=task,
        options=dict(draft.options if draft.shown is None else draft.shown),
        category=draft.category,
        group=draft.group,
        hint=draft.hint,
        changed_by=draft.changed_by,
        scorer=draft.scorer,
        instruction=draft.instruction,
        keys=draft.keys,
    )


def _check_options(draft: Draft, task: str, problems: Problems) -> None:
    if task == "choice" and len(draft.options) < 2:
        problems.add(draft.place, "options", dict(draft.options), f"two options or more{'' if draft.task else ', or none'}")
    if task != "choice" and draft.options:
        problems.add(draft.place, "options", dict(draft.options), f"none, because the task is {task!r}")
    if draft.options and draft.shown is not None and not draft.shown:
        problems.add(draft.place, "options", dict(draft.options), "one option at least that VLMEvalKit does not drop")


def _target(draft: Draft, task: str, problems: Problems) -> str | tuple[str, ...]:
    answer = draft.answer.strip() if isinstance(draft.answer, str) else draft.answer
    if task == "choice" and answer not in draft.options:
        problems.add(draft.place, "answer", answer, f"one of {', '.join(draft.options)}")
    elif task == "yes_no" and not _is_yes_no(answer):
        problems.add(draft.place, "answer", answer, "Yes or No")
    elif not all(text.strip() for text in ([answer] if isinstance(answer, str) else answer)):
        problems.add(draft.place, "answer", answer, "an answer, or a list of accepted answers: without one nothing can be scored")
    return answer.lower() if task == "yes_no" and isinstance(answer, str) else answer


def _is_yes_no(answer: str | tuple[str, ...]) -> bool:
    return isinstance(answer, str) and answer.strip().lower() in YES_NO


# Options that are written at the end of a question instead of in columns of their own.


_HEADING = re.compile(r"\s*(?:options|choices)\s*:?\s*\Z", re.IGNORECASE)
_LABELS = (r"(?m:^)[ \t]*\(?{letter}[).:]\s+", r"(?:(?<=\s)|(?<=\A)|(?<=[,;:]))\(?{letter}[).:]\s+")
"""A label that begins a line, and one anywhere."""


def options_in(question: str) -> tuple[str, dict[str, str]]:
    r"""Returns the question without its options, and the options by letter; none unless two stand there in order.

    Labels are ``A.``, ``A:``, ``A)`` and ``(A)``, each at the beginning of a line, or else all after white space, a comma or a
    semicolon; the last option ends with its line.

    >>> options_in("Which way?\nA. Left.\nB. Right.")
    ('Which way?', {'A': 'Left.', 'B': 'Right.'})
    >>> options_in("Who? Options: A: the cat, B: the dog, C: nobody")
    ('Who?', {'A': 'the cat', 'B': 'the dog', 'C': 'nobody'})
    >>> options_in("Is plan A. better?")
    ('Is plan A. better?', {})
    """
    labels = next(filter(None, (_labels(question, label) for label in _LABELS)), [])
    if not labels:
        return question, {}
    ends = [label.start() for label in labels[1:]] + [len(question)]
    texts = [question[label.end() : end] for label, end in zip(labels, ends, strict=True)]
    texts[-1] = texts[-1].strip().partition("\n")[0]
    options = {letter: text.strip().rstrip(",;").strip() for letter, text in zip(LETTERS, texts, strict=False)}
    return _HEADING.sub("", question[: labels[0].start()]).strip(), options


def _labels(question: str, label: str) -> list[re.Match[str]]:
    """Returns where the labels A, B, … stand, each after the one before; the last A that a B follows begins the list."""
    for first in reversed(list(re.finditer(label.format(letter="A"), question))):
        labels = [first]
        for letter in LETTERS[1:]:
            following = re.compile(label.format(letter=letter)).search(question, labels[-1].end())
            if following is None:
                break
            labels.append(following)
        if len(labels) > 1:
            return labels
    return []


# Pre-sized pictures: rows that ask one question about pictures which were resized beforehand are one sample.


def put_together(samples: Iterable[Sample], key: str, path: Path | str) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """Returns one sample for the rows of each question, and what a reader should know about them.

    It is the row with the largest pictures, and has those of every row by their long edge. Rows of one group are one question;
    where a group has a size more than once (the same words about another picture), rows are told apart by their order.

    Args:
        samples: one for each row, in the order of the file.
        key: which of ``Sample.keys`` says for which long edge, in pixels, the pictures of a row were made.
        path: the file, for messages.

    Raises:
        DatasetError: a row does not say so in whole pixels.
    """
    questions: defaultdict[tuple[str, int], dict[int, Sample]] = defaultdict(dict)
    seen: Counter[tuple[str, int]] = Counter()
    for sample in samples:
        size = _size(sample, key, path)
        questions[sample.group, seen[sample.group, size]][size] = sample
        seen[sample.group, size] += 1
    found = tuple(_one(rows, copy) for (_, copy), rows in questions.items())
    return found, tuple(_notes(found, [rows for (_, copy), rows in questions.items() if copy], path))


def _size(sample: Sample, key: str, path: Path | str) -> int:
    written = sample.keys.get(key, "").strip()
    if not (written.isdecimal() and int(written) > 0):
        raise DatasetError(f"{path}: sample {sample.id!r} has the {key} {written!r}: expected a long edge in pixels, such as 448")
    return int(written)


def _one(rows: dict[int, Sample], copy: int) -> Sample:
    largest = rows[max(rows)]
    group = f"{largest.group}\n({copy + 1})" if copy else largest.group  # another picture, resampled by itself
    return replace(largest, group=group, sizes={size: rows[size].images for size in sorted(rows)})


def _notes(found: Sequence[Sample], copies: Sequence[dict[int, Sample]], path: Path | str) -> list[str]:
    sizes = sorted({size for sample in found for size in sample.sizes})
    lacking = [(sample, [size for size in sizes if size not in sample.sizes]) for sample in found]
    short = [(sample, absent) for sample, absent in lacking if absent]
    notes = []
    if short:
        sample, absent = short[0]
        notes.append(
            f"{path}: {len(short)} of {quantity(len(found), 'question')} lack pictures of some sizes (the first: {sample.id!r} "
            f"has none of {', '.join(map(str, absent))} pixels). Those rungs are made of the largest picture"
        )
    if copies:
        first = next(iter(copies[0].values()))
        notes.append(
            f"{path}: {quantity(len(copies), 'question has', 'questions have')} the words and the answer of an earlier one (the "
            f"first: {first.id!r}): which rows are about one picture is told by their order at each size"
        )
    return notes
