"""Signs that a model does not look: a warning on its record, whatever its policy asks, and no warning on a model that looks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from pytest_vlmrobust.backends.contract import Traits, failed_prediction
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.fingerprint import rng_for
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction, Request
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge.canaries import gain_over_blind, why_not_changed
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.judge.stored_answers import StoredAnswers
from pytest_vlmrobust.evaluation.run.evaluator import Evaluator
from pytest_vlmrobust.evaluation.run.ledger import Ledger
from pytest_vlmrobust.evaluation.run.probes import FEWEST, PROBED, exchanges
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.policies import Policy, load_policy
from pytest_vlmrobust.reporting.explanation import warnings_of
from tests.unit.evaluation.conftest import MemoryImage, World, cell, picture, sample, sweep_of

Answer = Callable[[Request], str | Prediction]
LETTERS = ("A", "B")
N = 2 * FEWEST


def right(request: Request) -> str:
    return LETTERS[int(request.sample_id[1:]) % 2]


def questions(count: int = N, **changes: object) -> list[Sample]:
    return [sample(number, target=LETTERS[number % 2], **changes) for number in range(count)]


@pytest.fixture
def warned(world: World, tmp_path: Path) -> Callable[[Answer, str], list[str]]:
    """Returns the warnings on the record of a cell, of a model that answers so."""
    file = tmp_path / "policy.yaml"
    file.write_text("version: 1\nrules: [{id: drop, metric: accuracy_drop, max: 20pp}]\n", encoding="utf-8")
    policy = load_policy([file], known_metrics=known_metrics(), root=tmp_path)

    def run(answer: Answer, setting: str = "clean") -> list[str]:
        world.model.answer, world.model.version = answer, f"{world.model.version}+"  # another model: nothing is recalled
        return warnings_of(record_of(Judge(world.evaluator(), {"model": policy}, date(2026, 6, 1)), setting))

    return run


def record_of(judge: Judge, setting: str) -> Record:
    return judge.run(cell(setting))


def test_a_model_that_looks_is_not_warned_of(world: World, warned: Callable[..., list[str]]) -> None:
    world.samples = questions(question="Is there a dog?")
    assert warned(right) == []
    assert warned(lambda request: right(request) if request.images else "B", "no_image") == []


def test_one_letter_for_nearly_every_answer(world: World, warned: Callable[..., list[str]]) -> None:
    world.samples = questions()
    (said,) = warned(lambda request: "A" if request.sample_id == "q0" else "B")
    assert said.startswith(
        f"{N - 1} of {N} answers of model are 'B', and the commonest right answer is that of 50 %: look at what"
    )


def test_one_letter_is_no_fault_where_it_is_right_or_where_there_are_few(world: World, warned: Callable[..., list[str]]) -> None:
    world.samples = [sample(number) for number in range(N)]  # B is right each time
    assert warned(lambda _: "B") == []
    world.samples = questions(FEWEST - 1)
    assert warned(lambda _: "B") == []


def test_one_text_under_changing_letters(world: World, warned: Callable[..., list[str]]) -> None:
    """It says "cat" each time; its letter follows the order of the options."""
    options = [dict(zip(LETTERS, texts, strict=True)) for texts in (("cat", "dog"), ("dog", "cat"))]
    world.samples = [sample(n, target=LETTERS[n // 2 % 2], options=options[n % 2]) for n in range(N)]
    (said,) = warned(right)
    assert said.startswith(f"{N} of {N} answers of model are 'cat'")


def test_one_text_that_no_rule_reads(world: World, warned: Callable[..., list[str]]) -> None:
    world.samples = questions()
    (said,) = warned(lambda _: "I am sorry, but no.")
    assert "answers of model are 'I am sorry, but no.'" in said


def test_one_answer_to_each_question_whatever_the_picture(world: World, warned: Callable[..., list[str]]) -> None:
    world.samples = [
        sample(number, question=f"Is there a {thing}?", target=LETTERS[number // 2 % 2])
        for number, thing in enumerate(("dog", "cat") * FEWEST)
    ]
    (said,) = warned(right)
    assert said.startswith(f"model gives each of 2 questions one answer whatever the image shows, in {N} samples")
    assert warned(lambda request: "A" if request.sample_id == "q3" else right(request)) == []


def test_the_same_answers_with_the_pictures_and_without(world: World, warned: Callable[..., list[str]]) -> None:
    world.samples = questions()
    (said,) = warned(right, "no_image")
    assert said.startswith(f"all {N} answers of model are the same with the images and without: look whether images reach")
    assert warned(lambda request: "B" if not request.images and request.sample_id == "q0" else right(request), "no_image") == []


def test_failed_inferences_and_questions_without_pictures_are_no_evidence(world: World, warned: Callable[..., list[str]]) -> None:
    world.samples = [sample(number, target=LETTERS[number % 2], images=()) for number in range(N)]
    assert warned(lambda _: "B") == []
    assert warned(right, "no_image") == []


def test_the_gain_over_blind_is_that_of_paired_scores() -> None:
    """90 questions right either way and 10 by the picture alone: apart, 1.00 and .90 overlap with more than these 10."""
    table = ScoreTable(clean=np.ones(100), by_setting={}, no_image=np.repeat([1.0, 0.0], [90, 10]))
    gain = gain_over_blind(table)
    assert isinstance(gain, Measure)
    assert gain.value == pytest.approx(0.10)
    assert gain.n == 100
    assert 0.04 < gain.low < 0.10 < gain.high < 0.18
    shifted = ScoreTable(clean=np.roll(table.clean, 5), by_setting={}, no_image=table.no_image)
    assert gain_over_blind(shifted).low == gain.low
    churn = ScoreTable(clean=np.repeat([0.0, 1.0], [40, 60]), by_setting={}, no_image=np.repeat([1.0, 0.0], [50, 50]))
    assert gain_over_blind(churn).low < 0.0  # the same gain, and nothing is shown: 40 were lost, 50 gained
    lost = gain_over_blind(ScoreTable(clean=np.ones(5), by_setting={}, no_image=np.full(5, np.nan)))
    assert np.isnan(lost.value)
    assert lost.reason == "scores of 5 of 5 samples are missing: 5 in no_image"
    assert gain.reason == ""


# Probes.


def by_text(request: Request) -> str:
    """Does not look: the answer follows from the question."""
    return LETTERS[int(request.text.split("Number ")[1].split("?")[0]) % 2]


def measures(world: World, evaluator: Evaluator | StoredAnswers) -> dict[str, Measure]:
    judge = Judge(evaluator, {"model": world_policy(world)}, date(2026, 6, 1))
    return {measure.metric: measure for measure in record_of(judge, "clean").measures}


def world_policy(world: World) -> Policy:
    file = world.directory / "policy.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("version: 1\nrules: [{id: drop, metric: accuracy_drop, max: 20pp}]\n", encoding="utf-8")
    return load_policy([file], known_metrics=known_metrics(), root=world.directory)


def test_a_model_that_answers_the_same_with_the_pictures_of_others(world: World, warned: Callable[..., list[str]]) -> None:
    world.samples = questions()
    (said,) = warned(by_text)
    assert said.startswith(f"model answers {PROBED} questions the same when it is shown the images of other questions: look")
    assert warned(lambda request: "A" if request.sample_id == "q4" else by_text(request)) == []


def test_one_picture_for_all_requests_is_no_looking(world: World, warned: Callable[..., list[str]]) -> None:
    """Each request is answered for the first picture that ever came, as where a cache mixes up its entries."""
    world.samples = questions(question="Is there a dog?")
    shown: list[str] = []

    def answer(request: Request) -> str:
        shown.append(request.sample_id)
        return LETTERS[(int(shown[0][1:]) + len(request.text)) % 2]

    (said,) = warned(answer)
    assert "answers of model are " in said  # one answer to one question
    world.samples = [sample(number, question="?" * (number % 3 + 1), target=LETTERS[number // 3 % 2]) for number in range(N)]
    assert len(warned(answer)) == 1


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8, 1.0])
def test_models_that_look_are_not_warned_of_however_good_they_are(
    world: World, warned: Callable[..., list[str]], share: float
) -> None:
    world.samples = [
        sample(number, target="ABCD"[number % 4], options=dict(zip("ABCD", "wxyz", strict=True))) for number in range(40)
    ]

    def answer(request: Request) -> str:
        number = int(request.sample_id[1:])
        return "ABCD"[(number + (rng_for(0, str(number)).random() >= share)) % 4]

    assert warned(answer) == []
    by_name = measures(world, world.evaluator())
    assert by_name["same_when_exchanged_rate"].n == by_name["other_when_alone_rate"].n == PROBED
    assert by_name["same_when_exchanged_rate"].value < 0.5
    assert by_name["other_when_alone_rate"].value == 0.0


@pytest.mark.parametrize(("moved", "is_warned"), [(0.0, True), (0.04, True), (0.2, False)])
def test_log_probabilities_tell_pictures_that_change_no_letter(
    world: World, warned: Callable[..., list[str]], moved: float, is_warned: bool
) -> None:
    """The letters are the same; low precision moves their probabilities a little, and another picture by more."""
    world.samples = questions()

    def answer(request: Request) -> Prediction:
        letter = by_text(request)
        seen = moved if request.sample_id != f"q{int(request.text.split('Number ')[1].split('?')[0])}" else 0.0
        other = next(name for name in LETTERS if name != letter)
        return Prediction(letter, LETTER_LOGITS, logprobs={letter: -0.5, other: -2.0 - seen})

    assert bool(warned(answer)) is is_warned


def unsteady(request: Request, seen: Counter[str]) -> str:
    """Does not look, and is right one time, and wrong the next."""
    seen[request.text] += 1
    return by_text(request) if seen[request.text] % 2 else "A"


class Repeated(ScriptedBackend):
    """A backend that may give another answer each time."""

    traits = Traits()


@pytest.mark.parametrize(
    ("looks", "unsure", "is_warned"),
    [(False, "", True), (False, "surely", True), (True, "", False), (True, "surely", False)],
    ids=["answers at random", "another word each time", "looks", "looks, with another word each time"],
)
@pytest.mark.parametrize("task", ["choice", "open"])
def test_answers_that_chance_changes_as_other_pictures_do(
    world: World, looks: bool, unsure: str, is_warned: bool, task: str
) -> None:
    world.samples = questions(40, task=task) if task == "choice" else questions(40, task=task, options={}, scorer="contains")
    seen: Counter[str] = Counter()

    def answer(request: Request) -> str:
        if not unsure:
            return right(request) if looks else unsteady(request, seen)
        seen[request.text] += 1
        said = right(request) if looks else by_text(request)
        return f"{said}, {unsure}" if seen[request.text] % 2 else said

    world.model.answer = answer
    evaluator = world.evaluator()
    evaluator.open_backend = lambda ref: Repeated(world.model, version="1", name=ref.name)
    rate = measures(world, evaluator)["same_when_exchanged_rate"]
    assert bool(rate.reason) is is_warned
    assert bool(why_not_changed([rate])) is is_warned


def by_size(request: Request) -> str:
    """Does not look: the answer follows from the question, and from how large the picture is."""
    return LETTERS[(int(request.text.split("Number ")[1].split("?")[0]) + request.images[0].shape[1]) % 2]


def test_a_picture_of_which_a_model_is_told_the_size_alone(world: World, warned: Callable[..., list[str]]) -> None:
    """As where all pixels are lost on the way, and the number of visual tokens is not."""
    world.samples = [
        sample(number, target=LETTERS[number // 2 % 2], images=(MemoryImage(picture(number)[:, : 16 - number % 3]),))
        for number in range(N)
    ]
    (said,) = warned(by_size)
    assert said.startswith(f"model answers {PROBED} questions the same when it is shown the images of other questions: look")
    assert warned(lambda request: right(request) if request.images else "B") == []


class Padded(ScriptedBackend):
    """A backend whose answers are others where a request is not the first of its batch, as with pads on the wrong side."""

    traits = Traits()
    spoilt = 1.0
    batches: ClassVar[list[int]] = []

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        self.batches.append(len(requests))
        answers = super().infer(requests)
        return [
            replace(answer, text="A") if place and place < len(requests) * self.spoilt else answer
            for place, answer in enumerate(answers)
        ]


@pytest.mark.parametrize("spoilt", [0.0, 1.0])
def test_answers_that_depend_on_what_is_beside_them(world: World, spoilt: float) -> None:
    world.samples = questions(40)
    world.model.answer = right
    evaluator = world.evaluator(batch_size=8)
    Padded.batches, Padded.spoilt = [], spoilt
    evaluator.open_backend = lambda ref: Padded(world.model, version="1", name=ref.name)
    rate = measures(world, evaluator)["other_when_alone_rate"]
    assert rate.n == PROBED
    assert Padded.batches[-PROBED:] == [1] * PROBED
    if not spoilt:
        assert (rate.value, rate.reason) == (0.0, "")
        return
    assert rate.value >= 0.3
    assert (
        f"{round(rate.value * PROBED)} of {PROBED} answers of model are others when each question is asked once more"
        in rate.reason
    )
    assert "--vlm-aa" in rate.reason


def test_one_other_answer_of_a_dozen_may_be_rounding(world: World) -> None:
    world.samples = questions(40)
    seen: list[str] = []

    def answer(request: Request) -> str:
        seen.append(request.sample_id)
        return "A" if request.sample_id == "q3" and seen.count("q3") > 1 else right(request)

    world.model.answer = lambda request: answer(request) if request.images else "B"
    evaluator = world.evaluator()
    Padded.spoilt = 0.0
    evaluator.open_backend = lambda ref: Padded(world.model, version="1", name=ref.name)
    rate = measures(world, evaluator)["other_when_alone_rate"]
    assert (round(rate.value * PROBED), rate.reason) == (1, "")


def shown(world: World) -> list[str]:
    return [request.sample_id for request in world.model.requests if request.images]


def test_probes_are_asked_once_kept_and_computed_again(world: World) -> None:
    world.samples = questions()
    world.model.answer = by_text
    by_name = measures(world, world.witnessed("run"))
    whose = exchanges(world.samples)
    assert shown(world) == [*(each.id for each in world.samples), *(other.id for other in whose.values())]
    evidence = world.kept[-1]
    assert [str(planned) for planned in evidence.cells()] == ["model-data-clean", "model-data-no_image"]
    assert [str(planned) for planned in evidence.probes()] == ["model-data-again", "model-data-exchanged"]
    assert measures(world, StoredAnswers(evidence, world.refs)) == by_name
    before = len(world.model.requests)
    world.directory = world.directory / "run" / "store"
    assert measures(world, world.evaluator()) == by_name
    assert len(world.model.requests) == before


def test_what_cannot_be_asked_once_more_is_said(world: World) -> None:
    world.samples = questions()
    world.model.answer = right
    evaluator = world.evaluator()
    for name in ("clean", "no_image"):
        evaluator.result(cell(name))
    offline = measures(world, world.evaluator(offline=True))["same_when_exchanged_rate"]
    assert math.isnan(offline.value)
    why = "model-data-exchanged: 12 of 12 answers are not in the store, and --vlm-offline forbids asking the model"
    assert offline.reason.startswith(f"not probed: a few questions could not be asked once more: {why}")
    spent = world.evaluator(ledger=Ledger(seconds=60, started=0.0, clock=lambda: 90.0))
    rate = measures(world, spent)["same_when_exchanged_rate"]
    assert rate.reason.startswith("not probed: a few questions could not be asked once more: budget spent: 90 of 60 seconds")
    world.model.answer = lambda _: failed_prediction("the endpoint is down")
    failed = measures(world, evaluator)["same_when_exchanged_rate"]
    assert failed.reason == ("not probed: 0 of 12 questions can be compared, and fewer than 10 tell nothing: 12 have no answer")


def test_answers_that_are_drawn_are_not_compared(world: World) -> None:
    world.samples = questions()
    world.model.answer = lambda request: Prediction(right(request), "sample")
    rate = measures(world, world.evaluator())["other_when_alone_rate"]
    assert (math.isnan(rate.value), rate.n) == (True, 0)
    assert rate.reason.endswith("fewer than 10 tell nothing: 12 have a sampled answer")


def test_few_questions_are_not_asked_once_more(world: World) -> None:
    world.samples = questions(FEWEST - 1)
    world.model.answer = by_text
    assert not {"same_when_exchanged_rate", "other_when_alone_rate"} & set(measures(world, world.evaluator()))
    assert len(shown(world)) == FEWEST - 1


# Rungs of a ladder.

RUNGS = ("resolution:4", "resolution:8", "resolution:12", "resolution:15")


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        (lambda _: 300, "the images of all rungs reached it at one size, of which there are 4"),
        (lambda request: 10 * int(request.setting.partition(":")[2] or 16), ""),
        (lambda _: None, "it answers each question the same at all rungs, of which there are 4"),
    ],
    ids=["one size", "several sizes", "sizes that are not known"],
)
@pytest.mark.parametrize("count", [FEWEST - 1, N])
def test_a_resolution_that_does_not_reach_the_model(
    world: World, tokens: Callable[[Request], int | None], why: str, count: int
) -> None:
    world.samples = questions(count)

    def answer(request: Request) -> Prediction:
        known = tokens(request)
        return Prediction(right(request), "generate", details={} if known is None else {"prompt_tokens": known})

    world.model.answer = answer
    judge = Judge(world.evaluator(), {"model": world_policy(world)}, date(2026, 6, 1))
    settings = [Setting.parse(name) for name in RUNGS]
    said = warnings_of(judge.run(sweep_of("absolute_continuous_error"), settings))
    assert [why in text for text in said] == ([True] if why and count >= FEWEST else [])
    assert warnings_of(judge.run(sweep_of("resolution_accuracy"), settings)) == []


def test_answers_that_fall_with_the_resolution_are_no_sign(world: World) -> None:
    world.samples = questions()
    world.model.answer = lambda request: "A" if request.setting == "resolution:4" else right(request)
    judge = Judge(world.evaluator(), {"model": world_policy(world)}, date(2026, 6, 1))
    record = judge.run(sweep_of("absolute_continuous_error"), [Setting.parse(name) for name in RUNGS])
    assert warnings_of(record) == []
