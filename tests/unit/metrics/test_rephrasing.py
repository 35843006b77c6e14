"""Answers under other letters: by hand, from the answers of a run, equal to VLMEvalKit, and with a known truth in clusters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN, Cell, Setting
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge.reads import _of_answers
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.metrics import Needs, ScoreTable, estimate
from pytest_vlmrobust.perturbations.questions import perturbed

LETTERS = "ABCDEF"


def result(setting: Setting, samples: list[Sample], answers: Sequence[str | None]) -> CellResult:
    """Returns the result of a cell: text that no letter is read from for an empty answer, a failed inference for None."""
    states = {None: (math.nan, "error"), "": (0.0, "unparsed")}
    scores = [
        Score(*((states[given][0], "r", None, states[given][1]) if not given else (float(given == sample.target), "r", given)))
        for sample, given in zip(samples, answers, strict=True)
    ]
    predictions = tuple(Prediction(given or "?", "text") for given in answers)
    return CellResult(Cell("m", "d", setting), tuple(samples), predictions, tuple(scores), len(samples), 0, 0.0)


def question(number: int, options: int, target: int) -> Sample:
    texts = {LETTERS[place]: f"{number}-{place}" for place in range(options)}
    return Sample(str(number), (), "?", LETTERS[target], "choice", texts)


def table_of(samples: list[Sample], answer: Sequence[Sequence[str | None]]) -> ScoreTable:
    """Returns what a run measures: ``answer[shift][place]`` is the letter given in the order that a shift makes."""
    settings = [CLEAN, *(Setting.parse(f"option_order:{shift}") for shift in range(1, len(answer)))]
    moved = [samples, *([perturbed(sample, setting, seed=0) for sample in samples] for setting in settings[1:])]
    clean, *others = (result(*each) for each in zip(settings, moved, answer, strict=True))
    by_setting = {str(each.cell.setting): each for each in others}
    scores = {name: each.values for name, each in by_setting.items()}
    return ScoreTable(clean.values, scores, **_of_answers(clean, by_setting))


def vlmevalkit(rows: Sequence[Mapping[str, object]]) -> float:
    """VLMEvalKit's mcq_circular_eval: rows whose index agrees modulo a million are one question, which all of them must hit."""
    groups = defaultdict(list)
    for row in rows:
        groups[int(str(row["index"])) % 1_000_000].append(row["prediction"] == row["answer"])
    return sum(all(hits) for hits in groups.values()) / len(groups)


def test_circular_accuracy_is_the_peers_on_shared_rows() -> None:
    rng = np.random.default_rng(4)
    samples = [question(number, int(rng.integers(3, 7)), int(rng.integers(3))) for number in range(80)]
    rows, answer = [], [[""] * len(samples) for _ in range(6)]
    for place, sample in enumerate(samples):
        for shift in range(len(sample.options)):
            moved = perturbed(sample, f"option_order:{shift}", seed=0) if shift else sample
            given = moved.target if rng.random() < 0.8 else str(rng.choice([*moved.options]))
            answer[shift][place] = str(given)
            rows.append({"index": place + shift * 1_000_000, "answer": moved.target, "prediction": given})
        for shift in range(len(sample.options), 6):  # it has no such order: the answer is that of the order in the data
            answer[shift][place] = answer[0][place]
    table = table_of(samples, answer)
    assert 0.1 < vlmevalkit(rows) < 0.9
    assert estimate("circular_accuracy", table).value == pytest.approx(vlmevalkit(rows))


def test_agreement_follows_options_and_pull_follows_letters() -> None:
    samples = [question(0, 4, 1), question(1, 5, 2)]
    # the first always names its second option, which is right; the second always says A
    table = table_of(samples, [["B", "A"], ["A", "A"], ["D", "A"], ["C", "A"], ["B", "A"]])
    assert estimate("answer_agreement", table).value == 0.5
    pull = estimate("letter_pull", table)
    assert pull.value == pytest.approx((0.0 + 0.8) / 2)
    assert pull.reason == "A is 62.5 % of the answers and 22.5 % of the right options"


def test_an_order_without_an_answer_counts_for_no_letter_and_a_failed_inference_is_unknown() -> None:
    samples = [question(0, 2, 0)]
    table = table_of(samples, [["A"], [""]])
    chosen, right = (table.required(need)["A"].tolist() for need in (Needs.CHOSEN_BY_LETTER, Needs.RIGHT_BY_LETTER))
    assert chosen == right == [1.0]  # of the orders whose answer is read: others dilute no pull
    assert estimate("answer_agreement", table).value == 0.0
    table = table_of(samples, [["A"], [None]])
    assert math.isnan(estimate("letter_pull", table).value)
    assert math.isnan(estimate("answer_agreement", table).value)


def test_answers_that_cannot_be_read_agree_with_none_and_pull_no_letter() -> None:
    table = table_of([question(0, 2, 0), question(1, 2, 1)], [["", ""], ["", ""]])
    assert estimate("answer_agreement", table).value == 0.0
    pull = estimate("letter_pull", table)
    assert (pull.valid, pull.reason) == (False, "no answer could be read as a letter")


@pytest.mark.study
@pytest.mark.parametrize(("each", "pictures"), [(1, 100), (5, 60)])
def test_the_pull_is_rarely_found_beyond_its_interval(each: int, pictures: int) -> None:
    """A quarter of the questions follow A; questions of one picture are alike."""
    rng, n, runs, truth = np.random.default_rng(each), each * pictures, 400, 0.25 * 0.75
    groups = [str(number // each) for number in range(n)]
    wrong = np.zeros(2)
    for _ in range(runs):
        follows = np.repeat(rng.random(pictures) < 0.25, each)
        chosen = {letter: np.where(follows, float(letter == "A"), 0.25) for letter in "ABCD"}
        right = dict.fromkeys("ABCD", np.full(n, 0.25))
        pull = estimate("letter_pull", ScoreTable(np.ones(n), {}, groups=groups, chosen_by_letter=chosen, right_by_letter=right))
        wrong += (pull.high < truth - 1e-9, pull.low > truth + 1e-9)
    assert (wrong / runs <= 0.05 + 3.0 * (0.05 * 0.95 / runs) ** 0.5).all()


def test_letters_are_given_for_both() -> None:
    with pytest.raises(ValueError, match="differ"):
        metrics.letter_pull({"A": [1]}, {"B": [1]})
