from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.metrics import (
    accuracy_drop,
    baseline_drop,
    changed_samples,
    drop_increase,
    estimate,
    mean_baseline_drop,
    names,
)
from pytest_vlmrobust.metrics.accuracy import (
    best_blind_answer,
    interval_of_gain,
    interval_of_gain_share,
    visual_gain_interval,
    visual_gain_is_real,
)
from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.statistics.means import exact_interval
from pytest_vlmrobust.metrics.statistics.paired import TangoTest, drop_test
from pytest_vlmrobust.metrics.statistics.ratios import ratio_interval, score_ratio_interval
from pytest_vlmrobust.metrics.table import Scores, ScoreTable

CLEAN = [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]


def test_flip_rates_have_names() -> None:
    rates = metrics.flip_rates(CLEAN, [1, 1, 1, 0, 0, 1, 0, 0, 0, 0])
    assert rates.harmful == 0.2
    assert rates.helpful == 0.1
    assert type(rates.harmful) is type(rates.helpful) is float


def test_flip_rates_of_graded_scores_are_loss_and_gain() -> None:
    rates = metrics.flip_rates([0.5, 0.5], [0.25, 1.0])
    assert rates == (0.125, 0.25)
    assert metrics.accuracy_drop([0.5, 0.5], [0.25, 1.0]) == rates.harmful - rates.helpful


def test_flip_rates_count_all_samples_not_those_right_when_clean() -> None:
    """VLM-RobustBench tables 21 and 25: the same 90 flips are 11.7 % of 769 clean-correct items and 10.6 % of all 853."""
    clean = [1] * 769 + [0] * 84
    perturbed = [0] * 90 + [1] * 679 + [0] * 84
    assert round(100 * metrics.flip_rates(clean, perturbed).harmful, 1) == 10.6


def test_flip_rates_of_missing_scores_are_unknown() -> None:
    assert all(math.isnan(rate) for rate in metrics.flip_rates([1, math.nan], [1, 0]))
    assert all(math.isnan(rate) for rate in metrics.flip_rates([], []))


def test_rce_of_the_published_adversarial_cell() -> None:
    """Qwen3-VL-4B on MMMU-Pro: 24 of 324 items lost, with a visual gain of 23, exceed 100 % (VLM-RobustBench section 5.6)."""
    clean = [1] * 102 + [0] * 222
    perturbed = [1] * 78 + [0] * 246
    blind = [1] * 79 + [0] * 245
    assert round(metrics.relative_corruption_error(clean, perturbed, blind), 2) == 1.04


@pytest.mark.parametrize("blind", [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]])
def test_rce_without_visual_gain_is_undefined(blind: list[int]) -> None:
    assert math.isnan(metrics.relative_corruption_error([1, 1, 0, 0], [1, 0, 0, 0], blind))


def test_rce_is_not_blown_up_by_rounding() -> None:
    """0.1 + 0.2 exceeds 0.3 by a rounding error: that is no visual gain."""
    assert math.isnan(metrics.relative_corruption_error([0.1, 0.2], [0.1, 0.1], [0.3, 0.0]))


def test_two_arrays_of_different_length_are_named() -> None:
    with pytest.raises(ValueError, match="clean has 10 scores and no_image has 2"):
        metrics.visual_gain(CLEAN, [0, 0])


def test_the_same_answer_throughout_counts_where_it_is_better_than_guessing() -> None:
    guesses = [0.5, 0.5, 0.5, 0.5]
    best = best_blind_answer(guesses, {"yes": [1, 0, 0, 0], "no": [0, 1, 1, 1]})
    assert (best.scores.tolist(), best.answer) == ([0, 1, 1, 1], "no")
    even = best_blind_answer(guesses, {"no": [0, 1, 0, 1]})
    assert (even.scores.tolist(), even.answer) == (guesses, "")
    assert best_blind_answer([], {"no": []}).scores.tolist() == []


def test_answers_belong_to_the_samples() -> None:
    with pytest.raises(ValueError, match="guesses has 2 scores and scores has 1"):
        best_blind_answer([0.5, 0.5], {"no": [1]})


LEVEL = 0.9


def alone(samples: int) -> Clusters:
    return Clusters.of(None, samples)


def drawn(rng: np.random.Generator, samples: int, *, right: float, refused: float, lost: float) -> tuple[Scores, Scores, Scores]:
    """Returns clean, perturbed and blind scores of a model that refuses a share of four-way choices without their pictures."""
    clean = (rng.random(samples) < right).astype(float)
    blind = np.where(rng.random(samples) < refused, 0.25, (rng.random(samples) < 0.3).astype(float))
    return clean, np.where(rng.random(samples) < lost, 0.0, clean), blind


def test_without_guesses_nothing_changes() -> None:
    clean, perturbed, blind = drawn(np.random.default_rng(1), 60, right=0.8, refused=0.0, lost=0.1)
    test = drop_test(clean, blind[:, None], alone(60))
    expected = (float(test.lower(0.05)[0]), float(test.upper(0.05)[0]))
    assert interval_of_gain(clean, blind, alone(60), LEVEL) == pytest.approx(expected)
    expected = score_ratio_interval(clean - perturbed, clean - blind, alone(60), LEVEL)
    assert interval_of_gain_share(clean, perturbed, blind, alone(60), LEVEL) == expected


def test_graded_scores_have_guarded_bounds() -> None:
    """Against a PASS Student's t with one more lost sample, against a FAIL random weights and one more that gains everything."""
    rng = np.random.default_rng(2)
    clean, perturbed, blind = rng.random(60), rng.random(60), np.full(60, 0.25)
    test = drop_test(blind, clean[:, None], alone(60))
    expected = (-float(test.upper(0.05)[0]), -float(test.lower(0.05)[0]))
    assert interval_of_gain(clean, blind, alone(60), LEVEL) == pytest.approx(expected)
    for seen, then, unseen in ((clean, perturbed, blind), (np.ones(60), perturbed.round(), clean)):
        losses, gain = seen - then, seen - unseen
        low, high = interval_of_gain_share(seen, then, unseen, alone(60), LEVEL)
        assert high == ratio_interval(np.append(losses, 1.0), np.append(gain, 0.0), alone(61), LEVEL)[1]
        weights = rng.dirichlet(np.ones(61), 50_000)
        shares = weights @ np.append(losses, -1.0) - low * (weights @ np.append(gain, 0.0))
        assert (shares < 0.0).mean() == pytest.approx(0.05, abs=0.004)


def test_where_all_is_refused_the_gain_is_as_sure_as_the_clean_accuracy() -> None:
    clean = np.repeat([1.0, 0.0], [150, 50])
    low, high = exact_interval(150, 200, LEVEL)
    interval = interval_of_gain(clean, np.full(200, 0.25), alone(200), LEVEL)
    assert interval == pytest.approx((low - 0.25, high - 0.25), abs=1e-3)


@pytest.mark.parametrize("guess", [0.25, 1 / 3, 0.5])
def test_samples_that_are_all_alike_are_not_taken_for_certain(guess: float) -> None:
    low, high = interval_of_gain(np.ones(40), np.full(40, guess), alone(40), LEVEL)
    assert low < 1.0 - guess - 0.05
    assert high > 1.0 - guess
    low, high = interval_of_gain_share(np.ones(40), np.zeros(40), np.full(40, guess), alone(40), LEVEL)
    assert low < 1.0 / (1.0 - guess) < high


def test_pictures_that_share_a_source_say_less() -> None:
    clean, perturbed, blind = drawn(np.random.default_rng(3), 30, right=0.8, refused=0.5, lost=0.2)
    clean, perturbed, blind = (np.repeat(scores, 2) for scores in (clean, perturbed, blind))
    pairs = Clusters.of([str(number) for number in np.repeat(np.arange(30), 2)], 60)
    gains = [interval_of_gain(clean, blind, clusters, LEVEL) for clusters in (alone(60), pairs)]
    shares = [interval_of_gain_share(clean, perturbed, blind, clusters, LEVEL) for clusters in (alone(60), pairs)]
    for (low, high), (clustered_low, clustered_high) in (gains, shares):
        assert clustered_low < low < high < clustered_high


@pytest.mark.study
@pytest.mark.parametrize(("right", "refused", "lost"), [(0.97, 0.5, 0.03), (0.95, 1.0, 0.05)])
def test_bounds_are_wrong_as_seldom_as_they_say(right: float, refused: float, lost: float) -> None:
    rng = np.random.default_rng(4)
    blind = refused * 0.25 + (1 - refused) * 0.3
    share = right * lost / (right - blind)
    wrong = 0
    for _ in range(100):
        clean, perturbed, guessed = drawn(rng, 100, right=right, refused=refused, lost=lost)
        wrong += interval_of_gain_share(clean, perturbed, guessed, alone(100), LEVEL)[1] < share
    assert wrong / 100 < 0.09  # Student's t: 0.10 to 0.17


def test_a_task_is_done_where_refusals_are_beaten() -> None:
    blind = np.full(40, 0.5)
    assert metrics.does_the_task(ScoreTable(clean=np.ones(40), no_image=blind)) == ""
    chance = np.tile([1.0, 0.0], 20)
    assert metrics.does_the_task(ScoreTable(clean=chance, no_image=blind)) != ""
    assert metrics.does_the_task(ScoreTable(clean=chance, no_image=np.zeros(40))) == ""  # were refusals wrong answers


def test_metrics_use_them() -> None:
    clean, perturbed, blind = drawn(np.random.default_rng(5), 50, right=0.9, refused=0.5, lost=0.1)
    table = ScoreTable(clean=clean, by_setting={"fog:mid": perturbed}, no_image=blind)
    gain = metrics.estimate("visual_gain", table)
    assert (gain.low, gain.high) == interval_of_gain(clean, blind, alone(50), LEVEL)
    share = metrics.estimate("relative_corruption_error", table, setting="fog:mid")
    assert (share.low, share.high) == interval_of_gain_share(clean, perturbed, blind, alone(50), LEVEL)


@pytest.mark.parametrize("name", ["accuracy", "accuracy_drop", "relative_corruption_error"])
def test_an_interval_of_a_cell_needs_a_setting(name: str) -> None:
    interval = metrics.get(name).interval
    assert interval
    with pytest.raises(UsageError, match="perturbed scores belong to one setting: say which"):
        interval(ScoreTable(np.ones(2), {"a": np.ones(2)}, no_image=np.zeros(2)), None, 0.9)


def test_an_interval_of_the_gain_needs_blind_scores() -> None:
    with pytest.raises(UsageError, match="the table has no 'no_image': measure it, and pass it to ScoreTable"):
        visual_gain_interval(ScoreTable(np.ones(2)), None, 0.9)


def test_the_interval_of_harmful_flips_is_that_of_clopper_and_pearson() -> None:
    """3 of 20 answers turn wrong and 2 turn right, which counts for nothing here."""
    clean, perturbed = np.repeat([1.0, 0.0, 1.0], [3, 2, 15]), np.repeat([0.0, 1.0, 1.0], [3, 2, 15])
    table = ScoreTable(clean=clean, by_setting={"fog:low": perturbed})
    rate = metrics.estimate("harmful_flip_rate", table, "fog:low", 0.90)
    assert (rate.low, rate.high) == pytest.approx(exact_interval(3, 20, 0.90), abs=1e-9)


def test_shares_and_gains_of_ten_samples_by_hand() -> None:
    perturbed = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    assert metrics.accuracy(perturbed) == 0.4
    assert metrics.clean_accuracy(CLEAN) == 0.5
    assert metrics.harmful_flip_rate(CLEAN, perturbed) == 0.2
    assert metrics.helpful_flip_rate(CLEAN, perturbed) == 0.1
    assert metrics.visual_gain(CLEAN, [1] * 2 + [0] * 8) == pytest.approx(0.3)
    assert metrics.accuracy_above_chance(CLEAN, [0.25] * 10) == pytest.approx(0.25)


def test_the_interval_of_helpful_flips_is_that_of_their_share() -> None:
    clean, perturbed = np.repeat([1.0, 0.0, 0.0], [50, 10, 40]), np.repeat([0.0, 1.0, 0.0], [5, 55, 40])
    table = ScoreTable(clean=clean, by_setting={"fog:low": perturbed})
    helpful = int(((perturbed - clean) > 0).sum())
    assert metrics.estimate("helpful_flip_rate", table, "fog:low", 0.90).low == pytest.approx(
        exact_interval(helpful, 100)[0], abs=2e-3
    )
    assert metrics.estimate("helpful_flip_rate", table, "fog:low", 0.90).high < 0.2


def test_a_gain_is_real_above_two_standard_errors_or_a_point() -> None:
    """100 samples of which 10 are gained: 2 standard errors are 2 * .3 / 10 = 6 points, and of 1 gained 2 * .0995 / 10 = 2."""
    clean = np.ones(100)
    lost = [ScoreTable(clean=clean, by_setting={}, no_image=np.repeat([0.0, 1.0], [count, 100 - count])) for count in (10, 1)]
    assert visual_gain_is_real(lost[0], None) == ""
    assert "of 1.0 pp is not above 2.0 pp" in visual_gain_is_real(lost[1], None)
    assert "there are no scores without images" in visual_gain_is_real(ScoreTable(clean=clean, by_setting={}), None)


def test_the_intervals_of_clean_scores_lie_around_their_values() -> None:
    table = ScoreTable(clean=np.repeat([1.0, 0.0], [30, 10]), chance_levels=np.full(40, 0.25))
    accuracy = metrics.estimate("clean_accuracy", table, None, 0.9)
    assert (accuracy.low, accuracy.high) == pytest.approx(exact_interval(30, 40, 0.9))
    above = metrics.estimate("accuracy_above_chance", table, None, 0.9)
    assert above.value == pytest.approx(0.5)
    assert 0.25 < above.low < above.value < above.high < 0.75


THEN = np.array([1.0] * 80 + [0.0] * 20)
NOW = np.array([0.0] * 6 + [1.0] * 74 + [1.0] * 2 + [0.0] * 18)


def test_a_regression_is_paired() -> None:
    """6 of 100 broke and 2 were fixed."""
    table = ScoreTable(np.ones(100), {"fog:low": NOW}, baseline_by_setting={"fog:low": THEN})
    result = estimate("baseline_drop", table, "fog:low")
    assert result.value == baseline_drop(THEN, NOW) == 0.04
    test = TangoTest(np.array([6.0]), np.array([2.0]), np.array([100.0]), math.inf)
    assert (result.low, result.high) == (test.lower(0.05)[0], test.upper(0.05)[0])


def test_the_clean_scores_regress_too() -> None:
    table = ScoreTable(NOW, baseline_by_setting={"clean": THEN})
    assert estimate("baseline_drop", table, "clean").value == 0.04


def test_the_increase_of_a_drop_leaves_the_clean_loss_out() -> None:
    """Clean lost 4 pp and fog 4 pp: robustness is what it was."""
    odd = np.arange(100.0) % 2.0
    fog_then, fog_now = THEN * odd, NOW * odd
    table = ScoreTable(NOW, {"fog:low": fog_now}, baseline_by_setting={"clean": THEN, "fog:low": fog_then})
    result = estimate("drop_increase", table, "fog:low")
    expected = accuracy_drop(NOW, fog_now) - accuracy_drop(THEN, fog_then)
    assert result.value == pytest.approx(expected)
    assert drop_increase(NOW, fog_now, THEN, fog_then) == pytest.approx(expected)
    assert result.low < expected < result.high


def test_a_loss_of_clean_accuracy_alone_is_no_increase() -> None:
    table = ScoreTable(NOW, {"fog:low": NOW}, baseline_by_setting={"clean": THEN, "fog:low": THEN})
    result = estimate("drop_increase", table, "fog:low")
    assert result.value == 0.0
    assert 0.0 < result.high < 0.04


def test_bounds_of_an_increase_by_hand() -> None:
    """Differences of differences 1, 0, 0, -1, 1: above a further 1 and t(0.95; 4), below random weights."""
    clean, fog = [1, 1, 1, 1, 1], [0, 1, 0, 1, 0]
    then_clean, then_fog = [1, 1, 1, 1, 1], [1, 1, 0, 0, 1]
    arrays = [np.array(values, float) for values in (clean, fog, then_clean, then_fog)]
    table = ScoreTable(arrays[0], {"fog:low": arrays[1]}, baseline_by_setting={"clean": arrays[2], "fog:low": arrays[3]})
    result = estimate("drop_increase", table, "fog:low")
    assert result.high == pytest.approx(1 / 3 + 2.131847 * 0.816497 / math.sqrt(6), abs=1e-5)
    weights = np.random.default_rng(0).dirichlet(np.ones(6), 200_000)
    assert (weights @ np.array([1.0, 0.0, 0.0, -1.0, 1.0, -2.0]) < result.low).mean() == pytest.approx(0.05, abs=0.003)


def test_only_the_baseline_suite_asks_for_a_baseline() -> None:
    assert set(names(suite="baseline")) >= {"baseline_drop", "drop_increase"}
    assert not {"baseline_drop", "drop_increase"} & set(names(scope="cell", suite="corruptions"))


def test_broken_and_fixed_samples_are_listed_in_order() -> None:
    changes = changed_samples([f"q{index}" for index in range(100)], THEN, NOW)
    assert changes.broken == ("q0", "q1", "q2", "q3", "q4", "q5")
    assert changes.fixed == ("q80", "q81")
    assert changes.unknown == ()
    assert len(changes.broken) - len(changes.fixed) == round(100 * baseline_drop(THEN, NOW))


def test_graded_and_missing_scores() -> None:
    changes = changed_samples("abcde", [0.5, 0.5, math.nan, 1.0, 1.0], [0.25, 0.75, 1.0, math.nan, 1.0])
    assert changes == (("a",), ("b",), ("c", "d"))


def test_names_and_scores_belong_together() -> None:
    with pytest.raises(ValueError, match="baseline has 2 scores and ids has 1"):
        changed_samples(["a"], [1, 0], [1, 0])


def test_an_interval_needs_the_earlier_run() -> None:
    interval = metrics.get("baseline_drop").interval
    assert interval
    with pytest.raises(UsageError, match="the table has no 'baseline' of 'fog:low': measure it"):
        interval(ScoreTable(np.ones(2), {"fog:low": np.ones(2)}), "fog:low", 0.9)


def test_the_mean_over_settings_is_of_the_samples_own_means() -> None:
    """By hand, of differences per sample 0.5, 0.5, 0, 0: above a further 1 and t(0.95; 3), below random weights."""
    now = {"fog:low": np.array([0.0, 1.0, 1.0, 1.0]), "fog:mid": np.array([1.0, 0.0, 1.0, 0.0])}
    then = {"fog:low": np.ones(4), "fog:mid": np.array([1.0, 1.0, 1.0, 0.0])}
    assert mean_baseline_drop(now, then) == 0.25
    result = estimate("mean_baseline_drop", ScoreTable(np.ones(4), now, baseline_by_setting=then))
    assert (result.value, result.high) == pytest.approx((0.25, 0.4 + 2.353363 * 0.418330 / math.sqrt(5)), abs=1e-5)
    weights = np.random.default_rng(0).dirichlet(np.ones(5), 200_000)
    assert (weights @ np.array([0.5, 0.5, 0.0, 0.0, -1.0]) < result.low).mean() == pytest.approx(0.05, abs=0.003)


def test_the_mean_over_one_setting_is_the_loss_under_it() -> None:
    table = ScoreTable(np.ones(100), {"fog:low": NOW}, baseline_by_setting={"fog:low": THEN})
    mean, single = estimate("mean_baseline_drop", table), estimate("baseline_drop", table, "fog:low")
    assert (mean.value, mean.low, mean.high) == pytest.approx((single.value, single.low, single.high))


def test_the_mean_needs_every_setting_in_the_earlier_run() -> None:
    table = ScoreTable(np.ones(2), {"fog:low": np.ones(2), "fog:mid": np.ones(2)}, baseline_by_setting={"fog:low": np.ones(2)})
    result = estimate("mean_baseline_drop", table)
    assert math.isnan(result.value)
    assert result.reason == "the earlier run did not measure fog:mid"
    without = ScoreTable(np.ones(1), {"fog:low": np.ones(1)})
    assert estimate("mean_baseline_drop", without).reason == "there are no scores of an earlier run"
