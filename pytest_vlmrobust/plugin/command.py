"""Command: the words after ``pytest`` that ran these tests, so that a report can say how to run some of them again."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_vlmrobust.reporting import Command

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
"""What chooses tests, shares them out, or writes over what the run being looked at has written: no part of running one again."""


def command_of(config: pytest.Config) -> Command:
    """Returns how pytest was called, without what chose tests and what a second run would write over."""
    from pytest_vlmrobust.reporting import Command

    called = config.invocation_params
    root, here = seen_from_both(config.rootpath, called.dir)
    return Command(*split(called.args, config.option.file_or_dir), root, here)


def command_at_worker(sent: object) -> Command | None:
    """Returns what the controller of xdist knows about it and sent: a worker is called another way."""
    from pytest_vlmrobust.reporting import Command

    return Command.read(sent)


def seen_from_both(one: Path, other: Path) -> tuple[Path, Path]:
    """Returns two directories as they are seen from the nearest one that holds both, so that no report says where that is.

    >>> [str(path) for path in seen_from_both(Path("/home/me/gate"), Path("/home/me/gate/suites"))]
    ['.', 'suites']
    """
    both = os.path.commonpath([one, other])
    return one.relative_to(both), other.relative_to(both)


def split(words: Sequence[str | os.PathLike[str]], positional: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the options among the words of a command line, and its paths and test ids.

    Args:
        words: what stood after ``pytest``.
        positional: which of them pytest took for paths and test ids, in their order.
    """
    options: list[str] = []
    rest = list(positional)
    for word in _kept(iter(map(str, words))):
        if rest and word == rest[0]:
            rest.pop(0)
        else:
            options.append(word)
    return tuple(options), tuple(positional)


def _kept(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        if word in _VALUED:
            next(words, "")
        elif word not in _FLAGS and word.partition("=")[0] not in _VALUED and not _GLUED.fullmatch(word):
            yield word
