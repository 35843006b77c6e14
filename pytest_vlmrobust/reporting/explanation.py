"""The failure message of a test: the breach first, then every number, and how to run it again."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_vlmrobust.core.conversion import from_plain
from pytest_vlmrobust.core.record import MOST_OFTEN, Measure, Record
from pytest_vlmrobust.core.words import first_few, on_one_line, printable, quantity

_WIDTH = 28
_MOST = 5


def explain(record: Record, again: str = "") -> str:
    """Returns the failure message of a test, or its summary if it did not fail."""
    lines = [on_one_line(record.reason), *(_measure_line(measure) for measure in record.measures)]
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
        "-x",
        "--exitfirst",
        "--lf",
        "--last-failed",
        "--ff",
        "--failed-first",
        "--nf",
        "--new-first",
        "--sw",
        "--stepwise",
        "--sw-skip",
        "--stepwise-skip",
        "--co",
        "--collect-only",
        "--vlm-plan",
        "--vlm-update-baseline",
        "--vlm-aa",
    ]
)
_VALUED = frozenset(
    [
        "-k",
        "-m",
        "-n",
        "--numprocesses",
        "--dist",
        "--maxprocesses",
        "--deselect",
        "--maxfail",
        "--lfnf",
        "--junitxml",
        "--junit-xml",
        "--basetemp",
        "--vlm-report",
        "--vlm-rerun",
        "--vlm-aa-sample",
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

        Args:
            words: the arguments of ``pytest``.
            positional: the arguments that pytest took as paths and test ids, in order.
            root: the root directory of node ids.
            here: the working directory of pytest.
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
