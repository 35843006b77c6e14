"""Answers of samples that share a picture: drawn together, at the rates of the model, and judged in their groups."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal, norm

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.evaluation.power import published
from pytest_vlmrobust.evaluation.power.grouping import Grouping
from pytest_vlmrobust.evaluation.power.profiles import Profile
from pytest_vlmrobust.metrics.table import ScoreTable
from tests.unit.evaluation.conftest import sample

SETTING = "glass_blur:high"
MANY = 40_000
BINARY = replace(
    published.nothing_lost(), clean=0.7, blind=0.3, guess=0.25, drops={SETTING: 0.2}, helpful={SETTING: 0.02}, churn=0.1
)
"""A model that is asked under one setting, with an earlier run."""


def drawn(grouping: Grouping | None, n: int = MANY, *tables: str, truth: Profile = BINARY) -> dict[str, ScoreTable]:
    return replace(truth, grouping=grouping).draw(n, tables or ("corruptions", "patches"), np.random.default_rng(1))


def correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    return float(np.mean((first - first.mean()) * (second - second.mean())) / (first.std() * second.std()))


@pytest.fixture(scope="module")
def pairs() -> dict[str, ScoreTable]:
    return drawn(Grouping.equal(MANY, MANY // 2, 0.7))


def test_the_rates_of_the_model_are_kept(pairs: dict[str, ScoreTable]) -> None:
    """20,000 pairs know a share to .0035 (the standard error of a coin in identical pairs)."""
    table = pairs["corruptions"]
    assert table.clean.mean() == pytest.approx(0.7, abs=0.014)
    assert table.scores(NO_IMAGE_NAME).mean() == pytest.approx(0.3, abs=0.014)
    assert table.scores(SETTING).mean() == pytest.approx(0.5, abs=0.014)
    earlier = (table.baseline_by_setting or {})[CLEAN_NAME]
    assert (earlier != table.clean).mean() == pytest.approx(0.1, abs=0.01)
    whole = replace(BINARY, grouping=None).draw(MANY, ("patches",), np.random.default_rng(2))["patches"]
    for setting in ("patches:2", "patches:3"):
        assert pairs["patches"].scores(setting).mean() == pytest.approx(whole.scores(setting).mean(), abs=0.015)


@pytest.mark.parametrize("latent", [0.0, 0.4, 0.7, 1.0])
def test_clean_answers_of_a_group_are_correlated_as_the_copula_says(latent: float) -> None:
    """Both of a pair are right as often as two normal variables of that correlation are below the quantile of the rate."""
    table = drawn(Grouping.equal(MANY, MANY // 2, latent))["corruptions"]
    quantile = norm.ppf(0.7)
    both = 0.7 if latent == 1.0 else multivariate_normal(cov=[[1, latent], [latent, 1]]).cdf([quantile] * 2)
    first, second = table.clean.reshape(-1, 2).T
    assert (first * second).mean() == pytest.approx(both, abs=0.014)  # four standard errors of .0035


def test_what_flips_and_what_is_guessed_goes_together_too(pairs: dict[str, ScoreTable]) -> None:
    table = pairs["corruptions"]
    for scores in (table.clean - table.scores(SETTING), table.scores(NO_IMAGE_NAME), (table.baseline_by_setting or {})[SETTING]):
        assert correlation(*scores.reshape(-1, 2).T) > 0.2
    assert abs(correlation(table.clean[1:-1:2], table.clean[2::2])) < 0.03  # neighbours of two groups; four standard errors


def test_equal_groups_differ_by_one_sample_at_most() -> None:
    table = drawn(Grouping.equal(853, 229, 0.5), 853)["corruptions"]
    assert table.clusters.count == 229
    assert set(table.clusters.sizes.tolist()) == {3, 4}


def of_a_file() -> Grouping:
    rows = [replace(sample(i, group="abc"[min(i // 2, 2)] if i < 9 else ""), category="hard" if i % 2 else "") for i in range(12)]
    return Grouping.of(rows, 0.5)


def test_groups_and_categories_are_those_of_the_file() -> None:
    tables = drawn(of_a_file(), 12, "corruptions", "corruptions/hard")
    assert sorted(tables["corruptions"].clusters.sizes.tolist()) == [1, 1, 1, 2, 2, 5]
    assert replace(BINARY, grouping=of_a_file()).categories == ("hard",)
    hard = tables["corruptions/hard"]
    assert hard.clean.tolist() == tables["corruptions"].clean[1::2].tolist()
    assert sorted(hard.clusters.sizes.tolist()) == [1, 1, 1, 1, 2]
    chance_levels, chances = (getattr(hard, name).mean() for name in ("chance_levels", "chances"))
    assert chance_levels >= chances  # that of the commonest letter of these six questions
    assert chance_levels * 6 == round(chance_levels * 6)


def test_another_number_of_samples_is_made_of_whole_groups_of_the_file() -> None:
    sizes = Counter(drawn(of_a_file(), 3000)["corruptions"].clusters.sizes.tolist())
    assert sum(size * count for size, count in sizes.items()) == 3000
    whole = {size: count / sum(sizes.values()) for size, count in sizes.items() if size in (1, 2, 5)}
    assert whole == pytest.approx({1: 1 / 2, 2: 1 / 3, 5: 1 / 6}, abs=0.06)  # some 1,500 groups are drawn


def test_groups_of_one_sample_each_are_drawn_as_independent_ones() -> None:
    plain, single = drawn(None, 500), drawn(Grouping.equal(500, 500, 0.7), 500)
    for name, table in plain.items():
        assert single[name].groups is None
        for (key, scores), (_, same) in zip(table.arrays(), single[name].arrays(), strict=True):
            assert scores.tolist() == same.tolist(), key


def test_the_same_seed_draws_the_same_answers() -> None:
    first, same = (drawn(Grouping.equal(500, 100, 0.7), 500) for _ in range(2))
    for name, table in first.items():
        for (key, scores), (_, again) in zip(table.arrays(), same[name].arrays(), strict=True):
            assert scores.tolist() == again.tolist(), key
