from __future__ import annotations

import math
from pathlib import Path

import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.errors import PolicyError
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics, policy_for, thresholds_file

POLICY = "version: 1\nrules:\n  - {id: mine, metric: accuracy_drop, max: 1pp}\n"
MODEL = ModelRef("model", "scripted", "")


def test_without_files_a_model_has_the_policy_it_names_else_the_default(tmp_path: Path) -> None:
    plain = policy_for(MODEL, (), tmp_path.joinpath, tmp_path)
    assert [file.name.rpartition("/")[2] for file in plain.files] == ["default.yaml"]
    tiny = policy_for(ModelRef("tiny", "scripted", "", policy="tiny"), (), tmp_path.joinpath, tmp_path)
    assert [file.name.rpartition("/")[2] for file in tiny.files] == ["tiny.yaml"]


def test_files_given_take_the_place_of_both(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(POLICY)
    policy = policy_for(ModelRef("tiny", "scripted", "", policy="tiny"), ("mine.yaml",), tmp_path.joinpath, tmp_path)
    assert [file.name for file in policy.files] == ["mine.yaml"]
    assert [rule.id for rule in policy.rules] == ["mine"]


def test_later_files_add_to_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(POLICY)
    policy = policy_for(MODEL, ("default", "mine.yaml"), tmp_path.joinpath, tmp_path)
    assert policy.rules[-1].id == "mine"
    assert len(policy.rules) > 1


def test_a_file_hides_a_shipped_name(tmp_path: Path) -> None:
    (tmp_path / "default").write_text(POLICY)
    assert thresholds_file("default", tmp_path.joinpath) == tmp_path / "default"


def test_what_is_neither_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as caught:
        thresholds_file("defualt", tmp_path.joinpath)
    assert str(caught.value).startswith(f"--vlm-thresholds 'defualt': there is no file {str(tmp_path / 'defualt')!r}")
    shipped = (
        "ci-smoke, confident, default, observatory, options, parity, pcri, rci, resbench, robustbench, strict, tiny, "
        "typographic, wording"
    )
    assert f"Did you mean 'default'? Shipped: {shipped}" in str(caught.value)


def test_bounds_are_checked_against_what_each_metric_can_be() -> None:
    bounds = {name: about.bounds for name, about in known_metrics().items()}
    unbounded = {name for name, ends in bounds.items() if ends == (-math.inf, math.inf)}
    assert " ".join(sorted(unbounded)) == (
        "corpus_drop corpus_score mean_relative_corruption_error pcri_excess relative_corruption_error "
        "relative_mean_corruption_error resolution_slope resolution_slope.macro scale_gain"
    )
    assert bounds["accuracy_drop"] == bounds["label_preserving_drop"] == bounds["unparsed_increase"] == (-1.0, 1.0)
    assert bounds["corpus_pcri"] == bounds["pcri"] == (-math.inf, 1.0)
    assert bounds["grid_distance"] == (0.0, math.inf)


def test_rules_may_be_about_every_metric_and_the_label_preserving_drop() -> None:
    facts = known_metrics()
    whole = {"corpus_score", "corpus_drop", "corpus_pcri"}
    curves = [*(f"resolution_{name}" for name in ("accuracy", "correlation", "net", "slope", "wobble")), "largest_downward_step"]
    macro = {f"{name}.macro" for name in (*curves, "absolute_continuous_error", "relative_continuous_error")}
    beside = {
        "unparsed_increase",
        "refused_share",
        "answer_change_rate",
        "yes_rate_shift",
        "attack_rate",
        "typographic_word_drop",
        "text_preference",
        "normalised_accuracy",
        "directional_accuracy",
        "directional_sensitivity",
        "fixation_rate",
        "grid_distance",
        "box_coverage",
        *metrics.FAMILY_METRICS,
    }
    assert set(facts) == {*metrics.names(), "label_preserving_drop", "preprocessing_gain", *whole, *macro, *beside}
    assert not any(facts[name].interval for name in macro)
    assert (facts["label_preserving_drop"].better, facts["label_preserving_drop"].scope) == ("lower", "cell")
    assert facts["worst_case_drop"].scope == "sweep"
