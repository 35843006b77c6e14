from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pytest_vlmrobust import metrics


def test_the_best_patch_of_each_sample_counts() -> None:
    """Whole: 2 of 4. Best patch: 1, 0, 1, 1 = 3 of 4. 1 - 3/2."""
    patches = [[0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]
    assert metrics.pcri([1, 1, 0, 0], patches) == -0.5
    assert metrics.rci([1, 1, 0, 0], patches) == -0.5


def test_graded_scores() -> None:
    assert metrics.pcri([0.8, 0.4], [[0.2, 0.4], [0.2, 0.0]]) == pytest.approx(1 - 0.6 / 1.2)


@pytest.mark.parametrize(("options", "patches", "index"), [(4, 4, -1.734), (2, 4, -0.875), (3, 4, -1.41), (4, 2, -0.75)])
def test_pure_guessing_has_the_index_of_luck(options: int, patches: int, index: float) -> None:
    """Every combination of guesses once: 1 - k (1 - (1 - 1/k)^m)."""
    guesses = list(itertools.product(range(options), repeat=patches))
    views = [[float(guess == 0) for guess in row] for row in guesses]
    whole = [float(row[0] == 0) for row in guesses]
    assert metrics.pcri(whole, views) == pytest.approx(index, abs=5e-3)
    assert metrics.pcri(whole, views) == pytest.approx(1 - options * (1 - (1 - 1 / options) ** patches))


@pytest.mark.parametrize("index", [metrics.pcri, metrics.rci])
def test_a_model_that_cannot_solve_the_whole_has_no_index(index: Callable[..., float]) -> None:
    assert math.isnan(index([0, 0], [[1, 1], [0, 0]]))


def test_a_missing_patch_might_have_been_the_best() -> None:
    assert math.isnan(metrics.pcri([1.0, 1.0], [[1.0, math.nan], [1.0, 0.0]]))


def test_no_patches_are_no_zero() -> None:
    assert math.isnan(metrics.pcri([1, 1], [[], []]))


def test_lengths_are_named() -> None:
    with pytest.raises(ValueError, match="whole has 2 scores and patches has 1"):
        metrics.pcri([1, 1], [[1, 1]])


def test_contributions_add_up() -> None:
    shares = metrics.patch_contribution([[1, 0, 0, 0.5], [1, 0.5, 0, 0]])
    assert shares == pytest.approx((2 / 3, 1 / 6, 0, 1 / 6))
    assert all(type(share) is float for share in shares)


@pytest.mark.parametrize("patches", [[[0, 0]], [[1, math.nan]]])
def test_contributions_of_nothing_are_unknown(patches: list[list[float]]) -> None:
    assert all(math.isnan(share) for share in metrics.patch_contribution(patches))


@pytest.mark.parametrize(
    ("value", "band"),
    [
        (-2.7, "strong local"),
        (-0.30, "strong local"),
        (-0.2999, "moderate local"),
        (-0.10, "moderate local"),
        (-0.0999, "balanced"),
        (0.10, "balanced"),
        (0.1001, "moderate global"),
        (0.2999, "moderate global"),
        (0.30, "strong global"),
        (1.0, "strong global"),
        (1 - 1.3, "strong local"),  # -0.30000000000000004
        (1 - 0.7, "strong global"),  # 0.30000000000000004
    ],
)
def test_bands(value: float, band: str) -> None:
    assert metrics.rci_band(value) == band


def test_bands_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="the index is NaN: an index that is unknown has no band"):
        metrics.rci_band(math.nan)
    with pytest.raises(ValueError, match=r"the index is 30\.0: expected at most 1"):
        metrics.rci_band(30.0)


def test_the_first_of_equally_good_patches_is_chosen() -> None:
    assert metrics.best_patches([[0.5, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.2, 0.0, 0.3]]) == (1, 0, 3)
    assert metrics.best_patches(np.zeros((0, 4))) == ()
    assert all(type(position) is int for position in metrics.best_patches([[0, 1]]))


def test_a_best_patch_among_missing_ones_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scores\[1\] has a missing score \(NaN\): which patch is best is unknown"):
        metrics.best_patches([[1.0, 0.0], [1.0, math.nan]])
    with pytest.raises(ValueError, match=r"scores has shape \(2, 0\): expected at least one patch for each sample"):
        metrics.best_patches([[], []])


def test_the_corpus_metric_of_a_mean_is_the_plain_index() -> None:
    rng = np.random.default_rng(1)
    whole, patches = [1.0, *rng.random(19).round(1).tolist()], rng.random((20, 9)).round(1).tolist()

    def average(items: Sequence[float]) -> float:
        return sum(items) / len(items)

    assert metrics.corpus_pcri(average, whole, patches, patches) == pytest.approx(metrics.pcri(whole, patches))


def test_a_grouped_accuracy_sees_the_chosen_answers_together() -> None:
    """Two questions on each picture, right only if both are: patches help single questions, not pictures."""

    def both_right(items: Sequence[tuple[str, int]]) -> float:
        pictures: dict[str, list[int]] = {}
        for picture, right in items:
            pictures.setdefault(picture, []).append(right)
        return sum(min(rights) for rights in pictures.values()) / len(pictures)

    names = ["a", "a", "b", "b"]
    scores = [[1, 0], [0, 0], [0, 1], [1, 1]]
    whole = list(zip(names, [1, 1, 0, 0], strict=True))
    patches = [[(name, right) for right in row] for name, row in zip(names, scores, strict=True)]
    assert metrics.corpus_pcri(both_right, whole, patches, scores) == 0.0
    assert metrics.pcri([1, 1, 0, 0], scores) == -0.5


def test_ties_matter_to_a_corpus_metric() -> None:
    """F1 depends on which of two equally wrong answers is taken: the first one, always."""

    def f1(items: Sequence[tuple[str, str]]) -> float:
        hits = sum(said == truth == "yes" for said, truth in items)
        said, true = (sum(item[side] == "yes" for item in items) for side in (0, 1))
        return 2 * hits / (said + true) if said + true else 0.0

    whole = [("yes", "yes"), ("no", "no")]
    patches = [[("yes", "yes"), ("no", "yes")], [("maybe", "no"), ("yes", "no")]]
    assert metrics.corpus_pcri(f1, whole, patches, [[1, 0], [0, 0]]) == 0.0
    assert metrics.corpus_pcri(f1, whole, [patches[0], patches[1][::-1]], [[1, 0], [0, 0]]) == pytest.approx(1 - 2 / 3)


def test_a_corpus_metric_of_0_has_no_index() -> None:
    assert math.isnan(metrics.corpus_pcri(lambda items: float(sum(items)), [0, 0], [[1], [1]], [[1], [1]]))


def test_corpus_lengths_are_named() -> None:
    with pytest.raises(ValueError, match="whole has 1 scores and patches has 2"):
        metrics.corpus_pcri(len, ["a"], [["a"], ["b"]], [[1], [1]])
    with pytest.raises(
        ValueError, match=r"patches\[1\] has 1 items and scores has 2 for each sample: expected one item for each"
    ):
        metrics.corpus_pcri(len, ["a", "b"], [["a", "b"], ["b"]], [[1, 0], [1, 0]])


def test_published_indices_of_three_models_agree(golden: Callable[[str], list[dict[str, str]]]) -> None:
    """RCI section 4.2.1: r >= 0.91 between architectures, at each granularity."""
    rows = golden("rci_table2")
    for grid in ("n2", "n3"):
        models = [
            {row["dataset"]: float(row[f"{model}_{grid}"]) for row in rows}
            for model in ("internvl2_5_1b", "qwen2_vl_2b", "molmo_1b")
        ]
        for first, second in itertools.combinations(models, 2):
            found = metrics.rci_correlation(first, second)
            assert found.datasets == 13
            assert found.pearson >= 0.905
            assert found.spearman >= 0.88


def test_correlations_of_nothing_are_unknown() -> None:
    for first, second in (({}, {}), ({"a": 0.1}, {"a": 0.2}), ({"a": 0.1, "b": 0.1}, {"a": 0.2, "b": 0.3})):
        found = metrics.rci_correlation(first, second)
        assert math.isnan(found.pearson)
        assert math.isnan(found.spearman)
    assert math.isnan(metrics.rci_correlation({"a": 0.1, "b": math.nan}, {"a": 0.2, "b": 0.3}).pearson)


def test_a_dataset_that_one_model_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="only one of the two models was measured on 'GQA': leave it out of both, or measure it"):
        metrics.rci_correlation({"GQA": 0.1, "POPE": 0.0}, {"POPE": 0.1})
