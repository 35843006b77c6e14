"""One test for a reader: its row, its warnings, its failure message, and how to run it again or waive it."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from pytest_vlmrobust.core.conversion import from_plain
from pytest_vlmrobust.core.decision import NOT_SHOWN, WARNING, Outcome
from pytest_vlmrobust.core.record import BUDGET_METRICS, MOST_OFTEN, Measure, Record
from pytest_vlmrobust.core.words import first_few, on_one_line, printable, quantity

_WIDTH = 28
_MOST = 5
_EXPLAINED = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE)
"""Outcomes that are always shown with their reason."""
_SPEAKS_UP = re.compile(f"(?:^|; )({re.escape(WARNING)}|{re.escape(NOT_SHOWN)})")
"""The start of a warning or of a rule that is not shown to hold within a reason, which may have several."""
_NO_IDENTIFIER = re.compile(r"[^A-Za-z0-9_.-]+")
_WAIVED_DAYS = 90
"""For how long a proposed waiver holds."""
_NEVER_PROPOSED = (
    *("visual_gain", "gain_over_blind", "accuracy_above_chance"),
    *("accuracy", "clean_accuracy", "identity_accuracy", "resolution_accuracy"),
)
"""Metrics of whether a model looks and knows anything; reports offer no ready-made waiver for them."""


@dataclass(frozen=True, slots=True)
class ViewedTest:
    """A test with its content for reports."""

    record: Record
    command: str
    """The command that reruns it; empty if the command line is unknown."""
    date: str
    """The day of the run; empty if unknown."""

    @property
    def failure_message(self) -> str:
        """Its failure message, or its summary if it did not fail."""
        return explain(self.record, self.command)

    @property
    def is_explained(self) -> bool:
        """Whether its reason is always shown."""
        return self.record.deciding in _EXPLAINED

    @property
    def measure(self) -> Measure | None:
        """The measure in its table row."""
        return self.record.headline

    @property
    def row(self) -> tuple[str, str, str, str, str]:
        """Metric, value, interval, bound and n; empty without a measure."""
        measure = self.measure
        if measure is None:
            return "", "", "", "", ""
        return measure.called, measure.shown, measure.beside, measure.bound, self.answers(measure)

    def answers(self, measure: Measure) -> str:
        """Returns the number of answers behind a measure; for a stopped test, with the total."""
        return f"{self.record.n_requested} of {self.record.n_samples}" if self.record.n_samples else measure.questions

    @property
    def warnings(self) -> list[str]:
        """A sentence for each broken or undecided rule that only warns."""
        return warnings_of(self.record)

    @property
    def waiver_item(self) -> list[str]:
        """A waiver item for a thresholds file that covers its breach, without owner and reason.

        It is YAML in parts, between which lines may break. A file with these two still empty is refused, so that nobody waives by
        pasting alone. Its cap is beyond the interval, or beyond the value where that is judged. Empty if no waiver can cover it,
        as for a broken budget, or where it would hide a model that ignores its images.
        """
        record, measure = self.record, self.measure
        if record.outcome is not Outcome.FAIL or measure is None or not measure.rule:
            return []
        ends = () if measure.metric in {*BUDGET_METRICS, *_NEVER_PROPOSED} else measure.ends
        if not ends or min(ends) <= measure.value <= max(ends):
            return []
        above = measure.value > max(ends)
        shown = math.nan if measure.judge == "value" else measure.high if above else measure.low
        beyond = [end for end in (measure.value, shown) if math.isfinite(end)]
        cap = math.ceil(round(100 * max(beyond), 6)) / 100 if above else math.floor(round(100 * min(beyond), 6)) / 100
        cell = {"model": record.model, "dataset": record.dataset, "setting": record.setting or record.split}
        where = [(name, text) for name, text in (*cell.items(), ("category", measure.category)) if text]
        name = _NO_IDENTIFIER.sub("-", f"W-{record.id}")
        expires = date.fromisoformat(self.date) + timedelta(days=_WAIVED_DAYS) if self.date else ""
        parts = [f"id: {name}", "owner: ", "reason: ", f"expires: {expires}", f"metric: {measure.metric}"]
        parts.append(f"cap: {f'{round(100 * cap)}{measure.unit}' if measure.unit else cap}")
        scope = [f"{name}: {json.dumps(text, ensure_ascii=False)}" for name, text in where] or [""]
        parts += [f"where: {{{scope[0]}", *scope[1:]]
        return [f"- {{{parts[0]},", *(f"{part}," for part in parts[1:-1]), f"{parts[-1]}}}}}"]


def warnings_of(record: Record) -> list[str]:
    """Returns a sentence for each broken or undecided rule of a test that only warns."""
    parts = [_SPEAKS_UP.split(measure.reason)[1:] for measure in record.measures]
    return [text for split in parts for kind, text in zip(split[::2], split[1::2], strict=True) if kind == WARNING]


def explain(record: Record, again: str = "") -> str:
    """Returns the failure message of a test, or its summary if it did not fail."""
    shown = [measure for measure in record.measures if measure.bound or not math.isnan(measure.value)]
    undefined = [m.metric for m in record.measures if m.metric and not m.bound and math.isnan(m.value)]
    lines = [on_one_line(record.reason), *map(_measure_line, shown)]
    lines += [_line("undefined", ", ".join(undefined))] if undefined else []
    lines.append(_line("answers", _answers(record)))
    lines += [_line("unread", on_one_line(why, None)) for measure in record.measures if (why := _why_unread(measure))]
    changes = {"newly wrong": record.worst, "broken since the baseline": record.broken, "fixed since the baseline": record.fixed}
    lines += [_line(title, first_few(ids, _MOST)) for title, ids in changes.items() if ids]
    lines += [_line("again", again)] if again else []
    return "\n".join(lines)


def _answers(record: Record) -> str:
    """Returns the number of answers of the test over all its cells, by state."""
    unread = record.n_unparsed + record.n_refused + record.n_guessed + record.n_errors
    parts = [f"{record.n_requested - unread} read", f"{record.n_unparsed} unparsed", quantity(record.n_errors, "error")]
    parts += [f"{record.n_refused} refused"] if record.n_refused else []
    parts += [quantity(record.n_guessed, "guess", "guesses")] if record.n_guessed else []
    return f"{record.n_requested}: {', '.join(parts)}"


def _why_unread(measure: Measure) -> str:
    """Returns the rule that left most answers unread and what to do, from the reason of the budget."""
    return measure.reason.partition(f"; {MOST_OFTEN}")[2] if measure.metric == "unparsed_rate" else ""


def _measure_line(measure: Measure) -> str:
    bound = f"  {measure.outcome} {measure.bound}" if measure.bound else ""
    return _line(measure.called, f"{f'{measure.shown} {measure.beside}'.rstrip()}  n={measure.questions}{bound}")


def _line(title: str, text: str) -> str:
    return f"    {printable(title):<{_WIDTH}} {printable(text)}"


# The command lines that run tests again.


_FLAGS = frozenset(
    [
        *("-x", "--exitfirst", "--lf", "--last-failed", "--ff", "--failed-first", "--nf", "--new-first"),
        *("--sw", "--stepwise", "--sw-skip", "--stepwise-skip", "--co", "--collect-only"),
        *("--vlm-plan", "--vlm-update-baseline", "--vlm-aa"),
    ]
)
_VALUED = frozenset(
    [
        *("-k", "-m", "-n", "--numprocesses", "--dist", "--maxprocesses", "--deselect", "--maxfail", "--lfnf"),
        *("--junitxml", "--junit-xml", "--basetemp", "--vlm-report", "--vlm-rerun", "--vlm-aa-sample"),
    ]
)
_GLUED = re.compile(r"-[kmn][^-].*")
"""Options that choose tests, distribute them, or would overwrite files of the earlier run: running a test again omits them."""
_SHOWN = frozenset(
    [
        *("-c", "-p", "-r", "-W", "--config-file", "--report-chars", "--pythonwarnings"),
        *("--assert", "--capture", "--code-highlight", "--color", "--confcutdir", "--durations", "--durations-min"),
        *("--ignore", "--ignore-glob", "--import-mode", "--junit-prefix", "--rootdir", "--show-capture", "--tb", "--verbosity"),
        *("--log-cli-level", "--log-disable", "--log-file", "--log-file-level", "--log-level"),
    ]
)
"""Options of pytest whose values may be shown, like those of the gate; other values may be passwords."""
_LETTERS = frozenset("dflqsvx")
"""One-letter options without a value, which may be combined."""
_INI = ("-o", "--override-ini")
_HIDDEN = "..."


@dataclass(frozen=True, slots=True)
class Command:
    """The command line of pytest, for commands that rerun tests."""

    options: tuple[str, ...] = ()
    """The arguments of ``pytest`` that are not paths, without those that select tests or write reports.

    Values of options of other plugins are left out, because they may be passwords."""
    paths: tuple[str, ...] = ()
    """The paths and test ids."""
    root: Path = Path()
    """The root directory of node ids, relative to a common parent with ``here``."""
    here: Path = Path()
    """The working directory of pytest, relative to the same parent."""

    def for_test(self, nodeid: str) -> str:
        """Returns the command line that reruns a test; empty without a node id."""
        if not nodeid:
            return ""
        file, separator, test = nodeid.partition("::")
        path = os.path.relpath(self.root / file, self.here)
        return shlex.join(["pytest", *self.options, f"{path}{separator}{test}"])

    def several(self, verdicts: str) -> str:
        """Returns the command line that runs all tests again that have a verdict: ``failed``, ``errors`` or ``inconclusive``."""
        return self.whole(f"--vlm-rerun={verdicts}")

    def whole(self, *more: str) -> str:
        """Returns the command line that runs every test of the same paths again, with more options."""
        return shlex.join(["pytest", *self.options, *more, *self.paths])

    @classmethod
    def of(cls, words: Sequence[str | os.PathLike[str]], positional: Sequence[str], root: Path, here: Path) -> Command:
        """Returns the command line without test selections, output files of the run, and possible secrets.

        ``words`` are the arguments of ``pytest``, of which it took ``positional`` as paths and test ids, in order. Node ids are
        relative to ``root``.
        """
        return cls(*_split(words, positional), *_seen_from_both(root, here))

    @classmethod
    def read(cls, data: object) -> Command | None:
        """Returns the command in a manifest; ``None`` for anything else."""
        try:
            return from_plain(data, cls) if data else None
        except TypeError:
            return None


def _seen_from_both(first: Path, second: Path) -> tuple[Path, Path]:
    """Returns two directories relative to their nearest common parent, so that reports do not reveal it.

    >>> [str(path) for path in _seen_from_both(Path("/home/me/gate"), Path("/home/me/gate/suites"))]
    ['.', 'suites']
    """
    both = os.path.commonpath([first, second])
    return first.relative_to(both), second.relative_to(both)


def _split(words: Sequence[str | os.PathLike[str]], positional: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Splits the words of a command line into options and positional arguments."""
    options: list[str] = []
    rest, name = list(positional), ""
    for word in _kept_words(iter(map(str, words))):
        if rest and word == rest[0]:
            rest.pop(0)
            continue
        if word.startswith("--"):
            name, _, value = word.partition("=")
        elif word.startswith("-"):
            name, value = word[:2], word[2:]
        else:
            value = word  # of the option before it
        options.append(word.removesuffix(value) + _shown(name, value) if value else word)
    return tuple(options), tuple(positional)


def _shown(name: str, value: str) -> str:
    """Returns the value of an option as a report may show it.

    >>> _shown("--vlm", "tiny"), _shown("--rp-api-key", "secret"), _shown("-o", "rp_api_key=secret"), _shown("-v", "v")
    ('tiny', '...', 'rp_api_key=...', 'v')
    """
    if name in _INI:
        key, mark, _ = value.partition("=")
        return value if key.startswith("vlm") else f"{key}{mark}{_HIDDEN}"
    is_known = (
        name in _SHOWN or name == "--vlm" or name.startswith("--vlm-") or (name[:2] != "--" and set(name[1:] + value) <= _LETTERS)
    )
    return value if is_known else _HIDDEN


def _kept_words(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        if word in _VALUED:
            next(words, "")
        elif word not in _FLAGS and word.partition("=")[0] not in _VALUED and not _GLUED.fullmatch(word):
            yield word
