"""Benchmarks as data: their records, the YAML files that hold these, and which benchmark a file name means."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import DatasetError, UsageError
from pytest_vlmrobust.core.registry import Registry
from pytest_vlmrobust.files.document import Entry, read_document, read_keys

# The record of a benchmark: its name, the columns of its files, and how its answers are scored.
#
# The shipped records are in ``benchmarks.yaml``, in the form that ``benchmark_files.read_benchmark`` reads, which is also the
# form of a user's own. A *role* is something a sample needs (``question``); a column of a file plays it. If a role names
# several columns, the first non-empty one in a row counts; a text with braces combines columns
# (``"{category}-{question_id}"``). In addition to the columns, a row has ``{row}``, its number from 0, ``{image}``, a digest of
# its images, and the named groups of ``parts``.


ROLES = ("id", "question", "answer", "options", "images", "hint", "category", "group", "kind", "target_of_attack", "perturbed")
BOX = ("x1", "y1", "x2", "y2", "width", "height")
"""Fields of a box: its edges in pixels of the image, right and bottom exclusive, and the size of the image."""
ANSWERS = ("as_written", "letter", "position", "text", "list")
OWN_COLUMNS = ("row", "picture")
CHANCE = {"choice": "1 / options", "yes_no": "1 / 2", "open": "0", "boxes": "0"}
NUMBERS = ("equal", "different", "ours", "refused")
"""How a benchmark's number relates to that of its authors; ``docs/reference/data.md`` explains each value."""
ACCURACY = "accuracy"
GROUP = "group"
"""The key that means the group of a sample."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question of a benchmark: the expected answer, and the scorer that compares it with the target."""

    task: str
    """``choice``, ``yes_no``, ``open`` or ``boxes``."""
    scorer: str
    when: str = ""
    """The value of the ``kind`` column for this kind; without such a column, rows with options are choices."""
    instruction: str = ""
    """How to answer; empty for the prompt's own words."""
    unlisted: str = ""
    """The scorer of a choice without listed options: it is asked as an open question, and a note gives their number."""
    layout: str = ""
    """How the prompt is composed, as in ``Sample.layout``; empty for the usual layout."""
    option_format: str = ""
    """How each option is written, as in ``Sample.option_format``; empty for ``A. text``."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How one source of a benchmark stores its data."""

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns or templates by role; without options, the columns ``A`` to ``Z`` are the options."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Templates of the keys by which metrics of the whole dataset group."""
    meta: Mapping[str, str] = field(default_factory=dict)
    """Templates of metadata by column name: slices for rules and reports, in addition to the columns ``meta.…``."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions that columns match as a whole; their named groups count as columns."""
    answers: str | Mapping[str, str] = "as_written"
    """How answers are written: ``as_written``; ``letter``, in any case and brackets; ``position``, an index into the options
    from 0; ``text``, that of an option, also for the target of attack; ``list``, of accepted answers; or a mapping of values."""
    shuffled: bool = False
    """Options are shown in an order drawn from the row's id, because their order in the file reveals the right one."""
    image_names: str = ""
    """A regular expression: a folder of images without a table has a row for each, and named groups are its columns."""
    rows_file: str = ""
    """The JSON file of a folder without a table: a list of rows, whose ``image`` is a path."""
    options_in_question: bool = False
    """Options are at the end of the question: ``A. …``, ``(A) …`` or ``A: …``."""
    cut: tuple[str, ...] = ()
    """Texts to cut off the end of a question, because the instruction repeats them."""
    drop: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The reason for leaving out a row, by column and value."""
    unattacked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Rows that show no attack although they name its target, by column and values."""
    absent: tuple[str, ...] = ()
    """Texts that count as an empty cell."""
    box: Mapping[str, str] = field(default_factory=dict)
    """Columns of the box that a question of the task ``boxes`` asks for, by field (``BOX``)."""
    block: str = ""
    """The number of consecutive rows that form a group, if no column defines groups."""
    ids: tuple[str, ...] = ()
    """Hub ids; for hub layouts only."""
    config: str = ""
    split: str = ""

    def columns_of(self, role: str) -> tuple[str, ...]:
        """Returns the columns and unexpanded templates of a role."""
        return self.columns.get(role, ())

    def needed_columns(self) -> list[tuple[tuple[str, ...], str]]:
        """Returns groups of columns, each with the key that needs it; the file must have at least one column of each."""
        always_there = {*OWN_COLUMNS, *(name for pattern in self.parts.values() for name in re.compile(pattern).groupindex)}
        needed: list[tuple[tuple[str, ...], str]] = [((column,), "parts") for column in self.parts]
        for role in ("id", "question", "answer", "images", "group", "kind", "target_of_attack"):
            specs = self.columns_of(role)
            needed += [(specs, role)] if len(specs) > 1 else [((column,), role) for spec in specs for column in columns_in(spec)]
        needed += [((column,), f"keys.{key}") for key, template in self.keys.items() for column in columns_in(template)]
        needed += [((column,), f"meta.{name}") for name, template in self.meta.items() for column in columns_in(template)]
        needed += [((column,), f"box.{edge}") for edge, column in self.box.items()]
        return [(columns, why) for columns, why in needed if not always_there & set(columns)]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark: the names of its files, its kinds of questions, its metric, and its layouts."""

    name: str
    about: str = ""
    files: tuple[str, ...] = ()
    """Patterns of file names without ending, in any case: ``MMBench_*``."""
    kinds: tuple[Kind, ...] = ()
    """Without any, a row with options is a choice, and the others ask yes or no if all their answers are Yes or No."""
    metric: str = ACCURACY
    """The metric reported for the whole dataset."""
    question: str = ""
    """The question to ask if the source has no column of questions."""
    circular: bool = False
    """Rows with equal ids modulo 1 000 000 are one question with rotated options, and one group."""
    together: tuple[str, ...] = ()
    """Keys, or ``group``: rows that share one of these count only together; a subset has all of them or none."""
    sizes: str = ""
    """The key with the long edge, in pixels, for which the images of a row were made in advance: the rows of a group are one
    question, and each rung of a ladder shows the images made for it."""
    remarks: str = ""
    """Notes for its users."""
    rule: str = ""
    """How its makers score it."""
    source: str = ""
    """The source of that rule."""
    number: str = ""
    """``equal``, ``different``, ``ours`` or ``refused``: how the number here relates to that of the rule (``NUMBERS``)."""
    why: str = ""
    """Why it is not equal, or on which data it is."""
    tsv: Layout = field(default_factory=Layout)
    hub: tuple[Layout, ...] = ()

    @property
    def chance(self) -> str:
        """Returns the score that guessing is expected to reach, by kind of question."""
        return " or ".join(dict.fromkeys(CHANCE[kind.task] for kind in self.kinds))

    @property
    def keeps_together(self) -> tuple[str, ...]:
        """Returns the keys by which rows count only together: ``together``, and the group for circular evaluation."""
        return tuple(dict.fromkeys((*self.together, *([GROUP] if self.circular else []))))

    @property
    def file_names(self) -> tuple[str, ...]:
        """Returns the file names that are not patterns."""
        return tuple(name for name in self.files if "*" not in name)


UNKNOWN = Benchmark("")
"""The record for data without a record."""


def columns_in(spec: str) -> tuple[str, ...]:
    """Returns the columns that a template names, or the column itself.

    >>> columns_in("{category}-{question_id}"), columns_in("l2-category")
    (('category', 'question_id'), ('l2-category',))
    """
    if "{" not in spec:
        return (spec,)
    return tuple(name for _, name, _, _ in string.Formatter().parse(spec) if name)


# Benchmark records as YAML: the shipped ones, and a user's own next to the data (``NAME.benchmark.yaml``).
#
#     about: Is there such an object?
#     kinds: [{task: yes_no, scorer: yes_no}]
#     tsv: {columns: {category: split}}
#     hub:
#       - {ids: [owner/name], split: test, columns: {id: number, question: query, answer: label, images: image}}
#
# Every key is a field of ``benchmark.Benchmark``, ``Kind`` or ``Layout``; a field for several texts also accepts a single text.


SUFFIX = ".benchmark.yaml"
SHIPPED = Path(__file__).with_name("benchmarks.yaml")
_KINDS = f"'kinds': a list of kinds of questions, such as [{{task: {next(iter(CHANCE))}, scorer: …}}]"


def read_benchmark(path: Path) -> Benchmark:
    """Returns the record in a file with one record; its name is that of the file."""
    return _benchmark(path.name.removesuffix(SUFFIX), _document(path))


def read_benchmarks(path: Path) -> dict[str, Benchmark]:
    """Returns the records in a file with several records by name, in file order."""
    return {name: _benchmark(name, entry) for name, entry in _document(path).table().items()}


def _document(path: Path) -> Entry:
    return read_document(path, what="benchmark record", error=DatasetError, expected=_KINDS)


def _benchmark(name: str, entry: Entry) -> Benchmark:
    entries = entry.mapping([part.name for part in fields(Benchmark) if part.name != "name"])
    if "kinds" not in entries or not entries["kinds"].items():
        entry.fail(f"lacks {_KINDS}")
    benchmark = Benchmark(name, **read_keys(entries, dict.fromkeys(entries, _text) | _BENCHMARK))
    _check_sources(entries, benchmark)
    _check_keys(entries, benchmark)
    if benchmark.number and benchmark.number not in NUMBERS:
        entries["number"].refuse(f"one of {', '.join(NUMBERS)}")
    return benchmark


def _check_sources(entries: Mapping[str, Entry], benchmark: Benchmark) -> None:
    tsv = benchmark.tsv
    if tsv.ids or "images" in tsv.columns:
        entries["tsv"].fail("has ids or images. Expected neither: a TSV has the columns 'image' and 'image_path'")
    for entry, layout in zip(entries["hub"].items() if "hub" in entries else (), benchmark.hub, strict=True):
        required = ["id", "answer", "images", *([] if benchmark.question else ["question"])]
        if absent := [role for role in required if role not in layout.columns]:
            entry.fail(f"lacks columns for {', '.join(absent)}. Required: {', '.join(required)}")


def _check_keys(entries: Mapping[str, Entry], benchmark: Benchmark) -> None:
    """Checks that every layout has the keys that the record uses."""
    layouts = [*([benchmark.tsv] if "tsv" in entries else []), *benchmark.hub] or [Layout()]
    for name, keys in (("together", benchmark.together), ("sizes", tuple(filter(None, [benchmark.sizes])))):
        for key in keys:
            if (name, key) != ("together", GROUP) and not all(key in layout.keys for layout in layouts):
                entries[name].refuse("a key that stands among the 'keys' of each of its layouts")


def _kind(entry: Entry) -> Kind:
    entries = entry.mapping([part.name for part in fields(Kind)], required=("task", "scorer"))
    task, scorer = entries["task"].one_of(CHANCE), entries["scorer"].text("the name of a scorer")
    return Kind(**{**{key: _text(value) for key, value in entries.items()}, "task": task, "scorer": scorer})


def _layout(entry: Entry) -> Layout:
    entries = entry.mapping([part.name for part in fields(Layout)])
    return Layout(**read_keys(entries, dict.fromkeys(entries, _text) | _LAYOUT))


def _columns(entry: Entry) -> dict[str, tuple[str, ...]]:
    entries = entry.mapping(ROLES)
    for value in entries.values():
        for column in value.items() if value.is_list else [value]:
            _template(column)
    return {role: _texts(value) for role, value in entries.items()}


def _template(entry: Entry) -> str:
    text = _text(entry)
    try:
        columns_in(text)
    except ValueError as error:
        entry.refuse(f"a column, or columns in braces ({error})")
    return text


def _answers(entry: Entry) -> str | dict[str, str]:
    if entry.is_mapping:
        return _mapping(entry)
    if entry.is_list or entry.scalar() not in ANSWERS:
        entry.refuse(f"one of {', '.join(ANSWERS)}, or what stands for what, such as {{'1': 'Yes'}}")
    return _text(entry)


def _text(entry: Entry) -> str:
    return entry.text(empty=True)


def _texts(entry: Entry) -> tuple[str, ...]:
    return entry.texts(empty=True)


def _count(entry: Entry) -> str:
    text = _text(entry)
    if not (text.isdecimal() and int(text)):
        entry.refuse("a number of rows, such as 2")
    return text


def _mapping(entry: Entry, read: Callable[[Entry], str] = _text) -> dict[str, str]:
    return {key: read(value) for key, value in entry.table().items()}


_LAYOUT: dict[str, Callable[[Entry], Any]] = {
    "columns": _columns,
    "keys": partial(_mapping, read=_template),
    "meta": partial(_mapping, read=_template),
    "parts": partial(_mapping, read=Entry.pattern),
    "answers": _answers,
    "options_in_question": Entry.truth,
    "shuffled": Entry.truth,
    "image_names": Entry.pattern,
    "cut": _texts,
    "absent": _texts,
    "block": _count,
    "box": lambda entry: {key: _text(value) for key, value in entry.mapping(BOX, required=BOX).items()},
    "drop": lambda entry: {column: _mapping(why) for column, why in entry.table().items()},
    "unattacked": lambda entry: {column: _texts(values) for column, values in entry.table().items()},
    "ids": _texts,
}
"""The keys of a layout with values other than a single text, with their readers."""
_BENCHMARK: dict[str, Callable[[Entry], Any]] = {
    "kinds": lambda entry: tuple(_kind(kind) for kind in entry.items()),
    "tsv": _layout,
    "hub": lambda entry: tuple(_layout(layout) for layout in entry.items()),
    "files": _texts,
    "together": _texts,
    "circular": Entry.truth,
}
"""The keys of a record with values other than a single text."""


# The benchmarks known by name, and which of them a file name means.


BENCHMARKS: Registry[Benchmark] = Registry("benchmark", "benchmarks")
"""Benchmarks of users and of installed packages; the shipped ones are read on first use."""

_LOCAL = re.compile(r"_local$", re.IGNORECASE)


def register_benchmark(benchmark: Benchmark, *, replace: bool = False) -> Benchmark:
    """Registers ``benchmark``; its file names are tried before those of the shipped ones."""
    if not replace and benchmark.name in _shipped_benchmarks():
        raise UsageError(f"benchmark {benchmark.name!r} is shipped. Choose another name, or pass replace=True")
    return BENCHMARKS.add(benchmark.name, benchmark, replace=replace)


def benchmarks() -> Mapping[str, Benchmark]:
    """Returns all benchmarks by name: those of users and of installed packages, then the shipped ones."""
    registered = {name: BENCHMARKS.get(name) for name in BENCHMARKS.names()}
    return {**registered, **{name: benchmark for name, benchmark in _shipped_benchmarks().items() if name not in registered}}


def benchmark_of(name: str) -> Benchmark | None:
    """Returns the benchmark for a file name without ending, or for a benchmark's own name; in any case.

    A trailing ``_local``, with which VLMEvalKit names files whose images it has moved out, is ignored. A name written out
    in a record takes precedence over a pattern.

    >>> benchmark_of("MMBench_DEV_EN_V11_local").name, benchmark_of("shapes")
    ('MMBench', None)
    """
    wanted = _LOCAL.sub("", name).lower()
    index = benchmarks().values()
    exact = (benchmark for benchmark in index if wanted in {benchmark.name.lower(), *(file.lower() for file in benchmark.files)})
    similar = (benchmark for benchmark in index if any(fnmatchcase(wanted, pattern.lower()) for pattern in benchmark.files))
    return next(exact, None) or next(similar, None)


def resembling_benchmark(name: str) -> str:
    """Returns the benchmark that a file name mentions among other words without being its name; else "".

    >>> [resembling_benchmark(name) for name in ("our_MME_v2", "MME", "mmeasures")]
    ['MME', '', '']
    """
    if benchmark_of(name):
        return ""
    words = f"_{_words(name)}_"
    return next(
        (
            benchmark.name
            for benchmark in benchmarks().values()
            for file in (benchmark.name, *benchmark.file_names)
            if f"_{_words(file)}_" in words
        ),
        "",
    )


def _words(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def hub_layout(hub_id: str, config: str = "") -> tuple[Benchmark, Layout] | None:
    """Returns the benchmark of a hub id and its layout there, preferably that of ``config``."""
    layouts = [(benchmark, layout) for benchmark in benchmarks().values() for layout in benchmark.hub]
    matches = [pair for pair in layouts if hub_id.lower() in {listed.lower() for listed in pair[1].ids}]
    return next((pair for pair in matches if config and pair[1].config == config), next(iter(matches), None))


@cache
def _shipped_benchmarks() -> dict[str, Benchmark]:
    return read_benchmarks(SHIPPED)
