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
# The shipped records stand in ``benchmarks.yaml``, in the form that ``benchmark_files.read_benchmark`` reads, which is also the
# form of a user's own. A *role* is something a sample needs (``question``); a column of a file plays it. Where a role names
# several columns, the first that is not empty in a row counts; a text with braces puts columns together
# (``"{category}-{question_id}"``). Beside the columns of a row there are ``{row}``, its number from 0, ``{image}``, a digest of
# its images, and the named groups of ``parts``.


ROLES = ("id", "question", "answer", "options", "images", "hint", "category", "group", "kind", "target_of_attack", "perturbed")
BOX = ("x1", "y1", "x2", "y2", "width", "height")
"""What is said of a box: its edges in pixels of the image, right and bottom exclusive, and the size of the image."""
ANSWERS = ("as_written", "letter", "position", "text", "list")
OWN_COLUMNS = ("row", "picture")
CHANCE = {"choice": "1 / options", "yes_no": "1 / 2", "open": "0", "boxes": "0"}
NUMBERS = ("equal", "different", "ours", "refused")
"""How the number of a benchmark stands to that of its maker; ``docs/reference/data.md`` says what each means."""
ACCURACY = "accuracy"
GROUP = "group"
"""Among keys, the group of a sample."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question of a benchmark: which answer is expected, and who compares it with the target."""

    task: str
    """``choice``, ``yes_no``, ``open`` or ``boxes``."""
    scorer: str
    when: str = ""
    """What the column of the role ``kind`` says; where there is none, rows with options are the choices."""
    instruction: str = ""
    """How to answer; empty for the prompt's own words."""
    unlisted: str = ""
    """The scorer of a choice whose options are written nowhere: it is asked as an open question, and a note counts them."""
    layout: str = ""
    """How the prompt is put together, as ``Sample.layout`` says; empty for the usual layout."""
    option_format: str = ""
    """How each option is written, as ``Sample.option_format`` says; empty for ``A. text``."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one source of a benchmark keeps what."""

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns or templates by role; without options, the columns ``A`` to ``Z`` are the options."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Templates of what metrics of the whole dataset group by."""
    meta: Mapping[str, str] = field(default_factory=dict)
    """Templates of metadata by the name of its column: slices of rules and reports, beside the columns ``meta.…``."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions that columns match as a whole; their named groups count as columns."""
    answers: str | Mapping[str, str] = "as_written"
    """How answers are written: ``as_written``; ``letter``, in any case and brackets; ``position``, an index into the options
    from 0; ``text``, that of an option, also for the target of attack; ``list``, of accepted answers; or what stands for what."""
    shuffled: bool = False
    """Options are shown in an order that is drawn from the id of a row: their order in the file says which one is right."""
    image_names: str = ""
    """A regular expression: a folder of images without a table has a row for each, and named groups are its columns."""
    rows_file: str = ""
    """The JSON file of a folder without a table: a list of rows, whose ``image`` is a path."""
    options_in_question: bool = False
    """Options stand at the end of the question: ``A. …``, ``(A) …`` or ``A: …``."""
    cut: tuple[str, ...] = ()
    """Texts that are cut off the end of a question, because the instruction repeats them."""
    drop: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Which rows are left out and why, by column and value."""
    unattacked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Which rows show no attack though they name its target, by column and values."""
    absent: tuple[str, ...] = ()
    """Texts that stand for an empty cell."""
    box: Mapping[str, str] = field(default_factory=dict)
    """Columns of the box that a question of the task ``boxes`` asks for, by what they hold (``BOX``)."""
    block: str = ""
    """How many rows, one after another, are one group, where no column says so."""
    ids: tuple[str, ...] = ()
    """Hub ids; of hub layouts only."""
    config: str = ""
    split: str = ""

    def columns_of(self, role: str) -> tuple[str, ...]:
        """Returns what may play a role, without its templates taken apart."""
        return self.columns.get(role, ())

    def needed_columns(self) -> list[tuple[tuple[str, ...], str]]:
        """Returns groups of columns, at least one of each must be in the file, with the key that needs it."""
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
    """The metric that is reported for the dataset as a whole."""
    question: str = ""
    """Asked where the source has no column of questions."""
    circular: bool = False
    """Rows whose ids agree modulo 1 000 000 are one question with its options rotated, and one group."""
    together: tuple[str, ...] = ()
    """Keys, or ``group``: rows that share one of these count only together; a smaller dataset has all of them or none."""
    sizes: str = ""
    """The key that says for which long edge, in pixels, the images of a row were made beforehand: the rows of a group are one
    question, and each rung of a ladder shows the images made for it."""
    remarks: str = ""
    """What its user should know."""
    rule: str = ""
    """How its makers score it."""
    source: str = ""
    """Where that rule stands."""
    number: str = ""
    """``equal``, ``different``, ``ours`` or ``refused``: how the number here stands to that of the rule (``NUMBERS``)."""
    why: str = ""
    """Why it is not equal, or on what it is."""
    tsv: Layout = field(default_factory=Layout)
    hub: tuple[Layout, ...] = ()

    @property
    def chance(self) -> str:
        """Returns the score that guessing is expected to reach, by kind of question."""
        return " or ".join(dict.fromkeys(CHANCE[kind.task] for kind in self.kinds))

    @property
    def keeps_together(self) -> tuple[str, ...]:
        """Returns by what rows count only together: as said, and the copies of circular evaluation in any case."""
        return tuple(dict.fromkeys((*self.together, *([GROUP] if self.circular else []))))

    @property
    def file_names(self) -> tuple[str, ...]:
        """Returns the names of files that are no patterns."""
        return tuple(name for name in self.files if "*" not in name)


UNKNOWN = Benchmark("")
"""The record of data that no record is about."""


def columns_in(spec: str) -> tuple[str, ...]:
    """Returns the columns that a template names, or the one column that it is.

    >>> columns_in("{category}-{question_id}"), columns_in("l2-category")
    (('category', 'question_id'), ('l2-category',))
    """
    if "{" not in spec:
        return (spec,)
    return tuple(name for _, name, _, _ in string.Formatter().parse(spec) if name)


# Benchmark records as YAML: the shipped ones, and a user's own beside the data (``NAME.benchmark.yaml``).
#
#     about: Is there such an object?
#     kinds: [{task: yes_no, scorer: yes_no}]
#     tsv: {columns: {category: split}}
#     hub:
#       - {ids: [owner/name], split: test, columns: {id: number, question: query, answer: label, images: image}}
#
# Every key is a field of ``benchmark.Benchmark``, ``Kind`` or ``Layout``; where a field holds several texts, one may stand alone.


SUFFIX = ".benchmark.yaml"
SHIPPED = Path(__file__).with_name("benchmarks.yaml")
_KINDS = f"'kinds': a list of kinds of questions, such as [{{task: {next(iter(CHANCE))}, scorer: …}}]"


def read_benchmark(path: Path) -> Benchmark:
    """Returns the record in a file that holds one; its name is that of the file."""
    return _benchmark(path.name.removesuffix(SUFFIX), _document(path))


def read_benchmarks(path: Path) -> dict[str, Benchmark]:
    """Returns the records in a file that holds several by name, in the order written."""
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
"""The keys of a layout that are not one text, each with what reads its value."""
_BENCHMARK: dict[str, Callable[[Entry], Any]] = {
    "kinds": lambda entry: tuple(_kind(kind) for kind in entry.items()),
    "tsv": _layout,
    "hub": lambda entry: tuple(_layout(layout) for layout in entry.items()),
    "files": _texts,
    "together": _texts,
    "circular": Entry.truth,
}
"""The keys of a record that are not one text."""


# The benchmarks known by name, and which of them a file name means.


BENCHMARKS: Registry[Benchmark] = Registry("benchmark", "benchmarks")
"""Benchmarks of users and of installed packages; the shipped ones are read when first asked for."""

_LOCAL = re.compile(r"_local$", re.IGNORECASE)


def register_benchmark(benchmark: Benchmark, *, replace: bool = False) -> Benchmark:
    """Makes ``benchmark`` known; its file names are tried before those of the shipped ones."""
    if not replace and benchmark.name in _shipped_benchmarks():
        raise UsageError(f"benchmark {benchmark.name!r} is shipped. Choose another name, or pass replace=True")
    return BENCHMARKS.add(benchmark.name, benchmark, replace=replace)


def benchmarks() -> Mapping[str, Benchmark]:
    """Returns every benchmark by name: those of users and of installed packages, then the shipped ones."""
    registered = {name: BENCHMARKS.get(name) for name in BENCHMARKS.names()}
    return {**registered, **{name: benchmark for name, benchmark in _shipped_benchmarks().items() if name not in registered}}


def benchmark_of(name: str) -> Benchmark | None:
    """Returns the benchmark that a file name without ending, or a benchmark's own name, means; in any case.

    ``_local`` at the end, as VLMEvalKit names files whose images it has moved out, is left aside. A name that is written out
    in a record counts before a pattern.

    >>> benchmark_of("MMBench_DEV_EN_V11_local").name, benchmark_of("shapes")
    ('MMBench', None)
    """
    wanted = _LOCAL.sub("", name).lower()
    known = benchmarks().values()
    exact = (benchmark for benchmark in known if wanted in {benchmark.name.lower(), *(file.lower() for file in benchmark.files)})
    similar = (benchmark for benchmark in known if any(fnmatchcase(wanted, pattern.lower()) for pattern in benchmark.files))
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
    """Returns the benchmark that a hub id means, and where it keeps what there: the layout of ``config`` before others."""
    matches = [
        (benchmark, layout) for benchmark in benchmarks().values() for layout in benchmark.hub if _is_one_of(hub_id, layout)
    ]
    return next((pair for pair in matches if config and pair[1].config == config), next(iter(matches), None))


def _is_one_of(hub_id: str, layout: Layout) -> bool:
    return hub_id.lower() in {known.lower() for known in layout.ids}


@cache
def _shipped_benchmarks() -> dict[str, Benchmark]:
    return read_benchmarks(SHIPPED)
