from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.metrics import Metric, Needs, ScoreTable, accuracy_drop, estimate, metric
from pytest_vlmrobust.metrics.estimation import describe, number, plain
from pytest_vlmrobust.metrics.record import REGISTRY
from pytest_vlmrobust.metrics.statistics.means import exact_interval

Array = NDArray[np.float64]


def _scores(right: int, of: int = 100) -> Array:
    return np.array([1.0] * right + [0.0] * (of - right))


CLEAN = _scores(90)


def _is_unknown(result: Estimate) -> bool:
    return all(math.isnan(number) for number in (result.value, result.low, result.high, result.confidence))


def test_a_cell_metric() -> None:
    result = estimate("accuracy_drop", ScoreTable(CLEAN, {"fog:low": _scores(80)}), "fog:low")
    assert result == Estimate(0.1, 100, result.low, result.high, 0.90)
    # without helpful flips, the bounds are those of the share of harmful ones
    assert (result.low, result.high) == pytest.approx(exact_interval(10, 100))
    assert type(result.value) is type(result.low) is type(result.high) is float


def test_the_setting_may_be_a_setting() -> None:
    table = ScoreTable(CLEAN, {"fog:low": _scores(80)})
    assert estimate("accuracy", table, Setting.parse("fog:low")).value == 0.8


def test_clean_and_no_image_are_settings_too() -> None:
    table = ScoreTable(CLEAN, no_image=_scores(40))
    assert estimate("accuracy", table, "clean").value == 0.9
    assert estimate("accuracy", table, "no_image").value == 0.4


def test_a_sweep_metric_names_the_worst_setting_and_its_coverage() -> None:
    table = ScoreTable(CLEAN, {"fog:low": _scores(85), "fog:high": _scores(60), "flip_v": _scores(90)})
    result = estimate("worst_case_drop", table)
    assert result.value == 0.3
    assert result.reason == "worst at fog:high (30.0 pp when cross-validated); over 3 of 133 settings"
    assert estimate("worst_at_low", table).reason == "worst at fog:low; over 1 of 42 low settings"
    assert estimate("mean_drop", table).reason == "over 3 of 133 settings"


def test_a_full_sweep_needs_no_remark(sweep: tuple[Array, dict[str, Array]]) -> None:
    clean, by_setting = sweep
    assert estimate("severe_failure_rate", ScoreTable(clean, by_setting)).reason == ""
    assert estimate("benign_at_low", ScoreTable(clean, by_setting)).reason == ""
    assert estimate("mean_severity_violation", ScoreTable(clean, by_setting)).reason == ""


def test_more_than_the_published_settings_is_said() -> None:
    table = ScoreTable(CLEAN, {f"mine{index}:low": CLEAN for index in range(43)})
    assert estimate("benign_at_low", table).reason == "over 43 low settings, more than the 42 published ones"


def test_perturbations_without_all_levels_are_counted_out() -> None:
    fog = {f"fog:{level}": _scores(right) for level, right in (("low", 89), ("mid", 88), ("high", 80))}
    table = ScoreTable(CLEAN, fog | {"blur:low": _scores(85), "flip_v": _scores(85)})
    assert estimate("mean_severity_violation", table).reason == "over 1 of 42 perturbations with three levels"


def test_constant_perturbations_are_named() -> None:
    constant = {f"fog:{level}": _scores(89) for level in ("low", "mid", "high")}
    rising = {f"blur:{level}": _scores(right) for level, right in (("low", 89), ("mid", 88), ("high", 80))}
    result = estimate("mean_severity_correlation", ScoreTable(CLEAN, constant | rising))
    assert result.value == 1.0
    assert result.reason.startswith("left out fog: the same drop at each level; over 2 of 42")
    undefined = estimate("mean_severity_correlation", ScoreTable(CLEAN, constant))
    assert _is_unknown(undefined)
    assert undefined.reason.startswith("undefined: needs at least one perturbation at all three levels whose drops differ")


def test_missing_scores_are_counted_and_named() -> None:
    fog, blur = _scores(80), _scores(80)
    fog[:3] = math.nan
    blur[2] = math.nan
    table = ScoreTable(CLEAN, {"fog:low": fog, "blur:low": blur})
    result = estimate("accuracy_drop", table, "fog:low")
    assert _is_unknown(result)
    assert (result.n, result.valid) == (97, True)
    assert result.reason == "scores of 3 of 100 samples are missing: 3 in fog:low"
    assert estimate("worst_case_drop", table).reason == "scores of 3 of 100 samples are missing: 3 in fog:low, 1 in blur:low"


def test_missing_scores_elsewhere_do_not_matter() -> None:
    holed = np.full(100, math.nan)
    table = ScoreTable(CLEAN, {"fog:low": _scores(80), "fog:high": holed}, no_image=holed)
    assert estimate("accuracy_drop", table, "fog:low").value == 0.1
    assert estimate("worst_at_low", table).value == 0.1
    assert math.isnan(estimate("worst_case_drop", table).value)


def test_missing_patches_are_found() -> None:
    patches = np.ones((100, 4))
    patches[7, 3] = math.nan
    result = estimate("pcri", ScoreTable(CLEAN, patches_by_setting={"patches:2": patches}, chance=0.25), "patches:2")
    assert result.reason == "scores of 1 of 100 samples are missing: 1 in patches:2"


@pytest.mark.cases(
    ("name", "setting", "reason"),
    [
        ("visual_gain", None, "there are no scores without images"),
        ("relative_corruption_error", "fog:low", "there are no scores without images"),
        ("mean_corruption_error", None, "there are no scores of a reference model"),
        ("position_gap", "fog:low", "there are no positions of the targets"),
        ("split_group_gap", None, "there are no groups of people"),
        ("hint_gain", None, "there are no scores without the hint"),
        ("thinking_gain", None, "there are no scores of the model without thinking"),
        ("absolute_continuous_error", None, "there are no scores under any setting 'resolution:<pixels>'"),
    ],
)
def test_what_was_not_measured_is_named(name: str, setting: str | None, reason: str) -> None:
    result = estimate(name, ScoreTable(CLEAN, {"fog:low": CLEAN}), setting)
    assert _is_unknown(result)
    assert result.reason == reason


def test_a_sweep_without_settings() -> None:
    assert estimate("worst_case_drop", ScoreTable(CLEAN)).reason == "there are no scores under any setting"


def test_no_samples() -> None:
    result = estimate("accuracy_drop", ScoreTable(np.zeros(0), {"fog:low": np.zeros(0)}), "fog:low")
    assert _is_unknown(result)
    assert (result.n, result.reason) == (0, "no samples")


def test_a_reference_that_lacks_settings_is_named() -> None:
    table = ScoreTable(CLEAN, {"fog:low": CLEAN, "fog:mid": CLEAN}, reference_by_setting={"fog:low": _scores(50)})
    assert estimate("mean_corruption_error", table).reason == "the reference model was not measured under fog:mid"


def test_a_reference_without_errors_makes_the_ratio_invalid() -> None:
    perfect = {"fog:low": np.ones(100)}
    result = estimate("mean_corruption_error", ScoreTable(CLEAN, {"fog:low": CLEAN}, reference_by_setting=perfect))
    assert not result.valid
    assert result.reason.startswith("the reference model makes no error under fog: the ratio is undefined")


def test_low_metrics_do_not_apply_without_low_settings() -> None:
    result = estimate("worst_at_low", ScoreTable(CLEAN, {"flip_v": CLEAN, "fog:high": CLEAN}))
    assert _is_unknown(result)
    assert not result.valid
    assert result.reason == "none of the 2 settings counts: needs at least one setting at level low"


def test_a_small_visual_gain_makes_rce_invalid() -> None:
    table = ScoreTable(CLEAN, {"fog:low": _scores(85)}, no_image=_scores(89))
    result = estimate("relative_corruption_error", table, "fog:low")
    assert not result.valid
    assert result.value == pytest.approx(5.0)
    assert result.reason == (
        "the visual gain of 1.0 pp is not above 2.0 pp (the larger of 1 pp and 2 standard errors): a share of it is undefined"
    )


def test_one_sample_shows_no_visual_gain() -> None:
    table = ScoreTable(np.ones(1), {"fog:low": np.ones(1)}, no_image=np.zeros(1))
    reason = estimate("relative_corruption_error", table, "fog:low").reason
    assert reason == "too few samples for a standard error of the visual gain: a share of it is undefined"


def test_one_sample_shows_no_score_above_chance() -> None:
    table = ScoreTable(np.ones(1), patches_by_setting={"patches:2": np.ones((1, 2))}, chance=0.25)
    reason = estimate("pcri", table, "patches:2").reason
    assert reason.startswith("too few samples for a standard error of the full-image score")


def test_a_negative_visual_gain_makes_rce_undefined() -> None:
    result = estimate("mean_relative_corruption_error", ScoreTable(CLEAN, {"fog:low": CLEAN}, no_image=_scores(95)))
    assert _is_unknown(result)
    assert not result.valid
    assert result.reason.startswith("the visual gain of -5.0 pp is not above")


def test_a_clear_visual_gain_makes_rce_valid() -> None:
    result = estimate("relative_corruption_error", ScoreTable(CLEAN, {"fog:low": _scores(80)}, no_image=_scores(40)), "fog:low")
    assert result.value == pytest.approx(0.2)
    assert (result.valid, result.reason) == (True, "")
    assert 0.1 < result.low < 0.2 < result.high < 0.35


@pytest.mark.parametrize(
    ("chance", "valid", "reason"),
    [
        (0.25, True, ""),
        (
            0.35,
            False,
            "the full-image score of 40.0 % is below 44.8 % (chance 35.0 % plus the larger of 1 pp and 2 standard errors)",
        ),
        (None, False, "the chance level of the dataset is unknown, so the full-image score cannot be compared with it"),
    ],
)
def test_patch_indices_need_a_score_above_chance(chance: float | None, valid: bool, reason: str) -> None:
    patches = {"patches:2": np.stack([_scores(30, 100), np.roll(_scores(30, 100), 50)], axis=1)}
    result = estimate("pcri", ScoreTable(_scores(40), patches_by_setting=patches, chance=chance), "patches:2")
    assert result.valid is valid
    assert result.reason.startswith(reason)
    assert result.value == pytest.approx(1 - 60 / 40)
    assert result.low < result.value < result.high < 0


def test_curves_come_from_resolution_settings() -> None:
    curve = {f"resolution:{edge}": _scores(right) for edge, right in ((448, 60), (112, 40), (224, 55))}
    table = ScoreTable(CLEAN, curve | {"fog:low": _scores(1)})
    assert estimate("absolute_continuous_error", table).value == pytest.approx(0.2)
    assert estimate("resolution_correlation", table).value == 1.0


def test_a_sweep_metric_has_no_setting() -> None:
    with pytest.raises(
        UsageError, match="worst_case_drop is a metric of a whole sweep, not of the setting 'fog:low': leave setting out"
    ):
        estimate("worst_case_drop", ScoreTable(CLEAN, {"fog:low": CLEAN}), "fog:low")


def test_a_cell_metric_needs_a_setting() -> None:
    with pytest.raises(UsageError, match="accuracy_drop is a metric of one setting: pass setting="):
        estimate("accuracy_drop", ScoreTable(CLEAN, {"fog:low": CLEAN}))


def test_names_and_levels_are_checked() -> None:
    with pytest.raises(UnknownName, match=r"unknown metric 'acuracy'\. Did you mean 'accuracy'\?"):
        estimate("acuracy", ScoreTable(CLEAN), "clean")
    with pytest.raises(ValueError, match="confidence is 90: expected a number between 0 and 1"):
        estimate("accuracy", ScoreTable(CLEAN), "clean", confidence=90)
    with pytest.raises(UsageError, match="the table has no scores of the setting 'fog:low'"):
        estimate("accuracy", ScoreTable(CLEAN), "fog:low")


def test_a_metric_that_returns_no_float_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGISTRY, "_things", dict(REGISTRY._things))

    @metric(needs=(Needs.CLEAN,))
    def numpy_mean(clean: Array) -> float:
        """The mean, as numpy has it."""
        return clean.mean()  # type: ignore[no-any-return]  # that is the point

    message = (
        r"metric 'numpy_mean' returned np\.float64\(0\.9\) of type float64: expected a built-in float\. Wrap what it returns"
    )
    with pytest.raises(UsageError, match=message):
        estimate("numpy_mean", ScoreTable(CLEAN))


def test_the_value_is_the_functions_own(sweep: tuple[Array, dict[str, Array]]) -> None:
    clean, by_setting = sweep
    table = ScoreTable(clean, by_setting)
    for setting, scores in list(by_setting.items())[:5]:
        assert estimate("accuracy_drop", table, setting).value == accuracy_drop(clean, scores)


def test_the_worst_setting_comes_with_an_estimate_free_of_the_winners_curse() -> None:
    """Forty settings of pure noise: the largest drop is luck, and the note says what is left of it."""
    rng = np.random.default_rng(4)
    clean = np.ones(300)
    table = ScoreTable(clean, {f"kind{index}": (rng.random(300) > 0.02).astype(float) for index in range(40)})
    result = estimate("worst_case_drop", table)
    note = re.fullmatch(r"worst at (kind\d+) \((-?\d+\.\d) pp when cross-validated\); over 40 of 133 settings", result.reason)
    assert note
    assert result.value > 0.035
    assert abs(float(note[2]) / 100 - 0.02) < 0.015
    again = estimate("worst_case_drop", table)
    assert again.reason == result.reason


def test_few_samples_are_not_cross_validated() -> None:
    table = ScoreTable(np.ones(20), {"fog:low": _scores(15, 20), "flip_v": np.ones(20)})
    assert estimate("worst_case_drop", table).reason == "worst at fog:low; over 2 of 133 settings"


def test_a_baseline_that_was_not_measured_is_named() -> None:
    table = ScoreTable(CLEAN, {"fog:low": CLEAN}, baseline_by_setting={"fog:high": CLEAN})
    assert estimate("baseline_drop", table, "fog:low").reason == "there are no scores of an earlier run under this setting"
    assert estimate("drop_increase", table, "fog:low").reason == "there are no clean scores of an earlier run"
    holed = ScoreTable(CLEAN, {"fog:low": CLEAN}, baseline_by_setting={"fog:low": np.where(np.arange(100) < 3, math.nan, 1.0)})
    reason = "scores of 3 of 100 samples are missing: 3 in baseline fog:low"
    assert estimate("baseline_drop", holed, "fog:low").reason == reason


NEEDS = (Needs.CLEAN, Needs.PERTURBED, Needs.NO_IMAGE)


def bare(*_: Any) -> float:
    return math.nan


def documented(*_: Any) -> float:
    """How far a thing moves.

    Beware of :func:`bare` and
    of ``small`` samples.

    Formula: ``mean(clean) -
    mean(perturbed)``

    Args:
        clean: scores.

    Returns:
        A fraction; NaN for
        no samples.

    Raises:
        ValueError: unequal lengths.

    Source: a paper.

    >>> documented()
    nan
    """
    return math.nan


def test_a_docstring_is_taken_apart() -> None:
    about = describe(Metric(documented, "mine", NEEDS))
    assert (about.name, about.summary) == ("mine", "How far a thing moves.")
    assert about.formula == "mean(clean) - mean(perturbed)"
    assert about.caveats == ("Beware of `bare` and of `small` samples.",)
    assert dict(about.facts)["value"] == "A fraction; NaN for no samples."


def test_facts_are_those_of_the_record() -> None:
    record = Metric(
        documented,
        "mine",
        NEEDS,
        better="lower",
        bounds=(-math.inf, 1.0),
        perfect=0.0,
        blind=math.nan,
        validity="there is something",
        unsuited="Where there is little, use ``accuracy``.",
        monotone={Needs.CLEAN: 1},
        not_monotone={Needs.NO_IMAGE: "it may"},
    )
    facts = dict(describe(record).facts)
    assert facts["reads"] == "`clean`, `perturbed`, `no_image`"
    assert facts["bounds"] == "-∞ … 1"
    assert (facts["better"], facts["perfect model"], facts["no visual gain"]) == ("lower", "0", "undefined")
    assert "nothing changes" not in facts
    assert facts["moves"] == "rises with `clean`; falls with `perturbed`; moves either way with `no_image` (it may)"
    assert facts["interval"].startswith("none: a rule judges its value (`judge: point`)")
    assert facts["when not to use"] == "Where there is little, use `accuracy`."
    assert (facts["of"], facts["suite"], facts["defined when"]) == ("one setting", "every", "there is something")


def test_a_metric_without_a_docstring_has_facts_all_the_same() -> None:
    about = describe(Metric(bare, "mine", (Needs.CLEAN,)))
    assert (about.summary, about.formula, about.caveats) == ("", "", ())
    assert dict(about.facts)["of"] == "all settings of a model on a dataset"
    assert "when not to use" not in dict(about.facts)


def test_an_interval_without_a_docstring_is_its_own() -> None:
    def interval(*_: Any) -> tuple[float, float]:
        return 0.0, 1.0

    assert dict(describe(Metric(bare, "mine", NEEDS, interval=interval)).facts)["interval"] == "its own"


@pytest.mark.cases("width", [60, 100])
@pytest.mark.cases("name", metrics.names())
def test_text_keeps_its_width(name: str, width: int) -> None:
    about = describe(metrics.get(name))
    text = about.text(width)
    assert max(map(len, text.splitlines())) <= width
    said = " ".join(text.split())
    assert about.formula
    assert all(" ".join(part.split()) in said for part in (about.summary, *about.caveats) if "-" not in part)


@pytest.mark.cases(
    ("name", "warning"),
    [
        ("pcri", "n*n attempts beat one even for a model that guesses"),
        ("absolute_continuous_error", "on a flat curve it is all noise"),
        ("worst_case_drop", "too large on average (the winner's curse)"),
        ("relative_corruption_error", "The smaller the visual gain, the noisier"),
        ("mean_corruption_error", "only with the same reference model, samples and settings"),
    ],
)
def test_what_to_beware_of_is_said(name: str, warning: str) -> None:
    assert warning in " ".join(describe(metrics.get(name)).caveats)


def test_numbers_and_roles_in_words() -> None:
    assert [number(value) for value in (0.5, -math.inf, math.nan)] == ["0.5", "-∞", "undefined"]
    assert plain(":func:`~pytest_vlmrobust.metrics.pcri`\n and ``x``") == "`pytest_vlmrobust.metrics.pcri` and `x`"
