"""Pre-sized pictures: rows that ask one question about pictures which were resized beforehand are one sample."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_vlmrobust.core.counting import quantity
from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.sample import Sample


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
