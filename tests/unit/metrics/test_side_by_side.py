"""Several models on the same answers: the numbers of the registered metrics, and nobody's failures count for anybody."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.metrics import ScoreTable
from pytest_vlmrobust.metrics.side_by_side import SideBySide
from pytest_vlmrobust.metrics.statistics.multiple import Contest
from pytest_vlmrobust.metrics.statistics.paired import largest_bounds

SETTINGS = ("fog:low", "fog:high", "rain:low", "flip_v")
GROUPS = [str(index // 2) for index in range(120)]


def table(models: int = 3) -> SideBySide:
    rng = np.random.default_rng(0)
    clean = (rng.random((models, 120)) < 0.9).astype(float)
    by_setting = {name: clean * (rng.random((models, 120)) < 0.8) for name in SETTINGS}
    return SideBySide(clean, by_setting, GROUPS)


def of_model(scores: SideBySide, model: int, reference: int = 0) -> ScoreTable:
    own, other = ({name: scores.by_setting[name][index] for name in SETTINGS} for index in (model, reference))
    return ScoreTable(scores.clean[model], own, reference_by_setting=other, groups=GROUPS)


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
    by_setting = {name: np.array(own) for name, own in scores.by_setting.items()}
    by_setting["fog:low"][1, 7] = math.nan
    found = SideBySide(scores.clean, by_setting, GROUPS)
    kept = np.arange(120) != 7
    assert found.complete_samples("fog:low").tolist() == kept.tolist()
    assert found.complete_samples("fog:high").all()
    assert found.failed_inferences() == [0, 1, 0]
    expected = [
        np.mean([by_setting[name][model][kept if name == "fog:low" else slice(None)].mean() for name in SETTINGS])
        for model in range(3)
    ]
    assert found.mean_accuracy(SETTINGS).values == pytest.approx(expected)
    assert found.mean_drop(["fog:low"]).values == pytest.approx(
        (found.clean[:, kept] - by_setting["fog:low"][:, kept]).mean(axis=1)
    )
    assert found.drops(["fog:low"], 0)["fog:low"] == pytest.approx(found.mean_drop(["fog:low"]).values[0])


def test_a_clean_answer_that_failed_counts_under_no_setting() -> None:
    scores = table()
    clean = np.array(scores.clean)
    clean[2, 3] = math.nan
    found = SideBySide(clean, scores.by_setting, GROUPS)
    assert [int((~found.complete_samples(name)).sum()) for name in ("", *SETTINGS)] == [1] * 5
    assert len(found.score_table(0).clean) == 119


def test_intervals_with_failures_are_those_of_what_is_left() -> None:
    """Where the same samples are lost everywhere, what is left is a smaller table."""
    scores = table()
    lost = np.arange(120) < 20
    by_setting = {name: np.where(lost, math.nan, own) for name, own in scores.by_setting.items()}
    found = SideBySide(np.where(lost, math.nan, scores.clean), by_setting)
    left = SideBySide(scores.clean[:, 20:], {name: own[:, 20:] for name, own in scores.by_setting.items()})
    assert found.mean_drop(SETTINGS).values == pytest.approx(left.mean_drop(SETTINGS).values)
    wide, narrow = (one.mean_drop(SETTINGS).alone.above.errors for one in (found, left))
    assert wide == pytest.approx(narrow, rel=0.01)
    assert largest_bounds(found.drop_tests(SETTINGS, 1), 4, 0.05) == pytest.approx(
        largest_bounds(left.drop_tests(SETTINGS, 1), 4, 0.05)
    )


def test_tests_of_settings_with_other_samples_are_joined() -> None:
    scores = table()
    by_setting = {name: np.array(own) for name, own in scores.by_setting.items()}
    by_setting["flip_v"][0, 0] = math.nan
    found = SideBySide(scores.clean, by_setting)
    (joined,) = found.drop_tests(SETTINGS, 1)
    alone = [found.drop_tests([name], 1)[0] for name in ("fog:low", "fog:high", "rain:low", "flip_v")]
    assert joined.upper(0.05) == pytest.approx(np.concatenate([one.upper(0.05) for one in alone]))


def test_settings_that_nobody_can_be_compared_under_do_not_count() -> None:
    scores = table()
    by_setting = {**scores.by_setting, "rain:low": np.full((3, 120), math.nan)}
    assert SideBySide(scores.clean, by_setting).settings_with_samples() == ("fog:low", "fog:high", "flip_v")


def test_a_reference_without_errors_is_named() -> None:
    scores = table()
    found = SideBySide(scores.clean, {**scores.by_setting, "flip_v": np.ones((3, 120))})
    assert found.perfect(SETTINGS, 0) == ["flip_v"]


def test_scores_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"clean \(models\) has 3 scores and by_setting\['fog:low'\] has 2"):
        SideBySide(np.ones((3, 4)), {"fog:low": np.ones((2, 4))})
    with pytest.raises(ValueError, match="paired scores belong to the same samples"):
        SideBySide(np.ones((3, 4)), {"fog:low": np.ones((3, 5))})
    with pytest.raises(ValueError, match="a score lies in"):
        SideBySide(np.full((3, 4), 2.0), {})
