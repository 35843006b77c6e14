"""Published models, as they are taken for true, give the published numbers when they are measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.evaluation.power import profiles, published
from tests.unit.evaluation.conftest import present

PUBLISHED = {
    "MMBench/Qwen3-VL-8B": {
        "clean_accuracy": 0.902,
        "worst_case_drop": 0.302,
        "visual_gain": 0.482,
        "severe_failure_rate": 0.053,
    },
    "MMMU-Pro/Gemma-3-12B": {
        "clean_accuracy": 0.330,
        "worst_case_drop": 0.099,
        "visual_gain": 0.108,
        "severe_failure_rate": 0.271,
    },
}
"""VLM-RobustBench Table 3."""


def test_there_are_nine_models_on_two_benchmarks_with_a_drop_for_each_setting() -> None:
    profiles = published.published_profiles()
    assert len(profiles) == 18
    assert {profile.samples for profile in profiles.values()} == {853, 324}
    assert all(list(profile.drops) == perturbations.names("robustbench") for profile in profiles.values())


@pytest.mark.parametrize("name", PUBLISHED)
def test_measured_again_a_profile_gives_the_published_numbers(name: str) -> None:
    """Means of 60 runs; that of the most uncertain, the share of severe failures, has a standard error of 1.8 pp."""
    profile, rng = published.published_profiles()[name], np.random.default_rng(0)
    drawn = [profile.draw(profile.samples, ("corruptions",), rng)["corruptions"] for _ in range(60)]
    for metric, value in PUBLISHED[name].items():
        about = replace(metrics.get(metric), interval=None, note=None)
        measured = np.mean([metrics.estimate(about, table).value for table in drawn])
        assert measured == pytest.approx(value, abs=0.04 if metric == "severe_failure_rate" else 0.025), metric


def test_measured_drops_are_the_published_ones_and_noise_is_taken_out_of_the_true_ones() -> None:
    profile = published.published_profiles()["MMMU-Pro/Molmo2-4B"]
    assert profile.measured["upsample:high"] == pytest.approx(0.056)  # Table 14
    low = [name for name in profile.drops if name.endswith(":low")]
    assert np.std([profile.drops[name] for name in low]) < np.std([profile.measured[name] for name in low])


def test_flips_are_those_of_the_profile_and_fall_on_the_same_samples() -> None:
    profile = published.nothing_lost()
    table = profile.draw(20_000, ("corruptions",), np.random.default_rng(0))["corruptions"]
    lost = table.clean[:, None] - table.matrix()
    assert (lost > 0.0).mean() == pytest.approx(profiles.CHURN, abs=0.001)
    assert (lost < 0.0).mean() == pytest.approx(profiles.CHURN, abs=0.001)
    alone = profiles.CHURN * (1.0 - profiles.CHURN) / 133
    assert (lost > 0.0).mean(axis=1).var() > 3.0 * alone  # of independent flips it would be the binomial variance


def test_the_population_without_chance_has_the_true_values() -> None:
    profile = published.published_profiles()["MMBench/Qwen3-VL-8B"]
    table = profile.exact(4_000, ("corruptions",))["corruptions"]
    assert metrics.estimate("clean_accuracy", table).value == pytest.approx(profile.clean, abs=1e-3)
    assert metrics.estimate("visual_gain", table).value == pytest.approx(profile.clean - profile.blind, abs=1e-3)
    assert metrics.estimate("worst_case_drop", table).value == pytest.approx(max(profile.drops.values()), abs=1e-3)
    assert metrics.estimate("mean_drop", table).value == pytest.approx(sum(profile.drops.values()) / 133, abs=1e-3)


def test_an_equal_model_has_the_same_answers_or_a_hundredth_of_others() -> None:
    same = published.nothing_lost(churn=0.0).draw(500, ("corruptions",), np.random.default_rng(0))["corruptions"]
    assert metrics.estimate("mean_baseline_drop", same).value == 0.0
    other = published.nothing_lost(churn=0.01).draw(5_000, ("corruptions",), np.random.default_rng(0))["corruptions"]
    changed = [(other.scores(name) != scores).mean() for name, scores in (other.baseline_by_setting or {}).items()]
    assert np.mean(changed) == pytest.approx(0.01, abs=0.001)
    assert metrics.estimate("mean_baseline_drop", other).value == pytest.approx(0.0, abs=0.001)


def test_patches_of_a_neutral_model_have_no_excess() -> None:
    table = published.nothing_lost().draw(20_000, ("patches",), np.random.default_rng(0))["patches"]
    assert metrics.estimate("pcri_excess", table, setting="patches:3").value == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("name", ["neutral-independent", "neutral-guesses", "neutral-identical", "typical"])
def test_neutral_models_do_as_well_on_patches_as_on_attempts(name: str) -> None:
    profile = published.typical() if name == "typical" else published.context_profile(name)
    table = profile.draw(20_000, ("patches",), np.random.default_rng(0))["patches"]
    assert (present(table.whole_attempts)[:, 0] == table.clean).all()
    for setting in ("patches:2", "patches:3"):
        assert metrics.estimate("pcri_matched", table, setting=setting).value == pytest.approx(0.0, abs=0.01)


def test_needing_context_and_being_distracted_cost_what_they_say() -> None:
    """Right on 60 % of pictures and on 95 % of best patches: 1 - .95 / .6. Of open questions the need is the index."""
    table = published.context_profile("distracted").draw(20_000, ("patches",), np.random.default_rng(0))["patches"]
    assert metrics.estimate("pcri_matched", table, setting="patches:2").value == pytest.approx(1.0 - 0.95 / 0.6, abs=0.02)
    needs = replace(published.context_profile("needs-context"), guess=0.001)
    table = needs.draw(20_000, ("patches",), np.random.default_rng(0))["patches"]
    assert metrics.estimate("pcri_matched", table, setting="patches:2").value == pytest.approx(0.21, abs=0.01)


def test_the_typical_model_has_the_published_index_where_it_is_right_on_60_percent() -> None:
    """PCRI Table 5, mean over 17 models and five benchmarks of the raw index: -0.153 at 2 x 2, and -0.238 at 3 x 3."""
    table = replace(published.typical(), clean=0.6).draw(40_000, ("patches",), np.random.default_rng(0))["patches"]
    for setting, index in (("patches:2", -0.153), ("patches:3", -0.238)):
        assert metrics.estimate("pcri", table, setting=setting).value == pytest.approx(index, abs=0.015)


def test_a_family_finds_its_models() -> None:
    with pytest.raises(UnknownName, match=r"Did you mean one like 'M[A-Za-z-]*/Gemma-3-12B'"):
        published.profile("gema")


def test_an_unknown_profile_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'MMBench/Qwen3-VL-8B'"):
        published.profile("MMBench/Qwen3-VL-8C")
