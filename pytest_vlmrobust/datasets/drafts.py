"""From the rows of any source to samples: how a benchmark reads them, and the checks that all formats share."""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.boxes import Localisation
from pytest_vlmrobust.core.errors import DatasetError, ImageError, did_you_mean
from pytest_vlmrobust.core.sample import META, MISSING, UNDECLARED, ImageSource, Sample, is_slice
from pytest_vlmrobust.core.words import first_few, invisible, mixed_scripts, quantity, same_looks, without_halves

from .benchmarks import BOX, OWN_COLUMNS, Benchmark, Kind, Layout, columns_in
from .files import Place, Problems
from .images import FileImage, file_stamp

# Drafts, and the checks that turn them into samples.


TASKS = ("choice", "yes_no", "open")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
YES_NO = {"yes": "yes", "no": "no", "true": "yes", "false": "no"}


@dataclass(frozen=True, slots=True)
class Draft:
    """One row as written, before validation.

    ``answer`` holds several texts if the row lists several accepted answers. ``task`` is empty if the row does not
    state it. ``shown`` replaces the options in the prompt, if another tool's reading was requested.
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
    localisation: Localisation | None = None
    perturbed: str = ""
    """Numbers of the images that a setting changes, counted from 1, as written: ``2``, ``1, 2`` or ``[1, 2]``."""
    meta: Mapping[str, str] = field(default_factory=dict)
    target_of_attack: str = ""
    layout: str = ""
    option_format: str = ""
    pictured: str = ""
    """A digest of the images, if all rows about them are to be one group whatever ``group`` says."""


def finish(drafts: Sequence[Draft], problems: Problems, id_column: str) -> tuple[Sample, ...]:
    """Returns one sample per draft, after noting every problem.

    A row with options is a choice. A row without options asks yes or no if its answer is Yes, No, True or False (in any
    case), and is open otherwise: then it is undefined how its answer is scored (``UNDECLARED``) unless the row names a scorer.
    If most are Yes or No, the others are problems. A Yes of a row with a scorer, among open rows, is open too.
    """
    _note_unfit_ids(drafts, problems, id_column)
    columns = sorted({column for draft in drafts for column in draft.meta})
    drafts = [replace(draft, meta={column: draft.meta.get(column) or MISSING for column in columns}) for draft in drafts]
    drafts = _with_joined_groups(_with_plain_options(drafts, problems))
    without = [draft for draft in drafts if not draft.options and not draft.task]
    others = [draft for draft in without if not _is_yes_no(draft.answer)]
    if others and 2 * len(others) < len(without) and not any(draft.scorer for draft in others):
        usual = f"Yes or No, as in {len(without) - len(others):,} of {len(without):,} rows without options"
        for draft in others:
            problems.add(draft.place, "answer", draft.answer, usual)
    samples = tuple(_sample(draft, draft.task or _usual_task(draft, mixed=bool(others)), problems) for draft in drafts)
    problems.raise_any()
    reason = "by their EXIF orientation, which is not applied: models see them as they are stored. Save them upright"
    problems.note(problems.turned, *(f"{row} turned in viewers, {reason}" for row in ("image is", "images are")))
    return samples


def with_copies(drafts: Iterable[Draft], files: Iterable[Path]) -> list[Draft]:
    """Returns the drafts with the identity of their images: copies of a file are one image, whatever their names.

    ``files`` are all image files of the drafts. Only files of equal size are read.
    """
    sizes = Counter(file_stamp(path)[0] for path in set(files))

    def identity(image: ImageSource) -> str:
        if isinstance(image, FileImage) and sizes[file_stamp(image.path)[0]] == 1:
            return str(image.path)
        try:
            return image.identity()
        except ImageError:  # the tests that show it report it
            return str(image)

    return [replace(draft, pictured="\n".join(map(identity, draft.images)) if draft.pictured else "") for draft in drafts]


def metadata(cells: Mapping[str, Any], place: Place, problems: Problems) -> dict[str, str]:
    """Returns the values of the columns ``meta.…`` and of the values nested under ``meta``, by name; notes problems."""
    values: dict[str, str] = {}

    def add(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                add(f"{name}.{key}", inner)
        elif isinstance(value, list | tuple | bytes):
            problems.add(place, name, value, "text, a number, true or false: a slice is one value")
        elif "=" in name or not name.removeprefix(META).strip() or not name.startswith(META):
            problems.add(
                place, name, value, f"a name after {META!r} without '=', such as {META}camera, or an object of such names"
            )
        else:
            values[name.removeprefix(META)] = str(value).lower() if isinstance(value, bool) else text_of(value).strip()

    for column, value in cells.items():
        if column.startswith(META) or (column == META.rstrip(".") and value is not None):
            add(column, value)
    return values


def _usual_task(draft: Draft, *, mixed: bool) -> str:
    if draft.options:
        return "choice"
    return "open" if mixed and (draft.scorer or not _is_yes_no(draft.answer)) else "yes_no"


def _with_plain_options(drafts: Sequence[Draft], problems: Problems) -> Sequence[Draft]:
    """Returns the drafts with option texts that do not begin with their own letter; notes these rows, and equal options."""
    plain = [replace(draft, options=_without_letters(draft.options)) for draft in drafts]
    lettered = [draft.place for draft, kept in zip(drafts, plain, strict=True) if kept.options != draft.options]
    fault = "options that begin with their letter; they are asked without it"
    problems.note(lettered, f"row has {fault}", f"rows have {fault}")
    texts = [(draft.place, [text.strip().casefold() for text in draft.options.values()]) for draft in plain]
    fault = "two options with one text; only the letter of the answer is right"
    problems.note([place for place, words in texts if len(set(words)) < len(words)], f"row has {fault}", f"rows have {fault}")
    return plain


def _with_joined_groups(drafts: Sequence[Draft]) -> list[Draft]:
    """Returns the drafts with one group for all that share images, directly or through others: the group of the first."""
    above: dict[str, str] = {}
    first: dict[str, str] = {}

    def top(group: str) -> str:
        while (parent := above.get(group, group)) != group:
            group = parent
        return group

    for draft in drafts:
        if draft.pictured:
            joined, group = top(first.setdefault(draft.pictured, draft.group)), top(draft.group)
            if group != joined:
                above[group] = joined
    return [replace(draft, group=top(draft.group)) for draft in drafts]


def _without_letters(options: Mapping[str, str]) -> Mapping[str, str]:
    begins = {letter: re.match(rf"\(?{letter}[.):]\s+(?=\S)", text) for letter, text in options.items()}
    if not all(begins.values()):
        return options
    return {letter: options[letter][prefix.end() :] for letter, prefix in begins.items() if prefix}


def _note_unfit_ids(drafts: Sequence[Draft], problems: Problems, id_column: str) -> None:
    first: dict[str, int] = {}
    mixed: dict[str, str] = {}
    for draft in drafts:
        spelling = same_looks(draft.id)
        if letter := mixed_scripts(spelling):
            mixed[draft.id] = letter
        if not draft.id:
            problems.add(draft.place, id_column, "", "a value: predictions are kept under it")
        elif without_halves(draft.id) != draft.id:
            problems.add(draft.place, id_column, draft.id, "text without half of a surrogate pair, which no file can hold")
        elif hidden := invisible(draft.id) or invisible(draft.group):
            problems.add(draft.place, id_column, draft.id, f"no character that nobody sees: {hidden}")
        elif spelling in first:
            same = "it too" if spelling == draft.id else f"one that reads the same: {spelling!r} in NFKC"
            problems.add(draft.place, id_column, draft.id, f"a value of its own (line {first[spelling]} has {same})")
        else:
            first[spelling] = draft.place.line
    if mixed:
        name, letter = next(iter(mixed.items()))
        many = quantity(len(mixed), "id mixes", "ids mix")
        problems.notes.append(
            f"{problems.path}: {many} letters of several scripts, such as {name!r} with {letter}: they may look like other ids"
        )


def _sample(draft: Draft, task: str, problems: Problems) -> Sample:
    if not draft.question.strip():
        problems.add(draft.place, "question", draft.question, "the text of a question")
    _check_options(draft, task, problems)
    if is_slice(draft.category):
        problems.add(
            draft.place, "category", draft.category, f"a category: texts of the form {META}name=value are slices by metadata"
        )
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
        changed_by=draft.changed_by | (_MOVES if draft.localisation else frozenset()),
        scorer=draft.scorer or (UNDECLARED if task == "open" and not draft.task else ""),
        instruction=draft.instruction,
        keys=draft.keys,
        meta=draft.meta,
        target_of_attack=_target_of_attack(draft, task, problems),
        localisation=draft.localisation,
        perturbed=_perturbed(draft, problems),
        layout=draft.layout,
        option_format=draft.option_format,
    )


def _perturbed(draft: Draft, problems: Problems) -> tuple[int, ...] | None:
    if not draft.perturbed.strip():
        return None
    written = re.fullmatch(r"\[?([0-9]{1,6}(?:\s*,\s*[0-9]{1,6})*)\]?", draft.perturbed.strip())
    numbers = [int(number) for number in written[1].split(",")] if written else []
    if not numbers or len({*numbers}) < len(numbers) or not {*numbers} <= {*range(1, 1 + len(draft.images))}:
        expected = f"different numbers of images from 1 to {len(draft.images)}, such as [1]"
        problems.add(draft.place, "perturbed", draft.perturbed, expected)
    return tuple(number - 1 for number in numbers)


def _target_of_attack(draft: Draft, task: str, problems: Problems) -> str:
    written = draft.target_of_attack.strip()
    wanted = YES_NO.get(written.lower(), written) if task == "yes_no" else written
    if written and task == "choice" and wanted not in draft.options:
        problems.add(draft.place, "target_of_attack", written, f"one of {', '.join(draft.options)}")
    elif written and task == "yes_no" and not _is_yes_no(written):
        problems.add(draft.place, "target_of_attack", written, "Yes or No")
    elif written and wanted == _target(draft, task, Problems(problems.path, problems.part)):
        problems.add(draft.place, "target_of_attack", written, "another answer than the right one")
    return wanted


def _check_options(draft: Draft, task: str, problems: Problems) -> None:
    if task == "choice" and len(draft.options) < 2:
        problems.add(draft.place, "options", dict(draft.options), f"two options or more{'' if draft.task else ', or none'}")
    if task != "choice" and draft.options:
        problems.add(draft.place, "options", dict(draft.options), f"none, because the task is {task!r}")
    if draft.options and draft.shown is not None and not draft.shown:
        problems.add(draft.place, "options", dict(draft.options), "one option at least that VLMEvalKit does not drop")


def _target(draft: Draft, task: str, problems: Problems) -> str | tuple[str, ...]:
    if task == "boxes":
        return ""
    answer = draft.answer.strip() if isinstance(draft.answer, str) else draft.answer
    if task == "choice" and answer not in draft.options:
        letters = [
            letter for letter, text in draft.options.items() if str(answer).casefold() in (text.casefold(), letter.casefold())
        ]
        meant = f". Write {letters[0]!r}, the letter of this option" if len(letters) == 1 else ""
        problems.add(draft.place, "answer", answer, f"one of {', '.join(draft.options)}{meant}")
    elif task == "yes_no" and not _is_yes_no(answer):
        problems.add(draft.place, "answer", answer, "Yes or No")
    elif not all(text.strip() for text in ([answer] if isinstance(answer, str) else answer)):
        problems.add(draft.place, "answer", answer, "an answer, or a list of accepted answers: without one nothing can be scored")
    return YES_NO.get(answer.lower(), answer) if task == "yes_no" and isinstance(answer, str) else answer


def _is_yes_no(answer: str | tuple[str, ...]) -> bool:
    return isinstance(answer, str) and answer.strip().lower() in YES_NO


# Options at the end of a question instead of in columns of their own.


_HEADING = re.compile(r"\s*(?:options?|choices)\s*:?\s*\Z", re.IGNORECASE)
_BEFORE = r"(?:(?<=\s)|(?<=\A)|(?<=[,;:]))"
_LABELS = (r"(?m:^)[ \t]*\(?{letter}[).:]\s+", _BEFORE + r"\(?{letter}[).:]\s+", _BEFORE + r"\(?{letter}:(?=\S)")
"""A label that begins a line, a label anywhere, and one without a following blank."""


def options_in(question: str) -> tuple[str, dict[str, str]]:
    r"""Returns the question without its options, and the options by letter; none unless there are two in order.

    Labels are ``A.``, ``A:``, ``A)`` and ``(A)``, either each at the beginning of a line, or all after white space, a comma or a
    semicolon, or all ``A:`` without a following blank; the last option ends with its line.

    >>> options_in("Which way?\nA. Left.\nB. Right.")
    ('Which way?', {'A': 'Left.', 'B': 'Right.'})
    >>> options_in("Who? Options: A: the cat, B: the dog, C: nobody")
    ('Who?', {'A': 'the cat', 'B': 'the dog', 'C': 'nobody'})
    >>> options_in("Where is it? Option:A:in bed; B:on the bed;")
    ('Where is it?', {'A': 'in bed', 'B': 'on the bed'})
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
    """Returns the positions of the labels A, B, …, each after the previous; the last A followed by a B begins the list."""
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


# Images resized in advance: the rows that ask the same question about them become one sample.


def merge_resolutions(samples: Iterable[Sample], key: str, path: Path | str) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """Returns one sample for the rows of each question, and notes about them for the reader.

    It is the row with the largest images, and has the images of every row by their long edge. Rows of one group are one question;
    if a group has a size more than once (the same words about another image), rows are distinguished by order. ``samples``
    has one for each row, in file order. ``key`` of ``Sample.keys`` holds the long edge, in pixels, for which the images of
    a row were made.
    """
    questions: defaultdict[tuple[str, int], dict[int, Sample]] = defaultdict(dict)
    seen: Counter[tuple[str, int]] = Counter()
    for sample in samples:
        size = _size(sample, key, path)
        questions[sample.group, seen[sample.group, size]][size] = sample
        seen[sample.group, size] += 1
    joined = tuple(_join_sizes(rows, copy) for (_, copy), rows in questions.items())
    return joined, tuple(_notes(joined, [rows for (_, copy), rows in questions.items() if copy], path))


def _size(sample: Sample, key: str, path: Path | str) -> int:
    written = sample.keys.get(key, "").strip()
    if not (written.isdecimal() and len(written) <= MOST_DIGITS and int(written) > 0):
        raise DatasetError(f"{path}: sample {sample.id!r} has the {key} {written!r}: expected a long edge in pixels, such as 448")
    return int(written)


def _join_sizes(rows: dict[int, Sample], copy: int) -> Sample:
    largest = rows[max(rows)]
    group = f"{largest.group}\n({copy + 1})" if copy else largest.group  # another image, resampled separately
    return replace(largest, group=group, sizes={size: rows[size].images for size in sorted(rows)})


def _notes(questions: Sequence[Sample], copies: Sequence[dict[int, Sample]], path: Path | str) -> list[str]:
    sizes = sorted({size for sample in questions for size in sample.sizes})
    lacking = [(sample, [size for size in sizes if size not in sample.sizes]) for sample in questions]
    short = [(sample, absent) for sample, absent in lacking if absent]
    notes = []
    if short:
        sample, absent = short[0]
        notes.append(
            f"{path}: {len(short)} of {quantity(len(questions), 'question')} lack images of some sizes (the first: "
            f"{sample.id!r} has none of {', '.join(map(str, absent))} pixels). Those rungs are made of the largest image"
        )
    if copies:
        first = next(iter(copies[0].values()))
        notes.append(
            f"{path}: {quantity(len(copies), 'question has', 'questions have')} the words and the answer of an earlier one (the "
            f"first: {first.id!r}): their order at each size decides which rows are about one image"
        )
    return notes


# Rows as the record of a benchmark reads them: the same for files and for the hub.


CIRCULAR_STRIDE = 1_000_000
MOST_DIGITS = 40
"""Maximum digits of a text that is read as a number: Python refuses thousands of them."""
CIRCULAR_NAMES = ("mmbench", "ccbench", "circular", "mmcr")
GROUP_DIGITS = 16
MOST_PIXELS = 1 << 20
_MOVES = frozenset({"left_right", "up_down", "position"})
"""Changes after which a box is elsewhere."""
TARGET = "object"
"""The name of the box of a question with one box."""

Cells = Mapping[str, Any]
"""The values of a row by column: texts, and from the hub also numbers and lists."""


@dataclass(slots=True)
class Rows:
    """Reads rows according to a record, and counts facts for the notes."""

    benchmark: Benchmark
    layout: Layout
    problems: Problems
    circular: bool = False
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    unlisted: int = 0

    def check(self, header: Sequence[str], where: str) -> None:
        """Checks that every column that the record needs is present."""
        for columns, why in self.layout.needed_columns():
            if not set(columns) & set(header):
                column = columns[0]
                name = f", which the benchmark {self.benchmark.name!r} needs ({why})" if self.benchmark.name else ""
                columns_there = first_few((str(column)[:40] for column in header), 20)
                raise DatasetError(
                    f"{where} has no column {column!r}{name}.{did_you_mean(column, header)} Found: {columns_there}"
                )

    def drops(self, cells: Cells) -> bool:
        """Whether the record leaves this row out; counts it if so."""
        for column, reasons in self.layout.drop.items():
            value = text_of(cells.get(column)).strip()
            if value in reasons:
                self.dropped[column, value] += 1
                return True
        return False

    def draft(self, place: Place, cells: Cells, images: tuple[ImageSource, ...], digest: str, row: int) -> Draft:
        """Returns the draft of a row, and notes its problems."""
        numbering = dict(zip(OWN_COLUMNS, (str(row), digest[:GROUP_DIGITS]), strict=True))
        present = {column: value for column, value in cells.items() if text_of(value) not in self.layout.absent}
        all_cells = self._with_parts(place, {**present, **numbering})
        question, options = self._question(place, all_cells)
        kind = self._kind(place, all_cells, options)
        is_open = bool(kind and kind.unlisted and not options)
        self.unlisted += is_open
        answer, wanted = self._answer(place, all_cells, options), self._target_of_attack(all_cells, options)
        group = self._group(all_cells, row)
        return Draft(
            place=place,
            id=self._value("id", all_cells),
            images=images,
            question=question,
            answer=answer,
            options=options,
            category=self._value("category", all_cells),
            group=group or digest[:GROUP_DIGITS],
            hint=self._value("hint", all_cells),
            task="open" if is_open else kind.task if kind else "",
            scorer=(kind.unlisted if is_open else kind.scorer) if kind else "",
            instruction=kind.instruction if kind else "",
            keys=self._filled(self.layout.keys, all_cells),
            localisation=self._box(place, all_cells),
            perturbed=self._value("perturbed", all_cells),
            meta={**metadata(cells, place, self.problems), **self._filled(self.layout.meta, all_cells)},
            target_of_attack="" if wanted == answer else wanted,  # a right answer shows no attack
            layout=kind.layout if kind and not is_open else "",
            option_format=kind.option_format if kind else "",
            pictured=digest if not group or self.layout.columns_of("group") == (self.layout.keys.get("question"),) else "",
        )

    def _filled(self, templates: Mapping[str, str], cells: Cells) -> dict[str, str]:
        return {name: fill_template(template, cells) for name, template in templates.items()}

    def notes(self, where: str) -> list[str]:
        """Returns notes on the rows that were left out or asked differently, each with its count."""
        sentences = [
            f"{where}: {quantity(count, 'row is left out: its', 'rows are left out: their')} "
            f"{column!r} is {value!r} ({self.layout.drop[column][value]})"
            for (column, value), count in self.dropped.items()
        ]
        if self.unlisted:
            scorers = ", ".join(sorted({kind.unlisted for kind in self.benchmark.kinds if kind.unlisted}))
            sentences.append(
                f"{where}: {self.unlisted} choices have no options in the data; they are open questions, scored by "
                f"{scorers!r}, and chance is 0"
            )
        benchmark = self.benchmark
        if benchmark.number == "ours":
            sentences.append(
                f"{where}: the number of {benchmark.name} is ours and not comparable with published ones. Its makers' rule: "
                f"{benchmark.rule}. Here: {benchmark.why}"
            )
        if benchmark.number == "refused":
            sentences.append(f"{where}: {benchmark.name} has no scorer here, and a run is refused: {benchmark.why}")
        return sentences

    def _with_parts(self, place: Place, cells: dict[str, Any]) -> dict[str, Any]:
        for column, pattern in self.layout.parts.items():
            value = text_of(cells.get(column))
            match = re.fullmatch(pattern, value)
            if match is None:
                self.problems.add(place, column, value, f"a text of the form {pattern}")
            groups = dict.fromkeys(re.compile(pattern).groupindex, "") if match is None else match.groupdict("")
            cells |= groups
        return cells

    def _value(self, role: str, cells: Cells) -> str:
        texts = (fill_template(spec, cells) for spec in self.layout.columns_of(role))
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
            return {letter: text for letter in LETTERS if (text := text_of(cells.get(letter))).strip()}
        value = cells.get(columns[0])
        listed = _listed_values(value) if len(columns) == 1 else [fill_template(column, cells) for column in columns]
        texts = without_padding(listed)
        if texts is None or len(texts) > len(LETTERS):
            self.problems.add(place, columns[0], value, f"a list of at most {len(LETTERS)} texts")
            return {}
        if self.layout.shuffled:
            own_id = self._value("id", cells)
            texts = sorted(texts, key=lambda text: hashlib.sha256(f"{own_id}\n{text}".encode("utf-8", "surrogatepass")).digest())
        return dict(zip(LETTERS, texts, strict=False))

    def _target_of_attack(self, cells: Cells, options: Mapping[str, str]) -> str:
        if any(text_of(cells.get(column)).strip() in values for column, values in self.layout.unattacked.items()):
            return ""
        wanted = self._value("target_of_attack", cells)
        return next((letter for letter, text in options.items() if self.layout.answers == "text" and text == wanted), wanted)

    def _kind(self, place: Place, cells: Cells, options: Mapping[str, str]) -> Kind | None:
        kinds = self.benchmark.kinds
        column = self.layout.columns_of("kind")
        if column:
            text = text_of(cells.get(column[0])).strip()
            named_kind = next((kind for kind in kinds if kind.when == text), None)
            if named_kind is None:
                self.problems.add(place, column[0], text, f"one of {', '.join(kind.when for kind in kinds)}")
            return named_kind
        fitting = (kind for kind in kinds if (kind.task == "choice") == bool(options))
        return next(fitting, kinds[0] if kinds else None)

    def _answer(self, place: Place, cells: Cells, options: Mapping[str, str]) -> str | tuple[str, ...]:
        columns = self.layout.columns_of("answer")
        value = next((cells[column] for column in columns if text_of(cells.get(column))), "")
        how, text = self.layout.answers, text_of(value).strip()
        if not isinstance(how, str):
            return how.get(text, text)
        if how == "list":
            return self._accepted_answers(place, columns[0], value)
        if how == "letter":
            return _letter(text) if options else text
        if how == "position":
            return self._by_position(place, columns[0], text, options)
        if how == "text" and options:
            return self._by_text(place, columns[0], text, options)
        return text_of(value) if options else _references(value)

    def _accepted_answers(self, place: Place, column: str, value: Any) -> str | tuple[str, ...]:
        texts = _listed_values(value, alone=True)
        if texts:
            return texts
        self.problems.add(place, column, value, "an answer, or a list of accepted answers such as ['a', 'b']")
        return "?"

    def _by_position(self, place: Place, column: str, text: str, options: Mapping[str, str]) -> str:
        if text.isdecimal() and len(text) <= MOST_DIGITS and int(text) < len(options):
            return list(options)[int(text)]
        self.problems.add(place, column, text, f"the position of an option, from 0 to {len(options) - 1}")
        return next(iter(options), "?")

    def _by_text(self, place: Place, column: str, text: str, options: Mapping[str, str]) -> str:
        if letter := next((letter for letter, option in options.items() if option.strip() == text), ""):
            return letter
        self.problems.add(place, column, text, f"the text of an option: {first_few(options.values(), 6)}")
        return next(iter(options), "?")

    def _box(self, place: Place, cells: Cells) -> Localisation | None:
        """Returns the box that the row asks for; notes a problem if it is not a box within an image."""
        if not self.layout.box:
            return None
        written = {edge: text_of(cells.get(column)).strip() for edge, column in self.layout.box.items()}
        try:
            x1, y1, x2, y2, width, height = (float(written[edge]) for edge in BOX)
        except ValueError:
            x1 = y1 = x2 = y2 = width = height = 0.0
        if not (0 <= x1 < x2 <= width < MOST_PIXELS and 0 <= y1 < y2 <= height < MOST_PIXELS):
            expected = "a box with an area, in pixels and inside of its image"
            self.problems.add(
                place, self.layout.box["x1"], ", ".join(f"{edge} {text}" for edge, text in written.items()), expected
            )
            return None
        return Localisation((round(width), round(height)), {TARGET: (x1, y1, x2, y2)})

    def _group(self, cells: Cells, row: int) -> str:
        """Returns the group of a row; empty if its images are its group."""
        if text_of(cells.get("g_index")):
            return text_of(cells["g_index"])
        if self.layout.columns_of("group"):
            return hashlib.sha256(self._value("group", cells).encode("utf-8", "surrogatepass")).hexdigest()[:GROUP_DIGITS]
        if self.layout.block:
            return str(row // int(self.layout.block))
        own_id = self._value("id", cells)
        if (self.circular or self.benchmark.circular) and own_id.isdecimal():
            return str(int(own_id[-MOST_DIGITS:]) % CIRCULAR_STRIDE)  # the stride divides a power of ten
        return ""


def text_of(value: Any) -> str:
    """Returns a value as text; ``None`` and NaN become empty."""
    return "" if value is None or value != value else str(value)  # noqa: PLR0124 - only NaN differs from itself


def fill_template(spec: str, cells: Cells) -> str:
    """Returns the value of a column, or of a template such as ``"{type}-{index}"``."""
    if "{" not in spec:
        return text_of(cells.get(spec))
    return spec.format_map({column: text_of(cells.get(column)) for column in columns_in(spec)})


def _listed_values(value: Any, *, alone: bool = False) -> tuple[str, ...] | None:
    """Returns the texts of a list or list literal, or of a single text if ``alone`` allows it; else None."""
    if isinstance(value, (list, tuple)):
        return tuple(text_of(item) for item in value)
    text = text_of(value).strip()
    if text == "[]" or not text:
        return ()
    try:
        texts = parse_list(text)
    except ValueError:
        return None
    return texts if (alone and not text.startswith("[")) or texts != (text,) else None


def without_padding(texts: Sequence[str] | None) -> Sequence[str] | None:
    """Returns a list of options without the empty texts with which files pad its end to a common length."""
    kept = list(texts or ())
    while kept and not kept[-1].strip():
        kept.pop()
    return None if texts is None else kept


def parse_list(text: str) -> tuple[str, ...]:
    """Returns the texts of a list literal such as ``['a', 'b']``, or only ``text`` if it is not bracketed."""
    if not (text.startswith("[") and text.endswith("]")):
        return (text,)
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if not value or not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(text)
    return tuple(value)


def _letter(text: str) -> str:
    bare = re.sub(r"\W", "", text)
    return bare.upper() if len(bare) == 1 else text


def _references(value: Any) -> str | tuple[str, ...]:
    """Returns the accepted answers of an open question; only a list of texts is a list: ``[0, 1]`` is an answer."""
    if isinstance(value, (list, tuple)):
        return tuple(text_of(item) for item in value)
    text = text_of(value)
    try:
        texts = parse_list(text.strip())
    except ValueError:
        return text
    return text if texts == (text.strip(),) else texts
