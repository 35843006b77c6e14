from __future__ import annotations

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.metrics.blind_scores import share_of_gain_interval, visual_gain_interval
from pytest_vlmrobust.metrics.scores import Scores
from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.statistics.contrasts import score_ratio_interval
from pytest_vlmrobust.metrics.statistics.differences import drop_test
from pytest_vlmrobust.metrics.statistics.proportions import exact_interval
from pytest_vlmrobust.metrics.statistics.ratios import ratio_interval
from pytest_vlmrobust.metrics.table import ScoreTable

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
