"""Stopping at the first right patch changes how many inferences are made, and nothing that the best patch decides."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.backends import failed_prediction
from pytest_vlmrobust.backends.generation import TEXT_INSTEAD
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, Setting
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import OfflineError
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction, Request, Score
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.after.comparison import compare
from pytest_vlmrobust.evaluation.judge.baseline import Baseline
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.judge.stored_answers import StoredAnswers
from pytest_vlmrobust.evaluation.run.evaluator import Evaluator
from pytest_vlmrobust.evaluation.run.evidence import examples
from pytest_vlmrobust.evaluation.run.results import (
    BLIND_UNPARSED,
    CellResult,
    best_is_enough,
    chains_by_change,
    chains_by_outcome,
    counted,
    counts_for_budgets,
    is_guess,
    undefined,
    view_batches,
)
from pytest_vlmrobust.metrics.record import REGISTRY
from pytest_vlmrobust.metrics.table import Scores, ScoreTable
from pytest_vlmrobust.policies import Policy, Rule, load_policy
from pytest_vlmrobust.policies.rules import Bound, JudgedBy, Treatment
from pytest_vlmrobust.store import Answer, Evidence
from tests.unit.evaluation.conftest import MemoryImage, World, cell, picture, sample, sweep_of, table_of

PATCHES = cell("patches:2")
ENOUGH = ["pcri", "pcri_excess", "pcri_matched", "rci"]


def lucky(request: Request) -> str:
    """Answers by a coin that the pixels throw, so that every patch has its own."""
    return "B" if int(request.images[0].astype(int).sum()) % 3 == 0 else "A"


def graded(request: Request) -> str:
    """Says one, two or three words of three: scores of one, two and three thirds."""
    return " ".join(["green", "red", "blue"][: 1 + int(request.images[0].astype(int).sum()) % 3])


GRADED: dict[str, Any] = {"task": "open", "scorer": "ocr_recall", "options": {}, "target": "green red blue"}


def furnish(world: World, **facts: Any) -> None:
    world.samples = [sample(number, images=(MemoryImage(picture(number)),), **facts) for number in range(40)]


def both(world: World) -> tuple[CellResult, CellResult]:
    return world.evaluator().result(PATCHES), world.evaluator(patch_stop=True).result(PATCHES)


def table(evaluator: Evaluator, result: CellResult) -> ScoreTable:
    return ScoreTable(
        clean=evaluator.result(cell("clean")).values,
        by_setting={"patches:2": result.values},
        patches_by_setting={"patches:2": result.attempts},
        chances=np.full(len(result.samples), 0.1),
        whole_attempts=evaluator.result(cell("attempts:2")).attempts,
    )


@pytest.mark.parametrize(("answer", "facts"), [(lucky, {}), (graded, GRADED)], ids=["right or wrong", "graded"])
def test_the_best_patch_is_the_same_to_the_last_bit(
    world: World, answer: Callable[[Request], str], facts: dict[str, Any]
) -> None:
    furnish(world, **facts)
    world.model.answer = answer
    full, stopped = both(world)
    assert stopped.n_requested < full.n_requested
    assert stopped.n_unasked == full.n_requested - stopped.n_requested > 20
    assert np.array_equal(full.values, stopped.values)
    assert np.array_equal(full.by_view.argmax(axis=1), stopped.attempts.argmax(axis=1))
    evaluator = world.evaluator()
    for name in ENOUGH:
        of_full, of_stopped = (
            metrics.estimate(name, table(evaluator, result), setting="patches:2") for result in (full, stopped)
        )
        assert math.isfinite(of_full.value)
        assert dataclasses.replace(of_full, at=None) == dataclasses.replace(of_stopped, at=None)


def test_only_a_full_score_stops(world: World) -> None:
    furnish(world, **GRADED)
    world.model.answer = lambda _request: "green red"
    full, stopped = both(world)
    assert stopped.n_unasked == 0
    assert full.values == pytest.approx(2 / 3)
    assert np.array_equal(full.by_view, stopped.by_view)


def test_it_asks_by_position_and_drops_who_is_right(world: World) -> None:
    right = {perturbations.get("patches:2")(picture(n), seed=1)[p].tobytes() for n, p in ((0, 0), (1, 2), (3, 3))}
    world.samples = [sample(number) for number in range(4)]
    world.model.answer = lambda request: "B" if request.images[0].tobytes() in right else "A"
    result = world.evaluator(patch_stop=True).result(PATCHES)
    assert world.model.asked_about == ["q0", "q1", "q2", "q3", *["q1", "q2", "q3"] * 2, "q2", "q3"]
    assert np.array_equal(np.isnan(result.by_view).sum(axis=1), [3, 1, 0, 0])
    assert [score.state for score in result.scores[:4]] == ["scored", "unasked", "unasked", "unasked"]


def test_the_store_is_shared_with_full_runs(world: World) -> None:
    furnish(world)
    world.model.answer = lucky
    stopped = world.evaluator(patch_stop=True).result(PATCHES)
    full = world.evaluator().result(PATCHES)
    assert full.n_inferred == stopped.n_unasked
    again = world.evaluator(patch_stop=True, offline=True).result(PATCHES)
    assert again.n_inferred == 0
    assert np.array_equal(again.by_view, stopped.by_view, equal_nan=True), "what the store knows changes nothing"


def test_a_stopped_run_is_not_enough_for_a_full_one_offline(world: World) -> None:
    furnish(world)
    world.model.answer = lucky
    world.evaluator(patch_stop=True).result(PATCHES)
    with pytest.raises(OfflineError, match=r"of 160 answers are not in the store"):
        world.evaluator(offline=True).result(PATCHES)


def test_settings_of_one_view_are_asked_about_as_ever(world: World) -> None:
    assert world.evaluator(patch_stop=True).result(cell("flip_v")).n_requested == 6
    assert view_batches(3, 1, stop=False) == [range(3)]


def test_metrics_say_whether_the_best_patch_is_enough() -> None:
    """The others, a user's own among them, are refused rather than computed from a part."""
    by_patch = [name for name in metrics.names() if metrics.Needs.PATCHES in metrics.get(name).needs]
    assert sorted(name for name in by_patch if best_is_enough(name)) == ENOUGH
    assert best_is_enough("accuracy_drop")
    estimate = undefined(7)
    assert (estimate.valid, estimate.n, estimate.reason) == (False, 7, "needs every patch: run without --vlm-patch-stop")


@pytest.mark.parametrize("name", ENOUGH)
def test_what_claims_to_need_the_best_patch_alone_does(name: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        patches = rng.choice([0.0, 0.5, 1.0], (30, 4))
        seen = np.maximum.accumulate(patches, axis=1)
        cut = np.where(np.pad(seen, ((0, 0), (1, 0)))[:, :-1] == 1.0, 0.0, patches)
        clean, chances = rng.integers(0, 2, 30).astype(float), np.full(30, 0.25)
        estimates = [
            metrics.estimate(
                name,
                ScoreTable(
                    clean,
                    {"patches:2": of.max(axis=1)},
                    patches_by_setting={"patches:2": of},
                    chances=chances,
                    whole_attempts=of[::-1],
                ),
                setting="patches:2",
            )
            for of in (patches, cut)
        ]
        assert not np.array_equal(patches, cut)
        assert repr(estimates[0]) == repr(estimates[1])


def test_examples_show_what_was_asked_about(world: World, tmp_path: Path) -> None:
    world.samples = [sample(0)]
    second = perturbations.get("patches:2")(picture(0), seed=1)[1].tobytes()
    world.model.answer = lambda request: "B" if request.images[0].tobytes() == second else "A"
    evaluator = world.evaluator(patch_stop=True, pictures=tmp_path)
    (example,) = examples(evaluator.result(Cell("model", "data", CLEAN)), evaluator.result(PATCHES), evaluator.thumbnails)
    assert [reply.about for reply in example.replies] == ["clean", "patch 1,1", "patch 1,2"]
    assert [shown.frame for shown in example.pictures] == ["wrong", "wrong", "right"]


@pytest.fixture
def mean_patch() -> Iterator[str]:
    """A metric of a user's own that reads every patch."""

    def mean_patch_of_the_test(patches: Scores) -> float:
        """Mean score over all patches."""
        return float(patches.mean())

    metrics.metric(suite="patches")(mean_patch_of_the_test)
    yield "mean_patch_of_the_test"
    del REGISTRY._things["mean_patch_of_the_test"]


@pytest.mark.parametrize("stop", [False, True])
def test_what_needs_every_patch_is_refused_rather_than_computed(world: World, mean_patch: str, *, stop: bool) -> None:
    furnish(world)
    world.model.answer = lucky
    rule = Rule("mine", mean_patch, Bound(low=0.01), "p.yaml:1", treatment=Treatment(judge=JudgedBy.POINT))
    judge = Judge(world.evaluator(patch_stop=stop), {"model": Policy((rule,))}, date(2026, 6, 1))
    record = judge.run(PATCHES)
    (mean,) = [measure for measure in record.measures if measure.metric == mean_patch]
    assert math.isnan(mean.value) is stop
    assert mean.outcome is (Outcome.NOT_APPLICABLE if stop else Outcome.PASS)
    assert ("needs every patch: run without --vlm-patch-stop" in mean.reason) is stop
    assert len(record.positions) == (0 if stop else 4)
    assert any("saved" in note for note in record.notes) is stop


def muttering(request: Request) -> str:
    """As ``lucky``, but many patches are answered in words that nobody can read."""
    return ("B", "A", "hm", "hm")[int(request.images[0].astype(int).sum()) % 4]


def test_what_cannot_be_read_breaks_the_same_budget(world: World) -> None:
    """An answer about a patch after the right one does not count, whether it was asked for or not."""
    furnish(world)
    world.model.answer = muttering
    whole, stopped = both(world)
    assert stopped.n_unasked > 0
    assert whole.n_unparsed > stopped.n_unparsed > 0
    counted = [texts_of(result) for result in (whole, stopped)]
    assert counted[0] == counted[1]
    assert counted[1][1] == stopped.n_unparsed


def texts_of(result: CellResult) -> tuple[int, int]:
    """Returns how many answers count for budgets, and how many of them cannot be read."""
    states = [score.state for score in result.scores]
    texts = counts_for_budgets(result.views, np.array([score.value for score in result.scores]), states)
    return int(texts.sum()), int((texts & (np.array(states) == "unparsed")).sum())


REFUSAL = "I am sorry, but I cannot see an image. Please provide the image."
UNPARSED, WRONG, FAILED = Score.unparsed("refusal"), Score(0.0, "letter", "A"), Score.unscored("down")
FLIPS = [Setting.parse("flip_h"), Setting.parse("flip_v")]
Made = Callable[..., Judge]


@pytest.fixture
def judge(world: World, tmp_path: Path) -> Made:
    """Makes a judge over the world with the rules of a thresholds file and the default budgets."""

    def made(*rules: str) -> Judge:
        listed = "".join(f"  - {rule}\n" for rule in rules or ("{id: drop, metric: accuracy_drop, max: 20pp}",))
        file = tmp_path / "policy.yaml"
        file.write_text(f"version: 1\nrules:\n{listed}defaults: {{judge: point}}\n", encoding="utf-8")
        policy = load_policy([file], known_metrics=known_metrics(), root=tmp_path)
        return Judge(world.evaluator(), dict.fromkeys(world.refs, policy), date(2026, 6, 1))

    return made


@pytest.fixture(autouse=True)
def balanced(world: World) -> None:
    """Makes each letter right as often as the other, so that no answer is better than guessing."""
    world.samples = [sample(number, target="AB"[number % 2]) for number in range(6)]


def right(request: Request) -> str:
    return "AB"[int(request.sample_id[1:]) % 2]


def wrong(request: Request) -> str:
    return "BA"[int(request.sample_id[1:]) % 2]


def refusing(
    *samples: str, setting: str = "no_image", otherwise: Callable[[Request], str] = right
) -> Callable[[Request], str | Prediction]:
    """Refuses under a setting, to all samples where none are named; right otherwise."""

    def answer(request: Request) -> str:
        is_asked = request.setting == setting and (not samples or request.sample_id in samples)
        return REFUSAL if is_asked else otherwise(request) if request.setting == setting else right(request)

    return answer


def measures(record: Record) -> dict[str, Measure]:
    return {measure.metric: measure for measure in record.measures}


def test_only_an_unreadable_answer_without_its_pictures_is_a_guess() -> None:
    question = sample(0)
    assert is_guess(NO_IMAGE, question, UNPARSED)
    assert not is_guess(CLEAN, question, UNPARSED)
    assert not is_guess(NO_IMAGE, question, WRONG)
    assert not is_guess(NO_IMAGE, question, FAILED)
    assert not is_guess(NO_IMAGE, dataclasses.replace(question, images=()), UNPARSED)


def test_a_guess_counts_the_expected_score_of_guessing() -> None:
    texts = dict(zip("ABCD", "wxyz", strict=True))
    four = [sample(number, options=texts, target=letter) for number, letter in enumerate("ABCD")]
    closed = [sample(number, task="yes_no", options={}, target=said) for number, said in ((4, "yes"), (5, "no"))]
    free = [sample(number, task="open", options={}, target=said) for number, said in ((6, "three"), (7, "a cat"))]
    bare = dataclasses.replace(four[3], images=())
    samples = (*four[:3], bare, *closed, *free)
    scores = (UNPARSED, WRONG, FAILED, UNPARSED, UNPARSED, WRONG, UNPARSED, UNPARSED)
    expected = [0.25, 0.0, math.nan, 0.0, 0.5, 0.0, 0.0, 0.0]
    assert counted(NO_IMAGE, samples, scores) == pytest.approx(expected, nan_ok=True)
    assert counted(CLEAN, samples, scores) == pytest.approx([0.0, 0.0, math.nan] + [0.0] * 5, nan_ok=True)


def test_a_guess_counts_what_the_commonest_answer_gets_where_that_is_more() -> None:
    """Whoever says No with every picture, and refuses to answer without, sees nothing."""
    samples = [sample(number, task="yes_no", options={}, target="no" if number < 4 else "yes") for number in range(5)]
    assert counted(NO_IMAGE, samples, [UNPARSED] * 5) == [1.0, 1.0, 1.0, 1.0, 0.0]
    letters = [sample(number, target="A" if number < 4 else "B") for number in range(5)]
    assert counted(NO_IMAGE, letters, [WRONG, *[UNPARSED] * 4]) == [0.0, 1.0, 1.0, 1.0, 0.0]


def test_a_model_that_refuses_without_the_picture_breaks_no_budget(world: World, judge: Made) -> None:
    world.model.answer = refusing()
    made = judge()
    blind = made.run(cell("no_image"))
    assert (blind.outcome, blind.n_unparsed, blind.n_guessed) == (Outcome.MEASURED, 0, 6)
    assert measures(blind)["accuracy"].value == pytest.approx(0.5)
    share = measures(blind)[BLIND_UNPARSED]
    assert (share.value, share.n, share.outcome) == (1.0, 6, Outcome.MEASURED)
    assert "unparsed_rate" not in measures(blind)
    said = "6 of 6 answers of model without the images could not be read and count as guesses"
    assert blind.notes == (said,)
    for metric in ("clean_accuracy", "visual_gain", "worst_case_drop", "mean_drop", "mean_corruption_error"):
        record = made.run(sweep_of(metric), FLIPS)
        assert (record.outcome, [measure.metric for measure in record.measures]) == (Outcome.MEASURED, [metric])
        assert (said in record.notes) == (metric in ("visual_gain", "mean_corruption_error"))
    assert measures(made.run(sweep_of("visual_gain"), FLIPS))["visual_gain"].value == pytest.approx(0.5)


def test_a_cell_that_is_compared_with_guesses_says_so(world: World, judge: Made) -> None:
    world.model.answer = refusing("q1", "q2")
    record = judge().run(cell("flip_h"))
    assert record.notes == ("2 of 6 answers of model without the images could not be read and count as guesses",)
    assert (record.outcome, record.n_guessed) == (Outcome.PASS, 0)


def test_answers_whose_letters_hold_little_of_the_probability_are_counted_in_a_note(world: World, judge: Made) -> None:
    def unsure(request: Request) -> Prediction:
        if request.sample_id == "q1":
            return Prediction("x", LETTER_LOGITS, "no_letter")
        few = request.sample_id in ("q2", "q3")
        return Prediction("B", LETTER_LOGITS, logprobs={"A": -9.0, "B": -2.0 if few else -0.1})

    world.model.answer = unsure
    said = f"in 3 of 6 answers the letters hold less than half of the probability. {TEXT_INSTEAD}"
    assert [note for note in judge().run(cell("flip_h")).notes if "letters hold" in note] == [f"flip_h: {said}"]
    assert not [note for note in judge().run(cell("no_image")).notes if "letters hold" in note]
    world.model.answer, world.model.version = right, "2"
    assert not [note for note in judge().run(cell("flip_h")).notes if "letters hold" in note]


def test_guesses_make_the_visual_gain_smaller_and_shares_of_it_larger_than_wrong_answers(world: World, judge: Made) -> None:
    def answer(request: Request) -> str:
        lost = request.setting == "flip_v" and request.sample_id == "q3"
        return REFUSAL if request.setting == "no_image" else wrong(request) if lost else right(request)

    world.model.answer = answer
    by_name = measures(judge().run(cell("flip_v")))
    assert by_name["relative_corruption_error"].value == pytest.approx((1 / 6) / 0.5)


def test_unreadable_answers_with_pictures_still_break_it(world: World, judge: Made) -> None:
    world.model.answer = refusing(setting="clean")
    made = judge()
    record = made.run(cell("clean"))
    assert record.outcome is Outcome.FAIL
    broken = measures(record)["refusal_rate"]
    assert (broken.value, broken.n) == (1.0, 6)
    assert (record.n_unparsed, record.n_refused) == (0, 6)


def test_a_summary_metric_counts_what_it_rests_on_and_leaves_budgets_to_the_cells(world: World, judge: Made) -> None:
    world.model.answer = refusing(setting="flip_h")
    worst = judge().run(sweep_of("worst_case_drop"), FLIPS)
    assert (worst.outcome, worst.n_requested, worst.n_refused) == (Outcome.MEASURED, 18, 6)
    assert set(measures(worst)) == {"worst_case_drop"}


def test_a_failed_inference_without_pictures_is_no_guess(world: World, judge: Made) -> None:
    def answer(request: Request) -> str | Prediction:
        down = (request.setting, request.sample_id) == ("no_image", "q2")
        return failed_prediction("down") if down else REFUSAL if request.setting == "no_image" else right(request)

    world.model.answer = answer
    made = judge()
    blind = made.run(cell("no_image"))
    assert (blind.outcome, blind.n_errors, blind.n_guessed) == (Outcome.ERROR, 1, 5)
    gain = made.run(sweep_of("visual_gain"), FLIPS)
    assert gain.outcome is Outcome.ERROR
    assert math.isnan(measures(gain)["visual_gain"].value)
    assert made.run(sweep_of("clean_accuracy"), FLIPS).outcome is Outcome.MEASURED


def test_a_question_without_pictures_is_no_guess(world: World, judge: Made) -> None:
    world.samples = [sample(number, images=()) for number in range(6)]
    world.model.answer = lambda _request: REFUSAL
    made = judge()
    assert made.run(cell("clean")).outcome is Outcome.FAIL
    gain = made.run(sweep_of("visual_gain"), FLIPS)
    assert (measures(gain)["visual_gain"].value, gain.n_guessed) == (0.0, 0)


def test_the_reference_of_corruption_errors_guesses_too(world: World) -> None:
    world.model.answer = refusing()
    table = table_of(world.evaluator(), FLIPS)
    assert table.no_image is not None
    assert table.reference_by_setting is not None
    for scores in (table.no_image, *table.reference_by_setting.values()):
        np.testing.assert_allclose(scores, 0.5)


def test_every_reader_of_a_run_counts_alike(world: World) -> None:
    world.model.answer = refusing("q0", "q4", otherwise=wrong)
    run = world.measured("run", ["clean", "no_image"])
    expected = [0.5, 0.0, 0.0, 0.0, 0.5, 0.0]
    live = world.evaluator().result(cell("no_image")).values
    with Evidence.open(run, read_only=True) as evidence:
        answers = StoredAnswers(evidence, world.refs)
        again = answers.result(cell("no_image")).values
        stored = evidence.get_cell(cell("no_image"))
        assert [answer.score.value for answer in stored.answers] == [0.0] * 6  # raw: what was read
        assert answers.rescored == []
    for records in (live, again):
        assert list(records) == expected
    baseline = Baseline.open(run)
    assert list(baseline.scores(cell("no_image"), world.evaluator())) == expected
    baseline.close()


def test_two_runs_are_compared_by_the_same_rule(world: World) -> None:
    world.model.answer = refusing(otherwise=wrong)
    before = world.measured("before", ["clean", "no_image"])
    world.model.answer = refusing("q0", otherwise=wrong)
    after = world.measured("after", ["clean", "no_image"])
    (change,) = [candidate for candidate in compare(before, after).cells if candidate.setting == "no_image"]
    assert (change.then, change.now) == pytest.approx((0.5, 0.5 / 6))


UNREAD = Score.unparsed()
RIGHT = Score(1.0, "letter", "B")


def result(*answers: tuple[int, Score], views: int = 1) -> CellResult:
    """Returns a cell whose answers have so many words of marked thinking, its marks included."""
    samples = [Sample(f"q{n}", (), "?", "B", "choice", {"A": "x", "B": "y"}) for n in range(len(answers) // views)]
    given = [
        Answer(f"k{n}", Prediction(f"<think> {'word ' * (words - 2)} </think> B", "generate"), score)
        for n, (words, score) in enumerate(answers)
    ]
    return CellResult.of(Cell("m", "d", Setting.parse("clean")), samples, given, views=views, places=None, notes={})


def test_answers_are_counted_by_outcome_and_length() -> None:
    counts = chains_by_outcome(result((10, RIGHT), (31, RIGHT), (40, WRONG), (3000, UNREAD), (50, FAILED)))
    assert counts == {"right, to 31": 2.0, "wrong, 32 to 63": 1.0, "unread, from 2048": 1.0}


def test_views_of_a_sample_have_no_chain_of_the_sample() -> None:
    views = result((10, RIGHT), (10, RIGHT), views=2)
    assert chains_by_outcome(views) == {}
    assert chains_by_change([views], [views]) == {}


def test_what_chains_change_beside_the_same_model_without() -> None:
    plain = result((2, WRONG), (2, WRONG), (2, RIGHT), (2, RIGHT), (2, FAILED))
    thinks = result((100, RIGHT), (200, WRONG), (300, WRONG), (20, RIGHT), (20, RIGHT))
    assert chains_by_change([plain, plain], [thinks, thinks]) == {
        "fixes, 64 to 127": 2.0,
        "does not fix, 128 to 255": 2.0,
        "breaks, 256 to 511": 2.0,
        "keeps, to 31": 2.0,
    }


@pytest.mark.parametrize(("words", "name"), [(31, "to 31"), (32, "32 to 63"), (2047, "1024 to 2047"), (2048, "from 2048")])
def test_ends_of_bins(words: int, name: str) -> None:
    assert chains_by_outcome(result((words, RIGHT))) == {f"right, {name}": 1.0}
