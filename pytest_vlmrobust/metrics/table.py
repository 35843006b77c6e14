"""ScoreTable: all scores of one model on one dataset, the input of metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME, Setting
from pytest_vlmrobust.core.errors import UsageError, did_you_mean

from .statistics.clusters import Clusters

Scores: TypeAlias = NDArray[np.float64]
SettingLike: TypeAlias = str | Setting
BySetting: TypeAlias = Mapping[str, ArrayLike] | Mapping[Setting, ArrayLike]
ByLetter: TypeAlias = Mapping[str, ArrayLike]

_SHAPES = {1: "(N,)", 2: "(N, n*n)"}


def as_scores(values: ArrayLike, name: str, *, axes: int = 1) -> Scores:
    """Returns a float64 copy of ``values`` with ``axes`` axes; NaN marks a missing score."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name}: expected numbers in [0, 1], found values of dtype {array.dtype}. Score the answers first")
    if array.ndim != axes:
        raise ValueError(f"{name}: expected scores of shape {_SHAPES[axes]}, found shape {array.shape}")
    scores = array.astype(np.float64)
    outside = (scores < 0.0) | (scores > 1.0)
    if outside.any():
        position = tuple(int(axis[0]) for axis in np.nonzero(outside))
        where = ", ".join(map(str, position))
        raise ValueError(
            f"{name}[{where}] is {float(scores[position])!r}: a score lies in [0, 1] (a fraction, not a percentage), or is NaN"
        )
    return scores


def pair_scores(**arrays: ArrayLike) -> tuple[Scores, ...]:
    """Returns each named array as float64, shape (N,), all of one length."""
    checked = {name: as_scores(values, name) for name, values in arrays.items()}
    require_equal_lengths({name: len(values) for name, values in checked.items()})
    return tuple(checked.values())


def require_equal_lengths(lengths: Mapping[str, int]) -> None:
    """Raises ValueError with the name of the first array and of the first one with another length."""
    first = next(iter(lengths), "")
    for name, length in lengths.items():
        if length != lengths[first]:
            raise ValueError(
                f"{first} has {lengths[first]} scores and {name} has {length}: "
                "paired scores belong to the same samples in the same order"
            )


def by_setting(mapping: BySetting, name: str = "perturbed_by_setting") -> dict[str, Scores]:
    """Returns the scores of every setting as float64, shape (N,), keyed by the setting's text."""
    checked: dict[str, Scores] = {}
    before: ArrayLike | None = None
    scores: Scores | None = None
    for key, values in mapping.items():
        setting = _spell(key) if isinstance(key, str) else str(key)
        if setting in checked:
            raise ValueError(f"{name}: the setting {setting!r} is given twice, as text and as Setting. Give it once")
        if scores is None or values is not before:  # many settings may share one array, such as the scores without image
            before, scores = values, as_scores(values, name_scores(name, setting))
        checked[setting] = scores
    if len(set(map(len, checked.values()))) > 1:
        require_equal_lengths({name_scores(name, setting): len(values) for setting, values in checked.items()})
    return checked


def by_letter(mapping: ByLetter, name: str) -> dict[str, Scores]:
    """Returns the scores of every letter as float64, shape (N,)."""
    checked = {letter: as_scores(values, name_scores(name, letter)) for letter, values in mapping.items()}
    require_equal_lengths({name_scores(name, letter): len(values) for letter, values in checked.items()})
    return checked


def against_clean(clean: ArrayLike, perturbed_by_setting: BySetting) -> tuple[Scores, dict[str, Scores]]:
    """Returns the clean scores (N,) and those of every setting, checked to belong to the same samples."""
    before, after = as_scores(clean, "clean"), by_setting(perturbed_by_setting)
    for setting, values in after.items():
        require_equal_lengths({"clean": len(before), name_scores("perturbed_by_setting", setting): len(values)})
    return before, after


def under_same_settings(
    perturbed_by_setting: BySetting, others: BySetting, name: str, whom: str
) -> tuple[dict[str, Scores], dict[str, Scores]]:
    """Returns the scores under every setting, and other scores of the same samples under the same settings."""
    perturbed, other = by_setting(perturbed_by_setting), by_setting(others, name)
    if missing := [setting for setting in perturbed if setting not in other]:
        raise ValueError(f"{name} lacks {', '.join(missing[:5])}: measure {whom} under the same settings")
    for setting, scores in perturbed.items():
        require_equal_lengths({setting: len(scores), name_scores(name, setting): len(other[setting])})
    return perturbed, {setting: other[setting] for setting in perturbed}


def per_sample(scores: Mapping[str, Scores]) -> Scores:
    """Returns the mean of each sample over at least one setting, shape (N,)."""
    averages: Scores = np.stack(list(scores.values()), axis=1).mean(axis=1)
    return averages


def rung_of(setting: SettingLike) -> int | None:
    """Returns the long edge in pixels of a plain ``resolution:`` setting; ``None`` for any other."""
    step = parse_setting(setting)
    return int(step.level) if step.name == RESOLUTION and step.level is not None and step.level.isdigit() else None


def parse_setting(setting: SettingLike) -> Setting:
    """Returns a setting, parsed if given as text."""
    return setting if isinstance(setting, Setting) else Setting.parse(setting)


@lru_cache(maxsize=4096)
def _spell(setting: str) -> str:
    return str(Setting.parse(setting))


def name_scores(mapping: str, setting: str) -> str:
    """Returns the name in messages for the scores of one setting."""
    return f"{mapping}[{setting!r}]"


def stack_settings(scores: Mapping[str, Scores], samples: int) -> Scores:
    """Returns the scores of m settings side by side, shape (``samples``, m)."""
    return np.stack(list(scores.values()), axis=1) if scores else np.zeros((samples, 0))


def mean(values: Scores) -> float:
    """Returns the mean as a built-in float; NaN for no values or a NaN among them."""
    return float(values.sum() / values.size) if values.size else math.nan


def drops(clean: Scores, perturbed: Scores) -> Scores:
    """Returns the drop of each of m settings, shape (m,), from ``clean`` (N,) and ``perturbed`` (N, m); NaN without samples.

    Sums the differences of each sample: 0/1 scores give exact integers, and equal scores give exactly 0.
    """
    if not clean.size:
        return np.full(perturbed.shape[1], math.nan)
    losses: Scores = (clean[:, None] - perturbed).sum(axis=0) / clean.size
    return losses


def clusters_of(groups: Sequence[str] | None, samples: int) -> Clusters:
    """Returns the clusters of ``samples`` samples by the names of their source images; None when all are independent."""
    if groups is not None and len(groups) != samples:
        raise ValueError(f"{len(groups)} source images for {samples} samples: expected one for each sample, or None")
    return Clusters.of(groups, samples)


FIVE_NUMBERS = ("lowest", "lower_quartile", "median", "upper_quartile", "highest")


def five_numbers(values: Scores) -> dict[str, float]:
    """Returns the five numbers of a box plot of at least one value; NaN if a value is missing."""
    return dict(zip(FIVE_NUMBERS, np.quantile(values, (0.0, 0.25, 0.5, 0.75, 1.0)).tolist(), strict=True))


# The table of all scores.


RESOLUTION = "resolution"
LEAST_PICTURES = 30
"""Smallest number of source images of a category for it to be the worst one. If none of 30 is lost, up to 9.5 % may still be."""


class Needs(Enum):
    """An argument of a metric, named like its parameter; a record lists arguments in the order of the call."""

    _value_: str
    absent: str
    """Its name in the message for a table without it; empty if that is refused."""
    prefix: str
    """Text in messages before the setting, or the letter, of one of its arrays."""
    unmeasured: str
    """The message, before the setting, for a setting without an array of other scores of the same samples."""

    def __new__(cls, value: str, absent: str = "", prefix: str = "", unmeasured: str = "") -> Self:  # noqa: D102 - the fields say it
        need = object.__new__(cls)
        need._value_, need.absent, need.prefix, need.unmeasured = value, absent, prefix, unmeasured
        return need

    CLEAN = "clean", "clean scores"
    """Scores without perturbation, shape (N,)."""
    PERTURBED = "perturbed"
    """Scores under the setting of the cell, shape (N,)."""
    NO_IMAGE = "no_image", "scores without images"
    """Scores of the same questions without their images, shape (N,)."""
    PERTURBED_BY_SETTING = "perturbed_by_setting", "scores under any setting"
    """Scores under every setting of the sweep: setting to shape (N,)."""
    REFERENCE_BY_SETTING = (
        "reference_by_setting",
        "scores of a reference model",
        "reference",
        "the reference model was not measured under",
    )
    """The same for the reference model."""
    REFERENCE_CLEAN = "reference_clean", "clean scores of a reference model"
    """Scores of the reference model without perturbation, shape (N,)."""
    BASELINE = "baseline", "scores of an earlier run under this setting", "baseline"
    """Scores of an earlier run under the setting of the cell, shape (N,)."""
    BASELINE_CLEAN = "baseline_clean", "clean scores of an earlier run"
    """Scores of that run without perturbation, shape (N,)."""
    BASELINE_BY_SETTING = "baseline_by_setting", "scores of an earlier run", "baseline", "the earlier run did not measure"
    """Scores of an earlier run under every setting of the sweep: setting to shape (N,)."""
    PATCHES = "patches"
    """Scores of every patch under the setting of the cell (``patches:3``), shape (N, n*n), row by row."""
    POSITIONS = "positions", "positions of the targets"
    """Position of the target of each sample in the grid: N names, empty if unknown."""
    PEOPLE = "people", "groups of people"
    """The group of people shown in each sample: N names, empty if unknown."""
    CATEGORIES = "categories", "categories of questions"
    """The question category of each sample: N names, empty if it is in none that counts."""
    UNHINTED_BY_SETTING = (
        "unhinted_by_setting",
        "scores without the hint",
        "unhinted",
        "without the hint, nothing was measured under",
    )
    """Scores of the same samples asked without the hint, under every setting of the sweep: setting to shape (N,)."""
    BASE_BY_SETTING = (
        "base_by_setting",
        "scores of the model without thinking",
        "base",
        "the model without thinking was not measured under",
    )
    """Scores of the same samples by the same model without thinking, under every setting of the sweep: setting to shape (N,)."""
    RESOLUTIONS = "resolutions", "scores under any setting 'resolution:<pixels>'"
    """Long edges of the ``resolution:`` settings of the sweep, ascending."""
    ACCURACIES = "accuracies", "scores under any setting 'resolution:<pixels>'"
    """Accuracy at each of these resolutions."""
    RUNGS = "rungs", "scores under any setting 'resolution:<pixels>'"
    """Scores at each of these resolutions, shape (N, R)."""
    CHANCES = "chances", "chances of guessing"
    """Expected score of guessing of each sample, shape (N,)."""
    CHANCE_LEVELS = "chance_levels", "chance levels"
    """Score of each sample without looking at the image: by a guess, or by the same answer to every question, shape (N,)."""
    CONFIDENCES = "confidences", "probabilities of letters", "confidence"
    """Probability of the chosen letter among the letters, under the setting of the cell, shape (N,)."""
    CLEAN_CONFIDENCES = "clean_confidences", "probabilities of letters on clean images"
    """The same without perturbation, shape (N,)."""
    SAME_BY_SETTING = "same_by_setting", "answers under any setting", "same answer", "there are no answers under"
    """1 if the answer under a setting names the same option as the clean one, else 0: setting to shape (N,)."""
    CHOSEN_BY_LETTER = "chosen_by_letter", "letters of answers", "chosen"
    """Share of the orders of a question with a letter as the answer: letter to shape (N,)."""
    RIGHT_BY_LETTER = "right_by_letter", "letters of right options", "right"
    """Share of these orders with the right option at that letter: letter to shape (N,)."""
    WHOLE_ATTEMPTS = "whole_attempts", "scores of further attempts at the whole image"
    """Scores of as many attempts at the whole image as there are patches, shape (N, n*n): the first one and n*n - 1 more."""

    @property
    def of_one_setting(self) -> bool:
        """Whether the argument belongs to one cell rather than to the sweep."""
        return self in OF_ONE_SETTING

    @property
    def optional(self) -> bool:
        """Whether a table may lack it, because not every dataset or run has it.

        These are labels to compare samples by, the same questions asked in another way, probabilities of letters, and
        inferences that no published protocol makes.
        """
        return self in LABELS | COMPANIONS | CONFIDENCE | OF_ANSWERS or (self in BY_PATCH and self is not Needs.PATCHES)


BY_PATCH = frozenset({Needs.PATCHES, Needs.WHOLE_ATTEMPTS})
"""Scores of as many attempts at each sample as there are patches, shape (N, n*n)."""
OF_ONE_SETTING = BY_PATCH | {Needs.PERTURBED, Needs.BASELINE, Needs.CONFIDENCES}
LABELS = frozenset({Needs.POSITIONS, Needs.PEOPLE, Needs.CATEGORIES})
"""Labels to compare samples by."""
COMPANIONS = frozenset({Needs.UNHINTED_BY_SETTING, Needs.BASE_BY_SETTING})
"""Scores of the same samples asked in another way."""
CONFIDENCE = frozenset({Needs.CONFIDENCES, Needs.CLEAN_CONFIDENCES})
"""Probabilities of answers."""
BY_LETTER = frozenset({Needs.CHOSEN_BY_LETTER, Needs.RIGHT_BY_LETTER})
OF_ANSWERS = BY_LETTER | {Needs.SAME_BY_SETTING}
"""The answers themselves, right or wrong: read by metrics of the order of options."""
_OTHERS = {need.value: need.prefix for need in Needs if need.prefix and need is not Needs.BASELINE}
"""Fields with other scores of the same samples by setting or letter, and their names in messages."""
WITHOUT_SCORES = LABELS | {Needs.RESOLUTIONS}
"""Needs that are not scores."""


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Paired scores of N samples: clean, without image, and under each setting.

    Array-likes are copied to read-only float64; keys may be :class:`Setting` and are converted to text.
    NaN marks a missing score.
    """

    clean: Scores
    """Scores without perturbation, shape (N,)."""
    by_setting: Mapping[str, Scores] = field(default_factory=dict)
    """Setting to scores, shape (N,)."""
    no_image: Scores | None = None
    """Scores without the images, shape (N,)."""
    reference_by_setting: Mapping[str, Scores] | None = None
    """The reference model's scores on the same samples, shape (N,); ``clean`` is a setting too."""
    groups: Sequence[str] | None = None
    """The source image of each sample: samples of one group are not independent; a sample with an empty name has its own group.
    None when all samples are independent."""
    patches_by_setting: Mapping[str, Scores] | None = None
    """Setting ``patches:n`` to the scores of every patch, shape (N, n*n)."""
    positions: Sequence[str] | None = None
    """Position of the target of each sample in the grid; empty if unknown. None without a grid."""
    people: Sequence[str] | None = None
    """The group of people shown in each sample; empty if unknown. None if no group is known."""
    categories: Sequence[str] | None = None
    """The question category of each sample; empty if it is in none that counts. None if none is known."""
    chance: float | None = None
    """Expected score of guessing, in [0, 1]; None if unknown, or if ``chances`` has it for each sample."""
    chances: Scores | None = None
    """Expected score of guessing of each sample, shape (N,): 1 / number of options; None if it is ``chance`` for all."""
    chance_levels: Scores | None = None
    """Score of each sample without looking at the image, by guessing or by the same answer to every question, shape (N,); None
    if only guessing is known."""
    chance_note: str = ""
    """How ``chance_levels`` were reached: ``always 'no' is right in 80 of 100 yes/no questions``."""
    whole_attempts: Scores | None = None
    """Scores of M attempts at the whole image, shape (N, M), including the first; ``patches:n`` uses the first n*n."""
    baseline_by_setting: Mapping[str, Scores] | None = None
    """The scores of an earlier run on the same samples, shape (N,); ``clean`` is a setting too."""
    unhinted_by_setting: Mapping[str, Scores] | None = None
    """The scores of the same samples asked without the hint, shape (N,); ``clean`` is a setting too."""
    base_by_setting: Mapping[str, Scores] | None = None
    """The scores of the same samples by the same model without thinking, shape (N,); ``clean`` is a setting too."""
    confidences: Mapping[str, Scores] | None = None
    """Setting to the probability of each sample's chosen letter among its letters, shape (N,); ``clean`` is a setting too."""
    same_by_setting: Mapping[str, Scores] | None = None
    """Setting to 1 if the answer names the same option as the clean one, else 0, shape (N,)."""
    chosen_by_letter: Mapping[str, Scores] | None = None
    """Letter to the share of a question's orders in which it is the answer, shape (N,)."""
    right_by_letter: Mapping[str, Scores] | None = None
    """Letter to the share of these orders in which its option is right, shape (N,)."""
    clusters: Clusters = field(init=False, repr=False)

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "clean": as_scores(self.clean, "clean"),
            "by_setting": by_setting(self.by_setting, "by_setting"),
        }
        for name in ("no_image", "chances", "chance_levels"):
            if (single := getattr(self, name)) is not None:
                checked[name] = as_scores(single, name)
        for name in _OTHERS:
            if (others := getattr(self, name)) is not None:
                checked[name] = (by_letter if name.endswith("by_letter") else by_setting)(others, name)
        if self.patches_by_setting is not None:
            checked["patches_by_setting"] = {
                str(parse_setting(key)): as_scores(values, name_scores("patches_by_setting", str(key)), axes=2)
                for key, values in self.patches_by_setting.items()
            }
        if self.whole_attempts is not None:
            checked["whole_attempts"] = as_scores(self.whole_attempts, "whole_attempts", axes=2)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        arrays = dict(self.arrays())
        names = {"groups": self.groups, "positions": self.positions, "people": self.people, "categories": self.categories}
        given = {**arrays, **{name: values for name, values in names.items() if values is not None}}
        require_equal_lengths({name: len(values) for name, values in given.items()})
        for array in arrays.values():
            array.flags.writeable = False
        object.__setattr__(self, "clusters", Clusters.of(self.groups, self.samples))

    @property
    def samples(self) -> int:
        """How many samples there are, N."""
        return len(self.clean)

    def scores(self, setting: str) -> Scores:
        """Returns the scores under one setting, shape (N,); ``clean`` and ``no_image`` are settings too."""
        if setting == CLEAN_NAME:
            return self.clean
        if setting == NO_IMAGE_NAME and self.no_image is not None:
            return self.no_image
        return _of(self.by_setting, setting, "scores")

    @property
    def baseline_clean(self) -> Scores | None:
        """The clean scores of the earlier run, shape (N,); None if there are none."""
        return (self.baseline_by_setting or {}).get(CLEAN_NAME)

    @property
    def reference_clean(self) -> Scores | None:
        """The clean scores of the reference model, shape (N,); None if there are none."""
        return (self.reference_by_setting or {}).get(CLEAN_NAME)

    @property
    def clean_confidences(self) -> Scores | None:
        """The probabilities of the chosen letters without perturbation, shape (N,); None if there are none."""
        return (self.confidences or {}).get(CLEAN_NAME)

    def patches(self, setting: str) -> Scores:
        """Returns the scores of every patch under one setting, shape (N, n*n)."""
        return _of(self.patches_by_setting or {}, setting, "patch scores")

    def chance_of_each(self) -> Scores | None:
        """Returns the expected score of guessing of each sample, shape (N,); None if unknown."""
        if self.chances is not None:
            return self.chances
        return None if self.chance is None else np.full(self.samples, self.chance)

    def expected_chance(self) -> float | None:
        """Returns the expected score of guessing over all samples; None if unknown."""
        if self.chance is not None or self.chances is None:
            return self.chance
        return mean(self.chances)

    def expected_chance_level(self) -> float | None:
        """Returns the best mean score without looking: by guessing, or by the same answer throughout; None if unknown."""
        of_samples = None if self.chance_levels is None else mean(self.chance_levels)
        return max((level for level in (self.expected_chance(), of_samples) if level is not None), default=None)

    def matrix(self, settings: Sequence[str] | None = None) -> Scores:
        """Returns the scores under m settings side by side, shape (N, m); all settings by default."""
        chosen = self.by_setting if settings is None else {setting: self.by_setting[setting] for setting in settings}
        return stack_settings(chosen, self.samples)

    def resolutions(self) -> list[tuple[int, str]]:
        """Returns (long edge in pixels, setting) of every ``resolution:`` setting, ascending."""
        return sorted((edge, name) for name in self.by_setting if (edge := rung_of(name)) is not None)

    def argument(self, need: Needs, setting: str | None) -> Any:
        """Returns the argument of a metric for one of its needs; None if the table does not have it."""
        if need.of_one_setting:
            if setting is None:
                raise UsageError(f"{need.value} scores belong to one setting: say which, for example setting='glass_blur:low'")
            return self._of_one_setting(need, setting)
        if need in {Needs.RESOLUTIONS, Needs.ACCURACIES, Needs.RUNGS}:
            return self._curve(need)
        if need is Needs.CHANCES:
            return self.chance_of_each()
        return getattr(self, "by_setting" if need is Needs.PERTURBED_BY_SETTING else need.value)

    def required(self, need: Needs, setting: str | None = None) -> Any:
        """Returns the same as :meth:`argument`, but never None."""
        argument = self.argument(need, setting)
        if argument is None:
            where = f" of {setting!r}" if need.of_one_setting else ""
            raise UsageError(f"the table has no {need.value!r}{where}: measure it, and pass it to ScoreTable")
        return argument

    def arrays(self) -> Iterator[tuple[str, Scores]]:
        """Yields every array of scores with the name that messages use."""
        yield CLEAN_NAME, self.clean
        if self.no_image is not None:
            yield NO_IMAGE_NAME, self.no_image
        yield from self.by_setting.items()
        for name, prefix in _OTHERS.items():
            for setting, scores in (getattr(self, name) or {}).items():
                yield f"{prefix} {setting}", scores
        for setting, scores in (self.patches_by_setting or {}).items():
            yield f"patches of {setting}", scores
        for name in ("chances", "chance_levels", "whole_attempts"):
            if (single := getattr(self, name)) is not None:
                yield name, single

    def _of_one_setting(self, need: Needs, setting: str) -> Scores | None:
        if need is Needs.PERTURBED:
            return self.scores(setting)
        if need is Needs.PATCHES:
            return self.patches(setting)
        if need is Needs.BASELINE:
            return (self.baseline_by_setting or {}).get(setting)
        if need is Needs.CONFIDENCES:
            return (self.confidences or {}).get(setting)
        return None if self.whole_attempts is None else self.whole_attempts[:, : self.patches(setting).shape[1]]

    def _curve(self, need: Needs) -> list[float] | Scores | None:
        curve = self.resolutions()
        if not curve:
            return None
        if need is Needs.RUNGS:
            return self.matrix([setting for _, setting in curve])
        if need is Needs.RESOLUTIONS:
            return [float(edge) for edge, _ in curve]
        return [float(self.by_setting[setting].mean()) if self.samples else float("nan") for _, setting in curve]


def _of(mapping: Mapping[str, Scores], setting: str, what: str) -> Scores:
    if setting not in mapping:
        raise UsageError(
            f"the table has no {what} of the setting {setting!r}.{did_you_mean(setting, mapping)} "
            f"It has: {', '.join(mapping) or 'none'}"
        )
    return mapping[setting]
