"""From the rows of one source to drafts, as the record of a benchmark says: the same for files and for the hub."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_vlmrobust.core.errors import DatasetError, did_you_mean
from pytest_vlmrobust.core.sample import ImageSource
from pytest_vlmrobust.core.words import quantity

from .benchmarks import OWN_COLUMNS, Benchmark, Kind, Layout, columns_in
from .drafts import LETTERS, Draft, options_in
from .files import Place, Problems
from .tsv_records import listed

CIRCULAR_STRIDE = 1_000_000
CIRCULAR_NAMES = ("mmbench", "ccbench", "circular", "mmcr")
GROUP_DIGITS = 16

Cells = Mapping[str, Any]
"""The values of a row by column: texts, and from the hub also numbers and lists."""


@dataclass(slots=True)
class Rows:
    """Reads rows as a record says, and counts what its reader should know."""

    benchmark: Benchmark
    layout: Layout
    problems: Problems
    circular: bool = False
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    unlisted: int = 0

    def check(self, header: Sequence[str], where: str) -> None:
        """Looks whether every column that the record needs is there.

        Raises:
            DatasetError: one is not; the message names it and what it is needed for.
        """
        for columns, why in self.layout.needed():
            if not set(columns) & set(header):
                column = columns[0]
                name = f", which the benchmark {self.benchmark.name!r} needs ({why})" if self.benchmark.name else ""
                found = ", ".join(str(column)[:40] for column in header[:20])
                raise DatasetError(f"{where} has no column {column!r}{name}.{did_you_mean(column, header)} Found: {found}")

    def drops(self, cells: Cells) -> bool:
        """Returns whether the record leaves this row out, and counts it."""
        for column, reasons in self.layout.drop.items():
            value = text_of(cells.get(column)).strip()
            if value in reasons:
                self.dropped[column, value] += 1
                return True
        return False

    def draft(self, place: Place, cells: Cells, images: tuple[ImageSource, ...], digest: str, row: int) -> Draft:
        """Returns the draft of one row; what is wrong with it is noted.

        Args:
            place: the row.
            cells: its values.
            images: its pictures.
            digest: one of its pictures.
            row: its number from 0.
        """
        own = dict(zip(OWN_COLUMNS, (str(row), digest[:GROUP_DIGITS]), strict=True))
        present = {column: value for column, value in cells.items() if text_of(value) not in self.layout.absent}
        all_cells = self._with_parts(place, {**present, **own})
        question, options = self._question(place, all_cells)
        kind = self._kind(place, all_cells, options)
        asked_openly = bool(kind and kind.unlisted and not options)
        self.unlisted += asked_openly
        return Draft(
            place=place,
            id=self._value("id", all_cells),
            images=images,
            question=question,
            answer=self._answer(place, all_cells, options),
            options=options,
            category=self._value("category", all_cells),
            group=self._group(all_cells, digest),
            hint=self._value("hint", all_cells),
            task="open" if asked_openly else kind.task if kind else "",
            scorer=(kind.unlisted if asked_openly else kind.scorer) if kind else "",
            instruction=kind.instruction if kind else "",
            keys={key: _filled(template, all_cells) for key, template in self.layout.keys.items()},
        )

    def notes(self, where: str) -> list[str]:
        """Returns what was left out and what was asked in another way, each with its count."""
        found = [
            f"{where}: {quantity(count, 'row is left out: its', 'rows are left out: their')} "
            f"{column!r} is {value!r} ({self.layout.drop[column][value]})"
            for (column, value), count in self.dropped.items()
        ]
        if self.unlisted:
            scorers = ", ".join(sorted({kind.unlisted for kind in self.benchmark.kinds if kind.unlisted}))
            found.append(
                f"{where}: of {self.unlisted} choices the options stand nowhere; they are asked as open questions and scored by "
                f"{scorers!r}, and their chance floor is 0"
            )
        return found

    def _with_parts(self, place: Place, cells: dict[str, Any]) -> dict[str, Any]:
        for column, pattern in self.layout.parts.items():
            value = text_of(cells.get(column))
            found = re.fullmatch(pattern, value)
            if found is None:
                self.problems.add(place, column, value, f"a text of the form {pattern}")
            groups = dict.fromkeys(re.compile(pattern).groupindex, "") if found is None else found.groupdict("")
            cells |= groups
        return cells

    def _value(self, role: str, cells: Cells) -> str:
        texts = (_filled(spec, cells) for spec in self.layout.columns_of(role))
        return next((text for text in texts if text), "")

    def _question(self, place: Place, cells: Cells) -> tuple[str, dict[str, str]]:
        question = self._value("question", cells) or self.benchmark.question
        for ending in self.layout.cut:
            question = question.rstrip().removesuffix(ending).rstrip() if question.rstrip().endswith(ending) else question
        options = self._options(place, cells)
        return options_in(question) if self.layout.options_in_question and not options else (question, options)

    def _options(self, place: Place, cells: Cells) -> dict[str, str]:
        columns = self.layout.columns_of("options")
        if not columns:
            return {letter: text for letter in LETTERS if (text := text_of(cells.get(letter)))}
        value = cells.get(columns[0])
        texts = _listed_values(value)
        if texts is None or len(texts) > len(LETTERS):
            self.problems.add(place, columns[0], value, f"a list of at most {len(LETTERS)} texts")
            return {}
        return dict(zip(LETTERS, texts, strict=False))

    def _kind(self, place: Place, cells: Cells, options: Mapping[str, str]) -> Kind | None:
        kinds = self.benchmark.kinds
        column = self.layout.columns_of("kind")
        if column:
            said = text_of(cells.get(column[0])).strip()
            found = next((kind for kind in kinds if kind.when == said), None)
            if found is None:
                self.problems.add(place, column[0], said, f"one of {', '.join(kind.when for kind in kinds)}")
            return found
        fitting = (kind for kind in kinds if (kind.task == "choice") == bool(options))
        return next(fitting, kinds[0] if kinds else None)

    def _answer(self, place: Place, cells: Cells, options: Mapping[str, str]) -> str | tuple[str, ...]:
        columns = self.layout.columns_of("answer")
        value = next((cells[column] for column in columns if text_of(cells.get(column))), "")
        how, text = self.layout.answers, text_of(value).strip()
        if not isinstance(how, str):
            return how.get(text, text)
        if how == "list":
            return self._accepted(place, columns[0], value)
        if how == "letter":
            return _letter(text) if options else text
        if how == "position":
            return self._by_position(place, columns[0], text, options)
        return text_of(value) if options else _references(value)

    def _accepted(self, place: Place, column: str, value: Any) -> str | tuple[str, ...]:
        texts = _listed_values(value, alone=True)
        if texts:
            return texts
        self.problems.add(place, column, value, "an answer, or a list of accepted answers such as ['a', 'b']")
        return "?"

    def _by_position(self, place: Place, column: str, text: str, options: Mapping[str, str]) -> str:
        if text.isdecimal() and int(text) < len(options):
            return list(options)[int(text)]
        self.problems.add(place, column, text, f"the position of an option, from 0 to {len(options) - 1}")
        return next(iter(options), "?")

    def _group(self, cells: Cells, digest: str) -> str:
        if text_of(cells.get("g_index")):
            return text_of(cells["g_index"])
        if self.layout.columns_of("group"):
            return hashlib.sha256(self._value("group", cells).encode("utf-8", "surrogatepass")).hexdigest()[:GROUP_DIGITS]
        own_id = self._value("id", cells)
        if (self.circular or self.benchmark.circular) and own_id.isdecimal():
            return str(int(own_id) % CIRCULAR_STRIDE)
        return digest[:GROUP_DIGITS]


def text_of(value: Any) -> str:
    """Returns a value as text; nothing, and what is no number (NaN), is empty."""
    return "" if value is None or value != value else str(value)  # noqa: PLR0124 - only NaN differs from itself


def _filled(spec: str, cells: Cells) -> str:
    if "{" not in spec:
        return text_of(cells.get(spec))
    return spec.format_map({column: text_of(cells.get(column)) for column in columns_in(spec)})


def _listed_values(value: Any, *, alone: bool = False) -> tuple[str, ...] | None:
    """Returns the texts of a list or of a list literal; of a text alone, where it may stand ``alone``; else None."""
    if isinstance(value, (list, tuple)):
        return tuple(text_of(item) for item in value)
    text = text_of(value).strip()
    if text == "[]" or not text:
        return ()
    try:
        texts = listed(text)
    except ValueError:
        return None
    return texts if (alone and not text.startswith("[")) or texts != (text,) else None


def _letter(text: str) -> str:
    bare = re.sub(r"\W", "", text)
    return bare.upper() if len(bare) == 1 else text


def _references(value: Any) -> str | tuple[str, ...]:
    """Returns the accepted answers of an open question; only a list of texts is a list, ``[0, 1]`` is an answer."""
    if isinstance(value, (list, tuple)):
        return tuple(text_of(item) for item in value)
    text = text_of(value)
    try:
        texts = listed(text.strip())
    except ValueError:
        return text
    return text if texts == (text.strip(),) else texts
