"""Slow implementations of every formula in plain Python, written from the papers without code of the metrics.

They compute with exact fractions. Each takes the arguments of its metric as lists and dictionaries of numbers, and
returns a number, or None if undefined.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias

Number: TypeAlias = Fraction | float | None
Row: TypeAlias = Sequence[Fraction]
Rows: TypeAlias = Sequence[Sequence[Fraction]]
BySetting: TypeAlias = Mapping[str, Row]

TAIL = {
    "upsample",
    "downsample",
    "elastic_transform",
    "zoom_blur",
    "rotate",
    "shear",
    "affine",
    "perspective_transform",
    "pixelate",
}


def value(name: str, arguments: Sequence[Any]) -> float:
    """Returns the expected value of a built-in metric; NaN if it is undefined."""
    result = ORACLES[name](*map(_exact, arguments))
    return math.nan if result is None else float(result)


def mean(scores: Row) -> Fraction:
    """Returns the mean."""
    return sum(scores, Fraction()) / len(scores)


def drop(clean: Row, perturbed: Row) -> Fraction:
    """Returns the loss of accuracy."""
    return mean(clean) - mean(perturbed)


def harmful(clean: Row, perturbed: Row) -> Fraction:
    """Returns the mean loss of the samples that lose."""
    return mean([max(before - after, Fraction()) for before, after in zip(clean, perturbed, strict=True)])


def helpful(clean: Row, perturbed: Row) -> Fraction:
    """Returns the mean gain of the samples that gain."""
    return harmful(perturbed, clean)


def mean_drop(clean: Row, by_setting: BySetting) -> Fraction:
    """Returns the mean drop over settings."""
    return mean(_drops(clean, by_setting))


def worst_tenth_drop(clean: Row, by_setting: BySetting) -> Fraction:
    """Returns the mean of the largest tenth of the drops."""
    ranked = sorted(_drops(clean, by_setting), reverse=True)
    return mean(ranked[: math.ceil(Fraction(len(ranked), 10))])


def mean_corruption_error(by_setting: BySetting, reference: BySetting) -> Number:
    """Returns the mean over perturbations of the errors at all levels, relative to the reference's."""
    ratios = []
    for kind in {_kind(setting) for setting in by_setting}:
        settings = [setting for setting in by_setting if _kind(setting) == kind]
        ours, theirs = (sum(1 - score for setting in settings for score in of[setting]) for of in (by_setting, reference))
        if not theirs:
            return None
        ratios.append(Fraction(ours) / Fraction(theirs))
    return mean(ratios)


def relative_mean_corruption_error(clean: Row, by_setting: BySetting, reference_clean: Row, reference: BySetting) -> Number:
    """Returns the mean over perturbations of the losses at all levels, relative to the reference's."""
    ratios = []
    for kind in {_kind(setting) for setting in by_setting}:
        settings = [setting for setting in by_setting if _kind(setting) == kind]
        ours = sum((drop(clean, by_setting[setting]) for setting in settings), Fraction())
        theirs = sum((drop(reference_clean, reference[setting]) for setting in settings), Fraction())
        if theirs <= 0:
            return None
        ratios.append(ours / theirs)
    return mean(ratios)


def effective_robustness(clean: Row, by_setting: BySetting, reference_clean: Row, reference: BySetting) -> Number:
    """Returns the mean accuracy under settings minus the accuracy expected if the odds fall like the reference's."""
    kept, theirs = (mean([mean(of[setting]) for setting in by_setting]) for of in (by_setting, reference))
    accuracies = (mean(clean), mean(reference_clean), theirs)
    if not all(0 < accuracy < 1 for accuracy in accuracies):
        return None
    odds, before, after = (accuracy / (1 - accuracy) for accuracy in accuracies)
    expected = odds * after / before
    return kept - expected / (1 + expected)


def tail_share(clean: Row, by_setting: BySetting) -> Number:
    """Returns the share of the catastrophic settings that move or resample pixels."""
    tail = [setting for setting, scores in by_setting.items() if drop(clean, scores) > Fraction(1, 10)]
    return _share(_kind(setting) in TAIL for setting in tail) if tail else None


def mean_severity_correlation(clean: Row, by_setting: BySetting) -> Number:
    """Returns the mean rank correlation of level and drop."""
    correlations = [spearman((1, 2, 3), triple) for triple in _triples(clean, by_setting)]
    defined = [correlation for correlation in correlations if correlation is not None]
    return sum(defined) / len(defined) if defined else None


def spearman(first: Sequence[Any], second: Sequence[Any]) -> float | None:
    """Returns Pearson's correlation of the average ranks."""
    centred = []
    for side in (first, second):
        ranks = [sum(other < value for other in side) + (sum(other == value for other in side) + 1) / 2 for value in side]
        centred.append([rank - (len(side) + 1) / 2 for rank in ranks])
    spread = math.sqrt(math.prod(sum(part * part for part in side) for side in centred))
    return sum(a * b for a, b in zip(*centred, strict=True)) / spread if spread else None


def pcri(whole: Row, patches: Rows) -> Number:
    """Returns 1 - P_patch / P_whole."""
    return _index([max(views) for views in patches], whole)


def pcri_excess(whole: Row, patches: Rows, chances: Row) -> Number:
    """Returns the index minus that of a model that guesses again on each patch if the whole image did not suffice."""
    further = len(patches[0]) - 1
    lucky = [1 - (1 - right) * (1 - chance) ** further for right, chance in zip(whole, chances, strict=True)]
    index, neutral = pcri(whole, patches), _index(lucky, whole)
    return None if index is None or neutral is None else index - neutral


def gap(scores: Row, labels: Sequence[Hashable]) -> Number:
    """Returns the largest minus the smallest mean by label, without unknown labels."""
    means = means_by_label(scores, labels)
    return max(means) - min(means) if len(means) > 1 else None


def average_over_settings(by_setting: BySetting) -> Row:
    """Returns each sample's mean over settings."""
    return [mean(scores) for scores in zip(*by_setting.values(), strict=True)]


def means_by_label(values: Row, labels: Sequence[Hashable]) -> list[Fraction]:
    """Returns the mean of each known label."""
    return [mean([value for value, other in zip(values, labels, strict=True) if other == label]) for label in set(labels) - {""}]


def worst_drop(clean: Row, by_setting: BySetting, labels: Sequence[Hashable]) -> Number:
    """Returns the largest mean drop of any label."""
    losses = [before - after for before, after in zip(clean, average_over_settings(by_setting), strict=True)]
    return max(means_by_label(losses, labels), default=None)


def always_lost_rate(clean: Row, by_setting: BySetting) -> Fraction:
    """Returns the share of samples that are right when clean and keep at most a tenth of the score over settings."""
    half, tenth = Fraction(1, 2), Fraction(1, 10)
    pairs = zip(clean, average_over_settings(by_setting), strict=True)
    return _share([before >= half and after <= tenth for before, after in pairs])


def wording_range(clean: Row, by_setting: BySetting) -> Fraction:
    """Returns the highest minus the lowest mean."""
    means = [mean(scores) for scores in (clean, *by_setting.values())]
    return max(means) - min(means)


def gain(after: BySetting, before: BySetting) -> Fraction:
    """Returns the mean gain in score over settings, each compared with the same setting before."""
    return mean([drop(scores, before[setting]) for setting, scores in after.items()])


def transfer_retention(perturbed: Row, clean: Row) -> Number:
    """Returns the remaining share of the mean overlap."""
    return mean(perturbed) / mean(clean) if mean(clean) else None


def absolute_continuous_error(accuracies: Row) -> Fraction:
    """Returns the sum of absolute steps."""
    return sum(map(abs, _steps(accuracies)), Fraction())


def resolution_wobble(accuracies: Row) -> Fraction:
    """Returns twice the smaller of all rises and all falls."""
    steps = _steps(accuracies)
    rises, falls = (sum((max(sign * step, Fraction()) for step in steps), Fraction()) for sign in (1, -1))
    return 2 * min(rises, falls)


def resolution_slope(resolutions: Row, accuracies: Row) -> float:
    """Returns the least-squares slope over doublings."""
    doublings = [math.log2(edge) for edge in resolutions]
    centre = sum(doublings) / len(doublings)
    weights = [doubling - centre for doubling in doublings]
    return sum(w * float(a) for w, a in zip(weights, accuracies, strict=True)) / sum(w * w for w in weights)


def resolution_noise_floor(rungs: Rows) -> Number:
    """Returns sqrt(2/pi) times the sum of the standard errors of the steps."""
    count = len(rungs)
    if count < 2:
        return None
    total = 0.0
    for step in range(len(rungs[0]) - 1):
        moves = [row[step + 1] - row[step] for row in rungs]
        total += math.sqrt(sum((move - mean(moves)) ** 2 for move in moves) / (count - 1) / count)
    return math.sqrt(2 / math.pi) * total


def _exact(argument: Any) -> Any:
    """Returns an argument with its floats as fractions: 0.3 becomes 3/10."""
    if isinstance(argument, Mapping):
        return {key: _exact(item) for key, item in argument.items()}
    if isinstance(argument, list):
        return [_exact(item) for item in argument]
    return _fraction(argument) if isinstance(argument, float) else argument


@cache
def _fraction(number: float) -> Fraction:
    return Fraction(number).limit_denominator(10**6)


def _drops(clean: Row, by_setting: BySetting) -> list[Fraction]:
    return [drop(clean, scores) for scores in by_setting.values()]


def _low(by_setting: BySetting) -> BySetting:
    return {setting: scores for setting, scores in by_setting.items() if setting.endswith(":low")}


def _kind(setting: str) -> str:
    return setting.partition(":")[0]


def _triples(clean: Row, by_setting: BySetting) -> list[list[Fraction]]:
    kinds = dict.fromkeys(map(_kind, by_setting))
    named = [[f"{kind}:{level}" for level in ("low", "mid", "high")] for kind in kinds]
    return [[drop(clean, by_setting[name]) for name in names] for names in named if set(names) <= set(by_setting)]


def _share(hits: Any) -> Fraction:
    return mean([Fraction(bool(hit)) for hit in hits])


def _of_gain(lost: Fraction, clean: Row, no_image: Row) -> Number:
    gained = drop(clean, no_image)
    return lost / gained if gained > 0 else None


def _index(attempted: Row, whole: Row) -> Number:
    return 1 - mean(attempted) / mean(whole) if mean(whole) else None


def _steps(accuracies: Row) -> list[Fraction]:
    return [after - before for before, after in itertools.pairwise(accuracies)]


def calibration_error(scores: Row, confidences: Row) -> Fraction:
    """Returns the gaps of 10 bins of equal size, by rank; answers of equal confidence share all their ranks."""
    count, total = len(scores), Fraction()
    ranked = sorted((confidence, level) for confidence, level in zip(confidences, _level(scores, confidences), strict=True))
    sizes = [count // 10 + (bin_ < count % 10) for bin_ in range(10)]
    for size in sizes:
        inside, ranked = ranked[:size], ranked[size:]
        total += abs(sum((level - confidence for confidence, level in inside), Fraction()))
    return total / count


def brier(scores: Row, confidences: Row) -> Fraction:
    """Returns the mean squared difference."""
    return mean([(confidence - score) ** 2 for score, confidence in zip(scores, confidences, strict=True)])


def risk_coverage(scores: Row, confidences: Row) -> Fraction:
    """Returns the mean over k of the share of wrong answers among the k most confident."""
    levels = _level(scores, confidences)
    ranked = [levels[index] for index in sorted(range(len(levels)), key=lambda index: -confidences[index])]
    return mean([1 - mean(ranked[:k]) for k in range(1, len(ranked) + 1)])


def accepted(scores: Row, confidences: Row) -> Fraction:
    """Returns the largest share of answers at or above a threshold that are at least nine tenths right."""
    shares = [Fraction()]
    for threshold in confidences:
        above = [score for score, confidence in zip(scores, confidences, strict=True) if confidence >= threshold]
        shares += [Fraction(len(above), len(scores))] if mean(above) >= Fraction(9, 10) else []
    return max(shares)


def _level(scores: Row, confidences: Row) -> Row:
    """Returns the mean score of the answers with the same confidence, for each answer."""
    pairs = list(zip(scores, confidences, strict=True))
    return [mean([score for score, other in pairs if other == confidence]) for confidence in confidences]


def _increase(of: Callable[[Row, Row], Fraction]) -> Callable[[Row, Row, Row, Row], Fraction]:
    return lambda clean, perturbed, sure, sure_after: of(perturbed, sure_after) - of(clean, sure)


ORACLES: Mapping[str, Callable[..., Number]] = {
    "absolute_continuous_error": absolute_continuous_error,
    "accuracy": mean,
    "accuracy_above_chance": drop,
    "accuracy_drop": drop,
    "always_lost_rate": always_lost_rate,
    "answer_agreement": lambda same: mean(list(map(min, zip(*same.values(), strict=True)))),
    "area_under_risk_coverage": risk_coverage,
    "baseline_drop": drop,
    "baseline_flip_rate": lambda earlier, now: harmful(earlier, now) + helpful(earlier, now),
    "benign_at_low": lambda clean, by_setting: _share(loss < Fraction(1, 100) for loss in _drops(clean, _low(by_setting))),
    "brier_score": brier,
    "brier_score_increase": _increase(brier),
    "calibration_error_increase": _increase(calibration_error),
    "catastrophic_rate": lambda clean, by_setting: _share(loss > Fraction(1, 10) for loss in _drops(clean, by_setting)),
    "circular_accuracy": lambda clean, by_setting: mean(list(map(min, zip(clean, *by_setting.values(), strict=True)))),
    "clean_accuracy": mean,
    "coverage_at_90_precision": accepted,
    "coverage_at_90_precision_drop": lambda clean, perturbed, sure, sure_after: (
        accepted(clean, sure) - accepted(perturbed, sure_after)
    ),
    "drop_increase": lambda clean, perturbed, old_clean, old: drop(clean, perturbed) - drop(old_clean, old),
    "effective_robustness": effective_robustness,
    "expected_calibration_error": calibration_error,
    "group_gap": gap,
    "harmful_flip_rate": harmful,
    "helpful_flip_rate": helpful,
    "hint_gain": gain,
    "identity_accuracy": lambda by_setting: mean(average_over_settings(by_setting)),
    "identity_drop": mean_drop,
    "largest_downward_step": lambda accuracies: max(
        before - after for index, before in enumerate(accuracies) for after in accuracies[index:]
    ),
    "letter_pull": lambda chosen, right: max(abs(mean(shares) - mean(right[letter])) for letter, shares in chosen.items()),
    "mean_baseline_drop": lambda by_setting, baseline_by_setting: gain(baseline_by_setting, by_setting),
    "mean_corruption_error": mean_corruption_error,
    "mean_drop": mean_drop,
    "mean_drop_at_low": lambda clean, by_setting: mean_drop(clean, _low(by_setting)),
    "mean_harmful_flip_rate": lambda clean, by_setting: mean([harmful(clean, scores) for scores in by_setting.values()]),
    "mean_helpful_flip_rate": lambda clean, by_setting: mean([helpful(clean, scores) for scores in by_setting.values()]),
    "mean_relative_corruption_error": lambda clean, by_setting, no_image: _of_gain(mean_drop(clean, by_setting), clean, no_image),
    "mean_severity_correlation": mean_severity_correlation,
    "mean_severity_violation": lambda clean, by_setting: _share(
        low > mid or mid > high for low, mid, high in _triples(clean, by_setting)
    ),
    "pcri": pcri,
    "pcri_excess": pcri_excess,
    # the first attempt is the whole image itself
    "pcri_matched": lambda _whole, patches, attempts: _index(list(map(max, patches)), list(map(max, attempts))),
    "position_gap": gap,
    "rci": pcri,
    "risk_coverage_increase": _increase(risk_coverage),
    "relative_continuous_error": lambda accuracies: (
        absolute_continuous_error(accuracies) / mean(accuracies) if mean(accuracies) else None
    ),
    "relative_corruption_error": lambda clean, perturbed, no_image: _of_gain(drop(clean, perturbed), clean, no_image),
    "relative_mean_corruption_error": relative_mean_corruption_error,
    "resolution_accuracy": mean,
    "resolution_correlation": spearman,
    "resolution_net": lambda accuracies: accuracies[-1] - accuracies[0],
    "resolution_noise_floor": resolution_noise_floor,
    "resolution_slope": resolution_slope,
    "resolution_wobble": resolution_wobble,
    "severe_failure_rate": lambda clean, by_setting: (
        _share(loss > mean(clean) / 10 for loss in _drops(clean, by_setting)) if mean(clean) > 0 else None
    ),
    "split_group_gap": lambda by_setting, labels: gap(average_over_settings(by_setting), labels),
    "split_position_gap": lambda by_setting, labels: gap(average_over_settings(by_setting), labels),
    "split_transfer_retention": lambda by_setting, clean: transfer_retention(average_over_settings(by_setting), clean),
    "tail_share": tail_share,
    "thinking_gain": gain,
    "transfer_retention": transfer_retention,
    "visual_gain": drop,
    "wording_range": wording_range,
    "worst_at_low": lambda clean, by_setting: max(_drops(clean, _low(by_setting))),
    "worst_case_drop": lambda clean, by_setting: max(_drops(clean, by_setting)),
    "worst_category_accuracy": lambda by_setting, labels: min(
        means_by_label(average_over_settings(by_setting), labels), default=None
    ),
    "worst_category_drop": worst_drop,
    "worst_group_drop": worst_drop,
    "worst_tenth_drop": worst_tenth_drop,
}
"""Oracles by the name of the built-in metric."""


def interval(name: str, arguments: list[Any], level: float) -> tuple[float, float]:
    """Returns the exact interval of a built-in metric for right and wrong answers to independent questions."""
    return INTERVALS[name](*arguments, (1.0 - level) / 2.0)


def exact_share(scores: Sequence[float], tail: float) -> tuple[float, float]:
    """Clopper and Pearson: the shares with probability ``tail`` of at least, or at most, this many right answers."""
    right, n = round(sum(scores)), len(scores)
    low = 0.0 if right == 0 else _crossing(lambda share: _at_least(right, n, share), tail)
    high = 1.0 if right == n else 1.0 - _crossing(lambda share: _at_least(n - right, n, share), tail)
    return low, high


def exact_drop(before: Sequence[float], after: Sequence[float], tail: float) -> tuple[float, float]:
    """The drops with probability ``tail`` of at least, or at most, these net flips, at the likeliest share of helpful flips."""
    changes = [round(was - now) for was, now in zip(before, after, strict=True)]
    harmful, helpful, n = changes.count(1), changes.count(-1), len(changes)
    return _lowest_drop(harmful, helpful, n, tail), -_lowest_drop(helpful, harmful, n, tail)


def _lowest_drop(harmful: int, helpful: int, n: int, tail: float) -> float:
    if harmful - helpful == -n:
        return -1.0
    return _crossing(lambda drop: _excess(harmful - helpful, n, drop, _helpful_share(harmful, helpful, n, drop)), tail, -1.0)


def _helpful_share(harmful: int, helpful: int, n: int, drop: float) -> float:
    """Tango's nuisance parameter: the root of ``2n q^2 + b q - helpful drop (1 - drop)``."""
    b = -harmful - helpful + (2 * n - harmful + helpful) * drop
    return max((math.sqrt(max(b * b + 8.0 * n * helpful * drop * (1.0 - drop), 0.0)) - b) / (4.0 * n), -drop, 0.0)


def _excess(excess: int, n: int, drop: float, share: float) -> float:
    """Returns the probability that harmful minus helpful flips of ``n`` answers are ``excess`` or more."""
    up, down = min(max(share + drop, 0.0), 1.0), min(max(share, 0.0), 1.0)
    stay = max(1.0 - up - down, 0.0)
    return sum(
        math.comb(n, gained) * math.comb(n - gained, lost) * up**lost * down**gained * stay ** (n - gained - lost)
        for gained in range(n + 1)
        for lost in range(max(excess + gained, 0), n - gained + 1)
    )


def _at_least(right: int, n: int, share: float) -> float:
    return sum(math.comb(n, count) * share**count * (1.0 - share) ** (n - count) for count in range(right, n + 1))


def _crossing(chance: Callable[[float], float], tail: float, low: float = 0.0) -> float:
    high = 1.0
    for _ in range(45):
        middle = (low + high) / 2.0
        low, high = (middle, high) if chance(middle) <= tail else (low, middle)
    return low


INTERVALS: Mapping[str, Callable[..., tuple[float, float]]] = {
    "accuracy": exact_share,
    "accuracy_drop": exact_drop,
    "clean_accuracy": exact_share,
    "harmful_flip_rate": lambda clean, perturbed, tail: exact_share(
        [max(was - now, 0.0) for was, now in zip(clean, perturbed, strict=True)], tail
    ),
    "helpful_flip_rate": lambda clean, perturbed, tail: exact_share(
        [max(now - was, 0.0) for was, now in zip(clean, perturbed, strict=True)], tail
    ),
    "baseline_drop": exact_drop,
    "baseline_flip_rate": lambda earlier, now, tail: exact_share(
        [abs(was - value) for was, value in zip(earlier, now, strict=True)], tail
    ),
}
"""Exact calculations of intervals, by the name of the built-in metric."""

CLOSE = {name: 1e-8 if "drop" not in name else 0.02 for name in INTERVALS}
"""Tolerance for the metric: tails of drops come from a saddlepoint formula."""
