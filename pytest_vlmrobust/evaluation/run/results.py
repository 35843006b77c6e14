"""The answers of a cell and their scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.backends.generation import TEXT_INSTEAD
from pytest_vlmrobust.core.cell import NO_IMAGE, Cell, Setting
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import percent
from pytest_vlmrobust.scoring.text import after_thinking
from pytest_vlmrobust.store import Answer

from .chance import chance_level

# Guesses: the score of an unreadable answer without images.
#
# A model that says "I cannot see an image" is right to do so. Counted as 0, its refusals would make the visual gain larger, and
# shares of it smaller, than for a model that guesses; left out, the questions that are left would be a selection. So each counts
# what is had without looking: by a guess, or by the answer that is right most often, where that is better.


BLIND_UNPARSED = "blind_unparsed_rate"


def is_guess(setting: Setting, sample: Sample, score: Score) -> bool:
    """Whether a score counts as a guess: an unreadable answer to a question without its images.

    For a question that never had images, an unreadable answer is wrong.
    """
    return setting == NO_IMAGE and score.state == "unparsed" and bool(sample.images)


def counted(setting: Setting, samples: Sequence[Sample], scores: Sequence[Score]) -> list[float]:
    """Returns the scores of a cell for metrics, with :func:`chance_level` in place of guesses.

    ``scores`` have the views of each sample in a row, NaN where an inference failed, which is no guess.
    """
    if setting != NO_IMAGE:
        return [score.value for score in scores]
    guessed = [is_guess(setting, sample, score) for sample, score in zip(samples, scores, strict=True)]
    levels = chance_level(samples).scores.tolist() if any(guessed) else [math.nan] * len(samples)
    return [level if guess else score.value for guess, level, score in zip(guessed, levels, scores, strict=True)]


def said_of_guesses(results: Sequence[CellResult]) -> tuple[str, ...]:
    """Returns a sentence for each cell with guesses, with their number."""
    return tuple(
        f"{result.n_guessed} of {result.n_requested} answers of {result.cell.model} without the images could not be read and "
        "count as guesses"
        for result in results
        if result.n_guessed
    )


def reads_blind(names: Sequence[str]) -> bool:
    """Whether any of these metrics compares with answers without images."""
    known = set(metrics.names())
    return any(metrics.Needs.NO_IMAGE in metrics.get(name).needs for name in names if name in known)


# Stopping: a sample with a right patch needs no further patch if only its best one counts.
#
# No score is above 1, so the best patch of each sample is the same as without stopping.


OPTION = "--vlm-patch-stop"
NEEDS_ALL = f"needs every patch: run without {OPTION}"
MAX_SCORE = 1.0
"""The score that nothing exceeds."""
UNASKED_STATE = "unasked"
UNASKED = Score(math.nan, "not asked: an earlier patch was right", None, UNASKED_STATE)
"""The score of a skipped patch."""
NOT_PREDICTED = Prediction("", UNASKED_STATE)


NO_ANSWER = Answer("", NOT_PREDICTED, UNASKED)
"""Stands for the answer of a view that was not asked about."""


def view_indices(positions: Iterable[int], views: int) -> list[int]:
    """Returns the indices of all views of some samples, by the positions of these samples.

    >>> view_indices([0, 2], 2)
    [0, 1, 4, 5]
    """
    return [position * views + view for position in positions for view in range(views)]


def view_batches(samples: int, views: int, *, stop: bool) -> Sequence[range]:
    """Returns which views to ask about together, as indices into those of all samples in a row: all at once, or by position.

    >>> view_batches(3, 2, stop=True)
    [range(0, 6, 2), range(1, 6, 2)]
    """
    return [range(view, samples * views, views) for view in range(views)] if stop else [range(samples * views)]


def best_is_enough(metric: str) -> bool:
    """Whether a metric is a function of each sample's best patch, or reads no patches."""
    record = metrics.get(metric)
    return record.best_patch_is_enough or metrics.Needs.PATCHES not in record.needs


def undefined(samples: int) -> Estimate:
    """Returns the undefined estimate of a quantity that needs every patch."""
    return Estimate.invalid(NEEDS_ALL, samples)


def counts_for_budgets(views: int, values: NDArray[np.float64], states: Sequence[str]) -> NDArray[np.bool_]:
    """Returns, for each answer of a cell, whether it says whether the model can be read, shape (N,).

    Of several views those up to each sample's first right one do, asked or not: stopping there changes nothing.

    ``values`` and ``states`` have the views of each sample in a row.
    """
    right = np.reshape(values, (-1, views)) == MAX_SCORE
    later = np.cumsum(right, axis=1) - right > 0
    texts: NDArray[np.bool_] = ~later.reshape(-1) & (np.array(states) != "error")
    return texts


def positions(result: CellResult) -> tuple[float, ...]:
    """Returns the share of right answers for each patch; empty for a single view, or if some patches were not asked about."""
    return metrics.patch_contribution(result.by_view) if result.views > 1 and not result.n_unasked else ()


def savings(result: CellResult) -> tuple[str, ...]:
    """Returns how much stopping saved, where it did."""
    if not result.n_unasked:
        return ()
    total = result.n_requested + result.n_unasked
    counted = f"{result.n_requested} of {total} patches were asked about, {result.n_unasked} after a right one were not"
    share = percent(result.n_unasked / total, 0)
    return (f"{result.cell.setting}: {counted} ({share} saved); the share of each position {NEEDS_ALL}",)


FEW_LETTERS = "the letters hold less than half of the probability"
_MOST_LIKELY = 0.5
MANY = 0.05
"""Share of the answers of a test from which such letters are worth a warning."""


def said_of_letters(result: CellResult) -> tuple[str, ...]:
    """Returns a note on letter answers that the model would have begun otherwise; empty if there are none.

    Without its images a model is right to begin otherwise.
    """
    if result.cell.setting == NO_IMAGE:
        return ()
    shares = [share for prediction in result.predictions if not math.isnan(share := prediction.letter_share)]
    few = sum(share < _MOST_LIKELY for share in shares)
    advice = f". {TEXT_INSTEAD}" if few and few / len(shares) >= MANY else ""
    return (f"{result.cell.setting}: in {few} of {len(shares)} answers {FEW_LETTERS}{advice}",) if few else ()


@dataclass(frozen=True, eq=False)
class CellResult:
    """The answers and scores of one cell, in the order of ``samples``; the views of a sample follow one another.

    A view that was not asked about, because an earlier one was right, has the score ``UNASKED``. Its arrays are computed once and
    cannot be written to.
    """

    cell: Cell
    samples: tuple[Sample, ...]
    predictions: tuple[Prediction, ...]
    scores: tuple[Score, ...]
    n_requested: int
    n_inferred: int
    seconds: float
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By sample id: notes about images that the setting could not change as intended."""
    views: int = 1
    """How often each sample was asked about."""
    keys: tuple[str, ...] = ()
    """The name of each answer in the store; empty for a view that was not asked about."""
    places: tuple[int, ...] | None = None
    """The places of ``samples`` in the dataset if only a part of it was asked about; ``None`` for the whole dataset."""

    @classmethod
    def of(
        cls,
        cell: Cell,
        samples: Sequence[Sample],
        answers: Sequence[Answer],
        *,
        views: int,
        places: Sequence[int] | None,
        notes: Mapping[str, tuple[str, ...]],
        n_inferred: int = 0,
        seconds: float = 0.0,
    ) -> CellResult:
        """Returns the result of a cell.

        There is one answer for each view of each sample, ``NO_ANSWER`` for a view that was not asked about; notes on further
        samples are left out.
        """
        return cls(
            cell=cell,
            samples=tuple(samples),
            predictions=tuple(answer.prediction for answer in answers),
            scores=tuple(answer.score for answer in answers),
            n_requested=sum(answer.score.state != UNASKED_STATE for answer in answers),
            n_inferred=n_inferred,
            seconds=seconds,
            notes={sample.id: notes[sample.id] for sample in samples if sample.id in notes},
            views=views,
            keys=tuple(answer.key for answer in answers),
            places=None if places is None else tuple(places),
        )

    def part(self, places: Sequence[int]) -> CellResult:
        """Returns the answers about the samples at these places of the dataset, in this order."""
        position = {place: index for index, place in enumerate(range(len(self.samples)) if self.places is None else self.places)}
        chosen = [position[place] for place in places]
        return CellResult.of(
            self.cell,
            [self.samples[index] for index in chosen],
            [Answer(self.keys[index], self.predictions[index], self.scores[index]) for index in view_indices(chosen, self.views)],
            views=self.views,
            places=places,
            notes=self.notes,
            n_inferred=self.n_inferred,
            seconds=self.seconds,
        )

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """Scores as numbers, shape (N,): of several views the best one's. NaN where an inference failed."""
        return _constant(self.attempts.max(axis=1))  # which keeps NaN: a missing view might have been the best one

    @cached_property
    def by_view(self) -> NDArray[np.float64]:
        """Scores as numbers, shape (N, views); NaN where an inference failed or none was made.

        An unreadable answer counts 0; without the images it counts what a guess does, see :func:`counted`.
        """
        numbers = np.array(counted(self.cell.setting, self.samples, self.scores), float)
        return _constant(numbers.reshape(len(self.samples), self.views))

    @cached_property
    def attempts(self) -> NDArray[np.float64]:
        """As ``by_view``, with 0 where no inference was made: right for the best view of each sample, and for nothing else."""
        if not self.n_unasked:
            return self.by_view
        unasked = [score.state == UNASKED_STATE for score in self.scores]
        return _constant(np.where(np.reshape(unasked, (len(self.samples), self.views)), 0.0, self.by_view))

    @cached_property
    def confidences(self) -> NDArray[np.float64]:
        """The probability of each chosen letter among the letters, shape (N,); NaN of an answer without such probabilities."""
        return _constant(np.array([prediction.confidence for prediction in self.predictions], float))

    @cached_property
    def read(self) -> list[str]:
        """Each answer as it was read, by the letters of the data, or its text where nothing was read."""
        rows = zip(self.samples, self.scores, self.predictions, strict=True)
        return [
            " ".join(prediction.text.split()) if score.answer is None else sample.original_letters.get(score.answer, score.answer)
            for sample, score, prediction in rows
        ]

    @property
    def n_unasked(self) -> int:
        """How many views were not asked about."""
        return self.count(UNASKED_STATE)

    @property
    def n_guessed(self) -> int:
        """How many answers without the images count as guesses, because they cannot be read."""
        if self.cell.setting != NO_IMAGE or self.views > 1:
            return 0
        pairs = zip(self.samples, self.scores, strict=True)
        return sum(is_guess(self.cell.setting, sample, score) for sample, score in pairs)

    @property
    def n_unparsed(self) -> int:
        """How many answers count as wrong, because they cannot be read."""
        return self.count("unparsed") - self.n_guessed - self.n_refused

    @property
    def n_refused(self) -> int:
        """The number of refused answers, which count as wrong; without the images they count as guesses."""
        if self.n_guessed:
            pairs = zip(self.samples, self.scores, strict=True)
            return sum(score.is_refusal and not is_guess(self.cell.setting, sample, score) for sample, score in pairs)
        return sum(score.is_refusal for score in self.scores)

    def count(self, state: str) -> int:
        """Returns how many scores are in ``state`` (``scored``, ``unparsed``, ``error``, ``unasked``)."""
        return self._states[state]

    @cached_property
    def _states(self) -> Counter[str]:
        return Counter(score.state for score in self.scores)


def _constant(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns an array that cannot be written to any more: everybody is handed the same one."""
    array.flags.writeable = False
    return array


# Chains of thought: their length in words, and the outcomes for each length.


CHAIN_BINS = {
    "to 31": 31,
    "32 to 63": 63,
    "64 to 127": 127,
    "128 to 255": 255,
    "256 to 511": 511,
    "512 to 1023": 1023,
    "1024 to 2047": 2047,
    "from 2048": math.inf,
}
"""Length classes of chains of thought in words, each with its upper limit."""
RIGHT, WRONG, UNREAD = "right", "wrong", "unread"
OUTCOMES = {(False, True): "fixes", (False, False): "does not fix", (True, False): "breaks", (True, True): "keeps"}
"""The effect of a chain of thought, by whether the sample is right without and with it."""
_MOST_WRONG = 0.5
"""A graded score above this is right."""


def words_of_thinking(text: str) -> int:
    """Returns the number of words before the answer: those inside marked reasoning, else all words."""
    after = after_thinking(text)
    return len(text.split()) - (len(after.split()) if after is not None and after != text else 0)


def outcome_of_chain(before: float, after: float) -> str:
    """Returns the effect of a chain of thought on a sample by its scores without and with it; empty if one is unknown."""
    return "" if math.isnan(before + after) else OUTCOMES[before > _MOST_WRONG, after > _MOST_WRONG]


def chains_by_outcome(result: CellResult) -> dict[str, float]:
    """Returns the number of answers of a cell by length of their chain and by whether they are right, wrong or unread.

    Failed inferences are left out; a sample with several views has no single chain.
    """
    if result.views > 1:
        return {}
    outcomes = [
        UNREAD if score.state == "unparsed" else "" if score.state != "scored" else RIGHT if score.value > _MOST_WRONG else WRONG
        for score in result.scores
    ]
    return _counted(outcomes, result.predictions)


def chains_by_change(before: Sequence[CellResult], after: Sequence[CellResult]) -> dict[str, float]:
    """Returns the number of answers by length of their chain and by its effect compared with the same model without chains.

    A sample with several views has no single chain.
    """
    counts: Counter[str] = Counter()
    for plain, thinking in zip(before, after, strict=True):
        if thinking.views > 1:
            continue
        outcomes = [outcome_of_chain(*pair) for pair in zip(plain.values.tolist(), thinking.values.tolist(), strict=True)]
        counts.update(_counted(outcomes, thinking.predictions))
    return dict(counts)


def _counted(outcomes: Iterable[str], predictions: Iterable[Prediction]) -> dict[str, float]:
    pairs = zip(outcomes, predictions, strict=True)
    counts = Counter(f"{outcome}, {_bin_of(words_of_thinking(answer.text))}" for outcome, answer in pairs if outcome)
    return {name: float(count) for name, count in sorted(counts.items())}


def _bin_of(length: int) -> str:
    return next(name for name, most in CHAIN_BINS.items() if length <= most)
