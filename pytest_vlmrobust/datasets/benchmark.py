"""What is known about one benchmark, as data: who it is, where its files keep what, and how its answers are scored.

The shipped records stand in ``benchmarks.yaml``, in the form that ``benchmark_files.read_benchmark`` reads, which is also the
form of a user's own. A *role* is something a sample needs (``question``); a column of a file plays it. Where a role names
several columns, the first that is not empty in a row counts; a text with braces puts columns together
(``"{category}-{question_id}"``). Beside the columns of a row there are ``{row}``, its number from 0, ``{picture}``, a digest of
its pictures, and the named groups of ``parts``.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field

ROLES = ("id", "question", "answer", "options", "images", "hint", "category", "group", "kind")
ANSWERS = ("as_written", "letter", "position", "list")
OWN_COLUMNS = ("row", "picture")
CHANCE = {"choice": "1 / options", "yes_no": "1 / 2", "open": "0"}
ACCURACY = "accuracy"
GROUP = "group"
"""Among keys, the group of a sample."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question of a benchmark: which answer is expected, and who compares it with the target."""

    task: str
    """``choice``, ``yes_no`` or ``open``."""
    scorer: str
    when: str = ""
    """What the column of the role ``kind`` says; where there is none, rows with options are the choices."""
    instruction: str = ""
    """How to answer; the prompt's own words where nothing is said."""
    unlisted: str = ""
    """The scorer of a choice whose options are written nowhere: it is asked as an open question, and a note counts them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one source of a benchmark keeps what."""

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns or templates by role; without options, the columns ``A`` to ``Z`` are the options."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Templates of what metrics of the whole data set group by."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions that columns match as a whole; their named groups count as columns."""
    answers: str | Mapping[str, str] = "as_written"
    """How answers are written: ``as_written``; ``letter``, in any case and brackets; ``position``, an index into the options
    from 0; ``list``, of accepted answers; or what stands for what."""
    options_in_question: bool = False
    """Options stand at the end of the question: ``A. …``, ``(A) …`` or ``A: …``."""
    cut: tuple[str, ...] = ()
    """What is cut off the end of a question, because the instruction says it."""
    drop: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Which rows are left out and why, by column and value."""
    absent: tuple[str, ...] = ()
    """Texts that stand for an empty cell."""
    ids: tuple[str, ...] = ()
    """Hub ids; of hub layouts only."""
    config: str = ""
    split: str = ""

    def columns_of(self, role: str) -> tuple[str, ...]:
        """Returns what may play a role, without its templates taken apart."""
        return self.columns.get(role, ())

    def needed(self) -> list[tuple[tuple[str, ...], str]]:
        """Returns columns of which one at least must be there, each time with what it is needed for."""
        given = {*OWN_COLUMNS, *(name for pattern in self.parts.values() for name in re.compile(pattern).groupindex)}
        found: list[tuple[tuple[str, ...], str]] = [((column,), "parts") for column in self.parts]
        for role in ("id", "question", "answer", "images", "group", "kind"):
            specs = self.columns_of(role)
            found += [(specs, role)] if len(specs) > 1 else [((column,), role) for spec in specs for column in columns_in(spec)]
        found += [((column,), f"keys.{key}") for key, template in self.keys.items() for column in columns_in(template)]
        return [(columns, why) for columns, why in found if not given & set(columns)]


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
    """The metric that is reported for the data set as a whole."""
    question: str = ""
    """Asked where the source has no column of questions."""
    circular: bool = False
    """Rows whose ids agree modulo 1 000 000 are one question with its options rotated, and one group."""
    together: tuple[str, ...] = ()
    """Keys, or ``group``: rows that share one of these count only together; a smaller data set has all of them or none."""
    sizes: str = ""
    """The key that says for which long edge, in pixels, the pictures of a row were made beforehand: the rows of a group are one
    question, and each rung of a ladder shows the pictures made for it."""
    remarks: str = ""
    """What its user should know."""
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
