"""Forecast: the requests and cost of a run, as printed by ``--vlm-plan``."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from pytest_vlmrobust.core.cell import CLEAN, PROBES, Cell
from pytest_vlmrobust.core.errors import StoreError, VlmRobustError
from pytest_vlmrobust.core.prediction import Prediction, token_count
from pytest_vlmrobust.core.words import first_few
from pytest_vlmrobust.store import last_records

from .evaluator import Evaluator
from .evidence import Rate, measured_rate, newest_runs
from .probes import probed_places
from .views import view_count

HEADER = ("model", "dataset", "cells", "samples", "inferences", "in the store", "to infer", "time", "prompt tokens")
NAMES = 2
"""The first columns, which hold names."""
UNKNOWN = "not known"
_MINUTE, _HOUR, _KIB, _MIB, _GIB = 60.0, 3600.0, 2**10, 2**20, 2**30
_EXAMPLES = 400
"""Stored answers used for the mean number of tokens."""
RateOf = Callable[[str, str], Rate | None]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Mean token counts of an answer and its prompt, if the backend counts them."""

    prompt: float
    visual: float | None
    answers: int
    """How many stored answers they are means of."""
    completion: float | None = None
    """Tokens of the answer; ``None`` if the backend counts only prompts."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The requests to a model about a dataset."""

    model: str
    dataset: str
    cells: int
    samples: int
    passes: int
    """Forward passes: one for each view, and so n * n for a sample under ``patches:n``."""
    held: int | None
    """Answers already in the store; ``None`` if the model's files cannot be read."""
    unrendered: int
    """Views never rendered: whether their pixels have an answer is not known yet."""
    rate: Rate | None = None
    tokens: Tokens | None = None
    problem: str = ""
    """Why a part of the forecast is unknown."""
    cost: float = math.nan
    """Cost of the missing answers at the declared prices; NaN if unknown."""
    currency: str = ""

    @property
    def missing(self) -> int:
        """Forward passes to be made, at most."""
        return self.passes - (self.held or 0)


def forecasts(evaluator: Evaluator, cells: Iterable[Cell], rate_of: RateOf) -> list[Forecast]:
    """Returns a line for each model and dataset, in the order of ``cells``; no weights are loaded and no pixels are read."""
    grouped: dict[tuple[str, str], list[Cell]] = {}
    for cell in dict.fromkeys(cells):
        grouped.setdefault((cell.model, cell.dataset), []).append(cell)
    return [_forecast(evaluator, model, dataset, part, rate_of) for (model, dataset), part in grouped.items()]


def _forecast(evaluator: Evaluator, model: str, dataset: str, cells: list[Cell], rate_of: RateOf) -> Forecast:
    samples = len(evaluator.samples(dataset))
    changed = [(cell, evaluator.changed(dataset, cell.setting)) for cell in cells]
    passes = sum((samples if places is None else len(places)) * view_count(cell.setting) for cell, places in changed)
    held: int | None = 0
    unrendered, problem = passes, ""
    try:
        held, unrendered = _held(evaluator, cells)
    except VlmRobustError as error:
        held, problem = None, str(error)
    tokens = mean_tokens(evaluator.store.examples(model, dataset, _EXAMPLES))
    ref, missing = evaluator.models[model], passes - (held or 0)
    cost = math.nan
    if tokens is not None and tokens.completion is not None:
        cost = ref.cost(missing * tokens.prompt, missing * tokens.completion)
    rate = rate_of(model, dataset)
    return Forecast(model, dataset, len(cells), samples, passes, held, unrendered, rate, tokens, problem, cost, ref.currency)


def _held(evaluator: Evaluator, cells: Iterable[Cell]) -> tuple[int, int]:
    """Returns how many views have an answer in the store, and of how many the pixels are not known."""
    held = unrendered = 0
    for cell in cells:
        keys = [query.key for query in evaluator.queries(cell, evaluator.changed(cell.dataset, cell.setting))]
        known = evaluator.store.has({key for key in keys if key is not None})
        held += sum(key in known for key in keys)
        unrendered += keys.count(None)
    return held, unrendered


def mean_tokens(answers: Iterable[Prediction]) -> Tokens | None:
    """Returns the mean token counts of answers; ``None`` without counts."""
    answers = list(answers)
    noted = [answer.details for answer in answers if token_count(answer.details.get("prompt_tokens")) is not None]
    completion = [tokens[1] for answer in answers if (tokens := answer.tokens) is not None]
    if not noted:
        return None
    visual = [float(details["visual_tokens"]) for details in noted if "visual_tokens" in details]
    return Tokens(
        fmean(float(details["prompt_tokens"]) for details in noted),
        sum(visual) / len(noted) if visual else None,
        len(noted),
        fmean(completion) if completion else None,
    )


@dataclass(frozen=True, slots=True)
class RunForecast:
    """The questions of a planned run: a row for each model and dataset, and the basis of the numbers."""

    rows: Sequence[Forecast]
    disk: str
    probes: int = 0
    """The most questions repeated as probes with the clean cells."""

    @classmethod
    def of(cls, evaluator: Evaluator, cells: Iterable[Cell], earlier: Iterable[Path], store: Path) -> RunForecast:
        """Returns the forecast for cells, without loading weights."""
        runs = []
        for path in newest_runs(earlier):
            with contextlib.suppress(StoreError):  # of another release: its times are not known
                runs.append((path.name, last_records(path)))
        planned = list(cells)
        rows = forecasts(evaluator, planned, partial(measured_rate, runs))
        total = sum(row.passes + row.missing for row in rows)
        clean = [evaluator.samples(cell.dataset) for cell in dict.fromkeys(planned) if cell.setting == CLEAN]
        probes = sum(len(probed_places(setting, samples)) for samples in clean for setting in PROBES)
        return cls(rows, _disk(evaluator, total, store), probes)

    @property
    def table(self) -> list[list[str]]:
        """The header of the table and its rows; columns without known values are left out."""
        columns = zip(HEADER, *map(_row, self.rows), strict=True)
        return [list(row) for row in zip(*(column for column in columns if {*column[1:]} != {UNKNOWN}), strict=True)]

    @property
    def lines(self) -> list[str]:
        """The basis of the table's numbers, and what is unknown."""
        passes, missing = sum(row.passes for row in self.rows), sum(row.missing for row in self.rows)
        alike: dict[str, list[str]] = {}
        for row in self.rows:
            alike.setdefault(_basis(row), []).append(f"{row.model}-{row.dataset}")
        return [
            f"{passes:,} inferences, at most {missing:,} of them not cached",
            *(
                [f"plus up to {self.probes:,} sanity checks: repeated questions, with another image or alone"]
                if self.probes
                else []
            ),
            *_unrendered(self.rows),
            *(f"{first_few(names, 1)}: {basis}" for basis, names in alike.items()),
            *(f"{row.model}-{row.dataset}: {cost}" for row in self.rows if (cost := _cost(row))),
        ]


def _row(row: Forecast) -> tuple[str, ...]:
    time = duration(row.missing * row.rate.seconds) if row.rate else UNKNOWN
    tokens = f"{row.missing * row.tokens.prompt:,.0f}" if row.tokens else UNKNOWN
    held = UNKNOWN if row.held is None else f"{row.held:,}"
    counts = (f"{row.cells:,}", f"{row.samples:,}", f"{row.passes:,}", held, f"{row.missing:,}")
    return row.model, row.dataset, *counts, time, tokens


def _cost(row: Forecast) -> str:
    """Returns the cost of missing answers; empty without declared prices."""
    if not row.currency:
        return ""
    if math.isnan(row.cost):
        return f"cost in {row.currency} not known, for no stored answer says how many tokens it took"
    return f"about {row.cost:,.4g} {row.currency} by the declared prices"


def _unrendered(rows: Iterable[Forecast]) -> list[str]:
    count = sum(row.unrendered for row in rows)
    if not count:
        return []
    return [f"{count:,} images are new to this store; identical ones are answered from the cache"]


def _basis(row: Forecast) -> str:
    parts = [_of_rate(row.rate, row.dataset)]
    if row.tokens:
        visual = f", {row.tokens.visual:.0f} of them visual" if row.tokens.visual is not None else ""
        written = f" and {row.tokens.completion:.3g} completion tokens" if row.tokens.completion is not None else ""
        parts.append(
            f"{row.tokens.prompt:.0f} prompt tokens{written} an answer{visual} (mean of {row.tokens.answers} stored answers)"
        )
    else:
        parts.append("tokens not known: this store has no answer of the model with a count")
    return "; ".join([*parts, *([f"what the store holds is not known: {row.problem}"] if row.problem else [])])


def _of_rate(rate: Rate | None, dataset: str) -> str:
    if rate is None:
        return "time not known: this store has no earlier run of the model"
    where = "" if rate.dataset == dataset else f" on {rate.dataset}"
    return f"{rate.seconds:.3g} s an answer in one process{where} (median of {rate.cells} cells of run {rate.run})"


def _disk(evaluator: Evaluator, answers: int, directory: Path) -> str:
    """Returns the disk space of the answers in the store and in the run's evidence, estimated from existing answers."""
    store = evaluator.store
    free = f"{size(shutil.disk_usage(directory).free)} are free at {directory}"
    if not len(store):
        return f"disk: not known, because the store holds no answer yet; {free}"
    each = store.path.stat().st_size / len(store)
    return f"disk: about {size(answers * each)} ({size(each)} an answer in the store, and as much as evidence); {free}"


def duration(seconds: float) -> str:
    """Returns a time as people say it.

    >>> duration(4.2), duration(190), duration(9000)
    ('5 s', '4 min', '2.5 h')
    """
    if seconds < 2 * _MINUTE:
        return f"{-(-seconds // 1):.0f} s"
    return f"{-(-seconds // _MINUTE):.0f} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} h"


def size(count: float) -> str:
    """Returns a number of bytes as people say it.

    >>> size(700), size(3_000_000)
    ('700 B', '2.9 MiB')
    """
    for unit, name in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"
