"""Intervals of patch indices: exact errors by enumeration of all outcomes, and the p-values that agree with them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.metrics import ScoreTable, estimate, patches
from pytest_vlmrobust.metrics.accuracy import Bounds
from pytest_vlmrobust.metrics.patches import index_interval


def test_the_best_patch_of_each_sample_counts() -> None:
    """Whole: 2 of 4. Best patch: 1, 0, 1, 1 = 3 of 4. 1 - 3/2."""
    patches = [[0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]
    assert metrics.pcri([1, 1, 0, 0], patches) == -0.5
    assert metrics.rci([1, 1, 0, 0], patches) == -0.5
    with pytest.raises(ValueError, match="patches has 3 columns: expected those of a grid of n x n"):
        metrics.rci([1], [[1, 0, 0]])


@pytest.mark.parametrize(("options", "patches", "index"), [(4, 4, -1.734), (2, 4, -0.875), (3, 4, -1.41), (4, 2, -0.75)])
def test_pure_guessing_has_the_index_of_luck(options: int, patches: int, index: float) -> None:
    """Every combination of guesses once: 1 - k (1 - (1 - 1/k)^m)."""
    guesses = list(itertools.product(range(options), repeat=patches))
    views = [[float(guess == 0) for guess in row] for row in guesses]
    whole = [float(row[0] == 0) for row in guesses]
    assert metrics.pcri(whole, views) == pytest.approx(index, abs=5e-3)
    assert metrics.pcri(whole, views) == pytest.approx(1 - options * (1 - (1 - 1 / options) ** patches))


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


@pytest.mark.cases(
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
            agreement = metrics.rci_correlation(first, second)
            assert agreement.datasets == 13
            assert agreement.pearson >= 0.905
            assert agreement.spearman >= 0.88


def test_correlations_of_nothing_are_unknown() -> None:
    for first, second in (({}, {}), ({"a": 0.1}, {"a": 0.2}), ({"a": 0.1, "b": 0.1}, {"a": 0.2, "b": 0.3})):
        agreement = metrics.rci_correlation(first, second)
        assert math.isnan(agreement.pearson)
        assert math.isnan(agreement.spearman)
    assert math.isnan(metrics.rci_correlation({"a": 0.1, "b": math.nan}, {"a": 0.2, "b": 0.3}).pearson)


def test_a_dataset_that_one_model_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="only one of the two models was measured on 'GQA': leave it out of both, or measure it"):
        metrics.rci_correlation({"GQA": 0.1, "POPE": 0.0}, {"POPE": 0.1})


Array = NDArray[np.float64]

WHOLE, BEST = np.array([1.0, 1.0, 0.0, 0.0]), np.array([1.0, 0.0, 1.0, 0.0])
"""The four kinds of samples."""


def _counts(n: int, kinds: int = 4) -> Iterator[tuple[int, ...]]:
    if kinds == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in _counts(n - first, kinds - 1):
            yield (first, *rest)


def _probability(counts: tuple[int, ...], shares: tuple[float, ...]) -> float:
    ways = math.factorial(sum(counts)) / math.prod(math.factorial(count) for count in counts)
    return ways * math.prod(share**count for share, count in zip(shares, counts, strict=True))


def _patches(best: Array, attempts: int = 4) -> Array:
    patches = np.zeros((best.size, attempts))
    patches[:, 0] = best
    return patches


def _errors(shares: tuple[float, ...], truth: float, interval: Bounds | object, n: int) -> tuple[float, float]:
    """Returns the exact probabilities that the lower bound is too high and the upper one too low."""
    high = low = 0.0
    for counts in _counts(n):
        whole, best = np.repeat(WHOLE, counts), np.repeat(BEST, counts)
        if not whole.any():
            continue
        table = ScoreTable(whole, patches_by_setting={"patches:2": _patches(best)}, chance=0.25)
        bounds = interval(table, "patches:2", 0.90)  # type: ignore[operator]
        weight = _probability(counts, shares)
        high, low = high + weight * (bounds[0] > truth + 1e-12), low + weight * (bounds[1] < truth - 1e-12)
    return high, low


@pytest.mark.study
@pytest.mark.parametrize("known", [0.1, 0.5, 0.8])
def test_an_indifferent_model_is_seldom_said_to_be_anything_else(known: float) -> None:
    """Four options, four patches, nominal 5 % on either side."""
    guessed, best = 1 - known, 1 - 0.75**4
    shares = (known + guessed * 0.25 * best, guessed * 0.25 * (1 - best), guessed * 0.75 * best, guessed * 0.75 * (1 - best))
    assert sum(shares) == pytest.approx(1.0)
    assert max(_errors(shares, 0.0, patches.excess_interval, 14)) <= 0.05


@pytest.mark.study
@pytest.mark.parametrize("shares", [(0.6, 0.05, 0.05, 0.3), (0.8, 0.005, 0.1, 0.095), (0.6, 0.2, 0.02, 0.18)])
def test_bounds_of_the_raw_index_err_seldom(shares: tuple[float, ...]) -> None:
    truth = 1 - (shares[0] + shares[2]) / (shares[0] + shares[1])
    assert max(_errors(shares, truth, index_interval, 14)) <= 0.05


def test_without_the_guard_they_would_not() -> None:
    """Two options: the samples that show no distraction are rare, so that their absence says little."""
    rng = np.random.default_rng(1)
    false_claims = 0
    for _ in range(200):
        known = rng.random(60) < 0.7
        whole = np.where(known, 1.0, rng.random(60) < 0.5)
        best = np.where(known, 1.0, rng.random(60) < 1 - 0.5**4)
        table = ScoreTable(whole, patches_by_setting={"patches:2": _patches(best)}, chance=0.5)
        false_claims += estimate("pcri_excess", table, "patches:2").high < 0
        plain = (1 - best) - 0.5**3 * (1 - whole)
        if plain.std() and plain.mean() + 1.671 * plain.std(ddof=1) / math.sqrt(60) < 0:
            false_claims += 1000
    assert false_claims % 1000 <= 10
    assert false_claims // 1000 >= 40


def _table(clusters: bool = False) -> ScoreTable:
    rng = np.random.default_rng(7)
    return ScoreTable(
        (rng.random(80) < 0.8).astype(float),
        no_image=(rng.random(80) < 0.25).astype(float),
        patches_by_setting={"patches:2": (rng.random((80, 4)) < 0.35).astype(float)},
        whole_attempts=(rng.random((80, 4)) < 0.8).astype(float),
        chance=0.25,
        groups=[str(index // 4) for index in range(80)] if clusters else None,
    )


NAMES = ["pcri", "rci", "pcri_excess", "pcri_matched"]


@pytest.mark.cases("name", NAMES)
@pytest.mark.cases("clusters", [False, True])
def test_intervals_are_as_wide_as_resampling_says(name: str, clusters: bool) -> None:
    table, rng, values = _table(clusters), np.random.default_rng(1), []
    record = metrics.get(name)
    arguments = [np.asarray(table.argument(need, "patches:2")) for need in record.needs]
    for _ in range(400):
        blocks = rng.integers(0, 20, 20) if clusters else rng.integers(0, 80, 80)
        rows = (blocks[:, None] * 4 + np.arange(4)).ravel() if clusters else blocks
        values.append(record.function(*(argument[rows] for argument in arguments)))
    result = estimate(name, table, "patches:2")
    half, spread = (result.high - result.low) / 2, 1.7 * float(np.std(values))
    assert 0.85 < half / spread < 1.6
    assert result.low < result.value < result.high


@pytest.mark.parametrize("name", NAMES)
def test_one_source_image_shows_nothing(name: str) -> None:
    table = _table()
    single = ScoreTable(
        table.clean,
        patches_by_setting=table.patches_by_setting,
        whole_attempts=table.whole_attempts,
        chance=0.25,
        groups=["one"] * 80,
    )
    result = estimate(name, single, "patches:2")
    assert result.low == -math.inf
    assert result.high in {1.0, math.inf}


@pytest.mark.parametrize("interval", [index_interval, patches.excess_interval, patches.matched_interval])
def test_an_interval_belongs_to_one_setting(interval: Callable[..., object]) -> None:
    with pytest.raises(UsageError, match="scores belong to one setting: say which"):
        interval(_table(), None, 0.9)


def test_an_interval_says_what_it_lacks() -> None:
    table = ScoreTable(np.ones(3), patches_by_setting={"patches:2": np.ones((3, 4))})
    with pytest.raises(UsageError, match="the table has no 'whole_attempts' of 'patches:2': measure it"):
        patches.matched_interval(table, "patches:2", 0.9)


def _matched(whole: Array, attempts: Array, best: Array, chance: float | None) -> metrics.ScoreTable:
    return ScoreTable(
        whole, {"patches:2": best}, patches_by_setting={"patches:2": _patches(best)}, whole_attempts=attempts, chance=chance
    )


def test_luck_that_attempts_do_not_show_is_allowed_for() -> None:
    """Steady under shifts and right on 6 of 10; guesses made anew would be right on 1 - 0.4 * 0.75^3 = 0.83 of the patches."""
    whole = np.repeat([1.0, 0.0], [600, 400])
    steady, best = np.repeat(whole[:, None], 4, axis=1), np.repeat([1.0, 0.0], [830, 170])
    open_ended = estimate("pcri_matched", _matched(whole, steady, best, 0.0), "patches:2")
    choice = estimate("pcri_matched", _matched(whole, steady, best, 0.25), "patches:2")
    assert open_ended.value == choice.value == pytest.approx(1 - 0.83 / 0.6)
    assert open_ended.high < -0.3, "nobody guesses an open answer"
    assert choice.low == open_ended.low
    assert choice.high > 0.0, "luck may explain it"


def test_luck_that_attempts_show_is_counted_once() -> None:
    whole, shown = np.repeat([1.0, 0.0], [600, 400]), np.repeat([1.0, 0.0], [840, 160])
    attempts = np.stack([whole, shown, whole, whole], axis=1)
    best = np.repeat([1.0, 0.0], [990, 10])
    estimates = [estimate("pcri_matched", _matched(whole, attempts, best, chance), "patches:2") for chance in (0.0, 0.25)]
    assert estimates[0].high == estimates[1].high < -0.1


@pytest.mark.cases("name", ["pcri", "rci", "pcri_matched", "pcri_excess"])
@pytest.mark.cases("options", [2.0, 4.0, math.inf])
@pytest.mark.cases("grid", [2, 3])
def test_no_outcome_lies_beyond_the_reach(name: str, options: float, grid: int) -> None:
    """Each of all outcomes of which the clean accuracy is 3/5; the ends are reached."""
    whole, attempts = np.array([1.0, 1.0, 1.0, 0.0, 0.0]), grid * grid
    about = metrics.Circumstances(attempts=attempts, options=options, clean=0.6)
    values = []
    for right in range(6):
        patches = _patches(np.repeat([1.0, 0.0], [right, 5 - right]), attempts)
        for more in (whole, np.ones(5)):
            table = ScoreTable(
                whole,
                {f"patches:{grid}": patches[:, 0]},
                patches_by_setting={f"patches:{grid}": patches},
                whole_attempts=np.repeat(more[:, None], attempts, axis=1),
                chance=1.0 / options,
            )
            values.append(estimate(name, table, f"patches:{grid}").value)
    low, high = metrics.get(name).reaches(about)
    assert min(values) == pytest.approx(low)
    assert max(values) == pytest.approx(high)


def test_where_accuracy_is_unknown_the_reach_is_that_just_above_chance() -> None:
    assert metrics.get("pcri_excess").reaches(metrics.Circumstances(9, 2)) == pytest.approx(
        (-(0.5**8) * 0.49 / 0.51, 1.9570), abs=1e-3
    )
    assert metrics.get("pcri").reaches(metrics.Circumstances()) == pytest.approx((-99.0, 1.0))
    assert metrics.get("accuracy").reaches(metrics.Circumstances(clean=0.5)) == (0.0, 1.0)


Rows = list[dict[str, str]]


def test_published_orders_of_luck(golden: Callable[[str], Rows]) -> None:
    for row in golden("pcri_luck"):
        options = int(row["options"])
        for attempts in (4, 9):
            printed = row[f"patches{attempts}"]
            whole = float(row["whole"] or 1 / options)  # without a score, a model that guesses
            value = metrics.pcri_neutral(whole, options, attempts)
            assert value == pytest.approx(float(printed), abs=0.5 * 10.0 ** -len(printed.partition(".")[2]) + 1e-9), row


def test_one_attempt_has_no_luck() -> None:
    assert metrics.pcri_neutral(0.6, 4, 1) == pytest.approx(0.0)


def test_a_guesser_has_the_best_of_as_many_guesses_as_there_are_patches() -> None:
    for options in (2, 3, 7):
        best = 1 - (1 - 1 / options) ** 9
        assert metrics.pcri_neutral(1 / options, options, 9) == pytest.approx(1 - options * best)


def test_open_questions_leave_nothing_to_luck() -> None:
    assert metrics.pcri_neutral(0.5, math.inf, 9) == 0.0


def test_options_may_differ_between_questions() -> None:
    """A yes/no question that is answered, and one of ten options that is not."""
    missed = (1 - 1.0) * 0.5**3 + (1 - 0.0) * 0.9**3
    assert metrics.pcri_neutral([1, 0], [2, 10], 4) == pytest.approx(1 - (2 - missed) / 1)
    assert metrics.pcri_neutral([0.8] * 3, 4, 4) == pytest.approx(metrics.pcri_neutral(0.8, [4] * 3, 4))


@pytest.mark.parametrize("whole", [0.0, math.nan, []])
def test_luck_of_nothing_is_unknown(whole: float | list[float]) -> None:
    assert math.isnan(metrics.pcri_neutral(whole, 4, 4))


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="attempts is 0: expected the number of patches, at least 1"):
        metrics.pcri_neutral(0.8, 4, 0)
    with pytest.raises(ValueError, match=r"options has 0\.25: expected at least 1, and infinity for an open question"):
        metrics.pcri_neutral(0.8, 0.25, 4)
    with pytest.raises(ValueError, match="whole_score has 2 scores and options has 3"):
        metrics.pcri_neutral([1, 0], [4, 4, 4], 4)
    with pytest.raises(ValueError, match=r"whole_score\[0\] is 80\.0"):
        metrics.pcri_neutral(80.0, 4, 4)


def _answers(seed: int = 3, n: int = 60) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    return (
        (rng.random(n) < 0.7).astype(float),
        (rng.random((n, 4)) < 0.4).astype(float),
        rng.choice([0.0, 0.25, 0.5], n),
    )


def test_companions_of_a_model_without_right_answers_are_unknown() -> None:
    wrong, patches = np.zeros(3), np.ones((3, 4))
    assert math.isnan(metrics.pcri_excess(wrong, patches, np.full(3, 0.25)))
    assert math.isnan(metrics.pcri_matched(wrong, patches, np.zeros((3, 4))))


def test_no_patches_have_no_index_without_luck() -> None:
    nothing = np.zeros((2, 0))
    assert math.isnan(metrics.pcri_excess([1, 1], nothing, [0.5, 0.5]))
    assert math.isnan(metrics.pcri_matched([1, 1], nothing, nothing))


def test_matched_compares_like_with_like() -> None:
    attempts = [[1, 0], [0, 0], [0, 1], [1, 1]]
    assert metrics.pcri_matched([1, 0, 0, 1], attempts, attempts) == 0.0
    assert metrics.pcri_matched([1, 0, 0, 1], [[0, 0]] * 4, attempts) == 1.0


def test_unequal_numbers_of_attempts_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"patches has 4 attempts for each sample and .* has 3: expected the same number, because"
    ):
        metrics.pcri_matched([1, 1], np.ones((2, 4)), np.ones((2, 3)))


def _lucky_table(whole: Array, patches: Array, **more: object) -> ScoreTable:
    return ScoreTable(whole, patches_by_setting={"patches:2": patches}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("pcri_matched", "there are no scores of further attempts at the whole image"),
        ("pcri_excess", "there are no chances of guessing"),
    ],
)
def test_what_a_companion_lacks_is_named(name: str, missing: str) -> None:
    result = estimate(name, _lucky_table(np.ones(5), np.ones((5, 4))), "patches:2")
    assert math.isnan(result.value)
    assert result.reason == missing


def test_a_gap_in_a_companion_is_named() -> None:
    attempts = np.ones((5, 4))
    attempts[2, 1] = math.nan
    result = estimate(
        "pcri_matched", _lucky_table(np.ones(5), np.ones((5, 4)), chance=0.25, whole_attempts=attempts), "patches:2"
    )
    assert math.isnan(result.value)
    lacking = "1 in scores of further attempts at the whole image of patches:2"
    assert result.reason == f"scores of 1 of 5 samples are missing: {lacking}"


def test_the_first_attempts_at_the_whole_image_are_used() -> None:
    attempts = np.zeros((4, 9))
    attempts[:, 1], attempts[:2, 8] = 1.0, 1.0
    table = _lucky_table(np.ones(4), np.ones((4, 4)), chance=0.25, whole_attempts=attempts)
    assert estimate("pcri_matched", table, "patches:2").value == 0.0


def test_the_raw_index_comes_with_its_luck() -> None:
    whole, patches, _ = _answers()
    result = estimate("pcri", _lucky_table(whole, patches, chance=0.25), "patches:2")
    assert result.reason == f"luck alone gives {metrics.pcri_neutral(whole, 4, 4):.3f} to 0 (patches:2)"
    each = estimate("rci", _lucky_table(whole, patches, chances=np.full(60, 0.25)), "patches:2")
    assert (each.valid, each.reason) == (True, result.reason)


def test_chances_of_each_sample_take_the_place_of_one_for_all() -> None:
    whole, patches, chances = _answers()
    excess = estimate("pcri_excess", _lucky_table(whole, patches, chance=0.25), "patches:2")
    assert excess.value == pytest.approx(metrics.pcri_excess(whole, patches, np.full(60, 0.25)))
    each = estimate("pcri_excess", _lucky_table(whole, patches, chances=chances), "patches:2")
    assert each.value == pytest.approx(metrics.pcri_excess(whole, patches, chances))
    assert each.valid


def test_chances_belong_to_the_samples() -> None:
    whole, patches, _ = _answers()
    with pytest.raises(ValueError, match="clean has 60 scores and chances has 2"):
        _lucky_table(whole, patches, chances=np.array([0.25, 0.5]))
    with pytest.raises(ValueError, match=r"chances\[0\] is 4\.0: a score lies in \[0, 1\]"):
        _lucky_table(whole, patches, chances=np.full(60, 4.0))


def test_too_few_attempts_at_the_whole_image_are_refused() -> None:
    table = _lucky_table(np.ones(4), np.ones((4, 4)), chance=0.25, whole_attempts=np.ones((4, 3)))
    with pytest.raises(ValueError, match="patches has 4 attempts for each sample and whole_attempts has 3"):
        estimate("pcri_matched", table, "patches:2")
