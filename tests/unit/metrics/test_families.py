from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.metrics import FAMILY_METRICS, ScoreTable, gain_interval, get, scale_consistency, scale_gain
from pytest_vlmrobust.metrics import scale_consistency_interval as consistency_interval
from pytest_vlmrobust.metrics import scale_gain_interval as gain_per_doubling
from pytest_vlmrobust.metrics.estimation import describe
from pytest_vlmrobust.metrics.families import SideBySide
from pytest_vlmrobust.metrics.statistics.curves import slope_weights
from pytest_vlmrobust.metrics.statistics.multiple import Contest
from pytest_vlmrobust.metrics.statistics.paired import largest_bounds

GAIN, CONSISTENCY = FAMILY_METRICS["scale_gain"], FAMILY_METRICS["scale_consistency"]


def right(count: int, of: int = 100) -> list[float]:
    return [1.0] * count + [0.0] * (of - count)


def test_the_gain_of_two_models_is_that_of_a_pair() -> None:
    smaller, larger = right(60), [0.0] * 10 + [1.0] * 80 + [0.0] * 10
    low, high = gain_interval(larger, smaller)
    assert gain_per_doubling([3, 12], [smaller, larger]) == pytest.approx((low / 2, high / 2))
    assert gain_per_doubling([12, 3], [larger, smaller]) == pytest.approx((low / 2, high / 2))


def test_the_slope_of_the_means_is_the_mean_of_the_slopes() -> None:
    rng = np.random.default_rng(3)
    scores, sizes = rng.random((3, 50)), [3.0, 7.0, 72.0]
    slopes = np.array([scale_gain(sizes, column.tolist()) for column in scores.T])
    steepest = float(np.clip(slope_weights(np.log2(sizes)), 0.0, None).sum())
    bounds = []
    for sign in (-1.0, 1.0):  # one more sample argues against each; Student's 95 % quantile with 49 degrees of freedom
        grown = np.append(slopes, sign * steepest)
        bounds.append(float(grown.mean()) + sign * 1.676550892617 * float(np.std(grown, ddof=1)) / math.sqrt(51))
    result = GAIN.estimate(sizes, scores)
    assert result.value == pytest.approx(slopes.mean())
    assert (result.low, result.high) == pytest.approx(tuple(bounds))
    assert result.interval(0.5)[0] > result.low


def test_identical_models_are_not_shown_to_be_equal() -> None:
    low, high = gain_per_doubling([7, 8, 9], [right(60)] * 3)
    assert low < -0.05
    assert high == pytest.approx(-low)


def test_copies_of_one_image_count_once() -> None:
    scores, images = [right(50) * 4, right(60) * 4, right(70) * 4], [str(index) for index in range(100)] * 4
    for sizes in ([1, 2, 4], [1, 2]):
        chosen = scores[: len(sizes)]
        apart, together = gain_per_doubling(sizes, chosen), gain_per_doubling(sizes, chosen, source_images=images)
        assert together[1] - together[0] > 1.8 * (apart[1] - apart[0])
    with pytest.raises(ValueError, match="1 source images for 400 samples"):
        gain_per_doubling([1, 2, 4], scores, source_images=["a"])


def test_a_step_is_lost_only_where_that_is_shown() -> None:
    assert consistency_interval([1, 2, 4], [right(50), right(90), right(50)]) == (0.5, 0.5)
    assert consistency_interval([1, 4, 2], [right(50), right(50), right(90)]) == (0.5, 0.5)
    assert consistency_interval([1, 2, 4], [right(50), right(51), right(50)]) == (0.0, 1.0)
    assert consistency_interval([1, 2, 4], [right(50), right(51), right(90)]) == (0.5, 1.0)
    result = CONSISTENCY.estimate([1, 2, 4], [right(50), right(90), right(50)])
    assert (result.value, result.low, result.high, result.confidence) == (0.5, 0.5, 0.5, 0.90)
    assert result.reason == "loses 40.0 pp from 2 to 4"
    assert result.interval(1.0 - 1e-12) == (0.0, 1.0)


def test_what_is_missing_is_said() -> None:
    for metric in FAMILY_METRICS.values():
        broken = metric.estimate([1, 2], [right(50), [math.nan, *right(49, 99)]])
        assert math.isnan(broken.value)
        assert (broken.n, broken.reason) == (99, "scores of 1 of 100 samples are missing")
        assert all(map(math.isnan, broken.interval(0.9)))
        assert metric.estimate([], []).reason == metric.estimate([1, 2], [[], []]).reason == "no samples"
        alone = metric.estimate([1], [right(50)])
        assert (math.isnan(alone.value), alone.reason) == (True, "undefined: needs at least two sizes")
        assert all(map(math.isnan, metric.interval([1], [right(50)], 0.9, None)))
    assert all(map(math.isnan, gain_per_doubling([7, 7], [right(5), right(6)])))


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="3 sizes and 2 scores: expected one score for each size"):
        GAIN.estimate([1, 2, 4], [right(5), right(6)])
    with pytest.raises(ValueError, match=r"scores\[0\] has 2 scores and scores\[1\] has 1"):
        GAIN.estimate([1, 2], [[1, 0], [1]])
    with pytest.raises(ValueError, match=r"parameters are \[7\.0, 7\.0\]: expected models of different sizes"):
        consistency_interval([7, 7], [right(5), right(6)])
    with pytest.raises(ValueError, match="confidence is 90"):
        GAIN.estimate([1, 2], [[1], [0]], confidence=90)


@pytest.mark.parametrize("name", FAMILY_METRICS)
def test_a_property_is_described(name: str) -> None:
    about = describe(FAMILY_METRICS[name])
    facts = dict(about.facts)
    assert about.name == name
    assert about.formula
    assert facts["of"] == "a family of models of different sizes on a dataset"
    assert facts["interval"].startswith("Bounds the ")
    assert "Args:" not in facts["interval"]
    assert facts["published"].startswith("The Perceptual Observatory")
    assert max(map(len, about.text(80).splitlines())) <= 80
    assert list(dict(describe(get("identity_drop")).facts))[:3] == list(facts)[:3] == ["of", "suite", "reads"]


def test_the_gain_is_per_doubling() -> None:
    assert scale_gain([4, 16], [0.5, 0.7]) == pytest.approx(0.1)
    assert scale_gain([16e9, 4e9], [0.7, 0.5]) == pytest.approx(0.1)
    assert scale_gain([1, 2, 4, 8], [0.5, 0.6, 0.6, 0.8]) == pytest.approx((-1.5 * 0.5 - 0.5 * 0.6 + 0.5 * 0.6 + 1.5 * 0.8) / 5)
    assert type(scale_gain([1, 2], [0, 1])) is float


def test_each_loss_breaks_consistency() -> None:
    assert scale_consistency([3, 7, 72], [0.5, 0.7, 0.6]) == 0.5
    assert scale_consistency([72, 3, 7], [0.9, 0.5, 0.7]) == 1.0
    assert scale_consistency([3, 7, 72], [0.5, 0.5, 0.5]) == 1.0
    assert scale_consistency([3, 7], [0.6, 0.5]) == 0.0


@pytest.mark.parametrize("summary", [scale_gain, scale_consistency])
def test_one_model_shows_nothing(summary: Callable[..., float]) -> None:
    assert math.isnan(summary([], []))
    assert math.isnan(summary([3], [0.5]))
    assert math.isnan(summary([3, 7], [0.5, math.nan]))


@pytest.mark.parametrize("summary", [scale_gain, scale_consistency])
def test_nonsense_sizes_are_refused(summary: Callable[..., float]) -> None:
    with pytest.raises(ValueError, match="2 sizes and 1 scores: expected one score for each size"):
        summary([3, 7], [0.5])
    with pytest.raises(ValueError, match=r"parameters has 0\.0: expected a number of parameters above 0"):
        summary([0, 7], [0.5, 0.6])


def test_two_models_of_one_size() -> None:
    assert math.isnan(scale_gain([7, 7], [0.5, 0.6]))
    assert scale_gain([7, 7, 14], [0.5, 0.7, 0.7]) == pytest.approx(0.1)
    with pytest.raises(ValueError, match=r"parameters are \[7\.0, 7\.0\]: expected models of different sizes"):
        scale_consistency([7, 7], [0.5, 0.6])


# Several models on the same answers: the numbers of the registered metrics, and nobody's failures count for anybody.


SETTINGS = ("fog:low", "fog:high", "rain:low", "flip_v")
GROUPS = [str(index // 2) for index in range(120)]


def table(models: int = 3) -> SideBySide:
    rng = np.random.default_rng(0)
    clean = (rng.random((models, 120)) < 0.9).astype(float)
    by_setting = {name: clean * (rng.random((models, 120)) < 0.8) for name in SETTINGS}
    return SideBySide(clean, by_setting, GROUPS)


def of_model(scores: SideBySide, model: int, reference: int = 0) -> ScoreTable:
    scores_of_model, scores_of_reference = (
        {name: scores.by_setting[name][index] for name in SETTINGS} for index in (model, reference)
    )
    return ScoreTable(scores.clean[model], scores_of_model, reference_by_setting=scores_of_reference, groups=GROUPS)


def bounds(contest: Contest, model: int) -> tuple[float, float]:
    return float(contest.alone.lower(0.05)[model]), float(contest.alone.upper(0.05)[model])


@pytest.mark.parametrize("model", [0, 1, 2])
def test_without_failures_the_numbers_are_those_of_the_metrics(model: int) -> None:
    scores = table()
    contests = {"mean_drop": scores.mean_drop(SETTINGS), "mean_corruption_error": scores.mean_corruption_error(SETTINGS, 0)}
    for name, contest in contests.items():
        estimate = metrics.estimate(name, of_model(scores, model))
        assert contest.values[model] == pytest.approx(estimate.value)
        assert bounds(contest, model) == pytest.approx((estimate.low, estimate.high))
    largest = metrics.estimate("worst_case_drop", of_model(scores, model))
    assert max(scores.drops(SETTINGS, model).values()) == pytest.approx(largest.value)
    assert largest_bounds(scores.drop_tests(SETTINGS, model), 4, 0.05) == pytest.approx((largest.low, largest.high))
    accuracies = [float(scores.by_setting[name][model].mean()) for name in SETTINGS]
    assert scores.mean_accuracy(SETTINGS).values[model] == pytest.approx(np.mean(accuracies))
    assert scores.clean_accuracy().values[model] == pytest.approx(scores.clean[model].mean())


def test_a_failed_inference_takes_the_sample_from_all_models_there_and_nowhere_else() -> None:
    scores = table()
    by_setting = {name: np.array(values) for name, values in scores.by_setting.items()}
    by_setting["fog:low"][1, 7] = math.nan
    paired = SideBySide(scores.clean, by_setting, GROUPS)
    kept = np.arange(120) != 7
    assert paired.complete_samples("fog:low").tolist() == kept.tolist()
    assert paired.complete_samples("fog:high").all()
    assert paired.failed_inferences() == [0, 1, 0]
    expected = [
        np.mean([by_setting[name][model][kept if name == "fog:low" else slice(None)].mean() for name in SETTINGS])
        for model in range(3)
    ]
    assert paired.mean_accuracy(SETTINGS).values == pytest.approx(expected)
    assert paired.mean_drop(["fog:low"]).values == pytest.approx(
        (paired.clean[:, kept] - by_setting["fog:low"][:, kept]).mean(axis=1)
    )
    assert paired.drops(["fog:low"], 0)["fog:low"] == pytest.approx(paired.mean_drop(["fog:low"]).values[0])


def test_a_clean_answer_that_failed_counts_under_no_setting() -> None:
    scores = table()
    clean = np.array(scores.clean)
    clean[2, 3] = math.nan
    paired = SideBySide(clean, scores.by_setting, GROUPS)
    assert [int((~paired.complete_samples(name)).sum()) for name in ("", *SETTINGS)] == [1] * 5
    assert len(paired.score_table(0).clean) == 119


def test_intervals_with_failures_are_those_of_what_is_left() -> None:
    """Where the same samples are lost everywhere, what is left is a smaller table."""
    scores = table()
    lost = np.arange(120) < 20
    by_setting = {name: np.where(lost, math.nan, values) for name, values in scores.by_setting.items()}
    paired = SideBySide(np.where(lost, math.nan, scores.clean), by_setting)
    left = SideBySide(scores.clean[:, 20:], {name: values[:, 20:] for name, values in scores.by_setting.items()})
    assert paired.mean_drop(SETTINGS).values == pytest.approx(left.mean_drop(SETTINGS).values)
    wide, narrow = (side.mean_drop(SETTINGS).alone.above.errors for side in (paired, left))
    assert wide == pytest.approx(narrow, rel=0.01)
    assert largest_bounds(paired.drop_tests(SETTINGS, 1), 4, 0.05) == pytest.approx(
        largest_bounds(left.drop_tests(SETTINGS, 1), 4, 0.05)
    )


def test_tests_of_settings_with_other_samples_are_joined() -> None:
    scores = table()
    by_setting = {name: np.array(values) for name, values in scores.by_setting.items()}
    by_setting["flip_v"][0, 0] = math.nan
    paired = SideBySide(scores.clean, by_setting)
    (joined,) = paired.drop_tests(SETTINGS, 1)
    alone = [paired.drop_tests([name], 1)[0] for name in ("fog:low", "fog:high", "rain:low", "flip_v")]
    assert joined.upper(0.05) == pytest.approx(np.concatenate([test.upper(0.05) for test in alone]))


def test_settings_that_nobody_can_be_compared_under_do_not_count() -> None:
    scores = table()
    by_setting = {**scores.by_setting, "rain:low": np.full((3, 120), math.nan)}
    assert SideBySide(scores.clean, by_setting).settings_with_samples() == ("fog:low", "fog:high", "flip_v")


def test_a_reference_without_errors_is_named() -> None:
    scores = table()
    paired = SideBySide(scores.clean, {**scores.by_setting, "flip_v": np.ones((3, 120))})
    assert paired.perfect(SETTINGS, 0) == ["flip_v"]


def test_scores_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"clean \(models\) has 3 scores and by_setting\['fog:low'\] has 2"):
        SideBySide(np.ones((3, 4)), {"fog:low": np.ones((2, 4))})
    with pytest.raises(ValueError, match="paired scores belong to the same samples"):
        SideBySide(np.ones((3, 4)), {"fog:low": np.ones((3, 5))})
    with pytest.raises(ValueError, match="a score lies in"):
        SideBySide(np.full((3, 4), 2.0), {})
