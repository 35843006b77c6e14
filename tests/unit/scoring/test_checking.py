from __future__ import annotations

import pytest

from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.scoring import check_scoring


def asked(number: int, scorer: str = "", task: str = "open") -> Sample:
    return Sample(f"q{number}", (), "?", "7", task, scorer=scorer)


def test_what_exists_is_fine() -> None:
    check_scoring("data", "accuracy", [asked(0), asked(1, "vqa_soft"), asked(2, task="yes_no")])
    check_scoring("data", "pope_f1", [])


def test_a_misspelt_scorer_is_named_with_its_first_sample() -> None:
    with pytest.raises(UnknownName) as caught:
        check_scoring("data", "accuracy", [asked(0), asked(1, "vqa_sotf"), asked(2, "vqa_sotf")])
    assert str(caught.value).startswith(
        "dataset 'data', sample 'q1': unknown scorer 'vqa_sotf'. Did you mean 'vqa_soft'? Known: "
    )


def test_a_task_without_a_scorer_is_named() -> None:
    with pytest.raises(UnknownName, match=r"sample 'q0': unknown scorer 'yesno'\. Did you mean 'yes_no'\?"):
        check_scoring("data", "accuracy", [asked(0, task="yesno")])


def test_a_misspelt_corpus_metric_is_named() -> None:
    with pytest.raises(UnknownName, match=r"dataset 'data': unknown corpus metric 'pope'\. Did you mean 'pope_f1'\?"):
        check_scoring("data", "pope", [])
