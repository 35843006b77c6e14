from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.metrics import Metric, Needs
from pytest_vlmrobust.testing import CHECKS, PROFILES, PROPERTIES, check_metric, checks_of, unclaimed

Array = NDArray[np.float64]
Sweep = dict[str, Array]
FEW = PROFILES["vlm-fast"]
"""Examples among which every planted mistake is found."""


def good(clean: Array, perturbed: Array) -> float:
    """Largest loss of one sample."""
    return float((clean - perturbed).max()) if clean.size else math.nan


def test_a_good_metric_passes() -> None:
    check_metric(good)


def test_a_metric_may_be_given_by_name_record_or_function() -> None:
    check_metric("accuracy_drop", examples=5)
    check_metric(metrics.get("accuracy_drop"), examples=5)
    check_metric(metrics.accuracy_drop, examples=5)


def test_a_registered_function_is_checked_against_its_own_record() -> None:
    """Its parameter is called "scores", which says nothing: only the record knows what it needs."""
    check_metric(metrics.accuracy, examples=5)


def test_refusing_what_is_missing_is_as_good_as_nan() -> None:
    def strict(perturbed: Array) -> float:
        if not perturbed.size or np.isnan(perturbed).any():
            raise ValueError("nothing to measure")
        return float(perturbed.mean())

    check_metric(strict, examples=20)


def _first(perturbed: Array) -> float:
    return float(perturbed[0]) if perturbed.size and not np.isnan(perturbed).any() else math.nan


def _numpy(perturbed: Array) -> float:
    return perturbed.mean() if perturbed.size else math.nan  # a numpy.float64


def _blind_to_gaps(clean: Array) -> float:
    return float(np.nan_to_num(clean).mean()) if clean.size else math.nan


def _blind_to_one_gap(clean: Array, no_image: Array) -> float:
    return float(clean.mean() - np.nan_to_num(no_image).mean()) if clean.size else math.nan


def _zero_of_nothing(perturbed: Array) -> float:
    return float(perturbed.sum())


def _mutating(perturbed: Array) -> float:
    perturbed.sort()
    return float(perturbed.mean()) if perturbed.size else math.nan


def _mutating_sweep(perturbed_by_setting: Sweep) -> float:
    perturbed_by_setting.pop("fog:low")
    scores = np.concatenate(list(perturbed_by_setting.values()))
    return float(scores.mean()) if scores.size else math.nan


def _infinite(clean: Array, no_image: Array) -> float:
    if not clean.size or np.isnan(clean.sum() + no_image.sum()):
        return math.nan
    return float(clean.mean() / no_image.mean()) if no_image.any() else math.inf


def _broken(perturbed: Array) -> float:
    if not perturbed.size:
        return math.nan
    raise KeyError("fog")


def _drawing(perturbed: Array) -> float:
    return float(perturbed.mean()) if perturbed.size and np.random.random() < 2.0 else math.nan  # noqa: NPY002


def _seeding(perturbed: Array) -> float:
    np.random.seed(0)  # noqa: NPY002
    return float(perturbed.mean()) if perturbed.size else math.nan


def _shuffling(perturbed: Array) -> float:
    random.shuffle([1, 2, 3])
    return float(perturbed.mean()) if perturbed.size else math.nan


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (_drawing, r"metric '_drawing' used or reseeded the global random state, .*\n    called with perturbed=\["),
        (_seeding, r"metric '_seeding' used or reseeded the global random state"),
        (_shuffling, r"metric '_shuffling' used or reseeded the global random state"),
        (_first, r"metric '_first' depends on the order of the samples: .*\n    called with perturbed=\["),
        (_numpy, r"metric '_numpy' returned .* of type float64: expected a built-in float\n    called with perturbed=\["),
        (_blind_to_gaps, r"returned a number although a score in clean is missing \(NaN\)\n    called with clean=\[.*nan"),
        (_blind_to_one_gap, r"returned a number although a score in no_image is missing \(NaN\)"),
        (_zero_of_nothing, r"metric '_zero_of_nothing' returned a number without any samples\n    called with perturbed=\[\]"),
        (_mutating, r"metric '_mutating' changed its arguments to perturbed=\[.*\n    called with perturbed=\["),
        (_mutating_sweep, r"metric '_mutating_sweep' changed its arguments to perturbed_by_setting=\{'fog:mid'"),
        (_infinite, r"metric '_infinite' returned infinity: a metric that is undefined is NaN"),
        (_broken, r"metric '_broken' raised KeyError: 'fog'\n    called with perturbed=\["),
    ],
)
def test_a_bad_metric_is_told_what_is_wrong(metric: Callable[..., float], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_metric(metric, examples=FEW)


def test_the_first_of_ties_is_found_by_the_few_examples_of_the_default_profile() -> None:
    def first_of_ties(clean: Array, perturbed: Array) -> float:
        known = clean.size and not np.isnan(clean.sum() + perturbed.sum())
        return float(clean[perturbed.argmin()]) if known else math.nan

    with pytest.raises(AssertionError, match=r"metric 'first_of_ties' depends on the order of the samples"):
        check_metric(first_of_ties, check="permutation", examples=FEW)


def test_a_metric_that_changes_its_mind_is_found() -> None:
    calls = []

    def moody(perturbed: Array) -> float:
        calls.append(1)
        return float(len(calls)) if perturbed.size else math.nan

    with pytest.raises(AssertionError, match=r"metric 'moody' returned \d+\.0, then \d+\.0 for the same scores"):
        check_metric(moody, examples=FEW)


def test_declared_bounds_are_held_to() -> None:
    record = Metric(good, "mine", (Needs.CLEAN, Needs.PERTURBED), bounds=(0.0, 1.0))
    with pytest.raises(AssertionError, match=r"metric 'mine' returned -\d\.\d+, outside its bounds 0\.0 to 1\.0"):
        check_metric(record, check="bounds")


def test_the_declared_value_of_a_perfect_model_is_held_to() -> None:
    record = Metric(good, "mine", (Needs.CLEAN, Needs.PERTURBED), perfect=1.0)
    with pytest.raises(AssertionError, match=r"metric 'mine' returned 0\.0 for a perfect model: expected 1\.0, as declared"):
        check_metric(record, examples=FEW)


def test_the_smallest_example_is_shown() -> None:
    with pytest.raises(AssertionError) as caught:
        check_metric(_first, examples=FEW)
    assert "perturbed=[0.0, 1.0]" in str(caught.value)
    assert "perturbed=[1.0, 0.0]" in str(caught.value)


def test_a_parameter_that_says_nothing_is_refused() -> None:
    def mine(corrupted: Any) -> float:
        return 0.0

    with pytest.raises(UsageError, match="metric 'mine': nothing is known about its parameter 'corrupted'"):
        check_metric(mine)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownName, match="unknown metric 'acuracy'"):
        check_metric("acuracy")


def test_every_kind_of_argument_is_made() -> None:
    seen: dict[Needs, Any] = {}

    def curious(*arguments: Any) -> float:
        seen.update(zip(Needs, arguments, strict=True))
        return math.nan

    check_metric(Metric(curious, "curious", tuple(Needs)), examples=3, check="float")
    n = len(seen[Needs.CLEAN])
    assert {seen[Needs.PERTURBED].shape, seen[Needs.NO_IMAGE].shape} == {(n,)}
    assert {scores.shape for scores in seen[Needs.PERTURBED_BY_SETTING].values()} == {(n,)}
    assert set(seen[Needs.REFERENCE_BY_SETTING]) == set(seen[Needs.PERTURBED_BY_SETTING])
    assert seen[Needs.PATCHES].shape == (n, 4)
    assert len(seen[Needs.POSITIONS]) == len(seen[Needs.PEOPLE]) == n
    assert len(seen[Needs.RESOLUTIONS]) == len(seen[Needs.ACCURACIES]) == 4


def test_one_check_alone_can_be_made() -> None:
    check_metric(_first, check="float")
    with pytest.raises(AssertionError, match="depends on the order of the samples"):
        check_metric(_first, check="permutation", examples=FEW)
    with pytest.raises(UnknownName, match=r"unknown check 'permutations'\. Did you mean 'permutation'\?"):
        check_metric(_first, check="permutations")


def test_checks_that_say_nothing_about_a_metric_are_left_out() -> None:
    assert set(CHECKS) - set(checks_of(good)) == {"blind", "coverage"}
    assert set(CHECKS) - set(checks_of(metrics.accuracy)) == {"blind", "unchanged", "pairing", "coverage"}
    assert set(CHECKS) - set(checks_of("relative_corruption_error")) == {"coverage"}


def test_what_a_metric_does_not_claim_is_said() -> None:
    said = {name: unclaimed(good, name) for name in checks_of(good)}
    assert {name for name, why in said.items() if not why} == {*PROPERTIES, "tighter_bound", "unknown"} - {
        *("monotone", "perfect", "unchanged", "oracle", "blind"),
    }
    assert said["oracle"] == "no formula in plain Python to compare with: that is for the metrics of this package"
    assert said["monotone"] == "its record claims no direction (better=, monotone=)"
    assert said["perfect"] == "its record claims no value for a perfect model (perfect=)"
    assert said["unchanged"] == "its record claims no value for scores that nothing changes (unchanged=)"
    assert said["more_samples"] == "it has no interval: its verdicts hold for the samples at hand only"
    exempt = Metric(good, "mine", (Needs.CLEAN, Needs.PERTURBED), better="lower", not_monotone={Needs.PERTURBED: "it may"})
    assert unclaimed(exempt, "monotone") == "not monotone by its definition: perturbed: it may"


def _share(perturbed: Array) -> float:
    return float(perturbed.mean()) if perturbed.size else math.nan


def test_a_metric_that_gets_worse_when_the_model_gets_better_is_found() -> None:
    record = Metric(_share, "mine", (Needs.PERTURBED,), better="lower")
    message = (
        r"metric 'mine' moved from 0\.0 to 1\.0 when one score in perturbed rose: its record says better='lower', so that it "
        r"never rises; say not_monotone=\{Needs\.PERTURBED: 'why'\} where its definition lets it\n"
        r"    called with perturbed=\[0\.0\]\n    and then with perturbed=\[1\.0\]"
    )
    with pytest.raises(AssertionError, match=message):
        check_metric(record, examples=FEW)
    check_metric(
        Metric(_share, "mine", (Needs.PERTURBED,), better="lower", not_monotone={Needs.PERTURBED: "so it is"}), check="monotone"
    )


@pytest.mark.parametrize(("direction", "never"), [(-1, "rises"), (0, "changes")])
def test_a_declared_direction_is_held_to(direction: Any, never: str) -> None:
    record = Metric(_share, "mine", (Needs.PERTURBED,), monotone={Needs.PERTURBED: direction})
    message = rf"its record says monotone=\{{Needs\.PERTURBED: {direction}\}}, so that it never {never}\n"
    with pytest.raises(AssertionError, match=message):
        check_metric(record, examples=FEW)


def _sweep_first(perturbed_by_setting: Sweep) -> float:
    first = next(iter(perturbed_by_setting.values()))
    return float(first.mean()) if first.size and not np.isnan(first).any() else math.nan


def test_the_order_of_settings_does_not_matter_either() -> None:
    with pytest.raises(AssertionError, match=r"metric '_sweep_first' depends on the order of the samples"):
        check_metric(_sweep_first, examples=FEW)


def test_the_declared_value_for_scores_that_nothing_changes_is_held_to() -> None:
    record = Metric(good, "mine", (Needs.CLEAN, Needs.PERTURBED), unchanged=0.5)
    with pytest.raises(
        AssertionError, match=r"metric 'mine' returned 0\.0 when nothing changes a score: expected 0\.5, as declared"
    ):
        check_metric(record)


def _share_of_gain(clean: Array, no_image: Array) -> float:
    return float((clean - no_image).mean()) if clean.size else math.nan


def test_the_declared_value_for_images_that_add_nothing_is_held_to() -> None:
    record = Metric(_share_of_gain, "mine", (Needs.CLEAN, Needs.NO_IMAGE), blind=math.nan)
    with pytest.raises(AssertionError, match=r"metric 'mine' returned 0\.0 when images add nothing: expected nan, as declared"):
        check_metric(record, examples=FEW)


def test_a_formula_that_is_not_the_one_of_its_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(good, "__module__", metrics.accuracy_drop.__module__)
    record = Metric(good, "accuracy_drop", (Needs.CLEAN, Needs.PERTURBED))
    with pytest.raises(
        AssertionError, match=r"metric 'accuracy_drop' returned .*: expected .*, by its formula in plain Python\n"
    ):
        check_metric(record, check="oracle")


def test_a_metric_that_fails_now_and_then_is_told_so() -> None:
    calls = []

    def moody(perturbed: Array) -> float:
        calls.append(1)
        return np.float64(0.0) if len(calls) == 4 else 0.0

    with pytest.raises(
        AssertionError, match="metric 'moody' fails for some scores and not when it is asked for the same ones again"
    ):
        check_metric(moody, check="float")


def test_messages_carry_nothing_of_hypothesis() -> None:
    with pytest.raises(AssertionError) as caught:
        check_metric(_first, examples=FEW)
    assert not getattr(caught.value, "__notes__", [])
    assert "Falsifying" not in str(caught.value)


def test_what_a_metric_raised_is_behind_the_message() -> None:
    with pytest.raises(AssertionError) as caught:
        check_metric(_broken, examples=FEW)
    assert isinstance(caught.value.__cause__, KeyError)
