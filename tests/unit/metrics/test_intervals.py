from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.metrics import estimate, intervals, mean_corruption_error
from pytest_vlmrobust.metrics.intervals import share_of_gain_interval, visual_gain_interval
from pytest_vlmrobust.metrics.scores import Scores
from pytest_vlmrobust.metrics.statistics.clusters import Clusters, critical_value
from pytest_vlmrobust.metrics.statistics.paired import drop_test
from pytest_vlmrobust.metrics.statistics.proportions import exact_interval
from pytest_vlmrobust.metrics.statistics.ratios import ratio_interval, score_ratio_interval
from pytest_vlmrobust.metrics.table import ScoreTable

Array = NDArray[np.float64]
Sweep = tuple[Array, dict[str, Array]]


def _lost(lost: int, n: int = 200) -> Array:
    return np.array([0.0] * lost + [1.0] * (n - lost))


def test_drops_of_clusters_are_less_certain(sweep: Sweep) -> None:
    clean, by_setting = sweep
    setting = max(by_setting, key=lambda name: float((clean - by_setting[name]).sum()))
    copies = {setting: np.tile(by_setting[setting], 4)}
    naive = estimate("accuracy_drop", ScoreTable(np.tile(clean, 4), copies), setting)
    groups = [str(index) for index in range(200)] * 4
    aware = estimate("accuracy_drop", ScoreTable(np.tile(clean, 4), copies, groups=groups), setting)
    single = estimate("accuracy_drop", ScoreTable(clean, by_setting), setting)
    assert aware.value == naive.value == single.value
    assert aware.high - aware.low > 1.8 * (naive.high - naive.low)
    assert (aware.low, aware.high) == pytest.approx((single.low, single.high), rel=0.05)


def test_graded_drops_have_t_bounds() -> None:
    clean, fog = np.array([1.0, 0.5, 0.75, 1.0]), np.array([0.5, 0.5, 0.25, 0.75])
    result = estimate("accuracy_drop", ScoreTable(clean, {"fog:low": fog}), "fog:low")
    low, high = (np.array([0.5, 0.0, 0.5, 0.25, against]) for against in (-0.25, 1.0))  # nobody gained: a quarter is expected
    below, above = (2.353363434801823 * float(np.std(grown, ddof=1)) / 5**0.5 for grown in (low, high))
    assert (result.low, result.high) == pytest.approx((low.mean() - below, high.mean() + above))


def test_the_largest_drop_is_bounded_by_pointwise_uppers_and_corrected_lowers() -> None:
    """Without helpful flips the bounds of a drop are those of the share of harmful ones."""
    lost = {"a": 5, "b": 40, "c": 38, "d": 0}
    table = ScoreTable(np.ones(200), {name: _lost(count) for name, count in lost.items()})
    result = estimate("worst_case_drop", table)
    assert result.value == 0.2
    assert result.high == pytest.approx(exact_interval(40, 200, 0.90)[1])
    assert result.low == pytest.approx(exact_interval(40, 200, 1 - 0.1 / 4)[0])


def test_worst_at_low_is_corrected_for_low_settings_only() -> None:
    table = ScoreTable(np.ones(200), {"a:low": _lost(20), "b:low": _lost(3), "c:high": _lost(190), "d": _lost(150)})
    result = estimate("worst_at_low", table)
    assert result.low == pytest.approx(exact_interval(20, 200, 1 - 0.1 / 2)[0])
    assert result.high == pytest.approx(exact_interval(20, 200, 0.90)[1])


def test_the_mean_drop_at_low_is_that_of_low_settings() -> None:
    low = {"a:low": _lost(20), "b:low": _lost(3)}
    table = ScoreTable(np.ones(200), {**low, "c:high": _lost(190), "d": _lost(150)})
    found, alone = estimate("mean_drop_at_low", table), estimate("mean_drop", ScoreTable(np.ones(200), low))
    assert found.value == pytest.approx(23 / 400)
    assert (found.low, found.high) == (alone.low, alone.high)


def test_severe_failures_are_counted_when_shown() -> None:
    """Two settings lose half (shown), two lose nothing (shown not to), one stands at the threshold (open)."""
    lost = {"a": 100, "b": 100, "c": 0, "d": 0, "e": 21}
    table = ScoreTable(np.ones(200), {name: _lost(count) for name, count in lost.items()})
    result = estimate("severe_failure_rate", table)
    assert (result.value, result.low, result.high) == (0.6, 0.4, 0.6)
    assert estimate("catastrophic_rate", table).value == 0.6


def test_severe_failures_are_relative_to_the_clean_accuracy() -> None:
    """A loss of 6.7 pp is shown to exceed a tenth of 36 %, and shown not to exceed 10 pp."""
    clean, fog = np.zeros(900), np.zeros(900)
    clean[:324], fog[60:324] = 1.0, 1.0
    table = ScoreTable(clean, {"fog:low": fog})
    severe, catastrophic = estimate("severe_failure_rate", table), estimate("catastrophic_rate", table)
    assert (severe.value, severe.low, severe.high) == (1.0, 1.0, 1.0)
    assert (catastrophic.value, catastrophic.low, catastrophic.high) == (0.0, 0.0, 0.0)


def test_few_samples_show_no_share() -> None:
    """With 20 samples and no flip, a loss of 10 % is still possible."""
    result = estimate("severe_failure_rate", ScoreTable(np.ones(20), {"a": np.ones(20), "b": np.ones(20)}))
    assert (result.value, result.low, result.high) == (0.0, 0.0, 1.0)


def test_graded_severe_failures() -> None:
    clean = np.linspace(0.5, 1.0, 100)
    table = ScoreTable(clean, {"a": clean, "b": clean / 2, "c": clean * 0.95})
    assert estimate("severe_failure_rate", table).value == pytest.approx(1 / 3)
    result = estimate("severe_failure_rate", table)
    assert (result.low, result.high) == pytest.approx((1 / 3, 1 / 3))


def test_benign_shares_are_the_complement() -> None:
    n = 2000
    table = ScoreTable(np.ones(n), {"a:low": np.ones(n), "b:low": np.ones(n), "c:low": _lost(400, n), "d:low": _lost(21, n)})
    result = estimate("benign_at_low", table)
    assert (result.value, result.low, result.high) == (0.5, 0.5, 0.75)


def test_mean_corruption_error_is_bounded_as_a_resampling_would(sweep: Sweep) -> None:
    """Standard error by resampling samples, with the reference model's scores resampled alongside."""
    clean, by_setting = sweep
    few = {name: by_setting[name] for name in ("kind0:low", "kind0:mid", "kind0:high", "flip0", "kind1:low")}
    rng = np.random.default_rng(4)
    reference = {name: np.where(rng.random(200) < 0.2, 0.0, scores) for name, scores in few.items()}
    result = estimate("mean_corruption_error", ScoreTable(clean, few, reference_by_setting=reference))
    resampled = []
    for _ in range(400):
        rows = rng.integers(0, 200, 200)
        ratios = [
            sum((1 - few[name])[rows].sum() for name in names) / sum((1 - reference[name])[rows].sum() for name in names)
            for names in (("kind0:low", "kind0:mid", "kind0:high"), ("flip0",), ("kind1:low",))
        ]
        resampled.append(np.mean(ratios))
    assert (result.high - result.low) / 2 / 1.6525 == pytest.approx(float(np.std(resampled)), rel=0.25)
    assert result.low < result.value < result.high


@pytest.mark.parametrize("clustered", [False, True])
def test_mean_corruption_error_is_bounded_as_a_jackknife_would(sweep: Sweep, clustered: bool) -> None:
    """Leaving out one sample, or one image with all its questions, at a time gives the same standard error; guarded by hand."""
    clean, by_setting = sweep
    few = {name: by_setting[name] for name in ("kind0:low", "kind0:mid", "kind0:high", "flip0", "kind1:low")}
    rng = np.random.default_rng(4)
    reference = {name: np.where(rng.random(200) < 0.2, 0.0, scores) for name, scores in few.items()}
    groups = [str(index // 4 if clustered else index) for index in range(200)]
    table = ScoreTable(clean, few, reference_by_setting=reference, groups=groups)
    result = estimate("mean_corruption_error", table)
    left_out = []
    for group in dict.fromkeys(groups):
        kept = np.array(groups) != group
        parts = ({name: scores[kept] for name, scores in one.items()} for one in (few, reference))
        left_out.append(mean_corruption_error(*parts))
    count = len(left_out)
    error = math.sqrt((count - 1) / count * float(((np.array(left_out) - np.mean(left_out)) ** 2).sum()))
    worst, influence = 0.0, np.zeros(200)
    for names in (("kind0:low", "kind0:mid", "kind0:high"), ("flip0",), ("kind1:low",)):
        ours, theirs = (np.sum([1.0 - one[name] for name in names], axis=0) for one in (few, reference))
        worst += len(names) / theirs.mean() / 3  # wrong under all of them, and the reference under none
        influence += (ours - ours.mean() / theirs.mean() * theirs) / theirs.mean() / 3
    for end, found, side in ((influence.min(), result.low, -1.0), (worst, result.high, 1.0)):
        move = end / (count + 1)
        margin = critical_value(0.05, count - 1) * math.hypot(error * math.sqrt((count - 1) / (count + 1)), move)
        assert found - result.value == pytest.approx(move + side * margin, rel=0.03)


def test_no_flip_is_not_certainty(sweep: Sweep) -> None:
    """A model that never changes its answer on 200 samples may still flip on 1 % of all."""
    clean, by_setting = sweep
    table = ScoreTable(clean, dict.fromkeys(by_setting, clean), no_image=np.zeros(200))
    for name in ("mean_drop", "worst_case_drop", "mean_harmful_flip_rate", "mean_relative_corruption_error"):
        result = estimate(name, table)
        assert result.value == 0.0
        assert 0.01 < result.high < 0.05, name
    for name in ("accuracy_drop", "harmful_flip_rate", "relative_corruption_error"):
        result = estimate(name, table, "flip0")
        assert 0.01 < result.high < 0.03, name


@pytest.mark.parametrize(
    "name", ["accuracy", "accuracy_drop", "harmful_flip_rate", "helpful_flip_rate", "relative_corruption_error"]
)
def test_one_cluster_shows_nothing(name: str) -> None:
    table = ScoreTable(np.ones(9), {"a": _lost(3, 9)}, no_image=np.zeros(9), groups=["one"] * 9)
    result = estimate(name, table, "a")
    widest = {"accuracy": (0, 1), "accuracy_drop": (-1, 1), "relative_corruption_error": (-math.inf, math.inf)}
    assert (result.low, result.high) == widest.get(name, (0, 1))


@pytest.mark.parametrize("name", ["worst_case_drop", "mean_drop", "severe_failure_rate", "catastrophic_rate", "visual_gain"])
def test_one_cluster_shows_nothing_of_a_sweep(name: str) -> None:
    result = estimate(name, ScoreTable(np.ones(9), {"a": _lost(3, 9)}, no_image=np.zeros(9), groups=["one"] * 9))
    assert (result.low, result.high) == ((0, 1) if name.endswith("rate") else (-1, 1))


def test_a_single_sample() -> None:
    table = ScoreTable(np.ones(1), {"a": np.zeros(1)}, no_image=np.zeros(1))
    result = estimate("accuracy_drop", table, "a")
    assert result.value == 1.0
    assert result.low < 0.0
    assert result.high == 1.0


@pytest.mark.parametrize("name", ["accuracy", "accuracy_drop", "relative_corruption_error"])
def test_an_interval_of_a_cell_needs_a_setting(name: str) -> None:
    interval: Any = getattr(intervals, name)
    with pytest.raises(UsageError, match="this interval belongs to one setting"):
        interval(ScoreTable(np.ones(2), {"a": np.ones(2)}), None, 0.9)


def test_an_interval_of_the_gain_needs_blind_scores() -> None:
    with pytest.raises(UsageError, match="the table has no scores without images: measure the setting 'no_image'"):
        intervals.visual_gain(ScoreTable(np.ones(2)), None, 0.9)


def test_one_setting_needs_no_correction() -> None:
    result = estimate("worst_case_drop", ScoreTable(np.ones(200), {"a": _lost(20)}))
    assert (result.low, result.high) == pytest.approx(exact_interval(20, 200))


def test_bounds_of_the_worst_case_err_seldom() -> None:
    """12 settings of one true drop of 4 pp: the largest estimate is biased upwards, its bounds hold (95 % each)."""
    rng = np.random.default_rng(8)
    above = below = 0
    for _ in range(200):
        clean = (rng.random(300) < 0.9).astype(float)
        rows = {f"a{index}": np.where(rng.random(300) < 0.04 / 0.9, 0.0, clean) for index in range(12)}
        result = estimate("worst_case_drop", ScoreTable(clean, rows))
        above, below = above + (result.low > 0.04), below + (result.high < 0.04)
    assert above <= 18
    assert below <= 2


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
    assert visual_gain_interval(clean, blind, alone(60), LEVEL) == pytest.approx(expected)
    expected = score_ratio_interval(clean - perturbed, clean - blind, alone(60), LEVEL)
    assert share_of_gain_interval(clean, perturbed, blind, alone(60), LEVEL) == expected


def test_graded_scores_keep_students_t() -> None:
    rng = np.random.default_rng(2)
    clean, perturbed, blind = rng.random(60), rng.random(60), np.full(60, 0.25)
    test = drop_test(blind, clean[:, None], alone(60))
    expected = (-float(test.upper(0.05)[0]), -float(test.lower(0.05)[0]))
    assert visual_gain_interval(clean, blind, alone(60), LEVEL) == pytest.approx(expected)
    for seen, then, unseen in ((clean, perturbed, blind), (np.ones(60), perturbed.round(), clean)):
        losses, gain = seen - then, seen - unseen
        gained, lost = (
            ratio_interval(np.append(losses, further), np.append(gain, 0.0), alone(61), LEVEL)
            for further in (min(float(losses.min()), -0.25), 1.0)
        )
        assert share_of_gain_interval(seen, then, unseen, alone(60), LEVEL) == (gained[0], lost[1])


def test_where_all_is_refused_the_gain_is_as_sure_as_the_clean_accuracy() -> None:
    clean = np.repeat([1.0, 0.0], [150, 50])
    low, high = exact_interval(150, 200, LEVEL)
    found = visual_gain_interval(clean, np.full(200, 0.25), alone(200), LEVEL)
    assert found == pytest.approx((low - 0.25, high - 0.25), abs=1e-3)


@pytest.mark.parametrize("guess", [0.25, 1 / 3, 0.5])
def test_samples_that_are_all_alike_are_not_taken_for_certain(guess: float) -> None:
    low, high = visual_gain_interval(np.ones(40), np.full(40, guess), alone(40), LEVEL)
    assert low < 1.0 - guess - 0.05
    assert high > 1.0 - guess
    low, high = share_of_gain_interval(np.ones(40), np.zeros(40), np.full(40, guess), alone(40), LEVEL)
    assert low < 1.0 / (1.0 - guess) < high


def test_pictures_that_share_a_source_say_less() -> None:
    clean, perturbed, blind = drawn(np.random.default_rng(3), 30, right=0.8, refused=0.5, lost=0.2)
    clean, perturbed, blind = (np.repeat(scores, 2) for scores in (clean, perturbed, blind))
    pairs = Clusters.of([str(number) for number in np.repeat(np.arange(30), 2)], 60)
    gains = [visual_gain_interval(clean, blind, clusters, LEVEL) for clusters in (alone(60), pairs)]
    shares = [share_of_gain_interval(clean, perturbed, blind, clusters, LEVEL) for clusters in (alone(60), pairs)]
    for (low, high), (clustered_low, clustered_high) in (gains, shares):
        assert clustered_low < low < high < clustered_high


@pytest.mark.parametrize(("right", "refused", "lost"), [(0.97, 0.5, 0.03), (0.95, 1.0, 0.05)])
def test_bounds_are_wrong_as_seldom_as_they_say(right: float, refused: float, lost: float) -> None:
    rng = np.random.default_rng(4)
    blind = refused * 0.25 + (1 - refused) * 0.3
    share = right * lost / (right - blind)
    wrong = 0
    for _ in range(100):
        clean, perturbed, guessed = drawn(rng, 100, right=right, refused=refused, lost=lost)
        wrong += share_of_gain_interval(clean, perturbed, guessed, alone(100), LEVEL)[1] < share
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
    assert (gain.low, gain.high) == visual_gain_interval(clean, blind, alone(50), LEVEL)
    share = metrics.estimate("relative_corruption_error", table, setting="fog:mid")
    assert (share.low, share.high) == share_of_gain_interval(clean, perturbed, blind, alone(50), LEVEL)
