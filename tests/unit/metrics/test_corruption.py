from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.metrics import estimate, mean_corruption_error
from pytest_vlmrobust.metrics.statistics.clusters import critical_value
from pytest_vlmrobust.metrics.statistics.means import exact_interval
from pytest_vlmrobust.metrics.table import ScoreTable

CLEAN = [1.0] * 9 + [0.0]
ONE_LOST = [1.0] * 8 + [0.0] * 2


def test_settings_may_be_given_as_setting() -> None:
    assert metrics.worst_case_drop(CLEAN, {Setting.parse("fog:low"): ONE_LOST}) == 0.1


@pytest.mark.cases(("correct", "lost", "severe"), [(10, 1, 0.0), (10, 2, 1.0), (9, 1, 1.0), (300, 30, 0.0), (300, 31, 1.0)])
def test_severe_is_strictly_more_than_a_tenth_of_clean(correct: int, lost: int, severe: float) -> None:
    clean = [1] * correct + [0] * 7
    perturbed = [1] * (correct - lost) + [0] * (lost + 7)
    assert metrics.severe_failure_rate(clean, {"a": perturbed}) == severe


@pytest.mark.cases("correct", range(10, 2000, 10))
def test_a_loss_of_exactly_a_tenth_is_never_severe(correct: int) -> None:
    clean, perturbed = np.zeros(2000), np.zeros(2000)
    clean[:correct] = 1
    perturbed[: correct - correct // 10] = 1
    assert metrics.severe_failure_rate(clean, {"a": perturbed}) == 0.0


def test_the_severe_threshold_is_a_parameter() -> None:
    assert metrics.severe_failure_rate(CLEAN, {"a": ONE_LOST}, relative=0.2) == 0.0


def test_benign_is_less_than_one_point_not_one_per_cent_of_clean() -> None:
    """VLM-RobustBench: 3 of 324 (0.926 pp) is benign, 9 of 853 (1.055 pp) is not."""
    for n, lost, benign in ((324, 3, 1.0), (853, 9, 0.0), (100, 1, 0.0)):
        clean = [1] * 99 + [0] * (n - 99)
        perturbed = [0] * lost + [1] * (99 - lost) + [0] * (n - 99)
        assert metrics.benign_at_low(clean, {"a:low": perturbed}) == benign


@pytest.mark.parametrize("at_low", [metrics.worst_at_low, metrics.benign_at_low, metrics.mean_drop_at_low])
def test_low_metrics_use_low_settings_only(at_low: Callable[..., float]) -> None:
    low_only = at_low(CLEAN, {"a:low": ONE_LOST})
    more = {"a:low": ONE_LOST, "a:mid": [0] * 10, "flip_v": [0] * 10, "a:low+b:low": [0] * 10}
    assert at_low(CLEAN, more) == low_only


@pytest.mark.parametrize("at_low", [metrics.worst_at_low, metrics.benign_at_low, metrics.mean_drop_at_low])
def test_low_metrics_need_a_low_setting(at_low: Callable[..., float]) -> None:
    with pytest.raises(ValueError, match="none of the 2 settings is at level low: this metric is about settings such as"):
        at_low(CLEAN, {"fog:mid": CLEAN, "flip_v": CLEAN})


def test_mce_sums_over_levels_before_it_divides() -> None:
    """fog: (1 + 3) / (2 + 2) = 1; flip_v: 1 / 4; the mean is over the two perturbations, not over the three settings."""
    scores = {"fog:low": [1, 1, 1, 0], "fog:high": [1, 0, 0, 0], "flip_v": [1, 1, 1, 0]}
    reference = {"fog:low": [1, 1, 0, 0], "fog:high": [1, 1, 0, 0], "flip_v": [0, 0, 0, 0]}
    assert metrics.mean_corruption_error(scores, reference) == (1.0 + 0.25) / 2


def test_mce_needs_the_same_settings_of_the_reference() -> None:
    with pytest.raises(
        ValueError, match="reference_by_setting lacks fog:mid: measure the reference model under the same settings"
    ):
        metrics.mean_corruption_error({"fog:mid": [1]}, {"fog:low": [1]})
    assert metrics.mean_corruption_error({"fog:low": [0]}, {"fog:low": [0], "fog:mid": [1]}) == 1.0


def test_relative_mce_counts_losses_alone() -> None:
    """fog: 2 / 4, flip_v: 1 / 2; a model that is wrong on clean pictures has nothing to lose there."""
    scores = {"fog:low": [1, 1, 0, 0], "fog:high": [1, 0, 0, 0], "flip_v": [1, 1, 0, 0]}
    reference = {"fog:low": [1, 1, 0, 0], "fog:high": [1, 1, 0, 0], "flip_v": [1, 1, 0, 0]}
    clean, reference_clean = [1, 1, 1, 0], [1, 1, 1, 1]
    assert metrics.relative_mean_corruption_error(clean, scores, reference_clean, reference) == (3 / 4 + 1 / 2) / 2
    assert metrics.relative_mean_corruption_error(clean, reference, clean, reference) == 1.0
    assert math.isnan(metrics.relative_mean_corruption_error(clean, scores, [1, 1, 0, 0], reference))


def test_effective_robustness_is_what_the_odds_of_the_reference_do_not_say() -> None:
    """Odds of the reference fall from 3 to 1, those of the model from 1: to 1/3 is expected, an accuracy of a quarter."""
    falls = [1, 1, 1, 0], {"fog:low": [1, 1, 0, 0]}
    assert metrics.effective_robustness([1, 1, 0, 0], {"fog:low": [1, 0, 0, 0]}, *falls) == pytest.approx(0.0)
    assert metrics.effective_robustness([1, 1, 0, 0], {"fog:low": [1, 1, 0, 0]}, *falls) == pytest.approx(0.25)
    assert math.isnan(metrics.effective_robustness([1, 1, 1, 1], {"fog:low": [1, 1, 0, 0]}, *falls))


@pytest.mark.parametrize("name", ["relative_mean_corruption_error", "effective_robustness"])
def test_a_model_without_images_is_no_reference_for_losses(name: str) -> None:
    clean, blind, after = np.array([1.0, 1, 1, 0]), np.array([0.0, 1, 0, 0]), {"fog:low": np.array([1.0, 1, 0, 0])}
    table = ScoreTable(clean, after, no_image=blind, reference_by_setting={"clean": blind, "fog:low": blind})
    result = estimate(name, table)
    assert not result.valid
    assert result.reason.startswith("the reference ")


def test_mean_rce_names_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="clean has 2 scores and no_image has 1"):
        metrics.mean_relative_corruption_error([1, 0], {"a": [1, 0]}, [1])


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


def test_graded_drops_have_the_bounds_of_losses() -> None:
    """Above Student's t with a further loss of 1, below random weights and a further gain of 1."""
    clean, fog = np.array([1.0, 0.5, 0.75, 1.0]), np.array([0.5, 0.5, 0.25, 0.75])
    result = estimate("accuracy_drop", ScoreTable(clean, {"fog:low": fog}), "fog:low")
    lost, gained = (np.array([0.5, 0.0, 0.5, 0.25, further]) for further in (1.0, -1.0))
    assert result.high == pytest.approx(lost.mean() + 2.353363434801823 * float(np.std(lost, ddof=1)) / 5**0.5)
    weights = np.random.default_rng(0).dirichlet(np.ones(5), 200_000)
    assert (weights @ gained < result.low).mean() == pytest.approx(0.05, abs=0.003)


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
    at_low, plain = estimate("mean_drop_at_low", table), estimate("mean_drop", ScoreTable(np.ones(200), low))
    assert at_low.value == pytest.approx(23 / 400)
    assert (at_low.low, at_low.high) == (plain.low, plain.high)


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
        parts = ({name: scores[kept] for name, scores in sweep_scores.items()} for sweep_scores in (few, reference))
        left_out.append(mean_corruption_error(*parts))
    count = len(left_out)
    error = math.sqrt((count - 1) / count * float(((np.array(left_out) - np.mean(left_out)) ** 2).sum()))
    worst = best = 0.0
    for names in (("kind0:low", "kind0:mid", "kind0:high"), ("flip0",), ("kind1:low",)):
        ours, theirs = (np.sum([1.0 - sweep_scores[name] for name in names], axis=0) for sweep_scores in (few, reference))
        worst += len(names) / theirs.mean() / 3  # wrong under all of them, and the reference under none
        best += ours.mean() / theirs.mean() * len(names) / theirs.mean() / 3  # the other way round
    for end, bound, side in ((-best, result.low, -1.0), (worst, result.high, 1.0)):
        move = end / (count + 1)
        margin = critical_value(0.05, count - 1) * math.hypot(error * math.sqrt((count - 1) / (count + 1)), move)
        assert bound - result.value == pytest.approx(move + side * margin, rel=0.05)


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


@pytest.mark.cases("name", ["accuracy", "accuracy_drop", "harmful_flip_rate", "helpful_flip_rate", "relative_corruption_error"])
def test_one_cluster_shows_nothing(name: str) -> None:
    table = ScoreTable(np.ones(9), {"a": _lost(3, 9)}, no_image=np.zeros(9), groups=["one"] * 9)
    result = estimate(name, table, "a")
    widest = {"accuracy": (0, 1), "accuracy_drop": (-1, 1), "relative_corruption_error": (-math.inf, math.inf)}
    assert (result.low, result.high) == widest.get(name, (0, 1))


@pytest.mark.cases("name", ["worst_case_drop", "mean_drop", "severe_failure_rate", "catastrophic_rate", "visual_gain"])
def test_one_cluster_shows_nothing_of_a_sweep(name: str) -> None:
    result = estimate(name, ScoreTable(np.ones(9), {"a": _lost(3, 9)}, no_image=np.zeros(9), groups=["one"] * 9))
    assert (result.low, result.high) == ((0, 1) if name.endswith("rate") else (-1, 1))


def test_a_single_sample() -> None:
    table = ScoreTable(np.ones(1), {"a": np.zeros(1)}, no_image=np.zeros(1))
    result = estimate("accuracy_drop", table, "a")
    assert result.value == 1.0
    assert result.low < 0.0
    assert result.high == 1.0


def test_one_setting_needs_no_correction() -> None:
    result = estimate("worst_case_drop", ScoreTable(np.ones(200), {"a": _lost(20)}))
    assert (result.low, result.high) == pytest.approx(exact_interval(20, 200))


@pytest.mark.study
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
