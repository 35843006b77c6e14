"""An earlier run that cells are compared with: the same samples or nothing."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.backends import failed_prediction
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import DatasetError, StoreError, UsageError
from pytest_vlmrobust.core.prediction import Prediction, Request, Score
from pytest_vlmrobust.evaluation.judge.baseline import Baseline, answered_by
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.measurements import metric_keys
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.policies import load_policy
from pytest_vlmrobust.store import Answer, Evidence
from tests.unit.evaluation.conftest import TODAY, MemoryImage, World, cell, measure, picture, present, sample, sweep_of
from tests.unit.store.conftest import forge

SETTINGS = ("clean", "no_image", "flip_h", "flip_v")
RULES = """
version: 1
defaults: {judge: point}
rules:
  - {id: loss, metric: baseline_drop, max: 10pp}
  - {id: mean, metric: mean_baseline_drop, max: 10pp}
"""


def wrong(setting: str, *numbers: int) -> Callable[[Request], str | Prediction]:
    """Answers B (right) but for some samples under a setting."""
    ids = {f"q{number}" for number in numbers}
    return lambda request: "A" if request.setting == setting and request.sample_id in ids else "B"


def measured(world: World, run: str, settings: tuple[str, ...] = SETTINGS) -> Path:
    return world.measured(run, settings)


def judged(world: World, baseline: Path) -> Judge:
    file = world.directory / "policy.yaml"
    file.write_text(RULES, encoding="utf-8")
    policy = load_policy([file], known_metrics=known_metrics(), root=world.directory)
    earlier = Baseline.open(baseline)
    world.kept.append(earlier.evidence)
    return Judge(world.witnessed("now"), dict.fromkeys(world.refs, policy), TODAY, baseline=earlier)


def test_the_same_answers_lose_nothing(world: World) -> None:
    record = judged(world, measured(world, "then")).run(cell("flip_v"))
    assert measure(record, "baseline_drop").value == measure(record, "drop_increase").value == 0.0
    assert (record.broken, record.fixed, record.outcome) == ((), (), Outcome.PASS)


def test_what_broke_and_what_was_fixed_is_named(world: World) -> None:
    world.model.answer = wrong("flip_v", 0)
    then = measured(world, "then")
    world.model.answer, world.model.version = wrong("flip_v", 2, 4), "2"
    record = judged(world, then).run(cell("flip_v"))
    assert (record.broken, record.fixed) == (("q2", "q4"), ("q0",))
    assert measure(record, "baseline_drop").value == pytest.approx(1 / 6)
    assert (record.outcome, measure(record, "baseline_drop").rule) == (Outcome.FAIL, "loss")


def test_a_loss_of_the_clean_cell_is_no_growth_of_a_drop(world: World) -> None:
    then = measured(world, "then")
    world.model.version = "2"
    world.model.answer = lambda request: "A" if request.sample_id == "q1" else "B"
    record = judged(world, then).run(cell("flip_v"))
    assert measure(record, "baseline_drop").value == pytest.approx(1 / 6)
    assert measure(record, "drop_increase").value == 0.0


def test_the_mean_over_settings_is_judged(world: World) -> None:
    then = measured(world, "then")
    world.model.answer, world.model.version = wrong("flip_v", 0, 1, 2), "2"
    settings = [Setting.parse(name) for name in ("flip_h", "flip_v")]
    record = judged(world, then).run(sweep_of("mean_baseline_drop"), settings)
    assert measure(record, "mean_baseline_drop").value == pytest.approx(0.25)
    assert record.outcome is Outcome.FAIL


def test_a_setting_that_was_not_measured_then_is_not_applicable(world: World) -> None:
    judge = judged(world, measured(world, "then", ("clean", "no_image", "flip_h")))
    record = judge.run(cell("flip_v"))
    drop = measure(record, "baseline_drop")
    assert drop.outcome is Outcome.NOT_APPLICABLE
    assert math.isnan(drop.value)
    assert "the baseline did not measure data under flip_v" in drop.reason
    settings = [Setting.parse(name) for name in ("flip_h", "flip_v")]
    mean = judge.run(sweep_of("mean_baseline_drop"), settings)
    assert mean.outcome is Outcome.NOT_APPLICABLE
    assert "the baseline did not measure flip_v" in mean.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda samples: samples[:-1], "1 are only there \\(q5\\)"),
        (lambda samples: [*samples, sample(9)], "1 are not in the baseline \\(q9\\)"),
        (
            lambda samples: [dataclasses.replace(samples[0], question="Another one?"), *samples[1:]],
            "1 ask something else there \\(q0\\)",
        ),
        (
            lambda samples: [dataclasses.replace(samples[0], scorer="exact"), *samples[1:]],
            "1 are scored otherwise there \\(q0\\)",
        ),
    ],
    ids=["fewer", "more", "changed", "scored"],
)
def test_other_samples_are_refused(world: World, change: Callable[[list[object]], list[object]], words: str) -> None:
    then = measured(world, "then")
    world.samples[:] = change(list(world.samples))  # type: ignore[assignment]
    with pytest.raises(DatasetError, match=f"the baseline cannot be compared on data: .*{words}.*the same --vlm-sample"):
        judged(world, then).run(cell("flip_v"))


class Elsewhere(MemoryImage):
    """The same pixels under another identity, as a picture has that was packed otherwise."""

    def identity(self) -> str:
        return f"elsewhere {super().identity()}"


class Decoded(MemoryImage):
    """Other pixels under the same identity, as a picture has that another release of a decoder reads."""

    def load(self) -> NDArray[np.uint8]:
        return super().load() ^ np.uint8(1)


def test_exchanged_pictures_are_refused_and_named(world: World) -> None:
    then = measured(world, "then")
    world.samples[1], world.samples[4] = (
        dataclasses.replace(world.samples[first], images=world.samples[other].images) for first, other in ((1, 4), (4, 1))
    )
    judge = judged(world, then)
    words = (
        r"of 6 samples here, 2 show other images there \(q1, q4\)\. Expected .* the same images, and the same --vlm-sample\. "
        "Where questions or images were changed on purpose, run the other model on them and compare with that run"
    )
    settings = [Setting.parse("flip_v")]
    with pytest.raises(DatasetError, match=words):
        judge.run(cell("flip_v"))
    with pytest.raises(DatasetError, match=words):
        judge.run(cell("clean"))
    with pytest.raises(DatasetError, match=words):
        judge.run(sweep_of("mean_baseline_drop"), settings)


@pytest.mark.parametrize("kind", [Elsewhere, Decoded])
def test_the_same_pictures_may_lie_elsewhere_or_be_decoded_otherwise(world: World, kind: type[MemoryImage]) -> None:
    then = measured(world, "then")
    world.samples[:] = [
        dataclasses.replace(sample, images=(kind(picture(number)),), category="renamed")
        for number, sample in enumerate(world.samples)
    ]
    record = judged(world, then).run(cell("flip_v"))
    assert (measure(record, "baseline_drop").value, record.outcome) == (0.0, Outcome.PASS)


def test_part_of_the_samples_has_the_same_digests_as_all(world: World) -> None:
    everything = world.witnessed("all")
    everything.result(cell("clean"))
    del world.samples[3:]
    part = world.witnessed("part")
    part.result(cell("clean"))
    assert {name: everything.pictures("data")[name] for name in ("q0", "q1", "q2")} == part.pictures("data")


def test_digests_of_pictures_are_known_once_they_were_shown_and_cost_no_reading(world: World) -> None:
    evaluator = world.witnessed("run")
    evaluator.result(cell("no_image"))
    assert evaluator.pictures("data") == world.kept[0].pictures("data") == {}
    evaluator.result(cell("clean"))
    loaded = [sample.images[0].loaded for sample in world.samples]  # type: ignore[attr-defined]
    assert len(evaluator.pictures("data")) == 6
    assert evaluator.pictures("data") is evaluator.pictures("data")
    assert world.kept[0].pictures("data") == evaluator.pictures("data")
    assert [sample.images[0].loaded for sample in world.samples] == loaded  # type: ignore[attr-defined]


def test_a_baseline_that_does_not_say_what_it_showed_is_compared_all_the_same(world: World) -> None:
    then = measured(world, "then")
    with sqlite3.connect(then / "predictions.sqlite") as evidence:
        evidence.execute("delete from pictures")
    evidence.close()
    world.samples[0] = dataclasses.replace(world.samples[0], images=world.samples[1].images)
    judge = judged(world, then)
    assert present(judge.baseline).without_pictures == ("data",)
    assert judge.run(cell("flip_v")).outcome is Outcome.PASS


def test_the_order_of_samples_does_not_matter(world: World) -> None:
    world.model.answer = wrong("flip_v", 0)
    then = measured(world, "then")
    world.samples.reverse()
    record = judged(world, then).run(cell("flip_v"))
    assert (measure(record, "baseline_drop").value, record.broken, record.fixed) == (0.0, (), ())


def test_a_failed_inference_is_neither_broken_nor_fixed(world: World) -> None:
    then = measured(world, "then")
    world.model.version = "2"
    world.model.answer = lambda r: failed_prediction("down") if (r.setting, r.sample_id) == ("flip_v", "q1") else "B"
    record = judged(world, then).run(cell("flip_v"))
    assert math.isnan(measure(record, "baseline_drop").value)
    assert (record.broken, record.fixed) == ((), ())


@pytest.mark.parametrize("read", [True, False])
def test_answers_that_could_not_be_read_are_no_bar(world: World, read: bool) -> None:
    world.model.answer = lambda request: "B" if read or request.setting != "flip_v" else "What?"
    then = measured(world, "then")
    world.model.answer, world.model.version = wrong("flip_v", *range(6)), "2"
    judge = judged(world, then)
    records = [judge.run(cell("flip_v")), judge.run(sweep_of("mean_baseline_drop"), [Setting.parse("flip_v")])]
    assert {record.outcome for record in records} == {Outcome.FAIL if read else Outcome.INCONCLUSIVE}
    unread = "the baseline is no bar: unparsed_rate 100.0 %"
    assert [
        unread in measure(record, name).reason
        for record, name in zip(records, ("baseline_drop", "mean_baseline_drop"), strict=True)
    ] == [not read] * 2
    assert judge.run(cell("flip_h")).outcome is Outcome.PASS


@pytest.mark.parametrize("said", ["A", "What?"])
def test_clean_answers_that_could_not_be_read_are_no_bar_for_the_drop(world: World, said: str) -> None:
    """The earlier drop would be too small, and the increase too large: the other metric does not read them."""
    world.model.answer = lambda request: said if request.setting == "clean" else "B"
    then = measured(world, "then")
    world.model.answer, world.model.version = wrong("flip_v", *range(6)), "2"
    record = judged(world, then).run(cell("flip_v"))
    increase = measure(record, "drop_increase")
    assert math.isnan(increase.value) is (said == "What?")
    assert ("the baseline is no bar: clean: unparsed_rate 100.0 %" in increase.reason) is (said == "What?")
    assert measure(record, "baseline_drop").value > 0.0


def test_models_are_matched_by_name_or_because_there_is_only_one(world: World) -> None:
    world.refs = {name: dataclasses.replace(world.refs["model"], name=name) for name in ("a", "b")}
    both = Baseline.open(measured(world, "two", ("clean",)))
    assert both.model("b") == "b"
    with pytest.raises(UsageError, match=r"the baseline has no model 'c'.* It has: a, b"):
        both.model("c")
    world.refs = {"a": world.refs["a"]}
    assert Baseline.open(measured(world, "one", ("clean",))).model("c") == "a"


def test_a_directory_without_evidence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no predictions\.sqlite: expected the directory of a run"):
        Baseline.open(tmp_path)
    Evidence.open(tmp_path).close()
    with pytest.raises(UsageError, match="the run measured nothing that could be compared with"):
        Baseline.open(tmp_path)


def test_a_forged_file_is_refused_before_its_answers_are_read(tmp_path: Path) -> None:
    """The gate reads it in its own process: its pages would be met without end."""
    forge(tmp_path)
    with pytest.raises(StoreError, match="claims more rows in answers than"):
        Baseline.open(tmp_path)


def test_the_comparison_is_planned_only_with_a_baseline() -> None:
    names = {test.metric for test in metric_keys(cell("flip_v"))}
    more = {test.metric for test in metric_keys(cell("flip_v"), baseline=True)}
    assert more - names == {"baseline_drop", "baseline_flip_rate", "drop_increase"}


@pytest.mark.cases(
    ("method", "way"),
    [
        ("letter_logits", "letters"),
        ("generate", "text"),
        ("sample", "text"),
        ("structured_choice", "structured_choice"),
        ("logit_bias", "logit_bias"),
    ],
)
def test_ways_of_answering_choices_that_are_not_compared_have_names_of_their_own(method: str, way: str) -> None:
    answer = Answer("", Prediction("A", method), Score(1.0, "letter", "A", "scored"))
    assert answered_by(CellResult.of(cell("clean"), [sample(0)], [answer], views=1, places=None, notes={})) == {way}
