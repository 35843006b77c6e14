"""Losses hidden by a mean over all samples: of one category, of one group of people, and of the same samples everywhere.

A benchmark has many kinds of questions. A kind that is lost under all settings moves a mean only by its share of the samples.
These metrics look at each kind, and each sample, separately. In a gate they read only answers that a setting leaves right, like
``label_preserving_drop``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.words import points

from .accuracy import Bounds
from .corruption import sweep_metric
from .observatory import UNKNOWN, does_the_task, require_one_label_each
from .record import metric, of_mean
from .statistics.clusters import one_sided
from .statistics.paired import drop_test, largest_bounds, mean_interval
from .table import LEAST_PICTURES, BySetting, Needs, Scores, ScoreTable, against_clean, by_setting, per_sample

RIGHT = 0.5
"""Least score on clean images of a sample that can be lost."""
LEFT = 0.1
"""Largest mean score over settings of a sample that is always lost: wrong under at least nine tenths of them."""

_BY_CATEGORY = "after VLM-RobustBench appendix A.2 (dataset category sensitivity): the worst of the categories (our companion)"


# The worst category of questions, and the worst group of people


def worst_category_drop_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the largest of the categories' mean drops: above without correction (intersection-union), below by Bonferroni's.

    Each category has its own interval, by whole source images: the tails of flips if every sample loses all or
    nothing, otherwise guarded Student's t. The largest upper end counts, so a small category makes the interval wide.
    """
    return _interval_of_worst_drop(table, table.required(Needs.CATEGORIES), confidence)


category_metric = partial(
    sweep_metric,
    validity=f"at least two categories of {LEAST_PICTURES} or more source images",
    label_preserving=True,
)


@category_metric(
    bounds=(-1.0, 1.0),
    reference=_BY_CATEGORY,
    unsuited="The largest of more, or of smaller, categories is larger by chance alone, so that values of different datasets "
    "cannot be compared. Use `mean_drop` to compare models, and judge this by its interval.",
    interval=worst_category_drop_interval,
    note=lambda table: _worst_note(table, table.categories, largest=True),
)
def worst_category_drop(clean: ArrayLike, perturbed_by_setting: BySetting, categories: Sequence[Hashable]) -> float:
    """Largest mean drop of any category of questions.

    One category of thirty that is lost under all settings moves `mean_drop` by 3 percentage points, and this metric by the
    full accuracy of the category. A gate leaves out and names categories of fewer than 30 source images: they show nothing
    either way; it does not apply if fewer than two are left.

    A sample without a known category (empty text) is left out.

    Formula: ``max over categories c of mean(clean_i - m_i over samples i of c), with m_i = mean over settings s of perturbed_si``

    Returns: A fraction in [-1, 1]; NaN for no category, no settings, no samples or a missing score.

    >>> worst_category_drop([1, 1, 1, 1], {"fog:low": [1, 1, 1, 0], "fog:high": [1, 0, 0, 0]}, ["a", "a", "b", "b"])
    0.75
    """
    return _largest_drop(clean, perturbed_by_setting, categories, "categories")


def worst_category_accuracy_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the lowest of the categories' accuracies: below without correction (intersection-union), above by Bonferroni's.

    Each category has its own interval, by whole source images: Clopper and Pearson's if every sample is always right
    or always wrong, otherwise guarded Student's t. The lowest lower end counts, so a small category makes the interval wide.
    """
    means = per_sample(table.by_setting)
    parts = [(means[rows], table.clusters.within(rows)) for rows in _rows(table.required(Needs.CATEGORIES)).values()]
    shared = 1.0 - (1.0 - confidence) / len(parts)
    low = min(mean_interval(scores, clusters, confidence)[0] for scores, clusters in parts)
    return low, min(mean_interval(scores, clusters, shared)[1] for scores, clusters in parts)


@category_metric(
    better="higher",
    perfect=1.0,
    reference=_BY_CATEGORY,
    unsuited="A category that is hard on clean images is low here without any loss. Use `worst_category_drop` for what the "
    "settings cost.",
    interval=worst_category_accuracy_interval,
    note=lambda table: _worst_note(table, table.categories, largest=False),
    unchanged=None,
    monotone={Needs.PERTURBED_BY_SETTING: 1},
)
def worst_category_accuracy(perturbed_by_setting: BySetting, categories: Sequence[Hashable]) -> float:
    """Lowest mean accuracy over the settings of any category of questions.

    A gate leaves out categories of fewer than 30 source images, as for `worst_category_drop`.

    A sample without a known category (empty text) is left out.

    Formula: ``min over categories c of mean(m_i over samples i of c), with m_i = mean over settings s of perturbed_si``

    Returns: A fraction in [0, 1]; NaN for no category, no settings, no samples or a missing score.

    >>> worst_category_accuracy({"fog:low": [1, 1, 1, 0], "fog:high": [1, 0, 0, 0]}, ["a", "a", "b", "b"])
    0.25
    """
    scores = by_setting(perturbed_by_setting)
    if not scores:
        return math.nan
    means = per_sample(scores)
    require_one_label_each(means, categories, "categories")
    return min(_means(means, categories).values(), default=math.nan)


def worst_group_drop_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the largest of the groups' mean drops: above without correction (intersection-union), below by Bonferroni's.

    Each group has its own interval, by whole source images, as in `worst_category_drop`. No group is left out for its
    size: a small one makes the interval wide.
    """
    return _interval_of_worst_drop(table, table.required(Needs.PEOPLE), confidence)


@metric(
    suite="observatory",
    better="lower",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="after The Perceptual Observatory section 3.3 (gender bias): what each group loses, not how far groups are apart "
    "(our companion)",
    validity="at least two groups; the model is shown to do better with the images than without",
    unsuited="It says what settings cost a group, and not whether the group was served worse before. Bound `split_group_gap` "
    "beside it.",
    interval=worst_group_drop_interval,
    gate=does_the_task,
    note=lambda table: _worst_note(table, table.people, largest=True),
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED_BY_SETTING: -1},
    label_preserving=True,
)
def worst_group_drop(clean: ArrayLike, perturbed_by_setting: BySetting, people: Sequence[Hashable]) -> float:
    """Largest mean drop of any group of people.

    A sample without a known group (empty text) is left out.

    Formula: ``max over groups g of mean(clean_i - m_i over samples i of g), with m_i = mean over settings s of perturbed_si``

    Returns: A fraction in [-1, 1]; NaN for no group, no settings, no samples or a missing score.

    >>> worst_group_drop([1, 1, 1, 1], {"fog:low": [1, 1, 1, 0], "dunes": [1, 1, 0, 0]}, ["f", "f", "m", "m"])
    0.75
    """
    return _largest_drop(clean, perturbed_by_setting, people, "people")


# The same samples under all settings


def count_always_lost(table: ScoreTable) -> str:
    """Returns how many samples are always lost, if any."""
    lost = int(_always_lost(table.clean, table.by_setting).sum())
    return f"{lost} of {table.samples} samples are always lost" if lost else ""


@sweep_metric(
    reference="after VLM-RobustBench appendix A.12 (Flip+): the same flips, counted by sample (our companion)",
    unsuited="It does not see lost samples whose answers are guessed anew under each setting, which are right too often. Bound "
    "`worst_category_drop` and `mean_drop` beside it.",
    interval=of_mean(lambda table, _: _always_lost(table.clean, table.by_setting)),
    note=count_always_lost,
    label_preserving=True,
)
def always_lost_rate(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Share of all samples that are right on clean images and wrong under at least nine tenths of the settings.

    Mean drops add up small losses of many samples and total losses of few. This counts the total losses. The denominator is all
    samples, including those wrong on clean images, so it is the part of `mean_drop` that no setting brings back.

    Nine tenths, not all: a lost sample is still right by luck under some settings. If its answer has a probability g to
    be right under each of S settings, it is counted with probability ``P(Binomial(S, g) <= S / 10)``. With 133 settings this is
    1.00 for g = 0, 0.99 for 0.05, 0.54 for 0.1, and 0.00 for 0.25. So it counts samples with the same wrong answer nearly
    everywhere, as is typical without sampling. It misses samples that are guessed anew among four options.

    Formula: ``share of the samples i with clean_i >= 0.5 and m_i <= 0.1, with m_i = mean over settings s of perturbed_si``

    Returns: A fraction in [0, 1]; NaN for no settings, no samples or a missing score.

    >>> always_lost_rate([1, 1, 1, 0], {"fog:low": [1, 0, 0, 0], "fog:high": [1, 1, 0, 0]})
    0.25
    """
    before, after = against_clean(clean, perturbed_by_setting)
    if not after or not len(before):
        return math.nan
    return math.nan if np.isnan(before + per_sample(after)).any() else float(_always_lost(before, after).mean())


def _always_lost(clean: Scores, perturbed: Mapping[str, Scores]) -> Scores:
    """Returns 1 for each sample that is always lost, else 0, shape (N,)."""
    return ((clean >= RIGHT - ROUNDING) & (per_sample(perturbed) <= LEFT + ROUNDING)).astype(np.float64)


def _largest_drop(clean: ArrayLike, perturbed_by_setting: BySetting, labels: Sequence[Hashable], name: str) -> float:
    before, after = against_clean(clean, perturbed_by_setting)
    require_one_label_each(before, labels, name)
    return max(_means(before - per_sample(after), labels).values(), default=math.nan) if after else math.nan


def _interval_of_worst_drop(table: ScoreTable, labels: Sequence[str], confidence: float) -> Bounds:
    after, every = per_sample(table.by_setting), _rows(labels).values()
    tests = [drop_test(table.clean[rows], after[rows][:, None], table.clusters.within(rows)) for rows in every]
    return largest_bounds(tests, len(tests), one_sided(confidence))


def _worst_note(table: ScoreTable, labels: Sequence[str] | None, *, largest: bool) -> str:
    after = per_sample(table.by_setting)
    means = _means(table.clean - after if largest else after, labels or ())
    if len(set(means.values())) < 2:  # none is the worst
        return ""
    worst = (max if largest else min)(means, key=means.__getitem__)
    said = points(means[worst]) if largest else f"{means[worst]:.3f}"
    unknown = sum(not label for label in labels or ())
    left_out = f"; left out {unknown} of {table.samples} samples" if unknown else ""
    return f"worst of {len(means)}: {worst} ({said}, n={sum(label == worst for label in labels or ())}){left_out}"


def _means(values: Scores, labels: Sequence[Hashable]) -> dict[Hashable, float]:
    """Returns the mean of each label; all NaN if a value is missing, because it could be the worst."""
    known = float(values.sum()) * 0.0
    return {label: float(values[rows].mean()) + known for label, rows in _rows(labels).items()}


def _rows(labels: Sequence[Hashable]) -> dict[Hashable, NDArray[np.intp]]:
    """Returns the samples of each known label, ordered by the text of the label."""
    members: dict[Hashable, list[int]] = {}
    for row, label in enumerate(labels):
        if label != UNKNOWN:
            members.setdefault(label, []).append(row)
    return {label: np.array(members[label]) for label in sorted(members, key=str)}
