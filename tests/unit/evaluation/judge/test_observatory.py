"""The Observatory's metrics on models whose biases are known exactly: each is found, by the metric that is about it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.backends import failed_prediction
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.cell import Cell, FamilyMetric, Setting, SweepMetric
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.run import data
from pytest_vlmrobust.evaluation.run.data import RunData
from pytest_vlmrobust.evaluation.run.evaluator import EvaluationOptions, Evaluator
from pytest_vlmrobust.evaluation.run.plan import families
from pytest_vlmrobust.evaluation.run.prompts import prompt, prompt_leakage_ious
from pytest_vlmrobust.evaluation.tasks import task_dataset
from pytest_vlmrobust.policies import load_policy
from pytest_vlmrobust.store import Store
from tests.unit.evaluation.conftest import present
from tests.unit.evaluation.tasks.fakes import faces, words

TASKS = ("matching", "pointing", "guided", "semi_guided", "unguided")
BLURS = tuple(map(Setting.parse, ("observatory_gaussian_blur", "observatory_posterize")))
CLEAN = (Setting.parse("clean"),)
SPLIT = "observatory_id"
CORNER = "[0,0]"
UNREADABLE = "I cannot tell"
NOTHING = "[]"

Answer = Callable[[Sample, str], str]
"""Sample and setting to what a model says; nobody is asked without the pictures."""


def is_perturbed(setting: str) -> bool:
    return setting != "clean"


def written(boxes: Mapping[str, Box], scale: float = 1.0) -> str:
    corners = ("x1", "y1", "x2", "y2")
    scaled = {name: [edge * scale for edge in box] for name, box in boxes.items()}
    return json.dumps({name: dict(zip(corners, box, strict=True)) for name, box in scaled.items()})


def right(sample: Sample, setting: str = "") -> str:
    """Is right, always."""
    del setting
    return written(sample.localisation.boxes) if sample.localisation else str(sample.target)


def wrong(sample: Sample) -> str:
    return NOTHING if sample.localisation else next(letter for letter in sample.options if letter != sample.target)


def cornered(sample: Sample, setting: str = "") -> str:
    """Points to the cell at the top left, always."""
    del setting
    return next(letter for letter, cell in sample.options.items() if cell == CORNER)


@pytest.fixture(scope="module")
def shown() -> RunData:
    """Faces of 160 px in memory, half of them of each group."""
    collections = {"faces_160": faces(name="faces_160", count=24, jitter=6.0), "words_160": words(name="words_160")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "resolve_collection", lambda typed, **_: collections.get(typed))
        opened = RunData(["faces_160"])
        for task in TASKS:
            opened.open(f"faces_160.{task}").samples()
    return opened


class Laboratory:
    """Judges of scripted models, on the faces shown."""

    def __init__(self, directory: Path, shown: RunData) -> None:
        self.directory = directory
        self.data = shown
        self.opened: list[Evaluator] = []
        self.rules = "{id: any, metric: split_position_gap, max: 50%, judge: point}"
        self.mode = ""
        self.samples = {task: tuple(self.data.open(f"faces_160.{task}").samples()) for task in TASKS}
        everything = [sample for samples in self.samples.values() for sample in samples]
        self._known = {(sample.id, prompt(sample, "direct")): sample for sample in everything}

    def judge(self, answer: Answer, **about: Any) -> Judge:
        """Returns the judge of a model that answers so."""
        return self.judge_of(self.script(answer), **about)

    def script(self, answer: Answer) -> Callable[[Request], str]:
        """Returns what answers so with the pictures, and wrongly without."""

        def scripted(request: Request) -> str:
            sample = self._known[request.sample_id, request.text]
            return wrong(sample) if request.setting == "no_image" else answer(sample, request.setting)

        return scripted

    def judge_of(self, script: Callable[[Request], str | Prediction], **about: Any) -> Judge:
        """Returns the judge of a model that answers requests so."""
        return self.judge_all({"model": script}, {"model": ModelRef("model", "scripted", "", **about)})

    def judge_all(self, scripts: Mapping[str, Callable[[Request], str | Prediction]], models: Mapping[str, ModelRef]) -> Judge:
        """Returns the judge of several models."""
        evaluator = Evaluator(
            models=models,
            datasets=self.data.factories,
            open_backend=lambda ref: ScriptedBackend(scripts[ref.name], version=ref.name, name=ref.name),
            store=Store.open(self.directory / f"store{len(self.opened)}"),
            options=EvaluationOptions(),
        )
        self.opened.append(evaluator)
        file = self.directory / "policy.yaml"
        file.write_text(f"version: 1\n{self.mode}rules:\n  - {self.rules}\n", encoding="utf-8")
        policy = load_policy([file], known_metrics=known_metrics(), root=self.directory)
        members = families(models)
        return Judge(evaluator, dict.fromkeys([*models, *members], policy), date(2026, 6, 1), data=self.data, families=members)

    def close(self) -> None:
        for evaluator in self.opened:
            evaluator.close()
            evaluator.store.close()


@pytest.fixture
def laboratory(tmp_path: Path, shown: RunData) -> Iterator[Laboratory]:
    made = Laboratory(tmp_path, shown)
    yield made
    made.close()


def cell(judge: Judge, task: str, setting: str = "clean") -> Record:
    return judge.run(Cell("model", f"faces_160.{task}", Setting.parse(setting)))


def summary(judge: Judge, task: str, metric: str, settings: tuple[Setting, ...] = BLURS) -> Record:
    split = "clean" if settings == CLEAN else SPLIT
    return judge.run(SweepMetric("model", f"faces_160.{task}", metric, split), settings)


def measured(record: Record, metric: str = "") -> Measure:
    (chosen,) = [measure for measure in record.measures if measure.metric == (metric or record.metric)]
    return chosen


def said(record: Record, about: str) -> str:
    (text,) = [note for note in record.notes if note.startswith(about)]
    return text


@pytest.mark.parametrize("task", ["pointing", "guided"])
def test_patches_of_a_task_have_scores_but_no_places(laboratory: Laboratory, task: str) -> None:
    """Each sample has several answers, of which none is the one that names a cell or boxes."""
    judge = laboratory.judge(right)
    patches = cell(judge, task, "patches:2")
    assert patches.n_errors == 0
    assert not {measure.metric for measure in patches.measures} & {"fixation_rate", "grid_distance"}
    whole = summary(judge, task, "identity_accuracy", (Setting.parse("patches:2"), *BLURS))
    assert measured(whole).value == 1.0


def test_of_a_model_that_is_right_nothing_is_found(laboratory: Laboratory) -> None:
    judge = laboratory.judge(right)
    for task in ("matching", "pointing", "guided", "semi_guided"):
        for settings in (CLEAN, BLURS):
            assert measured(summary(judge, task, "identity_accuracy", settings)).value == pytest.approx(1.0, abs=1e-6)
            assert measured(summary(judge, task, "split_group_gap", settings)).value == pytest.approx(0.0, abs=1e-6)
    assert summary(judge, "matching", "split_group_gap").notes == ()
    for task in ("matching", "pointing", "guided", "semi_guided"):
        assert measured(summary(judge, task, "identity_drop")).value == pytest.approx(0.0, abs=1e-6)
    assert measured(summary(judge, "pointing", "split_position_gap")).value == 0.0
    assert measured(cell(judge, "pointing"), "fixation_rate").value == 0.0
    assert measured(summary(judge, "guided", "split_transfer_retention")).value == pytest.approx(1.0, abs=1e-6)
    assert measured(cell(judge, "guided"), "box_coverage").value == 1.0
    assert measured(summary(judge, "semi_guided", "hint_gain")).value == pytest.approx(0.0, abs=1e-6)
    assert [note for task in TASKS for note in cell(judge, task).notes] == []


@pytest.mark.parametrize(("rule", "outcome"), [("max: 40%", Outcome.PASS), ("max: 10%", Outcome.FAIL)])
def test_a_drop_far_from_its_bound_is_decided_by_a_part_of_the_pairs(laboratory: Laboratory, rule: str, outcome: Outcome) -> None:
    """Of 15 settings and 24 faces; without a waiver or an audit each pair would be asked about."""
    lost = {sample.id for sample in laboratory.samples["matching"][::4]}
    laboratory.rules = f"{{id: any, metric: identity_drop, {rule}, judge: point}}"
    laboratory.mode = "mode: adaptive\n"
    about = SweepMetric("model", "faces_160.matching", "identity_drop", SPLIT)
    settings = tuple(map(Setting.parse, perturbations.names(SPLIT)))

    def answer(sample: Sample, setting: str) -> str:
        return wrong(sample) if is_perturbed(setting) and sample.id in lost else right(sample)

    judge = laboratory.judge(answer)
    record = judge.run(about, settings)
    assert record.outcome is outcome
    assert record.n_requested < record.n_samples == 24 * len(settings) == 360
    full = judge.in_full().run(about, settings)
    assert full.outcome is outcome
    assert measured(full).value == pytest.approx(0.25, abs=0.01)  # one setting may leave a picture as it is


def test_pointing_to_one_cell_blindly_is_no_task_done_and_is_named(laboratory: Laboratory) -> None:
    known = {sample.id: sample for sample in laboratory.samples["pointing"]}
    judge = laboratory.judge_of(lambda request: cornered(known[request.sample_id]))
    clean = cell(judge, "pointing")
    assert measured(clean, "accuracy").value == 0.25
    fixation = measured(clean, "fixation_rate")
    assert fixation.value == fixation.high == 1.0
    assert fixation.low > 0.85
    gap = summary(judge, "pointing", "split_position_gap", CLEAN)
    assert gap.outcome is Outcome.NOT_APPLICABLE
    assert "cannot do the task: 0.25 with the images, 0.25 without" in gap.reason
    means = said(gap, "positions: ")
    assert means.startswith("positions: [0,0] 1.000 [")
    assert means.count(" 0.000 [0.000, ") == 3
    perturbed = summary(judge, "pointing", "split_position_gap")
    assert (perturbed.outcome, perturbed.n_inferred) == (Outcome.NOT_APPLICABLE, 0)
    assert perturbed.not_asked == "cannot do the task: 0.25 with the images, 0.25 without, n=96"
    assert perturbed.not_asked in perturbed.reason


def test_what_is_pointed_to_is_unknown_where_an_inference_failed(laboratory: Laboratory) -> None:
    """Right but for two images, always the same cell there, and one inference about each fails: the rest is not fixated."""
    known = {sample.id: sample for sample in laboratory.samples["pointing"]}
    fixated = {sample.group for sample in [*known.values()][:8]}

    def script(request: Request) -> str | Prediction:
        sample = known[request.sample_id]
        if request.setting == "no_image":
            return wrong(sample)
        if sample.group not in fixated:
            return right(sample)
        return failed_prediction("down") if sample.target == "B" else cornered(sample)

    clean = cell(laboratory.judge_of(script), "pointing")
    for name in ("fixation_rate", "grid_distance"):
        assert math.isnan(measured(clean, name).value), name
        assert f"answers to {clean.n_errors} of 96 samples are missing" in measured(clean, name).reason
    assert clean.n_errors == len(fixated)


def test_pointing_to_one_cell_when_in_doubt_is_a_position_gap_and_a_fixation(laboratory: Laboratory) -> None:
    judge = laboratory.judge(lambda sample, setting: cornered(sample) if is_perturbed(setting) else right(sample))
    gap = summary(judge, "pointing", "split_position_gap")
    assert measured(gap).value == 1.0
    assert measured(gap).low > 0.5
    assert gap.outcome is Outcome.FAIL
    assert said(gap, "positions: ").startswith("positions: [0,0] 1.000 [")
    assert measured(summary(judge, "pointing", "split_position_gap", CLEAN)).value == 0.0
    for blur in BLURS:
        assert measured(cell(judge, "pointing", str(blur)), "fixation_rate").value == 1.0
        assert measured(cell(judge, "pointing", str(blur)), "position_gap").value == 1.0
    assert measured(cell(judge, "pointing"), "fixation_rate").value == 0.0
    assert measured(summary(judge, "pointing", "identity_drop")).value == pytest.approx(0.75)


@pytest.mark.parametrize("task", ["matching", "pointing", "guided"])
def test_losing_half_of_one_group_is_a_gap_of_half_and_says_whose(laboratory: Laboratory, task: str) -> None:
    women = sorted({sample.group for sample in laboratory.samples[task] if sample.keys["group"] == "female"})
    lost = set(women[::2])
    assert 2 * len(lost) == len(women)

    def answer(sample: Sample, setting: str) -> str:
        return wrong(sample) if is_perturbed(setting) and sample.group in lost else right(sample)

    judge = laboratory.judge(answer)
    gap = summary(judge, task, "split_group_gap")
    assert measured(gap).value == pytest.approx(0.5, abs=1e-6)
    assert 0.0 < measured(gap).low < 0.5 < measured(gap).high
    assert said(gap, "groups of people: ").startswith("groups of people: female 0.500 [")
    assert ", male 1.000 [" in said(gap, "groups of people: ")
    assert measured(summary(judge, task, "split_group_gap", CLEAN)).value == pytest.approx(0.0, abs=1e-6)
    assert measured(summary(judge, task, "identity_drop")).value == pytest.approx(0.25, abs=1e-6)


def test_boxes_off_by_a_factor_are_a_matter_of_the_convention(laboratory: Laboratory) -> None:
    def answer(sample: Sample, setting: str) -> str:
        del setting
        return written(present(sample.localisation).boxes, 1000 / 160)

    judge = laboratory.judge(answer)
    clean = cell(judge, "guided")
    assert measured(clean, "accuracy").value < 0.05
    assert measured(clean, "box_coverage").value == 1.0
    assert said(clean, "boxes of model") == (
        "boxes of model fit 'thousandths' better (mean IoU 1.00) than 'pixels', which is taken where none is declared (0.00) on "
        "24 unperturbed samples: set box_convention in the models file"
    )
    retention = summary(judge, "guided", "split_transfer_retention")
    assert retention.outcome is Outcome.NOT_APPLICABLE
    assert "cannot do the task: 0.00 with the images" in retention.reason


def test_once_the_convention_is_declared_the_same_boxes_are_right(laboratory: Laboratory) -> None:
    known = {sample.id: sample for sample in laboratory.samples["guided"]}

    def script(request: Request) -> str:
        about = present(known[request.sample_id].localisation)
        assert "thousandths" in request.text
        return NOTHING if request.setting == "no_image" else written(about.boxes, 1000 / 160)

    judge = laboratory.judge_of(script, box_convention="thousandths")
    clean = cell(judge, "guided")
    assert measured(clean, "accuracy").value == pytest.approx(1.0, abs=1e-6)
    assert clean.notes == ()
    assert measured(summary(judge, "guided", "split_transfer_retention")).value == pytest.approx(1.0, abs=1e-6)


def test_copying_told_boxes_does_the_published_task_and_not_this_one(laboratory: Laboratory) -> None:
    def script(request: Request) -> str:
        return request.text.partition("In the first picture: ")[2].partition("\n")[0]

    judge = laboratory.judge_of(script)
    assert measured(cell(judge, "guided_published", "no_image"), "accuracy").value > 0.9, "whole pixels are told"
    assert measured(cell(judge, "guided"), "accuracy").value < 0.2
    for task in ("guided", "guided_published"):
        retention = summary(judge, task, "split_transfer_retention")
        assert retention.outcome is Outcome.NOT_APPLICABLE
        assert "cannot do the task" in retention.reason


BOXES_FOUND = "{id: found, metric: identity_accuracy, min: 30%, judge: point}"


def from_the_nose() -> Callable[[Sample, str], str]:
    """Returns what answers by one linear map of the told nose, fitted to other faces, and never looks."""
    others = task_dataset("semi_guided", faces(name="others", count=300, jitter=6.0), words()).samples()
    known = [sample.localisation for sample in others if sample.localisation]
    noses = np.array([[*about.given["nose"], 1.0] for about in known])
    maps = {name: np.linalg.lstsq(noses, np.array([about.boxes[name] for about in known]))[0] for name in known[0].boxes}

    def answer(sample: Sample, setting: str) -> str:
        del setting
        about = present(sample.localisation)
        return written({name: tuple(np.array([*about.given["nose"], 1.0]) @ rule) for name, rule in maps.items()})

    return answer


def beside(sample: Sample, setting: str) -> str:
    """Is off by a tenth of each box, to one side or the other."""
    del setting
    assert sample.localisation is not None
    away = 0.1 if int(sample.id[-1]) % 2 else -0.1
    boxes = sample.localisation.boxes
    return written({name: (x1 + away * (x2 - x1), y1, x2 + away * (x2 - x1), y2) for name, (x1, y1, x2, y2) in boxes.items()})


def test_boxes_that_follow_from_the_prompt_are_no_task_done(laboratory: Laboratory) -> None:
    laboratory.rules = BOXES_FOUND
    judge = laboratory.judge(from_the_nose())
    leaked = present(prompt_leakage_ious(laboratory.samples["semi_guided"]))
    record = summary(judge, "semi_guided", "identity_accuracy", CLEAN)
    seen = measured(cell(judge, "semi_guided"), "accuracy").value
    assert seen > 0.3
    assert record.outcome is Outcome.NOT_APPLICABLE
    refusal = f"cannot do the task: {seen:.2f} with the images, {leaked.mean():.2f} from what the prompt tells alone, n=24"
    assert refusal in record.reason
    assert math.isnan(measured(record).value)
    perturbed = summary(judge, "semi_guided", "identity_accuracy")
    assert (perturbed.outcome, perturbed.not_asked, perturbed.n_inferred) == (Outcome.NOT_APPLICABLE, refusal, 0)


@pytest.mark.parametrize("answer", [right, beside])
def test_boxes_that_are_found_by_looking_are(laboratory: Laboratory, answer: Answer) -> None:
    laboratory.rules = BOXES_FOUND
    judge = laboratory.judge(answer)
    for task in ("guided", "semi_guided", "unguided"):
        for settings in (CLEAN, BLURS):
            record = summary(judge, task, "identity_accuracy", settings)
            assert record.outcome is Outcome.PASS
            assert measured(record).value > 0.8


def test_boxes_that_are_too_few_fail_whatever_they_come_from(laboratory: Laboratory) -> None:
    laboratory.rules = BOXES_FOUND.replace("30%", "90%")
    assert summary(laboratory.judge(from_the_nose()), "semi_guided", "identity_accuracy", CLEAN).outcome is Outcome.FAIL


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_hardly_any_boxes_something_is_foretold(laboratory: Laboratory, count: int) -> None:
    leaked = present(prompt_leakage_ious(laboratory.samples["semi_guided"][:count]))
    assert leaked.shape == (count,)
    assert ((leaked >= 0.0) & (leaked <= 1.0)).all()


def test_what_is_foretold_is_known_once_and_only_of_boxes(laboratory: Laboratory) -> None:
    samples = laboratory.samples["semi_guided"]
    again = tuple(dataclasses.replace(sample, images=()) for sample in samples)  # as evidence keeps them
    assert prompt_leakage_ious(samples) is prompt_leakage_ious(again)
    assert prompt_leakage_ious(laboratory.samples["matching"]) is None
    assert prompt_leakage_ious(()) is None


def test_boxes_that_are_not_given_blindly_are_no_fault(laboratory: Laboratory) -> None:
    judge = laboratory.judge(right)
    assert measured(cell(judge, "guided"), "box_coverage").value == 1.0
    assert "box_coverage" not in {measure.metric for measure in cell(judge, "guided", "no_image").measures}


def test_answers_that_cannot_be_read_count_as_wrong(laboratory: Laboratory) -> None:
    judge = laboratory.judge(lambda _sample, _setting: UNREADABLE)
    for task in ("matching", "pointing", "guided"):
        clean = cell(judge, task)
        assert clean.n_refused == clean.n_requested > 0
        assert measured(clean, "accuracy").value == 0.0
        assert measured(clean, "refusal_rate").value == 1.0
        gap = summary(judge, task, "split_group_gap")
        assert math.isnan(measured(gap).value)
        assert gap.not_asked.startswith("cannot do the task: 0.00 with the images, ")
    assert measured(cell(judge, "pointing"), "fixation_rate").value == 0.0


def test_answering_only_where_it_is_easy_does_not_narrow_the_gap(laboratory: Laboratory) -> None:
    def answer(sample: Sample, setting: str) -> str:
        return UNREADABLE if is_perturbed(setting) and sample.keys["position"] != CORNER else right(sample)

    judge = laboratory.judge(answer)
    gap = summary(judge, "pointing", "split_position_gap")
    assert measured(gap).value == 1.0
    assert measured(cell(judge, "pointing", str(BLURS[0])), "refusal_rate").value == 0.75
    assert gap.n_refused == 2 * 72


def test_a_hint_that_is_needed_is_a_gain(laboratory: Laboratory) -> None:
    judge = laboratory.judge(
        lambda sample, _setting: right(sample) if sample.localisation and sample.localisation.given else wrong(sample)
    )
    for settings in (CLEAN, BLURS):
        gain = summary(judge, "semi_guided", "hint_gain", settings)
        assert measured(gain).value == pytest.approx(1.0, abs=1e-6)
        assert measured(gain).low > 0.75


def test_a_hint_gain_needs_the_same_questions_without_the_hint(laboratory: Laboratory) -> None:
    with pytest.raises(UsageError, match=r"'faces_160.guided': no task asks the same without the hint\. Expected .* semi_guided"):
        summary(laboratory.judge(right), "guided", "hint_gain")


def sizes(laboratory: Laboratory, small: Answer, large: Answer) -> Judge:
    """Returns the judge of a family of 1 and of 4 billion parameters."""
    scripts = {"small": laboratory.script(small), "large": laboratory.script(large)}
    models = {
        name: ModelRef(name, "scripted", "", family="oracle", parameters_billion=size)
        for name, size in (("small", 1.0), ("large", 4.0))
    }
    return laboratory.judge_all(scripts, models)


def of_family(judge: Judge, metric: str) -> Record:
    return judge.run(FamilyMetric("oracle", "faces_160.matching", metric, SPLIT), BLURS)


def test_what_size_gains_is_found(laboratory: Laboratory) -> None:
    women = {sample.id for sample in laboratory.samples["matching"] if sample.keys["group"] == "female"}
    judge = sizes(laboratory, lambda sample, _setting: right(sample) if sample.id in women else wrong(sample), right)
    gain = of_family(judge, "scale_gain")
    assert measured(gain).value == pytest.approx(0.25), "half of the answers over two doublings"
    assert measured(of_family(judge, "scale_consistency")).value == 1.0
    assert gain.notes == (f"faces_160.matching, {SPLIT}: small 0.500, large 1.000",)
    turned = sizes(laboratory, right, lambda sample, _setting: right(sample) if sample.id in women else wrong(sample))
    assert measured(of_family(turned, "scale_consistency")).value == 0.0
    assert measured(of_family(turned, "scale_gain")).value == pytest.approx(-0.25)


def test_a_family_that_does_nothing_has_nothing_to_gain_and_is_not_asked(laboratory: Laboratory) -> None:
    judge = sizes(laboratory, lambda _sample, _setting: "A", lambda _sample, _setting: "A")
    gain = of_family(judge, "scale_gain")
    assert math.isnan(measured(gain).value)
    assert gain.not_asked == (
        "no model of the family is shown to do the task, not even large: "
        "cannot do the task: 0.25 with the images, 0.25 without, n=24"
    )
    assert gain.n_inferred == 2 * (24 + 1)
