"""Corpus metrics as functions of sums give what the metrics themselves give, of all samples and of some."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest

from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.scoring import CORPUS_METRICS, CORPUS_SUMS, Sums, corpus_score, corpus_sums, score

Answers = list[tuple[Sample, Prediction, Score]]

NAMES = CORPUS_METRICS.names()
SENTENCES = ["a man rides a red horse", "two dogs run in the park", "the red car is parked there", "a man in the park", "dogs"]


def skip_without_sacrebleu(name: str) -> None:
    if name == "bleu" and importlib.util.find_spec("sacrebleu") is None:
        pytest.skip("needs sacrebleu: pip install -e '.[captions]'")


def drawn(name: str, seed: int, *, images: int = 12, failing: float = 0.0) -> Answers:
    """Returns answers to two questions about each picture; captions where the metric is about them."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(2 * images):
        image = number // 2
        keys = {"image": f"i{image}", "figure": f"f{image}", "question": f"q{number % 2}_{image // 2}"}
        facts = {"category": f"c{image % 3}", "group": f"g{image}", "keys": keys}
        if name in {"cider", "rouge_l", "bleu"}:
            target = tuple(SENTENCES[place] for place in rng.permutation(5)[:2])
            sample = Sample(f"s{number}", (), "?", target, "open", scorer="rouge_l", **facts)  # type: ignore[arg-type]
            said = SENTENCES[int(rng.integers(5))]
        else:
            target_said = "yes" if number % 2 else "no"
            sample = Sample(f"s{number}", (), "?", target_said, "yes_no", **facts)  # type: ignore[arg-type]
            said = target_said if rng.random() < 0.7 else str(rng.choice(["yes", "no", "who knows"]))
        finish = "error" if rng.random() < failing else "stop"
        prediction = Prediction(said, "generate", finish_reason=finish)
        found.append((sample, prediction, score(sample, prediction)))
    return found


def sums_of(name: str, answers: Answers) -> Sums:
    found = corpus_sums(name, *zip(*answers, strict=True))
    assert found is not None
    return found


def value_of(name: str, answers: Answers) -> float:
    return corpus_score(name, *zip(*answers, strict=True)).value


@pytest.mark.parametrize("failing", [0.0, 0.1])
@pytest.mark.parametrize("name", NAMES)
def test_they_give_the_metric_itself(name: str, failing: float) -> None:
    skip_without_sacrebleu(name)
    for seed in range(5):
        answers = drawn(name, seed, failing=failing)
        sums = sums_of(name, answers)
        assert float(sums.value(sums.rows.sum(axis=0))) == pytest.approx(value_of(name, answers), abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cider"])
def test_leaving_a_unit_out_is_leaving_its_samples_out(name: str) -> None:
    """But for CIDEr: there the samples that are left out still say which words are rare."""
    skip_without_sacrebleu(name)
    answers = drawn(name, 7)
    sums = sums_of(name, answers)
    gone = {0, 1, 2, 3}  # two pictures, which share their questions
    kept = [row for row, members in zip(sums.rows, sums.members, strict=True) if not gone & {*members}]
    rest = [answer for index, answer in enumerate(answers) if index not in gone]
    assert float(sums.value(np.sum(kept, axis=0))) == pytest.approx(value_of(name, rest), abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_many_sums_at_once_are_each_its_own(name: str) -> None:
    skip_without_sacrebleu(name)
    sums = sums_of(name, drawn(name, 3))
    several = np.stack([sums.rows.sum(axis=0), sums.rows[:14].sum(axis=0), np.zeros(sums.rows.shape[1])])
    together = sums.value(several)
    assert together.shape == (3,)
    assert [float(sums.value(one)) for one in several] == pytest.approx(together.tolist(), nan_ok=True)
    assert math.isnan(together[2]) or together[2] == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_the_worst_unit_harms_and_the_best_one_helps(name: str) -> None:
    skip_without_sacrebleu(name)
    sums = sums_of(name, drawn(name, 1))
    total = sums.rows.sum(axis=0)
    worse, value, better = (float(sums.value(total + extra)) for extra in (sums.worst, 0.0 * sums.worst, sums.best))
    assert 0.0 <= worse < value < better <= sums.highest


def test_a_metric_without_sums_has_none() -> None:
    CORPUS_METRICS.add("of_the_test", lambda _answers: (1.0, {}), replace=True)
    answers = drawn("accuracy", 0)
    assert corpus_sums("of_the_test", *zip(*answers, strict=True)) is None
    assert corpus_sums("accuracy", [], [], []) is None
    del CORPUS_METRICS._things["of_the_test"]
    assert {*NAMES} <= {*CORPUS_SUMS.names()}
