"""Signs that a model does not look: a warning on its record, whatever its policy asks, and no warning on a model that looks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust.core.prediction import Prediction, Request
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge.canaries import FEWEST, gain_over_blind
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.policies import load_policy
from pytest_vlmrobust.reporting.wording import warnings_of
from tests.unit.evaluation.conftest import World, cell, sample

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
    return judge.cell(cell(setting))


def test_a_model_that_looks_is_not_warned_of(world: World, warned: Callable[..., list[str]]) -> None:
    world.samples = questions(question="Is there a dog?")
    assert warned(right) == []
    assert warned(lambda request: right(request) if request.images else "B", "no_image") == []


def test_one_letter_for_nearly_every_answer(world: World, warned: Callable[..., list[str]]) -> None:
    world.samples = questions()
    (said,) = warned(lambda request: "A" if request.sample_id == "q0" else "B")
    assert said.startswith(
        f"{N - 1} of {N} answers of model are 'B', and the commonest right answer is that of 50%: look at what"
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
    assert said.startswith(f"model gives each of 2 questions one answer whatever the picture shows, in {N} samples")
    assert warned(lambda request: "A" if request.sample_id == "q3" else right(request)) == []


def test_the_same_answers_with_the_pictures_and_without(world: World, warned: Callable[..., list[str]]) -> None:
    world.samples = questions()
    (said,) = warned(right, "no_image")
    assert said.startswith(f"all {N} answers of model are the same with the pictures and without: look whether pictures reach")
    assert warned(lambda request: "B" if not request.images and request.sample_id == "q0" else right(request), "no_image") == []


def test_failed_inferences_and_questions_without_pictures_are_no_evidence(world: World, warned: Callable[..., list[str]]) -> None:
    world.samples = [sample(number, target=LETTERS[number % 2], images=()) for number in range(N)]
    assert warned(lambda _: "B") == []
    assert warned(right, "no_image") == []


def test_the_gain_over_blind_is_that_of_paired_scores() -> None:
    """90 questions right either way and 10 by the picture alone: apart, 1.00 and .90 overlap with more than these 10."""
    table = ScoreTable(clean=np.ones(100), by_setting={}, no_image=np.repeat([1.0, 0.0], [90, 10]))
    gain = gain_over_blind(table, 0.90)
    assert isinstance(gain, Measure)
    assert gain.value == pytest.approx(0.10)
    assert gain.n == 100
    assert 0.04 < gain.low < 0.10 < gain.high < 0.18
    shifted = ScoreTable(clean=np.roll(table.clean, 5), by_setting={}, no_image=table.no_image)
    assert gain_over_blind(shifted, 0.90).low == gain.low
    churn = ScoreTable(clean=np.repeat([0.0, 1.0], [40, 60]), by_setting={}, no_image=np.repeat([1.0, 0.0], [50, 50]))
    assert gain_over_blind(churn, 0.90).low < 0.0  # the same gain, and nothing is shown: 40 were lost, 50 gained
