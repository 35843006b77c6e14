"""Forecast: what a run will ask, what of it the store already holds, and what the rest costs where that is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean

from pytest_vlmrobust.core.cell import Cell
from pytest_vlmrobust.core.errors import VlmRobustError
from pytest_vlmrobust.core.prediction import Prediction

from .evaluator import Evaluator
from .runs import Rate

_EXAMPLES = 400
"""Stored answers that the mean number of tokens is taken over."""
RateOf = Callable[[str, str], Rate | None]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Mean numbers of tokens of an answer's prompt, as far as a backend says."""

    prompt: float
    visual: float | None
    answers: int
    """How many stored answers they are means of."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one model will be asked about one data set."""

    model: str
    dataset: str
    cells: int
    samples: int
    passes: int
    """Forward passes: one for each view, and so n * n for a sample under ``patches:n``."""
    held: int | None
    """Those whose answers the store holds; ``None`` where the files of the model cannot be read, so that nobody knows."""
    unrendered: int
    """Those whose pixels were never made: whether an answer to the same pixels is there shows only then."""
    rate: Rate | None = None
    tokens: Tokens | None = None
    problem: str = ""
    """Why something of it is not known."""

    @property
    def missing(self) -> int:
        """Forward passes to be made, at most."""
        return self.passes - (self.held or 0)


def forecasts(evaluator: Evaluator, cells: Iterable[Cell], rate_of: RateOf) -> list[Forecast]:
    """Returns a line for each model and data set, in the order of ``cells``; no weights are loaded and no pixels are read.

    Raises:
        DatasetError: a data set cannot be read.
        StoreError: the store cannot be read.
    """
    grouped: dict[tuple[str, str], list[Cell]] = {}
    for cell in dict.fromkeys(cells):
        grouped.setdefault((cell.model, cell.dataset), []).append(cell)
    return [_forecast(evaluator, model, dataset, own, rate_of) for (model, dataset), own in grouped.items()]


def _forecast(evaluator: Evaluator, model: str, dataset: str, cells: list[Cell], rate_of: RateOf) -> Forecast:
    from .views import view_count

    samples = len(evaluator.samples(dataset))
    passes = sum(samples * view_count(cell.setting) for cell in cells)
    held: int | None = 0
    unrendered, problem = passes, ""
    try:
        held, unrendered = _held(evaluator, cells)
    except VlmRobustError as error:
        held, problem = None, str(error)
    answers = evaluator.store.examples(model, dataset, _EXAMPLES)
    return Forecast(
        model, dataset, len(cells), samples, passes, held, unrendered, rate_of(model, dataset), mean_tokens(answers), problem
    )


def _held(evaluator: Evaluator, cells: Iterable[Cell]) -> tuple[int, int]:
    """Returns how many views have an answer in the store, and of how many the pixels are not known."""
    held = unrendered = 0
    for cell in cells:
        keys = [asking.key for asking in evaluator.asked(cell)]
        known = evaluator.store.has({key for key in keys if key is not None})
        held += sum(key in known for key in keys)
        unrendered += keys.count(None)
    return held, unrendered


def mean_tokens(answers: Iterable[Prediction]) -> Tokens | None:
    """Returns the mean numbers of tokens that backends noted on answers; ``None`` where none did."""
    noted = [answer.details for answer in answers if "prompt_tokens" in answer.details]
    if not noted:
        return None
    visual = [float(details["visual_tokens"]) for details in noted if "visual_tokens" in details]
    return Tokens(
        fmean(float(details["prompt_tokens"]) for details in noted), sum(visual) / len(noted) if visual else None, len(noted)
    )
