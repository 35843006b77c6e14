from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.run.chance import chance_level
from tests.unit.evaluation.conftest import sample


def closed(number: int, target: str) -> Sample:
    return sample(number, task="yes_no", options={}, target=target)


def free(number: int, target: str | tuple[str, ...], **facts: str) -> Sample:
    return sample(number, task="open", options={}, target=target, **facts)


def test_the_majority_of_yes_and_no() -> None:
    samples = [closed(number, "no" if number < 8 else "yes") for number in range(10)]
    level = chance_level(samples)
    assert level.scores.tolist() == [1.0] * 8 + [0.0] * 2
    assert level.note == "always 'No' gets 80.0 % of 10 yes/no questions"
    assert level.scores.mean() == 0.8


def test_where_no_answer_is_better_than_guessing_it_is_guessing() -> None:
    samples = [*(closed(number, "yes" if number % 2 else "no") for number in range(4)), free(4, "a cat"), free(5, "a dog")]
    level = chance_level(samples)
    assert (level.scores.tolist(), level.note) == ([0.5] * 4 + [0.0] * 2, "")


def test_the_commonest_letter_of_a_choice() -> None:
    texts = dict(zip("ABCD", "wxyz", strict=True))
    samples = [sample(number, options=texts, target=letter) for number, letter in enumerate("AAABCD")]
    level = chance_level(samples)
    assert level.scores.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert level.note == "always A gets 50.0 % of 6 multiple-choice questions"


def test_the_commonest_text_of_a_choice_whose_letters_are_shuffled() -> None:
    orders = ({"A": "no", "B": "yes"}, {"A": "yes", "B": "no"})
    samples = [sample(number, options=orders[number % 2], target="AB"[number % 2]) for number in range(4)]
    level = chance_level(samples)
    assert (level.scores.tolist(), level.note) == (
        [1.0] * 4,
        "always the option 'no' gets 100.0 % of 4 multiple-choice questions",
    )


def test_each_kind_of_answer_has_its_own() -> None:
    samples = [*(closed(number, "no") for number in range(3)), *(free(3 + number, f"word {number}") for number in range(3))]
    assert chance_level(samples).scores.tolist() == [1.0] * 3 + [0.0] * 3


def test_an_open_answer_scores_what_its_scorer_gives_it() -> None:
    agreed = free(0, ("2",) * 10, scorer="vqa_soft")
    some = free(1, ("2", "2", *map(str, range(20, 28))), scorer="vqa_soft")
    other = free(2, ("a dog",) * 10, scorer="vqa_soft")
    more = free(3, ("2",) * 10, scorer="vqa_soft")
    # of ten people whom two agree with: eight see two others agree, two see one: (8 * 2/3 + 2 * 1/3) / 10
    assert chance_level([agreed, some, other, more]).scores == pytest.approx([1.0, 0.6, 0.0, 1.0])


def test_an_answer_of_one_sample_is_no_majority() -> None:
    assert chance_level([free(number, word) for number, word in enumerate(("cat", "dog", "cow"))]).scores.tolist() == [0.0] * 3


def test_it_is_computed_once_for_the_same_samples() -> None:
    samples = tuple(closed(number, "no") for number in range(3))
    assert chance_level(samples) is chance_level(list(samples))
    assert chance_level(samples) is not chance_level(samples[:2])
    with pytest.raises(ValueError, match="read-only"):
        chance_level(samples).scores[0] = 0.5


def test_boxes_and_no_samples_have_none() -> None:
    assert chance_level([sample(0, task="boxes", options={}, target="")]).scores.tolist() == [0.0]
    assert np.size(chance_level([]).scores) == 0
    assert not math.isnan(chance_level([closed(0, "no")]).scores.mean())
