"""Bounds of corpus metrics where they can be worked by hand: the accuracy of independent samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust.backends import failed_prediction
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.prediction import Prediction, Request, Score
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge.corpus import bounds_of_drop, bounds_of_index, bounds_of_value
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.metrics.statistics.clusters import critical_value
from pytest_vlmrobust.policies import Policy, load_policy
from pytest_vlmrobust.scoring import CORPUS_METRICS, Sums, corpus_score
from tests.unit.evaluation.conftest import MemoryDataset, MemoryImage, World, cell, measure, picture, present, sample

N = 40
SAMPLES = [Sample(f"q{number}", (), "?", "yes", "yes_no") for number in range(N)]


def sums(values: Sequence[float], samples: Sequence[Sample] = SAMPLES) -> Sums:
    said = [Prediction("yes", "generate")] * len(values)
    return present(corpus_score("accuracy", samples, said, [Score(value, "rule") for value in values]).sums)


def t_bound(values: Sequence[float], side: float) -> float:
    spread = np.std(values, ddof=1) / math.sqrt(len(values))
    return float(np.mean(values) + side * critical_value(0.05, len(values) - 1) * spread)


def test_a_value_is_bounded_with_one_answer_more_against_each_bound() -> None:
    right = [1.0] * 30 + [0.0] * 10
    low, high = bounds_of_value(sums(right), SAMPLES)(0.90)
    assert (low, high) == pytest.approx((t_bound([*right, 0.0], -1.0), t_bound([*right, 1.0], 1.0)))


def test_a_drop_is_bounded_by_pairs_with_one_pair_more_against_each_bound() -> None:
    clean, perturbed = [1.0] * 35 + [0.0] * 5, [1.0] * 30 + [0.0] * 9 + [1.0]
    lost = [before - after for before, after in zip(clean, perturbed, strict=True)]
    low, high = bounds_of_drop(sums(clean), sums(perturbed), SAMPLES)(0.90)
    assert (low, high) == pytest.approx((t_bound([*lost, -1.0], -1.0), t_bound([*lost, 1.0], 1.0)))


def test_an_index_of_patches_is_bounded_on_the_same_sides() -> None:
    clean, perturbed = [1.0] * 35 + [0.0] * 5, [1.0] * 30 + [0.0] * 9 + [1.0]
    low, high = bounds_of_index(sums(clean), sums(perturbed), SAMPLES)(0.90)
    drop_low, drop_high = bounds_of_drop(sums(clean), sums(perturbed), SAMPLES)(0.90)
    assert low == pytest.approx(drop_low / (35 / 40), abs=0.02)
    assert high == pytest.approx(drop_high / (35 / 40), abs=0.02)
    assert bounds_of_index(sums([1.0] * N), sums([0.0] * N), SAMPLES)(0.999)[1] == 1.0


def test_bounds_stay_where_values_can_be() -> None:
    assert bounds_of_value(sums([1.0] * N), SAMPLES)(0.90)[1] == 1.0
    assert bounds_of_value(sums([0.0] * N), SAMPLES)(0.90)[0] == 0.0


def test_samples_of_one_picture_count_together() -> None:
    pairs = [Sample(f"q{number}", (), "?", "yes", "yes_no", group=f"g{number // 4}") for number in range(N)]
    right = [1.0, 1.0, 1.0, 1.0] * 7 + [0.0, 0.0, 0.0, 0.0] * 3
    apart, together = (bounds_of_value(sums(right, samples), samples)(0.90) for samples in (SAMPLES, pairs))
    assert together[1] - together[0] > 1.7 * (apart[1] - apart[0])


@pytest.fixture(autouse=True)
def pope(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the dataset one that publishes POPE's F1."""
    monkeypatch.setattr(MemoryDataset, "corpus_metric", "pope_f1", raising=False)


def furnish(world: World) -> None:
    facts = {"task": "yes_no", "options": {}}
    world.samples = [sample(n, images=(MemoryImage(picture(n)),), target="yes" if n < 4 else "no", **facts) for n in range(6)]


def answer(request: Request) -> str:
    """Answers right, but No to q0 and q1 when mirrored; of patches, right for the second one of each picture only."""
    target = "Yes" if int(request.sample_id[1:]) < 4 else "No"
    other = "No" if target == "Yes" else "Yes"
    if request.setting == "flip_v" and request.sample_id in {"q0", "q1"}:
        return "No"
    return target if request.setting != "patches:2" or request.images[0].sum() % 2 else other


def measured(record: Record) -> dict[str, float]:
    return {entry.metric: entry.value for entry in record.measures if entry.metric.startswith("corpus")}


def judge(world: World) -> Judge:
    return Judge(world.evaluator(), {"model": Policy()}, date(2026, 6, 1))


def test_a_cell_has_the_value_its_parts_and_the_drop_from_clean(world: World) -> None:
    furnish(world)
    world.model.answer = answer
    clean, mirrored = (judge(world).run(cell(setting)) for setting in ("clean", "flip_v"))
    assert measured(clean)["corpus_score"] == pytest.approx(1.0)
    assert "corpus_drop" not in measured(clean)
    values = measured(mirrored)  # precision 1, recall 1/2
    assert values["corpus_score"] == pytest.approx(2 / 3)
    assert values["corpus_drop"] == pytest.approx(1 / 3)
    assert values["corpus_score.recall"] == pytest.approx(0.5)


def test_of_patches_the_best_one_of_each_sample_counts_by_the_data_sets_own_metric(world: World) -> None:
    furnish(world)
    world.model.answer = answer
    judged = judge(world)
    record = judged.run(cell("patches:2"))
    best = judged.evaluator.result(cell("patches:2")).values
    hits, misses, false_alarms = best[:4].sum(), (1 - best[:4]).sum(), (1 - best[4:]).sum()
    expected = 2 * hits / (2 * hits + misses + false_alarms)
    assert measured(record)["corpus_score"] == pytest.approx(expected)
    assert measured(record)["corpus_pcri"] == pytest.approx(1 - expected)


def test_below_chance_there_is_no_index(world: World) -> None:
    """Whole pictures at 4 of 6 are no better than chance, 1/2, by 2 standard errors: patches that are all right say nothing."""
    furnish(world)
    world.model.answer = lambda request: "Yes" if request.setting == "clean" else answer(dataclasses.replace(request, setting=""))
    record = judge(world).run(cell("patches:2"))
    index = measure(record, "corpus_pcri")
    assert math.isnan(index.value)
    assert "the full-image score of 66.7 % is below" in index.reason
    assert measure(record, "corpus_score").value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("failing", "setting", "metrics"),
    [
        ("patches:2", "patches:2", ["corpus_score", "corpus_pcri"]),
        ("flip_v", "flip_v", ["corpus_score", "corpus_drop"]),
        ("clean", "flip_v", ["corpus_drop"]),
        ("clean", "clean", ["corpus_score"]),
    ],
)
def test_a_missing_answer_leaves_the_value_undefined(world: World, failing: str, setting: str, metrics: list[str]) -> None:
    """The rest may be easier: here the only two questions that a mirror loses."""
    furnish(world)
    world.model.answer = lambda request: (
        failed_prediction("down") if request.setting == failing and request.sample_id in {"q0", "q1"} else answer(request)
    )
    record = judge(world).run(cell(setting))
    assert [math.isnan(measure(record, metric).value) for metric in metrics] == [True] * len(metrics)
    assert not [name for name in measured(record) if name.startswith("corpus_score.") and setting == failing]


def test_a_mean_of_scores_is_not_said_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryDataset, "corpus_metric", "accuracy", raising=False)
    assert measured(judge(world).run(cell("flip_v"))) == {}


def test_values_drops_and_indices_have_intervals(world: World) -> None:
    furnish(world)
    world.model.answer = answer
    judged = judge(world)
    mirrored, patched = judged.run(cell("flip_v")), judged.run(cell("patches:2"))
    named = ((mirrored, "corpus_score"), (mirrored, "corpus_drop"), (patched, "corpus_pcri"))
    for record, metric in named:
        measured = measure(record, metric)
        assert measured.low < measured.value < measured.high, metric
    drop = measure(mirrored, "corpus_drop")
    assert drop.low >= -1.0
    assert math.isnan(measure(mirrored, "corpus_score.recall").low)


def test_equal_answers_drop_nothing_but_show_little_on_six_samples(world: World) -> None:
    furnish(world)
    world.model.answer = lambda request: answer(dataclasses.replace(request, setting="clean"))
    drop = measure(judge(world).run(cell("flip_v")), "corpus_drop")
    assert drop.value == 0.0
    assert drop.low < -0.2
    assert drop.high > 0.2


def test_pairing_makes_the_interval_of_a_drop_narrow(world: World) -> None:
    """Forty questions, a quarter answered wrongly with and without the mirror: the same ones, or others."""
    facts = {"task": "yes_no", "options": {}}
    world.samples = [sample(n, images=(MemoryImage(picture(n)),), target="yes" if n % 2 else "no", **facts) for n in range(40)]
    widths = []
    for shift in (0, 20):
        wrong = {"clean": set(range(10)), "flip_v": {n + shift for n in range(10)}}

        def said(request: Request, wrong: dict[str, set[int]] = wrong) -> str:
            number = int(request.sample_id[1:])
            return "Yes" if (number % 2 == 1) is (number not in wrong.get(request.setting, ())) else "No"

        world.model.answer, world.model.version = said, str(shift)
        drop = measure(judge(world).run(cell("flip_v")), "corpus_drop")
        assert drop.value == pytest.approx(0.0, abs=1e-9)
        widths.append(drop.high - drop.low)
    assert widths[0] < 0.5 * widths[1]


def test_rules_judge_the_interval(world: World, tmp_path: Path) -> None:
    furnish(world)
    world.model.answer = answer
    (tmp_path / "p.yaml").write_text("version: 1\nrules:\n  - {id: f1, metric: corpus_score, min: 10%}\n", "utf-8")
    policy = load_policy([tmp_path / "p.yaml"], known_metrics=known_metrics(), root=tmp_path)
    measured = measure(Judge(world.evaluator(), {"model": policy}, date(2026, 6, 1)).run(cell("clean")), "corpus_score")
    assert (measured.outcome, measured.target) == (Outcome.PASS, "population")


def test_a_metric_of_the_users_own_has_no_interval(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryDataset, "corpus_metric", "of_the_user", raising=False)
    monkeypatch.setitem(CORPUS_METRICS._things, "of_the_user", lambda answers: (len(answers) / 10, {}))
    furnish(world)
    measured = measure(judge(world).run(cell("flip_v")), "corpus_score")
    assert measured.value == pytest.approx(0.6)
    assert math.isnan(measured.low)
