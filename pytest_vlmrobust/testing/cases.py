"""Generated scores: the arguments of one call of a metric, and changes to them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.metrics import Metric, Needs, ScoreTable, estimate
from pytest_vlmrobust.metrics.table import BY_PATCH, COMPANIONS, CONFIDENCE, LABELS, OF_ANSWERS, WITHOUT_SCORES

Scores: TypeAlias = NDArray[np.float64]


SETTINGS = ("fog:low", "fog:mid", "fog:high", "rotate:low", "rotate:mid", "rotate:high", "flip_v")
RESOLUTIONS = (112.0, 224.0, 448.0, 896.0)
PATCHES = 4
MOST_SAMPLES = 8

_RIGHT_OR_WRONG = (0.0, 1.0)
_SCALES = (_RIGHT_OR_WRONG, _RIGHT_OR_WRONG, (0.0, 0.25, 0.5, 0.75, 1.0), (0.0, 0.3, 0.6, 0.9, 1.0))
"""Right or wrong, as most benchmarks score, with ties in every example; graded; and the soft scores of VQA, which are not sums of
powers of two."""
_PICKS = 2**16
_MAPPINGS = {Needs.PERTURBED_BY_SETTING, Needs.REFERENCE_BY_SETTING, Needs.BASELINE_BY_SETTING, *COMPANIONS, *OF_ANSWERS}
_WITHOUT_SAMPLES = {Needs.RESOLUTIONS, Needs.ACCURACIES}
_WRONG_WHEN_PERFECT = {Needs.NO_IMAGE, Needs.CHANCE_LEVELS, Needs.REFERENCE_BY_SETTING}
_FOLLOWERS = {Needs.PERTURBED, Needs.REFERENCE_CLEAN, Needs.BASELINE, Needs.BASELINE_CLEAN}


@dataclass(frozen=True)
class Case:
    """Arguments of one call, another order of their samples, and numbers that select one of their scores."""

    needs: tuple[Needs, ...]
    arguments: tuple[Any, ...]
    order: Sequence[int]
    pick: int
    share: float

    def copy_arguments(self) -> list[Any]:
        """Returns copies of the arguments, so that a metric cannot change the originals."""
        return [copy_argument(value) for value in self.arguments]

    @property
    def orders(self) -> tuple[Sequence[int], ...]:
        """The other order of the samples, and an order with neighbours swapped, which changes the first of equal scores."""
        return self.order, sorted(self.order, key=lambda sample: sample ^ 1)

    def reorder_samples(self, order: Sequence[int]) -> list[Any]:
        """Returns the arguments with their samples in another order, and their settings reversed."""
        pairs = zip(self.needs, self.copy_arguments(), strict=True)
        return [value if need in _WITHOUT_SAMPLES else _reorder(value, order) for need, value in pairs]

    def with_gap(self, need: Needs) -> list[Any]:
        """Returns the arguments with one missing score in one of them (in each of its settings)."""
        return self._with(need, lambda value: _with_gap(value, self.pick))

    def raise_score(self, need: Needs) -> list[Any] | None:
        """Returns the arguments with one score of one argument raised; None if none of its scores can rise."""
        value = self.arguments[self.needs.index(need)]
        key = list(value)[self.pick % len(value)] if isinstance(value, Mapping) else None
        scores = np.array(value if key is None else value[key], dtype=np.float64)
        low = np.flatnonzero(scores < 1.0)
        if not low.size:
            return None
        chosen = low[self.pick % low.size]
        scores.flat[chosen] += self.share * (1.0 - scores.flat[chosen])
        better = scores.tolist() if isinstance(value, list) else scores
        return self._with(need, lambda old: better if key is None else {**old, key: better})

    def unchanged_arguments(self) -> list[Any]:
        """Returns the arguments of a model whose scores no perturbation changes."""
        clean = self.arguments[self.needs.index(Needs.CLEAN)] if Needs.CLEAN in self.needs else _first_scores(self)
        arguments = [
            _unchanged_argument(need, value, clean) for need, value in zip(self.needs, self.copy_arguments(), strict=True)
        ]
        if set(self.needs) >= CONFIDENCE:
            arguments[self.needs.index(Needs.CONFIDENCES)] = arguments[self.needs.index(Needs.CLEAN_CONFIDENCES)].copy()
        return arguments

    def blind(self) -> list[Any]:
        """Returns the arguments of a model whose images add nothing: scores without images equal the clean ones."""
        return self._with(Needs.NO_IMAGE, lambda _: self.copy_arguments()[self.needs.index(Needs.CLEAN)])

    def _with(self, need: Needs, change: Callable[[Any], Any]) -> list[Any]:
        position, arguments = self.needs.index(need), self.copy_arguments()
        arguments[position] = change(arguments[position])
        return arguments


class Maker(Protocol):
    """A function that makes scores of a shape."""

    def __call__(self, rows: int, columns: int = 0) -> Scores:
        """Returns scores of shape (rows, columns), or (rows,) for no columns."""
        ...


@st.composite
def cases(draw: st.DrawFn, needs: tuple[Needs, ...]) -> Case:
    """Draws the arguments of a metric for 1 to 8 samples."""
    samples = draw(st.integers(1, MOST_SAMPLES))
    scores, labels = draw_scores(draw, MOST_SAMPLES), draw_labels(draw, samples, MOST_SAMPLES)
    arguments = tuple(_argument(need, samples, scores, labels) for need in needs)
    order = draw_order(draw, samples)
    return Case(needs, arguments, order, draw(st.integers(0, _PICKS)), draw(st.sampled_from((1.0, 0.5))))


def draw_scores(draw: st.DrawFn, most: int) -> Maker:
    """Returns a function that draws scores on one scale for up to ``most`` samples.

    Each array is one draw for the largest number of samples: this is fast, and examples stay similar while Hypothesis removes
    samples to find the smallest one.
    """
    scale = np.array(draw(st.sampled_from(_SCALES)))

    def scores(rows: int, columns: int = 0) -> Scores:
        steps = np.frombuffer(draw(_bytes(most * max(columns, 1))), dtype=np.uint8)
        drawn: Scores = scale[steps % scale.size].reshape((most, columns) if columns else (most,))[:rows]
        return drawn

    return scores


def draw_labels(draw: st.DrawFn, samples: int, most: int) -> list[str]:
    """Returns a label for each sample; some are empty, which means unknown."""
    return ["" if step % 8 == 7 else "abc"[step % 3] for step in draw(_bytes(most))[:samples]]


def draw_order(draw: st.DrawFn, samples: int) -> list[int]:
    """Returns the samples in another order: the first moves back, and some orders are reversed.

    Such moves generate every order, and the smallest failing example needs few samples.
    """
    order, move = list(range(samples)), draw(st.integers(0, _PICKS))
    if samples > 1:
        order.insert(1 + move // 2 % (samples - 1), order.pop(0))
    return order[::-1] if move % 2 else order


@functools.cache
def _bytes(count: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=count, max_size=count)


def nothing(needs: Sequence[Needs]) -> list[Any]:
    """Returns the arguments without samples."""
    return [_argument(need, 0, _constant(0.0), ()) for need in needs]


def perfect(needs: Sequence[Needs]) -> list[Any]:
    """Returns the arguments of a model that answers everything right with the image and nothing without it."""
    right, wrong = _constant(1.0), _constant(0.0)
    return [_argument(need, 4, wrong if need in _WRONG_WHEN_PERFECT else right, "aabb") for need in needs]


def copy_argument(value: Any) -> Any:
    """Returns a copy of one argument."""
    if isinstance(value, Mapping):
        return {setting: scores.copy() for setting, scores in value.items()}
    return value.copy()


def describe_arguments(needs: Sequence[Needs], arguments: Sequence[Any]) -> str:
    """Returns the arguments in the form that messages show."""
    return ", ".join(f"{need.value}={plain(value)}" for need, value in zip(needs, arguments, strict=True))


def plain(value: Any) -> Any:
    """Returns an argument as built-in lists and dictionaries."""
    if isinstance(value, Mapping):
        return {setting: plain(scores) for setting, scores in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def needs_with_scores(needs: Sequence[Needs]) -> list[Needs]:
    """Returns the arguments that hold scores."""
    return [need for need in needs if need not in WITHOUT_SCORES]


def of_samples(needs: Sequence[Needs]) -> bool:
    """Whether an argument has one item per sample, not per resolution."""
    return any(need not in _WITHOUT_SAMPLES for need in needs)


def _argument(need: Needs, samples: int, scores: Maker, labels: Sequence[str]) -> Any:
    curve = RESOLUTIONS if samples else ()
    others: dict[Needs, Callable[[], Any]] = {
        Needs.RUNGS: lambda: scores(samples, len(RESOLUTIONS)),
        Needs.CHANCES: lambda: scores(samples) / 2.0,
        Needs.CHANCE_LEVELS: lambda: scores(samples) / 2.0,
        **dict.fromkeys(LABELS, lambda: list(labels)),
        Needs.RESOLUTIONS: lambda: list(curve),
        Needs.ACCURACIES: lambda: scores(len(curve)).tolist(),
    }
    if need in _MAPPINGS:
        return {setting: scores(samples) for setting in SETTINGS}
    if need in others:
        return others[need]()
    return scores(samples, PATCHES if need in BY_PATCH else 0)


def _constant(value: float) -> Maker:
    return lambda rows, columns=0: np.full((rows, columns) if columns else rows, value)


def _reorder(value: Any, order: Sequence[int]) -> Any:
    if isinstance(value, Mapping):
        return {setting: _reorder(value[setting], order) for setting in reversed(value)}
    return value[list(order)] if isinstance(value, np.ndarray) else [value[index] for index in order]


def _with_gap(value: Any, pick: int) -> Any:
    if isinstance(value, Mapping):
        return {setting: _with_gap(scores, pick) for setting, scores in value.items()}
    value[pick % len(value)] = math.nan
    return value


def _first_scores(case: Case) -> Any:
    scores = next(value for need, value in zip(case.needs, case.arguments, strict=True) if need not in WITHOUT_SCORES)
    first = next(iter(scores.values())) if isinstance(scores, Mapping) else scores
    return first if np.ndim(first) == 1 else first[:, 0]


def _unchanged_argument(need: Needs, value: Any, clean: Any) -> Any:
    if need in _FOLLOWERS:
        return clean.copy()
    if need in _MAPPINGS:
        return {setting: clean.copy() for setting in value}
    if need is Needs.ACCURACIES:
        return [float(np.mean(clean))] * len(value)
    if need in {Needs.PATCHES, Needs.RUNGS, Needs.WHOLE_ATTEMPTS}:
        return np.repeat(np.asarray(clean)[:, None], value.shape[1], axis=1)
    return value


# Generated tables of scores, the input of a gate.


_MOST_SAMPLES = 24
_OF_PATCHES = f"patches:{math.isqrt(PATCHES)}"
_FIELDS = tuple(field.name for field in dataclasses.fields(ScoreTable) if field.init and field.name != "chance_note")


@dataclass(frozen=True)
class Table:
    """Scores, the setting for metrics of a single cell, and another order of the samples."""

    scores: ScoreTable
    setting: str | None
    order: Sequence[int]

    def measure(self, record: Metric, scores: ScoreTable | None = None) -> Estimate:
        """Returns the estimate of a metric for these or for changed scores."""
        __tracebackhide__ = True
        try:
            return estimate(record, scores or self.scores, self.setting)
        except Exception as error:
            raised = f"raised {type(error).__name__}: {error}"
            raise AssertionError(f"metric {record.name!r} {raised}\n    called with {self.describe()}") from error

    def reorder_samples(self) -> ScoreTable:
        """Returns the scores with their samples in the other order."""
        return self._change(lambda scores: scores[list(self.order)], lambda names: [names[index] for index in self.order])

    def repeat_samples(self, times: int) -> ScoreTable:
        """Returns the scores ``times`` times, each copy with its own source images."""
        return self._change(
            lambda scores: np.concatenate([scores] * times),
            lambda names: list(names) * times,
            lambda groups: [f"{copy}-{group}" for copy in range(times) for group in groups],
        )

    def duplicate_samples(self) -> ScoreTable:
        """Returns the scores with every sample twice; each pair shares its own source image."""
        twice = self._change(lambda scores: np.concatenate([scores] * 2), lambda names: list(names) * 2)
        return dataclasses.replace(twice, groups=[f"image {index:03}" for index in range(self.scores.samples)] * 2)

    def of(self, rows: Sequence[int] | NDArray[np.intp]) -> ScoreTable:
        """Returns the scores of ``rows``, which may repeat samples; each row has its own image."""
        chosen = list(rows)
        some = self._change(lambda scores: scores[chosen], lambda names: [names[row] for row in chosen])
        return dataclasses.replace(some, groups=None)

    def map_scores(self, change: Callable[[Scores], Scores]) -> Table:
        """Returns the table with ``change`` applied to each array of scores."""
        return dataclasses.replace(self, scores=self._change(change, list))

    def without_samples(self) -> ScoreTable:
        """Returns the scores of no sample."""
        return self._change(lambda scores: scores[:0], lambda _: [])

    def with_gap(self) -> ScoreTable:
        """Returns the scores with all scores of one sample missing."""

        def add_gap(scores: Scores) -> Scores:
            changed = scores.copy()
            changed[self.order[0]] = math.nan
            return changed

        return self._change(add_gap, list)

    def blind(self) -> ScoreTable:
        """Returns the scores of a model whose images add nothing."""
        return dataclasses.replace(self.scores, no_image=self.scores.clean)

    def describe(self) -> str:
        """Returns the scores in the form that messages show."""
        given = {name: getattr(self.scores, name) for name in _FIELDS}
        return ", ".join(f"{name}={plain(value)}" for name, value in given.items() if value is not None)

    def _change(
        self,
        change: Callable[[Scores], Scores],
        names: Callable[[Sequence[str]], list[str]],
        groups: Callable[[Sequence[str]], list[str]] | None = None,
    ) -> ScoreTable:
        def of(field: str, value: Any) -> Any:
            if isinstance(value, Mapping):
                return {setting: change(scores) for setting, scores in value.items()}
            if isinstance(value, np.ndarray):
                return change(value)
            if isinstance(value, Sequence):
                return (groups or names)(value) if field == "groups" else names(value)
            return value

        return ScoreTable(**{field: of(field, getattr(self.scores, field)) for field in _FIELDS})


@st.composite
def tables(draw: st.DrawFn, record: Metric) -> Table:
    """Draws the needs of a metric for 1 to 24 samples; sometimes two samples share a source image."""
    samples = draw(st.integers(1, _MOST_SAMPLES))
    setting = _setting(record)
    needs = {*record.needs, *((Needs.NO_IMAGE,) if record.gate else ())}  # a gate may read the scores without images
    given = _table_fields(needs, setting, samples, draw_scores(draw, _MOST_SAMPLES))
    for need in needs & LABELS:
        given[need.value] = draw_labels(draw, samples, _MOST_SAMPLES)
    if draw(st.booleans()):
        given["groups"] = [f"image {index // 2}" for index in range(samples)]
    return Table(ScoreTable(**given), setting, draw_order(draw, samples))


def make_table(record: Metric, samples: int, scores: Maker, settings: Sequence[str] = SETTINGS) -> Table:
    """Returns a table of scores made by ``scores``, each sample with its own image, position and people."""
    setting = _setting(record)
    needs = {*record.needs, *((Needs.NO_IMAGE,) if record.gate else ())}
    given = _table_fields(needs, setting, samples, scores, settings)
    for need in needs & LABELS:
        given[need.value] = [("a", "b")[index % 2] for index in range(samples)]
    return Table(ScoreTable(**given), setting, range(samples))


def _setting(record: Metric) -> str | None:
    if record.scope == "sweep":
        return None
    return _OF_PATCHES if Needs.PATCHES in record.needs else SETTINGS[0]


def _table_fields(
    needs: set[Needs], setting: str | None, samples: int, scores: Maker, settings: Sequence[str] = SETTINGS
) -> dict[str, Any]:
    """Returns the fields of a table that the needs ask for.

    Clean scores are the larger of two draws and scores without the image the smaller; otherwise most metrics would not apply.
    """
    curve = [f"resolution:{edge:g}" for edge in RESOLUTIONS] if needs & {Needs.ACCURACIES, Needs.RUNGS} else []
    swept = settings if needs & {Needs.PERTURBED_BY_SETTING, Needs.REFERENCE_BY_SETTING} else ()
    names = dict.fromkeys([*([setting] if setting else []), *swept, *curve])
    given: dict[str, Any] = {
        "clean": np.maximum(scores(samples), scores(samples)),
        "by_setting": {name: scores(samples) for name in names},
    }
    if Needs.NO_IMAGE in needs:
        given["no_image"] = np.minimum(scores(samples), scores(samples))
    if Needs.REFERENCE_BY_SETTING in needs:
        given["reference_by_setting"] = {name: scores(samples) for name in names}
    if Needs.REFERENCE_CLEAN in needs:
        given["reference_by_setting"]["clean"] = np.maximum(scores(samples), scores(samples))
    for need in needs & (COMPANIONS | OF_ANSWERS):
        given[need.value] = {name: scores(samples) for name in names}
    if needs & {Needs.BASELINE, Needs.BASELINE_CLEAN, Needs.BASELINE_BY_SETTING}:
        given["baseline_by_setting"] = {name: scores(samples) for name in ("clean", *names)}
    if needs & CONFIDENCE:
        given["confidences"] = {name: scores(samples) for name in ("clean", *names)}
    for field in sorted({_WITHOUT_LOOKING[need] for need in needs if need in _WITHOUT_LOOKING}):
        given[field] = scores(samples) / 2.0
    if Needs.PATCHES in needs:
        given["patches_by_setting"] = {_OF_PATCHES: scores(samples, PATCHES)}
    if Needs.WHOLE_ATTEMPTS in needs:
        given["whole_attempts"] = scores(samples, PATCHES)
    return given


_WITHOUT_LOOKING = {Needs.PATCHES: "chances", Needs.CHANCES: "chances", Needs.CHANCE_LEVELS: "chance_levels"}
