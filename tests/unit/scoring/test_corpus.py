"""What benchmarks publish of answers that are right or wrong."""

import importlib.util
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.scoring import CORPUS_METRICS, CorpusScore, Sums, corpus_score, score
from pytest_vlmrobust.scoring.corpus import COGNITION, PERCEPTION

OF_ANSWERS = ["accuracy", "category_accuracy", "circular", "mme", "hallusion_bench", "pope_f1"]
OF_ANSWERS += ["natural_bench", "dual_accuracy", "mvi_bench"]


def yes_no(target: str, *, category: str = "", group: str = "", **keys: str) -> Sample:
    return Sample("q", (), "Is it?", target, "yes_no", category=category, group=group, keys=keys)


def measured(name: str, answers: Sequence[tuple[Sample, str | None]]) -> CorpusScore:
    samples = [sample for sample, _ in answers]
    said = [Prediction(text or "", "generate", finish_reason="error" if text is None else "stop") for _, text in answers]
    return corpus_score(name, samples, said, [score(*pair) for pair in zip(samples, said, strict=True)])


def test_accuracy_counts_unparsed_and_leaves_out_failed() -> None:
    sample = yes_no("yes")
    result = measured("accuracy", [(sample, "yes"), (sample, "no"), (sample, "Yes/No"), (sample, None)])
    assert result == CorpusScore(1 / 3, {}, n=3, n_failed=1, n_unparsed=1)


def test_category_accuracy_is_the_mean_of_categories() -> None:
    few, many = yes_no("yes", category="few"), yes_no("yes", category="many")
    result = measured("category_accuracy", [(few, "yes"), (many, "no"), (many, "no"), (many, "yes"), (many, "no")])
    assert result.parts == {"few": 1.0, "many": 0.25}
    assert result.value == pytest.approx(0.625)


def test_circular_needs_every_copy() -> None:
    first, second = yes_no("yes", question="1"), yes_no("yes", group="2")
    answers: list[tuple[Sample, str | None]] = [(first, "yes"), (second, "yes"), (first, "no"), (second, "yes")]
    result = measured("circular", answers)
    assert (result.value, result.parts) == (0.5, {"plain": 0.75})
    assert measured("circular", [*answers, (second, None)]).value == 0.0  # of the other question not everything is known


def test_mme() -> None:
    def pair(task: str, image: str, *said: str) -> list[tuple[Sample, str | None]]:
        return [(yes_no(target, category=task, group=image), text) for target, text in zip(("yes", "no"), said, strict=True)]

    # existence: 3 of 4 right and 1 of 2 images; count: 1 of 2 and 0 of 1. One picture may serve two sub-tasks.
    result = measured(
        "mme", [*pair("existence", "1", "yes", "no"), *pair("existence", "2", "yes", "yes"), *pair("count", "1", "no", "no")]
    )
    assert result.parts["existence"] == pytest.approx(75 + 50)
    assert result.parts["count"] == pytest.approx(50 + 0)
    assert (result.value, result.parts["acc"], result.parts["acc_plus"]) == (175.0, 125.0, 50.0)
    assert math.isnan(result.parts["perception"])
    every = [answer for task in (*PERCEPTION, *COGNITION) for answer in pair(task, "1", "yes", "no")]
    full = measured("mme", every)
    assert (full.value, full.parts["perception"], full.parts["cognition"]) == (2800.0, 2000.0, 800.0)


def test_hallusion_bench() -> None:
    def each(figure: str, question: str, said: str) -> tuple[Sample, str]:
        return yes_no("yes", figure=figure, question=question), said

    # two figures by two questions of one set, and a question about no figure's twin
    result = measured(
        "hallusion_bench",
        [
            each("VD_0_1", "VD_0_0", "yes"),
            each("VD_0_1", "VD_0_1", "yes"),
            each("VD_0_2", "VD_0_0", "no"),
            each("VD_0_2", "VD_0_1", "yes"),
        ],
    )
    assert result.parts == {"aAcc": 0.75, "fAcc": 0.5, "qAcc": 0.5}
    assert result.value == pytest.approx(1.75 / 3)
    with pytest.raises(UsageError, match="sample 'q' has no key 'figure' to group by; its keys: question"):
        measured("hallusion_bench", [(yes_no("yes", question="1"), "yes")])


@given(said=st.lists(st.lists(st.sampled_from(["yes", "no"]), min_size=4, max_size=4), min_size=1, max_size=8))
def test_natural_bench_is_that_of_its_makers(said: list[list[str]]) -> None:
    """The formula of ``get_scores`` in their program: of four answers in order, 1 for yes."""
    answers: list[tuple[Sample, str | None]] = []
    for group, four in enumerate(said):
        for place, text in enumerate(four):
            target = "yes" if place in (0, 3) else "no"
            answers.append((yes_no(target, group=str(group), question=f"q{place // 2}", image=f"i{place % 2}"), text))
    ones = [[int(text == "yes") for text in four] for four in said]
    questions = [(a == 1 and b == 0) + (d == 1 and c == 0) for a, b, c, d in ones]
    images = [(a == 1 and c == 0) + (d == 1 and b == 0) for a, b, c, d in ones]
    groups = [both == (2, 2) for both in zip(questions, images, strict=True)]
    result = measured("natural_bench", answers)
    assert result.value == pytest.approx(sum(groups) / len(said))
    assert (result.parts["Q_Acc"], result.parts["I_Acc"]) == pytest.approx(
        (sum(questions) / (2 * len(said)), sum(images) / (2 * len(said)))
    )
    assert result.parts["Acc"] == pytest.approx(sum(a + (1 - b) + (1 - c) + d for a, b, c, d in ones) / (4 * len(said)))


@given(said=st.lists(st.tuples(*[st.booleans()] * 4), min_size=1, max_size=8), alone=st.booleans())
def test_dual_accuracy_is_that_of_its_makers(said: list[tuple[bool, ...]], *, alone: bool) -> None:
    """Of each form a question is right where its copies are; the forms are joined by question."""
    answers: list[tuple[Sample, str | None]] = [
        (yes_no("yes", question=str(number), form=form), "yes" if right else "no")
        for number, four in enumerate(said)
        for form, right in zip(("standard", "standard", "upd", "upd"), four, strict=True)
    ]
    if alone:
        answers.append((yes_no("yes", question="alone", form="standard"), "no"))
    standard, unsolvable = ([all(four[part]) for four in said] for part in (slice(0, 2), slice(2, 4)))
    result = measured("dual_accuracy", answers)
    assert result.value == pytest.approx(sum(map(min, zip(standard, unsolvable, strict=True))) / len(said))
    assert result.parts == pytest.approx({"standard": sum(standard) / (len(said) + alone), "upd": sum(unsolvable) / len(said)})


@given(said=st.lists(st.tuples(st.sampled_from(["normal", "misleading"]), st.sampled_from("xy"), st.booleans()), min_size=1))
def test_mvi_bench_is_that_of_its_makers(said: list[tuple[str, str, bool]]) -> None:
    def accuracy(kind: str, of: str) -> float:
        some = [right for each, category, right in said if each == kind and category in of]
        return sum(some) / len(some) if some else math.nan

    answers = [(yes_no("yes", category=of, type=kind), "yes" if right else "no") for kind, of, right in said]
    result = measured("mvi_bench", answers)
    assert result.value == pytest.approx(accuracy("misleading", "xy"), nan_ok=True)
    for part, of in (("sensitivity", "xy"), *((f"sensitivity_{of}", of) for _, of, _ in said)):
        normal, misleading = accuracy("normal", of), accuracy("misleading", of)
        expected = (normal - misleading) / normal if normal else math.nan
        assert result.parts[part] == pytest.approx(expected, nan_ok=True)


def test_pope_by_hand() -> None:
    yes, no = yes_no("yes"), yes_no("no")
    # 2 hits, 1 miss, 1 alarm, 2 rejections
    result = measured("pope_f1", [(yes, "yes"), (yes, "yes"), (yes, "no"), (no, "yes"), (no, "no"), (no, "no")])
    assert result.parts == pytest.approx({"precision": 2 / 3, "recall": 2 / 3, "accuracy": 4 / 6, "yes_ratio": 0.5})
    assert result.value == pytest.approx(2 / 3)


def test_an_unparsed_answer_is_no_no() -> None:
    yes, no = yes_no("yes"), yes_no("no")
    answered = measured("pope_f1", [(yes, "yes"), (no, "no")])
    silent = measured("pope_f1", [(yes, "yes"), (no, "Yes/No")])
    assert answered.value == 1.0
    assert silent.value == pytest.approx(2 / 3)
    assert (silent.parts["precision"], silent.parts["yes_ratio"], silent.n_unparsed) == (0.5, 0.5, 1)
    assert measured("pope_f1", [(yes, ""), (no, "")]).value == 0.0


def test_pope_counts_a_question_once_in_each_of_its_sets() -> None:
    # By POPE_rating of VLMEvalKit (vlmeval/dataset/utils/yorn.py), which splits the category at commas and explodes the rows:
    # hits 2 + 1, misses 2 + 2, false alarms 1 + 3; counted once a row they would be 2, 2 and 2.
    def row(category: str, target: str, said: str) -> tuple[Sample, str]:
        return yes_no(target, category=category), said

    result = measured(
        "pope_f1",
        [
            row("adversarial,popular", "yes", "yes"),
            row("random", "yes", "yes"),
            row("adversarial,popular", "yes", "no"),
            row("popular,random", "yes", "no"),
            row("adversarial", "no", "yes"),
            row("adversarial,popular,random", "no", "yes"),
            row("random", "no", "no"),
        ],
    )
    assert result.value == pytest.approx(6 / 14)
    assert result.parts == pytest.approx(
        {
            "precision": 3 / 7,
            "recall": 3 / 7,
            "accuracy": 4 / 12,
            "yes_ratio": 7 / 12,
            "f1_adversarial": 2 / 5,
            "f1_popular": 2 / 5,
            "f1_random": 2 / 4,
        }
    )


def test_pope_asks_yes_or_no() -> None:
    sample = Sample("q7", (), "?", "B", "choice", {"A": "cat", "B": "dog"})
    with pytest.raises(UsageError, match="sample 'q7' has the target 'B'; pope_f1 expects yes or no"):
        measured("pope_f1", [(sample, "B")])


@pytest.mark.parametrize("name", ["circular", "mme"])
def test_a_sample_without_a_group(name: str) -> None:
    with pytest.raises(UsageError, match=r"sample 'q' has neither a key '(question|image)' nor a group; its keys: none"):
        measured(name, [(yes_no("yes"), "yes")])


@pytest.mark.parametrize("name", [*OF_ANSWERS, "cider", "rouge_l", "bleu"])
def test_nothing_is_nan(name: str) -> None:
    if name == "bleu":
        pytest.importorskip("sacrebleu", reason="needs sacrebleu: pip install -e '.[captions]'")
    result = corpus_score(name, [], [], [])
    assert math.isnan(result.value)
    assert all(map(math.isnan, result.parts.values()))
    assert (result.n, result.n_failed, result.n_unparsed) == (0, 0, 0)
    assert name in CORPUS_METRICS


@pytest.mark.cases("name", OF_ANSWERS)
def test_only_failed_inferences_are_nan(name: str) -> None:
    sample = yes_no("yes", group="1", figure="1", question="1", image="1", form="upd", type="misleading")
    result = measured(name, [(sample, None)])
    assert math.isnan(result.value)
    assert (result.n, result.n_failed) == (0, 1)


cases = st.lists(
    st.tuples(
        st.builds(
            yes_no,
            st.sampled_from(["yes", "no"]),
            category=st.sampled_from(["x", "y"]),
            group=st.sampled_from("123"),
            figure=st.sampled_from("123"),
            question=st.sampled_from("123"),
            image=st.sampled_from("12"),
            form=st.sampled_from(["standard", "upd"]),
            type=st.sampled_from(["normal", "misleading"]),
        ),
        st.sampled_from(["yes", "no", "", None]),
    ),
    max_size=12,
)


@pytest.mark.parametrize("name", OF_ANSWERS)
@given(answers=cases)
def test_order_does_not_matter_and_a_mended_answer_never_harms(name: str, answers: list[tuple[Sample, str | None]]) -> None:
    result = measured(name, answers)
    assert type(result.value) is float
    assert {type(value) for value in result.parts.values()} <= {float}
    assert measured(name, answers[::-1]).value == pytest.approx(result.value, nan_ok=True)
    assert math.isnan(result.value) or 0 <= result.value <= (400 if name == "mme" else 1) + 1e-9
    for number, (sample, text) in enumerate(answers):
        if text is not None:
            repaired = [*answers[:number], (sample, str(sample.target)), *answers[number + 1 :]]
            assert not measured(name, repaired).value < result.value - 1e-9


def test_the_three_must_be_as_long() -> None:
    with pytest.raises(
        UsageError, match="'accuracy': expected one prediction and one score for each sample, found 1 samples, 0 pre"
    ):
        corpus_score("accuracy", [yes_no("yes")], [], [Score(1.0, "word", "yes")])


def test_an_unknown_corpus_metric() -> None:
    with pytest.raises(UnknownName, match=r"unknown corpus metric 'popef1'\. Did you mean 'pope_f1'\?"):
        corpus_score("popef1", [], [], [])


# Sums, from which intervals are computed.


Answers = list[tuple[Sample, Prediction, Score]]

NAMES = CORPUS_METRICS.names()
SENTENCES = ["a man rides a red horse", "two dogs run in the park", "the red car is parked there", "a man in the park", "dogs"]


def skip_without_sacrebleu(name: str) -> None:
    if name == "bleu" and importlib.util.find_spec("sacrebleu") is None:
        pytest.skip("needs sacrebleu: pip install -e '.[captions]'")


def drawn(name: str, seed: int, *, images: int = 12, failing: float = 0.0) -> Answers:
    """Returns answers to two questions about each picture; captions where the metric is about them."""
    rng = np.random.default_rng(seed)
    answers = []
    for number in range(2 * images):
        image = number // 2
        keys = {"image": f"i{image}", "figure": f"f{image}", "question": f"q{number % 2}_{image // 2}"}
        keys |= {"form": ("standard", "upd")[image % 2], "type": ("normal", "misleading")[image % 2]}
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
        answers.append((sample, prediction, score(sample, prediction)))
    return answers


def sums_of(name: str, answers: Answers) -> Sums:
    sums = corpus_score(name, *zip(*answers, strict=True)).sums
    assert sums is not None
    return sums


def value_of(name: str, answers: Answers) -> float:
    return corpus_score(name, *zip(*answers, strict=True)).value


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cider"])
def test_sums_without_a_unit_are_those_without_its_samples(name: str) -> None:
    """But for CIDEr: there the samples that are left out still say which words are rare."""
    skip_without_sacrebleu(name)
    answers = drawn(name, 7)
    sums = sums_of(name, answers)
    gone = {0, 1, 2, 3}  # two pictures, which share their questions
    kept = [row for row, members in zip(sums.rows, sums.members, strict=True) if not gone & {*members}]
    rest = [answer for index, answer in enumerate(answers) if index not in gone]
    assert float(sums.value(np.sum(kept, axis=0))) == pytest.approx(value_of(name, rest), abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_sums_of_several_are_each_its_own(name: str) -> None:
    skip_without_sacrebleu(name)
    sums = sums_of(name, drawn(name, 3))
    several = np.stack([sums.rows.sum(axis=0), sums.rows[:14].sum(axis=0), np.zeros(sums.rows.shape[1])])
    together = sums.value(several)
    assert together.shape == (3,)
    assert [float(sums.value(row)) for row in several] == pytest.approx(together.tolist(), nan_ok=True)
    assert math.isnan(together[2]) or together[2] == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_sums_get_worse_by_the_worst_unit_and_better_by_the_best(name: str) -> None:
    skip_without_sacrebleu(name)
    sums = sums_of(name, drawn(name, 1))
    total = sums.rows.sum(axis=0)
    worse, value, better = (float(sums.value(total + extra)) for extra in (sums.worst, 0.0 * sums.worst, sums.best))
    assert 0.0 <= worse < value < better <= sums.highest


def test_sums_are_unknown_of_a_pair_of_value_and_parts_and_of_no_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CORPUS_METRICS._things, "of_the_test", lambda _answers: (0.5, {"half": 1}))
    result = corpus_score("of_the_test", *zip(*drawn("accuracy", 0), strict=True))
    assert (result.value, result.parts, result.sums) == (0.5, {"half": 1.0}, None)
    assert corpus_score("accuracy", [], [], []).sums is None
